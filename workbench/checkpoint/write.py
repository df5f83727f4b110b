"""Writing a repaired copy of a safetensors checkpoint: new headers, the same bytes, whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint import overlay as links
from workbench.checkpoint.columns import Ints
from workbench.checkpoint.header_columns import Specs
from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.safetensors import MAX_HEADER, read_header
from workbench.checkpoint.sources import LocalFile
from workbench.core.outputs import check_folder
from workbench.errors import CheckpointError, WorkbenchError, shown

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint

CHUNK = 8 << 20
# Small files that belong to a model beside its weights. Pickles are not among them: a copy is no place to
# carry code along unseen.
_BESIDE = {
    ".json", ".jsonl", ".txt", ".model", ".jinja", ".md", ".tiktoken", ".py", ".yaml", ".yml", ".spm",
    ".vocab", ".bpe",
}  # fmt: skip
_BESIDE_NAMES = {"LICENSE", "NOTICE", "merges", "vocab"}
_BESIDE_MAX = 256 << 20
# Of the folder of a single file only what is surely meant for it.
_OF_A_FILE = (
    "config.json",
    "generation_config.json",
    "tokenizer",
    "special_tokens_map.json",
    "chat_template",
)


@dataclasses.dataclass(frozen=True)
class Written:
    """What was written.

    Attributes
    ----------
    folder
        Where.
    files
        Names of all files, weights first.
    left
        Names of files of the source that were left behind, and why.
    tensors
        Number of tensors.
    nbytes
        Bytes of tensor data, each compared with the source after writing.
    """

    folder: Path
    files: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    tensors: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A run of tensors that lie side by side in a source file."""

    begin: int
    end: int


def write_renamed(
    ckpt: Checkpoint,
    out_folder: str | os.PathLike[str],
    names: Mapping[str, str],
    *,
    config: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
    overlay: bool = False,
) -> Written:
    """Write a copy of a checkpoint under other tensor names; the data is copied and then compared.

    The copy is built in a hidden folder beside `out_folder` and moved there at the end: a crash, a full
    disk or an interrupt leaves nothing. Shards keep their names and their ``__metadata__``; the index is
    written anew; tokenizer and other small files are copied, links out of the folder and pickles are not.

    Parameters
    ----------
    ckpt
        A safetensors checkpoint on this machine.
    out_folder
        The folder to write: absent or empty, and not inside the source.
    names
        Old name -> new name. Tensors that it does not name keep theirs.
    config
        The config.json to write; None copies the source's.
    drop
        Names (old ones) of tensors to leave out.
    overlay
        Give shards in which nothing changes a second name (a hard link). Of the others only the header is
        new: the kernel copies the data, or shares its blocks where it can; it is not read back.

    Returns
    -------
    Written
        What was written, and what was left behind.

    Raises
    ------
    WorkbenchError
        The source is no local safetensors checkpoint, a name is unknown or would be there twice, the folder
        is not empty, the disk is full. Nothing is left behind.
    """
    _check_source(ckpt)
    new_names = _new_names(ckpt.table, names, set(drop))
    out = check_out(ckpt, out_folder)
    kept = np.array([name is not None for name in new_names], dtype=bool)
    nbytes = int((ckpt.table.end - ckpt.table.begin)[kept].sum())
    with _building(out, 0 if overlay else nbytes) as temporary:
        weights, weight_map = _write_weights(ckpt, new_names, temporary, overlay)
        if len(weights) > 1 or ckpt.index_name:
            _write_index(temporary, ckpt.index_name, weight_map, nbytes)
        left = _copy_other_files(ckpt, temporary)
        if config is not None:
            text = json.dumps(dict(config), indent=2, ensure_ascii=False)
            (temporary / "config.json").write_text(text + "\n", encoding="utf-8")
        _check_written(ckpt, new_names, temporary)
        found = (path.relative_to(temporary).as_posix() for path in temporary.rglob("*"))
        others = sorted(name for name in found if (temporary / name).is_file())
    files = (*weights, *(name for name in others if name not in set(weights)))
    return Written(out, files, tuple(left), int(kept.sum()), nbytes)


# --- what may be written where ---------------------------------------------------------------------


def _check_source(ckpt: Checkpoint) -> None:
    what = f"cannot write a repaired copy of {ckpt.source}"
    if ckpt.form != "safetensors":
        raise WorkbenchError(
            what,
            why="it is a PyTorch file, whose names are inside a pickle",
            next_step="Convert it to safetensors first (safetensors.torch.save_file), then repair that.",
        )
    if any(source.local is None for source in ckpt.sources):
        raise WorkbenchError(
            what, why="it is on another machine", next_step="Download it and give its path."
        )


