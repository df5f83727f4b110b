"""The index of a sharded checkpoint: which tensor is said to be in which file."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import PurePosixPath

import msgspec
import numpy as np

from workbench.checkpoint.columns import Ints, Text, Words, keys_of
from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.sources import Source, looks_like
from workbench.errors import CheckpointError, shorten, shown

# The names of 10 million tensors take about a gigabyte; no model is near that.
MAX_INDEX = 1 << 30


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class _RawIndex(msgspec.Struct):
    weight_map: msgspec.Raw


_INDEX = msgspec.json.Decoder(_Index)
_RAW_INDEX = msgspec.json.Decoder(_RawIndex)


@dataclasses.dataclass(frozen=True)
class Index:
    """An index.json in columns; as a mapping (`weight_map`) only where it is asked for.

    Attributes
    ----------
    label
        Its path, for messages.
    data
        Its text.
    keys
        A 64-bit key of each tensor's name (`columns.keys_of`).
    shards
        The files it names, in order.
    shard
        Code of each tensor's file in `shards`.
    """

    label: str
    data: bytes = dataclasses.field(repr=False)
    keys: Words
    shards: tuple[str, ...]
    shard: Ints

    @cached_property
    def weight_map(self) -> dict[str, str]:
        """Tensor name -> file name; of a name given twice, the last one."""
        return _INDEX.decode(self.data).weight_map


def read_index(source: Source) -> Index:
    """Read an index.json.

    Raises
    ------
    CheckpointError
        It is no index, or names files by a path that leads out of the folder.
    """
    label = source.label
    if source.size > MAX_INDEX:
        raise CheckpointError(
            f"{label} is too large for an index",
            why=f"it has {source.size:,} bytes; an index of ten million tensors has fewer",
            next_step="Copy the index again, or remove it: the files are then read as they are.",
        )
    data = source.read(0, source.size)
    index = _by_columns(data, label) or _by_names(data, label)
    for shard in index.shards:
        _check_shard_name(shard, label)
    return index


# So much of an index at a time that its columns stay in the cache of a core.
_BLOCK = 1 << 18


def _by_columns(data: bytes, label: str) -> Index | None:
    """Read an index without making 200,000 names of it; None where it is written unusually."""
    try:
        body = memoryview(_RAW_INDEX.decode(data).weight_map)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if b"\\" in data:
        return None
    # What follows only has to tell {"name": "file", ...} from other objects: that it is JSON is known.
    codes: dict[bytes, int] = {}
    keys, shard = [], []
    at = 0
    while at < len(body):
        part = bytes(body[at : at + _BLOCK])
        if at + _BLOCK < len(body):
            part = part[: part.rfind(b'",') + 2]
        found = _entries(part, codes, first=at == 0, last=at + len(part) == len(body))
        if found is None:
            return None
        keys.append(found[0])
        shard.append(found[1])
        at += len(part)
    files = {name.decode(): code for name, code in codes.items()}
    order = sorted(files)
    rank = np.empty(len(files), dtype=np.int64)
    rank[[files[name] for name in order]] = np.arange(len(files))
    return Index(label, data, np.concatenate(keys), tuple(order), rank[np.concatenate(shard)])


def _entries(
    part: bytes, codes: dict[bytes, int], first: bool, last: bool
) -> tuple[Words, Ints] | None:
    """Return the keys of the names and the codes of the files in a part of an index."""
    text = Text(part)
    quotes = np.flatnonzero(text.chars == 34)
    if len(quotes) % 4 or not len(quotes):
        return None
    table = quotes.reshape(-1, 4)
    name, closed, file, end = table[:, 0] + 1, table[:, 1], table[:, 2] + 1, table[:, 3]
    if part[: int(name[0]) - 1].strip() != (b"{" if first else b""):
        return None
    if part[int(end[-1]) + 1 :].strip() != (b"}" if last else b","):
        return None
    gap = int(file[0] - closed[0])
    if (file - closed != gap).any() or gap not in (3, 4):
        return None
    if not (
        text.follows(closed, b'":"' if gap == 3 else b'": "') and text.follows(end[:-1], b'",')
    ):
        return None
    found = text.distinct(file, end)
    if found is None:
        return None
    sample, group = found
    spans = zip(file[sample].tolist(), end[sample].tolist(), strict=True)
    shard = np.array([codes.setdefault(part[a:b], len(codes)) for a, b in spans], dtype=np.int64)
    return text.keys(name, closed), shard[group]


def _by_names(data: bytes, label: str) -> Index:
    """Read an index name by name, and say what is wrong with it."""
    step = "Copy the index again, or remove it: the files are then read as they are."
    try:
        weight_map = _INDEX.decode(data).weight_map
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        found = looks_like(data[:512]) if data[:1] != b"{" else None
        why = str(error) if data.strip() else f"it is empty ({len(data)} bytes)"
        raise CheckpointError(
            f"{label} is not an index of weights", why=found[0] if found else why, next_step=step
        ) from None
    if not weight_map:
        raise CheckpointError(f"{label} names no tensors", next_step=step)
    shards = tuple(sorted(set(weight_map.values())))
    codes = {shard: code for code, shard in enumerate(shards)}
    shard = np.array([codes[name] for name in weight_map.values()], dtype=np.int64)
    return Index(label, data, keys_of(weight_map), shards, shard)


def _check_shard_name(name: str, label: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise CheckpointError(
            f"{label} names the file {shown(name)}, which is not inside its folder",
            why="an index that points elsewhere is broken or hostile; nothing there was opened",
            next_step="Get the index again from where the model came from.",
        )


def _agrees(index: Index, table: TensorTable, keys: Words) -> bool:
    """Whether the index says what the files hold, by 64-bit keys of name and file.

    Sorting two columns of numbers is much faster than looking up 200,000 names, and nothing is read by the
    index: were two names to share a key, a warning would be lost and no more.
    """
    if len(index.keys) != len(table) or index.shards != table.shards:
        return False
    named, held = (
        np.sort(names ^ ((shard.astype(np.uint64) + np.uint64(1)) * _MIX))
        for names, shard in ((index.keys, index.shard), (keys, table.shard))
    )
    return bool((named == held).all())


_MIX = np.uint64(0xD6E8FEB86659FD93)


def check_index(index: Index | None, table: TensorTable, keys: Words) -> list[str]:
    """Compare an index with what its files hold, and return warnings.

    Parameters
    ----------
    index
        The index; None where there is none.
    table, keys
        The tensors that the files hold, and the keys of their names.

    Raises
    ------
    CheckpointError
        The index names tensors that are not in its files.
    """
    if index is None or _agrees(index, table, keys):
        return []
    label = PurePosixPath(index.label).name
    weight_map = index.weight_map
    held = set(table.names)
    absent = [name for name in weight_map if name not in held]
    if absent:
        raise CheckpointError(
            f"{index.label} names {len(absent):,} tensors that its files do not hold: "
            + ", ".join(shorten(name, 100) for name in absent[:3])
            + (", …" if len(absent) > 3 else ""),
            why=f"{shown(absent[0])} should be in {shorten(weight_map[absent[0]])}",
            next_step="Download that file again; if it is right, the index belongs to another version.",
        )
    warnings = []
    unnamed = [name for name in table.names if name not in weight_map]
    if unnamed:
        warnings.append(
            f"{len(unnamed):,} tensors are not in {label}, such as {shorten(unnamed[0])}: "
            "engines load them anyway"
        )
    moved = [t.name for t in table if weight_map.get(t.name, t.shard) != t.shard]
    if moved:
        warnings.append(
            f"{len(moved):,} tensors are in another file than {label} says, such as {shorten(moved[0])}"
        )
    if len(index.keys) > len(weight_map):
        warnings.append(
            f"{label} names {len(index.keys) - len(weight_map):,} tensors more than once"
        )
    return warnings
