"""What a diagnosis shows of its scene: a row a rank, the merged tree, the threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from workbench.hang.diagnosis_records import RankRow, Standing, ThreadRow, TreeNode
from workbench.hang.judge import evidence, phases, tree, waits
from workbench.hang.judge.rank_group import GroupRank, RankGroup
from workbench.hang.judge.rules import Judgement
from workbench.hang.records import Frame, Scene, Snapshot, Thread


def rows_of(judged: Judgement) -> list[RankRow]:
    """Return one row a rank of the group, seen or not."""
    group = judged.group
    rows = [_row(judged, rank) for rank in group.ranks]
    rows += [RankRow(n, f"rank {n}", "missing", why="not there") for n in group.absent]
    rows += [
        RankRow(n, f"rank {n}", "not_collected", why="its host was not collected")
        for n in group.not_collected
    ]
    return sorted(rows, key=lambda row: row.rank)


def _row(judged: Judgement, rank: GroupRank) -> RankRow:
    line = judged.group.story.last_line.get(rank.number)
    dump, gpu = rank.dump, rank.gpu
    reached = judged.group.story.reached.get(rank.number, "unknown")
    return RankRow(
        rank=rank.number,
        name=evidence.name_of(rank),
        standing=_standing(judged, rank),
        host=rank.host,
        pid=rank.pid,
        phase=reached if rank.phase in phases.WEAK and reached != "unknown" else rank.phase,
        wait_class=rank.wait,
        frame=waits.telling_frame(rank.frames),
        moving=rank.moving,
        state=rank.process.state if rank.process is not None else None,
        cpu=rank.cpu,
        threads=len(dump.threads) if dump is not None and dump.threads else None,
        folded=sum(bool(waits.folded(thread)) for thread in dump.threads)
        if dump is not None
        else 0,
        gpu_utilisation=gpu.utilisation if gpu is not None else None,
        gpu_memory_mib=gpu.memory_used_mib if gpu is not None else None,
        gpu_watts=gpu.power_watts if gpu is not None else None,
        why=rank.gone
        or ("" if dump is None else dump.refusal)
        or ("" if rank.has_stack else "no stack"),
        remedy="" if dump is None else dump.remedy,
        last_line=line.text[:300] if line is not None else "",
        last_at=line.at if line is not None else None,
    )


def _standing(judged: Judgement, rank: GroupRank) -> Standing:
    if rank.gone:
        return "missing"
    if rank in judged.odd:
        return "odd"
    if rank.stopped:
        return "stopped"
    if rank.moving and rank.wait != "IDLE":
        return "moving"
    if rank.wait == "IDLE" and judged.rule.state in ("idle", "serving", "cannot_tell", "slow"):
        return "idle"
    if rank.wait in waits.FOR_OTHERS | waits.ON_DEVICE:
        return "waiting"
    return "present" if rank.has_stack else "not_seen"


def _by_host(scene: Scene) -> dict[str, list[Snapshot]]:
    hosts: dict[str, list[Snapshot]] = defaultdict(list)
    for snapshot in sorted(scene.snapshots, key=lambda s: s.at):
        hosts[snapshot.host].append(snapshot)
    return hosts


def _of_ranks(groups: Sequence[RankGroup]) -> dict[tuple[str, int], int]:
    """Return the number of the rank of each (host, pid)."""
    return {
        (rank.host, rank.pid): rank.number
        for group in groups
        for rank in group.ranks
        if rank.pid is not None
    }


def merged_tree(scene: Scene, groups: Sequence[RankGroup]) -> tuple[TreeNode, ...]:
    """Merge the stacks of all ranks; snapshots of several hosts are paired from the last one backwards."""
    numbers = _of_ranks(groups)
    hosts = _by_host(scene)
    depth = max((len(many) for many in hosts.values()), default=0)
    merged: list[dict[int, Sequence[Frame]]] = [{} for _ in range(depth)]
    for host, many in hosts.items():
        for back, snapshot in enumerate(reversed(many), start=1):
            for dump in sorted(snapshot.dumps, key=lambda dump: dump.native):
                number = numbers.get((host, dump.pid))
                thread = waits.thread_of_interest(dump)
                if number is not None and thread is not None:
                    merged[depth - back].setdefault(number, thread.frames)
    return tree.merge([stacks for stacks in merged if stacks])


def threads_of(scene: Scene, groups: Sequence[RankGroup]) -> tuple[ThreadRow, ...]:
    """Return the threads of the last snapshot of each host; of several dumps of a process the first."""
    numbers = _of_ranks(groups)
    found: list[ThreadRow] = []
    for host, many in _by_host(scene).items():
        last = next((i for i in range(len(many) - 1, -1, -1) if many[i].dumps), None)
        if last is None:
            continue
        roles = {process.pid: process.role for process in many[last].processes}
        done: set[int] = set()
        for dump in many[last].dumps:
            if dump.pid in done or not dump.threads:
                continue
            done.add(dump.pid)
            role = roles.get(dump.pid, "other")
            number = numbers.get((host, dump.pid))
            found += [
                ThreadRow(
                    number,
                    dump.pid,
                    last,
                    t.name,
                    t.frames,
                    role,
                    _folded(role, t),
                    t.main,
                    t.active,
                    t.owns_gil,
                )
                for t in dump.threads
            ]
    return tuple(found)


def _folded(role: str, thread: Thread) -> str:
    return waits.folded(thread) if role == "scheduler" else role
