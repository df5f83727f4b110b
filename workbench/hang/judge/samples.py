"""What ranks did between the snapshots, by short samples of their main threads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from workbench.hang.judge import evidence
from workbench.hang.judge.rank_group import GroupRank, RankGroup

_MOST = 6  # kinds of behaviour that are listed
_CALLS = {0: "read", 7: "poll", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait"}


def note(groups: Sequence[RankGroup]) -> list[str]:
    """Return one line on the samples of all ranks, those that did the same together; [] without samples."""
    alike: dict[str, list[str]] = defaultdict(list)
    most = 0
    for group in groups:
        for rank in group.alive:
            text = _words(rank)
            if text:
                alike[text].append(evidence.name_of(rank))
                most = max(most, len(_samples(rank)))
    if not alike:
        return []
    parts = [f"{_names(names)} {text}" for text, names in list(alike.items())[:_MOST]]
    more = f"; and {len(alike) - _MOST} more" if len(alike) > _MOST else ""
    return [f"{most} short samples between the snapshots: {'; '.join(parts)}{more}"]


def _samples(rank: GroupRank) -> Sequence[object]:
    return rank.process.samples if rank.process is not None else ()


def _words(rank: GroupRank) -> str:
    """Return what a rank did in its samples: how often it ran, and where it slept."""
    samples = rank.process.samples if rank.process is not None else ()
    if not samples:
        return ""
    ran = sum(one.state == "R" for one in samples)
    places = Counter(
        one.wait_channel or _CALLS.get(one.call or -1, "") for one in samples if one.state != "R"
    )
    place, _ = places.most_common(1)[0] if places else ("", 0)
    used = samples[-1].cpu - samples[0].cpu
    share = used / max(samples[-1].at - samples[0].at, 1e-3)
    where = f" (mostly in {place})" if place else ""
    return f"ran in {ran} of {len(samples)}{where}, with {share:.0%} of a core"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
