"""TensorRT-LLM's own command against ours: ``python -m tests.facts.trtllm_check FOLDER …``, by hand.

Each folder holds the Python files of one release that is on file. The engine's modules are replaced by
stand-ins, ``commands/serve.py`` is run so far that its command exists, and lines of random options, good and
bad, are given to both parsers: each must refuse the same lines, by the same first option.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import MagicMock

import click

from workbench.facts import rows
from workbench.facts.harvest.wheel import Wheel
from workbench.launch.rules import click_options

_STANDS = ("tensorrt_llm", "torch", "transformers", "strenum")
_WORDS = ("2", "0.5", "x", "pytorch", "trt", "info", "qwen3", "--", "-1", "config.yaml")
_STRANGE = ("--tp-size", "--speculative-algorithm", "--tp", "--max_batch", "-tp", "extra")


class _Stand(MagicMock):
    """A module of the engine, of torch and the like: whatever is asked of it."""

    __path__: ClassVar[list[str]] = []


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a stand-in for each module of `_STANDS`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _STANDS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        return _Stand(name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def real_command(folder: Path, tables: dict[str, list[str]]) -> click.Command:
    """Return the engine's own command; a choice of keys of a table has those that were read."""
    source = (folder / "tensorrt_llm/commands/serve.py").read_text(encoding="utf-8")
    sys.meta_path.insert(0, _Finder())
    module: dict[str, Any] = {"__name__": "serve"}
    exec(compile(source, "serve.py", "exec"), module)  # the folder was named by hand
    command = module["serve"] if "serve" in module else module["main"]
    assert isinstance(command, click.Command)
    for param in command.params:
        words = tables.get(param.opts[0].lstrip("-"))
        if words and type(param.type) is click.Choice:
            param.type = click.Choice(words)
        elif isinstance(param.type, click.Path):
            param.type = click.STRING  # whether a folder exists is not the parser's to say here
    return command


def lines(release: str, count: int, seed: int) -> Iterator[list[str]]:
    """Yield the words of random lines."""
    draw = random.Random(seed)
    known = [word for one in click_options.command_of(release).params for word in one.opts]
    options = [word for word in known if word.startswith("--") and word != "--help"]
    for _ in range(count):
        words = ["model"] if draw.random() < 0.95 else []
        for _ in range(draw.randint(0, 5)):
            words.append(draw.choice(options) if draw.random() < 0.9 else draw.choice(_STRANGE))
            if draw.random() < 0.8:
                value = draw.choice(_WORDS)
                if draw.random() < 0.2:
                    words[-1] += f"={value}"
                else:
                    words.append(value)
        yield words


def refused(command: click.Command, words: Sequence[str]) -> tuple[str, str]:
    """Return the sort of error and what it is about, ("", "") where the line is taken."""
    try:
        command.make_context("trtllm-serve", list(words))
    except click.ClickException as error:
        param = getattr(error, "param", None)
        return type(error).__name__, getattr(error, "option_name", "") or (
            param.opts[0] if param else ""
        )
    return "", ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the parsers, and say how many lines agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.facts.trtllm_check", description=__doc__)
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)
    wrong = 0
    for folder in given.folder:
        release = Wheel(folder).release
        tables = {
            name: row.value.get("choices", [])
            for name in rows.names(click_options.ENGINE, "option", release)
            if (row := rows.row_in(click_options.ENGINE, "option", name, release))
        }
        real, ours = real_command(folder, tables), click_options.command_of(release)
        bad = differ = 0
        for words in lines(release, given.lines, given.seed):
            one, two = refused(real, words), refused(ours, words)
            bad += bool(one[0])
            if one != two:
                differ += 1
                print(words, one, two)
        print(
            f"{release}: {given.lines} lines, {bad} refused by the engine's command, {differ} differ"
        )
        wrong += differ
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
