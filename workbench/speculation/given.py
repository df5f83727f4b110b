"""What the arguments of `replay` mean: which go together, what they are called, where a tokenizer lies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.engines.registry import parse
from workbench.errors import WorkbenchError, shown
from workbench.speculation.driving import check_shape, is_whole

if TYPE_CHECKING:
    from workbench.checkpoint.open import Checkpoint

TRAINER = "trainer"
_MOST_TOKENS = 1 << 15
_DTYPES = ("bfloat16", "float16")


def check_arguments(
    target: Any, prompts: Any, evidence: Any, temperature: float, engine: str | None
) -> None:
    """Raise where arguments are of no use together, before anything is read."""
    if prompts is not None and evidence is not None:
        raise WorkbenchError(
            "prompts and evidence were both given",
            why="evidence has its own texts",
            next_step="Leave one of them out.",
        )
    if prompts is None and evidence is None and not is_evidence(target):
        raise WorkbenchError(
            "there is nothing to replay",
            why="neither prompts nor evidence were given",
            next_step="Give prompts=[…], a file of prompts, or evidence=folder.",
        )
    if not isinstance(temperature, int | float) or not 0 <= temperature < 100:
        raise WorkbenchError(f"a temperature of {shown(temperature)} is none")
    if engine is not None and engine != TRAINER:
        parse(engine)


def check_sizes(steps: Any, topk: Any, draft_tokens: Any, requests: Any, new_tokens: Any) -> None:
    """Raise where a number is none, or none that can be run."""
    check_shape(steps, topk, draft_tokens)
    if requests is not None and (not is_whole(requests) or requests < 1):
        raise WorkbenchError(
            f"{shown(requests)} requests are none",
            next_step="Give a whole number, 1 or more; or None for all.",
        )
    if not is_whole(new_tokens) or not 2 <= new_tokens <= _MOST_TOKENS:
        raise WorkbenchError(
            f"an answer of {shown(new_tokens)} tokens has no round, or too many",
            next_step=f"Give a whole number from 2 to {_MOST_TOKENS:,}.",
        )


def check_tokens(texts: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Raise where a text has a token that the target does not have."""
    most = max((max(text) for text in texts if text), default=0)
    if most >= vocabulary:
        raise WorkbenchError(
            f"token {most:,} is past the target's vocabulary of {vocabulary:,}",
            why="the texts were made with another tokenizer",
            next_step="Give the target that these texts belong to.",
        )


def check_draft(draft: Checkpoint) -> None:
    """Raise where a checkpoint has nothing of an EAGLE-3 draft: fc, a norm of features, a map of ids."""
    ends = ("fc.weight", "hidden_norm.weight", "d2t")
    if not any(name == end or name.endswith(f".{end}") for name in draft.names for end in ends):
        raise WorkbenchError(
            f"{draft.source} is no EAGLE-3 draft",
            why="it has neither fc, hidden_norm nor d2t",
            next_step="Give the draft's checkpoint as the second argument, the target's as the first.",
        )


def is_evidence(target: Any) -> bool:
    """Tell whether a target is a folder of evidence: one without a model's config."""
    if not isinstance(target, str | os.PathLike):
        return False
    path = Path(target).expanduser()
    return path.is_dir() and not (path / "config.json").is_file()


def folder_of(target: Any) -> Path | None:
    """Return the folder that a target's tokenizer lies in."""
    from workbench.checkpoint.open import Checkpoint, open_checkpoint

    if isinstance(target, str | os.PathLike):
        target = open_checkpoint(target)
    if isinstance(target, Checkpoint):
        return target.folder
    name = getattr(target, "name_or_path", "")
    return Path(name) if name and Path(name).is_dir() else None


def dtype_of(target: Any) -> str:
    """Return the dtype that a target's config names, if numbers are rounded to it."""
    from workbench.checkpoint.open import Checkpoint, open_checkpoint

    if isinstance(target, str | os.PathLike):
        target = open_checkpoint(target)
    if not isinstance(target, Checkpoint):
        return ""
    text = target.config.text
    named = text.get("dtype") or text.get("torch_dtype")
    return named if named in _DTYPES else ""


def name_of(given: Any) -> str:
    """Return what a model is called: its path, or its class."""
    from workbench.checkpoint.open import Checkpoint

    if isinstance(given, Checkpoint):
        return str(given.source)
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    return str(getattr(given, "name_or_path", "") or type(given).__name__)
