"""The collector: standard library, Python 3.9, one file; what it writes is read back by the workbench."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import workbench
from tests import planted
from tests.planted import no_secret_leaves  # noqa: F401 - a fixture
from workbench.cli import app
from workbench.errors import WorkbenchError
from workbench.evidence.folder import changed_members, open_folder, read_manifest
from workbench.hang.attach import attach, collect
from workbench.hang.collect.collector import collect as collector
from workbench.hang.collect.collector import find_pyspy
from workbench.hang.collect.collector.servers import CollectError
from workbench.hang.collect.pack_collector import members, pack
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.read.scene import read_scene

PACKED = {name: text for name, text in members().items() if name.endswith(".py")}
MODULES = {n.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for n in PACKED}
# Every case that is written here is searched for what `start` plants.
pytestmark = pytest.mark.usefixtures("no_secret_leaves")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root for another's process")
# A rank and its parent: the title is written over the command line, as setproctitle does.
SERVER = """
import ctypes, os, sys, time
def set_title(text, fill=b" "):
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, room = int(fields[45]), int(fields[46]) - int(fields[45]) - 1
    ctypes.memmove(start, text.encode().ljust(room, fill) + b"\\0", room + 1)
def waits_for_the_others():
    print("[2026-11-29 18:30:57 TP%s] Load weight begin. avail mem=1 GB" % rank, flush=True)
    time.sleep(100)
line = "server_args=ServerArgs(model_path='t', tp_size=2, api_key='hunter2')"
print("[2026-11-29 18:30:50]", line, flush=True)
for rank in "01":
    if os.fork() == 0:
        set_title("sglang::scheduler_TP" + rank)
        waits_for_the_others()
