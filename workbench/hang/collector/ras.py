"""Asking NCCL's RAS service what its communicators do (NCCL 2.24 and newer, on by default)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

PORT = 28028
TIMEOUT = 4.0
MOST_BYTES = 16 << 20


def ask(
    environment: Mapping[str, str] | None = None, timeout: float = TIMEOUT
) -> tuple[bytes | None, str]:
    """Return RAS's answer as it came (JSON, or text of an older NCCL), or None and why.

    Parameters
    ----------
    environment
        The server's: ``NCCL_RAS_ADDR`` may name another address.
    timeout
        Seconds for everything together.
    """
    host, port = address(environment or {})
    until = time.monotonic() + timeout
    try:
        with socket.create_connection((host, port), timeout=min(1.0, timeout)) as link:
            stream = link.makefile("rb")
            if not _say(link, stream, until, "CLIENT PROTOCOL 2").startswith(b"SERVER PROTOCOL"):
                return None, f"what answers at {host}:{port} is not NCCL RAS"
            # How long NCCL itself waits for its peers: a hung peer must not cost us the answer.
            _say(link, stream, until, f"TIMEOUT {max(1, int(timeout) // 2)}")
            _say(link, stream, until, "SET FORMAT json")
            link.sendall(b"VERBOSE STATUS\n")
            return _rest(link, stream, until), ""
    except (OSError, ValueError) as error:
        return None, f"NCCL RAS does not answer at {host}:{port}: {error}"


def address(environment: Mapping[str, str]) -> tuple[str, int]:
    """Return where RAS listens."""
    host, _, port = environment.get("NCCL_RAS_ADDR", "").rpartition(":")
    number = int(port) if port.isdigit() and int(port) < 65536 else PORT
    return host.strip("[]") or "127.0.0.1", number


def is_json(answer: bytes) -> bool:
    """Whether an answer is RAS's JSON."""
    try:
        found: Any = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


def _say(link: socket.socket, stream: Any, until: float, line: str) -> bytes:
    link.settimeout(max(0.05, until - time.monotonic()))
    link.sendall(line.encode() + b"\n")
    answer: bytes = stream.readline(1024)
    return answer


def _rest(link: socket.socket, stream: Any, until: float) -> bytes:
    parts, total = [], 0
    while total < MOST_BYTES:
        left = until - time.monotonic()
        if left <= 0:
            raise socket.timeout("the answer took too long")  # noqa: UP041 - Python 3.9's name
        link.settimeout(left)
        block = stream.read1(1 << 16)
        if not block:
            break
        parts.append(block)
        total += len(block)
    return b"".join(parts)
