"""A collection that is ended early keeps what it has, and never replaces a file that the server has open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hang.collect.test_collector import start
from tests.planted import no_secret_leaves  # noqa: F401 - a fixture
from workbench.errors import WorkbenchError
from workbench.evidence.folder import changed_members, open_folder, read_manifest
from workbench.hang.attach import collect
from workbench.hang.collect.collector.stopping import settle, shielded, stopping
from workbench.hang.collect.pack_collector import pack

pytestmark = pytest.mark.usefixtures("no_secret_leaves")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of a server that runs meanwhile."""
    folder = tmp_path_factory.mktemp("server")
    with start(folder) as process:
        (folder / "pid").write_text(str(process.pid))
        yield folder / "server.log"


def pid(log: Path) -> int:
    return int(log.with_name("pid").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("packed", [False, True])
def test_a_signal_keeps_the_snapshots_that_were_taken(
    number: signal.Signals, packed: bool, log: Path, tmp_path: Path
) -> None:
    pyz = str(pack(tmp_path / "collect.pyz"))
    case = tmp_path / "written" / "case.zip"
    case.parent.mkdir()
    program = [pyz] if packed else ["-m", "workbench.cli", "collect"]
    words = [sys.executable, *program, str(pid(log)), "-o", str(case), "--interval", "500"]
    # A shell that starts the tests in the background, or nohup, leaves signals ignored.
    words = ["env", f"--default-signal={number.name.removeprefix('SIG')}", *words]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        # Once something is in the file, a snapshot has been taken.
        while not any(part.stat().st_size for part in case.parent.iterdir()):
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        running.communicate()
    assert running.returncode == (0 if packed else 3)
    assert [path.name for path in case.parent.iterdir()] == ["case.zip"]
    with open_folder(case) as folder:
        manifest = read_manifest(folder)
        assert manifest is not None
        assert changed_members(folder, manifest) == []
        assert "interrupted after 1 of 2 snapshots" in manifest.notes
        assert "logs/server.log" in folder.sizes


def test_a_signal_is_put_off_while_a_file_is_written_and_comes_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    reached = []

    def put_off() -> None:
        with stopping(), shielded():
            os.kill(os.getpid(), signal.SIGTERM)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        put_off()
    assert reached == ["the end"]
    with stopping():
        settle()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("link", [False, True])
def test_the_log_that_the_server_writes_is_never_replaced(
    link: bool, log: Path, tmp_path: Path
) -> None:
    out = log
    if link:
        out = tmp_path / "case.zip"
        out.symlink_to(log)
    before = log.read_bytes()
    inode = log.stat().st_ino
    with pytest.raises(WorkbenchError, match="the server has this file open"):
        collect(out, pid(log), snapshots=1, force=True)
    done = subprocess.run(
        [sys.executable, str(pack(tmp_path / "collect.pyz")), str(pid(log)), "--force", "-o", out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "the server has this file open" in done.stderr
    assert (log.read_bytes(), log.stat().st_ino) == (before, inode)
    assert sorted(path.name for path in log.parent.iterdir()) == ["pid", "server.log"]


def test_a_block_inside_another_settles_only_itself() -> None:
    ended = []

    def work() -> None:
        with stopping():
            with stopping():
                settle()
                os.kill(os.getpid(), signal.SIGTERM)  # what was taken is being written
                ended.append("inner")
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended == ["inner"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_shield_of_the_inner_block_holds_and_the_outer_one_goes_on() -> None:
    ended = []
    with stopping():
        try:
            with stopping(), shielded():
                os.kill(os.getpid(), signal.SIGTERM)
                ended.append("written")
        except KeyboardInterrupt:
            ended.append("interrupted")
        ended.append("outer")
    assert ended == ["written", "interrupted", "outer"]
