"""A checkpoint as an engine's own Python can read it, and what the loaders of both engines share."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

# Without values, short lists of integers are read all the same: loaders compute with them.
MOST_BYTES_OF_A_CONSTANT = 8 << 20
LONGEST_HEADER = 512 << 20
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2", "C64": "complex64",
}  # fmt: skip


class Refused(Exception):
    """The engine does not accept the config, or has no such class."""


class Unsupported(Exception):
    """It could not be tried here; that says nothing about the engine's answer."""


def version_of(package: str) -> str:
    """Return an installed package's version, "" if it has none."""
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return ""


def reads_pickles_safely() -> bool:
    """Whether this Python's torch has the fix of 2.10; workbench/checkpoint/pickles.py says the same."""
    import torch

    found = re.match(r"(\d+)\.(\d+)(?:\.\d+)?(a|b|rc|\.dev)?", str(torch.__version__))
    if found is None:
        return False
    release = (int(found[1]), int(found[2]))
    return release > (2, 10) or (release == (2, 10) and not found[3])


class Files:
    """A checkpoint's tensors: names and shapes from headers, values of small constants only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.is_file():
            files = [folder]
        else:
            files = sorted(folder.glob("*.safetensors"))
            files = files or sorted([*folder.glob("*.bin"), *folder.glob("*.pt")])
        self.files = files
        pickles = [file.name for file in files if file.suffix != ".safetensors"]
        if pickles and not reads_pickles_safely():
            import torch

            raise Unsupported(
                f"{pickles[0]} is a pickle, and this engine's torch is {torch.__version__}: before 2.10 a "
                "hostile one can corrupt memory and run code (CVE-2026-24747). Convert it to safetensors"
            )

    def keys(self) -> list[str]:
        """Return the names in all files, in their order there."""
        return [key for file in self.files for key in self._header(file)]

    def size(self) -> int:
        """Return how many bytes the files have, holes included."""
        return sum(file.stat().st_size for file in self.files)

    def tensors(self, files: list[Path] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield names and tensors without values, but for small integer ones."""
        import torch

        for file in files or self.files:
            for key, (dtype, shape, start, stop) in self._header(file).items():
                kind = getattr(torch, DTYPES.get(dtype, dtype), None)
                if kind is None:
                    raise Unsupported(f"{key} has dtype {dtype}, which this torch lacks")
                # Lists only: packed weights are integers, too, and there are terabytes of them.
                small = len(shape) < 2 and stop - start <= MOST_BYTES_OF_A_CONSTANT and start >= 0
                if small and stop > start and dtype in ("I32", "I64", "BOOL"):
                    with file.open("rb") as stream:
                        stream.seek(start)
                        raw = bytearray(stream.read(stop - start))
                    yield key, torch.frombuffer(raw, dtype=kind).reshape(shape)
                else:
                    yield key, torch.empty(shape, dtype=kind, device="meta")

    def _header(self, file: Path) -> dict[str, tuple[str, list[int], int, int]]:
        if file.suffix == ".safetensors":
            return _safetensors_header(file)
        import torch

        state = torch.load(file, map_location="meta", weights_only=True, mmap=True)
        return {
            key: (str(t.dtype).removeprefix("torch."), list(t.shape), -1, -1)
            for key, t in state.items()
            if isinstance(t, torch.Tensor)
        }


def _safetensors_header(file: Path) -> dict[str, tuple[str, list[int], int, int]]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > min(LONGEST_HEADER, file.stat().st_size):
            raise Refused(
                f"{file.name} is no safetensors file: its header would have {length} bytes"
            )
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return {
        key: (entry["dtype"], entry["shape"], *(8 + length + at for at in entry["data_offsets"]))
        for key, entry in header.items()
    }


@contextlib.contextmanager
def with_config(folder: Path, config: dict[str, Any] | None) -> Iterator[Path]:
    """Lend a copy of a checkpoint folder, made of links, that has another config.json."""
    if config is None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="workbench-") as name:
        copy = Path(name)
        for file in folder.iterdir():
            if file.name != "config.json":
                (copy / file.name).symlink_to(file.resolve())
        (copy / "config.json").write_text(json.dumps(config, indent=1))
        yield copy


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json as it is, {} if there is none that can be read."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def call(function: Callable[..., Any], **known: Any) -> Any:
    """Call with those arguments that this version's function has."""
    wanted = inspect.signature(function).parameters
    return function(**{name: value for name, value in known.items() if name in wanted})
