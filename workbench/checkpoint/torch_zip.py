"""PyTorch files (``torch.save``): names, shapes and dtypes by mapping the file, without running code in it.

Only ``weights_only=True`` is ever used: a pickle that asks for anything but tensors and plain containers is
refused by torch before it is called.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.sources import Source, looks_like
from workbench.checkpoint.values import DTYPE_OF_TORCH
from workbench.errors import CheckpointError

if TYPE_CHECKING:
    import torch

# Under which keys trainers put the weights beside their own state, in the order of trust.
NESTED = ("state_dict", "model_state_dict", "model", "module", "params", "ema")
# The old format has no table of contents, so all values are read; larger files are refused.
MAX_LEGACY = 8 << 30
CONVERT = (
    "Convert it to safetensors where you trust it: torch.load there, then "
    "safetensors.torch.save_file(state_dict, 'model.safetensors')."
)


class TorchFile:
    """One opened PyTorch file; its tensors are mapped, not read."""

    def __init__(self, path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
        self.path = path
        self._tensors = dict(tensors)

    def tensor(self, name: str, index: Any = None) -> torch.Tensor:
        """Return a copy of a tensor or of a slice of it."""
        if name not in self._tensors:
            raise CheckpointError(f"{self.path} was closed", next_step="Open the checkpoint again.")
        tensor = self._tensors[name].detach()
        try:
            part = tensor if index is None else tensor[index]
        except (IndexError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"cannot take {index!r} of {name!r}",
                why=f"{error}; its shape is {list(tensor.shape)}",
                next_step="Give whole numbers and slices within that shape.",
            ) from None
        return part.clone()

    def close(self) -> None:
        """Let go of the mapped file."""
        self._tensors = {}

    def rows(self, shard: str) -> list[TensorInfo]:
        """Return what each tensor is."""
        rows = []
        for name, tensor in self._tensors.items():
            kind = str(tensor.dtype).removeprefix("torch.")
            dtype = DTYPE_OF_TORCH.get(kind, kind.upper())
            rows.append(TensorInfo(name, dtype, tuple(tensor.shape), shard))
        return rows


def open_torch(
    sources: Sequence[Source],
) -> tuple[TensorTable, dict[str, TorchFile], list[str]]:
    """Open the PyTorch files of a checkpoint.

    Returns
    -------
    tuple
        The table of their tensors, the opened files by name, and warnings.

    Raises
    ------
    CheckpointError
        A file is no PyTorch file, is damaged, holds no tensors, or asks for code to be run.
    """
    rows: list[TensorInfo] = []
    files: dict[str, TorchFile] = {}
    notes: list[str] = []
    for source in sources:
        if source.local is None:
            raise CheckpointError(
                f"{source.label} is a PyTorch file on another machine",
                why="its table of contents is a pickle within a zip, which is read from a local file only",
                next_step="Download it and give its path.",
            )
        value = _load(source, source.local)
        tensors, found = state_dict(value, source.label)
        notes += [f"{source.name}: {note}" for note in found]
        file = files[source.name] = TorchFile(source.local, tensors)
        rows += file.rows(source.name)
    return TensorTable.from_rows(rows), files, notes


def _load(source: Source, path: Path) -> Any:
    size = source.size  # refuses what is no regular file
    if size == 0:
        raise CheckpointError(f"{path} is empty", next_step="Download or copy the file again.")
    head = source.read(0, 512)
    zipped = head.startswith(b"PK\x03\x04")
    if zipped:
        _check_archive(path)
    elif (found := looks_like(head)) and not head.startswith(b"\x80"):
        raise CheckpointError(f"{path} is not a PyTorch file", why=found[0], next_step=found[1])
    elif not head.startswith(b"\x80"):
        raise CheckpointError(
            f"{path} is not a PyTorch file",
            why="it begins neither like a zip nor like a pickle",
            next_step="Download or copy the file again, or give the right path.",
        )
    elif size > MAX_LEGACY:
        raise CheckpointError(
            f"{path} is in PyTorch's old format, which cannot be read in parts",
            why=f"all of its {size:,} bytes would have to be loaded",
            next_step=CONVERT,
        )
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols: nothing to act on
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except pickle.UnpicklingError as error:
        raise _refused(path, str(error)) from None
    except MemoryError:
        raise CheckpointError(f"{path} does not fit into memory", next_step=CONVERT) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise CheckpointError(
            f"cannot read {path} as a PyTorch file",
            why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            next_step="Download or copy the file again, and compare its size with the origin.",
        ) from None


def _check_archive(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise CheckpointError(
            f"{path} is cut short or damaged",
            why=f"it begins like a zip, but has no readable table of contents: {error}",
            next_step="Download or copy the file again, and compare its size with the origin.",
        ) from None
    if any(name.endswith("/constants.pkl") or "/code/" in name for name in names):
        raise CheckpointError(
            f"{path} is a TorchScript program, not a checkpoint",
            why="it holds code beside the weights; nothing in it was executed",
            next_step="Save the module's state_dict() instead.",
        )
    if not any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        kind = "a NumPy archive (.npz)" if any(n.endswith(".npy") for n in names) else "another zip"
        raise CheckpointError(
            f"{path} is not a PyTorch file",
            why=f"it is {kind}: it has no data.pkl",
            next_step="Give a file that torch.save wrote, or a safetensors file.",
        )


def _refused(path: Path, text: str) -> CheckpointError:
    found = re.search(r"(?:GLOBAL |global )([A-Za-z_][\w.]*\.[\w.]+)", text)
    wanted = [found[1]] if found else _globals_of(path)
    if not wanted:
        first = next((line for line in text.splitlines() if "WeightsUnpickler" in line), text)
        return CheckpointError(
            f"{path} holds a pickle that is more than weights, or is damaged",
            why=f"torch refused it ({first.strip()[:200]}); nothing in it was executed",
            next_step=CONVERT,
        )
    return CheckpointError(
        f"{path} holds a pickle with code in it",
        why=f"loading it would call {', '.join(wanted[:3])}, which weights do not need; it was refused, "
        "and nothing in it was executed",
        next_step="Do not load it elsewhere unless you trust its sender. " + CONVERT,
    )


def _globals_of(path: Path) -> list[str]:
    """Return what a bare pickle would import, by reading its instructions without following them."""
    found: list[str] = []
    texts: list[str] = []
    try:
        with open(path, "rb") as file:
            for instruction, argument, _ in pickletools.genops(file):
                if instruction.name == "GLOBAL":
                    found.append(str(argument).replace(" ", "."))
                elif instruction.name == "STACK_GLOBAL":
                    found.append(".".join(texts[-2:]))
                elif isinstance(argument, str):
                    texts.append(argument)
                if len(found) > 20:
                    break
    except Exception:  # a damaged pickle: what was seen before the damage stands
        pass
    return [name for name in found if not name.startswith(("torch.", "collections."))]


def state_dict(value: Any, label: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the tensors of what torch.load gave, wherever a trainer put them, and notes.

    Raises
    ------
    CheckpointError
        There are none.
    """
    import torch

    notes: list[str] = []
    while isinstance(value, Mapping):
        tensors = {
            key: item
            for key, item in value.items()
            if isinstance(key, str) and isinstance(item, torch.Tensor)
        }
        inner = next((key for key in NESTED if isinstance(value.get(key), Mapping)), None)
        if inner is None or len(tensors) > len(value[inner]):
            if not tensors:
                break
            if rest := len(value) - len(tensors):
                notes.append(f"{rest} entries that are no tensors were left out")
            return tensors, notes
        notes.append(f"the weights are under {inner!r}")
        value = value[inner]
    held = type(value).__name__
    if isinstance(value, Mapping):
        held = "a dict with " + (", ".join(map(repr, list(value)[:5])) or "nothing in it")
    raise CheckpointError(
        f"{label} holds no weights by name",
        why=f"torch.load gives {held}, not a dict of tensors",
        next_step="Save the module's state_dict().",
    )
