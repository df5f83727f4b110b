"""Values of quantised weights: against the libraries that wrote them, and against loops in this file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engines import environments
from workbench.checkpoint.checkpoint import Checkpoint
from workbench.checkpoint.dequantize import LogicalWeight, logical_weights
from workbench.checkpoint.number import table_of
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import CheckpointError

SCRIPT = Path(__file__).parents[1] / "engines" / "quantize.py"
CASES = (
    "fp8-rows", "gpt-oss", "int8-rows", "mxfp4", "nvfp4", "pack-int4", "pack-int8", "pack-order",
    "pack-zeros",
)  # fmt: skip


def stored(
    folder: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any] | None = None
) -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    config = {"model_type": "x"} | ({"quantization_config": settings} if settings else {})
    (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder)


def only(ckpt: Checkpoint) -> LogicalWeight:
    (weight,) = logical_weights(ckpt)
    return weight


def check(weight: LogicalWeight, want: np.ndarray[Any, Any], tolerance: float = 0.0) -> None:
    """Compare all rows, and rows out of the middle, with what is wanted."""
    assert weight.flaw == ""
    assert weight.shape == want.shape
    flat = want.reshape(len(want), -1)
    found = weight.rows(0, len(want))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, flat, rtol=tolerance, atol=0)
    np.testing.assert_array_equal(weight.rows(1, len(want) - 1), found[1:-1])
    np.testing.assert_array_equal(weight.rows(3, 3), found[3:3])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    python = environments.ensure("writers")
    subprocess.run([python, SCRIPT, folder], check=True, capture_output=True)
    return folder


@pytest.mark.engine
@pytest.mark.parametrize("case", CASES)
def test_as_the_libraries_read_it(written: Path, case: str) -> None:
    want = load_file(written / case / "expected.st")["expected"].numpy()
    weight = only(open_checkpoint(written / case / "model.safetensors"))
    # compressed-tensors multiplies nvfp4's scales in bfloat16.
    check(weight, want, 2**-7 if case == "nvfp4" else 0.0)


@pytest.mark.engine
def test_every_case_is_read(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == sorted(CASES)


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, 0.05, shape).astype(np.float32)


def pack(codes: np.ndarray[Any, Any], axis: int, places: tuple[int, ...]) -> torch.Tensor:
    """Pack 4-bit codes into 32-bit words, one after the other in Python."""
    codes = np.moveaxis(codes, axis, -1)
    words = np.zeros((*codes.shape[:-1], codes.shape[-1] // 8), np.uint32)
    for at in np.ndindex(codes.shape):
        words[(*at[:-1], at[-1] // 8)] |= np.uint32(codes[at]) << np.uint32(4 * places[at[-1] % 8])
    return torch.from_numpy(np.moveaxis(words, -1, axis).copy().view(np.int32))


STRAIGHT = (0, 1, 2, 3, 4, 5, 6, 7)
# AutoAWQ puts columns 0 2 4 6 1 3 5 7 into the nibbles from the lowest on.
AWQ = (0, 4, 1, 5, 2, 6, 3, 7)


def gptq_like(
    groups: int = 4, wide: int = 64, tall: int = 16
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return codes [inputs, outputs], zeros and scales [groups, outputs]."""
    generator = np.random.default_rng(5)
    codes = generator.integers(0, 16, (wide, tall))
    zeros = generator.integers(1, 15, (groups, tall))
    scales = generator.uniform(0.01, 0.02, (groups, tall)).astype(np.float16)
    return codes, zeros, scales


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("ordered", [False, True])
def test_gptq(tmp_path: Path, version: int, ordered: bool) -> None:
    codes, zeros, scales = gptq_like()
    group = np.arange(64) // 16
    if ordered:
        group = np.random.default_rng(1).permutation(group)
    want = (codes - zeros[group]) * scales[group].astype(np.float32)
    ckpt = stored(
        tmp_path,
        {
            "l.qweight": pack(codes, 0, STRAIGHT),
            "l.qzeros": pack(zeros - (version == 1), 1, STRAIGHT),
            "l.scales": torch.from_numpy(scales),
            "l.g_idx": torch.from_numpy(group.astype(np.int32)),
        },
        {"quant_method": "gptq", "bits": 4}
        | ({"checkpoint_format": "gptq_v2"} if version == 2 else {}),
    )
    check(only(ckpt), want.T.astype(np.float32), 1e-6)


