"""What the scripts of the shipped case share: a clock, a log, safetensors without a library."""

from __future__ import annotations

import json
import lzma
import struct
import time
from pathlib import Path
from typing import Any

STARTED = time.monotonic()


class Deadline:
    """A time after which a script saves what it has.

    Parameters
    ----------
    seconds
        Counted from the start of the process.
    """

    def __init__(self, seconds: float) -> None:
        self.at = STARTED + seconds

    def left(self) -> float:
        """Return the seconds that are left (negative when over)."""
        return self.at - time.monotonic()


class Log:
    """Print lines with the time since the start, and keep them in a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, *words: object) -> None:
        """Write one line."""
        line = f"{time.monotonic() - STARTED:7.1f} s  " + " ".join(str(word) for word in words)
        print(line, flush=True)
        if self.path:
            with self.path.open("a") as file:
                file.write(line + "\n")


def read_tokens(path: Path) -> Any:
    """Return the token ids of a part of the corpus as a numpy array."""
    import numpy as np

    with lzma.open(path, "rb") as file:
        return np.load(file)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a JSON lines file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def write_json(path: Path, value: Any) -> None:
    """Write JSON that a person can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


NAMES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "int64": "I64",
    "bool": "BOOL",
    "int32": "I32",
}


def save_safetensors(
    path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors in safetensors' format: header, then data in the order of the names."""
    import torch

    header: dict[str, Any] = {"__metadata__": metadata or {"format": "pt"}}
    blobs, at = [], 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        blob = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        kind = NAMES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + len(blob)],
        }
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)


def load_safetensors(path: Path) -> dict[str, Any]:
    """Read a safetensors file of one's own into torch tensors."""
    import torch

    kinds = {short: getattr(torch, name) for name, short in NAMES.items()}
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + size + at for at in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[start:end]), dtype=torch.uint8)
        tensors[name] = flat.view(kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors
