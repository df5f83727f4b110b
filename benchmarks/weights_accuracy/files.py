"""Weights out of the files that packages ship: ONNX, PyTorch, Keras, NumPy, pickles of arrays."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.weights_accuracy.onnx_file import read_onnx

Array = np.ndarray[Any, Any]

_SKIPPED = ("optimizer", "Adam", "moving_", "num_batches", "running_")
_STATES = ("model_state_dict", "model_state", "state_dict", "model", "net", "module")


def tensors_of(path: Path) -> dict[str, Array]:
    """Return the arrays of a file by name; of Keras kernels the outputs come first, as in PyTorch."""
    name = path.name
    if name.endswith(".onnx"):
        return read_onnx(path)
    if name.endswith((".h5", ".hdf5")):
        return dict(_keras(path))
    if name.endswith(".keras"):
        with zipfile.ZipFile(path) as archive:
            return dict(_keras(io.BytesIO(archive.read("model.weights.h5"))))
    if name.endswith((".pkl", ".pkl.gz")):
        raw = path.read_bytes()
        return dict(
            _arrays(
                _Arrays(io.BytesIO(gzip.decompress(raw) if name.endswith(".gz") else raw)).load()
            )
        )
    if name.endswith(".tar"):
        return dict(_slovnet(path))
    return dict(_arrays(_state(path)))


class _Arrays(pickle.Unpickler):
    """Reads pickles of NumPy arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".", maxsplit=1)[0] == "numpy" and name in (
            "_reconstruct",
            "ndarray",
            "dtype",
            "scalar",
        ):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def _state(path: Path) -> Any:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError):
        found = _tensors_only(path)
    for key in _STATES:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    return found


def _tensors_only(path: Path) -> Any:
    """Load a checkpoint whose other objects are replaced by empty ones."""
    import torch

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (
                module.split(".", maxsplit=1)[0] in ("torch", "collections", "numpy")
                and "load" not in name
            ):
                return super().find_class(module, name)
            return _Nothing

    class Module:
        Unpickler = Reader
        load = staticmethod(pickle.load)

    return torch.load(path, map_location="cpu", weights_only=False, pickle_module=Module)


class _Nothing(dict):  # type: ignore[type-arg]
    """What stands for an object that holds no tensor."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        """Take any state."""


def _arrays(found: Any, prefix: str = "") -> Iterator[tuple[str, Array]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            if not any(word in str(key) for word in _SKIPPED):
                yield from _arrays(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(found, list | tuple):
        for at, value in enumerate(found):
            yield from _arrays(value, f"{prefix}.{at}")
    elif isinstance(found, np.ndarray):
        yield prefix, found
    elif (
        hasattr(found, "detach")
        and found.layout.__str__() == "torch.strided"
        and not found.is_quantized
    ):
        value = found.detach()
        yield prefix, value.float().numpy() if value.is_floating_point() else value.numpy()


def _keras(path: Any) -> Iterator[tuple[str, Array]]:
    import h5py  # type: ignore[import-not-found]

    found: dict[str, Array] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not any(word in name for word in _SKIPPED):
            found[name] = np.asarray(item)

    with h5py.File(path) as file:
        file.visititems(take)
    for name, values in found.items():
        # [*kernel, in, out] of Keras is [out, in, *kernel] of PyTorch.
        axes = (values.ndim - 1, values.ndim - 2, *range(values.ndim - 2))
        yield name, values.transpose(axes) if values.ndim > 1 else values


def _slovnet(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a tar of raw arrays, with shapes in its description."""
    with tarfile.open(path) as archive:
        inside = {member.name.rsplit("/", 1)[-1]: member for member in archive.getmembers()}

        def read(name: str) -> bytes:
            file = archive.extractfile(inside[name])
            assert file is not None
            return file.read()

        model = json.loads(read("model.json"))
        for where, about in _described(model, ""):
            if "array" not in about:
                continue  # kept elsewhere
            data = read(f"{about['array']}.bin")
            values = np.frombuffer(data, np.dtype(about["dtype"]))
            yield where, values.reshape(about["shape"])


def _described(model: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(model, dict):
        if {"shape", "dtype"} <= set(model):
            yield where, model
        else:
            for key, value in model.items():
                yield from _described(value, f"{where}.{key}" if where else key)
    elif isinstance(model, list):
        for at, value in enumerate(model):
            yield from _described(value, f"{where}.{at}")
