"""Whether a launch line was understood: what was given and not understood may not count as checked."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from workbench.facts import flags

# What SGLang's releases take as --speculative-algorithm, in capitals.
ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "LOOKAHEAD", "DFLASH"})
_ALGORITHM = "speculative-algorithm"
_OTHERS = {"vllm": "vLLM", "trtllm-serve": "TensorRT-LLM"}


def doubt(launch: str | Sequence[str], engine: str, version: str, draft: bool) -> str:
    """Return why a launch line cannot be checked, "" where it can.

    Parameters
    ----------
    launch
        The command, as text or in words.
    engine, version
        What it is checked for.
    draft
        Whether the checkpoint is a draft: its launch must then name a speculative algorithm.
    """
    try:
        words = (
            shlex.split(launch.replace("\\\n", " ")) if isinstance(launch, str) else list(launch)
        )
    except ValueError as error:
        return f"it cannot be split into words ({str(error).lower()})"
    if not words:
        return "it is empty"
    if any("$" in word or "`" in word for word in words):
        return "it has variables or commands whose values are not known"
    if engine != "sglang":
        return f"launch lines of {engine} are not read"
    return _not_sglang(words) or "; ".join(_unread(words, version, draft))


def _not_sglang(words: Sequence[str]) -> str:
    """Return what the command is, where it is not a launch of SGLang."""
    names = {PurePath(word).name for word in words if not word.startswith("-")}
    for name, other in _OTHERS.items():
        if name in names:
            return f"it launches {other}, not SGLang"
    launches = any("sglang" in word or PurePath(word).name == "launch_server.py" for word in words)
    return "" if launches or words[0].startswith("--") else "it is not a launch of SGLang"


def _unread(words: Sequence[str], version: str, draft: bool) -> Iterator[str]:
    """Yield the arguments that were not understood."""
    known = flags.flags_of(version)
    algorithm = None
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        if not head.startswith("--") or len(head) == 2:
            continue
        name = head[2:]
        matches = [flag for flag in known if flag == name] or [
            f for f in known if f.startswith(name)
        ]
        if not matches:
            yield f"{head} is not known in {version or 'SGLang'}"
        elif name == "config":
            yield "the file of --config is not read"
        elif _ALGORITHM in matches:
            algorithm = value if equals else (*words, "")[at + 1]
    if algorithm is not None and algorithm.upper() not in ALGORITHMS:
        yield f"the algorithm {algorithm or '(none)'} is not known"
    elif algorithm is None and draft:
        yield "it names no speculative algorithm for this draft"
