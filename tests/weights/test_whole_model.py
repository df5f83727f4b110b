"""What a model needs, norms, magnitudes, masks and buffers: both sides of each border."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import workbench
from tests.weights_samples import pair
from workbench.checkpoint.config import Config
from workbench.weights.by_design import is_random_by_design
from workbench.weights.likeness import rearranged
from workbench.weights.masks import is_mask, is_rotation
from workbench.weights.norms import convention
from workbench.weights.own_templates import absent_by_templates
from workbench.weights.records import Measure
from workbench.weights.results import WeightScan
from workbench.weights.seen import Seen

Array = np.ndarray[Any, Any]


def measures(*names: str, shape: tuple[int, ...] = (64, 64)) -> list[Measure]:
    return [pair(name, shape)[0] for name in names]


PARTS = ("q.weight", "k.weight", "v.weight", "o.weight")


def stack(layers: Any, stem: str = "model.layers", parts: tuple[str, ...] = PARTS) -> list[str]:
    return [f"{stem}.{layer}.{part}" for layer in layers for part in parts]


# What is absent, by the file's own templates.


@pytest.mark.parametrize(
    ("names", "config", "absent"),
    [
        (stack(range(4)), {"num_hidden_layers": 4}, []),
        (stack(range(3)), {"num_hidden_layers": 4}, ["model.layers.3"]),
        (stack(range(5)), {"num_hidden_layers": 4}, []),  # a NextN layer behind the last
        (stack([0, 1, 3]), {}, ["model.layers.2"]),
        (stack([61]), {"num_hidden_layers": 61}, []),  # the NextN layer alone
        (stack([0, 3, 6], "features", ("weight", "bias")), {}, []),  # a Sequential has gaps
        ([*stack(range(4)), *stack([4], parts=PARTS[:3])], {}, ["model.layers.4.o.weight"]),
        # Layers that share the keys of others lack them on purpose: many, not one.
        ([*stack(range(4)), *stack(range(4, 8), parts=("q.weight", "o.weight"))], {}, []),
        # A layer of another sort has something in its place.
        (
            [
                *stack(range(4)),
                *stack([4], parts=("q.weight", "k.weight", "v.weight", "mix.weight")),
            ],
            {},
            [],
        ),
        ([*stack(range(4)), "model.layers.3.q.bias"], {}, []),
    ],
)
def test_layers_and_projections_that_others_have(
    names: list[str], config: dict[str, Any], absent: list[str]
) -> None:
    assert [name for name, _ in absent_by_templates(measures(*names), Config(config))] == absent


def experts(numbers: Any, parts: tuple[str, ...] = ("w1.weight", "w2.weight")) -> list[str]:
    return [f"model.layers.0.mlp.experts.{e}.{part}" for e in numbers for part in parts]


@pytest.mark.parametrize(
    ("names", "config", "absent"),
    [
        (experts(range(4)), {"num_experts": 4}, []),
        (experts(range(3)), {"num_experts": 4}, ["model.layers.0.mlp.experts.3"]),
        (experts([0, 2]), {}, ["model.layers.0.mlp.experts.1"]),
        (
            [*experts(range(3)), *experts([3], ("w1.weight",))],
            {},
            ["model.layers.0.mlp.experts.3.w2.weight"],
        ),
        (experts(range(4)), {"num_experts": 2}, []),  # the count is that of something else
    ],
)
def test_experts_that_others_have(
    names: list[str], config: dict[str, Any], absent: list[str]
) -> None:
    assert [name for name, _ in absent_by_templates(measures(*names), Config(config))] == absent


# Norms.


def norm(low: float, high: float, seed: int = 1, size: int = 256) -> Array:
    return np.random.default_rng(seed).uniform(low, high, size).astype(np.float32)


def doubts_of(tmp_path: Path, value: Array, **config: Any) -> Any:
    save_file({"model.norm.weight": value}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    scan = workbench.scan_weights(tmp_path)
    found = list(scan.seen.norm_doubts.values())
    return found[0].state if found else None


ZERO = np.zeros(256, np.float32)


@pytest.mark.parametrize(
    ("value", "kind", "state"),
    [
        (ZERO, "llama", "wrong"),
        (ZERO, "unheard_of", "open"),
        (ZERO, "gemma2", None),
        (norm(-0.001, 0.001), "llama", "wrong"),
        (norm(-0.001, 0.001), "gemma2", "open"),
        (norm(0.9, 1.1), "llama", None),
        (norm(-0.06, 0.06), "llama", "wrong"),
        (norm(-0.06, 0.06), "gemma2", None),
        (norm(-0.02, 0.1), "llama", None),  # most of one sign
        (norm(-0.06, 0.06, size=8), "llama", None),  # too few to say
    ],
)
def test_scales_of_norms(value: Array, kind: str, state: str | None, tmp_path: Path) -> None:
    assert doubts_of(tmp_path, value, model_type=kind) == state


def test_the_convention_of_the_language_model_counts() -> None:
    assert convention(
        Config({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})
    ) == ("less one")
    assert convention(Config({"model_type": "llama"})) == "plain"
    assert convention(None) == ""


# Magnitudes.


def scanned(*sizes: float, dtype: str = "BF16", config: Config | None = None) -> Seen:
    made = []
    for layer, size in enumerate(sizes):
        measure, judgement = pair(f"model.layers.{layer}.q_proj.weight", (64, 64), dtype=dtype)
        measure = dataclasses.replace(
            measure,
            std=measure.std * size,
            mean=0.0,
            absmax=measure.absmax * size,
            max=measure.max * size,
            quantiles=tuple(size * value for value in measure.quantiles),
        )
        made.append((measure, judgement))
    return WeightScan.build("x", made, config=config).seen


@pytest.mark.parametrize(
    ("sizes", "odd"),
    [
        ((1, 1, 1, 90), []), ((1, 1, 1, 110), [3]), ((1, 1 / 110, 1, 1), [1]), ((1, 1 / 90, 1, 1), []),
        ((1, 10, 100, 1000), []), ((1,), []),
    ],
)  # fmt: skip
def test_a_matrix_a_hundred_times_its_siblings(sizes: tuple[float, ...], odd: list[int]) -> None:
    assert sorted(scanned(*sizes).magnitude_doubts) == odd


@pytest.mark.parametrize(
    ("size", "method", "state"),
    [(10_000, "fp8", "wrong"), (10_000, "", "open"), (1, "fp8", "open"), (1, "", None)],
)
def test_codes_without_a_scale(size: float, method: str, state: str | None) -> None:
    config = Config({"quantization_config": {"quant_method": method}} if method else {})
    doubts = scanned(size, dtype="F8_E4M3", config=config).magnitude_doubts
    assert [doubt.state for doubt in doubts.values()] == ([state] if state else [])


# Masks.


def _mask_measure(values: Array) -> Measure:
    zeros = int((values == 0).sum())
    measure = pair("m", values.shape)[0]
    return dataclasses.replace(measure, zeros=zeros, nan=int(np.isnan(values).sum()))


def _rows(values: Array) -> Any:
    flat = values.reshape(values.shape[0], -1).astype(np.float32)
    return lambda start, stop: flat[start:stop]


LOW = np.float32(-3.4e38)


@pytest.mark.parametrize(
    ("values", "mask"),
    [
        (np.triu(np.full((8, 8), LOW), 1), True),
        (np.tril(np.full((8, 8), LOW), -1), True),
        (np.tril(np.ones((1, 1, 8, 8), np.float32)), True),
        (np.triu(np.full((8, 8), LOW), 2), False),
        (np.triu(np.random.default_rng(1).normal(size=(8, 8))), False),  # a triangle of many values
        (np.triu(np.full((8, 9), LOW), 1), False),
    ],
)
def test_a_mask_is_a_triangle_of_two_values(values: Array, mask: bool) -> None:
    assert is_mask(_mask_measure(values), _rows(values)) is mask


def test_a_mask_with_one_entry_amiss_is_none() -> None:
    values = np.triu(np.full((8, 8), LOW), 1)
    values[2, 5], values[5, 2] = 0, LOW
    assert not is_mask(_mask_measure(values), _rows(values))


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [(8e4, 2.3e6, "trained"), (8e4, 2e9, "invalid"), (-2.3e6, 2.3e6, "invalid"), (10.0, 2.3e6, "invalid")],
)  # fmt: skip
def test_large_variances_are_no_memory(
    least: float, most: float, verdict: str, tmp_path: Path
) -> None:
    values = np.linspace(least, most, 25, dtype=np.float32)
    save_file({"batch_norm.running_var": values}, tmp_path / "model.safetensors")
    [found] = workbench.scan_weights(tmp_path).tensors
    assert (found.verdict == "invalid") is (verdict == "invalid"), found.reason


@pytest.mark.parametrize(("side", "doubted"), [(16, False), (64, True)])
def test_few_values_may_keep_to_a_band(side: int, doubted: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    values = np.sign(random.normal(size=(side, side))) * random.uniform(0.8, 1.2, (side, side))
    save_file({"a.weight": values.astype(np.float32)}, tmp_path / "model.safetensors")
    assert bool(workbench.scan_weights(tmp_path).seen.magnitude_doubts) is doubted


def _hadamard(size: int) -> Array:
    made = np.ones((1, 1), np.float32)
    while len(made) < size:
        made = np.block([[made, made], [made, -made]])
    return made / np.float32(size**0.5)


TURNED = _hadamard(64)[np.random.default_rng(4).permutation(64)]
SIGNS = np.sign(np.random.default_rng(5).normal(size=(64, 64))).astype(np.float32) / 8
ONE_OFF = TURNED.copy()
ONE_OFF[63, 63] *= -1  # the last row is one of those that are looked at


@pytest.mark.parametrize(
    ("name", "values", "rotation"),
    [
        ("R1.weight", TURNED, True),
        ("model.layers.0.self_attn.R2", TURNED, True),
        ("model.hadamard_k", TURNED, True),
        ("model.layers.0.mlp.up_proj.weight", TURNED, False),  # a layer may start as one
        ("R1.weight", SIGNS, False),
        ("R1.weight", ONE_OFF, False),
        ("R1.weight", TURNED[:32], False),
        ("R1.weight", TURNED * np.linspace(1, 2, 64, dtype=np.float32), False),
    ],
)
def test_a_stored_hadamard_rotation_is_no_weight(name: str, values: Array, rotation: bool) -> None:
    measure = dataclasses.replace(
        pair(name, values.shape)[0], max=float(values.max()), min=float(values.min()), zeros=0
    )
    assert is_rotation(measure, _rows(values)) is rotation


@pytest.mark.parametrize(
    ("share", "much", "doubted"),
    [(0.999, 1e-7, True), (0.95, 1e-4, True), (0.8, 1e-7, False), (0.999, 1e-2, False), (0.999, 0.0, False)],
)  # fmt: skip
def test_a_matrix_that_a_few_values_make(
    share: float, much: float, doubted: bool, tmp_path: Path
) -> None:
    values = np.random.default_rng(6).normal(0, 0.02, (128, 128))
    kept = np.random.default_rng(7).random(values.shape) > share
    values = np.where(kept, values, values * much).astype(np.float32)
    tensors = {"layers.0.up_proj.weight": values}
    save_file(tensors, tmp_path / "model.safetensors")
    scan = workbench.scan_weights(tmp_path)
    assert bool(scan.seen.magnitude_doubts) is doubted
    assert scan.ok is not True


def test_random_features_are_not_accused() -> None:
    assert is_random_by_design("encoder.layers.0.attn.projection_matrix")
    assert not is_random_by_design("encoder.projection.weight")


# The same values elsewhere.


@dataclasses.dataclass(frozen=True)
class Plain:
    name: str
    values: Array
    dtype: str = "F32"
    flaw: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def rows(self, start: int, stop: int) -> Array:
        return self.values.reshape(len(self.values), -1)[start:stop]


W = np.random.default_rng(2).normal(size=(48, 32)).astype(np.float32)
ALMOST = W[::-1].copy()
ALMOST[0, 0] += 1e-3


@pytest.mark.parametrize(
    ("left", "right", "how"),
    [
        ({"a": W}, {"a": W[::-1]}, "the same rows in another order"),
        ({"a": W}, {"a": W[:, ::-1]}, "the same values in another order"),
        ({"a": W}, {"a": W.T}, "transposed"),
        ({"q": W[:16], "k": W[16:]}, {"qk": W}, "rows of the larger one"),
        ({"qk": W}, {"q": W[:16], "k": W[16:]}, "rows of the larger one"),
        ({"a": W}, {"a": ALMOST}, ""),
        ({"a": W}, {"a": W * 1.01}, ""),
        ({"q": W[:16]}, {"qk": W + 1}, ""),
    ],
)
def test_the_same_values_in_another_place(left: Any, right: Any, how: str) -> None:
    from workbench.weights.compare import compare_sets

    sides = [
        {name: Plain(name, np.ascontiguousarray(v)) for name, v in side.items()}
        for side in (left, right)
    ]
    shared = set(left) & set(right)
    if not shared and not how:
        with pytest.raises(workbench.WorkbenchError, match="no tensor of the same name"):
            compare_sets(*sides, "before", "after")  # type: ignore[arg-type]
        return
    found = compare_sets(*sides, "before", "after")  # type: ignore[arg-type]
    told = {text for _, _, text in rearranged(*sides, found.changes)}  # type: ignore[arg-type]
    assert told == ({how} if how else set())
    assert (found.ok is True) is not bool(how)