def _new_names(
    table: TensorTable, names: Mapping[str, str], drop: Collection[str]
) -> list[str | None]:
    """Return the new name of each tensor, None for a dropped one."""
    unknown = [name for name in (*names, *drop) if name not in table]
    if unknown:
        raise WorkbenchError(
            f"the checkpoint has no tensor {shown(unknown[0])}",
            why=f"{len(unknown)} of the names to change or drop are not in it",
            next_step="Give names as they are in the checkpoint.",
        )
    new = [None if name in drop else names.get(name, name) for name in table.names]
    seen: dict[str, str] = {}
    for old, name in zip(table.names, new, strict=True):
        if name is None:
            continue
        if not isinstance(name, str) or not name or name == "__metadata__":
            raise WorkbenchError(
                f"{shown(name)} cannot be the name of a tensor",
                why=f"given for {shown(old)}",
                next_step="Give a name that is text, not empty, and not __metadata__.",
            )
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise WorkbenchError(
                f"{shown(name)} cannot be the name of a tensor",
                why="it holds half a character, which no encoding has",
                next_step="Give a name that is text.",
            ) from None
        other = seen.setdefault(name, old)
        if other != old:
            raise WorkbenchError(
                f"two tensors would be named {shown(name)}",
                why=f"{shown(other)} and {shown(old)} both would",
                next_step="Drop one of the two, or choose another name for it.",
            )
    if not seen:
        raise WorkbenchError(
            "nothing would be written",
            why="all tensors are dropped",
            next_step="Drop fewer tensors.",
        )
    return new


def check_out(ckpt: Checkpoint, out: str | os.PathLike[str], *, target: object = None) -> Path:
    """Check the folder of a copy before any work; return its absolute path.

    Parameters
    ----------
    ckpt, target
        What is examined: nothing is written into their folders. A target that is no path is passed over.

    Raises
    ------
    WorkbenchError
        It is not empty, cannot be made, or lies inside the source or the target.
    """
    places: list[str | os.PathLike[str] | None] = [
        Path(source.local).resolve().parent for source in ckpt.sources if source.local is not None
    ]
    of_target = getattr(target, "folder", target)
    places += [ckpt.folder, of_target if isinstance(of_target, str | os.PathLike) else None]
    return check_folder(out, examined=places)


@contextmanager
def _building(out: Path, nbytes: int) -> Iterator[Path]:
    """Give a hidden folder beside `out`, and move it there when all went well."""
    temporary: Path | None = None
    try:
        free = shutil.disk_usage(out.parent).free
        if free < nbytes:
            raise WorkbenchError(
                f"cannot write to {out}",
                why=f"{nbytes:,} bytes are needed, {free:,} are free there",
                next_step="Free some space, or choose another disk.",
            )
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        os.rename(temporary, out)  # takes the place of an empty folder, never of a full one
        _sync(out.parent)
    except OSError as error:
        raise _failed(out, error) from None
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def _failed(out: Path, error: OSError) -> WorkbenchError:
    return WorkbenchError(
        f"cannot write to {out}",
        why=error.strerror or str(error),
        next_step="Free some space, or choose a folder that you may write to.",
    )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- weights ---------------------------------------------------------------------------------------


def _write_weights(
    ckpt: Checkpoint, new_names: list[str | None], folder: Path, overlay: bool
) -> tuple[list[str], dict[str, str]]:
    """Write the shards; return their names, and new name -> shard."""
    table = ckpt.table
    weight_map: dict[str, str] = {}
    written = []
    for code, shard in enumerate(table.shards):
        rows = np.flatnonzero(table.shard == code)
        rows = rows[np.lexsort((table.end[rows], table.begin[rows]))]
        kept = [int(row) for row in rows if new_names[row] is not None]
        if not kept:
            continue
        source = ckpt.sources[code].local
        assert source is not None
        _check_unchanged(source, table, np.flatnonzero(table.shard == code))
        header, pieces = _new_header(table, new_names, kept, ckpt.shard_metadata(shard))
        target = folder / shard
        target.parent.mkdir(parents=True, exist_ok=True)
        same = all(new_names[row] == table.names[row] for row in rows.tolist())
        if not overlay or not _shared(source, target, header, pieces, same):
            _write_shard(source, target, header, pieces)
        written.append(shard)
        weight_map |= {name: shard for row in kept if (name := new_names[row]) is not None}
    return written, weight_map


def _check_unchanged(source: Path, table: TensorTable, rows: Ints) -> None:
    """Check that a file still has the header that it was opened with: bytes are copied by it."""
    header = read_header(LocalFile(source), Specs())
    same = (
        header.names == [table.names[row] for row in rows]
        and (header.begin == table.begin[rows]).all()
        and (header.end == table.end[rows]).all()
    )
    if not same:
        raise CheckpointError(
            f"{source} has changed since it was opened",
            next_step="Open the checkpoint again when the writer is done.",
        )


