"""Whether a launch was understood: what was given and not understood may not count as checked."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.core.wording import plural
from workbench.launch.records import Launch

# What SGLang's releases take as --speculative-algorithm, in capitals.
ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "LOOKAHEAD", "DFLASH"})
_ALGORITHM = "speculative-algorithm"
_NAMES = {"sglang": "SGLang", "vllm": "vLLM", "tensorrt-llm": "TensorRT-LLM"}
_MOST = 4


def doubt(launch: Launch, engine: str, version: str, draft: bool) -> str:
    """Return why a launch cannot be checked, "" where it can.

    Parameters
    ----------
    launch
        As it was read.
    engine, version
        What it is checked for.
    draft
        Whether the checkpoint is a draft: its launch must then name a speculative algorithm.
    """
    asked = _NAMES.get(engine, engine)
    if not launch.engine:
        why = "; ".join(map(str, launch.not_read[:1]))
        return f"it is not a launch of {asked} that can be read ({why})"
    if launch.engine != engine:
        return f"it launches {_NAMES[launch.engine]}, not {asked}"
    if engine != "sglang":
        return f"it is read, but the arguments of {asked} are not checked"
    return "; ".join(_reasons(launch, version, draft))


def _reasons(launch: Launch, version: str, draft: bool) -> Iterator[str]:
    if launch.version and version and launch.version != version:
        yield f"it is of SGLang {launch.version} ({launch.version_basis}), not {version}"
    doubts = launch.doubts
    yield from map(str, doubts[:_MOST])
    if len(doubts) > _MOST:
        yield f"and {plural(len(doubts) - _MOST, 'more argument')}"
    algorithm = launch.value(_ALGORITHM)
    if algorithm is not None and algorithm.upper() not in ALGORITHMS:
        yield f"the algorithm {algorithm or '(none)'} is not known"
    elif draft and not doubts and launch.state(_ALGORITHM) == "absent":
        yield "it names no speculative algorithm for this draft"
