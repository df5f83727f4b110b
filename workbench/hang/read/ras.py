"""NCCL RAS's JSON: which ranks of which communicators answer, and how many collectives each launched."""

from __future__ import annotations

from typing import Any

from workbench.errors import WorkbenchError, clean

MOST_COMMUNICATORS = 1024
MOST_RANKS = 65536
_HINT = "Ask NCCL RAS again: `ncclras -f json`, or `workbench collect`."


def is_ras_json(value: Any) -> bool:
    """Tell NCCL RAS's decoded JSON."""
    return isinstance(value, dict) and isinstance(value.get("communicators"), list)


def read_ras(value: Any, *, what: str = "the answer of NCCL RAS") -> dict[str, Any]:
    """Return RAS's answer as bounded plain data.

    Returns
    -------
    dict
        ``nccl_version``, ``timestamp``, and ``communicators``: ``hash``, ``size``, ``ranks`` (``rank``,
        ``host``, ``pid``, ``cuda_dev``, ``status``, ``collective_counts``) and ``missing_ranks``
        (``rank``, ``pid``, ``unresponsive``, ``considered_dead``).

    Raises
    ------
    WorkbenchError
        It has no list of communicators.
    """
    if not is_ras_json(value):
        raise WorkbenchError(f"{what} is not read", why="it has no communicators", next_step=_HINT)
    return {
        "nccl_version": _text(value.get("nccl_version")),
        "timestamp": _text(value.get("timestamp")),
        "communicators": [
            _communicator(one)
            for one in value["communicators"][:MOST_COMMUNICATORS]
            if isinstance(one, dict)
        ],
    }


def _communicator(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "hash": _text(one.get("hash")),
        "size": _number(one.get("size")),
        "ranks_count": _number(one.get("ranks_count")),
        "missing_ranks_count": _number(one.get("missing_ranks_count")),
        "ranks": [_rank(rank) for rank in _dicts(one.get("ranks"))],
        "missing_ranks": [_missing(rank) for rank in _dicts(one.get("missing_ranks"))],
    }


def _rank(rank: dict[str, Any]) -> dict[str, Any]:
    status, counts = rank.get("status"), rank.get("collective_counts")
    return {
        "rank": _number(rank.get("rank")),
        "host": _text(rank.get("host")),
        "pid": _number(rank.get("pid")),
        "cuda_dev": _number(rank.get("cuda_dev")),
        "status": {
            _text(name): state if isinstance(state, bool | int) else _text(state)
            for name, state in (list(status.items())[:32] if isinstance(status, dict) else ())
        },
        "collective_counts": {
            _text(name): count
            for name, count in (list(counts.items())[:64] if isinstance(counts, dict) else ())
            if _number(count) is not None
        },
    }


def _missing(rank: dict[str, Any]) -> dict[str, Any]:
    status = rank.get("status")
    told = status if isinstance(status, dict) else rank
    return {
        "rank": _number(rank.get("rank")),
        "host": _text(rank.get("host")),
        "pid": _number(rank.get("pid")),
        "unresponsive": told.get("unresponsive") is True,
        "considered_dead": told.get("considered_dead") is True,
    }


def _dicts(value: Any) -> list[dict[str, Any]]:
    found = value[:MOST_RANKS] if isinstance(value, list) else []
    return [one for one in found if isinstance(one, dict)]


def _text(value: Any) -> str:
    return clean(value[:200]) if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None