def test_gptq_without_a_config_is_read_only_where_the_zeros_tell(tmp_path: Path) -> None:
    codes, zeros, scales = gptq_like()
    tensors = {"l.qweight": pack(codes, 0, STRAIGHT), "l.scales": torch.from_numpy(scales)}
    group = np.arange(64) // 16
    want = ((codes - 8) * scales[group].astype(np.float32)).T
    for at, middle in enumerate((7, 8)):
        zero = pack(np.full_like(zeros, middle), 1, STRAIGHT)
        check(only(stored(tmp_path / str(at), tensors | {"l.qzeros": zero})), want, 1e-6)
    open_zeros = tensors | {"l.qzeros": pack(zeros, 1, STRAIGHT)}
    weight = only(stored(tmp_path / "open", open_zeros))
    assert "look alike" in weight.flaw
    with pytest.raises(CheckpointError, match="cannot be computed"):
        weight.rows(0, 1)
    full = tensors | {"l.qzeros": pack(np.full_like(zeros, 15), 1, STRAIGHT)}
    settings = {"quant_method": "gptq", "bits": 4}
    assert "overflows" in only(stored(tmp_path / "full", full, settings)).flaw


def test_awq(tmp_path: Path) -> None:
    codes, zeros, scales = gptq_like()
    group = np.arange(64) // 16
    want = ((codes - zeros[group]) * scales[group].astype(np.float32)).T
    tensors = {
        "l.qweight": pack(codes, 1, AWQ),
        "l.qzeros": pack(zeros, 1, AWQ),
        "l.scales": torch.from_numpy(scales),
    }
    settings = {"quant_method": "awq", "bits": 4, "version": "gemm"}
    check(only(stored(tmp_path / "gemm", tensors, settings)), want, 1e-6)
    other = only(stored(tmp_path / "other", tensors, settings | {"version": "marlin"}))
    assert "another order" in other.flaw


@pytest.mark.parametrize("experts", [0, 3])
def test_fp8_blocks(tmp_path: Path, experts: int) -> None:
    lead = (experts,) if experts else ()
    codes = torch.randn(*lead, 200, 300).to(torch.float8_e4m3fn)
    scales = torch.rand(*lead, 2, 3) + 0.5
    weight = only(stored(tmp_path, {"l.weight": codes, "l.weight_scale_inv": scales}))
    wide = scales.repeat_interleave(128, -2).repeat_interleave(128, -1)[..., :200, :300]
    check(weight, (codes.float() * wide).numpy())


def test_fp8_blocks_of_a_size_that_only_the_config_tells(tmp_path: Path) -> None:
    codes = torch.randn(130, 96).to(torch.float8_e4m3fn)
    scales = torch.rand(3, 2) + 0.5
    tensors = {"l.weight": codes, "l.weight_scale_inv": scales}
    assert "do not show" in only(stored(tmp_path / "open", tensors)).flaw
    settings = {"quant_method": "fp8", "weight_block_size": [50, 48]}
    wide = scales.repeat_interleave(50, 0).repeat_interleave(48, 1)[:130]
    check(only(stored(tmp_path / "told", tensors, settings)), (codes.float() * wide).numpy())


@pytest.mark.parametrize("shape", [(), (1,), (40,), (40, 1)])
def test_fp8_per_tensor_and_row(tmp_path: Path, shape: tuple[int, ...]) -> None:
    codes = torch.randn(40, 24).to(torch.float8_e5m2)
    scale = torch.rand(shape) + 0.5
    ckpt = stored(
        tmp_path, {"l.weight": codes, "l.weight_scale": scale, "l.input_scale": torch.ones(1)}
    )
    wide = scale.reshape(-1, 1) if scale.numel() > 1 else scale.reshape(1, 1)
    check(only(ckpt), (codes.float() * wide).numpy())


def test_int8_with_zero_points(tmp_path: Path) -> None:
    codes = torch.randint(-128, 128, (40, 24), dtype=torch.int8)
    zeros = torch.randint(-5, 5, (40, 1), dtype=torch.int8)
    scale = torch.rand(40, 1) + 0.5
    tensors = {"l.weight": codes, "l.weight_scale": scale, "l.weight_zero_point": zeros}
    check(only(stored(tmp_path, tensors)), ((codes.float() - zeros) * scale).numpy())


