"""`open_checkpoint`: any place with weights, as one lazy `Checkpoint`."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.checkpoint import hub
from workbench.checkpoint.checkpoint import Checkpoint
from workbench.checkpoint.columns import Words, keys_of
from workbench.checkpoint.folder import (
    SAFETENSORS,
    TORCH,
    Files,
    Folder,
    LocalFolder,
    RemoteFolder,
    check_file,
    find_files,
)
from workbench.checkpoint.header_columns import Specs
from workbench.checkpoint.index import check_index
from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.safetensors import join_headers, read_header
from workbench.checkpoint.sources import LocalFile, Source, Stamp, looks_like, unreadable
from workbench.errors import CheckpointError, shown, without_secrets

if TYPE_CHECKING:
    pass


_ACCEPTED = (
    "Give a folder, a .safetensors, .bin or .pt file, an *.index.json, a Hub id (org/name) or an address "
    "(https://, s3://)."
)


def open_gguf(path: str | os.PathLike[str]) -> Checkpoint | None:
    """Open a GGUF file, or the only one in a folder without other weights; None for anything else.

    Its names and layouts are llama.cpp's: statistics of its values mean something, while what an engine makes
    of its names is another question. So `open_checkpoint` refuses it.
    """
    from workbench.checkpoint.gguf import read_gguf

    place = Path(path).expanduser()
    if not os.path.exists(
        place
    ):  # unlike Path.is_dir of 3.11, never an error: a name may be too long
        return None
    if place.is_dir():
        files = sorted(place.iterdir())
        if any(file.name.endswith((SAFETENSORS, *TORCH)) for file in files):
            return None
        files = [file for file in files if file.suffix == ".gguf"]
        if len(files) != 1:
            return None
        place = files[0]
    if place.suffix != ".gguf" or not place.is_file():
        return None
    source = LocalFile(place)
    stamp = Stamp.of(place)
    found = read_gguf(source)
    opened = Checkpoint(
        os.fspath(path), Files("gguf", (source,), single=True), found.table, {}, None,
        stamps={source.name: stamp},
    )  # fmt: skip
    opened.gguf = found
    return opened


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint: names, shapes and dtypes now, values when asked for.

    Parameters
    ----------
    path
        A folder, a ``.safetensors``, ``.bin`` or ``.pt`` file, an ``*.index.json``, a folder of the Hugging
        Face cache, a Hub id (``org/name`` or ``org/name@revision``; the local cache first), or an fsspec
        address (``https://``, ``s3://``, ``memory://``), of which only the needed ranges are read.

    Returns
    -------
    Checkpoint
        With `table`, `config`, `quantization`, `tensor` and more.

    Raises
    ------
    CheckpointError
        There is no checkpoint, or it is damaged or contradicts itself: the message says which file, what is
        wrong with it, and what to do.
    """
    try:
        text = os.fspath(path)
    except TypeError:
        raise CheckpointError(
            f"{shown(path)} is not a checkpoint's path",
            why="None was given; is a variable unset?"
            if path is None
            else f"it is of type {type(path).__name__}, not a path or a text",
            next_step=_ACCEPTED,
        ) from None
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text.strip():
        raise CheckpointError(
            "the path of the checkpoint is empty",
            why="a variable may be unset",
            next_step=_ACCEPTED,
        )
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[a-z]+::", text):
        return _open_remote(text)
    try:
        local = Path(text).expanduser()
    except RuntimeError:  # ~name of nobody
        local = Path(text)
    if _exists(local):
        return _open_local(local, text)
    model = hub.parse_id(text)
    if model is None or not isinstance(path, str):
        raise CheckpointError(
            f"there is no {local if text.startswith('~') else text}",
            why="no such file or folder",
            next_step="Check the path; a Hub id is written org/name.",
        )
    return _open_hub(model)


def _exists(path: Path) -> bool:
    try:
        os.lstat(path)
    except PermissionError as error:  # a folder above it is closed: nobody can tell
        raise unreadable(path, error) from None
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False
    return True


def _open_local(path: Path, source: str) -> Checkpoint:
    if path.is_dir():
        if hub.is_cache_folder(path):
            found = hub.snapshot(path)
            if found is None:
                raise CheckpointError(
                    f"{path} has several snapshots or none, and refs/main does not name one",
                    next_step="Give one of the folders in snapshots/.",
                )
            path = found
        folder = LocalFolder(path)
        return _read(source, find_files(folder), folder)
    check_file(path)
    folder = LocalFolder(path.parent)
    if path.name.endswith(".index.json"):
        return _read(source, find_files(folder, path.name), folder)
    file = LocalFile(path)
    return _read(source, Files(_form(file), (file,), single=True), folder)


def _form(file: Source) -> str:
    """Tell the format of a single file, by its name and else by its first bytes."""
    if file.name.endswith(SAFETENSORS):
        return "safetensors"
    head = file.read(0, 16)
    if head.startswith(b"PK\x03\x04") or file.name.endswith(TORCH):
        return "torch"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= file.size:
        return "safetensors"
    found = looks_like(file.read(0, 512))
    raise CheckpointError(
        f"{file.label} is not a checkpoint",
        why=found[0] if found else "its name and its first bytes are not those of a checkpoint",
        next_step=found[1] if found else "Give a .safetensors, .bin or .pt file, or a folder.",
    )


