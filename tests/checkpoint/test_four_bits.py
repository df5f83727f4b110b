"""bitsandbytes' layouts and GGUF: values by their definition, and what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import workbench
from tests.weights.whole_files.cases import NF4_LEVELS, nf4
from workbench.checkpoint.dequantize import LogicalWeight, logical_weights
from workbench.checkpoint.open import open_checkpoint, open_gguf
from workbench.errors import CheckpointError

Array = np.ndarray[Any, Any]
W = torch.randn(24, 128, generator=torch.Generator().manual_seed(3)) * 0.02


def stored(folder: Path, tensors: dict[str, torch.Tensor]) -> LogicalWeight:
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    return logical_weights(open_checkpoint(folder))["m.weight"]


def packed(nested: bool = False) -> dict[str, torch.Tensor]:
    tensors = {"m.weight": W.clone()}
    nf4("m.weight", nested=nested)(tensors, {})
    return tensors


def test_the_levels_are_the_quantiles_that_qlora_defines() -> None:
    """Of a normal, 8 steps below zero and 9 from it on, scaled to 1 (QLoRA, appendix E)."""
    normal = torch.distributions.Normal(0.0, 1.0)
    offset = 0.9677083
    above = normal.icdf(torch.linspace(offset, 0.5, 9, dtype=torch.float64))[:-1]
    below = -normal.icdf(torch.linspace(offset, 0.5, 8, dtype=torch.float64))[:-1]
    levels = torch.cat([below, torch.zeros(1, dtype=torch.float64), above]).sort().values
    assert torch.allclose((levels / levels.max()).float(), NF4_LEVELS, atol=2e-6)


@pytest.mark.parametrize("nested", [False, True])
def test_values_are_level_times_absmax_of_the_block(nested: bool, tmp_path: Path) -> None:
    weight = stored(tmp_path, packed(nested))
    assert (weight.shape, weight.flaw) == ((24, 128), "")
    got = np.concatenate([weight.rows(0, 5), weight.rows(5, 24)])
    blocks = W.reshape(-1, 64)
    top = blocks.abs().amax(1, keepdim=True)
    at = ((blocks / top)[..., None] - NF4_LEVELS).abs().argmin(-1)
    wanted = (NF4_LEVELS[at] * top).reshape(24, 128).numpy()
    # An absmax of 8 bits is off by half a step of 256 at most.
    slack = float((top - top.mean()).abs().max()) / 127 if nested else 1e-9
    assert np.abs(got - wanted).max() <= slack


def _state(**changes: Any) -> torch.Tensor:
    state = {
        "quant_type": "nf4",
        "blocksize": 64,
        "dtype": "bfloat16",
        "shape": [24, 128],
    } | changes
    return torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)


STATE = "m.weight.quant_state.bitsandbytes__nf4"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({STATE: _state(shape=[25, 128])}, "do not hold 3,200 codes"),
        ({STATE: _state(shape=[24, -1])}, "not one of a weight"),
        ({STATE: _state(blocksize=128)}, "do not fit 3,072 values in blocks of 128"),
        ({STATE: _state(blocksize=0)}, "no usable blocksize"),
        ({STATE: torch.zeros(9, dtype=torch.uint8)}, "not a JSON object"),
        ({"m.weight.absmax": torch.ones(3)}, "3 absmax values"),
        ({"m.weight.absmax": torch.ones(48, dtype=torch.uint8)}, "nested_absmax is missing"),
        ({"m.weight.quant_map": torch.full((16,), float("nan"))}, "not 16 finite levels"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: dict[str, torch.Tensor], why: str, tmp_path: Path
) -> None:
    weight = stored(tmp_path, packed() | change)
    assert why in weight.flaw
    with pytest.raises(CheckpointError):
        weight.rows(0, 1)


def test_rows_of_8_bits(tmp_path: Path) -> None:
    top = W.abs().amax(1)
    codes = (W / top[:, None] * 127).round().to(torch.int8)
    weight = stored(tmp_path, {"m.weight": codes, "m.SCB": top})
    wanted = codes.float() * top[:, None] / 127
    assert np.allclose(weight.rows(0, 24), wanted.numpy(), rtol=1e-6)


# GGUF.


def written(path: Path, kind: str, values: Array) -> None:
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "d"] * 100)
    writer.add_tensor("blk.0.ffn_up.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("blk.0.ffn_norm.weight", np.ones(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0"])
def test_gguf_is_read_as_its_package_reads_it(kind: str, root: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    with open_checkpoint(root / "data/incident/target") as opened:
        values = opened.tensor("model.layers.3.mlp.up_proj.weight").float().numpy()
    written(tmp_path / "m.gguf", kind, values)
    found = open_gguf(tmp_path)
    assert found is not None
    weight = logical_weights(found)["blk.0.ffn_up.weight"]
    theirs = next(t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors if "up" in t.name)
    wanted = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
    assert np.array_equal(np.concatenate([weight.rows(0, 7), weight.rows(7, 480)]), wanted)
    assert workbench.scan_weights(tmp_path).ok is True
    with pytest.raises(CheckpointError, match="GGUF"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("at", "data", "why"),
    [
        (0, b"GGUX", "does not begin with GGUF"),
        (4, b"\x09\0\0\0", "its version is 9"),
        (8, b"\xff" * 8, "it announces"),
        (24, b"\xff" * 8, "a text of"),
        (-1, b"", "cut short"),
    ],
)
def test_a_damaged_gguf_is_refused(at: int, data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    written(path, "F32", W.repeat(1, 2).numpy())
    raw = bytearray(path.read_bytes())
    raw = raw[:-64] if at < 0 else raw[:at] + data + raw[at + len(data) :]
    path.write_bytes(raw)
    with pytest.raises(CheckpointError) as caught:
        open_gguf(path)
    assert why in str(caught.value)


# Files that shrink.


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_file_that_shrinks_is_an_error_and_not_the_end_of_the_process(
    name: str, tmp_path: Path
) -> None:
    tensors = {f"w{i}": torch.randn(256, 256) for i in range(4)}
    path = tmp_path / name
    if path.suffix == ".bin":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    opened = open_checkpoint(path)
    assert torch.equal(opened.tensor("w3"), tensors["w3"])
    assert torch.equal(opened.tensor("w1", (slice(3, 9), 5)), tensors["w1"][3:9, 5])
    assert torch.equal(opened.tensor("w1", -1), tensors["w1"][-1])
    with path.open("r+b") as file:
        file.truncate(20_000)
    assert opened.changed() == (name,)
    for read in (lambda: opened.tensor("w3"), lambda: opened.flat("w3", 0, 10)):
        with pytest.raises(CheckpointError, match="shorter than when it was opened"):
            read()


def test_views_of_one_storage_are_read_where_they_lie(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    views = {"base": base, "turned": base.T, "part": base[1:3, 2:5], "step": base[:, ::2]}
    torch.save(views, tmp_path / "pytorch_model.bin")
    opened = open_checkpoint(tmp_path / "pytorch_model.bin")
    for name, view in views.items():
        assert torch.equal(opened.tensor(name), view)
        assert torch.equal(opened.tensor(name, slice(1, 2)), view[1:2])
        assert np.array_equal(opened.flat(name, 1, 4), view.reshape(-1)[1:4].numpy())
