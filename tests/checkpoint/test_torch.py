"""PyTorch files: names, shapes and values, and never a call into what a pickle asks for."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import zipfile
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
    assert "not tensors were left out" in open_checkpoint(path).warnings[0]


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
        (b"hello", "like neither a zip nor a pickle"),
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


def archive(path: Path, entries: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


class Call:
    """Asks for a builtin to be called."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("1",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("what", ["eval", "posix.system"])
def test_what_a_pickle_would_call_is_named(what: str, protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    value = Call() if what == "eval" else {"a": Evil(trace), "b": Evil(trace)}
    data = pickle.dumps(value, protocol)
    path = archive(tmp_path / "x.pt", {"archive/data.pkl": data, "archive/version": b"3\n"})
    error = failure(path)
    assert f"would call {what}," in error.why
    assert "nothing in it was executed" in error.why
    assert "safe_globals" not in str(error)
    assert "file an issue" not in str(error)
    assert not trace.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
        b"\x80\x02(((",
        b"\x80\x02" + b"(" * 10**6 + b"t" * 10**6 + b".",
    ],
)
def test_damaged_pickles_bring_no_advice_of_torch(data: bytes, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.pt", {"archive/data.pkl": data, "archive/version": b"3\n"})
    message = str(failure(path))
    for advice in ("Please", "please", "Could this", "safe_globals", "weights_only"):
        assert advice not in message
    assert "version" in failure(archive(tmp_path / "y.pt", {"archive/data.pkl": data})).why


def test_zip_bombs_are_not_unpacked(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("archive/data.pkl", "w", force_zip64=True) as entry:
            for _ in range(512):
                entry.write(b"\0" * (1 << 20))
        file.writestr("archive/version", "3\n")
    error = failure(path)
    assert "zip bomb" in error.what
    assert "would unpack to 536,870,914" in error.why
    assert "never compresses" in error.why
    assert "Do not load" in error.next_step
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    torch.save(STATE, tmp_path / "small.pt")
    with zipfile.ZipFile(tmp_path / "small.pt") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    error = failure(archive(tmp_path / "packed.pt", entries, zipfile.ZIP_DEFLATED))
    assert "is a compressed zip" in error.what
    assert "zip -0" in error.next_step
    assert_state(archive(tmp_path / "stored.pt", entries))


def test_archives_that_lie(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "good.pt")
    data = (tmp_path / "good.pt").read_bytes()
    path = tmp_path / "x.pt"
    path.write_bytes(b"PK\x03\x04" + data)  # Python's reader moves the table, torch's does not
    assert "ambiguous" in failure(path).what
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", b"x" * 1000)
    lying = bytearray(path.read_bytes())
    at = lying.rfind(b"PK\x01\x02")
    for place in (20, 24):  # compressed and real size in the table of contents
        lying[at + place : at + place + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(lying)
    assert "holds 1,073,741,824 bytes" in failure(path).why.replace("they hold", "holds")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", b"x")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a/data.pkl", b"y")
    assert "ambiguous" in failure(path).what


def test_a_pickle_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.checkpoint.torch_zip.MAX_PICKLE", 100)
    torch.save(STATE, tmp_path / "x.pt")
    assert "far too large" in failure(tmp_path / "x.pt").what
    monkeypatch.setattr("workbench.checkpoint.torch_zip.MAX_LISTING", 10)
    assert "table of contents" in failure(tmp_path / "x.pt").why


def test_a_name_of_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"n" * 1_000_000: torch.ones(1)}, path)
    assert "1,000,000 characters" in failure(path).what
    torch.save({"n" * 1_000_000: 1}, path)
    assert len(str(failure(path))) < 1000
