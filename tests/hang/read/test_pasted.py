"""Texts as people paste them: the output of real tools, issues in Markdown, several passes in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from workbench.errors import WorkbenchError
from workbench.hang.read.pasted import is_pasted, read_pasted
from workbench.hang.read.pyspy import read_faulthandler
from workbench.hang.read.scene import read_scene
from workbench.hang.read.tracebacks import read_gdb, read_pystack
from workbench.hang.records import Dump, Scene

# What the tools printed of one program (stuck.txt): two threads, one waits for a lock that the other holds.
OUTPUTS = Path(__file__).parent / "tool_outputs"
PATH = ["barrier", "capture", "<module>"]
TWO_RANKS = """Process 101: sglang::scheduler_TP0
Python v3.12.3 (/usr/bin/python3.12)

Thread 101 (active): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:4551)
    GroupCoordinator.barrier (sglang/srt/distributed/parallel_state.py:1320)
    capture_one (sglang/srt/model_executor/runner/full_cuda_graph_backend.py:75)
    DecodeCudaGraphRunner.capture (sglang/srt/model_executor/runner/decode_cuda_graph_runner.py:300)
    run_scheduler_process (sglang/srt/managers/scheduler.py:3900)
Process 102: sglang::scheduler_TP1
Python v3.12.3 (/usr/bin/python3.12)

Thread 102 (active): "MainThread"
    forward (sglang/srt/models/llama.py:310)
    capture_one (sglang/srt/model_executor/runner/full_cuda_graph_backend.py:80)
    DecodeCudaGraphRunner.capture (sglang/srt/model_executor/runner/decode_cuda_graph_runner.py:300)
    run_scheduler_process (sglang/srt/managers/scheduler.py:3900)
