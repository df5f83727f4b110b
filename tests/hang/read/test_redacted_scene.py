"""Raw evidence is shown as a case of it would be: nothing planted in any form, and the same verdicts."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import pytest

import workbench
from tests import planted
from tests.hang.cases import CASES
from workbench.evidence.casefile import CaseWriter, SecretError
from workbench.evidence.redact import Redactor
from workbench.hang.collect.collector import logs
from workbench.hang.collect.collector.refusals import Place, translate
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.read.redacted_scene import redacted
from workbench.hang.read.scene import read_scene

SAME = (
    "state",
    "phase",
    "odd_ranks",
    "waiting_ranks",
    "missing_ranks",
    "not_collected",
    "wait_class",
    "confidence",
    "rule",
    "summary",
    "experiment",
    "tree",
)
STARTED = """[2026-11-29 18:00:05 TP0] Load weight begin. avail mem=1 GB
[2026-11-29 18:00:06 TP1] Load weight begin. avail mem=1 GB
[2026-11-29 18:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/home/jdoe/sglang/scheduler.py", line 3, in f
ValueError: bad token Bearer abcd1234efgh for https://h/x?sig=pAzX9qWErTy prompt="appendicitis"
"""


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_verdict_is_the_same_before_and_after(case: object) -> None:
    before = case.scene  # type: ignore[attr-defined]
    after = redacted(before)
    one, two = diagnose(before), diagnose(after)
    for name in SAME[:-1]:
        assert getattr(one, name) == getattr(two, name), name
    assert redacted(after) == after


@cache
def raw(folder: Path) -> HangDiagnosis:
    """A folder of everything that may hold a secret, opened without `collect` before it."""
    snapshot = folder / "snapshot-1"
    snapshot.mkdir(parents=True)
    (folder / "server.log").write_text(planted.log() + "\n" + STARTED)
    processes = [
        {
            "pid": 7,
            "cmd": "python3 -m sglang.launch_server " + " ".join(planted.ARGUMENTS),
            "status": "S",
            "argv": ["python3", "-m", "sglang.launch_server", *planted.ARGUMENTS],
            "environment": planted.VARIABLES,
            "lock_files": ["/home/jdoe/.cache/x.lock"],
            "threads": 3,
        },
        {
            "pid": 8,
            "ppid": 7,
            "cmd": "sglang::scheduler_TP0",
            "status": "S",
            "environment": planted.VARIABLES,
        },
        {
            "pid": 9,
            "ppid": 7,
            "cmd": "sglang::scheduler_TP1",
            "status": "S",
            "py": {
                "exit": 1,
                "stderr": "Error: /home/jdoe/x envkey_5f1c",
                "refusal": "py-spy failed: envkey_5f1c",
            },
        },
    ]
    (snapshot / "processes.json").write_text(json.dumps({"taken_at": 1.0, "processes": processes}))
    frame = {
        "name": "barrier",
        "filename": "/home/jdoe/torch/distributed/distributed_c10d.py",
        "line": 1,
        "module": None,
        "locals": [{"name": "p", "repr": "'appendicitis'"}],
        "short_filename": None,
    }
    thread = {
        "pid": 8,
        "thread_id": 1,
        "thread_name": "jdoe",
        "os_thread_id": 8,
        "active": True,
        "owns_gil": False,
        "frames": [frame],
    }
    (snapshot / "pyspy-8.json").write_text(json.dumps([thread]))
    ras = {
        "nccl_version": "2.28",
        "communicators": [
            {
                "hash": "0x1",
                "size": 2,
                "ranks": [
                    {"rank": 0, "pid": 8, "host": "10.11.12.13", "status": {"init_state": 0}}
                ],
            }
        ],
    }
    (folder / "ras.json").write_text(json.dumps(ras))
    entry = {
        "process_group": ["0", "acmeplant"],
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "frames": [{"name": "f", "filename": "/home/jdoe/x.py", "line": 1}],
    }
    flight = {
        "entries": [entry],
        "pg_config": {"0": {"desc": "acmeplant", "ranks": "[0, 1]"}},
        "version": "2.5",
    }
    (folder / "flight_0.json").write_text(json.dumps(flight))
    launch = {
        "command": ["sglang", "serve", *planted.ARGUMENTS],
        "environment": planted.VARIABLES,
        "versions": {"sglang": "0.5.14"},
    }
    (folder / "launch.json").write_text(json.dumps(launch))
    return workbench.open_evidence(folder)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> HangDiagnosis:
    return raw(tmp_path_factory.mktemp("raw") / "evidence")


@pytest.mark.parametrize(
    "form", ["text", "wide text", "json", "page", "saved", "notebook", "report", "speedscope"]
)
def test_nothing_planted_is_in_any_form(found: HangDiagnosis, form: str, tmp_path: Path) -> None:
    shown: str | bytes
    if form == "text":
        shown = found.to_text(80)
    elif form == "wide text":
        shown = found.to_text(400)
    elif form == "json":
        shown = found.to_json()
    elif form == "page":
        shown = Path(found.to_html(tmp_path / "page.html")).read_bytes()
    elif form == "saved":
        shown = Path(found.save(tmp_path / "saved.json")).read_bytes()
    elif form == "notebook":
        shown = json.dumps(found._repr_mimebundle_())
    elif form == "report":
        shown = Path(workbench.report(found, tmp_path / "report.html")).read_bytes()
    else:
        shown = Path(
            found.to_speedscope(tmp_path / "stacks.json") or tmp_path / "stacks.json"
        ).read_bytes()
    assert planted.found_in(shown) == []
    assert len(shown) > 100


def test_what_the_rules_read_is_still_there(found: HangDiagnosis) -> None:
    assert found.version == "0.5.14"
    assert "ValueError" in found.to_json()
    assert "distributed_c10d.py" in found.to_json()


def test_a_scene_has_no_planted_secret_anywhere(tmp_path: Path) -> None:
    raw.__wrapped__(tmp_path / "evidence")
    scene = read_scene(tmp_path / "evidence")
    assert planted.found_in(json.dumps(dataclasses.asdict(scene), default=str)) == []
    assert scene.records["ras"][0]["communicators"][0]["ranks"][0]["pid"] == 8
    assert scene.records["flight"][0]["groups"]["0"]["ranks"] == [0, 1]


@pytest.mark.parametrize(
    "error",
    [
        "Permission Denied: Try running again",
        "os error 2",
        "Failed to suspend process EPERM",
        "unexpected waitpid result",
        "Failed to find python version",
        "Unsupported version of Python",
        "Failed to merge native and python frames",
    ],
)
def test_what_a_refusal_says_stays(error: str) -> None:
    for container in ("", "docker", "kubernetes"):
        place = Place(root=False, sys_ptrace=False, container=container, ptrace_scope=1)
        what, _ = translate(error, place, state="S")
        assert Redactor("s").line(what) == what


@pytest.mark.parametrize(
    "note",
    [
        *(logs._why(target) for target in ("", "/dev/pts/3", "/dev/null", "pipe:[12]")),
        "there is no nvidia-smi here",
        "nvidia-smi did not answer within 15 s: the driver may hang",
        "the GPUs were not read: the driver did not answer",
        "what answers at 127.0.0.1:28028 is not NCCL RAS",
        "NCCL RAS was not asked: the server has a network of its own (a container)",
        "NCCL RAS does not answer at 127.0.0.1:28028: [Errno 111] Connection refused",
    ],
)
def test_what_stands_in_the_way_is_still_told(note: str) -> None:
    assert Redactor("s").line(note) == note


def test_a_case_refuses_what_is_known_to_be_secret(tmp_path: Path) -> None:
    with (tmp_path / "c.zip").open("w+b") as out:
        case = CaseWriter(out, "host-5f2c91")
        case.forbid({'pass"word\\ü'})
        case.add("fine.txt", "nothing")
        for text in (
            'x pass"word\\ü y',
            json.dumps({"a": 'pass"word\\ü'}),
            json.dumps('pass"word\\ü', ensure_ascii=False),
        ):
            with pytest.raises(SecretError):
                case.add("leak.txt", text)
        case.manifest["notes"] = ['pass"word\\ü']
        with pytest.raises(SecretError):
            case.close()
