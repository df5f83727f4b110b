"""A safetensors header read pair by pair: slow, sees duplicate keys, and says what is wrong."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeGuard

import numpy as np

from workbench.checkpoint.header_columns import (
    DAMAGED,
    MAX_NAME,
    REWRITE,
    Columns,
    Specs,
    broken,
)
from workbench.checkpoint.records import DTYPE_BITS
from workbench.checkpoint.sources import not_json
from workbench.errors import LONGEST_VALUE, CheckpointError, shown


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, duplicates included."""


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


PAIRS = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_no_constant)


def is_metadata(value: Any) -> bool:
    """Whether a value is an object of texts, without duplicate names."""
    return (
        isinstance(value, _Pairs)
        and all(isinstance(text, str) and _is_text(name + text) for name, text in value)
        and len(dict(value)) == len(value)
    )


def _is_text(text: str) -> bool:
    """Whether the text has no half characters, which Python's json lets pass."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def read_strict(raw: bytes, label: str, specs: Specs) -> Columns:
    """Read a header pair by pair, and say what is wrong with it."""
    try:
        text = raw.decode("utf-8")
        value = PAIRS.decode(text)
    except UnicodeDecodeError as error:
        raise broken(
            label, f"it is not UTF-8 at byte {error.start} of the header", DAMAGED
        ) from None
    except (ValueError, RecursionError) as error:
        raise broken(label, not_json(error), DAMAGED) from None
    if not isinstance(value, _Pairs):
        raise broken(
            label, f"it is {_written(value)}, not an object that describes tensors by name", DAMAGED
        )
    names: list[str] = []
    codes: list[int] = []
    offsets: list[tuple[int, int]] = []
    metadata: dict[str, str] = {}
    seen: set[str] = set()
    for name, entry in value:
        if len(name) > MAX_NAME:
            raise broken(
                label,
                f"the name {shown(name, 60)} has {len(name):,} characters; no real checkpoint has one of "
                f"more than {MAX_NAME:,}",
                "Ask whoever wrote the file; a name of that length comes from damage or from an attack.",
            )
        if name in seen:
            raise CheckpointError(
                f"{label} names {shown(name)} twice in its header",
                why="most readers silently keep the last one; which one was meant is unknown",
                next_step=REWRITE,
            )
        seen.add(name)
        if name == "__metadata__":
            if not is_metadata(entry):
                raise broken(label, "__metadata__ is not an object with text values", REWRITE)
            metadata = dict(entry)
            continue
        if not _is_text(name):
            raise broken(label, f"the name {shown(name)} holds half a character", REWRITE)
        code, span = _strict_entry(name, entry, label, specs)
        names.append(name)
        codes.append(code)
        offsets.append(span)
    table = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    return Columns(names, np.array(codes, dtype=np.int64), table[:, 0], table[:, 1], metadata)


def _strict_entry(name: str, entry: Any, label: str, specs: Specs) -> tuple[int, tuple[int, int]]:
    what = f"tensor {shown(name)}"
    if not isinstance(entry, _Pairs):
        raise broken(label, f"{what} is not described by an object", REWRITE)
    fields = dict(entry)
    if len(fields) != len(entry):
        raise broken(label, f"{what} has the same field twice", REWRITE)
    dtype, shape, span = (fields.get(field) for field in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise broken(
            label,
            f"{what} has the dtype {_written(dtype, 60)}; known: {', '.join(sorted(DTYPE_BITS))}",
            "Check the spelling in the writer; a newer format needs a newer workbench.",
        )
    if not _are_sizes(shape):
        raise broken(
            label, f"{what} has the shape {_written(shape)}: not a list of whole numbers", REWRITE
        )
    if not _are_sizes(span) or len(span) != 2:
        raise broken(
            label, f"{what} has the data_offsets {_written(span)}: not two whole numbers", REWRITE
        )
    if span[0] > span[1] or span[1] >= 1 << 62:
        reason = "they run backwards" if span[0] > span[1] else "files cannot be that long"
        raise broken(label, f"{what} has the data_offsets {span!r}: {reason}", REWRITE)
    try:
        return specs.code(dtype, tuple(shape)), (span[0], span[1])
    except ValueError:
        raise broken(
            label,
            f"{what}, {dtype} {shown(shape)}, does not take a whole number of bytes that a file could hold",
            REWRITE,
        ) from None


def _written(value: Any, longest: int = LONGEST_VALUE) -> str:
    """Return a JSON value as the header has it, shortened."""
    if isinstance(value, _Pairs):
        return shown(dict(value), longest) if value else "{} (an object)"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value, longest)


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and not isinstance(value, _Pairs)
        and all(type(item) is int and 0 <= item < 1 << 64 for item in value)
    )
