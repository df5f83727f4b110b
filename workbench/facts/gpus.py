"""GPUs by name: who makes them, and their compute capability."""

from __future__ import annotations

import dataclasses
import re

from workbench.errors import WorkbenchError, shown

_NVIDIA = {
    "V100": (7, 0), "T4": (7, 5),
    "A100": (8, 0), "A800": (8, 0), "A30": (8, 0), "A10": (8, 6), "A10G": (8, 6), "A40": (8, 6),
    "RTX3090": (8, 6), "A6000": (8, 6), "L4": (8, 9), "L20": (8, 9), "L40": (8, 9), "L40S": (8, 9),
    "RTX4090": (8, 9),
    "H20": (9, 0), "H100": (9, 0), "H200": (9, 0), "H800": (9, 0), "GH200": (9, 0),
    "B100": (10, 0), "B200": (10, 0), "GB200": (10, 0), "B300": (10, 3), "GB300": (10, 3),
    "RTX5090": (12, 0), "RTXPRO6000": (12, 0), "GB10": (12, 1),
}  # fmt: skip
_AMD = ("MI210", "MI250", "MI250X", "MI300A", "MI300X", "MI308X", "MI325X", "MI350X", "MI355X")


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU; `capability` is None for one that is not NVIDIA's."""

    name: str
    maker: str
    capability: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Return it as a sentence names it."""
        if self.capability is None:
            return f"{self.maker} {self.name}"
        return f"{self.name} (compute capability {self.capability[0]}.{self.capability[1]})"


def gpu_of(text: object) -> Gpu:
    """Return the GPU of a name or a compute capability: ``H200``, ``8x H100``, ``9.0``, ``sm_90``.

    Raises
    ------
    WorkbenchError
        No GPU of that name is known here.
    """
    if not isinstance(text, str):
        raise _unknown(text)
    plain = re.sub(r"(?i)^\s*\d+\s*x\s*|nvidia|amd|instinct|geforce|tesla|[\s_-]", "", text).upper()
    number = re.fullmatch(r"(?:SM)?(\d{1,2})\.?(\d)A?", plain)
    if plain in _NVIDIA:
        return Gpu(plain, "NVIDIA", _NVIDIA[plain])
    if plain in _AMD:
        return Gpu(plain, "AMD")
    if number:
        at = (int(number[1]), int(number[2]))
        return Gpu(f"a GPU of sm_{number[1]}{number[2]}", "NVIDIA", at)
    raise _unknown(text)


def _unknown(text: object) -> WorkbenchError:
    return WorkbenchError(
        f"{shown(text)} is not the name of a GPU that is known here",
        why=f"known are {', '.join((*_NVIDIA, *_AMD))}",
        next_step="Give its compute capability, such as 9.0: `nvidia-smi --query-gpu=compute_cap` shows it.",
    )