def test_modelopt_nvfp4_multiplies(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    nibbles = torch.randint(0, 16, (8, 64), generator=generator, dtype=torch.uint8)
    fine = (torch.rand(8, 4, generator=generator) * 400).to(torch.float8_e4m3fn)
    tensors = {
        "l.weight": nibbles[:, 0::2] | nibbles[:, 1::2] << 4,
        "l.weight_scale": fine,
        "l.weight_scale_2": torch.tensor(0.003),
    }
    sizes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = torch.tensor([*sizes, *[-size for size in sizes]])
    want = values[nibbles.long()] * (fine.float() * 0.003).repeat_interleave(16, 1)
    check(only(stored(tmp_path, tensors)), want.numpy(), 1e-6)


@pytest.mark.parametrize(
    "kind",
    [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.float8_e4m3fn],
)
@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_plain_tensors(tmp_path: Path, kind: torch.dtype, form: str) -> None:
    tensor = (torch.randn(12, 5, 3) * 9).to(kind)
    # A transposed view: its values do not lie in the file in the order of its indices.
    turned = tensor.flatten(1).T if form == "bin" else tensor
    path = tmp_path / f"model.{form}"
    vector, single = torch.arange(9.0), torch.tensor(2.5)
    tensors = {"w": turned, "b": vector, "s": single}
    if form == "bin":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    weights = logical_weights(open_checkpoint(path))
    assert sorted(weights.names) == ["b", "s", "w"]
    check(weights["w"], turned.float().numpy())
    check(weights["b"], vector.numpy()[:, None].reshape(9, 1)[:, 0])
    assert weights["s"].rows(0, 1).tolist() == [[2.5]]
    if kind == torch.bfloat16:
        want = turned.contiguous().view(torch.uint16).numpy().reshape(len(turned), -1)
        np.testing.assert_array_equal(weights["w"].codes(2, 4), want[2:4])
    elif kind != torch.float16:
        with pytest.raises(CheckpointError, match="16-bit"):
            weights["w"].codes(0, 1)


@pytest.mark.parametrize(
    "kind",
    [
        ("F8_E4M3", torch.float8_e4m3fn),
        ("F8_E5M2", torch.float8_e5m2),
        ("F8_E4M3FNUZ", torch.float8_e4m3fnuz),
        ("F8_E5M2FNUZ", torch.float8_e5m2fnuz),
        ("F8_E8M0", torch.float8_e8m0fnu),
    ],
)
def test_eight_bit_floats_are_torchs(kind: tuple[str, torch.dtype]) -> None:
    name, dtype = kind
    want = torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy()
    np.testing.assert_array_equal(table_of(name), want)


Spoil = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda t: {**t, "l.weight_scale": torch.ones(16, 3)}, "do not fit"),
        (lambda t: {**t, "l.weight_shape": torch.tensor([16, 40])}, "width of code"),
        (lambda t: {**t, "l.weight_shape": torch.tensor([8, 64])}, "shape it states"),
        (lambda t: {**t, "l.weight_shape": torch.tensor([16, -64])}, "shape it states"),
        (lambda t: {**t, "l.weight_g_idx": torch.full((64,), 9, dtype=torch.int32)}, "act-order"),
        (
            lambda t: {**t, "l.weight_zero_point": torch.zeros(3, 2, dtype=torch.int32)},
            "zero points",
        ),
    ],
)
def test_members_that_do_not_fit_are_named(tmp_path: Path, spoil: Spoil, why: str) -> None:
    tensors = {
        "l.weight_packed": torch.zeros(16, 8, dtype=torch.int32),
        "l.weight_scale": torch.ones(16, 2),
        "l.weight_shape": torch.tensor([16, 64]),
    }
    check(only(stored(tmp_path / "whole", tensors)), np.full((16, 64), -8, np.float32))
    weight = only(stored(tmp_path / "spoilt", spoil(tensors)))
    assert why in weight.flaw
    with pytest.raises(CheckpointError, match="cannot be computed"):
        weight.rows(0, 1)


def test_codes_alone_are_no_numbers(tmp_path: Path) -> None:
    """A layout that nobody recognises (here bitsandbytes') is not taken for numbers."""
    tensors = {
        "l.weight": torch.zeros(64, 1, dtype=torch.uint8),
        "l.weight.absmax": torch.ones(2),
        "ids": torch.arange(9),
    }
    weights = logical_weights(stored(tmp_path, tensors))
    assert "codes" in weights["l.weight"].flaw
    assert weights["ids"].rows(8, 9).tolist() == [[8.0]]


def test_a_lost_member_is_named(tmp_path: Path) -> None:
    """One layer's scale is missing, as after an export that was cut short."""
    tensors = {}
    for layer in range(3):
        tensors[f"layers.{layer}.weight"] = torch.randn(32, 32).to(torch.float8_e4m3fn)
        tensors[f"layers.{layer}.weight_scale"] = torch.tensor(0.5)
    del tensors["layers.1.weight_scale"]
    weights = logical_weights(stored(tmp_path, tensors))
    assert [weight.flaw for weight in weights] == [
        "",
        "'layers.1.weight' cannot be dequantised: its scale is missing",
        "",
    ]


def test_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    ckpt = stored(tmp_path, {"w": torch.randn(64, 64)})
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.truncate(9000)
    assert only(ckpt).rows(0, 8).shape == (8, 64)
    with pytest.raises(CheckpointError, match="shorter than when it was opened"):
        only(ckpt).rows(60, 64)


def test_listing_reads_no_values(tmp_path: Path) -> None:
    """A hundred thousand experts are listed from their names."""
    ckpt = stored(
        tmp_path,
        {
            "layers.0.up.weight_packed": torch.zeros(16, 8, dtype=torch.int32),
            "layers.0.up.weight_scale": torch.ones(16, 2),
            "layers.0.up.weight_shape": torch.tensor([16, 64]),
        },
    )
    (tmp_path / "model.safetensors").unlink()
    (weight,) = logical_weights(ckpt)
    assert weight.name == "layers.0.up.weight"
    assert weight.flaw