# The addresses that were opened, by what results call them: so that a result's source opens again.
_GIVEN: dict[str, str] = {}


def given(source: str) -> str:
    """Return the address, with its secrets, that a checkpoint's `source` was opened by in this process."""
    return _GIVEN.get(source, source)


def _named(address: str) -> str:
    """Return what results call an address; no two are called the same, however much is left out of them."""
    plain = source = without_secrets(address)
    count = 1
    while _GIVEN.setdefault(source, address) != address:
        count += 1
        source = f"{plain}#{count}"
    return source


def _open_remote(address: str) -> Checkpoint:
    address = given(address)
    if "…" in address:
        raise CheckpointError(
            f"cannot open {address}",
            why="results omit the secrets of an address",
            next_step="Give the address itself, with its user or its signature.",
        )
    try:
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(address)
    except Exception as error:  # unknown protocol, a missing package, a malformed address
        raise CheckpointError(
            f"cannot open {address}",
            why=f"{type(error).__name__}: {error}",
            next_step="Install the fsspec package of this protocol, or download the checkpoint.",
        ) from None
    path = path if isinstance(path, str) else address
    source = _named(address)
    lists = not address.startswith(("http://", "https://"))
    # The query of a signed address belongs to its file; it may hold slashes.
    place, mark, query = (path, "", "") if lists else path.partition("?")
    base, _, plain = place.rstrip("/").rpartition("/")
    name = plain + mark + query
    where = without_secrets(address.removesuffix(mark + query).rstrip("/").rpartition("/")[0])
    if plain.endswith(".index.json"):
        folder = RemoteFolder(filesystem, base, where, lists)
        return _read(source, find_files(folder, name), folder)
    if plain.endswith((SAFETENSORS, *TORCH)):
        file = RemoteFolder(filesystem, base, where, lists).open(name)
        beside = RemoteFolder(filesystem, base, where, lists)
        return _read(source, Files(_form(file), (file,), single=True), beside)
    folder = RemoteFolder(filesystem, path.rstrip("/"), source.rstrip("/"), lists)
    return _read(source, find_files(folder), folder)


def _open_hub(model: hub.HubId) -> Checkpoint:
    found = hub.cached(model)
    if found is not None:
        folder = LocalFolder(found)
        try:
            return _read(str(model), find_files(folder), folder)
        except CheckpointError as error:
            if hub.is_offline() or _has_weights(folder):
                raise error
        # Only config and tokenizer were downloaded: the weights' headers come from the Hub.
    filesystem, path = hub.filesystem(model)
    remote = RemoteFolder(filesystem, path, f"hf://{path}")
    return _read(str(model), find_files(remote), remote)


def _has_weights(folder: LocalFolder) -> bool:
    return any(name.endswith((SAFETENSORS, *TORCH)) for name in folder.names())


def _read(source: str, files: Files, folder: Folder | None) -> Checkpoint:
    stamps = {file.name: Stamp.of(file.local) for file in files.sources if file.local is not None}
    if files.form == "torch":
        from workbench.checkpoint.torch_zip import open_torch

        table, opened, notes = open_torch(files.sources)
        warnings = [*files.warnings, *notes]
        keys = keys_of(table.names)
        _check_unique(table, keys)
        warnings += check_index(files.index, table, keys)
        return Checkpoint(
            source, files, table, {}, folder, warnings, torch_files=opened, stamps=stamps
        )
    specs = Specs()
    with _no_collection():
        if len(files.sources) > 1 and files.sources[0].local is None:
            with ThreadPoolExecutor(8) as pool:
                headers = list(pool.map(lambda file: read_header(file, specs), files.sources))
        else:
            headers = [read_header(file, specs) for file in files.sources]
        table = join_headers(headers, [file.name for file in files.sources], specs)
        keys = np.concatenate([header.keys for header in headers])
        _check_unique(table, keys)
        warnings = [*files.warnings, *check_index(files.index, table, keys)]
    metadata: dict[str, str] = {}
    for header in headers:
        metadata |= header.metadata
    by_shard = {f.name: h.metadata for f, h in zip(files.sources, headers, strict=True)}
    return Checkpoint(source, files, table, metadata, folder, warnings, by_shard, stamps=stamps)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector: hundreds of thousands of new objects make it run for seconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_unique(table: TensorTable, keys: Words) -> None:
    """Check that no name occurs twice, across all files."""
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    seen: dict[str, int] = {}
    for at, name in enumerate(table.names):
        first = seen.setdefault(name, at)
        if first != at:
            one, other = (table.shards[table.shard[i]] for i in (first, at))
            raise CheckpointError(
                f"the tensor {shown(name)} is in two files: {one} and {other}",
                why="which of them an engine keeps depends on the order in which it reads the files",
                next_step="Remove the file that does not belong to this checkpoint.",
            )
