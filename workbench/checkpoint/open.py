"""`open_checkpoint`: any place with weights, as one lazy `Checkpoint`."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from workbench.checkpoint import hub
from workbench.checkpoint.columns import Words, keys_of
from workbench.checkpoint.config import MAX_CONFIG, Config, parse_config
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
from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.safetensors import join_headers, read_header
from workbench.checkpoint.sources import LocalFile, Source, Stamp, looks_like, unreadable
from workbench.checkpoint.values import as_torch, check_numpy, read_flat, read_units
from workbench.errors import LONGEST, CheckpointError, shorten, shown, without_secrets

if TYPE_CHECKING:
    import torch

    from workbench.checkpoint.gguf import GgufFile
    from workbench.checkpoint.quantized import Quantization
    from workbench.checkpoint.torch_zip import TorchFile


class Checkpoint:
    """A checkpoint whose names, shapes and dtypes are known, and whose values are read on demand.

    Made by `open_checkpoint`. It holds no weights and keeps no file open.

    Attributes
    ----------
    source
        What was opened: path, Hub id or address, of which `without_secrets` leaves out what results and
        reports must not tell.
    table
        All tensors, in columns.
    form
        ``safetensors`` or ``torch``.
    sources
        The files that hold the weights, in the order of ``table.shards``.
    metadata
        The ``__metadata__`` of the safetensors headers, joined.
    index_name, is_single_file
        Name of the index it was read by (empty without one); whether a single file was given.
    warnings
        What an engine would pass over and a person should know.
    """

    def __init__(
        self,
        source: str,
        files: Files,
        table: TensorTable,
        metadata: Mapping[str, str],
        folder: Folder | None,
        warnings: Sequence[str] = (),
        shard_metadata: Mapping[str, Mapping[str, str]] | None = None,
        torch_files: Mapping[str, TorchFile] | None = None,
        stamps: Mapping[str, Stamp | None] | None = None,
    ) -> None:
        self.source = source
        self.table = table
        self.metadata = dict(metadata)
        self.warnings = tuple(warnings)
        self.form = files.form
        self._sources = {file.name: file for file in files.sources}
        self._folder = folder
        self._torch_files = dict(torch_files or {})
        self._shard_metadata = dict(shard_metadata or {})
        self.sources = files.sources
        self._stamps = dict(stamps or {})
        self.gguf: GgufFile | None = None
        self.is_single_file = files.single
        self.index_name = PurePosixPath(files.index.label).name if files.index else ""

    @property
    def names(self) -> Sequence[str]:
        """The tensors' names, in the order of the files."""
        return self.table.names

    @property
    def files(self) -> tuple[str, ...]:
        """Paths or addresses of the files that hold the weights."""
        return tuple(file.label for file in self._sources.values())

    @property
    def folder(self) -> Path | None:
        """The folder on this machine that holds the checkpoint, or None."""
        return self.local_folder.path if self.local_folder else None

    @property
    def local_folder(self) -> LocalFolder | None:
        """The same, as the place whose files may be opened."""
        return self._folder if isinstance(self._folder, LocalFolder) else None

    def changed(self) -> tuple[str, ...]:
        """Return which files were replaced, removed or written to since they were opened.

        Of files on other machines nothing is known.
        """
        return tuple(
            name
            for name, before in self._stamps.items()
            if (path := self._sources[name].local) is not None and Stamp.of(path) != before
        )

    def shard_metadata(self, shard: str) -> Mapping[str, str]:
        """Return the ``__metadata__`` of one file."""
        return self._shard_metadata.get(shard, {})

    @cached_property
    def config(self) -> Config:
        """The config.json beside the weights; empty where there is none.

        Raises
        ------
        CheckpointError
            There is one, but it is broken.
        """
        if self.gguf is not None:
            return Config(self.gguf.config)
        if self._folder is None or not self._folder.exists("config.json"):
            return Config()
        file = self._folder.open("config.json")
        if file.size > MAX_CONFIG:
            raise CheckpointError(
                f"cannot read the config {file.label}",
                why=f"it has {file.size:,} bytes; configs of models are far smaller",
                next_step="Copy config.json again from where the model came from.",
            )
        return parse_config(file.read(0, file.size), file.label)

    @cached_property
    def quantization(self) -> Quantization:
        """Which tensors belong together in a quantised layout, and whether the config agrees."""
        if self.gguf is not None:
            return self.gguf.quantization
        from workbench.checkpoint.quantized import recognise

        return recognise(self.table, self.config)

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.names)

    def __contains__(self, name: object) -> bool:
        return name in self.table

    def __getitem__(self, name: str) -> TensorInfo:
        info = self.table.get(name)
        if info is None:
            raise self._unknown(name)
        return info

    def tensor(self, name: str, index: Any = None) -> torch.Tensor:
        """Read one tensor, or a slice of it.

        Parameters
        ----------
        name
            The tensor.
        index
            Whole numbers, slices or a tuple of them; only the pages (remote: rows) it needs are read.

        Returns
        -------
        torch.Tensor
            A copy on the CPU, of the stored dtype. Packed 4 and 6 bit types come as bytes (uint8), with
            the last dimension in bytes; ``self[name].shape`` is the logical shape.

        Raises
        ------
        CheckpointError
            There is no such tensor, or its file cannot be read.
        """
        info = self[name]
        if info.shard in self._torch_files:
            return self._torch_files[info.shard].tensor(name, index)
        return as_torch(info, read_units(self._sources[info.shard], info, index))

    def numpy(self, name: str, index: Any = None) -> np.ndarray[Any, Any]:
        """Read one tensor or a slice of it as a numpy array, where numpy has the type.

        Raises
        ------
        CheckpointError
            There is no such tensor, or numpy has no such type (BF16, 8-bit floats).
        """
        info = self[name]
        check_numpy(info)
        if info.shard in self._torch_files:
            return self._torch_files[info.shard].tensor(name, index).numpy()
        return read_units(self._sources[info.shard], info, index)

    def units(self, name: str, index: Any = None) -> np.ndarray[Any, Any]:
        """Read the stored units of a tensor or of a slice of it, of any type.

        Units are what numpy has, and unsigned integers of the same width for what it has not: BF16 comes as
        uint16, the 8-bit floats as uint8, packed types as bytes.
        """
        info = self[name]
        if info.shard in self._torch_files:
            return self._torch_files[info.shard].units(info, index)
        return read_units(self._sources[info.shard], info, index)

    def flat(self, name: str, begin: int, end: int) -> np.ndarray[Any, Any]:
        """Read the stored units `begin` to `end` of a tensor, in the order of its values."""
        info = self[name]
        if info.shard in self._torch_files:
            return self._torch_files[info.shard].flat(info, begin, end)
        return read_flat(self._sources[info.shard], info, begin, end)

    def flat_into(self, name: str, begin: int, out: np.ndarray[Any, Any]) -> None:
        """Read stored units from `begin` on into an array of their type, until it is full."""
        info = self[name]
        if info.shard in self._torch_files:
            out[:] = self._torch_files[info.shard].flat(info, begin, begin + len(out))
        else:
            read_flat(self._sources[info.shard], info, begin, begin + len(out), out)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files that PyTorch holds mapped; safetensors files are never kept open."""
        for file in self._torch_files.values():
            file.close()

    def _unknown(self, name: str) -> CheckpointError:
        from difflib import get_close_matches

        # The same last words first: comparing against 200,000 names would take seconds.
        tail = str(name).rsplit(".", 2)[-2:]
        near = [known for known in self.names if known.endswith(".".join(tail))][:2000]
        close = get_close_matches(str(name), near or list(self.names[:2000]), n=3)
        near_by = ", ".join(shorten(known, 140) for known in close)
        step = f"Did you mean {near_by}?" if close else "See .names for what there is."
        return CheckpointError(f"{self.source} has no tensor {shown(name)}", next_step=step)

    def __repr__(self) -> str:
        table = self.table
        lines = [f"Checkpoint {self.source}"]
        numbers = np.bincount(table.dtype, minlength=len(table.dtypes))
        order = np.argsort(-numbers, kind="stable")
        kinds = ", ".join(f"{numbers[i]:,} {table.dtypes[i]}" for i in order if numbers[i])
        nbytes = (
            sum(t.nbytes for t in table) if self._torch_files else (table.end - table.begin).sum()
        )
        size = _bytes(int(nbytes))
        files = f"{len(self._sources)} {self.form} file{'s' * (len(self._sources) != 1)}"
        lines.append(f"  {len(table):,} tensors ({kinds}), {size} in {files}")
        try:
            lines.append(f"  {self._config_line()}")
        except CheckpointError as error:
            lines.append(f"  config: {error.what}: {error.why}")
        lines += [f"  warning: {text}" for text in self.warnings]
        return "\n".join(shorten(line, LONGEST) for line in lines)

    def _config_line(self) -> str:
        config = self.config
        if not config:
            return "no config.json"
        named = ", ".join(config.architectures[:3]) or config.model_type or "no architecture named"
        quantised = f", quantised: {self.quantization.format}" if self.quantization.format else ""
        return f"config: {named} ({config.layout}){quantised}"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


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
