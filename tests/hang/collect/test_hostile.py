"""Evidence from somebody who means harm, and paths from somebody who is tired."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import workbench
from tests.hang.cases.build import R, scene, started
from tests.hang.cases.trap_scenes import FORWARD, WAITS
from workbench.errors import WorkbenchError
from workbench.hang.judge.diagnose import diagnose

CASE = Path(__file__).parents[3] / "data" / "incident" / "hang" / "capture-hang"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CASE, tmp_path / "case"))


@pytest.mark.parametrize("path", [None, 3, "", [], [""], [None], b"x", ["x", 4]])
def test_what_is_no_path(path: object) -> None:
    with pytest.raises(WorkbenchError, match="path") as told:
        workbench.open_evidence(path)  # type: ignore[arg-type]
    assert told.value.next_step


def test_a_launch_that_nobody_can_have(case: Path) -> None:
    sizes = "tp_size=999999, pp_size=999999, dp_size=999999, nnodes=4"
    (case / "launch.json").unlink()
    (case / "server.log").write_text(
        f"[2026-11-29 18:00:00] server_args=ServerArgs({sizes})\n"
        "[2026-11-29 18:00:01 TP999999 PP999999] Load weight begin. avail mem=1 GB\n"
        "[2026-11-29 18:00:02] Rank 999999 scheduler died during initialization (exit code: -9).\n"
    )
    for path in case.glob("snapshot-*/processes.json"):
        listed = json.loads(path.read_text())
        listed["processes"].append({"pid": 77, "cmd": "sglang::scheduler_TP999999", "status": "S"})
        path.write_text(json.dumps(listed))
    got = workbench.open_evidence(case)
    assert got.missing_ranks == ()
    assert len(json.dumps(got.to_dict())) < 1_000_000


def test_the_end_of_a_rank_that_the_launch_has_not() -> None:
    log = [
        *started(3, "decode"),
        "500 Rank 7 scheduler died during initialization (exit code: -9).",
    ]
    got = diagnose(scene([R(WAITS), R(FORWARD), R(WAITS)], log=log, exits={7: -9}))
    assert (got.state, got.odd_ranks, got.missing_ranks) == ("hung", (1,), ())


def test_names_from_evidence_are_escaped_everywhere(case: Path, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[31m\u202e<img src=x onerror=alert(2)>"
    path = case / "snapshot-2" / "pyspy-2185.json"
    dump = json.loads(path.read_text())
    for thread in dump:
        thread["thread_name"] = evil
        thread["frames"][0]["name"] = evil
    path.write_text(json.dumps(dump))
    with (case / "server.log").open("a") as log:
        log.write(
            f"[2026-11-29 18:40:00 TP1] Scheduler hit an exception: {evil}\nValueError: {evil}\n"
        )
    got = workbench.open_evidence(case)
    page = got.to_html(tmp_path / "x.html").read_text()
    for text in (str(got), page):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_pipes_and_devices_are_not_read(case: Path) -> None:
    os.mkfifo(case / "x.log")
    os.mkfifo(case / "snapshot-1" / "pyspy-9.json")
    (case / "zero.log").symlink_to("/dev/zero")
    (case / "loop").symlink_to(".")
    assert workbench.open_evidence(case).odd_ranks == (1,)
    with pytest.raises(WorkbenchError, match="neither a file nor a folder"):
        workbench.open_evidence(case / "x.log")


@pytest.mark.parametrize("given", [{"log": 3}, {"snapshots": True}])
def test_what_attach_cannot_take(given: dict[str, object]) -> None:
    with pytest.raises(WorkbenchError) as told:
        workbench.attach(os.getpid(), **given)  # type: ignore[arg-type]
    assert told.value.next_step
    assert next(iter(given)) in str(told.value) or "log" in str(told.value)


def test_a_process_that_has_ended_is_told_as_such() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WorkbenchError, match=f"process {ended.pid} has ended") as told:
        workbench.attach(ended.pid, snapshots=1)
    assert "open_evidence" in str(told.value)
    ended.wait()


LINES = (
    "Scheduler hit an exception: Rank 1 scheduler died during initialization (exit code: -9).",
    "Heartbeat monitor timed out!",
    "torch.OutOfMemoryError: CUDA out of memory",
    "SIGTERM received. signum=None frame=None.",
    "[2026-11-29 18:00:50 TP1] Subprocess scheduler_1 (pid=12) crashed with exit code -9",
)
FORMS = (
    "Receive: obj=GenerateReqInput(rid='1', text='{}', stream=False)",
    "Finish: obj=GenerateReqInput(rid='1'), out={{'text': '{}'}}",
    '{{"model": "m", "messages": [{{"role": "user", "content": "{}"}}], "n": 1}}',
    "bad request: prompt='{}'",
)


@pytest.mark.parametrize("said", LINES)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_user_sends_is_no_evidence(said: str, form: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-11-29 18:00:00] server_args=ServerArgs(model_path='m', tp_size=2)\n"
        "[2026-11-29 18:00:40] The server is fired up and ready to roll!\n"
        f"[2026-11-29 18:00:45] {form.format(said)}\n"
    )
    got = workbench.open_evidence(log)
    assert (got.state, got.rule, got.missing_ranks) == ("cannot_tell", "R1", ())
    assert said not in str(got)


def test_two_nodes_whose_logs_are_both_there(tmp_path: Path) -> None:
    for node in range(2):
        ranks = range(4 * node, 4 * node + 4)
        (tmp_path / f"node{node}.log").write_text(
            "[2026-11-29 18:00:00] server_args=ServerArgs(model_path='m', tp_size=8, nnodes=2, "
            f"node_rank={node})\n"
            + "".join(
                f"[2026-11-29 18:00:05 TP{rank}] Load weight begin. avail mem=1 GB\n"
                for rank in ranks
            )
        )
    assert workbench.open_evidence(tmp_path).not_collected == ()
    (tmp_path / "node1.log").unlink()
    assert workbench.open_evidence(tmp_path).not_collected == (4, 5, 6, 7)
