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
# The text, in which RAS lists only the ranks that differ from most (NCCL's docs on RAS, and its
# src/ras/client_support.cc).
_COMMUNICATOR = re.compile(r"#\d{1,6}-\d{1,6} \(([0-9a-f]{1,20})\) ([A-Z]{2,20})$")
_OPERATION = re.compile(r"Communicator ranks have different (\w{1,40}) operation counts$")
_COUNT = (
    r"(?:ha(?:ve|s) not launched any operations|ha(?:ve|s) launched up to operation (\d{1,18}))"
)
_PLACE = r" -- GPU \S{1,40} managed by process (\d{1,10}) on node (\S{1,200})$"
_MANY = re.compile(r"(\d{1,6}) ranks " + _COUNT + "$")
_ALONE = re.compile(r"Rank (\d{1,6}) " + _COUNT + _PLACE)
_LISTED = re.compile(r"Rank (\d{1,6})" + _PLACE)
_MISSING = re.compile(r"The missing ranks?: ([\d, -]{1,2000})$")
_MOST_LISTED = 65536
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


def is_text(answer: bytes) -> bool:
    """Whether an answer is the text of an NCCL that writes no JSON, or that nobody asked for JSON."""
    head = answer[:4096].decode("utf-8", "replace")
    return "Job summary" in head and "Communicators" in head


def of_text(answer: bytes) -> dict[str, Any]:
    """Return what a text says of counts in the shape of RAS's JSON, with the ranks that it does not list.

    Most ranks are not listed: they are those of the communicator that are in no list. A communicator whose
    numbers do not add up is left out.
    """
    text = answer.decode("utf-8", "replace")
    version = re.search(r"NCCL version (\S{1,40})", text)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    missing: dict[str, set[int]] = {}
    name = operation = ""
    groups: list[tuple[int, int, dict[int, tuple[int, str]]]] = []
    for line in [*(one.strip() for one in text.splitlines()), ""]:
        begins, named = _COMMUNICATOR.match(line), _OPERATION.match(line)
        if (begins or named or not line) and groups:
            _add(found.setdefault(name, {}), operation, groups, missing.get(name, set()))
            groups = []
        if begins:
            name = begins.group(1)
        elif named:
            operation = named.group(1)
        elif _MISSING.match(line):
            missing.setdefault(name, set()).update(_numbers(line))
        elif operation:
            _counted(line, groups)
    return {
        "nccl_version": version.group(1) if version else "",
        "timestamp": "",
        "communicators": [
            {
                "hash": name,
                "size": len(found.get(name, {})) + len(missing.get(name, ())),
                "ranks": [one for _, one in sorted(found.get(name, {}).items())],
                "missing_ranks": [{"rank": rank} for rank in sorted(missing.get(name, ()))],
            }
            for name in {**found, **missing}
        ],
    }


def _numbers(line: str) -> set[int]:
    """Return the numbers after the colon of a line, of which ``4-7`` are four."""
    found: set[int] = set()
    for part in line.partition(":")[2].split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit() and int(low) < _MOST_LISTED:
            last = int(high) if high.isdigit() else int(low)
            found.update(range(int(low), min(last, _MOST_LISTED) + 1))
    return found


def _counted(line: str, groups: list[tuple[int, int, dict[int, tuple[int, str]]]]) -> None:
    """Add what a line says: how many ranks launched how much, or which rank did."""
    many, alone, listed = _MANY.match(line), _ALONE.match(line), _LISTED.match(line)
    if many:
        groups.append((int(many.group(1)), int(many.group(2) or 0), {}))
    elif alone:
        rank, count, pid, host = alone.groups()
        groups.append((1, int(count or 0), {int(rank): (int(pid), host)}))
    elif listed and groups:
        rank, pid, host = listed.groups()
        groups[-1][2][int(rank)] = (int(pid), host)


def _add(
    ranks: dict[int, dict[str, Any]],
    operation: str,
    groups: list[tuple[int, int, dict[int, tuple[int, str]]]],
    missing: set[int],
) -> None:
    size = sum(many for many, _, _ in groups) + len(missing)
    named = {rank for _, _, listed in groups for rank in listed}
    silent = [many for many, _, listed in groups if not listed]
    complete = all(many == len(listed) for many, _, listed in groups if listed)
    if size > _MOST_LISTED or not complete or len(silent) > 1 or any(r >= size for r in named):
        return
    for _, count, listed in groups:
        for rank in listed or set(range(size)) - named - missing:
            pid, host = listed.get(rank, (None, ""))
            one = ranks.setdefault(rank, {"rank": rank, "collective_counts": {}})
            one["collective_counts"][operation] = count
            if pid is not None:
                one.update(pid=pid, host=host)


def kept(answer: bytes, host: Callable[[str], str]) -> dict[str, Any]:
    """Return what the rules read of RAS's answer: counts and states, numbers of ranks, hosts by pseudonym."""
    found = json.loads(answer) if is_json(answer) else of_text(answer)
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
