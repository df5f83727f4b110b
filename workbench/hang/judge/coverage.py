"""What the question "does this server wait for ever, and for whom?" covers, and the checks that settle it.

`items` lists every rank of every replica as the launch has them, the server's other processes, its log, clock
and port. Each check of `CHECKS` settles some of them; what none settles stays open, and the answer with it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from workbench.core.verdict import Coverage, Item, Settled, State, cover
from workbench.errors import shorten
from workbench.hang.judge import evidence, group_facts, halts, wording
from workbench.hang.judge.conditions import asked_to_end
from workbench.hang.judge.diagnosis import open_question
from workbench.hang.judge.phases import MarkedLine
from workbench.hang.judge.rank_group import GroupRank, RankGroup
from workbench.hang.judge.rules import Judgement
from workbench.hang.records import FAULTS, WELL, Process, Role, Scene, Snapshot

SIZE = "number of ranks"
LOG = "server log"
CLOCK = "clock of the log"
PORT = "HTTP port"
GPUS = "GPU readings"
# The server's processes that are no ranks; the main process holds the tokenizer manager.
PROCESSES: dict[Role, str] = {
    "parent": "main process",
    "detokenizer": "detokenizer",
    "controller": "data-parallel controller",
    "tokenizer": "tokenizer",
}
# Seconds that the clocks of two hosts may differ.
_SKEW = 1.0
_ABSENT = "not in the evidence"


@dataclasses.dataclass(frozen=True)
class Question:
    """All that a verdict on a server is made of: the scene, and what each group of ranks came to."""

    scene: Scene
    judgements: tuple[Judgement, ...]
    worst: Judgement

    @property
    def groups(self) -> tuple[RankGroup, ...]:
        """All groups of ranks."""
        return tuple(judged.group for judged in self.judgements)

    def numbered(self) -> Iterator[tuple[Judgement, range]]:
        """Yield each group of ranks with the world numbers that it should have."""
        first = 0
        for judged in self.judgements:
            yield judged, range(first, first + judged.group.expected)
            first += judged.group.expected

    @property
    def expected(self) -> int:
        """How many ranks there should be in all."""
        return sum(judged.group.expected for judged in self.judgements)


def covered(asked: Question, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage of a question; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    whole = cover(items(asked), (one for check in chosen for one in check(asked)))
    return Coverage(tuple(_grouped(whole.items)))


# -- what the question covers ------------------------------------------------------------------------


def items(asked: Question) -> Iterator[Item]:
    """Yield everything that the question covers.

    Log, clock, port and the other processes matter to an all-clear, and to no fault that is proved.
    """
    clears = asked.worst.rule.state not in FAULTS
    for text in asked.scene.unread:
        files, _, why = text.rpartition(" could not be read: ")
        yield Item("file", files, how=f"could not be read: {why}", essential=clears)
    for text in evidence.open_questions(asked.worst.group, asked.worst.rule):
        yield open_question(text)
    for judged, numbers in asked.numbered():
        yield Item("classification", _group_name(judged, numbers))
        for number in numbers:
            yield Item("rank", f"rank {number}", how=_ABSENT)
        for number in numbers:
            yield Item("snapshot comparison", f"progress of rank {number}", how=_ABSENT)
    yield Item("launch size", SIZE, essential=clears)
    for item in _process_items(asked):
        yield item if clears else structs.replace(item, essential=False)
    yield Item("server log", LOG, essential=clears)
    if asked.scene.logs:
        yield Item("log clock", CLOCK, essential=clears)
    for host, why in asked.scene.unseen:
        yield Item("host", f"host {host}", how=f"not seen: {why}", essential=clears)
    tried = asked.scene.port_open is not None
    yield Item("HTTP port", PORT, how="not tried", essential=clears and tried)
    if not any(snapshot.gpus for snapshot in asked.scene.snapshots):
        yield Item("GPU reading", GPUS, how="none in the evidence", essential=False)


def _group_name(judged: Judgement, numbers: range) -> str:
    """Return the name of what a group of ranks came to: ``state of ranks 0-7``."""
    return f"state of {_ranks_text(numbers or range(1))}"


def _ranks_text(numbers: Iterable[int]) -> str:
    found = list(numbers)
    return f"rank{'s' if len(found) > 1 else ''} {wording.spans(found)}"


def _process_items(asked: Question) -> Iterator[Item]:
    """Yield the server's other processes, as far as a list of processes has them.

    A list that has more than ranks has to have the main process, and the detokenizer, too. (Of several
    nodes only the first has one.)
    """
    read = group_facts.read_by_host(asked.scene)
    listed = {p.role for processes in read.values() for p in processes} - {"scheduler"}
    nodes = asked.worst.group.arguments.get("nnodes", "1")
    if listed:
        listed |= {"parent", "detokenizer"} if nodes == "1" else {"parent"}
    for role, name in PROCESSES.items():
        if role in listed:
            yield Item("process", name, how=_ABSENT)
    if not listed:
        yield Item("process", "main process and detokenizer", how=_ABSENT, essential=False)
    unnamed = max((judged.group.unnamed for judged in asked.judgements), default=0)
    if unnamed:
        how = "their titles do not say which ranks they are, so ranks may be missing or not"
        yield Item("process", "schedulers without a rank", "open", how, unnamed)


# -- the checks --------------------------------------------------------------------------------------


def classifications(asked: Question) -> Iterator[Settled]:
    """Settle what each group of ranks came to, by the table of rules."""
    for judged, numbers in asked.numbered():
        state: State = "open"
        how = judged.rule.unknown or judged.rule.evidence
        if judged.rule.state in WELL or judged.rule.state in FAULTS:
            state = "ok" if judged.rule.state in WELL else "wrong"
            how = f"{judged.rule.state.replace('_', ' ')}: {judged.rule.evidence}"
        yield Settled("classification", _group_name(judged, numbers), state, how)


def ranks(asked: Question) -> Iterator[Settled]:
    """Settle of every rank whether it lives, and whether its stack was read."""
    for judged, _ in asked.numbered():
        for rank in judged.group.ranks:
            state, how = _rank(rank, judged)
            yield Settled("rank", f"rank {rank.number}", state, how)
        yield from _unseen("rank", "rank", judged)


def _rank(rank: GroupRank, judged: Judgement) -> tuple[State, str]:
    if rank.gone:
        return _bad(judged), rank.gone
    if rank.stopped:
        return _bad(judged), halts.words(rank.process)
    if rank.paused:
        return "open", f"{halts.words(rank.process)} while it was read"
    if rank in judged.odd:
        return _bad(judged), "the others wait for it"
    if not rank.has_stack:
        return "open", (rank.dump.refusal if rank.dump is not None else "") or "no stack"
    return "ok", "alive, and its stack was read"


def _bad(judged: Judgement) -> State:
    """Return the state of a rank that is not healthy: a fault only where the rules call it one."""
    return "wrong" if judged.rule.state in FAULTS else "open"


def _unseen(kind: str, before: str, judged: Judgement) -> Iterator[Settled]:
    for number in judged.group.absent:
        yield Settled(kind, f"{before} {number}", _bad(judged), "missing")
    for number in judged.group.not_collected:
        yield Settled(kind, f"{before} {number}", "open", "host not collected")


def comparisons(asked: Question) -> Iterator[Settled]:
    """Settle of every rank what two snapshots at different times say: progress, or none."""
    for judged, _ in asked.numbered():
        for rank in judged.group.ranks:
            state, how = _comparison(rank, judged)
            yield Settled("snapshot comparison", f"progress of rank {rank.number}", state, how)
        yield from _unseen("snapshot comparison", "progress of rank", judged)


def _comparison(rank: GroupRank, judged: Judgement) -> tuple[State, str]:
    if rank.gone or rank.stopped or (rank.paused and not rank.moving):
        return _rank(rank, judged)
    if rank.snapshots < 2:
        return "open", "only one snapshot" if rank.snapshots else "no snapshot"
    if judged.rule.state in WELL:
        return _progress_of_a_healthy_rank(rank, judged)
    if rank.moving:
        return "ok", "it makes progress"
    if rank.moving is None:
        return "open", "the two snapshots do not decide it"
    fault = judged.rule.state in FAULTS
    return "wrong" if fault else "ok", "compared: at the same place in both snapshots"


def _progress_of_a_healthy_rank(rank: GroupRank, judged: Judgement) -> tuple[State, str]:
    """Settle a rank that is idle or serves: its loop has to turn, or its batches have to end."""
    if rank.same_stack is None:
        return "open", "its stack is in one snapshot only"
    if judged.rule.state == "idle":
        return "ok", "its event loop turns"
    group = judged.group
    if group.progressed or any(one.same_stack is False for one in group.alive):
        return "ok", "batches end"
    return "open", "its stack is the same in both snapshots, and only CPU time moves"


def size(asked: Question) -> Iterator[Settled]:
    """Settle how many ranks there should be: by the launch, not by what was found."""
    group, told = asked.worst.group, asked.scene.sizes
    says = ", ".join(f"{source} says {number}" for source, number in told[:4])
    alone = asked.expected == 1 and (bool(group.given) or len(group.alive) == 1)
    if len({number for _, number in told}) > 1:
        yield Settled("launch size", SIZE, "open", says)
    elif group.sure or alone:
        yield Settled("launch size", SIZE, "ok", f"{asked.expected} by the launch")
    elif any(judged.group.alive for judged in asked.judgements):
        how = f"{says or 'the launch is not known'}; the titles have {asked.expected}"
        yield Settled("launch size", SIZE, "open", how)
    else:
        yield Settled("launch size", SIZE, "open", "the launch is not known")


def processes(asked: Question) -> Iterator[Settled]:
    """Settle the server's other processes: each has to run in the last snapshot of its host."""
    hosts: dict[str, list[Snapshot]] = defaultdict(list)
    for snapshot in map(group_facts.with_main, sorted(asked.scene.snapshots, key=lambda s: s.at)):
        if any(process.state is not None for process in snapshot.processes):
            hosts[snapshot.host].append(snapshot)
    for mine in hosts.values():
        now = {process.pid: process for process in mine[-1].processes}
        for role, name in PROCESSES.items():
            for process in _last_of(role, mine):
                state = now[process.pid].state if process.pid in now else ""
                if state in ("T", "t", "Z", "X", ""):
                    how = "it has ended" if state else "gone since an earlier snapshot"
                    if state in ("T", "t"):
                        how = halts.words(now[process.pid])
                    fault = asked.worst.rule.of == "helpers" and state != "t"
                    yield Settled("process", name, "wrong" if fault else "open", how)
                else:
                    yield Settled("process", name, "ok", f"it runs (state {state})")
    for host, read in group_facts.read_by_host(asked.scene).items():
        roles = {process.role for process in read}
        if "parent" not in roles and roles != {"scheduler"}:
            how = f"{_ABSENT} of {host}" if len(hosts) > 1 and host else _ABSENT
            yield Settled("process", PROCESSES["parent"], "open", how)


