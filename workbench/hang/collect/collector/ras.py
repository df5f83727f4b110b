"""Asking NCCL's RAS service what its communicators do (NCCL 2.24 and newer, on by default)."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

PORT = 28028
TIMEOUT = 4.0
MOST_BYTES = 16 << 20
_RANK = ("rank", "pid", "cuda_dev", "nvml_dev", "unresponsive", "considered_dead")
_KEY = re.compile(r"[a-zA-Z_]{1,40}$")
_WORD = re.compile(r"(?:[0-9a-fx]{1,20}|[\d.+]{1,20}|[A-Z_]{2,40}|[a-z_ ]{2,40}|[\d :.TZ-]{8,32})$")


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


def kept(answer: bytes, host: Callable[[str], str]) -> dict[str, Any]:
    """Return what the rules read of RAS's JSON: counts and states, numbers of ranks, hosts by pseudonym."""
    found = json.loads(answer)
    return {
        "nccl_version": _version(found.get("nccl_version")),
        "timestamp": _version(found.get("timestamp")),
        "communicators": [
            {
                "hash": _version(one.get("hash")),
                **{
                    name: _plain(one.get(name))
                    for name in ("size", "ranks_count", "missing_ranks_count")
                },
                **{
                    name: [_rank(rank, host) for rank in _dicts(one.get(name))]
                    for name in ("ranks", "missing_ranks")
                },
            }
            for one in _dicts(found.get("communicators"))
        ],
    }


def _rank(rank: dict[str, Any], host: Callable[[str], str]) -> dict[str, Any]:
    shown: dict[str, Any] = {name: _plain(rank.get(name)) for name in _RANK}
    if isinstance(rank.get("host"), str):
        shown["host"] = host(rank["host"])
    for name in ("status", "collective_counts"):
        if isinstance(rank.get(name), dict):
            shown[name] = {
                key: _plain(value) for key, value in rank[name].items() if _KEY.match(key)
            }
    return {name: value for name, value in shown.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return a number, a truth value or a state's word."""
    if isinstance(value, str):
        return value if _WORD.match(value) else None
    return value if isinstance(value, (bool, int, float)) else None


def _version(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.match(value) else ""


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


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
