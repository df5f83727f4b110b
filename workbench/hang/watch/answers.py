"""What may not answer: HTTP and the GPU driver. Each is asked in a thread of its own.

`/health` is never asked: it makes the server generate a token, and waits for one that is hung.
"""

from __future__ import annotations

import functools
import http.client
import ipaddress
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from workbench.hang.collect.collector import proc, servers
from workbench.hang.collect.gpu import read_gpus
from workbench.hang.watch.records import Answers

Kind = TypeVar("Kind")

_TIMEOUT = 5.0
_MOST = 8 << 20  # bytes of an answer
_EVERY_METRICS, _EVERY_INFO, _EVERY_GPUS = 15.0, 60.0, 10.0
_GAUGE = re.compile(rb"^sglang:(num_running_reqs|num_queue_reqs)(?:\{[^\n}]*\})? (\S+)", re.M)
_COUNTER = re.compile(rb"^sglang:(?:generation|prompt)_tokens_total(?:\{[^\n}]*\})? (\S+)", re.M)


class Background(Generic[Kind]):
    """Something that is read every few seconds by a thread, so that it may hang alone."""

    def __init__(self, ask: Callable[[], Kind | None], every: float) -> None:
        self._ask, self._every = ask, every
        self._over = threading.Event()
        self._found: tuple[float, Kind | None] = (0.0, None)
        # Not waited for at the end: a call into a driver that hangs cannot be interrupted.
        threading.Thread(target=self._run, name="workbench watch", daemon=True).start()

    def _run(self) -> None:
        while not self._over.is_set():
            found = self._ask()
            self._found = (time.monotonic(), found)
            self._over.wait(self._every)

    @property
    def latest(self) -> Kind | None:
        """What was read last; None where that is too long ago."""
        at, found = self._found
        return found if time.monotonic() - at < 3 * self._every + _TIMEOUT else None

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()


class Http:
    """Asks one server over HTTP, as its launch says where it listens."""

    def __init__(self, root: int, argv: list[str]) -> None:
        self.address = _address(root, argv)
        self._metrics = "--enable-metrics" in argv
        self.every = _EVERY_METRICS if self._metrics else _EVERY_INFO
        self._next_info = 0.0
        self._alive: bool | None = None
        self._reached = False

    def ask(self) -> Answers:
        """Ask for what is pending and, less often, whether anything answers."""
        now = time.monotonic()
        if now >= self._next_info:
            self._next_info = now + _EVERY_INFO
            body = self._get("/model_info")
            self._reached |= body is not None
            # One that never answered may not be ready, or listen elsewhere.
            self._alive = body is not None if self._reached else None
        body = self._get("/metrics") if self._metrics else None
        return read_metrics(body or b"", self._alive)

    def _get(self, path: str) -> bytes | None:
        """Return the body of any answer, or None where there is none."""
        if self.address is None:
            return None
        connection = http.client.HTTPConnection(*self.address, timeout=_TIMEOUT)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(_MOST)
            return body if answer.status == http.client.OK else b""
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def read_metrics(body: bytes, alive: bool | None) -> Answers:
    """Return what Prometheus' text says of requests and tokens, summed over ranks."""
    gauges = [float(value) for _, value in _GAUGE.findall(body)]
    counters = [float(value) for value in _COUNTER.findall(body)]
    return Answers(sum(gauges) if gauges else None, sum(counters) if counters else None, alive)


def _address(root: int, argv: list[str]) -> tuple[str, int] | None:
    """Return where a server listens, None where it cannot or should not be asked from here."""
    mine = proc.namespace("self", "net")
    if proc.namespace(root, "net") not in ("", mine) or servers.option(argv, "--ssl-certfile"):
        return None
    port = servers.option(argv, "--port") or "30000"
    host = servers.option(argv, "--host") or "127.0.0.1"
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None  # a name: asking for it may go to another machine
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    elif not address.is_loopback and not address.is_private:
        return None
    number = int(port) if port.isdigit() else 0
    return (host, number) if 0 < number < 1 << 16 else None


def gpu_load(pids: Callable[[], set[int]]) -> Callable[[], tuple[float, float] | None]:
    """Return a function that reads the highest utilisation and the power of the server's GPUs.

    Where no GPU lists a process of the server (another pid namespace), all GPUs count.
    """

    def ask() -> tuple[float, float] | None:
        if not _hold_driver():
            return None  # nvidia-smi would cost more than the whole watch
        found, _ = read_gpus()
        cards: list[dict[str, Any]] = (found or {}).get("gpus", [])
        mine = [one for one in cards if pids() & {int(p) for p in one.get("processes", ())}]
        loads = [one["utilisation"] for one in mine or cards if one["utilisation"] is not None]
        watts = [one["power_watts"] for one in mine or cards if one["power_watts"] is not None]
        return (max(loads), sum(watts)) if loads else None

    return ask


@functools.cache
def _hold_driver() -> bool:
    """Open NVML once and keep it open: opening it costs more than all readings of a minute."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library, another user's mount
        return False
    return True


class Asked:
    """The readers that run in the background."""

    def __init__(self, root: int, argv: list[str], pids: Callable[[], set[int]]) -> None:
        server = Http(root, argv)
        self._http = Background(server.ask, server.every) if server.address else None
        self._gpus = Background(gpu_load(pids), _EVERY_GPUS)

    @property
    def answers(self) -> Answers:
        """What the server answered last."""
        return (self._http.latest if self._http else None) or Answers()

    @property
    def gpus(self) -> tuple[float, float] | None:
        """The highest utilisation and the power of its GPUs."""
        return self._gpus.latest

    def stop(self) -> None:
        """Ask no more."""
        self._gpus.stop()
        if self._http is not None:
            self._http.stop()
