"""Writing a repaired copy: bit-identical, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.checkpoint import write
from workbench.checkpoint.open import open_checkpoint
from workbench.checkpoint.write import write_renamed
from workbench.errors import WorkbenchError

TENSORS = {
    "layers.0.w": torch.tensor([float("nan"), -0.0, 1e-45, float("inf")]),
    "layers.1.w": torch.arange(6.0).bfloat16().reshape(2, 3),
    "norm": torch.ones(4).half(),
    "empty": torch.zeros(0, 2),
    "d2t": torch.arange(5),
    "e4m3": torch.tensor([1.0, float("nan")]).to(torch.float8_e4m3fn),
}
RENAMED = {"layers.0.w": "midlayer.w", "layers.1.w": "ä.w"}


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    return (
        tensor.dtype,
        tensor.shape,
        tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes(),
    )


@pytest.fixture
def single(tmp_path: Path) -> Path:
    folder = tmp_path / "single"
    folder.mkdir()
    save_file(TENSORS, folder / "model.safetensors", metadata={"format": "pt", "note": "ä"})
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("x")
    return folder


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = tmp_path / "sharded"
    folder.mkdir()
    weight_map = {}
    names = list(TENSORS)
    for part, held in enumerate((names[:2], names[2:4], names[4:]), start=1):
        file = f"model-{part:05d}-of-00003.safetensors"
        save_file({n: TENSORS[n] for n in held}, folder / file, metadata={"part": str(part)})
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    return folder


def assert_copied(out: Path, names: dict[str, str], drop: tuple[str, ...] = ()) -> None:
    expected = {names.get(n, n): t for n, t in TENSORS.items() if n not in drop}
    read: dict[str, torch.Tensor] = {}
    for file in out.glob("*.safetensors"):
        read |= load_file(file)  # the format's own reader
    assert set(read) == set(expected)
    for name, tensor in expected.items():
        assert bits(read[name]) == bits(tensor)
    checkpoint = open_checkpoint(out)
    assert set(checkpoint.names) == set(expected)
    assert checkpoint.warnings == ()


def assert_nothing(parent: Path, before: set[str]) -> None:
    assert set(os.listdir(parent)) == before


def test_single(single: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = write_renamed(open_checkpoint(single), out, RENAMED)
    assert_copied(out, RENAMED)
    assert written.tensors == len(TENSORS)
    assert written.nbytes == sum(t.numel() * t.element_size() for t in TENSORS.values())
    assert sorted(written.files) == sorted(os.listdir(out))
    assert set(os.listdir(out)) == {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "README.md",
    }
    assert open_checkpoint(out).metadata == {"format": "pt", "note": "ä"}
    assert json.loads((out / "config.json").read_text()) == {"model_type": "llama"}
    header = (out / "model.safetensors").read_bytes()[:8]
    assert int.from_bytes(header, "little") % 8 == 0
    umask = os.umask(0)
    os.umask(umask)
    assert out.stat().st_mode & 0o777 == 0o777 & ~umask


def test_sharded(sharded: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_renamed(open_checkpoint(sharded), out, RENAMED, drop=("norm",), config={"a": "ä"})
    assert_copied(out, RENAMED, drop=("norm",))
    assert json.loads((out / "config.json").read_text()) == {"a": "ä"}
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["midlayer.w"] == "model-00001-of-00003.safetensors"
    nbytes = sum(t.numel() * t.element_size() for n, t in TENSORS.items() if n != "norm")
    assert index["metadata"]["total_size"] == nbytes
    assert open_checkpoint(out).shard_metadata("model-00002-of-00003.safetensors") == {"part": "2"}


def test_whole_shard_dropped(sharded: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    drop = ("norm", "empty")
    write_renamed(open_checkpoint(sharded), out, {}, drop=drop)
    assert_copied(out, {}, drop)
    assert len(list(out.glob("*.safetensors"))) == 2


def test_names_swapped(single: Path, tmp_path: Path) -> None:
    names = {"layers.0.w": "layers.1.w", "layers.1.w": "layers.0.w"}
    write_renamed(open_checkpoint(single), tmp_path / "out", names)
    assert_copied(tmp_path / "out", names)


def test_into_an_empty_folder(single: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_renamed(open_checkpoint(single), str(tmp_path / "out"), {})
    assert_copied(tmp_path / "out", {})


def test_single_file_takes_only_its_own(single: Path, tmp_path: Path) -> None:
    (single / "notes.txt").write_text("private")
    write_renamed(open_checkpoint(single / "model.safetensors"), tmp_path / "out", {})
    assert set(os.listdir(tmp_path / "out")) == {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
    }


def test_what_is_left_behind(single: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (single / "leak.json").symlink_to(secret)
    torch.save({}, single / "training_args.bin")
    os.mkfifo(single / "pipe.json")
    (single / "sub").mkdir()
    written = write_renamed(open_checkpoint(single), tmp_path / "out", {})
    assert {name for name, _ in written.left} == {"leak.json", "training_args.bin", "pipe.json"}
    assert not set(os.listdir(tmp_path / "out")) & {"leak.json", "training_args.bin", "pipe.json"}


def test_a_cached_snapshot(single: Path, tmp_path: Path) -> None:
    repo = tmp_path / "models--org--name"
    snapshot = repo / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    for file in single.iterdir():
        file.rename(repo / "blobs" / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    write_renamed(open_checkpoint(snapshot), tmp_path / "out", RENAMED)
    assert_copied(tmp_path / "out", RENAMED)
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("names", "drop", "text"),
    [
        ({"ghost": "x"}, (), "no tensor 'ghost'"),
        ({}, ("ghost",), "no tensor 'ghost'"),
        ({"norm": "d2t"}, (), "two tensors would be named 'd2t'"),
        ({"norm": "x", "d2t": "x"}, (), "two tensors"),
        ({"norm": ""}, (), "cannot be the name"),
        ({"norm": "__metadata__"}, (), "cannot be the name"),
        ({"norm": "\ud800"}, (), "cannot be the name"),
        ({}, tuple(TENSORS), "nothing would be written"),
    ],
)
def test_bad_names(
    names: dict[str, str], drop: tuple[str, ...], text: str, single: Path, tmp_path: Path
) -> None:
    before = set(os.listdir(tmp_path))
    with pytest.raises(WorkbenchError, match=text):
        write_renamed(open_checkpoint(single), tmp_path / "out", names, drop=drop)
    assert_nothing(tmp_path, before)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("single", "which is examined"),
        ("single/out", "which is examined"),
        ("single/../single/out", "which is examined"),
        ("link/out", "which is examined"),
        ("full", "not empty"),
        ("file", "not a folder"),
        ("absent/out", "there is no folder"),
    ],
)
def test_bad_out(place: str, text: str, single: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(single)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "file").write_text("")
    before, inside = set(os.listdir(tmp_path)), set(os.listdir(single))
    with pytest.raises(WorkbenchError, match=text):
        write_renamed(open_checkpoint(single), tmp_path / place, {})
    assert_nothing(tmp_path, before)
    assert_nothing(single, inside)


def test_pytorch_input(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pt")
    with pytest.raises(WorkbenchError, match="PyTorch file") as caught:
        write_renamed(open_checkpoint(tmp_path / "x.pt"), tmp_path / "out", {})
    assert "Convert" in caught.value.next_step


def fails(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), PermissionError(13, "Permission denied")],
)
@pytest.mark.parametrize(
    "where", ["_write_all", "_write_index", "_copy_other_files", "_check_written"]
)
def test_failure_leaves_nothing(
    error: OSError, where: str, sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir(tmp_path))
    monkeypatch.setattr(write, where, fails(error))
    with pytest.raises(WorkbenchError) as caught:
        write_renamed(open_checkpoint(sharded), tmp_path / "out", {})
    assert caught.value.why == error.strerror
    assert_nothing(tmp_path, before)


def test_interrupt_leaves_nothing(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir(tmp_path))
    monkeypatch.setattr(write, "_write_index", fails(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write_renamed(open_checkpoint(sharded), tmp_path / "out", {})
    assert_nothing(tmp_path, before)


def test_full_disk_is_seen_before(
    single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 3

    monkeypatch.setattr(write.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(WorkbenchError, match="3 are free"):
        write_renamed(open_checkpoint(single), tmp_path / "out", {})


def test_a_source_that_changes(single: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(single)
    before = set(os.listdir(tmp_path))
    file = single / "model.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(WorkbenchError, match="cut short"):
        write_renamed(checkpoint, tmp_path / "out", {})
    save_file({"other": torch.ones(3)}, file)
    with pytest.raises(WorkbenchError, match="has changed"):
        write_renamed(checkpoint, tmp_path / "out", {})
    assert_nothing(tmp_path, before)


def test_a_faulty_disk(single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read back is compared: a flipped bit does not pass."""
    sync = os.fsync

    def flip(handle: int) -> None:
        sync(handle)
        if os.fstat(handle).st_mode & 0o100000 and os.fstat(handle).st_size > 100:
            os.pwrite(handle, b"\x55", os.fstat(handle).st_size - 1)

    monkeypatch.setattr(write.os, "fsync", flip)
    with pytest.raises(WorkbenchError, match="read back differs"):
        write_renamed(open_checkpoint(single), tmp_path / "out", {})


def test_repair_of_a_synthetic_kimi(root: Path, tmp_path: Path) -> None:
    from benchmarks.kimi_like import SMALL
    from benchmarks.kimi_like import write as write_kimi

    count = write_kimi(tmp_path / "kimi", SMALL, shards=4)
    checkpoint = open_checkpoint(tmp_path / "kimi")
    assert len(checkpoint) == count
    names = {name: name.removeprefix("language_model.") for name in checkpoint.names}
    written = write_renamed(checkpoint, tmp_path / "out", names)
    assert written.tensors == count
    again = open_checkpoint(tmp_path / "out")
    assert set(again.names) == set(names.values())
    assert again.quantization.format == checkpoint.quantization.format