words = "python3 -m sglang.launch_server --port 1 --api-key hunter2 --tp-size 2".split() + sys.argv[1:-1]
set_title("\\0".join(words), b"\\0")
time.sleep(100)
"""


@contextlib.contextmanager
def start(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start two ranks that look like SGLang's and wait for ever."""
    log = folder / "server.log"
    environment = {
        **os.environ,
        "NCCL_DEBUG": "INFO",
        "MY_API_KEY": "hunter2",
        **planted.VARIABLES,
        "NCCL_TOKEN": "hunter2",
    }
    with log.open("ab") as out:
        out.write(planted.log().encode("utf-8", "surrogatepass") + b"\n")
        out.flush()
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *planted.ARGUMENTS, "x" * 100],
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    try:
        while log.read_bytes().count(b"Load weight begin") < 2:
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One such server for many tests."""
    with start(tmp_path_factory.mktemp("server")) as process:
        yield process.pid


@pytest.mark.parametrize("name", PACKED)
def test_every_file_is_of_python_3_9_and_needs_only_the_standard_library(name: str) -> None:
    tree = ast.parse(PACKED[name], feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            assert module in MODULES or module.partition(".")[0] in sys.stdlib_module_names, module


def test_no_type_is_joined_with_a_bar_at_run_time() -> None:
    # `isinstance(x, int | str)` is good syntax in 3.9, and fails.
    for name, text in PACKED.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                assert not isinstance(node.args[1], ast.BinOp), name
        assert "from __future__ import annotations" in text or "|" not in text, name


def test_the_packed_file_is_small_and_always_the_same(tmp_path: Path) -> None:
    first, second = pack(tmp_path / "a.pyz"), pack(tmp_path / "b.pyz")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 100_000
    assert os.access(first, os.X_OK)


def isolated(pyz: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the packed file by a Python that sees no package at all, not even the workbench."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(pyz), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=pyz.parent,
        env={"PATH": "/usr/bin:/bin", **variables},
    )


@needs_root
def test_the_packed_file_collects_where_nothing_is_installed(server: int, tmp_path: Path) -> None:
    pyz = pack(tmp_path / "collect.pyz")
    beside = str(Path(sys.executable).with_name("py-spy"))
    done = isolated(
        pyz, str(server), "-o", "case.zip", "--interval", "1.2", "--py-spy", beside, "--native"
    )
    assert done.returncode == 0, done.stderr
    assert "2 snapshots of 3 processes" in done.stdout
    with open_folder(tmp_path / "case.zip") as folder:
        manifest = read_manifest(folder)
        assert manifest is not None
        assert changed_members(folder, manifest) == []
        assert set(manifest.logs) == {"logs/server.log"}
        assert manifest.port_open is False
        natives = [name for name in folder.sizes if "pyspy-native" in name]
        assert len(natives) == 2
        assert all(name.startswith("snapshot-2/") for name in natives)
    scene = read_scene(tmp_path / "case.zip")
    assert len(scene.snapshots) == 2
    assert scene.expected_ranks == 2
    ranks = [process.rank for process in scene.snapshots[0].processes if process.rank is not None]
    assert [rank.world for rank in ranks] == [0, 1]
    frames = {dump.main.frames[0].function for dump in scene.snapshots[0].dumps if dump.main}
    assert "waits_for_the_others" in frames
    assert diagnose(scene).phase == "weights"


@needs_root
def test_the_command_says_what_it_wrote_and_is_ok_only_if_nothing_is_missing(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = tmp_path / "case.zip"
    words = ["collect", "-o", str(case), str(server), "--interval", "0.5"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"wrote {case}: 2 snapshots of 3 processes, " in done.stdout
    assert " stacks by py-spy 0." in done.stdout
    assert case.stat().st_mode & 0o777 == 0o600
    with open_folder(case) as folder:
        manifest = json.loads(folder.read("manifest.json"))
    assert manifest["py_spy"] in done.stdout
    # The next one replaces this one; without py-spy it is written, and not ok.
    monkeypatch.setattr(find_pyspy, "candidates", list)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3, done.output
    assert " 0 stacks" in done.stdout
    assert "py-spy is not installed here" in done.stderr


def test_the_packed_file_without_pyspy_says_so_and_still_collects(
    server: int, tmp_path: Path
) -> None:
    pyz = pack(tmp_path / "collect.pyz")
    # -S with a Python that has a py-spy beside it would find that one.
    bare = tmp_path / "python3"
    bare.symlink_to(Path(sys.executable).resolve())
    done = subprocess.run(
        [str(bare), "-I", "-S", str(pyz), str(server), "-o", "case.zip", "--snapshots", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert "no stacks" in done.stdout
    assert "pip install py-spy" in done.stdout
    scene = read_scene(tmp_path / "case.zip")
    assert all(not dump.threads for snapshot in scene.snapshots for dump in snapshot.dumps)
    assert any("py-spy" in note for note in scene.notes)


def test_the_packed_file_says_what_is_wrong_and_leaves_nothing(tmp_path: Path) -> None:
    pyz = pack(tmp_path / "collect.pyz")
    done = isolated(pyz, "4194301", "-o", "case.zip")
    assert done.returncode == 2
    assert "there is no process 4194301" in done.stderr
    assert "next:" in done.stderr
    done = isolated(pyz, str(os.getpid()), "-o", "nowhere/case.zip")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["collect.pyz"]


def test_nothing_private_leaves_the_host(server: int, tmp_path: Path) -> None:
    case = collect(tmp_path / "case.zip", server, snapshots=1)
    with zipfile.ZipFile(case) as archive:
        everything = b"".join(archive.read(name) for name in archive.namelist())
    assert b"hunter2" not in everything
    assert socket.gethostname().encode() not in everything or len(socket.gethostname()) < 3
    assert b"NCCL_DEBUG" in everything
    assert b"NCCL_TOKEN" not in everything


def test_a_case_in_which_a_known_secret_survives_is_not_written(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the redactor had a fault: the server's own secrets are looked for in all that is written.
    monkeypatch.setattr(collector.Redactor, "log", lambda self, text: "key argkey_1a\n")
    with pytest.raises(WorkbenchError, match="case was not written") as error:
        collect(tmp_path / "case.zip", server, snapshots=1)
    assert "would be in it" in str(error.value)
    assert "argkey" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_writes_what_there_is(server: int) -> None:
    out = io.BytesIO()

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    done = collector.collect(out, collector.Plan(pid=server, wait=interrupt))
    assert done.interrupted
    assert done.snapshots == 1
    with zipfile.ZipFile(out) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert [entry["folder"] for entry in manifest["snapshots"]] == ["snapshot-1"]
        assert "logs/server.log" in archive.namelist()
    assert "interrupted after 1 of 2 snapshots" in manifest["notes"]


@needs_root
def test_an_interrupt_in_the_dumps_keeps_what_proc_says_of_all(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = collector.pyspy.as_completed

    def after_the_first(futures: Any) -> Iterator[Any]:
        yield next(iter(each(futures)))
        raise KeyboardInterrupt

    monkeypatch.setattr(collector.pyspy, "as_completed", after_the_first)
    monkeypatch.setattr(collector.pyspy.os, "sched_getaffinity", lambda pid: {0})
    out = io.BytesIO()
    done = collector.collect(out, collector.Plan(pid=server))
    assert done.interrupted
    assert done.snapshots == 1
    assert 1 <= done.stacks < 3
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        listed = json.loads(archive.read("snapshot-1/processes.json"))["processes"]
        stacks = [name for name in archive.namelist() if "pyspy-" in name]
    assert len(listed) == 3
    assert [one["pid"] for one in listed] == sorted(one["pid"] for one in listed)
    assert all(one["threads"] == 1 and one["wait_channel"] for one in listed)
    assert sum(one["py"]["exit"] == 0 for one in listed) == len(stacks) == done.stacks


@needs_root
def test_proc_is_read_beside_the_dump_and_before_it(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is paused has other states: its own dump must not be seen in what /proc says.
    order: list[tuple[str, int]] = []
    facts, dump = collector.proc.facts, collector.pyspy.PySpy._dump

    def noted_facts(pid: int, *given: Any, **named: Any) -> Any:
        order.append(("facts", pid))
        return facts(pid, *given, **named)

    def noted_dump(self: Any, pid: int, native: bool) -> Any:
        order.append(("dump", pid))
        return dump(self, pid, native)

    monkeypatch.setattr(collector.proc, "facts", noted_facts)
    monkeypatch.setattr(collector.pyspy.PySpy, "_dump", noted_dump)
    monkeypatch.setattr(collector.pyspy.os, "sched_getaffinity", lambda pid: {0})
    done = collector.collect(io.BytesIO(), collector.Plan(pid=server, snapshots=1))
    assert done.stacks == 3
    for pid in {pid for _, pid in order}:
        first, second = order.index(("facts", pid)), order.index(("dump", pid))
        assert first < second
        # With one processor, at most one other dump lies between them.
        assert sum(what == "dump" for what, _ in order[first:second]) <= 1


def test_attach_interrupted_cannot_tell(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = time.sleep

    def interrupt(seconds: float) -> None:
        if seconds >= 0.3:  # the wait between snapshots, no other
            raise KeyboardInterrupt
        sleep(seconds)

    monkeypatch.setattr("workbench.hang.attach.time.sleep", interrupt)
    found = attach(server, interval=30)
    assert found.state == "cannot_tell"
    assert len(found.times) == 1


def test_a_server_that_ends_between_two_snapshots_is_written_down(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        out = io.BytesIO()

        def kill(seconds: float) -> None:
            with contextlib.suppress(ProcessLookupError):  # it waits in parts
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                time.sleep(0.3)

        done = collector.collect(out, collector.Plan(pid=process.pid, wait=kill))
    assert done.snapshots == 2
    with zipfile.ZipFile(out) as archive:
        second = json.loads(archive.read("snapshot-2/processes.json"))
        assert b"Load weight begin" in archive.read("logs/server.log")
    # Who is nobody's child any more stays a zombie until init looks: it is still known by name.
    assert all(one["status"] == "Z" for one in second["processes"])
    assert all(one["cmd"].startswith("sglang::scheduler_TP") for one in second["processes"])
    assert all(one["exit_code"] == -signal.SIGKILL for one in second["processes"])


def test_ranks_that_outlive_their_parent_are_still_seen(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        out = io.BytesIO()

        def kill(seconds: float) -> None:
            process.kill()
            process.wait()

        collector.collect(out, collector.Plan(pid=process.pid, wait=kill))
        with zipfile.ZipFile(out) as archive:
            second = json.loads(archive.read("snapshot-2/processes.json"))
    assert [one["cmd"] for one in second["processes"]] == [
        "sglang::scheduler_TP0",
        "sglang::scheduler_TP1",
    ]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"pid": -1}, "no pid"),
        ({"pid": "x"}, "no pid"),
        ({"snapshots": 0}, "cannot be taken"),
        ({"interval": -1}, "cannot be waited"),
        ({"log": "/nowhere/server.log"}, "no log"),
        ({"pid": 2**22 - 3}, "no process"),
    ],
)
def test_bad_arguments_end_in_a_short_message(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(WorkbenchError, match=what):
        attach(**arguments)


def test_errors_of_the_collector_have_three_parts() -> None:
    assert str(CollectError("a", "b", "c")) == "a\n  why:  b\n  next: c"
    assert "pw" not in str(CollectError("a", "pid 7 (--model-path https://u:pw@h/m?sig=pw)"))


def test_the_version_of_the_packed_file_is_the_workbenchs() -> None:
    assert f'"{workbench.__version__}"' in PACKED["workbench/__init__.py"]
