"""What the arguments of `replay` mean: what each may be, which go together, what they are called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shown, without_secrets
from workbench.loaders.registry import parse
from workbench.speculation.evidence.driving import check_shape, is_whole
from workbench.speculation.evidence.files import place_of
from workbench.speculation.evidence.observed import DraftLaunch, read_run
from workbench.speculation.judge.expected import Expected
from workbench.speculation.model.draft_kinds import other_kind
from workbench.speculation.rounds.sampled import Sampling

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint

TRAINER = "trainer"
_MOST_TOKENS = 1 << 15
_DTYPES = ("bfloat16", "float16")
_ALGORITHMS = {
    "NGRAM": "n-gram lookup drafts from the text itself, and has no draft model",
    "LOOKAHEAD": "n-gram lookup drafts from the text itself, and has no draft model",
    "STANDALONE": "an ordinary small model drafts, which reads no features of the target",
    "DFLASH": "a DFlash draft fills a block of masked positions at once",
    "DSPARK": "a DSpark draft fills a block of positions at once",
    "MEDUSA": "Medusa heads each guess one position from the target's last features",
}


def check_arguments(
    target: Any, prompts: Any, evidence: Any, temperature: Any, engine: Any
) -> None:
    """Raise where arguments are of no use, alone or together, before anything is read."""
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
    if not _is_number(temperature) or not 0 <= temperature < 100:
        raise WorkbenchError(
            f"a temperature of {shown(temperature)} is not valid",
            next_step="Give a number from 0 (greedy) to 100.",
        )
    if engine is not None and not isinstance(engine, str):
        raise WorkbenchError(
            f"{shown(engine)} is not an engine",
            next_step='Write it as "sglang==0.5.11", or "trainer".',
        )
    if engine is not None and engine != TRAINER:
        parse(engine)


HARDWARE = ("cuda", "rocm", "npu")


def read_sampling(
    temperature: Any,
    top_k: Any,
    top_p: Any,
    threshold_single: Any,
    threshold_acc: Any,
    hardware: Any,
) -> Sampling:
    """Return how answers are sampled.

    Raises
    ------
    WorkbenchError
        A number is out of its bounds, or the hardware is not known.
    """
    if not is_whole(top_k) or not 0 <= top_k <= 1 << 24:
        raise WorkbenchError(
            f"a top-k of {shown(top_k)} is not valid",
            next_step="Give a whole number; 0 keeps every token.",
        )
    shares = {"top-p": top_p, "threshold-single": threshold_single, "threshold-acc": threshold_acc}
    for name, value in shares.items():
        if not _is_number(value) or not 0 < value <= 1:
            raise WorkbenchError(
                f"a {name} of {shown(value)} is not valid",
                next_step="Give a number above 0, up to 1; 1 changes nothing.",
            )
    if hardware not in HARDWARE:
        raise WorkbenchError(
            f"{shown(hardware)} is not known as hardware",
            next_step=f"Give one of {', '.join(HARDWARE)}.",
        )
    return Sampling(
        float(temperature),
        int(top_k),
        float(top_p),
        threshold_single=float(threshold_single),
        threshold_acc=float(threshold_acc),
    )


def verifies_greedily(engine: str, hardware: str) -> bool:
    """Tell whether an engine verifies greedily on this hardware, whatever the temperature.

    SGLang's kernels of sampled verification are CUDA's; without them it compares with the argmax.
    """
    return engine.startswith("sglang") and hardware != "cuda"


def check_sizes(steps: Any, topk: Any, draft_tokens: Any, requests: Any, new_tokens: Any) -> None:
    """Raise where a number is none, or none that can be run."""
    check_shape(steps, topk, draft_tokens)
    if requests is not None and (not is_whole(requests) or requests < 1):
        raise WorkbenchError(
            f"{shown(requests)} is not a number of requests",
            next_step="Give a whole number, 1 or more; or None for all.",
        )
    if not is_whole(new_tokens) or not 2 <= new_tokens <= _MOST_TOKENS:
        raise WorkbenchError(
            f"an answer of {shown(new_tokens)} tokens has no rounds, or too many",
            next_step=f"Give a whole number from 2 to {_MOST_TOKENS:,}.",
        )


def check_texts(
    texts: Sequence[Sequence[int]], target: Any, new_tokens: int = 0, layers: int | None = None
) -> None:
    """Raise where a target does not have the tokens of texts, or where they are more than can be held.

    Parameters
    ----------
    new_tokens
        How many each will grow by.
    layers
        How many layers' features are kept; None: all of the target's.
    """
    import psutil

    most = max((max(text) for text in texts if text), default=0)
    if most >= target.vocabulary:
        raise WorkbenchError(
            f"token {most:,} is past the target's vocabulary of {target.vocabulary:,}",
            why="the texts were made with another tokenizer",
            next_step="Give the target that these texts belong to.",
        )
    longest = max(map(len, texts), default=0) + new_tokens
    layers = target.layers + 1 if layers is None else layers
    # Four bytes a number: features, and in the longest text who sees whom.
    needed = 4 * (len(texts) * longest * layers * target.hidden + longest * longest)
    free = int(psutil.virtual_memory().available)
    if needed > free:
        raise WorkbenchError(
            f"{len(texts):,} texts of up to {longest:,} tokens need {needed / 1e9:,.0f} GB or more",
            why=f"{free / 1e9:,.0f} GB are free",
            next_step="Give fewer (requests=) or shorter texts.",
        )


def check_launch(launch: DraftLaunch | None) -> None:
    """Raise where evidence is of a server that drafted without an EAGLE draft."""
    if launch is not None and launch.algorithm not in ("", "EAGLE", "EAGLE3"):
        raise WorkbenchError(
            f"the recorded server had --speculative-algorithm {shown(launch.algorithm)}",
            why="its rounds were not drafted by an EAGLE-3 draft: EAGLE3, EAGLE and NEXTN are"
            + (f"; {how}" if (how := _ALGORITHMS.get(launch.algorithm)) else ""),
            next_step="Give evidence of a server that was launched with EAGLE3, or prompts.",
        )


def read_expected(given: Any, steps: int) -> Expected | None:
    """Return what acceptance should be: a number, also as text; metrics; or a healthy run's folder.

    Raises
    ------
    WorkbenchError
        It is none of these, or says nothing.
    """
    if given is None or isinstance(given, Expected):
        return given
    if _is_number(given):
        return Expected.given(float(given))
    if isinstance(given, Mapping):
        return Expected.of_training(given, steps)
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise WorkbenchError(
            f"{shown(given)} is not an expected acceptance",
            next_step="Give an acceptance length, the trainer's metrics, or the folder of a healthy run.",
        )
    if isinstance(given, str) and given.isascii():
        try:
            return Expected.given(float(given))
        except ValueError:
            pass  # a path
    folder = place_of(given)
    if folder.is_dir():
        run = read_run(folder)
        check_launch(run.launch)
        return Expected.of_run(run)
    return Expected.of_training(folder, steps)


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number, numpy's too."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_draft(draft: Checkpoint) -> None:
    """Raise where a checkpoint is a kind of draft that is not replayed, or has nothing of an EAGLE-3 one.

    An EAGLE-3 draft has fc, a norm of features, or a map of ids.
    """
    other = other_kind(draft)
    if other is not None and other.replayed is not None:
        return
    if other is not None:
        raise WorkbenchError(
            f"{draft.source} is a draft of another kind, {other.name}, that is not replayed",
            why=f"{other.mark}; {other.how}",
            next_step="Compare the server's own counts by position with the trainer's; workbench diff checks "
            "the draft's keys.",
        )
    ends = ("fc.weight", "hidden_norm.weight", "d2t")
    if not any(name == end or name.endswith(f".{end}") for name in draft.names for end in ends):
        raise WorkbenchError(
            f"{draft.source} is not an EAGLE-3 draft",
            why="it has neither fc, hidden_norm nor d2t",
            next_step="Give the draft's checkpoint as the second argument, the target's as the first.",
        )


def is_evidence(target: Any) -> bool:
    """Tell whether a target is a folder of evidence: one without a model's config."""
    if not isinstance(target, str | os.PathLike):
        return False
    path = place_of(target)
    return os.path.isdir(path) and not (path / "config.json").is_file()


def folder_of(target: Any) -> Path | None:
    """Return the folder that a target's tokenizer lies in."""
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint

    if isinstance(target, str | os.PathLike):
        target = open_checkpoint(target)
    if isinstance(target, Checkpoint):
        return target.folder
    name = getattr(target, "name_or_path", "")
    return Path(name) if name and Path(name).is_dir() else None


def dtype_of(target: Any) -> str:
    """Return the dtype that a target's config names, if numbers are rounded to it."""
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint

    if isinstance(target, str | os.PathLike):
        target = open_checkpoint(target)
    if not isinstance(target, Checkpoint):
        return ""
    text = target.config.text
    named = text.get("dtype") or text.get("torch_dtype")
    return named if named in _DTYPES else ""


def name_of(given: Any) -> str:
    """Return what a model is called: its path, or its class."""
    from workbench.checkpoint.checkpoint import Checkpoint

    if isinstance(given, Checkpoint):
        return str(given.source)
    if isinstance(given, str | os.PathLike):
        return without_secrets(os.fspath(given))
    return without_secrets(str(getattr(given, "name_or_path", "") or type(given).__name__))
