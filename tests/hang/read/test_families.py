"""Children of a rank: forked ones with its title are its helpers, compilers below it are its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.errors import WorkbenchError
from workbench.hang.read.families import with_families
from workbench.hang.read.scene import read_scene
from workbench.hang.records import Process, Rank, Snapshot


def process(pid: int, parent: int, title: str, **more: object) -> Process:
    return Process(pid, "h", "other", title, parent=parent, state="S", **more)  # type: ignore[arg-type]


def rank(pid: int, parent: int, number: int) -> Process:
    return Process(
        pid, "h", "scheduler", f"sglang::scheduler_TP{number}", Rank(number, tp=number), parent, state="S"
    )  # fmt: skip


def compiler(pid: int, parent: int, title: str, state: str = "R") -> Process:
    return Process(pid, "h", "compiler", title, parent=parent, state=state)


def family(*processes: Process) -> dict[int, Process]:
    return {one.pid: one for one in with_families(Snapshot(0.0, "h", processes)).processes}


def test_a_forked_child_is_the_helper_of_its_rank() -> None:
    # The child's pid may be lower: numbers wrap around.
    found = family(
        process(1, 0, "x"), rank(50, 1, 0), rank(20, 50, 0), rank(21, 20, 0), rank(60, 1, 1)
    )
    assert {pid for pid, one in found.items() if one.rank is not None} == {50, 60}
    assert found[20].role == found[21].role == "other"


def test_a_child_below_another_process_is_a_helper_too() -> None:
    found = family(rank(50, 1, 0), process(51, 50, "sh -c x"), rank(52, 51, 0))
    assert found[52].rank is None


def test_two_servers_stay_two(tmp_path: Path) -> None:
    found = family(rank(50, 1, 0), rank(60, 2, 0))
    assert {pid for pid, one in found.items() if one.rank is not None} == {50, 60}
    listed = [
        {"pid": pid, "ppid": pid - 40, "cmd": "sglang::scheduler_TP0", "status": "S"}
        for pid in (50, 60)
    ]
    (tmp_path / "processes.json").write_text(json.dumps({"taken_at": 1.0, "processes": listed}))
    with pytest.raises(WorkbenchError, match="several servers"):
        read_scene(tmp_path)
    listed[1]["ppid"] = 50
    (tmp_path / "processes.json").write_text(json.dumps({"taken_at": 1.0, "processes": listed}))
    assert [p.pid for p in read_scene(tmp_path).snapshots[0].processes if p.rank] == [50]


def test_compilers_are_derived_from_parents() -> None:
    found = family(
        rank(50, 1, 0),
        process(51, 50, "sh -c ninja"),
        compiler(52, 51, "/usr/bin/ninja -j 8"),
        compiler(53, 52, "/usr/local/cuda/bin/nvcc x.cu"),
        compiler(54, 52, "/usr/bin/gcc x.c", "Z"),
        rank(60, 1, 1),
        compiler(70, 1, "nvcc y.cu"),
    )
    assert found[50].compilers == ("ninja", "nvcc")
    assert found[60].compilers == ()


def test_parents_that_go_round_in_a_circle_end() -> None:
    found = family(compiler(1, 2, "nvcc"), process(2, 1, "x"), rank(3, 3, 0))
    assert found[3].rank == Rank(0, tp=0)