def _new_header(
    table: TensorTable,
    new_names: list[str | None],
    rows: list[int],
    metadata: Mapping[str, str],
) -> tuple[bytes, list[_Piece]]:
    """Return the header of the new file, with its length before it, and the runs of data to copy."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    pieces: list[_Piece] = []
    at = 0
    for row in rows:
        name = new_names[row]
        assert name is not None
        begin, end = int(table.begin[row]), int(table.end[row])
        entries[name] = {
            "dtype": table.dtypes[table.dtype[row]],
            "shape": list(table.shapes[table.shape[row]]),
            "data_offsets": [at, at + end - begin],
        }
        at += end - begin
        if pieces and pieces[-1].end == begin:
            pieces[-1] = _Piece(pieces[-1].begin, end)
        else:
            pieces.append(_Piece(begin, end))
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (
        -len(text) % 8
    )  # data begins at a multiple of 8, as the format's own writer has it
    if len(text) > MAX_HEADER:
        raise WorkbenchError(
            "the new header would be too long",
            why=f"{len(text):,} bytes; the format allows {MAX_HEADER:,}",
            next_step="Use shorter names.",
        )
    return len(text).to_bytes(8, "little") + text, pieces


def _write_shard(source: Path, target: Path, header: bytes, pieces: list[_Piece]) -> None:
    """Write header and data, then read the data back and compare."""
    with open(source, "rb", buffering=0) as old, open(target, "xb", buffering=0) as new:
        _write_all(new, header)
        copied = hashlib.blake2b()
        for piece in pieces:
            for chunk in _chunks(old, piece.begin, piece.end, source):
                copied.update(chunk)
                _write_all(new, chunk)
        new.flush()
        os.fsync(new.fileno())
        if hasattr(os, "posix_fadvise"):  # read back what is on the disk, not what is in memory
            os.posix_fadvise(new.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        length = sum(piece.end - piece.begin for piece in pieces)
    with open(target, "rb", buffering=0) as new:
        read = hashlib.blake2b()
        for chunk in _chunks(new, len(header), len(header) + length, target):
            read.update(chunk)
    if read.digest() != copied.digest():
        raise WorkbenchError(
            f"{target.name} read back differs from what was written",
            why="the disk or the memory of this machine is faulty",
            next_step="Write to another disk, and check this one.",
        )


def _shared(source: Path, target: Path, header: bytes, pieces: list[_Piece], same: bool) -> bool:
    """Link a shard that is the same, else let the kernel copy its data; False where that cannot be done."""
    try:
        if same:
            links.link(source, target)
            return True
        links.write_shard(source, target, header, [(p.begin, p.end) for p in pieces])
    except OSError as error:
        target.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise
        return False
    return True


def _write_all(file: IO[bytes], data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _chunks(file: IO[bytes], begin: int, end: int, path: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(CHUNK, max(end - begin, 1))))
    file.seek(begin)
    while begin < end:
        number = file.readinto(buffer[: min(len(buffer), end - begin)])  # type: ignore[attr-defined]
        if not number:
            raise CheckpointError(
                f"{path} is shorter than when it was opened",
                why=f"it ends {end - begin:,} bytes too early",
                next_step="Open the checkpoint again when the writer is done.",
            )
        yield buffer[:number]
        begin += number


def _write_index(folder: Path, name: str, weight_map: Mapping[str, str], nbytes: int) -> None:
    index = {
        "metadata": {"total_size": nbytes},
        "weight_map": dict(sorted(weight_map.items())),
    }
    text = json.dumps(index, indent=2, ensure_ascii=False)
    path = folder / (name or "model.safetensors.index.json")
    path.write_text(text + "\n", encoding="utf-8")


# --- the rest --------------------------------------------------------------------------------------


def _copy_other_files(ckpt: Checkpoint, folder: Path) -> list[tuple[str, str]]:
    """Copy the small files beside the weights; return what was left, and why."""
    place = ckpt.local_folder
    if place is None:
        return []
    weights = {source.name for source in ckpt.sources}
    left = []
    for name in place.names():
        if (
            name in weights
            or name.endswith((".safetensors", ".index.json"))
            or name.startswith(".")
        ):
            continue
        if ckpt.is_single_file and not name.startswith(_OF_A_FILE):
            continue
        if Path(name).suffix not in _BESIDE and name not in _BESIDE_NAMES:
            left.append((name, "not a kind of file that a repaired copy needs"))
            continue
        try:
            file = place.open(name)
            size = file.size
        except CheckpointError as error:
            left.append((name, error.why or error.what))
            continue
        if size > _BESIDE_MAX:
            left.append((name, f"{size:,} bytes"))
            continue
        shutil.copyfile(file.path, folder / name)
    return left


_REPORT = "Nothing was kept. Try another disk; if it stays so, report this message."


def _check_written(ckpt: Checkpoint, new_names: list[str | None], folder: Path) -> None:
    """Read the new headers and compare every tensor with the one it was."""
    table = ckpt.table
    expected = {
        name: (table.dtypes[table.dtype[row]], table.shapes[table.shape[row]])
        for row, name in enumerate(new_names)
        if name is not None
    }
    for shard in table.shards:
        if not (folder / shard).exists():
            continue
        specs = Specs()
        header = read_header(LocalFile(folder / shard), specs)
        kinds = list(specs.codes)
        for name, code in zip(header.names, header.spec.tolist(), strict=True):
            if expected.pop(name, None) != kinds[code]:
                raise WorkbenchError(
                    f"{shard} was written wrongly: {shown(name)} differs from its source",
                    next_step=_REPORT,
                )
    if expected:
        raise WorkbenchError(
            f"the copy lacks {len(expected):,} tensors, such as {shown(next(iter(expected)))}",
            next_step=_REPORT,
        )
