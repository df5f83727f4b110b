"""What matters to a group next to its ranks: sizes that are believed, helpers, NCCL's own counts."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from workbench.facts import flags
from workbench.hang.judge import halts
from workbench.hang.judge.rank_group import Helper
from workbench.hang.judge.wording import spans
from workbench.hang.records import Process, Role, Scene, Snapshot
from workbench.hang.sizes import whole

# The largest launch that is believed.
MOST_RANKS = 65536


def bounded(scene: Scene) -> Scene:
    """Return a scene without ranks and sizes that no launch has: each absent rank costs memory."""
    sizes = ("tp-size", "pp-size", "dp-size")
    told = {flags.canonical(name, ""): name for name in scene.arguments}
    given = flags.normalise(scene.arguments, "")
    product = math.prod(whole(given, name) for name in sizes)
    dropped = {told[name] for name in sizes if name in told} if product > MOST_RANKS else set()

    def placed(process: Process) -> Process:
        far = process.rank is not None and not 0 <= process.rank.world < MOST_RANKS
        return dataclasses.replace(process, rank=None) if far else process

    return dataclasses.replace(
        scene,
        arguments={n: v for n, v in scene.arguments.items() if n not in dropped},
        expected_ranks=scene.expected_ranks if (scene.expected_ranks or 0) <= MOST_RANKS else None,
        exits={n: code for n, code in scene.exits.items() if n < MOST_RANKS},
        not_collected=tuple(n for n in scene.not_collected if n < MOST_RANKS),
        snapshots=tuple(
            dataclasses.replace(one, processes=tuple(map(placed, one.processes)))
            for one in scene.snapshots
        ),
    )


# Without each of these no request is answered; tokenizer workers are several.
_NEEDED: tuple[Role, ...] = ("parent", "detokenizer", "controller")


def helpers(hosts: Iterable[Sequence[Snapshot]]) -> tuple[Helper, ...]:
    """Return the processes next to the ranks that do not run in the last snapshot of their host."""
    found: list[Helper] = []
    for snapshots in hosts:
        listed = [s for s in snapshots if any(p.rank and p.state for p in s.processes)]
        if not listed:
            continue
        now = {p.pid: p for p in listed[-1].processes}
        for role in _NEEDED:
            last = [p for p in now.values() if p.role == role and p.state is not None]
            # (Whether a debugger holds one is not asked: it is no fault of the server's.)
            how = {p.pid: halts.halted([*_earlier(listed, p), p], 0.0) for p in last}
            if any(p.state not in ("Z", "X") and "stopped" not in how[p.pid] for p in last):
                continue
            once = {pid for pid, one in how.items() if one == "seen stopped"}
            found += [Helper(role, p.pid, p.host, p.state or "", p.pid in once) for p in last]
            before = [p for s in listed[:-1] for p in s.processes if p.role == role and p.state]
            gone = {p.pid: Helper(role, p.pid, p.host, "") for p in before if p.pid not in now}
            found += gone.values() if not last else ()
        # Each tokenizer worker has requests of its own: one that has ended is a fault beside others.
        found += [
            Helper(p.role, p.pid, p.host, p.state or "", once=False)
            for p in now.values()
            if p.role == "tokenizer" and p.state in ("Z", "X")
        ]
    return tuple(found)


def _earlier(listed: Sequence[Snapshot], process: Process) -> list[Process]:
    """Return a process as the snapshots before the last have it."""
    who = (process.pid, process.started)
    return [p for s in listed[:-1] for p in s.processes if (p.pid, p.started) == who]


def mute(scene: Scene) -> bool:
    """Whether one of the server's main process and its detokenizer was seen, and not the other."""
    roles = {p.role for processes in read_by_host(scene).values() for p in processes}
    return ("parent" in roles) is not ("detokenizer" in roles)


def read_by_host(scene: Scene) -> dict[str, list[Process]]:
    """Return the processes that were read in /proc, by host, in the order of the snapshots.

    What launched the ranks is the main process, whatever its title is: a script may embed the engine.
    """
    found: dict[str, list[Process]] = {}
    for snapshot in sorted(scene.snapshots, key=lambda one: one.at):
        read = with_main(snapshot).processes
        if any(p.state is not None for p in read):
            found.setdefault(snapshot.host, []).extend(p for p in read if p.state is not None)
    return found


