"""What `doctor` lists without arguments: servers with their ports, and what lies here."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.triage.around import around
from workbench.triage.things import recognise

SERVER = """
import socket, sys
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Run a process that is launched as a server of SGLang is, and listens; yield its pid and port."""
    package = tmp_path / "path" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(SERVER)
    process = subprocess.Popen(
        [sys.executable, "-m", "sglang.launch_server", "--model-path", "m"],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_a_server_is_listed_with_its_port(server: tuple[int, int], tmp_path: Path) -> None:
    pid, port = server
    line = next(one for one in around(tmp_path) if f"workbench doctor {pid} " in one)
    assert f"listens on {port}" in line
    assert recognise(f":{port}")[0].pid == pid


def test_a_port_of_another_process_is_not_the_server_s(
    server: tuple[int, int], tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        listed = [line for line in around(tmp_path) if "listens on" in line]
        assert listed
        assert not any(re.search(rf"\b{port}\b", line) for line in listed)
