"""PyTorch files (``torch.save``): names, shapes and dtypes by mapping the file, without running code in it.

Only ``weights_only=True`` is ever used: a pickle that asks for anything but tensors and plain containers is
refused by torch before it is called.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint import pickles
from workbench.checkpoint.header_columns import MAX_NAME
from workbench.checkpoint.pickles import CONVERT
from workbench.checkpoint.records import DTYPE_BITS, TensorInfo, TensorTable
from workbench.checkpoint.sources import Source, looks_like
from workbench.checkpoint.torch_places import places_of
from workbench.checkpoint.values import DTYPE_OF_TORCH, rows_of, units_kind
from workbench.errors import CheckpointError, shorten, shown

if TYPE_CHECKING:
    import torch

# Under which keys trainers put the weights beside their own state, in the order of trust.
NESTED = ("state_dict", "model_state_dict", "model", "module", "params", "ema")
# The old format has no table of contents, so all values are read; larger files are refused.
MAX_LEGACY = 8 << 30
# A data.pkl of 200,000 tensors has 40 million bytes; torch reads all of it.
MAX_PICKLE = 1 << 29
# The zip's own table of contents: 90 bytes a tensor.
MAX_LISTING = 1 << 27
# Weights hardly compress; what grows more than this was made to.
MAX_INFLATION = 20
# Instructions of a pickle that are looked at, to name what it would call.
MOST_STEPS = 500_000
DO_NOT_LOAD = (
    "Do not load or unpack it elsewhere; get the file again from where the model came from."
)


class TorchFile:
    """One opened PyTorch file: where its tensors lie in it. Values are read, never mapped.

    torch maps the file to list its tensors. A page of that mapping that is touched after the file shrank ends
    the process, so the places are taken from it, and the mapping is let go.
    """

    def __init__(self, source: Source, tensors: Mapping[str, torch.Tensor]) -> None:
        assert source.local is not None
        self.path, self._source = source.local, source
        self._rows = [_info(name, tensor, source.name) for name, tensor in tensors.items()]
        self._places = places_of(tensors)
        # What lies in memory of its own: the old format, and tensors that torch unpacked.
        self._held = {
            name: one.detach() for name, one in tensors.items() if name not in self._places
        }
        self._is_open = True

    def tensor(self, name: str, index: Any = None) -> torch.Tensor:
        """Return a copy of a tensor or of a slice of it."""
        if not self._is_open:
            raise CheckpointError(f"{self.path} was closed", next_step="Open the checkpoint again.")
        if name in self._held:
            return _taken(self._held[name], name, self._held[name].shape, index)
        place = self._places[name]
        start, stop, rest = rows_of(place.shape, index)
        return _taken(place.read(self._source, name, start, stop), name, place.shape, rest)

    def units(self, info: TensorInfo, index: Any = None) -> np.ndarray[Any, Any]:
        """Return the stored units of a tensor or of a slice of it (`values.units_kind`)."""
        import torch

        part = self.tensor(info.name, index)
        odd = info.dtype not in DTYPE_BITS or part.layout is not torch.strided
        if odd or part.is_quantized or part.device.type != "cpu":
            raise CheckpointError(
                f"the values of {shown(info.name)} are not read",
                why=f"it is stored as {_how(part)}, which is no plain array of numbers",
                next_step="Store it as a dense tensor of a usual type (.to_dense(), .dequantize()).",
            )
        part = part.contiguous()
        return (
            part.reshape(-1)
            .view(torch.uint8)
            .numpy()
            .view(units_kind(info.dtype))
            .reshape(part.shape)
        )

    def flat(self, info: TensorInfo, begin: int, end: int) -> np.ndarray[Any, Any]:
        """Return the stored units `begin` to `end` in the order of the values; only their rows are read."""
        if not info.shape or info.dtype not in DTYPE_BITS:
            return self.units(info).reshape(-1)[begin:end]
        row = prod(info.shape[1:]) or 1
        first = begin // row
        rows = self.units(info, slice(first, -(-end // row))).reshape(-1)
        return rows[begin - first * row : end - first * row]

    def close(self) -> None:
        """Let go of what is held in memory."""
        self._held, self._is_open = {}, False

    def rows(self) -> list[TensorInfo]:
        """Return what each tensor is."""
        return self._rows


def _info(name: str, tensor: torch.Tensor, shard: str) -> TensorInfo:
    kind = str(tensor.dtype).removeprefix("torch.")
    return TensorInfo(name, DTYPE_OF_TORCH.get(kind, kind.upper()), tuple(tensor.shape), shard)


def _how(tensor: torch.Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.device.type != "cpu":
        return f"{kind} on the {tensor.device.type} device"
    return f"{str(tensor.layout).removeprefix('torch.')} {kind}"


def _taken(tensor: torch.Tensor, name: str, shape: tuple[int, ...], index: Any) -> torch.Tensor:
    try:
        part = tensor if index is None else tensor[index]
    except (IndexError, TypeError, ValueError, RuntimeError) as error:  # sparse: RuntimeError
        first = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"cannot take {shown(index)} of {shown(name)}",
            why=f"{shorten(first)}; it is {_how(tensor)}, its shape is {list(shape)}",
            next_step="Give whole numbers and slices within that shape.",
        ) from None
    return part.clone()


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
        file = files[source.name] = TorchFile(source, tensors)
        rows += file.rows()
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
            why="it begins like neither a zip nor a pickle",
            next_step="Download or copy the file again, or give the right path.",
        )
    elif size > MAX_LEGACY:
        raise CheckpointError(
            f"{path} is in PyTorch's old format, which cannot be read in parts",
            why=f"all of its {size:,} bytes would have to be loaded",
            next_step=CONVERT,
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols: nothing to act on
            return pickles.load(path, mmap=zipped or None)
    except CheckpointError:
        raise
    except pickle.UnpicklingError as error:
        raise _refused(path, str(error)) from None
    except MemoryError:
        raise CheckpointError(f"{path} does not fit into memory", next_step=CONVERT) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise CheckpointError(
            f"cannot read {path} as a PyTorch file",
            why=f"{_reason(error)}; nothing in it was executed",
            next_step="Download or copy the file again, and compare its size with the origin.",
        ) from None


def _check_archive(path: Path) -> None:
    """Check a zip's table of contents before torch opens it: the entries, and what they would unpack to."""
    size = path.stat().st_size
    try:
        listing, start = _listing(path, size)
        if listing > MAX_LISTING:
            raise CheckpointError(
                f"{path} is not a usual PyTorch file",
                why=f"its table of contents alone takes {listing:,} bytes",
                next_step=DO_NOT_LOAD,
            )
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            agree = (
                archive.start_dir == start
                and min((e.header_offset for e in entries), default=0) == 0
            )
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, struct.error) as error:
        raise CheckpointError(
            f"{path} is cut short or damaged",
            why=f"it begins like a zip, but has no readable table of contents: {error}",
            next_step="Download or copy the file again, and compare its size with the origin.",
        ) from None
    names = {entry.filename for entry in entries}
    if any(name.endswith("/constants.pkl") or "/code/" in name for name in names):
        raise CheckpointError(
            f"{path} is a TorchScript program, not a checkpoint",
            why="it holds code as well as weights; nothing in it was executed",
            next_step="Save the module's state_dict() instead.",
        )
    pickles = [e for e in entries if e.filename.endswith("/data.pkl") or e.filename == "data.pkl"]
    if not pickles:
        kind = "a NumPy archive (.npz)" if any(n.endswith(".npy") for n in names) else "another zip"
        raise CheckpointError(
            f"{path} is not a PyTorch file",
            why=f"it is {kind}: it has no data.pkl",
            next_step="Give a file that torch.save wrote, or a safetensors file.",
        )
    _check_sizes(path, size, entries)
    if not agree or len(pickles) > 1 or len(names) < len(entries):
        raise CheckpointError(
            f"{path} has an ambiguous table of contents",
            why="it can be read in two ways, or names an entry twice: torch.save writes no such file, and "
            "nothing in it was opened",
            next_step=DO_NOT_LOAD,
        )
    version = pickles[0].filename.removesuffix("data.pkl") + "version"
    if version not in names and version.replace("version", ".data/version") not in names:
        raise CheckpointError(
            f"{path} is not a PyTorch file that torch.save wrote",
            why=f"it has {shorten(pickles[0].filename)}, but no {shorten(version)} next to it; "
            "nothing in it was executed",
            next_step="Download or copy the file again; if it stays so, do not load it.",
        )


