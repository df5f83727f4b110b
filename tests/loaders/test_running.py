"""The host's side of a tracer, with an engine made of a few lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.errors import EngineError
from workbench.loaders.running import run_tracer
from workbench.loaders.tracer import watch


def fake_python(folder: Path, code: str) -> str:
    """Return an interpreter that ignores its script and runs `code` instead."""
    script = folder / "engine.py"
    script.write_text(code)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')
    program.chmod(0o755)
    return str(program)


JOB = {"id": "1", "checkpoint": "/nowhere", "target": None, "model_class": None}


def test_no_such_interpreter() -> None:
    with pytest.raises(EngineError, match="no Python interpreter"):
        run_tracer("/no/such/python", [JOB], engine="sglang")


def test_engine_that_cannot_be_imported(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "import an_engine_that_is_not_there")
    with pytest.raises(EngineError) as caught:
        run_tracer(python, [JOB], engine="sglang")
    assert "cannot be imported" in caught.value.what
    assert "an_engine_that_is_not_there" in caught.value.why
    assert caught.value.next_step


def test_engine_that_dies(tmp_path: Path) -> None:
    code = (
        "import os, sys\nprint('CUDA error: out of luck', file=sys.stderr, flush=True)\nos.abort()"
    )
    with pytest.raises(EngineError) as caught:
        run_tracer(fake_python(tmp_path, code), [JOB], engine="sglang")
    assert f"signal {signal.SIGABRT.value}" in caught.value.what
    assert "checkpoint 1" in caught.value.what
    assert "out of luck" in caught.value.why


def test_engine_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    code = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    start = time.monotonic()
    with pytest.raises(EngineError, match="longer than 2 s"):
        run_tracer(fake_python(tmp_path, code), [JOB], engine="sglang", timeout=2)
    assert time.monotonic() - start < 20
    assert not alive(int(mark.read_text()))


def alive(pid: int) -> bool:
    """Whether a process still runs; one that waits to be reaped does not."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.1)
    return True


def test_answers_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "jobs = json.load(sys.stdin)['jobs']\n"
        "for job in reversed(jobs): print(json.dumps({'id': job['id'], 'path': job['checkpoint']}))\n"
    )
    jobs = [dict(JOB, id=n, checkpoint="some/where") for n in (1, 2, 3)]
    answers = run_tracer(fake_python(tmp_path, code), jobs, engine="sglang")
    assert [answer["id"] for answer in answers] == ["1", "2", "3"]
    assert {answer["path"] for answer in answers} == {os.path.abspath("some/where")}


def test_the_script_is_python_3_10_and_imports_nothing_of_ours() -> None:
    import ast

    folder = Path(watch.__file__).parent
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 10))
        named = {
            name.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        assert not {name for name in named if name.split(".")[0] == "workbench"}, file


def test_the_script_starts_without_torch() -> None:
    """Only the standard library is needed to be told that an engine is missing."""
    script = Path(watch.__file__).with_name("trace_load.py")
    request = json.dumps({"engine": "sglang", "jobs": []})
    done = subprocess.run(
        [sys.executable, "-S", str(script)],
        input=request,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr
