"""PyTorch files: names, shapes and values, and never a call into what a pickle asks for."""

from __future__ import annotations

import argparse
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workbench.checkpoint.open import open_checkpoint
from workbench.errors import CheckpointError

STATE = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "b": torch.ones(2, dtype=torch.bfloat16),
    "mask": torch.tensor([True, False]),
    "e4m3": torch.ones(2).to(torch.float8_e4m3fn),
}


class Evil:
    """Asks for a command to be run when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trace}",)


def failure(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert str(path) in caught.value.what
    assert caught.value.next_step
    return caught.value


def assert_state(path: Path, state: dict[str, torch.Tensor] = STATE) -> None:
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.names) == list(state)
        dtypes = ["F32", "BF16", "BOOL", "F8_E4M3"]
        assert [info.dtype for info in checkpoint.table] == dtypes[: len(state)]
        for name, tensor in state.items():
            assert checkpoint[name].shape == tuple(tensor.shape)
            assert torch.equal(checkpoint.tensor(name), tensor)
        assert checkpoint.tensor("a.weight", (slice(1, 2), 3)).tolist() == [7.0]
        assert checkpoint.numpy("a.weight").sum() == 66
        with pytest.raises(CheckpointError, match="shape"):
            checkpoint.tensor("a.weight", 9)
        with pytest.raises(CheckpointError, match="BF16"):
            checkpoint.numpy("b")
    with pytest.raises(CheckpointError, match="closed"):
        checkpoint.tensor("b")


@pytest.mark.parametrize("key", ["", "model", "state_dict", "module", "model_state_dict"])
def test_where_trainers_put_it(key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({key: STATE, "epoch": 3, "loss": torch.tensor(1.0)} if key else STATE, path)
    assert_state(path)


def test_other_values_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    torch.save(STATE | {"version": 1}, path)
    assert_state(path)
    assert "no tensors were left out" in open_checkpoint(path).warnings[0]


def test_old_format(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    # torch's own reader of this format does not know the 8-bit floats.
    state = {name: tensor for name, tensor in STATE.items() if name != "e4m3"}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    assert_state(path, state)


def test_folders(tmp_path: Path) -> None:
    names = list(STATE)
    torch.save(
        {name: STATE[name] for name in names[:2]}, tmp_path / "pytorch_model-00001-of-00002.bin"
    )
    torch.save(
        {name: STATE[name] for name in names[2:]}, tmp_path / "pytorch_model-00002-of-00002.bin"
    )
    torch.save({"lr": 1}, tmp_path / "optimizer.pt")
    torch.save({"a": 1}, tmp_path / "training_args.bin")
    assert_state(tmp_path)
    weight_map = {n: f"pytorch_model-0000{1 + (i > 1)}-of-00002.bin" for i, n in enumerate(names)}
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_state(tmp_path)
    assert_state(index)
    index.write_text(json.dumps({"weight_map": weight_map | {"ghost": weight_map["b"]}}))
    with pytest.raises(CheckpointError, match="ghost"):
        open_checkpoint(tmp_path)


def test_code_is_refused_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    torch.save({"a": Evil(trace)}, tmp_path / "zip.pt")
    torch.save({"a": Evil(trace)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "bare.bin").write_bytes(pickle.dumps({"a": Evil(trace)}))
    (tmp_path / "bare2.bin").write_bytes(pickle.dumps({"a": Evil(trace)}, protocol=2))
    for name in ("zip.pt", "old.pt", "bare.bin", "bare2.bin"):
        error = failure(tmp_path / name)
        assert "posix.system" in error.why
        assert "nothing in it was executed" in error.why.replace("and nothing", "nothing")
        assert not trace.exists()


def test_trainer_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"state_dict": STATE, "args": argparse.Namespace(lr=1)}, path)
    assert "argparse.Namespace" in failure(path).why
    torch.save(torch.nn.Linear(2, 2), path)
    assert "Linear" in failure(path).why


def test_what_is_no_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    for value, why in (
        ([1, 2], "list"),
        ({}, "nothing in it"),
        ({"a": 1}, "'a'"),
        (torch.ones(1), "Tensor"),
    ):
        torch.save(value, path)
        assert why in failure(path).why


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    for data, text in (
        (b"", "is empty"),
        (b"hello", "neither like a zip nor like a pickle"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"<html>", "web page"),
        (b"GGUF\0\0\0\0", "GGUF"),
        (b"PK\x03\x04" + b"\0" * 50, "no readable table of contents"),
        (b"\x80\x02}q", "x.pt"),
        (b"\x80\x02" + b"\xff" * 30, "x.pt"),
    ):
        path.write_bytes(data)
        assert text in str(failure(path))
    np.savez(tmp_path / "y.npz", a=np.ones(2))
    (tmp_path / "y.npz").rename(path)
    assert "NumPy archive" in failure(path).why
    torch.save(STATE, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "table of contents" in failure(path).why


def test_torchscript(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"")
        archive.writestr("m/constants.pkl", b"")
        archive.writestr("m/code/__torch__.py", b"")
    assert "TorchScript" in failure(path).what
