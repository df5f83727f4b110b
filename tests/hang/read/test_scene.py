"""Piles of evidence of any layout joined into one scene, and what may not be joined."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import WorkbenchError
from workbench.hang.open_evidence import open_evidence
from workbench.hang.read.scene import read_scene
from workbench.hang.records import Rank, Scene, Snapshot

INCIDENT = Path(__file__).resolve().parents[3] / "data" / "incident" / "hang"
CASE = INCIDENT / "capture-hang"


def ranks(scene: Scene, snapshot: int = 0) -> dict[int, Rank]:
    return ranks_of(scene.snapshots[snapshot])


def ranks_of(one: Snapshot) -> dict[int, Rank]:
    return {p.pid: p.rank for p in one.processes if p.rank is not None}


def stack(*functions: str, pid: int = 7) -> list[dict[str, Any]]:
    frames = [{"name": name, "filename": "/x/sglang/srt/x.py", "line": 1} for name in functions]
    return [
        {
            "pid": pid,
            "thread_id": 1,
            "thread_name": "MainThread",
            "os_thread_id": pid,
            "frames": frames,
        }
    ]


def arguments(**changes: object) -> str:
    values = {
        "model_path": "'m'",
        "tp_size": 2,
        "pp_size": 1,
        "dp_size": 1,
        "nnodes": 1,
        "node_rank": 0,
    }
    shown = ", ".join(f"{name}={value}" for name, value in {**values, **changes}.items())
    return f"[2026-11-29 18:00:00] server_args=ServerArgs({shown})\n"


# -- the recordings --------------------------------------------------------------------------------


def test_the_recorded_hang() -> None:
    scene = read_scene(CASE)
    assert scene.version == "0.5.14"
    assert scene.expected_ranks == 2
    assert scene.arguments["tp-size"] == "2"
    assert scene.environment["NCCL_NVLS_ENABLE"] == "0"
    assert scene.notes == ()
    assert [round(one.at, 1) for one in scene.snapshots] == [1795977069.3, 1795977090.6]
    for number, one in enumerate(scene.snapshots):
        assert ranks(scene, number) == {2185: Rank(0, tp=0), 2186: Rank(1, tp=1)}
        assert [gpu.index for gpu in one.gpus] == [0, 1]
        assert [d.pid for d in one.dumps if d.native] == [2185, 2186]
        assert all(dump.at == one.at for dump in one.dumps)
    assert scene.exits == {}
    assert scene.not_collected == ()
    assert scene.port_open is None


def test_a_launch_that_was_ended_on_purpose_is_no_crash() -> None:
    scene = read_scene(INCIDENT / "first-start")
    assert scene.snapshots == ()
    assert scene.exits == {}
    assert len(scene.logs) == 1


def test_the_parent_folder_holds_several_launches() -> None:
    with pytest.raises(WorkbenchError, match="several launches"):
        read_scene(INCIDENT)


@pytest.mark.parametrize("form", ["zip", "list", "flat"])
def test_the_same_evidence_in_another_form(form: str, tmp_path: Path) -> None:
    whole = read_scene(CASE)
    if form == "zip":
        with zipfile.ZipFile(tmp_path / "case.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(CASE.rglob("*")):
                archive.write(path, f"x/y/{path.relative_to(CASE)}")
        scene = read_scene(tmp_path / "case.zip")
    elif form == "list":
        scene = read_scene([CASE / "server.log", CASE / "snapshot-1", CASE / "snapshot-2"])
    else:
        for path in (*CASE.glob("snapshot-1/pyspy-2*.json"), CASE / "server.log"):
            shutil.copy(path, tmp_path / path.name)
        scene = read_scene(tmp_path)
        assert len(scene.snapshots) == 1
        pids = {d.pid for d in scene.snapshots[0].dumps}
        assert pids == {2062, 2184, 2185, 2186, 2187}
        # Dumps as JSON do not say which rank a process is: none is made up.
        assert ranks(scene) == {}
        assert {p.pid for p in scene.snapshots[0].processes if p.role == "scheduler"} == {
            2185,
            2186,
        }
        return
    assert [ranks(scene, n) for n in (0, 1)] == [ranks(whole, n) for n in (0, 1)]
    assert scene.arguments == whole.arguments
    assert [len(one.dumps) for one in scene.snapshots] == [
        len(one.dumps) for one in whole.snapshots
    ]


@pytest.mark.parametrize(
    ("name", "snapshots", "logs"),
    [
        ("server.log", 0, 1),
        ("snapshot-1/pyspy-2186.json", 1, 0),
        ("snapshot-1/nvidia-smi.csv", 1, 0),
        ("snapshot-2", 1, 0),
    ],
)
def test_a_single_file_is_enough(name: str, snapshots: int, logs: int) -> None:
    scene = read_scene(CASE / name)
    assert (len(scene.snapshots), len(scene.logs)) == (snapshots, logs)


# -- foreign piles ---------------------------------------------------------------------------------


def text_dump(pid: int, title: str, *functions: str) -> str:
    frames = "".join(f"    {name} (x.py:1)\n" for name in functions)
    return f'Process {pid}: {title}\nPython v3.12.3 (/x)\n\nThread {pid} (idle): "MainThread"\n{frames}'


def test_text_dumps_say_themselves_who_they_are(tmp_path: Path) -> None:
    for number in range(4):
        text = text_dump(100 + number, f"sglang::scheduler_TP{number}   ", "barrier")
        (tmp_path / f"dump{number}.txt").write_text(text)
    (tmp_path / "rest.txt").write_text(text_dump(50, "python -m sglang.launch_server", "poll"))
    scene = read_scene(tmp_path)
    assert ranks(scene) == {100 + n: Rank(n, tp=n) for n in range(4)}
    assert {p.role for p in scene.snapshots[0].processes} == {"scheduler", "parent"}
    assert scene.expected_ranks is None  # nothing says how many there should be


def test_a_rank_in_a_file_name_counts_where_nothing_else_tells_it(tmp_path: Path) -> None:
    (tmp_path / "rank3.json").write_text(json.dumps(stack("barrier", pid=33)))
    (tmp_path / "pyspy-rank-1.json").write_text(json.dumps(stack("barrier", pid=31)))
    (tmp_path / "rank9.txt").write_text(text_dump(34, "sglang::scheduler_TP4", "barrier"))
    scene = read_scene(tmp_path)
    assert {pid: rank.world for pid, rank in ranks(scene).items()} == {33: 3, 31: 1, 34: 4}


def test_the_dumps_of_torchs_debug_server(tmp_path: Path) -> None:
    """`/pyspy_dump` and `/stacks`, as its periodic dump writes them: the headings are the ranks."""
    spied = "".join(
        f"=== Rank {n}: http://h:{n} ===\n{text_dump(100 + n, 'python -m x', 'barrier')}\n"
        for n in (0, 1)
    )
    thread = 'Thread 0x00007f (most recent call first):\n  File "/x/y.py", line 3 in {}\n\n'
    stacks = "".join(
        f"=== Rank {n}: http://h:{n} ===\n{thread.format('wait')}{thread.format('run_scheduler_process')}"
        for n in (0, 1)
    )
    (tmp_path / "pyspy_dump").write_text(spied + "=== Rank 2: http://h:2 ===\nError: 500\n")
    scene = read_scene(tmp_path)
    assert ranks(scene) == {100: Rank(0, tp=0), 101: Rank(1, tp=1)}
    (tmp_path / "pyspy_dump").unlink()
    (tmp_path / "stacks").write_text(stacks)
    scene = read_scene(tmp_path)
    assert {rank.world for rank in ranks(scene).values()} == {0, 1}
    assert all(dump.main is not None for dump in scene.snapshots[0].dumps)


def test_a_second_dump_of_a_process_is_a_second_snapshot(tmp_path: Path) -> None:
    for number, at in ((1, 1000), (2, 1060)):
        for pid in (7, 8):
            path = tmp_path / f"pyspy-{pid}-{number}.json"
            path.write_text(json.dumps(stack("barrier", pid=pid)))
            os.utime(path, (at, at))
    scene = read_scene(tmp_path)
    assert [one.at for one in scene.snapshots] == [1000.0, 1060.0]
    assert [{d.pid for d in one.dumps} for one in scene.snapshots] == [{7, 8}, {7, 8}]


def test_snapshots_are_in_natural_order(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        folder = tmp_path / f"snapshot-{number}"
        folder.mkdir()
        listed = {"taken_at": 100.0 + number, "processes": [{"pid": 7, "cmd": "sglang::scheduler"}]}
        (folder / "processes.json").write_text(json.dumps(listed))
    assert [one.at for one in read_scene(tmp_path).snapshots] == [101.0, 102.0, 110.0]
    assert ranks(read_scene(tmp_path)) == {7: Rank(0)}


def test_what_is_damaged_or_not_ours_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    shutil.copytree(CASE, tmp_path / "case")
    folder = tmp_path / "case"
    (folder / "snapshot-1" / "pyspy-2186.json").write_text('[{"thread_id": 1, "frames": [')
    (folder / "notes.xyz").write_bytes(b"\0\1\2")
    (folder / "evil.pickle").write_bytes(b"\x80\x04\x95pg_config entries cposix\nsystem\n")
    (folder / "empty.log").write_text("")
    scene = read_scene(folder)
    said = " ".join(scene.notes)
    assert "pyspy-2186.json was not read" in said
    assert "notes.xyz" in said
    assert "evil.pickle was not read" in said
    assert len(scene.snapshots[0].dumps) == 6


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="no evidence"):
        read_scene(tmp_path)
    (tmp_path / "a.json").write_text('{"x": 1}')
    with pytest.raises(WorkbenchError, match="no evidence"):
        read_scene(tmp_path)


def test_two_logs_of_one_name_are_not_one_log(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text(arguments())
    with pytest.raises(WorkbenchError, match="several launches"):
        read_scene([tmp_path / "a", tmp_path / "b"])


def test_an_older_launch_in_the_same_folder_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "old.log").write_text(arguments(tp_size=4))
    (tmp_path / "new.log").write_text(arguments(tp_size=2).replace("18:00", "19:00"))
    scene = read_scene(tmp_path)
    assert [log.name for log in scene.logs] == ["new.log"]
    assert scene.arguments["tp-size"] == "2"
    assert any("old.log is of an older launch" in note for note in scene.notes)


# -- what the log adds -----------------------------------------------------------------------------


def watchdog(rank: int, pid: int, clock: str, *functions: str) -> str:
    body = text_dump(pid, f"sglang::scheduler_TP{rank}", *functions)
    return f"[2026-11-29 {clock} TP{rank}] Pyspy dump for PID {pid}:\n{body}\n"


def test_two_passes_of_the_watchdogs_are_two_snapshots(tmp_path: Path) -> None:
    log = arguments() + "".join(
        watchdog(rank, 40 + rank, f"18:{minute}:0{rank}", "barrier")
        for minute in (10, 12)
        for rank in (0, 1)
    )
    (tmp_path / "server.log").write_text(log)
    scene = read_scene(tmp_path)
    assert len(scene.snapshots) == 2
    assert scene.snapshots[1].at - scene.snapshots[0].at == 120.0
    for number in (0, 1):
        assert ranks(scene, number) == {40: Rank(0, tp=0), 41: Rank(1, tp=1)}
        assert {d.source for d in scene.snapshots[number].dumps} == {"watchdog"}


ABORT = (
    "Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
    '  File "/x/sglang/srt/managers/scheduler.py", line 3 in run_scheduler_process\n\n'
)
BEAT = "[rank1]:[E1129 18:40:00.1 ProcessGroupNCCL.cpp:1] [Rank 1] Heartbeat monitor timed out!\n"


def test_whose_the_last_stacks_are_is_said_only_where_it_is_certain(tmp_path: Path) -> None:
    both = "[2026-11-29 18:30:00 TP0] x\n[2026-11-29 18:30:00 TP1] x\n"

    def told(text: str) -> list[int]:
        (tmp_path / "server.log").write_text(arguments() + text)
        scene = read_scene(tmp_path)
        (one,) = scene.snapshots
        assert all(dump.source == "faulthandler" for dump in one.dumps)
        return [p.rank.world for p in one.processes if p.rank is not None]

    assert told(both + BEAT + ABORT) == [1]
    assert told(both + ABORT) == []
    assert told(both + BEAT + BEAT.replace("rank1", "rank0") + ABORT) == []
    assert told(both + BEAT + ABORT + ABORT) == []
    assert told("[2026-11-29 18:30:00 TP1] x\n" + ABORT) == [1]


def test_exit_codes_go_to_their_ranks(tmp_path: Path) -> None:
    crashed = "[2026-11-29 18:40:00] Subprocess scheduler_1 (pid=17) crashed with exit code -9. T\n"
    other = "[2026-11-29 18:40:00] Child process unexpectedly failed with an exit code 3. pid=41\n"
    (tmp_path / "server.log").write_text(
        arguments(tp_size=4) + watchdog(3, 41, "18:10:00", "barrier") + crashed + other
    )
    assert read_scene(tmp_path).exits == {1: -9, 3: 3}


@pytest.mark.parametrize(
    ("given", "titles", "expected", "worlds"),
    [
        ({"tp_size": 2, "pp_size": 2}, ["PP1_TP1"], 4, [3]),
        ({"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}, ["DP1_TP2"], 4, [2]),
        ({"tp_size": 2, "dp_size": 2}, ["DP0_TP1", "DP1_TP1"], 4, [1, 1]),
        ({"tp_size": 8, "ep_size": 8}, ["TP5_EP5"], 8, [5]),
    ],
)
def test_sizes_and_numbers(
    given: dict[str, object], titles: list[str], expected: int, worlds: list[int], tmp_path: Path
) -> None:
    (tmp_path / "server.log").write_text(arguments(**given))
    processes = [
        {"pid": 10 + n, "cmd": f"sglang::scheduler_{title}"} for n, title in enumerate(titles)
    ]
    (tmp_path / "processes.json").write_text(json.dumps({"taken_at": 1.0, "processes": processes}))
    scene = read_scene(tmp_path)
    assert scene.expected_ranks == expected
    assert [rank.world for rank in ranks(scene).values()] == worlds


def test_arguments_of_a_command_line_where_no_log_tells_them(tmp_path: Path) -> None:
    words = ["python", "-m", "sglang.launch_server", "--tp", "4", "--api-key", "hush"]
    parent = {"pid": 5, "cmd": " ".join(words), "argv": words}
    (tmp_path / "processes.json").write_text(json.dumps({"taken_at": 1.0, "processes": [parent]}))
    scene = read_scene(tmp_path)
    assert scene.expected_ranks == 4
    assert "hush" not in repr(scene)


# -- hostile ---------------------------------------------------------------------------------------

JUNK = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([[{}]])
)


def changed(data: st.DataObject, value: Any) -> Any:
    """JSON with some of its values replaced by others."""
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(JUNK)
    if isinstance(value, dict):
        return {name: changed(data, one) for name, one in value.items()}
    if isinstance(value, list):
        return [changed(data, one) for one in value[:3]]
    return value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_case_with_any_values_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("case")
    gpu = {"index": 0, "uuid": "g", "utilisation": 0, "processes": {"2185": 5}}
    manifest = {
        "format": "workbench.case/1",
        "host": "h",
        "utc_offset": 0.0,
        "logs": [],
        "notes": ["x"],
    }
    rank = {"rank": 0, "pid": 2185, "collective_counts": {"AllReduce": 1}}
    files: dict[str, Any] = {
        "manifest.json": manifest,
        "launch.json": json.loads((CASE / "launch.json").read_bytes()),
        "processes.json": json.loads((CASE / "snapshot-1" / "processes.json").read_bytes()),
        "pyspy-2185.json": stack("barrier", pid=2185),
        "gpus.json": {"taken_at": 1.0, "gpus": [gpu]},
        "ras.json": {"communicators": [{"ranks": [rank]}]},
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(changed(data, value)))
    lines = (CASE / "server.log").read_text().splitlines()
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=20))
    (folder / "server.log").write_text("\n".join(kept))
    with contextlib.suppress(WorkbenchError):
        scene = read_scene(folder)
        assert len(scene.notes) <= 60


def test_open_evidence_judges_what_was_read() -> None:
    found = open_evidence(CASE)
    assert (found.state, found.phase, found.odd_ranks) == ("hung", "graph_decode", (1,))
    with pytest.raises(WorkbenchError):
        open_evidence(INCIDENT / "nothing")
