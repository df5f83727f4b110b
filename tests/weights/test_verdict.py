"""Verdicts on tensors that were really trained, on inits of every sort, and on what is neither."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from benchmarks.weights_accuracy.schemes import (
    FORMATS,
    GROUPED,
    SCHEMES,
    normal,
    orthogonal,
    truncated,
    uniform,
)
from tests.conftest import ROOT
from workbench.checkpoint.dequantize import logical_weights
from workbench.checkpoint.open import open_checkpoint
from workbench.weights.measure import measure
from workbench.weights.records import Judgement, Measure
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights
from workbench.weights.structure import SMALLEST_SIZE_4_BITS, visible_change
from workbench.weights.verdict import Context, context_of, judge

Array = np.ndarray[Any, Any]
FAMILIES = {
    "normal 0.02": "normal", "normal, same σ": "normal", "Kaiming uniform": "uniform",
    "Xavier uniform": "uniform", "truncated normal": "truncated", "orthogonal": "orthogonal",
}  # fmt: skip


def judged(path: Path, **context: Any) -> dict[str, tuple[Measure, Judgement]]:
    """Measure and judge every tensor of a checkpoint, as a scan does."""
    ckpt = open_checkpoint(path)
    weights = list(logical_weights(ckpt))
    shapes = {weight.name: weight.shape for weight in weights}
    found = {}
    for weight in weights:
        measured = measure(weight)
        about = context_of(weight.name, weight.shape, ckpt.config, shapes)
        about = dataclasses.replace(about, **context)
        found[weight.name] = measured, judge(measured, weight.rows, about)
    return found


def of(tmp_path: Path, tensors: dict[str, Any], **context: Any) -> dict[str, Judgement]:
    plain = {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in tensors.items()
    }
    save_file(
        {name: value.contiguous() for name, value in plain.items()}, tmp_path / "model.safetensors"
    )
    return {name: pair[1] for name, pair in judged(tmp_path, **context).items()}


def one(
    tmp_path: Path, values: Array, name: str = "layers.0.proj.weight", **context: Any
) -> Judgement:
    return of(tmp_path, {name: values}, **context)[name]


def random(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed or 0)


def matrices(found: dict[str, tuple[Measure, Judgement]]) -> dict[str, Judgement]:
    return {name: j for name, (m, j) in found.items() if sum(size > 1 for size in m.shape) > 1}


# The shipped case and the shipped random drafts.


@pytest.mark.parametrize("folder", ["target", "drafts/speculators", "drafts/specforge"])
def test_the_incidents_weights_are_trained(folder: str) -> None:
    found = judged(ROOT / "data/incident" / folder)
    weights = matrices(found)
    assert len(weights) >= 9
    assert {name: j.reason for name, j in weights.items() if j.verdict != "trained"} == {}
    norms = {name: pair[1].verdict for name, pair in found.items() if "norm" in name}
    assert norms
    assert set(norms.values()) <= {"trained", "at_init"}


@pytest.mark.parametrize("folder", ["target", "speculators", "specforge"])
def test_no_tensor_of_the_random_drafts_is_called_trained(folder: str) -> None:
    found = judged(ROOT / "data/drafts" / folder)
    weights = matrices(found)
    assert len(weights) >= 8
    assert {name: j.reason for name, j in weights.items() if j.verdict == "trained"} == {}
    undecided = [name for name, j in weights.items() if j.verdict == "undecided"]
    assert len(undecided) <= 1, undecided
    norms = [j for name, (_, j) in found.items() if name.endswith("norm.weight")]
    assert norms
    assert {j.verdict for j in norms} == {"at_init"}
    assert {j.family for j in norms} == {"ones"}


# Re-initialisations.


@pytest.mark.parametrize("shape", [(64, 64), (48, 96), (256, 768), (480, 256), (1100, 160)])
@pytest.mark.parametrize("kind", list(FORMATS))
def test_an_init_is_called_one_in_every_format(
    tmp_path: Path, shape: tuple[int, int], kind: str
) -> None:
    tensors, sources = {}, {}
    for at, (scheme, make) in enumerate(SCHEMES.items()):
        name = f"layers.{at}.proj.weight"
        sources[name] = scheme
        tensors |= FORMATS[kind](name, make(shape, 0.037, random(at, *shape)))
    found = of(tmp_path, tensors)
    if kind in GROUPED and math.prod(shape) < SMALLEST_SIZE_4_BITS:
        # Rows that are orthogonal are structure; of the others nothing is promised.
        for name, j in found.items():
            assert j.verdict == ("at_init" if sources[name] == "orthogonal" else "undecided"), name
        return
    assert {name: j.verdict for name, j in found.items()} == dict.fromkeys(sources, "at_init")
    if math.prod(shape) > 5000:
        assert {n: j.family for n, j in found.items()} == {
            n: FAMILIES[s] for n, s in sources.items()
        }
    for j in found.values():
        assert "indistinguishable from" in j.reason
        assert j.power is not None
        assert 0 < j.power < 0.5
        assert "would not be seen" in j.power_text


@pytest.mark.parametrize("kind", list(FORMATS))
def test_a_trained_matrix_is_called_so_in_every_format(tmp_path: Path, kind: str) -> None:
    ckpt = open_checkpoint(ROOT / "data/incident/target")
    names = [n for n in ckpt.names if "proj" in n and (".4." in n or ".11." in n)]
    assert len(names) == 14
    tensors: dict[str, Any] = {}
    for name in names:
        tensors |= FORMATS[kind](name, ckpt.tensor(name).float().numpy())
    found = of(tmp_path, tensors)
    assert {name: j.verdict for name, j in found.items()} == dict.fromkeys(names, "trained")


def test_an_init_cut_off_at_three_sigma_is_one(tmp_path: Path) -> None:
    found = one(tmp_path, truncated((1500, 900), 0.02, random(5), at=3.0))
    assert (found.verdict, found.family) == ("at_init", "normal") or found.family == "truncated"


def test_a_fused_tensor_of_blocks_with_different_sigmas_is_at_most_undecided(
    tmp_path: Path,
) -> None:
    blocks = [normal((256, 256), sigma, random(i)) for i, sigma in enumerate((0.02, 0.09, 0.04))]
    found = one(tmp_path, np.concatenate(blocks), "layers.0.qkv_proj.weight")
    assert found.verdict != "trained", found.reason


def test_heavy_tails_without_structure_are_not_called_either(tmp_path: Path) -> None:
    values = random(6).laplace(size=(300, 300)).astype("f4")
    found = one(tmp_path, values)
    assert found.verdict == "undecided"
    assert "barely follow the law of an init" in found.reason


def test_the_scale_names_the_formula(tmp_path: Path) -> None:
    config = Context(initializer_range=0.0123, layers=3)
    init = normal((256, 300), 0.0123, random(7))
    found = one(tmp_path, init, initializer_range=config.initializer_range, layers=config.layers)
    assert any("initializer_range = 0.0123" in text for text in found.corroboration)
    assert found.sigma == pytest.approx(0.0123, rel=0.02)
    torch_default = one(tmp_path, uniform((256, 300), 300**-0.5, random(8)))
    assert any("PyTorch's Linear" in text for text in torch_default.corroboration)
    odd = one(tmp_path, normal((256, 300), 0.0371, random(8)))
    assert odd.corroboration == ()


# Light training, samples, stacks.


def changed(shape: tuple[int, int], relative: float, seed: int) -> Array:
    m, n = shape
    rng = random(seed, m, n)
    left, right = rng.standard_normal(m), rng.standard_normal(n)
    outer = np.outer(left, right) / np.linalg.norm(left) / np.linalg.norm(right)
    noise = rng.standard_normal(shape)
    return np.asarray(0.02 * (noise + relative * np.sqrt(m * n) * outer), dtype=np.float32)


@pytest.mark.parametrize("shape", [(128, 128), (256, 512), (640, 700)])
def test_the_power_statement_holds(tmp_path: Path, shape: tuple[int, int]) -> None:
    limit = math.prod(shape) ** -0.25
    for seed in range(4):
        below = one(tmp_path, changed(shape, 0.6 * limit, seed))
        assert below.verdict == "at_init"
        assert below.power == visible_change(*shape)
        assert f"{100 * below.power:.2g} %" in below.power_text
        above = one(tmp_path, changed(shape, 1.2 * visible_change(*shape), seed))
        # Seen, but one drawn direction is no proof of training: a merged adapter looks the same.
        assert above.verdict == "undecided", (seed, above.statistics)
        assert "1 direction only" in above.reason


def test_a_smaller_budget_sees_less_and_says_so(tmp_path: Path) -> None:
    init = normal((4000, 256), 0.02, random(9))
    whole = one(tmp_path, init)
    part = one(tmp_path, init, budget=128 * 256)
    assert whole.power is not None
    assert part.power is not None
    assert part.power > 2.5 * whole.power
    assert "128 of 4,000 rows" in part.power_text
    assert "rows)" not in whole.power_text
    change = changed((4000, 256), 1.5 * whole.power, 1)
    assert one(tmp_path, change).verdict == "undecided"
    assert one(tmp_path, change, budget=128 * 256).verdict == "at_init"


def test_a_part_of_an_orthogonal_init_is_not_called_trained(tmp_path: Path) -> None:
    init = orthogonal((900, 300), random(10))
    assert one(tmp_path, init).family == "orthogonal"
    assert one(tmp_path, init, budget=300 * 300).verdict in ("undecided", "at_init")


def trained_stack() -> Array:
    ckpt = open_checkpoint(ROOT / "data/incident/target")
    names = [f"model.layers.{i}.mlp.gate_proj.weight" for i in range(8)]
    return np.stack([ckpt.tensor(name).float().numpy() for name in names])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_untrained_expert_of_a_stack_is_named(tmp_path: Path, dtype: torch.dtype) -> None:
    name = "model.layers.0.mlp.experts.gate_up_proj"
    stack = trained_stack()
    good = of(tmp_path, {name: torch.from_numpy(stack).to(dtype)})[name]
    assert good.verdict == "trained"
    stack[5] = normal(stack[5].shape, float(stack[5].std()), random(11))
    bad = of(tmp_path, {name: torch.from_numpy(stack).to(dtype)})[name]
    assert (bad.verdict, bad.family) == ("at_init", "normal")
    assert bad.reason.startswith("matrix 5 of 8")
    assert "7 of its 8 matrices look trained" in bad.corroboration
    assert dict(bad.statistics)["experts_at_init"] == 1
    stack[2, 3, 4] = np.nan
    worse = of(tmp_path, {name: torch.from_numpy(stack).to(dtype)})[name]
    assert worse.verdict == "invalid"
    assert worse.reason  # the measure of the whole finds it before any expert is read


@pytest.mark.parametrize("shape", [(8,), (2, 4), (1, 8)])
def test_experts_of_more_dimensions_are_judged_one_by_one(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    name = "layers.0.mlp.experts.down_proj"
    stack = trained_stack()
    stack[6] = normal(stack[6].shape, float(stack[6].std()), random(11))
    found = of(tmp_path, {name: stack.reshape(*shape, *stack.shape[1:])})[name]
    assert found.verdict == "at_init"
    assert found.reason.startswith("matrix 6 of 8")


def test_equal_experts_of_a_stack_are_named(tmp_path: Path) -> None:
    name = "layers.0.mlp.experts.down_proj"
    stack = trained_stack()
    assert not of(tmp_path, {name: stack})[name].corroboration
    stack[6] = stack[2]
    found = of(tmp_path, {name: stack})[name]
    assert found.corroboration == ("matrices 2, 6 are equal, value by value",)
    assert dict(found.statistics)["experts_equal"] == 2
    scan = scan_weights(tmp_path)
    (finding,) = [one for one in scan.findings if one.code == "weights.copies"]
    assert "2, 6" in finding.evidence_for[0]
    assert finding.severity == "warning"
    assert WeightScan.from_dict(scan.to_dict()) == scan


def test_an_empty_expert_and_a_whole_stack_at_init(tmp_path: Path) -> None:
    name = "layers.0.experts.down_proj"
    stack = trained_stack()
    stack[0] = 0
    assert of(tmp_path, {name: stack})[name].verdict == "constant"
    drawn = np.stack([normal((64, 80), 0.02, random(12, i)) for i in range(5)])
    found = of(tmp_path, {name: drawn})[name]
    assert found.verdict == "at_init"
    assert found.reason.startswith("each of its 5 matrices")


def test_a_convolution_is_one_matrix(tmp_path: Path) -> None:
    kernel = normal((96, 48, 5), 0.02, random(13))
    found = one(tmp_path, kernel, "encoder.conv1.weight")
    assert found.verdict == "at_init"
    assert "experts_trained" not in dict(found.statistics)


def test_too_small_to_tell(tmp_path: Path) -> None:
    for shape in ((8, 8), (2, 384), (20, 400)):
        found = one(tmp_path, normal(shape, 0.02, random(*shape)))
        assert found.verdict == "undecided", shape
        assert "too small to tell" in found.reason


def between_laws(shape: tuple[int, int], *seed: int) -> Array:
    """Return entries without structure whose kurtosis is about 0.3, which no init has."""
    values = random(*seed).standard_t(df=28, size=shape)
    return (values * 0.04).astype("f4")


@pytest.mark.parametrize("kind", list(FORMATS))
@pytest.mark.parametrize("law", ["between normal and heavy tails", "between uniform and cut off"])
def test_what_follows_no_law_of_an_init_is_undecided_in_every_format(
    tmp_path: Path, kind: str, law: str
) -> None:
    # As two trained matrices of speechmos that have no structure: kurtosis 0.21 and -0.97.
    values = between_laws((128, 128), 5)
    if law == "between uniform and cut off":
        values = (random(6).beta(1.9, 1.9, size=(128, 128)).astype("f4") - 0.5) * 0.3
    found = of(tmp_path, FORMATS[kind]("layers.0.proj.weight", values))["layers.0.proj.weight"]
    assert found.verdict == "undecided", found.reason
    if kind in GROUPED:
        assert "too coarse to test" in found.reason
    else:
        assert "barely follow the law of an init" in found.reason


def test_what_follows_no_law_is_undecided_in_8_bit_integers(tmp_path: Path) -> None:
    values = between_laws((128, 128), 5)
    scale = np.abs(values).max(axis=1, keepdims=True) / 127
    found = of(
        tmp_path,
        {"a.weight": np.rint(values / scale).astype(np.int8), "a.weight_scale": scale},
    )["a.weight"]
    assert found.verdict == "undecided", found.reason


def test_rows_of_zeros_are_told(tmp_path: Path) -> None:
    embedding = normal((400, 64), 1.0, random(14))
    embedding[100:130] = 0
    found = one(tmp_path, embedding, "embed_tokens.weight")
    assert any("30 of 400 rows read are all zeros" in text for text in found.corroboration)


# Stage 0.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_needs_no_statistics(tmp_path: Path, dtype: torch.dtype) -> None:
    base = torch.from_numpy(normal((64, 64), 0.02, random(15)))
    holes = base.clone()
    holes[3, 5] = math.nan
    infinite = base.clone()
    infinite[0, 0] = -math.inf
    tensors = {
        "all_nan.weight": torch.full((64, 64), math.nan),
        "one_nan.weight": holes,
        "inf.weight": infinite,
        "zeros.weight": torch.zeros(64, 64),
        "half.weight": torch.full((64, 64), 0.5),
        "norm.weight": torch.ones(64),
        "odd.bias": torch.full((64,), 0.25),
        "zero.bias": torch.zeros(64),
    }
    found = of(tmp_path, {name: value.to(dtype) for name, value in tensors.items()})
    kinds = {name.partition(".")[0]: (j.verdict, j.family) for name, j in found.items()}
    assert kinds == {
        "all_nan": ("invalid", ""), "one_nan": ("invalid", ""), "inf": ("invalid", ""),
        "zeros": ("constant", "zeros"), "half": ("constant", "constant"), "norm": ("at_init", "ones"),
        "odd": ("constant", "constant"), "zero": ("at_init", "zeros"),
    }  # fmt: skip
    assert {j.stage for j in found.values()} == {0}
    assert "never filled" in found["all_nan.weight"].reason
    assert "1 NaN of 4,096" in found["one_nan.weight"].reason
    assert "1 infinite" in found["inf.weight"].reason
    assert "not changed by more than the resolution" in found["norm.weight"].reason


def garbage(dtype: torch.dtype) -> torch.Tensor:
    raw = torch.from_numpy(random(16).integers(0, 256, 64 * 64 * dtype.itemsize, dtype=np.uint8))
    return raw.view(dtype).reshape(64, 64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_that_nobody_wrote(tmp_path: Path, dtype: torch.dtype) -> None:
    finite = torch.nan_to_num(garbage(dtype).float(), 0.0, 0.0, 0.0).to(dtype)
    integers = torch.from_numpy(random(17).integers(1, 4000, (64, 64), dtype=np.int32)).view(
        torch.float32
    )
    found = of(tmp_path, {"a.weight": garbage(dtype), "b.weight": finite, "c.weight": integers})
    assert {name: j.verdict for name, j in found.items()} == dict.fromkeys(found, "invalid")
    assert {name: j.family for name, j in found.items()} == dict.fromkeys(found, "memory")


def test_an_empty_tensor_is_undecided(tmp_path: Path) -> None:
    found = of(tmp_path, {"a.weight": torch.zeros(0, 16)})["a.weight"]
    assert (found.verdict, found.stage) == ("undecided", 0)


# Vectors.


def test_vectors(tmp_path: Path) -> None:
    rng = random(18)
    tensors = {
        "fc.weight": uniform((512, 256), 256**-0.5, rng),
        "fc.bias": uniform((512,), 256**-0.5, rng),  # type: ignore[arg-type]
        "moved.weight": normal((512, 256), 0.02, rng),
        "moved.bias": rng.standard_normal(512).astype("f4") * 0.5,
        "norm.weight": 1 + 0.1 * rng.standard_normal(256).astype("f4"),
        "short.bias": rng.standard_normal(12).astype("f4"),
        "other.bias": rng.standard_normal(500).astype("f4"),
        "spiked.bias": rng.standard_t(2, 500).astype("f4"),
    }
    found = of(tmp_path, tensors)
    assert {n: j.verdict for n, j in found.items() if "fc" not in n and n != "moved.weight"} == {
        "moved.bias": "trained", "norm.weight": "trained", "short.bias": "undecided",
        "other.bias": "undecided", "spiked.bias": "trained",
    }  # fmt: skip
    assert (found["fc.bias"].verdict, found["fc.bias"].family) == ("at_init", "uniform")
    assert "1/√fan_in" in found["fc.bias"].reason