def _last_of(role: Role, snapshots: Sequence[Snapshot]) -> Sequence[Process]:
    """Return the processes of a role in the last snapshot that has any."""
    for snapshot in reversed(snapshots):
        found = [p for p in snapshot.processes if p.role == role and p.state is not None]
        if found:
            return found
    return ()


def log(asked: Question) -> Iterator[Settled]:
    """Settle the log: whether there is one, and whether it reports the server's end after the snapshots.

    Without a log a port that answers says that the server was ready.
    """
    if not asked.scene.logs:
        if asked.scene.port_open:
            yield Settled("server log", LOG, "ok", "not in the evidence; the port answers")
        else:
            how = "not in the evidence, and nothing else shows what came after"
            yield Settled("server log", LOG, "open", how)
        return
    later = next((e for e in _faults(asked) if asked.worst.group.later(e) and e.zoned), None)
    if later is not None:
        text = shorten(later.line.text, 120)
        yield Settled("server log", LOG, "open", f"after the last snapshot it reports: {text}")
    else:
        yield Settled("server log", LOG, "ok", "it reports no end after the last snapshot")


def clock(asked: Question) -> Iterator[Settled]:
    """Settle whether the times of log and snapshots can be compared, where anything depends on it."""
    skew = {host: by for host, by in asked.scene.clock_skew.items() if abs(by) >= _SKEW}
    unzoned = [one for one in asked.scene.logs if one.ahead is None]
    if skew:
        host, by = next(iter(skew.items()))
        yield Settled("log clock", CLOCK, "open", f"the clock of {host} is off by {by:+.0f} s")
    elif unzoned and any(not error.zoned for error in _faults(asked)):
        how = "its time zone is not known, so its errors may be from before or after the snapshots"
        yield Settled("log clock", CLOCK, "open", how)
    else:
        how = "its time zone is not known, and nothing depends on it" if unzoned else "it is known"
        yield Settled("log clock", CLOCK, "ok", how)


