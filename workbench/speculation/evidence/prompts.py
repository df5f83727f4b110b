"""Prompts as token ids, from texts, lists of ids or a file; and the words of token ids."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation.evidence.files import content, place_of

_MOST_BYTES = 256 << 20
_MOST_PROMPTS = 100_000
_LONGEST_WORD = 48  # characters of one token that are shown
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no tokenizer takes
_NAMES = ("input_ids", "token_ids", "ids", "text", "prompt")


class Words:
    """A tokenizer, or nothing where there is none.

    Parameters
    ----------
    folder
        Where ``tokenizer.json`` lies; None: not known.
    """

    def __init__(self, folder: Path | None) -> None:
        self._tokenizer: Any = None
        self.why = "the target's folder is not known"
        if folder is None:
            return
        file = folder / "tokenizer.json"
        self.why = f"{folder} has no tokenizer.json"
        if not file.is_file():
            return
        try:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(file))
        except ImportError:
            self.why = "the package tokenizers is not installed"
        except Exception as error:  # the library raises plain Exception for a damaged file
            self.why = f"{file} cannot be read: {error}"

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text.

        Raises
        ------
        WorkbenchError
            There is no tokenizer.
        """
        if self._tokenizer is None:
            raise WorkbenchError(
                "prompts given as text need the target's tokenizer",
                why=self.why,
                next_step="Give prompts as lists of token ids.",
            )
        return list(self._tokenizer.encode(text).ids)

    def of(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the text of each token id that has one."""
        if self._tokenizer is None:
            return {}
        size = self._tokenizer.get_vocab_size()
        words = {}
        for token in ids:
            if 0 <= token < size:
                text = self._tokenizer.decode([token], skip_special_tokens=False)
                words[token] = text[:_LONGEST_WORD]
        return words


def prompts_of(prompts: Any, words: Words) -> list[list[int]]:
    """Return prompts as token ids.

    Parameters
    ----------
    prompts
        A list of texts or of lists of token ids; or the path of a file: ``.jsonl`` with ``text``,
        ``prompt`` or ``input_ids`` in each line, or ``.txt`` with a prompt a line.

    Raises
    ------
    WorkbenchError
        There is none, or one of them is neither text nor token ids.
    """
    if isinstance(prompts, str | os.PathLike):
        prompts = _file(prompts)
    if hasattr(prompts, "tolist"):
        prompts = prompts.tolist()
    if not isinstance(prompts, Sequence) or not len(prompts):
        raise WorkbenchError(
            "there are no prompts",
            why=f"the argument is {shown(prompts, 60)}",
            next_step="Give a list of texts or of token ids, or a .jsonl or .txt file.",
        )
    if len(prompts) > _MOST_PROMPTS:
        raise WorkbenchError(
            f"{len(prompts):,} prompts are too many",
            next_step=f"Give up to {_MOST_PROMPTS:,} of them.",
        )
    return [_one(prompt, words) for prompt in prompts]


def _one(prompt: Any, words: Words) -> list[int]:
    ids: Any = prompt
    if isinstance(prompt, str) and _SURROGATE.search(prompt) is None:
        ids = words.ids(prompt)
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    good = isinstance(ids, list | tuple) and len(ids) > 0
    if not good or not all(type(t) is int and 0 <= t < 1 << 31 for t in ids):
        raise WorkbenchError(
            f"{shown(prompt, 60)} is not a prompt",
            why="a prompt is a text, or a list of token ids",
            next_step="Give texts, or lists of token ids.",
        )
    return list(ids)


def _file(given: str | os.PathLike[str]) -> list[Any]:
    path = place_of(given)
    listed = path.name.lower().endswith((".jsonl", ".jsonl.gz"))
    if path.suffix.lower() in (".json", ".gz") and not listed:
        raise WorkbenchError(
            f"{path} is not a file of prompts",
            why="prompts come one a line",
            next_step="Write a .jsonl file with one object a line, or a .txt file.",
        )
    try:
        text = content(path, _MOST_BYTES).decode()
    except (WorkbenchError, UnicodeDecodeError) as error:
        raise WorkbenchError(
            f"cannot read the prompts {path}",
            why=error.why or error.what if isinstance(error, WorkbenchError) else str(error),
            next_step="Give a .jsonl or .txt file, or a list.",
        ) from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not listed:
        return list(lines)
    return [_line(line, number, path) for number, line in enumerate(lines, 1)]


def _line(line: str, number: int, path: Path) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        value = next((value[name] for name in _NAMES if name in value), None)
    if value is None:
        raise WorkbenchError(
            f"line {number} of {path} has no prompt",
            why='it is not a JSON object with "text", "prompt" or "input_ids"',
            next_step="Write one object a line.",
        )
    return value