def _listing(path: Path, size: int) -> tuple[int, int]:
    """Return the length of a zip's table of contents and where it begins, as its end says.

    Python's reader corrects a wrong beginning in silence and torch's does not, so that one file could show
    each of them another table.
    """
    with open(path, "rb") as file:
        file.seek(max(0, size - (1 << 16) - 100))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        raise zipfile.BadZipFile("its end is missing")
    length, start = struct.unpack_from("<II", tail, at + 12)
    at64 = tail.rfind(b"PK\x06\x06", 0, at)
    if at64 >= 0 and tail[at - 20 : at - 16] == b"PK\x06\x07":
        length, start = struct.unpack_from("<QQ", tail, at64 + 40)
    return length, start


def _check_sizes(path: Path, size: int, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Check that the entries are stored as they are, and take no more room than the file has."""
    total = sum(entry.file_size for entry in entries)
    packed = [e for e in entries if e.compress_type != zipfile.ZIP_STORED or e.flag_bits & 1]
    if packed:
        worst = max(packed, key=lambda entry: entry.file_size)
        bomb = total > MAX_INFLATION * size
        raise CheckpointError(
            f"{path} is built like a zip bomb" if bomb else f"{path} is a compressed zip",
            why=f"its {size:,} bytes would unpack to {total:,} ({shorten(worst.filename, 80)}: "
            f"{worst.file_size:,}); torch.save never compresses, and nothing in it was unpacked",
            next_step=DO_NOT_LOAD
            if bomb
            else "Unpack it and zip it again without compression "
            "(zip -0), or save it again with torch.save.",
        )
    if total > size:
        raise CheckpointError(
            f"{path} is built like a zip bomb",
            why=f"its entries say that they hold {total:,} bytes, the file has {size:,}: they overlap, or "
            "lie about their size; nothing in it was unpacked",
            next_step=DO_NOT_LOAD,
        )
    pickled = sum(e.file_size for e in entries if e.filename.endswith("data.pkl"))
    if pickled > MAX_PICKLE:
        raise CheckpointError(
            f"{path} holds a pickle that is far too large for a list of tensors",
            why=f"its data.pkl has {pickled:,} bytes, and all of them would be read; the names and shapes of "
            "200,000 tensors take 40 million",
            next_step=CONVERT,
        )


def _refused(path: Path, text: str) -> CheckpointError:
    """Return the error for a pickle that torch refused, without torch's advice to allow what it asks for."""
    wanted = _globals_of(path)
    found = re.search(r"GLOBAL ([A-Za-z_][\w.]*)", text)
    if found and not wanted:
        wanted = [found[1]]
    if not wanted:
        return CheckpointError(
            f"{path} holds a pickle that is more than weights, or is damaged",
            why="torch's reader for weights refused an instruction in it; nothing in it was executed",
            next_step=CONVERT,
        )
    more = f" and {len(wanted) - 3} more" if len(wanted) > 3 else ""
    called = ", ".join(shorten(name, 80) for name in wanted[:3])
    return CheckpointError(
        f"{path} holds a pickle with code in it",
        why=f"loading it would call {called}{more}, which weights do not need; it was refused, "
        "and nothing in it was executed",
        next_step="Do not load it elsewhere unless you trust its sender. " + CONVERT,
    )


# What torch.save itself writes: these build tensors and dicts, and call nothing.
_HARMLESS = re.compile(
    r"torch\._(utils|tensor)\._?rebuild\w*|torch\.(\w+Storage|storage\.\w+|\w*float\w*|\w*int\d+\w*|bool|Size|device)"
    r"|torch\.nn\.parameter\.Parameter|collections\.OrderedDict"
)


def _globals_of(path: Path) -> list[str]:
    """Return what a pickle would import, by reading its instructions without following them."""
    found: dict[str, None] = {}
    texts: list[str] = []
    memo: list[str] = []
    try:
        with contextlib.ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(open(path, "rb"))
            if file.read(4) == b"PK\x03\x04":
                archive = stack.enter_context(zipfile.ZipFile(path))
                name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
                file = stack.enter_context(archive.open(name))  # stored as it is: `_check_sizes`
            else:
                file.seek(0)
            for instruction, argument, _ in itertools.islice(pickletools.genops(file), MOST_STEPS):
                if instruction.name in ("GLOBAL", "INST"):
                    found[str(argument).replace(" ", ".")] = None
                elif instruction.name == "STACK_GLOBAL":
                    found[".".join(texts[-2:])] = None
                elif instruction.name in ("BINGET", "LONG_BINGET", "GET") and isinstance(
                    argument, int
                ):
                    texts.append(memo[argument] if argument < len(memo) else "?")
                elif isinstance(argument, str):
                    texts.append(argument)
                if instruction.name == "MEMOIZE":
                    memo.append(texts[-1] if texts else "?")
                del texts[:-2]
                if len(found) > 100:
                    break
    except Exception:  # a damaged pickle: what was seen before the damage stands
        pass
    return [_plain(name) for name in found if not _HARMLESS.fullmatch(name)]


def _plain(name: str) -> str:
    """Return a function's name as one writes it: ``eval`` for Python 2's ``__builtin__.eval``."""
    return re.sub(r"^(__builtin__|builtins)\.", "", name)


def _reason(error: Exception) -> str:
    """Return the first line of what torch said, without its advice, which is meant for others."""
    first = (str(error).splitlines() or [""])[0]
    first = re.split(r"\(Could this|\bPlease\b|\bIf you (?:trust|open)", first)[0].strip()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


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
        if (long := max(tensors, key=len, default="")) and len(long) > MAX_NAME:
            raise CheckpointError(
                f"{label} holds a tensor with a name of {len(long):,} characters",
                why=f"{shown(long, 60)}; no real checkpoint has one of more than {MAX_NAME:,}",
                next_step=CONVERT,
            )
        if inner is None or len(tensors) > len(value[inner]):
            if not tensors:
                break
            if rest := len(value) - len(tensors):
                notes.append(f"{rest} entries that are not tensors were left out")
            return tensors, notes
        notes.append(f"the weights are under {inner!r}")
        value = value[inner]
    held = type(value).__name__
    if isinstance(value, Mapping):
        held = "a dict with " + (
            ", ".join(shown(key, 60) for key in list(value)[:5]) or "nothing in it"
        )
    raise CheckpointError(
        f"{label} holds no weights by name",
        why=f"torch.load gives {held}, not a dict of tensors",
        next_step="Save the module's state_dict().",
    )
