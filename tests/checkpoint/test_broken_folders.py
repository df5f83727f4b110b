"""Folders of which a part is absent, wrong or not ours to read."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.checkpoint.test_open import (
    assert_whole,
    edit_index,
    failure,
    write_sharded,
    write_single,
)
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import CheckpointError


def test_nothing_there(tmp_path: Path) -> None:
    assert "no such file" in failure(tmp_path / "absent").why
    assert "no files" in failure(tmp_path).why
    (tmp_path / "checkpoint-10").mkdir()
    assert "checkpoint-10" in failure(tmp_path).why
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "GGUF" in failure(tmp_path).why
    assert "GGUF" in failure(tmp_path / "model.gguf").why
    assert failure("").what
    assert failure("a\0b").what
    np.save(tmp_path / "a.npy", np.ones(3))
    assert "NumPy" in failure(tmp_path / "a.npy").why


def test_index_names_absent_shard(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    error = failure(folder)
    assert "model-00002-of-00002.safetensors" in error.what
    assert "4 of 7 tensors" in error.why


def test_part_absent_without_index(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, index=False)
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert "no part 1" in failure(folder).why


def test_index_names_absent_key(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    edit_index(folder, lambda m: m.update({"ghost": "model-00001-of-00002.safetensors"}))
    error = failure(folder)
    assert "ghost" in error.what


def test_index_lacks_a_key(tmp_path: Path) -> None:
    """Engines load such a key anyway, so it is a warning."""
    folder = write_sharded(tmp_path)
    edit_index(folder, lambda m: m.pop("d2t") and None)
    checkpoint = open_checkpoint(folder)
    assert_whole(checkpoint)
    assert "d2t" in checkpoint.warnings[0]
    assert "warning: " in repr(checkpoint)


def test_index_says_another_shard(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    edit_index(folder, lambda m: m.update({"d2t": "model-00001-of-00002.safetensors"}))
    assert "another file" in open_checkpoint(folder).warnings[0]


def test_file_outside_the_index(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    save_file({"stray": torch.ones(1)}, folder / "stray.safetensors")
    checkpoint = open_checkpoint(folder)
    assert_whole(checkpoint)
    assert "stray.safetensors" in checkpoint.warnings[0]


def test_duplicate_across_shards(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, index=False)
    save_file({"d2t": torch.ones(1)}, folder / "extra.safetensors")
    error = failure(folder)
    assert "'d2t' is in two files" in error.what
    assert "extra.safetensors" in error.what


@pytest.mark.parametrize(
    "name",
    ["../evil.safetensors", "/etc/passwd", "a/../../b.safetensors", "..", "", "a\\b", "a\0b"],
)
def test_index_leads_out(name: str, tmp_path: Path) -> None:
    folder = write_sharded(tmp_path / "model")
    save_file({"d2t": torch.ones(1)}, tmp_path / "evil.safetensors")
    edit_index(folder, lambda m: m.update({"d2t": name}))
    assert "not inside its folder" in failure(folder).what


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("{}", "weight_map"),
        ('{"weight_map": {}}', "names no tensors"),
        ('{"weight_map": []}', "not an index"),
        ('{"weight_map": {"a": 1}}', "not an index"),
        ('{"weight_map": {"a": {"b": "c"}}}', "not an index"),
        ('{"weight_map": {"a": "b"', "not an index"),
        ("version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ("<html></html>", "web page"),
        ("[" * 100_000, "not an index"),
        ('{"weight_map": {"a": "x", "b": ["c", "d"]}}', "not an index"),
    ],
)
def test_broken_index(text: str, expected: str, tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    (folder / "model.safetensors.index.json").write_text(text)
    assert expected in str(failure(folder))


def test_index_in_any_writing(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    for text in (
        json.dumps(index),
        json.dumps(index, separators=(",", ":")),
        json.dumps(index, indent=4).replace('": "', '" :\t"'),
        json.dumps({"weight_map": index["weight_map"]}),
        json.dumps(index).replace("d2t", "d\\u0032t"),
    ):
        path.write_text(text)
        assert open_checkpoint(folder).warnings == ()
    twice = '"d2t": "model-00001-of-00002.safetensors", "d2t"'
    path.write_text(json.dumps(index).replace('"d2t"', twice))
    assert "more than once" in open_checkpoint(folder).warnings[0]


def test_index_with_hundreds_of_thousands_of_entries(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path)
    shard = "model-00001-of-00002.safetensors"
    edit_index(folder, lambda m: m.update({f"ghost.{i}": shard for i in range(300_000)}))
    assert "300,000 tensors" in failure(folder).what


def test_links(tmp_path: Path) -> None:
    outside = write_single(tmp_path / "outside") / "model.safetensors"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(outside)
    error = failure(folder)
    assert "leads out" in error.what
    assert str(outside) in error.why
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("nowhere")
    assert "cannot read" in failure(folder).what
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("model.safetensors")
    assert "cannot read" in failure(folder).what
    (folder / "model.safetensors").unlink()
    write_single(folder / "inner")
    (folder / "model.safetensors").symlink_to("inner/model.safetensors")
    assert_whole(open_checkpoint(folder))
    (folder / "config.json").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match="leads out"):
        _ = open_checkpoint(folder).config


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert "FIFO" in failure(tmp_path / "model.safetensors").why
    assert "FIFO" in failure(tmp_path).why
    assert "device" in failure("/dev/null").why
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.bin"))
        assert "socket" in failure(tmp_path / "s.bin").why
    folder = tmp_path / "sharded"
    write_sharded(folder)
    (folder / "model-00001-of-00002.safetensors").unlink()
    (folder / "model-00001-of-00002.safetensors").mkdir()
    assert "directory" in failure(folder).why


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A folder of somebody who is not root, as whom the test runs: root may read everything."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


def test_permission(ordinary_user: Path) -> None:
    folder = write_single(ordinary_user / "model")
    file = folder / "model.safetensors"
    file.chmod(0)
    for place in (file, folder):
        assert failure(place).why == "Permission denied"
    (folder / "x.pt").write_bytes(b"PK")
    (folder / "x.pt").chmod(0)
    assert failure(folder / "x.pt").why == "Permission denied"
    folder.chmod(0)
    for place in (file, folder):
        assert failure(place).why == "Permission denied"
    folder.chmod(0o700)
