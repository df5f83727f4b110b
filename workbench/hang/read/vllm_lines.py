"""A line of vLLM's log: whose it is, its clock, its message; and the version and sizes that a log names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from workbench.errors import clean
from workbench.facts.engines import VLLM_PREFIX

# `(Worker_TP0 pid=77400) INFO 10-22 09:42:10 [backends.py:548] …`; up to 0.8 the main process wrote no name,
# older releases `x.py:1]`. Two names where Ray's worker is below a core.
_NAMES = re.compile(rf"\s*((?:{VLLM_PREFIX} ?){{1,3}})")
_STAMP = re.compile(
    r"\s*(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) "
    r"(?P<time>\d\d:\d\d:\d\d)(?:\.\d{1,6})? (?:\[[^\]\s]{1,200}:\d{1,6}\]|[\w./-]{1,200}\.py:\d{1,6}\]) ?"
)
_HEAD = re.compile(rf"(?m)^\s*(?:{VLLM_PREFIX} ?)?{_STAMP.pattern}")
_PART = re.compile(r"_(DP|PP|TP|EP)(\d{1,6})")
_OLD_RANK = re.compile(r"\(VllmWorker rank=(\d{1,6}) ")
_VERSION = re.compile(
    r"^(?:vLLM API server version |Initializing an? (?:V[01] )?LLM engine \(v)([\w.+!-]{1,60})"
)
_SIZES = (
    ("tp-size", re.compile(r"\btensor_parallel_size['\"]?[=:] ?(\d{1,6})\b")),
    ("pp-size", re.compile(r"\bpipeline_parallel_size['\"]?[=:] ?(\d{1,6})\b")),
    ("dp-size", re.compile(r"\bdata_parallel_size['\"]?[=:] ?(\d{1,6})\b")),
)
_BANNER = re.compile(r"^(?:Initializing an? (?:V[01] )?LLM engine|non-default args:)")


@dataclasses.dataclass(frozen=True, slots=True)
class VllmLine:
    """A line without its names and its clock; `day` is month and day, "" where it has no clock."""

    message: str
    rank: str = ""
    level: str = ""
    day: str = ""
    clock: str = ""


def read_vllm_line(text: str) -> VllmLine | None:
    """Return a line's parts, or None for one that vLLM did not write so."""
    names = _NAMES.match(text)
    rest = text[names.end() :] if names else text
    stamp = _STAMP.match(rest)
    if names is None and stamp is None:
        return None
    rank = _rank(names[1]) if names else ""
    if stamp is None:
        return VllmLine(rest, rank)
    day = f"{stamp['month']}-{stamp['day']}"
    return VllmLine(rest[stamp.end() :], rank, stamp["level"].lower(), day, stamp["time"])


def _rank(names: str) -> str:
    """Return the rank that a line's names tell, as a prefix of SGLang's would: ``DP0 TP3``."""
    old = _OLD_RANK.search(names)
    if old:
        return f"rank{old[1]}"
    last = names.rstrip().rpartition("(")[2]
    return (
        " ".join(f"{kind}{number}" for kind, number in _PART.findall(last))
        if "Worker" in last
        else ""
    )


def has_vllm_lines(head: str) -> bool:
    """Whether a text has a line with vLLM's clock."""
    return _HEAD.search(head) is not None


def version_of(messages: Iterable[str]) -> str:
    """Return the version that a log's first lines name, the last launch's; "" for none."""
    found = [clean(match[1]) for text in messages if (match := _VERSION.match(text))]
    return found[-1] if found else ""


def sizes_of(messages: Sequence[str]) -> dict[str, str]:
    """Return the sizes of the launch that a log names, by the names that records use."""
    found: dict[str, str] = {}
    for text in messages:
        if _BANNER.match(text):
            found |= {name: match[1] for name, size in _SIZES if (match := size.search(text))}
    return found
