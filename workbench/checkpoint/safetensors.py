"""Safetensors headers: every tensor of a file from a few bytes, none of the values.

A header is JSON. Three readers agree on it and differ in speed:

1. `_read_canonical` finds the columns with numpy, in the form that the format's own writer gives (and
   ``json.dumps`` without spaces). It accepts a header only when every byte of it was accounted for.
2. `_read_typed` lets msgspec decode any other well-formed header.
3. `read_strict` goes through Python's json, pair by pair. It is slow, sees what the others cannot
   (duplicate keys) and says what is wrong.

Whatever one of them does not like goes to the next; only the last one complains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NoReturn

import msgspec
import numpy as np

from workbench.checkpoint.columns import Ints, Text, Words, keys_of
from workbench.checkpoint.header_columns import DAMAGED, MAX_NAME, REWRITE, Columns, Specs
from workbench.checkpoint.header_strict import PAIRS, is_metadata, read_strict
from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.sources import Source, looks_like
from workbench.errors import CheckpointError, shown

# The format's own bound (safetensors 0.8, MAX_HEADER_SIZE).
MAX_HEADER = 100_000_000


@dataclasses.dataclass(frozen=True)
class Header:
    """The tensors of one file.

    Attributes
    ----------
    names
        Tensor names in the order of the header.
    spec
        Code of each tensor's dtype and shape in the `Specs` it was read with.
    begin, end
        Byte offsets within the file.
    metadata
        The ``__metadata__`` of the header.
    data
        Where the data section begins.
    keys
        A 64-bit key of each name: equal names have equal keys (`columns.keys_of`).
    """

    names: list[str]
    spec: Ints
    begin: Ints
    end: Ints
    metadata: dict[str, str]
    data: int
    keys: Words


def read_header(source: Source, specs: Specs) -> Header:
    """Read and check the header of one file.

    Parameters
    ----------
    source
        The file. Only its first bytes are read.
    specs
        Collects the dtypes and shapes; share one among the files of a checkpoint.

    Raises
    ------
    CheckpointError
        The file is no safetensors file, is cut short, or contradicts itself.
    """
    size, label = source.size, source.label
    if size == 0:
        raise CheckpointError(f"{label} is empty", why="it holds 0 bytes", next_step=DAMAGED)
    # Remote files take one request instead of two where the header is short.
    head = source.read(0, 8 if source.local else min(size, 1 << 16))
    length = int.from_bytes(head[:8], "little")
    if size < 8 or length > MAX_HEADER or length < 2:
        _complain_about_start(source, size, length)
    if length > size - 8:
        found = looks_like(source.read(0, 512))
        raise CheckpointError(
            f"{label} is cut short: its header alone is longer than the file",
            why=found[0] if found else f"the header takes {length:,} bytes, the file has {size:,}",
            next_step=found[1] if found else DAMAGED,
        )
    raw = head[8 : 8 + length] if len(head) >= 8 + length else source.read(8, 8 + length)
    if len(raw) != length:
        raise CheckpointError(
            f"{label} shrank while it was read", next_step="Wait until its writer is done."
        )
    return parse_header(raw, size, label, specs)


def _complain_about_start(source: Source, size: int, length: int) -> NoReturn:
    found = looks_like(source.read(0, min(size, 512)))
    if found:
        why, step = found
    elif size < 8:
        why, step = f"it has {_bytes(size)}, and the length of its header alone takes 8", DAMAGED
    elif length < 2:
        why = (
            f"its first 8 bytes say that the header has {_bytes(length)}, and even one without "
            "tensors takes 2 ({}): the file was begun and never finished, or its start was overwritten"
        )
        step = DAMAGED
    else:
        why = (
            f"its first 8 bytes say that the header has {length:,} bytes; the format allows "
            f"{MAX_HEADER:,}"
        )
        step = (
            "Check that this is a safetensors file; if it is, " + DAMAGED[0].lower() + DAMAGED[1:]
        )
    raise CheckpointError(f"{source.label} is not a safetensors file", why=why, next_step=step)


def parse_header(raw: bytes, size: int, label: str, specs: Specs) -> Header:
    """Return the tensors that a header describes, checked against the length of the file.

    Parameters
    ----------
    raw
        The header without the 8 bytes that give its length.
    size
        Bytes of the whole file.
    label
        The file's name in messages.
    specs
        Collects the dtypes and shapes.
    """
    read = _read_canonical(raw, specs) or _read_typed(raw, specs) or read_strict(raw, label, specs)
    data = 8 + len(raw)
    _check_layout(read, specs, size - data, label)
    keys = keys_of(read.names) if read.keys is None else read.keys
    return Header(
        read.names, read.spec, read.begin + data, read.end + data, read.metadata, data, keys
    )


# --- 1. the usual form, by columns ----------------------------------------------------------------

_QUOTE, _COMMA, _SPACE = 34, 44, 32
_QUOTES = 10  # name, "dtype", its value, "shape", "data_offsets": two each


def _read_canonical(raw: bytes, specs: Specs) -> Columns | None:
    """Read a header of the form that the format's own writer gives; None for any other."""
    if not raw.isascii():
        return None
    body = raw.rstrip(b" ")
    metadata: dict[str, str] = {}
    at = 1
    if body.startswith(b'{"__metadata__":{'):
        found = _metadata_at(body, 16)
        if found is None:
            return None
        metadata, at = found
        if body[at : at + 1] != b",":
            return None
        at += 1
    if body[:1] != b"{" or not body.endswith(b"]}}") or body.find(b"\\", at) >= 0:
        return None
    text = Text(body)
    if text.chars[at:].min() < _SPACE:
        return None
    quotes = np.flatnonzero(text.chars[at:] == _QUOTE)
    if len(quotes) % _QUOTES or not len(quotes) or quotes[0] != 0:
        return None
    quotes += at
    table = quotes.reshape(-1, _QUOTES)
    name, closed, offsets = table[:, 0] + 1, table[:, 1], table[:, 9] + 3
    stop = np.append(table[1:, 0], len(body)) - 3
    # Between names and offsets stands the same text for every tensor of one dtype and shape.
    spec = _spec_codes(text, closed, offsets, specs)
    if spec is None or not text.follows(stop[:-1], b']},"'):
        return None
    comma = text.find(_COMMA, offsets)
    begin, end = text.numbers(offsets, comma), text.numbers(comma + 1, stop)
    if begin is None or end is None:
        return None
    if (closed - name).max() > MAX_NAME:
        return None
    keys = text.keys(name, closed)
    ordered = np.sort(keys)
    if (ordered[1:] == ordered[:-1]).any():
        return None
    letters = body.decode("ascii")
    names = [letters[a:b] for a, b in zip(name.tolist(), closed.tolist(), strict=True)]
    return None if "__metadata__" in names else Columns(names, spec, begin, end, metadata, keys)


