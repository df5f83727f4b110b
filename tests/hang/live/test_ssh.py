"""Several hosts over a real sshd on this machine: what is collected, what is not seen, what stays behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hang.live.conftest import start
from workbench.errors import WorkbenchError
from workbench.hang.attach import attach
from workbench.hang.collect import remote

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
real = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None or os.geteuid() != 0,
    reason="there is no sshd here, or it cannot be started",
)


@contextlib.contextmanager
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: list[str]) -> Iterator[Path]:
    """Run an sshd with the names `good`, `impostor` and `closed`; yield its folder for temporary files.

    It runs among processes of its own, so that no other test's server is seen.
    """
    assert SSHD is not None
    for name in ("host", "wrong", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    temporary = tmp_path / "remote"
    temporary.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nPidFile none\nPasswordAuthentication no\n"
        f"SetEnv TMPDIR={temporary} PATH={path}\n"
    )
    known = []
    for name, key in (("good", "host"), ("impostor", "wrong")):
        kind, value, *_ = (tmp_path / f"{key}.pub").read_text().split()
        known.append(f"{name} {kind} {value}\n")
    (tmp_path / "known_hosts").write_text("".join(known))
    (tmp_path / "config").write_text(
        f"Host good\n  HostKeyAlias good\nHost impostor\n  HostKeyAlias impostor\n"
        f"Host good impostor\n  HostName 127.0.0.1\n  Port {port}\n"
        "Host closed\n  HostName 127.0.0.1\n  Port 1\n"
        f"Host *\n  IdentityFile {tmp_path}/user\n  UserKnownHostsFile {tmp_path}/known_hosts\n"
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    # The real ssh, with a configuration of its own.
    (programs / "ssh").write_text(
        f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n'
    )
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)
    with subprocess.Popen(
        [*within, SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")]
    ) as process:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield temporary
        process.kill()


@real
def test_a_host_is_collected_and_those_that_do_not_answer_are_named(
    container: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(container, tmp_path, "sleep", 2, 1)
    inside = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()[0]
    within = ["nsenter", "--target", inside, "--pid", "--mount"]
    with sshd(tmp_path, monkeypatch, within) as temporary:
        found = attach(hosts=["good", "closed", "impostor"], interval=1.5)
    assert list(temporary.iterdir()) == []
    assert (found.state, found.odd_ranks) == ("hung", (1,)), found.to_text(120)
    assert found.source == "1 of 3 hosts over ssh"
    unseen = [note for note in found.notes if note.startswith("not seen: ")]
    assert "closed" in unseen[0]
    assert "refused" in unseen[0]
    assert "impostor (Host key verification failed" in unseen[1]


@real
def test_nothing_stays_behind_where_nothing_could_be_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with (
        sshd(tmp_path, monkeypatch, within) as temporary,
        pytest.raises(WorkbenchError, match="nothing was collected on 1 hosts") as error,
    ):
        attach(hosts=["good"], interval=1.5)
    assert "there is no SGLang or vLLM server running here" in str(error.value)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=x", "a b", "", "root@-oProxyCommand=x", "a;b", "$(x)", "a\nb", "'", 7]
)
def test_what_is_no_name_of_a_host_never_reaches_ssh(
    host: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(WorkbenchError, match="is not the name of a host"):
        attach(hosts=["good", host])  # type: ignore[list-item]
    assert not (tmp_path / "ran").exists()


def test_host_keys_are_checked_as_configured_and_nothing_is_asked() -> None:
    words = " ".join(remote._OPTIONS)
    assert "BatchMode=yes" in words
    assert "StrictHostKeyChecking" not in words
    assert remote.checked(["a", "root@b.example", "10.0.0.1", "a"]) == [
        "a",
        "root@b.example",
        "10.0.0.1",
    ]
