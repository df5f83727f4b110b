"""Quantised layouts are recognised by their tensors, and compared with the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from workbench.checkpoint import quantized as q
from workbench.checkpoint.config import Config
from workbench.checkpoint.records import TensorInfo, TensorTable

Parts = Mapping[str, tuple[str, tuple[int, ...]]]
BASES = ("layers.0.mlp.up_proj", "layers.1.mlp.up_proj", "layers.2.mlp.up_proj")


def table(
    parts: Parts, *, without: tuple[str, ...] = (), bases: tuple[str, ...] = BASES
) -> TensorTable:
    rows = [TensorInfo("norm.weight", "BF16", (64,), "m")]
    rows += [
        TensorInfo(base + end, dtype, shape, "m")
        for base in bases
        for end, (dtype, shape) in parts.items()
    ]
    return TensorTable.from_rows([row for row in rows if row.name not in without])


PACK: Parts = {
    ".weight_packed": ("I32", (32, 8)),
    ".weight_scale": ("BF16", (32, 2)),
    ".weight_shape": ("I64", (2,)),
}
NVFP4: Parts = {
    ".weight_packed": ("U8", (32, 32)),
    ".weight_scale": ("F8_E4M3", (32, 4)),
    ".weight_global_scale": ("F32", (1,)),
}
MODELOPT: Parts = {
    ".weight": ("U8", (32, 32)),
    ".weight_scale": ("F8_E4M3", (32, 4)),
    ".weight_scale_2": ("F32", ()),
    ".input_scale": ("F32", ()),
}
BLOCK: Parts = {".weight": ("F8_E4M3", (256, 128)), ".weight_scale_inv": ("F32", (2, 1))}
FP8: Parts = {
    ".weight": ("F8_E4M3", (32, 64)),
    ".weight_scale": ("F32", (32, 1)),
    ".input_scale": ("F32", (1,)),
}
INT8: Parts = {".weight": ("I8", (32, 64)), ".weight_scale": ("BF16", (32, 1))}
MXFP4: Parts = {"_blocks": ("U8", (4, 32, 2, 16)), "_scales": ("U8", (4, 32, 2))}
GPTQ: Parts = {
    ".qweight": ("I32", (8, 32)),
    ".qzeros": ("I32", (2, 4)),
    ".scales": ("F16", (2, 32)),
    ".g_idx": ("I32", (64,)),
}
AWQ: Parts = {".qweight": ("I32", (64, 4)), ".qzeros": ("I32", (2, 4)), ".scales": ("F16", (2, 32))}


@pytest.mark.parametrize(
    ("parts", "format", "roles", "method", "layout"),
    [
        (PACK, q.PACK, {"codes", "scale", "shape"}, "compressed-tensors", "pack-quantized"),
        (
            NVFP4,
            q.NVFP4_PACK,
            {"codes", "scale", "global_scale"},
            "compressed-tensors",
            "nvfp4-pack-quantized",
        ),
        (
            MODELOPT,
            q.NVFP4_MODELOPT,
            {"codes", "scale", "global_scale", "input_scale"},
            "modelopt",
            "",
        ),
        (BLOCK, q.FP8_BLOCK, {"codes", "scale"}, "fp8", ""),
        (FP8, q.FP8, {"codes", "scale", "input_scale"}, "compressed-tensors", "float-quantized"),
        (INT8, q.INT8, {"codes", "scale"}, "compressed-tensors", "int-quantized"),
        (MXFP4, q.MXFP4, {"codes", "scale"}, "mxfp4", ""),
        (GPTQ, q.GPTQ, {"codes", "scale", "zero_point", "order"}, "gptq", ""),
        (AWQ, q.AWQ, {"codes", "scale", "zero_point"}, "awq", ""),
    ],
)
def test_formats(parts: Parts, format: str, roles: set[str], method: str, layout: str) -> None:
    settings: dict[str, Any] = {"quant_method": method} | ({"format": layout} if layout else {})
    found = q.recognise(table(parts), Config({"quantization_config": settings, "model_type": "x"}))
    assert found.format == format
    assert found.count == 3
    assert found.agrees is True
    (group,) = found.groups
    assert set(group.members) == roles
    assert group.incomplete_count == 0
    logical = "layers.{}.mlp.up_proj" + ("" if format == q.MXFP4 else ".weight")
    assert group.logical == logical
    names = dict(group.weights())
    assert list(names) == [logical.format(i) for i in range(3)]
    held = set(table(parts).names)
    assert all(set(members.values()) <= held for members in names.values())
    other = q.recognise(table(parts), Config({"quantization_config": {"quant_method": "gguf"}}))
    assert other.agrees is None
    assert "gguf" in other.detail


def test_options() -> None:
    more = {**PACK, ".weight_zero_point": ("I32", (4, 2)), ".weight_g_idx": ("I32", (64,))}
    (group,) = q.recognise(table(more)).groups
    assert {"zero_point", "order"} <= set(group.members)


@pytest.mark.parametrize(
    ("end", "role"),
    [(".weight_scale", "scale"), (".weight_shape", "shape"), (".weight_packed", "codes")],
)
def test_a_member_is_lacking(end: str, role: str) -> None:
    found = q.recognise(table(PACK, without=(BASES[1] + end,)))
    (group,) = found.groups
    assert group.incomplete == (("layers.1.mlp.up_proj.weight", role),)
    assert group.incomplete_count == 1


def test_plain_and_disagreeing() -> None:
    plain = table({".weight": ("BF16", (4, 4))})
    assert q.recognise(plain) == q.Quantization()
    assert not q.recognise(plain, Config({"model_type": "llama"}))
    said = q.recognise(plain, Config({"quantization_config": {"quant_method": "fp8"}}))
    assert said.agrees is False
    assert "the tensors are not quantised" in said.detail
    silent = q.recognise(table(BLOCK), Config({"model_type": "llama"}))
    assert silent.agrees is False
    wrong = q.recognise(table(GPTQ), Config({"quantization_config": {"quant_method": "awq"}}))
    assert wrong.agrees is False
    assert wrong.detail == "the config says awq, but the tensors are gptq"


def test_mixed() -> None:
    rows = [*table(PACK), *table(BLOCK, bases=("head",))]
    unique = {row.name: row for row in rows}
    found = q.recognise(TensorTable.from_rows(list(unique.values())))
    assert found.format == f"{q.PACK} + {q.FP8_BLOCK}"
    assert found.count == 4


def test_rows_of_indices() -> None:
    rows = np.array([[1, 2], [3, 4], [1, 4]])
    assert q._in(rows, np.array([[3, 4], [1, 2]])).tolist() == [True, True, False]
    assert q._in(rows, np.zeros((0, 2), np.int64)).tolist() == [False] * 3
    assert q._in(np.zeros((2, 0), np.int64), np.zeros((1, 0), np.int64)).tolist() == [True, True]