def _metadata_at(body: bytes, at: int) -> tuple[dict[str, str], int] | None:
    """Return the object that begins there and where it ends."""
    # A decoder wants text; the metadata is nearly always short, so it gets a short one first.
    for length in (4096, len(body)):
        try:
            value, end = PAIRS.raw_decode(body[at : at + length].decode("ascii"))
        except (ValueError, RecursionError):
            continue
        return (dict(value), at + end) if is_metadata(value) else None
    return None


def _spec_codes(text: Text, first: Ints, after: Ints, specs: Specs) -> Ints | None:
    """Return the code of the text between a name and its offsets, one a tensor."""
    found = text.distinct(first, after)
    if found is None:
        return None
    sample, group = found
    spans = zip(first[sample].tolist(), after[sample].tolist(), strict=True)
    codes = np.array([specs.of_text(text.data[a:b]) for a, b in spans], dtype=np.int64)
    return None if (codes < 0).any() else codes[group]


# --- 2. any well-formed header ---------------------------------------------------------------------


class _Entry(msgspec.Struct, gc=False):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _Metadata(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(name="__metadata__", default_factory=dict)


_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(_Entry)
_METADATA = msgspec.json.Decoder(_Metadata)


def _read_typed(raw: bytes, specs: Specs) -> Columns | None:
    """Read any header that is well-formed JSON without escapes; None where something is odd."""
    if b"\\" in raw:  # keys may be spelled in several ways, so counting them proves nothing
        return None
    try:
        entries = _ENTRIES.decode(raw)
        metadata = _METADATA.decode(raw).metadata
        keys = len(entries)
        entries.pop("__metadata__", None)
        decoded = [_ENTRY.decode(entry) for entry in entries.values()]
        spec = [specs.code(entry.dtype, entry.shape) for entry in decoded]
        offsets = np.array([entry.data_offsets for entry in decoded], dtype=np.int64).reshape(-1, 2)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError, RecursionError):
        return None
    # msgspec keeps the last of several equal keys and says nothing: the text shows whether there were any.
    names = list(entries)
    if max(map(len, names), default=0) > MAX_NAME:
        return None
    if any(
        raw.count(b'"%b"' % field) != len(names) for field in (b"dtype", b"shape", b"data_offsets")
    ):
        return None
    if raw.count(b'"__metadata__"') != keys - len(names) or (offsets < 0).any():
        return None
    return Columns(names, np.array(spec, dtype=np.int64), offsets[:, 0], offsets[:, 1], metadata)