def with_main(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which the process that launched the ranks is the main process."""
    launchers = {p.parent for p in snapshot.processes if p.role == "scheduler"}
    return dataclasses.replace(
        snapshot,
        processes=tuple(
            dataclasses.replace(p, role="parent") if p.role == "other" and p.pid in launchers else p
            for p in snapshot.processes
        ),
    )


# What every rank of a communicator launches equally often; sends and receives are of pairs.
_ALL_LAUNCH = re.compile(
    r"^(?:all_?reduce|broadcast|reduce|all_?gather|reduce_?scatter|collective)", re.IGNORECASE
)


def behind(records: Mapping[str, object], pids: Mapping[int, int], size: int) -> tuple[int, ...]:
    """Return the ranks that by NCCL's own counts (RAS) launched fewer collectives than the others.

    A communicator numbers its ranks for itself: a process is known by its pid; the number counts only in a
    communicator of all ranks, as where the pids are of another namespace.
    """
    found: set[int] = set()
    for counts in _launched(records, pids, size):
        sums = {rank: sum(said.values()) for rank, said in counts.items()}
        most = max(sums.values(), default=0)
        found |= {rank for rank, count in sums.items() if count < most}
    return tuple(sorted(found))


def widest_communicator(records: Mapping[str, object]) -> int:
    """Return how many ranks the largest communicator has that NCCL's RAS lists as a whole."""
    sizes = (len(ranks) for ranks in _communicators(records) if all("rank" in r for r in ranks))
    return max(sizes, default=0)


def counts_text(records: Mapping[str, object], pids: Mapping[int, int], size: int) -> str:
    """Return in words which ranks launched how many of the collectives whose counts differ."""
    parts = []
    for counts in _launched(records, pids, size):
        for name in sorted({name for said in counts.values() for name in said}):
            ranks: dict[int, list[int]] = {}
            for rank, said in counts.items():
                ranks.setdefault(said.get(name, 0), []).append(rank)
            if len(ranks) > 1:
                each = (f"{number} on ranks {spans(ranks[number])}" for number in sorted(ranks))
                parts.append(f"{name}: {', '.join(each)}")
    return "; ".join(parts)


def _answers(records: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return the communicators of RAS's last answer."""
    reports = records.get("ras")
    last = reports[-1] if isinstance(reports, list) and reports else reports
    communicators = last.get("communicators") if isinstance(last, dict) else None
    found = communicators if isinstance(communicators, list) else []
    return [one for one in found if isinstance(one, dict)]


def _communicators(records: Mapping[str, object]) -> Iterator[list[dict[str, Any]]]:
    """Yield the ranks of each communicator of RAS's last answer."""
    for one in _answers(records):
        ranks = one.get("ranks")
        yield [r for r in ranks if isinstance(r, dict)] if isinstance(ranks, list) else []


def _launched(
    records: Mapping[str, object], pids: Mapping[int, int], size: int
) -> Iterator[dict[int, dict[str, int]]]:
    """Yield what each rank of a communicator launched, where each of its ranks is known."""
    for told in _communicators(records):
        counts: dict[int, dict[str, int]] = {}
        for rank in told:
            said = rank.get("collective_counts")
            alone, pid = rank.get("rank"), rank.get("pid")
            number = pids.get(pid) if isinstance(pid, int) else None
            if number is None and len(told) == size and isinstance(alone, int):
                number = alone
            if number is not None and isinstance(said, dict):
                counts[number] = {
                    str(name): n
                    for name, n in said.items()
                    if isinstance(n, int) and _ALL_LAUNCH.match(str(name))
                }
        if len(counts) == len(told) and len(counts) > 1:
            yield counts


def behind_by_flight(records: Mapping[str, object]) -> tuple[int, ...]:
    """Return the ranks that by torch's flight recorder came to fewer collectives of a group than the others.

    Only where a rank that came further still waits: what all have completed says nothing.
    """
    found: set[int] = set()
    for ranks in _reached(records):
        most = max(number for number, _, _ in ranks.values())
        waits = any(number == most and not done for number, done, _ in ranks.values())
        if len(ranks) > 1 and waits:
            found |= {rank for rank, (number, _, _) in ranks.items() if number < most}
    return tuple(sorted(found))


def other_operations(records: Mapping[str, object]) -> Mapping[int, str]:
    """Return by rank the collective it waits in, where ranks of a group wait in different ones."""
    for ranks in _reached(records):
        numbers = {number for number, _, _ in ranks.values()}
        waiting = {rank: what for rank, (_, done, what) in ranks.items() if not done}
        if len(numbers) == 1 and len(waiting) == len(ranks) and len(set(waiting.values())) > 1:
            return waiting
    return {}


def _reached(records: Mapping[str, object]) -> list[dict[int, tuple[int, bool, str]]]:
    """Return by group what each rank came to: the number, whether it completed, and the operation."""
    recordings = records.get("flight")
    reached: dict[str, dict[int, tuple[int, bool, str]]] = {}
    for one in recordings if isinstance(recordings, list) else ():
        rank = one.get("rank") if isinstance(one, dict) else None
        if isinstance(rank, int):
            for group, last in _last_collectives(one).items():
                reached.setdefault(group, {})[rank] = last
    return list(reached.values())


def _last_collectives(recording: Mapping[str, object]) -> dict[str, tuple[int, bool, str]]:
    """Return by group the highest number of a rank's collectives, whether it completed, and what it is."""
    entries = recording.get("entries")
    last: dict[str, tuple[int, bool, str]] = {}
    for entry in entries if isinstance(entries, list) else ():
        number, group = entry.get("sequence"), str(entry.get("group"))
        what = str(entry.get("operation"))
        of_pairs = re.search(r"send|recv|coalesced", what)
        if isinstance(number, int) and not of_pairs and number >= last.get(group, (-1,))[0]:
            last[group] = (number, entry.get("state") == "completed", what)
    return last


def missing_by_ras(records: Mapping[str, object]) -> tuple[int, ...]:
    """Return the ranks of which NCCL's RAS has no answer, in a communicator that lists those it misses."""
    found: set[int] = set()
    for one in _answers(records):
        missing = one.get("missing_ranks")
        for rank in missing if isinstance(missing, list) else ():
            number = rank.get("rank") if isinstance(rank, dict) else None
            if isinstance(number, int) and not isinstance(number, bool):
                found.add(number)
    return tuple(sorted(found))