"""


def output(name: str) -> str:
    return (OUTPUTS / name).read_text()


def python_frames(dump: Dump) -> list[list[str]]:
    return [
        [frame.function.rpartition(".")[2] for frame in thread.frames if not frame.module]
        for thread in sorted(dump.threads, key=lambda thread: not thread.main)
    ]


def issue(*fences: str, between: str = "And again.") -> str:
    parts = ["## It hangs\n", "Both GPUs are at 100 %, I think NCCL error or CUDA out of memory?\n"]
    for number, fence in enumerate(fences):
        parts.append((f"\n{between}\n" if number else "\n") + f"```text\n{fence}```\n")
    return "\n".join(parts)


def scene_of(tmp_path: Path, text: str, name: str = "issue.md") -> Scene:
    path = tmp_path / name
    path.write_text(text)
    return read_scene(path)


@pytest.mark.parametrize("name", ["pystack.txt", "pystack-native.txt"])
def test_pystack_is_read_with_its_main_thread(name: str) -> None:
    (found,) = read_pystack(output(name).splitlines())
    assert found.dump.pid == 29573
    assert found.dump.native is ("native" in name)
    assert python_frames(found.dump)[0] == PATH
    assert python_frames(found.dump)[1][0] == "hold"


def test_gdb_is_read_with_its_main_thread() -> None:
    (found,) = read_gdb(output("gdb.txt").splitlines())
    assert found.dump.pid == 29870
    assert python_frames(found.dump)[0] == PATH


def test_native_stacks_of_gdb_are_read() -> None:
    (found,) = read_gdb(output("gdb-bt.txt").splitlines())
    assert [thread.os_id for thread in found.dump.threads] == [29577, 29573]
    main = found.dump.main
    assert main is not None
    assert main.frames[0].function == "__futex_abstimed_wait_common64"


def test_faulthandler_asked_for_by_a_signal() -> None:
    (found,) = read_faulthandler(output("fault.txt").splitlines(), asked=True)
    assert PATH in python_frames(found.dump)


@pytest.mark.parametrize(
    "name", ["pystack.txt", "pystack-native.txt", "gdb.txt", "gdb-bt.txt", "pyspy.txt", "fault.txt"]
)
def test_each_tool_is_known_alone_and_in_a_fence(tmp_path: Path, name: str) -> None:
    assert is_pasted(output(name).encode())
    for text in (output(name), issue(output(name))):
        scene = scene_of(tmp_path, text, "stacks.txt")
        (dump,) = scene.snapshots[0].dumps
        assert len(dump.threads) == 2
        assert all(process.rank is None for process in scene.snapshots[0].processes)


def test_two_runs_of_pystack_are_two_processes() -> None:
    first = output("pystack.txt")
    second = first.replace("29573", "30573").replace("29577", "30577")
    found = read_pystack(
        f"$ pystack remote 29573\n{first}$ pystack remote 30573\n{second}".splitlines()
    )
    assert [one.dump.pid for one in found] == [29573, 30573]


def test_an_issue_in_markdown_is_judged_by_its_fences(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, issue(TWO_RANKS))
    assert scene.engine == "sglang"
    assert [str(process.rank) for process in scene.snapshots[0].processes] == ["TP0", "TP1"]
    assert not scene.logs  # the prose is no log: its guess at an error is not evidence
    got = workbench.open_evidence(tmp_path / "issue.md")
    assert got.state == "cannot_tell"
    assert got.phase == "graph_decode"


@pytest.mark.parametrize("between", ["60 seconds later:", "After 1 minute the same:"])
def test_two_passes_are_two_snapshots_where_the_text_says_when(
    tmp_path: Path, between: str
) -> None:
    scene = scene_of(tmp_path, issue(TWO_RANKS, TWO_RANKS, between=between))
    first, second = scene.snapshots
    assert second.at - first.at == 60.0
    assert len(first.processes) == len(second.processes) == 2
    got = workbench.open_evidence(tmp_path / "issue.md")
    assert got.times[1] - got.times[0] == 60.0


def test_clocks_in_the_text_say_when_too(tmp_path: Path) -> None:
    text = issue(TWO_RANKS, TWO_RANKS, between="2026-11-29 18:31:20").replace(
        "## It hangs", "## It hangs\n2026-11-29 18:30:50"
    )
    text = text.replace("Both GPUs are at 100 %, I think NCCL error or CUDA out of memory?", "")
    scene = scene_of(tmp_path, text)
    assert scene.snapshots[1].at - scene.snapshots[0].at == 30.0


def test_passes_in_one_plain_text_are_told_apart_by_the_lines_between(tmp_path: Path) -> None:
    text = f"# pass 1, 2026-11-29 13:47:40\n{TWO_RANKS}\n# pass 2, 2026-11-29 13:48:40\n{TWO_RANKS}"
    first, second = scene_of(tmp_path, text).snapshots
    assert second.at - first.at == 60.0
    assert len(first.processes) == len(second.processes) == 2


def test_two_passes_without_times_are_one_moment(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, issue(TWO_RANKS, TWO_RANKS))
    assert len({one.at for one in scene.snapshots}) == 1
    assert any("without times" in note for note in scene.notes)
    assert workbench.open_evidence(tmp_path / "issue.md").state == "cannot_tell"


def test_a_stack_without_a_label_gets_no_rank(tmp_path: Path) -> None:
    bare = output("fault.txt")
    scene = scene_of(tmp_path, issue(bare, bare, bare))
    assert all(process.rank is None for one in scene.snapshots for process in one.processes)


def test_a_stack_gets_the_rank_that_the_text_gives_it(tmp_path: Path) -> None:
    text = "\n".join(f"**rank {rank}**\n```\n{output('fault.txt')}```" for rank in (0, 1))
    scene = scene_of(tmp_path, text)
    ranks = sorted(p.rank.world for one in scene.snapshots for p in one.processes if p.rank)
    assert ranks == [0, 1]


def test_a_size_is_no_rank() -> None:
    (one,) = read_pasted(f"Launched with TP=1 and --tp 2:\n```\n{output('fault.txt')}```").passes
    assert one.dumps[0].rank is None


def test_what_ray_stack_prints(tmp_path: Path) -> None:
    text = "Stack dump for root      101  0.0  1.2 ? ray::RayWorkerWrapper.execute_method\n"
    text += TWO_RANKS.replace("sglang::scheduler_TP0", "ray::RayWorkerWrapper.execute_method")
    scene = scene_of(tmp_path, text, "ray.txt")
    assert [process.pid for process in scene.snapshots[0].processes] == [101, 102]
    first = scene.snapshots[0].processes[0]
    assert (first.role, first.rank) == ("scheduler", None)  # a rank without a number


def test_a_log_in_a_fence_is_a_log(tmp_path: Path) -> None:
    log = "[2026-11-29 18:30:49 TP0] Load weight begin. avail mem=138.27 GB\n"
    scene = scene_of(tmp_path, issue(log, TWO_RANKS))
    assert [line.rank for line in scene.logs[0].lines] == ["TP0"]
    assert len(scene.snapshots[0].dumps) == 2


def test_a_note_next_to_evidence_is_not_evidence(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(issue(TWO_RANKS))
    (tmp_path / "stacks.txt").write_text(output("pyspy.txt"))
    assert {dump.pid for one in read_scene(tmp_path).snapshots for dump in one.dumps} == {29573}


def test_what_was_looked_for_is_said(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear all, it hangs.\n")
    with pytest.raises(WorkbenchError) as raised:
        read_scene(tmp_path / "letter.txt")
    assert "pystack" in str(raised.value)
    assert "letter.txt" in str(raised.value)


def test_stacks_without_ranks_say_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "gdb.txt"
    path.write_text(output("gdb.txt"))
    got = workbench.open_evidence(path)
    assert (got.state, got.odd_ranks) == ("cannot_tell", ())
    assert "a second snapshot is missing; it is in barrier (stuck.py:17)" in got.summary.replace(
        "\n", " "
    )


def test_stacks_without_ranks_say_their_phase(tmp_path: Path) -> None:
    text = TWO_RANKS.replace("sglang::scheduler_TP0", "python").replace(
        "sglang::scheduler_TP1", "python"
    )
    path = tmp_path / "stacks.txt"
    path.write_text(text)
    got = workbench.open_evidence(path)
    assert (got.state, got.phase, got.odd_ranks) == ("cannot_tell", "graph_decode", ())
    assert "each of 2 stacks" in got.summary
