"""Start, ask and stop a real SGLang server; nothing but the standard library is needed."""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

READY = "The server is fired up and ready to roll!"
ALLOWED = (
    "NCCL_",
    "SGLANG_",
    "CUDA_",
    "TORCH_",
    "FLASHINFER_",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
)
DISTRIBUTIONS = (
    "sglang",
    "sglang-kernel",
    "torch",
    "triton",
    "flashinfer_python",
    "transformers",
    "tokenizers",
    "apache-tvm-ffi",
    "py-spy",
)
BASE = [
    *("--dtype", "bfloat16", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--grammar-backend", "none", "--mem-fraction-static", "0.6", "--max-total-tokens", "16384"),
    *("--max-running-requests", "4", "--stream-interval", "1", "--disable-radix-cache"),
    *("--host", "127.0.0.1"),
]
GRAPHS = {
    True: {
        "0.5.10": ["--disable-piecewise-cuda-graph", "--cuda-graph-max-bs", "1"],
        "0.5.11": ["--disable-piecewise-cuda-graph", "--cuda-graph-max-bs", "1"],
        "": ["--cuda-graph-backend-prefill=disabled", "--cuda-graph-max-bs-decode", "1"],
    },
    False: {
        "0.5.11": ["--disable-cuda-graph", "--disable-piecewise-cuda-graph"],
        "": ["--cuda-graph-backend-prefill=disabled", "--cuda-graph-backend-decode=disabled"],
    },
}


def now() -> str:
    """Return the time as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class Launch:
    """What one server is started with.

    `target` and `draft` are names relative to the folder in which the server runs, so that no path of a
    machine gets into the evidence; without a draft nothing is speculated. Replicas choose ports themselves.
    """

    name: str
    target: str
    draft: str
    algorithm: str = "EAGLE3"
    steps: int = 4
    topk: int = 1
    draft_tokens: int = 5
    graphs: bool = True
    tensor_parallel: int = 1
    nccl_port: bool = True
    extra: list[str] = field(default_factory=list)

    def arguments(self, version: str, port: int) -> list[str]:
        """Return the server's arguments as this version spells them."""
        by_version = GRAPHS[self.graphs]
        parallel = ["--tp-size", str(self.tensor_parallel)] if self.tensor_parallel > 1 else []
        speculates = [
            *("--speculative-algorithm", self.algorithm),
            *("--speculative-draft-model-path", self.draft),
            *("--speculative-num-steps", str(self.steps)),
            *("--speculative-eagle-topk", str(self.topk)),
            *("--speculative-num-draft-tokens", str(self.draft_tokens)),
        ]
        return [
            *("--model-path", self.target, "--port", str(port)),
            *(("--nccl-port", str(port + 7)) if self.nccl_port else ()),
            *BASE,
            *parallel,
            *(speculates if self.draft else ()),
            *by_version.get(version, by_version[""]),
            *self.extra,
        ]


def versions(engine: Path) -> dict[str, str]:
    """Return the versions of what the server is made of."""
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        for path in ([str(engine)], sys.path):
            hits = list(importlib.metadata.distributions(name=name, path=path))
            if hits:
                found[name] = hits[0].version
                break
    return found


def gpu() -> list[str]:
    """Return what nvidia-smi says of the GPUs: name, driver, memory."""
    command = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total",
        "--format=csv,noheader",
    ]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


class Server:
    """A server in a process group of its own, with its output in a file.

    Parameters
    ----------
    launch
        What to start.
    engine
        Folder of the unpacked engine; it goes in front of PYTHONPATH.
    models
        Folder in which the server runs.
    out
        Folder for `server.log` and `launch.json`.
    launcher
        How to start it; a test gives a stand-in.
    """

    def __init__(
        self, launch: Launch, engine: Path, models: Path, out: Path, port: int, launcher: list[str]
    ) -> None:
        self.launch, self.out, self.port = launch, out, port
        out.mkdir(parents=True, exist_ok=True)
        self.log_path = out / "server.log"
        here = str(Path(__file__).parent.resolve())
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(engine), here]),
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        found = versions(engine)
        arguments = launch.arguments(found.get("sglang", ""), port)
        self.record: dict[str, Any] = {
            "name": launch.name,
            "command": [*("python3", *launcher[1:]), *arguments],
            "environment": {k: v for k, v in sorted(environment.items()) if k.startswith(ALLOWED)},
            "versions": found,
            "gpus": gpu(),
            "started": now(),
        }
        self.began = time.monotonic()
        self.log_file = self.log_path.open("wb")
        self.process = subprocess.Popen(
            [
                *launcher,
                *arguments,
                *(
                    ["--nccl-port", str(port + 7)]
                    if found.get("sglang") and launch.nccl_port
                    else []
                ),
            ],
            cwd=models,
            env=environment,
            stdout=self.log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def log(self) -> str:
        """Return what the server has written so far."""
        return self.log_path.read_text(errors="replace")

    def wait_ready(self, until: float, stop: threading.Event | None = None) -> bool:
        """Wait until the server serves; False when it ended, or when the time (monotonic) is over."""
        while time.monotonic() < until and not (stop and stop.is_set()):
            if READY in self.log():
                self.record["ready_after"] = round(time.monotonic() - self.began, 1)
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.3)
        return False

    def get(self, path: str, timeout: float = 20) -> Any:
        """Ask for a page of JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())

    def post(self, body: dict[str, Any], timeout: float = 120) -> Any:
        """Ask for a whole answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(
                "POST", "/generate", json.dumps(body), {"Content-Type": "application/json"}
            )
            return json.loads(connection.getresponse().read())

    def stream(self, body: dict[str, Any], timeout: float = 120) -> Iterator[tuple[float, str]]:
        """Yield each chunk of an answer as text, with the time of its arrival."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            text = json.dumps({**body, "stream": True})
            connection.request("POST", "/generate", text, {"Content-Type": "application/json"})
            for line in connection.getresponse():
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    yield time.monotonic(), line[6:].decode().rstrip()

    def stop(self, grace: float = 15) -> None:
        """End the server and what it started, and write down how it was started and when it ended.

        Without grace it is killed at once, and its log ends where it hung: asked to end, it would write
        diagnostics of its own.
        """
        gently = [(signal.SIGTERM, grace)] if grace else []
        for sign, patience in (*gently, (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self.log_file.close()
        self.record["ended"] = now()
        self.record["exit_status"] = self.process.poll()
        (self.out / "launch.json").write_text(json.dumps(self.record, indent=1) + "\n")
