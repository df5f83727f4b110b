"""How quantised layers are stored in files: tensors by scheme, their shapes by the plain weight's.

So compressed-tensors, AutoAWQ, GPTQ, ModelOpt and deepseek-ai publish them. That an engine takes a layout
for a class is not said here: `workbench.loaders.maps.quantised` knows for which it really did.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Literal

Shape = tuple[int, ...]
# What of a fused parameter one part fills: its share of the rows, one entry of its own, or all of it.
Fills = Literal["rows", "entry", "all"]
FLOATS = frozenset(["F16", "BF16", "F32"])


@dataclasses.dataclass(frozen=True)
class Stored:
    """One tensor of a layer.

    Attributes
    ----------
    shape
        From the plain weight's rows and columns; None for one number, however many dimensions it has.
    dtypes
        As safetensors call them; others were not tried.
    fills, fills_experts
        What it fills of a linear layer's parameter, and of the experts' for its expert.
    """

    shape: Callable[[int, int], Shape] | None
    dtypes: frozenset[str]
    fills: Fills = "rows"
    fills_experts: Fills = "entry"

    def share(self, rows: float, parts: int, experts: int) -> float:
        """Return the share of the parameter that one tensor fills.

        Parameters
        ----------
        rows
            The share that the plain weight fills.
        parts, experts
            How many tensors fill it, of how many experts (0 for a linear layer).
        """
        fills = self.fills
        if experts and fills != "rows":
            fills = self.fills_experts if fills == "entry" else fills
        return {"rows": rows, "entry": 1 / parts, "all": 1 / max(1, experts)}[fills]


Layout = Mapping[str, Stored]


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How the weights of a layer are stored, without regard to which layers.

    Attributes
    ----------
    family
        ``fp8``, ``int8``, ``pack``, ``nvfp4``, ``awq``, ``gptq``, ``block``, ``modelopt-fp8``,
        ``modelopt-nvfp4``.
    detail
        What tells it from others of its family: how scales are shared, bits, group size.
    """

    family: str
    detail: tuple[str | int | bool, ...] = ()

    def __str__(self) -> str:
        return "-".join([self.family, *map(str, self.detail)])

    @property
    def layout(self) -> Layout:
        """The tensors that store a weight, by what their names end in."""
        return _LAYOUTS[self.family](*self.detail)


def _floats(shape: Callable[[int, int], Shape] | None, fills: Fills = "rows") -> Stored:
    return Stored(shape, FLOATS, fills)


def _number(fills: Fills = "entry") -> Stored:
    return _floats(None, fills)


def _rows(out: int, size: int) -> Shape:
    return (out, 1)


def _whole(out: int, size: int) -> Shape:
    return (out, size)


def _fp8(strategy: str, activations: str) -> Layout:
    scale = _number() if strategy == "tensor" else _floats(_rows)
    if strategy == "block":
        scale = _floats(lambda out, size: (math.ceil(out / 128), math.ceil(size / 128)))
    tensors = {"weight": Stored(_whole, frozenset(["F8_E4M3"])), "weight_scale": scale}
    once = Stored(None, FLOATS, "entry", "all")  # the experts' gate and up have one in common
    return tensors | ({"input_scale": once} if activations == "static" else {})


def _int8() -> Layout:
    return {"weight": Stored(_whole, frozenset(["I8"])), "weight_scale": _floats(_rows)}


def _pack(bits: int, group: int, symmetric: bool) -> Layout:
    per, codes = 32 // bits, frozenset(["I32"])

    def groups(size: int) -> int:
        return size // group if group > 0 else 1

    tensors = {
        "weight_packed": Stored(lambda out, size: (out, size // per), codes),
        "weight_scale": _floats(lambda out, size: (out, groups(size))),
        "weight_shape": Stored(lambda out, size: (2,), frozenset(["I64", "I32"]), "all"),
    }
    zeros = Stored(lambda out, size: (out // per, groups(size)), codes)
    return tensors | ({} if symmetric else {"weight_zero_point": zeros})


def _nvfp4(activations: bool) -> Layout:
    tensors = {
        "weight_packed": Stored(lambda out, size: (out, size // 2), frozenset(["U8"])),
        "weight_scale": Stored(lambda out, size: (out, size // 16), frozenset(["F8_E4M3"])),
        "weight_global_scale": _number(),
    }
    return tensors | ({"input_global_scale": _number()} if activations else {})


def _awq(group: int) -> Layout:
    codes = frozenset(["I32"])
    return {
        "qweight": Stored(lambda out, size: (size, out // 8), codes),
        "qzeros": Stored(lambda out, size: (size // group, out // 8), codes),
        "scales": _floats(lambda out, size: (size // group, out)),
    }


def _gptq(bits: int, group: int, ordered: bool) -> Layout:
    per, codes = 32 // bits, frozenset(["I32"])
    return {
        "qweight": Stored(lambda out, size: (size // per, out), codes),
        "qzeros": Stored(lambda out, size: (size // group, out // per), codes),
        "scales": _floats(lambda out, size: (size // group, out)),
        "g_idx": Stored(lambda out, size: (size,), codes, "all"),
    }


def _block() -> Layout:
    return {
        "weight": Stored(_whole, frozenset(["F8_E4M3"])),
        "weight_scale_inv": _floats(
            lambda out, size: (math.ceil(out / 128), math.ceil(size / 128))
        ),
    }


def _modelopt_nvfp4() -> Layout:
    return {
        "weight": Stored(lambda out, size: (out, size // 2), frozenset(["U8"])),
        "weight_scale": Stored(lambda out, size: (out, size // 16), frozenset(["F8_E4M3"])),
        "weight_scale_2": _number(),
        "input_scale": Stored(None, FLOATS, "entry", "all"),
    }


_LAYOUTS: dict[str, Callable[..., Layout]] = {
    "fp8": _fp8,
    "int8": _int8,
    "pack": _pack,
    "nvfp4": _nvfp4,
    "awq": _awq,
    "gptq": _gptq,
    "block": _block,
    "autofp8": lambda activations: _fp8("tensor", activations),
    "modelopt-fp8": lambda: _fp8("tensor", "static"),
    "modelopt-nvfp4": _modelopt_nvfp4,
}
# Every ending of a name that some scheme has: what `foreign` of a class was asked for.
ENDINGS = (
    "weight", "qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale", "weight_shape",
    "weight_zero_point", "weight_global_scale", "input_global_scale", "input_scale", "weight_scale_inv",
    "weight_scale_2",
)  # fmt: skip
