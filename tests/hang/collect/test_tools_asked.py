"""What the collector asks of others: NCCL RAS, nvidia-smi and NVML."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.hang.collect import gpu
from workbench.hang.collect.collector import gpus, ras

Speak = Callable[[socket.socket], None]


@pytest.fixture
def answer() -> Iterator[Callable[[Speak], dict[str, str]]]:
    """Listen as NCCL RAS does; returns the variable that leads there."""
    threads, listeners = [], []

    def listen(speak: Speak) -> dict[str, str]:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                speak(link)

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return {"NCCL_RAS_ADDR": f"localhost:{listener.getsockname()[1]}"}

    yield listen
    for listener in listeners:
        listener.close()


def speak_ras(link: socket.socket, *, json_known: bool = True) -> None:
    """NCCL's side, as its sources and a real 2.28.9 have it."""
    stream = link.makefile("rwb")
    for line in stream:
        if line.startswith(b"CLIENT PROTOCOL"):
            stream.write(b"SERVER PROTOCOL 2\n")
        elif line.startswith(b"SET FORMAT") and not json_known:
            stream.write(b"ERROR: Unknown command\n")
        elif line == b"VERBOSE STATUS\n":
            stream.write(b'{"communicators": []}' if json_known else b"NCCL version 2.24\n")
            stream.flush()
            return
        else:
            stream.write(b"OK\n")
        stream.flush()


def test_ras_is_asked_as_its_own_client_asks(answer: Callable[[Speak], dict[str, str]]) -> None:
    found, why = ras.ask(answer(speak_ras))
    assert (found, why) == (b'{"communicators": []}', "")
    assert ras.is_json(found)
    found, why = ras.ask(answer(lambda link: speak_ras(link, json_known=False)))
    assert found is not None
    assert not ras.is_json(found)


def test_ras_that_is_silent_or_something_else_costs_little(
    answer: Callable[[Speak], dict[str, str]],
) -> None:
    found, why = ras.ask(
        answer(lambda link: link.recv(9) and threading.Event().wait(5)), timeout=0.3
    )
    assert found is None
    assert "does not answer" in why
    found, why = ras.ask(answer(lambda link: link.sendall(b"HTTP/1.1 400\r\n")))
    assert found is None
    assert "is not NCCL RAS" in why
    assert ras.ask({"NCCL_RAS_ADDR": "127.0.0.1:1"})[0] is None


SMI = """case "$*" in
*query-gpu*) echo '0, GPU-aa, NVIDIA H200, 1726, 143771, 0, 120.71, 700.00'
             echo '1, GPU-bb, NVIDIA H200, [N/A], 143771, 100, [N/A], [N/A]';;
*) echo 'GPU-aa, 2329, 1716'; echo 'GPU-bb, 2330, [N/A]';; esac"""


def smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_nvidia_smi_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, SMI, monkeypatch)
    found, why = gpus.read()
    assert why == ""
    assert found is not None
    first, second = found["gpus"]
    assert first == {
        "index": 0, "uuid": "GPU-aa", "name": "NVIDIA H200", "memory_used_mib": 1726.0,
        "memory_total_mib": 143771.0, "utilisation": 0.0, "power_watts": 120.71, "power_limit_watts": 700.0,
        "processes": {"2329": 1716.0},
    }  # fmt: skip
    assert second["memory_used_mib"] is None
    assert second["power_watts"] is None
    assert second["power_limit_watts"] is None
    assert second["processes"] == {}


def test_an_nvidia_smi_that_hangs_or_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, "exec sleep 60", monkeypatch)
    monkeypatch.setattr(gpus, "TIMEOUT", 0.3)
    assert "did not answer" in gpus.read()[1]
    smi(tmp_path, "echo Failed to initialize NVML; exit 9", monkeypatch)
    assert gpus.read() == (None, "nvidia-smi failed: Failed to initialize NVML")


class FakeNvml:
    """NVML of two GPUs, of which the second does not tell its power."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        from types import SimpleNamespace as Thing

        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetMemoryInfo": Thing(used=76 << 30, total=80 << 30),
            "nvmlDeviceGetUtilizationRates": Thing(gpu=0),
            "nvmlDeviceGetPowerUsage": 118_000,
            "nvmlDeviceGetUUID": b"GPU-aa",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetComputeRunningProcesses": [Thing(pid=7, usedGpuMemory=1 << 30)],
        }

        def call(*given: Any) -> Any:
            if name == "nvmlDeviceGetPowerUsage" and given == (1,):
                raise self.NVMLError("not supported")
            return given[0] if name == "nvmlDeviceGetHandleByIndex" else answers.get(name)

        return call


def test_nvml_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    found, why = gpu.read_gpus()
    assert why == ""
    assert found is not None
    assert [one["power_watts"] for one in found["gpus"]] == [118.0, None]
    assert found["gpus"][0]["memory_used_mib"] == 76 * 1024
    assert found["gpus"][0]["uuid"] == "GPU-aa"
    assert found["gpus"][0]["processes"] == {"7": 1024.0}


def test_without_a_driver_nothing_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.read_gpus() == (None, "there is no nvidia-smi here")
