"""What may and may not change a verdict: every case, transformed."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.hang.cases import CASES, Case
from tests.hang.cases.build import TQDM, WATCHDOG, thread
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.records import Dump, Process, Rank, Scene, Snapshot, Thread

IDS = [case.name for case in CASES]
SURE = ("unknown", "possible", "likely", "certain")


@cache
def judged(case: Case) -> HangDiagnosis:
    return diagnose(case.scene)


def surety(got: HangDiagnosis) -> int:
    return SURE.index(got.confidence)


def core(got: HangDiagnosis) -> tuple[object, ...]:
    """What of a verdict must not depend on how the evidence is written down."""
    return (
        got.state, got.phase, got.odd_ranks, got.waiting_ranks, got.working_ranks, got.missing_ranks,
        got.not_collected, got.wait_class, got.confidence, got.rule,
    )  # fmt: skip


def each(scene: Scene, change: Callable[[Snapshot], Snapshot]) -> Scene:
    return dataclasses.replace(scene, snapshots=tuple(change(shot) for shot in scene.snapshots))


def replicas(scene: Scene) -> bool:
    """Whether the ranks are of several groups, each with numbers of its own."""
    named = {p.rank for s in scene.snapshots for p in s.processes if p.rank is not None}
    if len({rank.world for rank in named}) < len(named):
        return True
    return "dp-size" in scene.arguments and "enable-dp-attention" not in scene.arguments


def of_ranks(scene: Scene) -> set[int]:
    return {p.rank.world for s in scene.snapshots for p in s.processes if p.rank is not None}


def permuted(scene: Scene, to: dict[int, int]) -> Scene:
    """Call every rank by another number, in titles, records and logs."""

    def process(one: Process) -> Process:
        if one.rank is None or one.rank.world not in to:
            return one
        new = to[one.rank.world]
        tp = new if one.rank.tp is not None and one.rank.dp is None else one.rank.tp
        rank = dataclasses.replace(one.rank, world=new, tp=tp)
        return dataclasses.replace(one, rank=rank, title=re.sub(r"TP\d+", f"TP{new}", one.title))

    def prefix(text: str) -> str:
        return re.sub(r"TP(\d+)", lambda m: f"TP{to.get(int(m[1]), int(m[1]))}", text)

    logs = tuple(
        dataclasses.replace(
            log, lines=tuple(dataclasses.replace(x, rank=prefix(x.rank)) for x in log.lines)
        )
        for log in scene.logs
    )
    renamed = each(
        scene,
        lambda s: dataclasses.replace(s, processes=tuple(process(p) for p in s.processes)),
    )
    records: dict[str, Any] = dict(scene.records)
    for report in records.get("ras", []):
        ranks = report["communicators"][0]["ranks"]
        if "pid" in ranks[0]:
            continue  # they are known by their pids, which stay
        told = [one | {"rank": to.get(one["rank"], one["rank"])} for one in ranks]
        records["ras"] = [{"communicators": [{"ranks": told}]}]
    exits = {to.get(rank, rank): code for rank, code in scene.exits.items()}
    return dataclasses.replace(renamed, logs=logs, exits=exits, records=records)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_verdict_follows_the_ranks(case: Case) -> None:
    scene, before = case.scene, judged(case)
    ranks = sorted({*of_ranks(scene), *before.missing_ranks} - set(before.not_collected))
    if replicas(scene):
        return  # their numbers say which ranks belong together
    for turn in range(1, min(len(ranks), 4)):
        to = dict(zip(ranks, ranks[turn:] + ranks[:turn], strict=True))
        after = diagnose(permuted(scene, to))
        assert after.state == before.state
        assert after.phase == before.phase
        assert after.confidence == before.confidence
        assert after.rule == before.rule
        for name in ("odd_ranks", "missing_ranks", "waiting_ranks", "working_ranks"):
            assert set(getattr(after, name)) == {to[rank] for rank in getattr(before, name)}, name


def without_stack(scene: Scene, who: Rank) -> Scene:
    def change(shot: Snapshot) -> Snapshot:
        pids = {p.pid for p in shot.processes if p.rank == who}
        kept = tuple(d for d in shot.dumps if d.pid not in pids)
        refused = tuple(
            Dump(pid, "py-spy", refusal="no permission", remedy="run as root") for pid in pids
        )
        return dataclasses.replace(shot, dumps=(*kept, *refused))

    return each(scene, change)


def schedulers(scene: Scene) -> Iterator[Process]:
    last: dict[tuple[str, int], Process] = {}
    for shot in scene.snapshots:
        for process in shot.processes:
            if process.role == "scheduler" and process.rank is not None:
                last[process.host, process.pid] = process
    yield from last.values()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_without_a_stack_nobody_is_accused_and_nothing_is_surer(case: Case) -> None:
    scene, before = case.scene, judged(case)
    for process in list(schedulers(scene))[:8]:
        assert process.rank is not None
        after = diagnose(without_stack(scene, process.rank))
        assert surety(after) <= surety(before), process.title
        stopped = {
            p.rank.world for p in schedulers(scene) if p.rank is not None and p.state in ("T", "t")
        }
        assert set(after.odd_ranks) <= set(before.odd_ranks)
        if process.state not in ("T", "t") and not replicas(scene):
            assert set(after.odd_ranks) <= stopped
        assert after.missing_ranks == before.missing_ranks


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_log_by_another_clock_accuses_nobody_else_and_clears_nobody(case: Case) -> None:
    before, after = judged(case), diagnose(looks_later(case.scene))
    assert after.odd_ranks == before.odd_ranks
    assert after.state in (before.state, "cannot_tell")


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("kept", ["first", "last"])
def test_one_snapshot_is_never_hung_and_nothing_is_surer(case: Case, kept: str) -> None:
    scene, before = case.scene, judged(case)
    hosts = {shot.host for shot in scene.snapshots}
    shots = []
    for host in sorted(hosts):
        mine = sorted((s for s in scene.snapshots if s.host == host), key=lambda s: s.at)
        shots.append(mine[0] if kept == "first" else mine[-1])
    after = diagnose(dataclasses.replace(scene, snapshots=tuple(shots)))
    # What a watchdog of the engine or of torch wrote into the log is evidence of time by itself.
    by_log = ("watchdog", "sequence_numbers", "collective_timeout")
    assert after.state != "hung" or after.rule in by_log
    assert surety(after) <= surety(before)
    assert after.state not in ("idle", "serving")
    if after.state == "stopped":
        assert set(after.odd_ranks) <= {row.rank for row in after.ranks if row.state in ("T", "t")}
    elif after.rule != "sequence_numbers":  # NCCL's numbers name a rank without any stack
        assert after.odd_ranks == ()


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("field", ["logs", "gpus", "arguments", "exits", "records", "cpu"])
def test_what_is_taken_away_accuses_nobody_else(case: Case, field: str) -> None:
    scene, before = case.scene, judged(case)
    if field == "gpus":
        less = each(scene, lambda shot: dataclasses.replace(shot, gpus=()))
    elif field == "cpu":  # what /proc counts, but not what it says of a process's state
        less = each(
            scene,
            lambda shot: dataclasses.replace(
                shot,
                processes=tuple(
                    dataclasses.replace(p, cpu_seconds=None, read_bytes=None, written_bytes=None)
                    for p in shot.processes
                ),
            ),
        )
        assert surety(diagnose(less)) <= surety(before)
    elif field == "logs":
        less = dataclasses.replace(scene, logs=())
    else:
        less = dataclasses.replace(scene, **{field: {}})
    after = diagnose(less)
    assert set(after.odd_ranks) <= set(before.odd_ranks)
    assert set(after.missing_ranks) <= set(before.missing_ranks)
    if field == "arguments" and "enable-dp-attention" not in scene.arguments:
        assert surety(after) <= max(surety(before), SURE.index("possible"))


def repid(scene: Scene) -> Scene:
    def new(pid: int) -> int:
        return pid + 50_000 if pid > 0 else pid

    def recounted(value: Any) -> Any:
        if isinstance(value, list):
            return [recounted(one) for one in value]
        if isinstance(value, dict):
            return {k: new(v) if k == "pid" else recounted(v) for k, v in value.items()}
        return value

    return each(
        dataclasses.replace(scene, records=recounted(dict(scene.records))),
        lambda s: dataclasses.replace(
            s,
            processes=tuple(
                dataclasses.replace(p, pid=new(p.pid), parent=p.parent and new(p.parent))
                for p in s.processes
            ),
            dumps=tuple(dataclasses.replace(d, pid=new(d.pid)) for d in s.dumps),
            gpus=tuple(
                dataclasses.replace(
                    g, processes={new(pid): mib for pid, mib in g.processes.items()}
                )
                for g in s.gpus
            ),
        ),
    )


def later(scene: Scene) -> Scene:
    """Move all clocks, the looks' and the logs'."""
    logs = tuple(
        dataclasses.replace(
            log,
            last_at=log.last_at and log.last_at + 1e6,
            lines=tuple(
                dataclasses.replace(x, at=None if x.at is None else x.at + 1e6) for x in log.lines
            ),
        )
        for log in scene.logs
    )
    return dataclasses.replace(looks_later(scene), logs=logs)


def looks_later(scene: Scene) -> Scene:
    return each(scene, lambda s: dataclasses.replace(s, at=s.at + 1e6))


def shuffled(scene: Scene) -> Scene:
    dice = random.Random(7)

    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dice.sample(items, len(items)))

    mixed_up = each(
        scene,
        lambda s: dataclasses.replace(
            s,
            processes=mixed(s.processes),
            dumps=tuple(dataclasses.replace(d, threads=mixed(d.threads)) for d in mixed(s.dumps)),
        ),
    )
    return dataclasses.replace(mixed_up, snapshots=mixed(mixed_up.snapshots))


def bystanders(scene: Scene) -> Scene:
    """Add compile workers, a tracker, and folded threads that come and go."""
    extra = tuple(
        Process(
            70_000 + i,
            "node0",
            "bystander",
            "python compile_worker",
            parent=1000,
            state="S",
            cpu_seconds=0.1,
        )
        for i in range(8)
    )

    def change(shot: Snapshot) -> Snapshot:
        more: tuple[Thread, ...] = (
            thread(TQDM, f"tqdm_{shot.at}"),
            thread(WATCHDOG, "Thread-9 (_watchdog_thread)"),
        )
        dumps = tuple(
            dataclasses.replace(d, threads=(*more, *d.threads)) if d.threads else d
            for d in shot.dumps
        )
        grown = (*shot.processes, *extra) if shot.processes else ()
        return dataclasses.replace(shot, processes=grown, dumps=dumps)

    return each(scene, change)


def uncertain_paths(scene: Scene) -> Scene:
    """Move the engine to another folder: a path of another machine is the same file."""

    def moved(file: str) -> str:
        return file.replace(
            "/opt/venv/lib/python3.12/site-packages/", "/srv/e/lib/python3.11/site-packages/"
        )

    def threads(dump: Dump) -> tuple[Thread, ...]:
        return tuple(
            dataclasses.replace(
                t, frames=tuple(dataclasses.replace(f, file=moved(f.file)) for f in t.frames)
            )
            for t in dump.threads
        )

    return each(
        scene,
        lambda s: dataclasses.replace(
            s, dumps=tuple(dataclasses.replace(d, threads=threads(d)) for d in s.dumps)
        ),
    )


def unqualified(scene: Scene) -> Scene:
    """Name functions as Python before 3.11 does: without their class."""

    def name(function: str) -> str:
        plain = "::" in function or function.startswith("<") or "<locals>" in function
        return function if plain else function.rsplit(".", 1)[-1]

    def threads(dump: Dump) -> tuple[Thread, ...]:
        return tuple(
            dataclasses.replace(
                t, frames=tuple(dataclasses.replace(f, function=name(f.function)) for f in t.frames)
            )
            for t in dump.threads
        )

    return each(
        scene,
        lambda s: dataclasses.replace(
            s, dumps=tuple(dataclasses.replace(d, threads=threads(d)) for d in s.dumps)
        ),
    )


SAME = (repid, later, shuffled, bystanders, uncertain_paths, unqualified)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("change", SAME, ids=[change.__name__ for change in SAME])
def test_what_means_nothing_changes_nothing(case: Case, change: Callable[[Scene], Scene]) -> None:
    scene = case.scene
    assert core(diagnose(change(scene))) == core(judged(case))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_third_look_like_the_second_confirms_it(case: Case) -> None:
    scene, before = case.scene, judged(case)
    if before.state != "hung":
        return
    last: dict[str, Snapshot] = {}
    for shot in sorted(scene.snapshots, key=lambda s: s.at):
        last[shot.host] = shot
    more = tuple(dataclasses.replace(shot, at=shot.at + 60.0) for shot in last.values())
    after = diagnose(dataclasses.replace(scene, snapshots=(*scene.snapshots, *more)))
    assert (after.state, after.odd_ranks) == (before.state, before.odd_ranks)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_rank_that_gets_on_makes_hung_slow(case: Case) -> None:
    """Give the odd rank a live compiler: then it works, and is not accused."""
    scene, before = case.scene, judged(case)
    stopped = {
        p.rank.world for p in schedulers(scene) if p.rank is not None and p.state in ("T", "t")
    }
    if before.state != "hung" or not before.odd_ranks or stopped or replicas(scene):
        return
    if not list(schedulers(scene)):
        return  # a log alone: there is no process that could get on

    def build(process: Process) -> Process:
        odd = process.rank is not None and process.rank.world in before.odd_ranks
        return dataclasses.replace(process, compilers=("cicc",)) if odd else process

    busy = each(
        scene, lambda s: dataclasses.replace(s, processes=tuple(build(p) for p in s.processes))
    )
    after = diagnose(busy)
    assert after.state == "slow"
    assert after.odd_ranks == ()
    assert after.working_ranks == before.odd_ranks


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_whatever_dumps_and_looks_are_lost_nobody_else_is_accused(case: Case) -> None:
    scene, before = case.scene, judged(case)
    dice = random.Random(case.name)
    for _ in range(4):
        shots = tuple(
            dataclasses.replace(shot, dumps=tuple(d for d in shot.dumps if dice.random() > 0.2))
            for shot in scene.snapshots
            if dice.random() > 0.1
        )
        after = diagnose(dataclasses.replace(scene, snapshots=shots))
        assert set(after.odd_ranks) <= set(before.odd_ranks)
        assert surety(after) <= surety(before)
