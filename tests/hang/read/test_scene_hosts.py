"""Cases of several hosts joined into one scene, and what may not be joined."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.case_files import writing_case
from workbench.errors import WorkbenchError
from workbench.hang.read.scene import read_scene

from .test_scene import CASE, arguments, ranks_of, stack

# -- several hosts ---------------------------------------------------------------------------------


def case_of(
    path: Path,
    node: int,
    nodes: int = 2,
    *,
    host: str = "",
    ahead: float = 0.0,
    offset: float = 0.0,
) -> Path:
    """One node's case: two ranks of `2 * nodes`, its clock so many seconds ahead."""
    log = path.with_suffix(".txt")
    first = 2 * node
    second = int(10 + ahead)
    hour = 18 + int(offset // 3600)
    log.write_text(
        arguments(tp_size=2 * nodes, nnodes=nodes, node_rank=node).replace("18:00", f"{hour}:00")
        + "".join(
            f"[2026-11-29 {hour}:00:{second} TP{rank}] Init torch distributed ends. elapsed=1.00 s, x\n"
            for rank in (first, first + 1)
        )
    )
    name = host or f"host-{node}"
    processes = [
        {"pid": 10 + n, "started": 5.0, "cmd": f"sglang::scheduler_TP{first + n}", "status": "S"}
        for n in (0, 1)
    ]
    at = 1000.0 + ahead
    with writing_case(
        path, name, version="0.5.14", node_rank=node, port_open=False, utc_offset=offset
    ) as case:
        case.add_snapshot(1, at, processes)
        for n in (0, 1):
            case.add_json(f"snapshot-1/pyspy-{10 + n}.json", stack("barrier", pid=10 + n))
        case.add_log("server.log", str(log), (10, 11))
    log.unlink()
    return path


@pytest.mark.parametrize("form", ["folder", "list", "zip of zips", "unpacked"])
def test_the_zips_of_several_hosts_are_one_scene(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    zips = [case_of(folder / f"node{node}.zip", node, ahead=7.0 * node) for node in (0, 1)]
    what: Any = folder
    if form == "list":
        what = zips
    elif form == "zip of zips":
        what = tmp_path / "both.zip"
        with zipfile.ZipFile(what, "w") as archive:
            for path in zips:
                archive.write(path, path.name)
    elif form == "unpacked":
        for path in zips:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder / path.stem)
            path.unlink()
    scene = read_scene(what)
    assert scene.expected_ranks == 4
    assert {one.host for one in scene.snapshots} == {"host-0", "host-1"}
    worlds = {
        (p.host, p.pid): p.rank.world for one in scene.snapshots for p in one.processes if p.rank
    }
    assert worlds == {
        ("host-0", 10): 0,
        ("host-0", 11): 1,
        ("host-1", 10): 2,
        ("host-1", 11): 3,
    }
    assert scene.clock_skew == {"host-0": 0.0, "host-1": 7.0}
    assert scene.not_collected == ()
    assert scene.port_open is False
    assert scene.arguments["node-rank"] == "0"


def test_clocks_of_two_time_zones_are_not_skewed(tmp_path: Path) -> None:
    zips = [case_of(tmp_path / f"n{node}.zip", node, offset=3600.0 * node) for node in (0, 1)]
    assert read_scene(zips).clock_skew == {"host-0": 0.0, "host-1": 0.0}


def test_ranks_of_a_node_that_was_not_collected_are_not_missing(tmp_path: Path) -> None:
    zips = [case_of(tmp_path / f"n{node}.zip", node, 4) for node in (0, 2)]
    scene = read_scene(zips)
    assert scene.expected_ranks == 8
    assert scene.not_collected == (2, 3, 6, 7)
    # One node's log alone says as much.
    (tmp_path / "one.log").write_text(
        arguments(tp_size=8, nnodes=4, node_rank=1) + "[2026-11-29 18:00:10 TP2] x\n"
    )
    assert read_scene(tmp_path / "one.log").not_collected == (0, 1, 4, 5, 6, 7)


def test_the_same_case_twice_is_one(tmp_path: Path) -> None:
    first = case_of(tmp_path / "a.zip", 0)
    second = Path(shutil.copy(first, tmp_path / "b.zip"))
    once, twice = read_scene(first), read_scene([first, second])
    assert twice.snapshots == once.snapshots
    assert twice.logs == once.logs
    with pytest.raises(WorkbenchError, match="several launches"):
        read_scene([first, case_of(tmp_path / "c.zip", 0, host="other")])


def test_two_servers_are_not_one_scene(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with writing_case(tmp_path / f"{name}.zip", f"host-{name}") as case:
            case.add_snapshot(1, 5.0, [{"pid": 7, "cmd": "sglang::scheduler_TP0"}])
    with pytest.raises(WorkbenchError, match="several servers"):
        read_scene(tmp_path)
    both = [{"pid": n, "cmd": "sglang::scheduler_TP0"} for n in (7, 8)]
    with writing_case(tmp_path / "c.zip", "host-c") as case:
        case.add_snapshot(1, 5.0, both)
    with pytest.raises(WorkbenchError, match="several servers"):
        read_scene(tmp_path / "c.zip")


def test_two_hosts_without_manifests_are_not_one_whose_ranks_have_gone(tmp_path: Path) -> None:
    for node in (0, 1):
        for number in (1, 2):
            folder = tmp_path / f"node{node}" / f"snapshot-{number}"
            folder.mkdir(parents=True)
            processes = [{"pid": 7, "cmd": f"sglang::scheduler_TP{node}", "status": "S"}]
            listed = {"taken_at": 100.0 * number + node, "processes": processes}
            (folder / "processes.json").write_text(json.dumps(listed))
    for what in (tmp_path, [tmp_path / "node0", tmp_path / "node1"]):
        hosts: dict[str, list[int]] = {one.host: [] for one in read_scene(what).snapshots}
        for one in read_scene(what).snapshots:
            hosts[one.host] += [rank.world for rank in ranks_of(one).values()]
        assert hosts == {"host-1": [0, 0], "host-2": [1, 1]}


def test_a_restarted_rank_on_one_host_is_no_second_server(tmp_path: Path) -> None:
    with writing_case(tmp_path / "c.zip", "host-c") as case:
        for number, pid in ((1, 7), (2, 8)):
            case.add_snapshot(number, 5.0 * number, [{"pid": pid, "cmd": "sglang::scheduler_TP0"}])
    assert len(read_scene(tmp_path / "c.zip").snapshots) == 2


def test_a_case_that_was_changed_says_so(tmp_path: Path) -> None:
    path = case_of(tmp_path / "a.zip", 0, 1)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "case")
    with (tmp_path / "case" / "logs" / "server.log").open("a") as log:
        log.write("[2026-11-29 18:59:00 TP1] added later\n")
    notes = read_scene(tmp_path / "case").notes
    assert any("not as they were collected: logs/server.log" in note for note in notes)
    assert not any("collected" in note for note in read_scene(path).notes)


def test_flight_recordings_and_ras_come_along(tmp_path: Path) -> None:
    shutil.copytree(CASE, tmp_path / "case")
    (tmp_path / "case" / "ras.json").write_text(json.dumps({"communicators": [{"size": 2}]}))
    entry = {"collective_seq_id": 5, "profiling_name": "nccl:all_reduce", "state": "scheduled"}
    dump = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [entry]}
    (tmp_path / "case" / "fr_rank_1.json").write_text(json.dumps(dump))
    records = read_scene(tmp_path / "case").records
    assert records["ras"][0]["communicators"][0]["size"] == 2
    assert records["flight"][0]["rank"] == 1
    assert records["flight"][0]["entries"][0]["sequence"] == 5
