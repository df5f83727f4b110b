"""Dumps of PyTorch's flight recorder: pickles, opened without running anything, and the same as JSON."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator
from typing import Any

from workbench.errors import WorkbenchError, clean, shown

MOST_BYTES = 32 << 20
MOST_ENTRIES = 4000
_MOST_FRAMES = 40
_MOST_GROUPS = 512
_HINT = "Give a dump as PyTorch writes it, or its JSON."

# What a dump consists of: dicts, lists, tuples, texts, numbers, None and booleans. Opcode to the size of
# its argument; -1, -4, -8: so many bytes of a length, then the text itself; "\n" ended ones are not used.
_OPCODES: dict[int, int] = dict.fromkeys(b"}])(.Naeust\x85\x86\x87\x88\x89\x94", 0) | {
    0x80: 1, 0x95: 8, ord("K"): 1, ord("M"): 2, ord("J"): 4, ord("G"): 8,
    ord("q"): 1, ord("r"): 4, ord("h"): 1, ord("j"): 4,
    0x8C: -1, ord("X"): -4, 0x8D: -8, 0x8A: -1, ord("U"): -1, ord("C"): -1,
}  # fmt: skip


class _Plain(pickle.Unpickler):
    """An unpickler that knows no class, no function and no object from elsewhere."""

    def find_class(self, module: str, name: str, /) -> Any:
        raise pickle.UnpicklingError(f"it wants to import {module[:80]}.{name[:80]}")

    def persistent_load(self, pid: Any, /) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


def is_flight_pickle(head: bytes) -> bool:
    """Tell a flight recorder's pickle by its first bytes."""
    return head[:1] == b"\x80" and (b"pg_config" in head or b"entries" in head)


def is_flight_json(value: Any) -> bool:
    """Tell a flight recorder's decoded JSON."""
    return (
        isinstance(value, dict)
        and "entries" in value
        and ("pg_config" in value or "pg_status" in value)
    )


def read_flight_pickle(data: bytes, *, what: str = "the dump") -> dict[str, Any]:
    """Read a dump that PyTorch wrote as a pickle; nothing in it is imported or called.

    Raises
    ------
    WorkbenchError
        It is no pickle of plain containers, or too large.
    """
    if len(data) > MOST_BYTES:
        raise WorkbenchError(
            f"{what} is not opened", why=f"it has more than {MOST_BYTES >> 20} MiB"
        )
    try:
        _check(data)
        value = _Plain(io.BytesIO(data)).load()
    except Exception as error:
        raise WorkbenchError(
            f"{what} is no flight-recorder dump that is safe to open",
            why=str(error) or type(error).__name__,
            next_step=_HINT,
        ) from None
    return read_flight(value, what=what)


def read_flight(value: Any, *, what: str = "the dump") -> dict[str, Any]:
    """Return a dump's content as bounded plain data.

    Returns
    -------
    dict
        ``version``, ``nccl``, ``groups`` (name to ``description`` and ``ranks``), ``status`` (group to
        last enqueued, started and completed collective), and ``entries``: ``group``, ``sequence``,
        ``operation``, ``state``, ``sizes``, ``created`` (seconds), ``frames`` (function, file, line).

    Raises
    ------
    WorkbenchError
        It has no entries.
    """
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list | dict):
        raise WorkbenchError(
            f"{what} is no flight-recorder dump", why="it has no entries", next_step=_HINT
        )
    entries = value["entries"]
    if isinstance(entries, dict):
        entries = list(entries.values())
    return {
        "version": _text(value.get("version")),
        "nccl": _text(value.get("nccl_version") or value.get("comm_lib_version")),
        "groups": {name: _group(group) for name, group in _pairs(value.get("pg_config"))},
        "status": {name: _status(group) for name, group in _pairs(value.get("pg_status"))},
        "entries": [_entry(entry) for entry in entries[-MOST_ENTRIES:] if isinstance(entry, dict)],
        "left_out": max(len(entries) - MOST_ENTRIES, 0),
    }


def rank_of_name(name: str) -> int | None:
    """Return the rank that a dump's file name ends with: a prefix and the rank, as PyTorch names them."""
    stem = name.rsplit("/", 1)[-1]
    stem = re.sub(r"\.(?:pickle|pkl|json|bin|dump)$", "", stem)
    match = re.search(r"(?:^|[_.-]|rank_?)(\d{1,6})$", stem)
    return int(match[1]) if match else None


def _check(data: bytes) -> None:
    """Go through a pickle's opcodes: only plain ones, no text longer than the file, no huge memo."""
    at, size, opcodes = 0, len(data), _OPCODES
    while at < size:
        code = data[at]
        argument = opcodes.get(code)
        if argument is None:
            raise pickle.UnpicklingError(f"it holds the opcode {shown(bytes([code]))} at {at}")
        at += 1
        if argument < 0:
            length = int.from_bytes(data[at : at - argument], "little")
            at += length - argument
            if code == 0x8A and length > 16:
                raise pickle.UnpicklingError("it holds a whole number of hundreds of digits")
        elif argument:
            if code == 0x72 and int.from_bytes(data[at : at + 4], "little") > size:
                raise pickle.UnpicklingError("it numbers more objects than it can hold")
            at += argument
        elif code == 0x2E:
            return
        if at > size:
            break
    raise pickle.UnpicklingError("it is cut off")


def _pairs(value: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    for name, group in list(value.items())[:_MOST_GROUPS] if isinstance(value, dict) else ():
        if isinstance(group, dict):
            yield _text(str(name) if isinstance(name, int) else name), group


def _group(group: dict[Any, Any]) -> dict[str, Any]:
    ranks = group.get("ranks")
    if isinstance(ranks, str):  # a list as text
        ranks = [int(number) for number in re.findall(r"\d{1,7}", ranks[:100_000])]
    return {
        "description": _text(group.get("desc")),
        "ranks": [
            rank for rank in (ranks if isinstance(ranks, list) else ())[:65536] if type(rank) is int
        ],
    }


def _status(group: dict[Any, Any]) -> dict[str, int | None]:
    names = ("enqueued", "started", "completed")
    return {name: _number(group.get(f"last_{name}_collective")) for name in names}


def _entry(entry: dict[Any, Any]) -> dict[str, Any]:
    group = entry.get("process_group")
    frames = entry.get("frames")
    created = _number(entry.get("time_created_ns"))
    sequence = entry.get("collective_seq_id", entry.get("seq_id"))
    return {
        "group": [_text(part) for part in group[:2]] if isinstance(group, list | tuple) else [],
        "sequence": _number(sequence),
        "operation": _text(entry.get("profiling_name")),
        "state": _text(entry.get("state")),
        "sizes": _sizes(entry.get("input_sizes")),
        "created": created / 1e9 if created is not None else None,
        "frames": [
            {
                "function": _text(f.get("name")),
                "file": _text(f.get("filename")),
                "line": _number(f.get("line")),
            }
            for f in (frames if isinstance(frames, list) else ())[:_MOST_FRAMES]
            if isinstance(f, dict)
        ],
    }


def _sizes(value: Any) -> list[list[int]]:
    shapes = (value if isinstance(value, list | tuple) else ())[:16]
    return [
        [size for size in shape[:16] if type(size) is int]
        for shape in shapes
        if isinstance(shape, list | tuple)
    ]


def _text(value: Any) -> str:
    return clean(value[:500]) if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 63 else None