def _faults(asked: Question) -> list[MarkedLine]:
    """Return the lines of the log that report the server's end, without ends that were asked for."""
    group = asked.worst.group
    if asked_to_end(group):
        return []
    return [error for error in group.story.errors if error.fatal]


def port(asked: Question) -> Iterator[Settled]:
    """Settle whether the server's port answered."""
    if asked.scene.port_open is not None:
        opened = asked.scene.port_open
        how = "it answers" if opened else "closed: requests get no answer"
        yield Settled("HTTP port", PORT, "ok" if opened else "open", how)


Check = Callable[[Question], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (
    classifications, ranks, comparisons, size, processes, log, clock, port,
)  # fmt: skip


# -- fewer lines -------------------------------------------------------------------------------------


def _grouped(whole: Sequence[Item]) -> Iterator[Item]:
    """Yield the items, those of ranks that came to the same as one: ``progress of ranks 0-6``.

    Of ranks that are not in the evidence one line says it for both kinds of items.
    """
    alike: dict[tuple[str, State, str], list[int]] = {}
    for item in whole:
        if item.kind in _NUMBERED:
            number = int(item.name.rpartition(" ")[2])
            alike.setdefault((item.kind, item.state, item.how), []).append(number)
    done: set[str] = set()
    for item in whole:
        if item.kind not in _NUMBERED:
            yield item
        elif item.kind not in done:
            done.add(item.kind)
            yield from _of_ranks(item.kind, alike)


_NUMBERED = ("rank", "snapshot comparison")


def _of_ranks(kind: str, alike: Mapping[tuple[str, State, str], list[int]]) -> Iterator[Item]:
    for (of, state, how), numbers in alike.items():
        other = "snapshot comparison" if of == "rank" else "rank"
        both = state == "open" and alike.get((other, state, how)) == numbers
        if of != kind or (both and of == "snapshot comparison"):
            continue
        name = _ranks_text(numbers)
        if of == "snapshot comparison":
            name = f"progress of {name}"
        elif both:
            name += " and their progress" if len(numbers) > 1 else " and its progress"
        yield Item(of, name, state, how, len(numbers))