# --- layout ----------------------------------------------------------------------------------------


def _bytes(number: int) -> str:
    return f"{number:,} byte{'s' * (number != 1)}"


def _check_layout(read: Columns, specs: Specs, room: int, label: str) -> None:
    """Check that the tensors fill the data section exactly, each with the bytes its shape needs."""
    names, spec, begin, end = read.names, read.spec, read.begin, read.end
    if not names:
        if room:
            raise CheckpointError(
                f"{label} names no tensor but holds {_bytes(room)} of data", next_step=REWRITE
            )
        return
    needed = np.array(specs.nbytes, dtype=np.int64)[spec]
    wrong = np.flatnonzero(end - begin != needed)
    if len(wrong):
        at = int(wrong[0])
        if begin[at] > end[at]:
            raise CheckpointError(
                f"{label} contradicts itself about {shown(names[at])}",
                why=f"its data_offsets [{int(begin[at])}, {int(end[at])}] run backwards: they end before "
                "they begin",
                next_step=REWRITE,
            )
        dtype, shape = list(specs.codes)[int(spec[at])]
        raise CheckpointError(
            f"{label} contradicts itself about {shown(names[at])}",
            why=f"{dtype} {shown(list(shape))} takes {int(needed[at]):,} bytes, its data_offsets "
            f"[{int(begin[at])}, {int(end[at])}] span {int(end[at] - begin[at]):,}",
            next_step=REWRITE,
        )
    order = np.lexsort((end, begin)) if (begin[1:] < end[:-1]).any() else None
    if order is not None:
        begin, end = begin[order], end[order]
    last = int(end[-1])
    if last > room:
        outside = int(np.flatnonzero(end > room)[0])
        name = names[outside if order is None else int(order[outside])]
        raise CheckpointError(
            f"{label} is cut short: {_bytes(last - room)} missing",
            why=f"its header places tensors up to byte {last:,} of the data section, which has "
            f"{room:,} bytes; {shown(name)} is the first that does not fit",
            next_step=DAMAGED,
        )
    gaps = np.flatnonzero(begin != np.concatenate([[0], end[:-1]]))
    if len(gaps):
        at = int(gaps[0])
        name = names[at if order is None else int(order[at])]
        before = int(end[at - 1]) if at else 0
        kind = "overlaps the tensor before it" if begin[at] < before else "leaves a hole before it"
        raise CheckpointError(
            f"{label} has overlapping tensors or holes: {shown(name)} {kind}",
            why=f"its data begins at byte {int(begin[at]):,} of the data section, the one before "
            f"ends at {before:,}; the format allows neither",
            next_step=REWRITE,
        )
    if last < room:
        raise CheckpointError(
            f"{label} has {_bytes(room - last)} belonging to no tensor",
            why="the format wants the last tensor to end where the file ends",
            next_step="Check whether the file was written over a longer one, or appended to.",
        )


# --- many files ------------------------------------------------------------------------------------


def join_headers(headers: Sequence[Header], shards: Sequence[str], specs: Specs) -> TensorTable:
    """Return one table of the tensors of several files, in the order of the files."""
    dtypes: dict[str, int] = {}
    shapes: dict[tuple[int, ...], int] = {}
    pairs = [
        (dtypes.setdefault(dtype, len(dtypes)), shapes.setdefault(shape, len(shapes)))
        for dtype, shape in specs.codes
    ]
    codes = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    names: list[str] = []
    for header in headers:
        names += header.names
    spec = _joined([header.spec for header in headers])
    shard = np.repeat(np.arange(len(headers), dtype=np.int32), [len(h.names) for h in headers])
    return TensorTable(
        names=names,
        dtypes=tuple(dtypes),
        shapes=tuple(shapes),
        shards=tuple(shards),
        dtype=codes[spec, 0],
        shape=codes[spec, 1],
        shard=shard,
        begin=_joined([header.begin for header in headers]),
        end=_joined([header.end for header in headers]),
    )


def _joined(columns: list[Ints]) -> Ints:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)
