"""`Checkpoint`: what was opened, with names, shapes and dtypes now and values when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from workbench.checkpoint.config import MAX_CONFIG, Config, parse_config
from workbench.checkpoint.folder import (
    Files,
    Folder,
    LocalFolder,
)
from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.sources import Stamp
from workbench.checkpoint.values import as_torch, check_numpy, read_flat, read_units
from workbench.errors import LONGEST, CheckpointError, shorten, shown

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
        return self._config_in("config.json")

    @cached_property
    def adapter_config(self) -> Config:
        """The adapter_config.json beside the weights; empty where there is none.

        Raises
        ------
        CheckpointError
            There is one, but it is broken.
        """
        return self._config_in("adapter_config.json")

    def _config_in(self, name: str) -> Config:
        if self._folder is None or not self._folder.exists(name):
            return Config()
        file = self._folder.open(name)
        if file.size > MAX_CONFIG:
            raise CheckpointError(
                f"cannot read the config {file.label}",
                why=f"it has {file.size:,} bytes; configs of models are far smaller",
                next_step=f"Copy {name} again from where the model came from.",
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
