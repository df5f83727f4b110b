"""Diagnoses to look at, made by hand: eight ranks of which one is odd, 512 ranks, what was not seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from workbench.core.finding import Confidence, Experiment, Finding
from workbench.core.verdict import Coverage, Item, Verdict
from workbench.hang.diagnosis_records import RankRow, Span, ThreadRow, TreeNode
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.records import Frame

HOSTILE = '</script><img src=x onerror="window.owned=1"><b>&amp;\'`{0}\u2028\u202e'
START = 1_795_977_000.0


_ROOT = ("_main", "BaseProcess._bootstrap", "BaseProcess.run", "run_scheduler_process")
_INIT = (
    "Scheduler.__init__",
    "Scheduler.init_model_worker",
    "Scheduler.init_all_cuda_graphs",
    "TpModelWorker.init_cuda_graphs",
    "ModelRunner.init_cuda_graphs",
    "ModelRunner.init_decode_cuda_graph",
    "DecodeCudaGraphRunner.__init__",
    "DecodeCudaGraphRunner.capture",
)
_BARRIER = (
    "DecodeCudaGraphRunner._capture_one_stream",
    "DecodeCudaGraphRunner.capture_one_shape",
    "FullCudaGraphBackend.capture_one",
    "GroupCoordinator.barrier",
    "barrier",
)
_KERNEL = (
    "DecodeCudaGraphRunner._capture_one_stream",
    "DecodeCudaGraphRunner.capture_one_shape",
    "FullCudaGraphBackend.capture_one",
    "DeepseekV3ForCausalLM.forward",
    "DeepseekV2MoE.forward",
    "FlashInferAutotuner.choose_one",
    "synchronize",
)


def frame(name: str, line: int = 0) -> Frame:
    """A frame of the engine, its line from its name."""
    file = f"/opt/sglang/srt/{name.partition('.')[0].lower()[:18]}.py"
    return Frame(name, file, line or 100 + sum(map(ord, name)) % 800)


def forest(
    stacks: Iterable[tuple[tuple[str, ...], tuple[int, ...]]], snapshots: int = 2
) -> tuple[TreeNode, ...]:
    """The merged tree of stacks, root first, each with the ranks that show it in every snapshot."""
    by_head: dict[str, list[tuple[tuple[str, ...], tuple[int, ...]]]] = {}
    for names, ranks in stacks:
        if names:
            by_head.setdefault(names[0], []).append((names[1:], ranks))
    nodes = []
    for head, rest in by_head.items():
        here = tuple(sorted(rank for _, ranks in rest for rank in ranks))
        nodes.append(TreeNode(frame(head), (here,) * snapshots, False, forest(rest, snapshots)))
    return tuple(nodes)


def start_up(ranks: Iterable[int], open_phase: str = "graph_decode") -> tuple[Span, ...]:
    """The start-up of some ranks: the last phase never ends."""
    spans = []
    for rank in ranks:
        at = START + (rank % 7) * 0.3
        for phase, seconds in (("dist_init", 9.0), ("weights", 41.0), ("kv_pool", 2.0)):
            spans.append(Span(rank, phase, phase, at, at + seconds))
            at += seconds + 0.4
        spans.append(Span(rank, open_phase, open_phase, at, None))
    return tuple(spans)


EXPERIMENT = Experiment(
    change="relaunch with `--cuda-graph-backend-decode=disabled`, everything else equal",
    if_right="the server starts: the divergence is specific to graph capture",
    if_wrong="it hangs at the same operation in the first forward pass: graphs are not the cause",
    cost="one start-up; decoding is several times slower while it runs",
    undo="drop the flag again",
)


def finding(odd: str, waiting: str) -> Finding:
    return Finding(
        "hang.divergence",
        "error",
        f"{odd} left the common path in graph capture, and {waiting} wait for it in a host barrier",
        detail="The barrier of the gloo group has a timeout of two hours that no flag changes.",
        evidence_for=(
            f"{waiting} are in `GroupCoordinator.barrier` under `capture_one` in both snapshots",
            f"{odd} is in `FlashInferAutotuner.choose_one`, frozen over 31 s",
            "utilisation 0 % on all GPUs: a host-side wait, no resident kernel",
        ),
        evidence_against=("native frames were not taken: the kernel it waits for is not named",),
        confidence="likely",
        next_step="Relaunch with `--cuda-graph-backend-decode=disabled`, everything else equal.",
        experiment=EXPERIMENT,
    )


def verdict(
    state: str,
    sentence: str,
    *items: Item,
    confidence: Confidence = "likely",
    overturned_by: tuple[str, ...] = (),
) -> Verdict:
    """A verdict over some items."""
    return Verdict(state, sentence, confidence, Coverage(items), overturned_by)


def diverged(count: int = 8, odd: int = 5) -> HangDiagnosis:
    """`count` ranks in a barrier of graph capture, but one."""
    others = tuple(rank for rank in range(count) if rank != odd)
    stacks = [(_ROOT + _INIT + _BARRIER, others), (_ROOT + _INIT + _KERNEL, (odd,))]
    ranks = tuple(
        RankRow(
            rank,
            f"TP{rank}",
            "odd" if rank == odd else "waiting",
            host=f"node-{rank // 8}",
            pid=4000 + rank,
            phase="graph_decode",
            wait_class="CUDA_SYNC" if rank == odd else "HOST_COLL",
            frame=frame(
                "FlashInferAutotuner.choose_one" if rank == odd else "GroupCoordinator.barrier"
            ),
            moving=False,
            state="S",
            cpu=0.02,
            threads=205,
            folded=204,
            gpu_utilisation=0.0,
            gpu_memory_mib=77_824.0,
            gpu_watts=118.0 + rank % 5,
        )
        for rank in range(count)
    )
    threads = tuple(
        ThreadRow(
            rank, 4000 + rank, snapshot, "MainThread",
            tuple(frame(name) for name in reversed(_ROOT + _INIT + (_KERNEL if rank == odd else _BARRIER))),
            main=True, active=False,
        )
        for rank in range(count)
        for snapshot in range(2)
    )  # fmt: skip
    spare = tuple(
        ThreadRow(
            rank, 4000 + rank, snapshot, f"Thread-{n} (tqdm_monitor)",
            (frame("Event.wait"), frame("TMonitor.run"), frame("Thread._bootstrap")),
            folded="tqdm monitor", active=False,
        )
        for rank in range(count)
        for snapshot in range(2)
        for n in range(3)
    )  # fmt: skip
    waiting = f"{len(others)} ranks"
    return HangDiagnosis(
        verdict=verdict(
            "hung",
            f"Hung while decode graphs are captured: 1 of {count} ranks left the common path. "
            f"TP{odd} is in FlashInferAutotuner.choose_one, the other {len(others)} wait in a barrier.",
            Item(
                "rank",
                f"ranks 0-{count - 1}",
                "wrong",
                "at the same place in both snapshots",
                count,
            ),
            Item(
                "question", "which kernel", how="take native frames (native=True)", essential=False
            ),
            Item(
                "question",
                "whether another NCCL version would do the same",
                how="stacks do not show it",
                essential=False,
            ),
            overturned_by=(
                f"a third snapshot in which TP{odd} has moved: then it is slow, not hung",
            ),
        ),
        phase="graph_decode",
        wait_class="HOST_COLL",
        odd_ranks=(odd,),
        waiting_ranks=others,
        experiment=EXPERIMENT,
        source="case.zip",
        engine="sglang",
        version="0.5.14",
        findings=(finding(f"TP{odd}", waiting),),
        times=(START + 90, START + 121),
        silent_for=68.0,
        log_end=START + 53.2,
        ranks=ranks,
        tree=forest(stacks),
        timeline=start_up(range(count)),
        threads=threads + spare,
    )


def idle() -> HangDiagnosis:
    """A healthy server of two ranks, with nothing to do."""
    base = diverged(2, 1)
    ranks = tuple(
        dataclasses.replace(
            rank, standing="idle", phase="ready", wait_class="IDLE", cpu=0.8,
            frame=frame("SchedulerRequestReceiver.recv_requests"),
        )
        for rank in base.ranks
    )  # fmt: skip
    return dataclasses.replace(
        base,
        rule="idle",
        verdict=verdict(
            "idle",
            "healthy and idle: all ranks are in their event loops and wait for requests (2 of 2 ranks)",
            Item("rank", "ranks 0-1", "ok", "alive, and its stack was read", 2),
            Item("snapshot comparison", "progress of ranks 0-1", "ok", "its event loop turns", 2),
            Item("server log", "server log", "ok", "it reports no end after the last snapshot"),
            Item("HTTP port", "HTTP port", how="not tried", essential=False),
            confidence="certain",
            overturned_by=("a request that is accepted and never answered",),
        ),
        phase="ready",
        wait_class="IDLE",
        experiment=Experiment(
            "send one request with a time limit: curl -m 20 http://HOST:PORT/health_generate",
            "it answers 200: the server is healthy; the fault is in the client, the address or a proxy",
            "it does not answer: take snapshots while the request is pending",
            "one token",
        ),
        odd_ranks=(),
        waiting_ranks=(),
        ranks=ranks,
        findings=(),
        silent_for=None,
        tree=forest([((*_ROOT, "Scheduler.event_loop_overlap"), (0, 1))]),
        timeline=start_up(range(2), "ready"),
    )


def partly_seen() -> HangDiagnosis:
    """Eight ranks expected: one dead, one stopped, one without a stack, two on a host not read."""
    base = diverged(8, 5)
    ranks = list(base.ranks)
    for at, standing, why, remedy in (
        (1, "missing", "exit code -9: killed, often for memory", ""),
        (
            2,
            "not_seen",
            "py-spy may not read it: no permission to trace",
            "run as root on the host",
        ),
        (6, "not_collected", "its host was not collected", ""),
        (7, "not_collected", "its host was not collected", ""),
    ):
        ranks[at] = RankRow(at, f"TP{at}", standing, why=why, remedy=remedy)  # type: ignore[arg-type]
    ranks[5] = dataclasses.replace(ranks[5], standing="stopped", state="T", wait_class="STOPPED")
    stacks = [(_ROOT + _INIT + _BARRIER, (0, 3, 4)), (_ROOT + _INIT, (5,))]
    return dataclasses.replace(
        base,
        verdict=verdict(
            "cannot_tell",
            "Cannot tell which rank the others wait for: 3 of 8 ranks wait in a barrier, and the stacks of 4 "
            "are missing. TP1 is dead, and an absent rank outranks an odd one.",
            Item("rank", "ranks 0,3-5", "ok", "alive, and its stack was read", 4),
            Item("rank", "rank 1", how="killed"),
            Item("rank", "rank 2", how="no permission to trace"),
            Item("rank", "ranks 6-7", how="host not collected", count=2),
            confidence="unknown",
            overturned_by=base.overturns,
        ),
        missing_ranks=(1,),
        odd_ranks=(),
        waiting_ranks=(0, 3, 4),
        not_collected=(6, 7),
        ranks=tuple(ranks),
        tree=forest(stacks),
        timeline=start_up((0, 2, 3, 4, 5)),
        threads=tuple(t for t in base.threads if t.rank in (0, 3, 4, 5)),
    )


def hostile() -> HangDiagnosis:
    """Names and texts that try to become markup, wherever text is shown."""
    bad = Frame(HOSTILE, HOSTILE, 1, HOSTILE)
    experiment = Experiment(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    rank = RankRow(
        0, HOSTILE, "odd", host=HOSTILE, pid=1, phase=HOSTILE, wait_class=HOSTILE, frame=bad, moving=True,
        state=HOSTILE, why=HOSTILE, remedy=HOSTILE, last_line=HOSTILE, last_at=START,
    )  # fmt: skip
    return HangDiagnosis(
        verdict=verdict(
            "cannot_tell",
            HOSTILE,
            Item(HOSTILE, HOSTILE, how=HOSTILE),
            confidence="unknown",
            overturned_by=(HOSTILE,),
        ),
        phase="unknown",
        wait_class="UNKNOWN",
        experiment=experiment,
        findings=(
            Finding("x", "error", HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), experiment=experiment),
        ),
        notes=(HOSTILE,),
        source=HOSTILE,
        times=(1.0, 2.0),
        log_end=START + 3,
        ranks=(rank,),
        tree=(TreeNode(bad, ((0,), (0,)), True, (TreeNode(bad, ((0,), ()), True),)),),
        timeline=(
            Span(0, HOSTILE, HOSTILE, START, None),
            Span(None, HOSTILE, HOSTILE, START, START + 2),
        ),
        threads=(ThreadRow(0, 1, 0, HOSTILE, (bad, bad), main=True),),
    )
