"""Tensors that hold what another name held, and those that are equal for other reasons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from workbench.weights.comparison import WeightComparison
from workbench.weights.exchanged import exchange_lines
from workbench.weights.results import WeightScan

Tensors = dict[str, np.ndarray]  # type: ignore[type-arg]

PARTS = ("mlp.gate_proj.weight", "mlp.up_proj.weight", "input_layernorm.weight", "mlp.up_proj.bias")
GATE, UP, NORM, BIAS = (f"layers.{{}}.{part}" for part in PARTS)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def model(seed: int = 7, layers: int = 3) -> Tensors:
    random = np.random.default_rng(seed)
    made = {name: random.normal(0, 1, (96, 32)).astype(np.float32) for name in (EMBEDDING, HEAD)}
    for layer in range(layers):
        for name in (GATE, UP):
            made[name.format(layer)] = random.normal(0, 0.02, (64, 32)).astype(np.float32)
        for name in (NORM, BIAS):
            made[name.format(layer)] = random.normal(1, 0.1, 256).astype(np.float32)
    return made


def comparison(before: Tensors, after: Tensors, folder: Path) -> WeightComparison:
    save_file(before, folder / "before.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in after.items()}, folder / "after.safetensors")
    scan = WeightScan.build(str(folder / "before.safetensors"), [])
    return scan.compare(folder / "after.safetensors")


def lines(found: WeightComparison) -> tuple[str, ...]:
    return next((f.evidence_for for f in found.findings if f.code == "weights.rearranged"), ())


def test_two_that_changed_places_are_named_as_a_pair(tmp_path: Path) -> None:
    made = model()
    gate, up = GATE.format(1), UP.format(1)
    found = comparison(made, made | {gate: made[up], up: made[gate]}, tmp_path)
    assert found.ok is None
    assert lines(found) == (f"{up} and {gate} hold each other's values",)
    assert "2 of them hold the same values in another order or place" in found.summary
    assert sum("another tensor had in the first" in text for text in found.verdict.missing) == 2


def test_layers_that_changed_places_are_one_line(tmp_path: Path) -> None:
    made = model()
    after = {name.replace("layers.0.", "layers.1."): made[name] for name in made if ".0." in name}
    after |= {name.replace("layers.1.", "layers.0."): made[name] for name in made if ".1." in name}
    found = comparison(made, made | after, tmp_path)
    assert found.ok is None
    assert lines(found) == ("layers.1 and layers.0 hold each other's values (4 tensors each)",)


def test_a_cycle_is_named_one_after_the_other(tmp_path: Path) -> None:
    made = model()
    after = {UP.format(n): made[UP.format((n + 1) % 3)] for n in range(3)}
    found = comparison(made, made | after, tmp_path)
    assert found.ok is None
    assert sorted(lines(found)) == [
        f"{UP.format(n)} holds what {UP.format((n + 1) % 3)} held" for n in range(3)
    ]


def test_a_copy_over_another_tensor_leaves_its_source_alone(tmp_path: Path) -> None:
    made = model()
    found = comparison(made, made | {GATE.format(0): made[UP.format(0)]}, tmp_path)
    assert found.ok is None
    assert lines(found) == (f"{GATE.format(0)} holds what {UP.format(0)} held",)
    assert not any(text.startswith(UP.format(0)) for text in found.verdict.missing)


def test_a_wider_type_of_the_same_values_is_found_and_a_rounding_is_not(tmp_path: Path) -> None:
    made = model()
    gate, up = GATE.format(1), UP.format(1)
    made[up] = made[up].astype(np.float16)
    wider = comparison(made, made | {gate: made[up].astype(np.float32)}, tmp_path)
    assert lines(wider)
    made = model()
    rounded = made[up].astype(np.float16).astype(np.float32)
    assert comparison(made, made | {gate: rounded}, tmp_path).ok is True


def test_one_value_of_difference_is_another_tensor(tmp_path: Path) -> None:
    made = model()
    almost = made[UP.format(1)].copy()
    almost[-1, -1] += 1
    assert comparison(made, made | {GATE.format(1): almost}, tmp_path).ok is True


@pytest.mark.parametrize("values", [0.0, 1.0])
def test_constants_are_equal_by_nature(values: float, tmp_path: Path) -> None:
    made = model() | {BIAS.format(0): np.full(256, values, np.float32)}
    made[UP.format(0)] = np.full((64, 32), values, np.float32)
    after = {BIAS.format(1): made[BIAS.format(0)], UP.format(1): made[UP.format(0)]}
    assert comparison(made, made | after, tmp_path).ok is True


def test_rows_that_are_all_alike_are_equal_by_convention(tmp_path: Path) -> None:
    rows = np.tile(np.log(np.arange(1, 33, dtype=np.float32)), (64, 1))
    made = model() | {"layers.0.A_log": rows, "layers.1.A_log": rows + 1}
    assert comparison(made, made | {"layers.1.A_log": rows}, tmp_path).ok is True
    rows = rows.copy()
    rows[-1] *= 2
    made["layers.0.A_log"] = rows
    assert comparison(made, made | {"layers.1.A_log": rows}, tmp_path).ok is None


def test_tensors_that_were_equal_and_stay_so_are_quiet(tmp_path: Path) -> None:
    made = model()
    experts = {f"experts.{n}.up_proj.weight": made[UP.format(0)] for n in range(4)}
    made |= experts | {NORM.format(n): np.ones(256, np.float32) for n in range(3)}
    assert comparison(made, made, tmp_path).ok is True
    # Experts made from one, each trained by itself; one stays.
    other = model(8)
    after = {f"experts.{n}.up_proj.weight": other[UP.format(n)] for n in range(3)}
    assert comparison(made, made | after, tmp_path).ok is True


@pytest.mark.parametrize(("taker", "donor"), [(HEAD, EMBEDDING), (EMBEDDING, HEAD)])
def test_a_head_that_is_tied_later_is_a_choice(taker: str, donor: str, tmp_path: Path) -> None:
    made = model()
    assert comparison(made, made | {taker: made[donor]}, tmp_path).ok is True


def test_head_and_embedding_that_changed_places_are_found(tmp_path: Path) -> None:
    made = model()
    found = comparison(made, made | {HEAD: made[EMBEDDING], EMBEDDING: made[HEAD]}, tmp_path)
    assert found.ok is None
    assert lines(found) == (f"{EMBEDDING} and {HEAD} hold each other's values",)


def test_a_renamed_checkpoint_is_quiet(tmp_path: Path) -> None:
    made = model()
    renamed = {name.replace("layers.", "model.layers."): value for name, value in made.items()}
    found = comparison(made, renamed, tmp_path)
    assert not lines(found)
    assert found.ok is True


@pytest.mark.parametrize(("size", "ok"), [(255, True), (256, None)])
def test_the_smallest_tensor(size: int, ok: bool | None, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    first, second = random.normal(0, 1, (2, size)).astype(np.float32)
    made = model() | {"a.bias": first, "b.bias": second}
    assert comparison(made, made | {"a.bias": second, "b.bias": first}, tmp_path).ok is ok


def test_buffers_and_tables_are_no_weights(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    first, second = random.normal(0, 1, (2, 256)).astype(np.float32)
    made = model() | {"a.rotary_emb.inv_freq": first, "b.rotary_emb.inv_freq": second}
    made |= {"d2t": np.arange(300), "t2d": np.arange(300) * 2}
    after = {"a.rotary_emb.inv_freq": second, "d2t": made["t2d"]}
    assert comparison(made, made | after, tmp_path).ok is True


def test_pairs_of_different_numbers_are_two_lines() -> None:
    found = exchange_lines([("a.x", "b.x"), ("a.y", "b.y"), ("b.x", "a.x")])
    assert found == ["b holds what a held (2 tensors)", "a.x holds what b.x held"]
