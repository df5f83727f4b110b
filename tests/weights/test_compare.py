"""Two sets of weights: what changed, by how much, and what could not be compared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import workbench
from tests.conftest import ROOT
from tests.forms import check_forms
from tests.weights_samples import HOSTILE
from workbench.errors import WorkbenchError
from workbench.weights import equality
from workbench.weights.comparison import WeightComparison
from workbench.weights.results import WeightScan

DRAFTS = ROOT / "data" / "incident" / "drafts"
Tensors = dict[str, np.ndarray]  # type: ignore[type-arg]
Compare = Callable[[Tensors, Tensors], WeightComparison]


def base() -> Tensors:
    random = np.random.default_rng(7)
    shapes = {
        "model.layers.0.q_proj.weight": (96, 64),
        "model.layers.1.q_proj.weight": (96, 64),
        "model.layers.0.norm.weight": (64,),
        "lm_head.weight": (128, 64),
    }
    return {name: random.normal(0, 0.02, size).astype(np.float32) for name, size in shapes.items()}


def scan_of(path: Path) -> WeightScan:
    """A scan that only names its source: the values are read again."""
    return WeightScan.build(str(path), [])


@pytest.fixture
def compared(tmp_path: Path) -> Compare:
    def compared(before: Tensors, after: Tensors) -> WeightComparison:
        save_file(before, tmp_path / "before.safetensors")
        save_file(after, tmp_path / "after.safetensors")
        return scan_of(tmp_path / "before.safetensors").compare(tmp_path / "after.safetensors")

    return compared


def test_the_same_twice(compared: Compare) -> None:
    result = compared(base(), base())
    assert result.ok is True
    assert len(result.names("identical")) == 4
    assert result.summary == "None of 4 tensors changed."
    assert [finding.code for finding in result.findings] == ["weights.all_identical"]


def test_the_change_is_the_norm_of_the_difference(
    compared: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equality, "_BLOCK", 64 * 7)  # blocks that do not divide the rows
    before, after = base(), base()
    name = "model.layers.1.q_proj.weight"
    after[name][3:5] += 0.01
    result = compared(before, after)
    [changed] = result.names("changed")
    assert changed == name
    row = result.changes[name]
    delta = (after[name] - before[name]).astype(np.float64)
    wanted = np.linalg.norm(delta) / np.linalg.norm(before[name].astype(np.float64))
    assert row.change == pytest.approx(wanted, rel=1e-12)
    assert row.largest == pytest.approx(np.abs(delta).max())
    assert row.moved == 2 * 64 / (96 * 64)
    assert row.compared == 96 * 64
    [unmoved] = [f for f in result.findings if f.code == "weights.unmoved"]
    assert unmoved.title.startswith("2 matrices did not change at all, while 1 tensor did")
    assert result.ok is True


def test_one_bit_is_a_change(compared: Compare) -> None:
    before, after = base(), base()
    weight = after["lm_head.weight"]
    weight.view(np.uint32)[5, 5] ^= 1
    row = compared(before, after).changes["lm_head.weight"]
    assert row.state == "changed"
    assert 0 < (row.change or 0) < 1e-7


def test_shapes_values_and_sides(compared: Compare) -> None:
    before, after = base(), base()
    after["lm_head.weight"] = np.zeros((130, 64), dtype=np.float32)
    after["model.layers.0.norm.weight"][4] = np.nan
    after["new.weight"] = after.pop("model.layers.1.q_proj.weight")
    result = compared(before, after)
    assert result.ok is False
    assert result.names("shape") == ("lm_head.weight",)
    assert result.names("invalid") == ("model.layers.0.norm.weight",)
    assert result.names("left") == ("model.layers.1.q_proj.weight",)
    assert result.names("right") == ("new.weight",)
    assert result.same_bytes == (("model.layers.1.q_proj.weight", "new.weight"),)
    assert result.changes["model.layers.0.norm.weight"].compared == 63
    assert "[128, 64]" in result.to_text(80)
    assert "[130, 64]" in result.to_text(80)


def test_from_zeros_there_is_no_relative_change(compared: Compare) -> None:
    before = base() | {"a.weight": np.zeros((8, 8), dtype=np.float32)}
    after = base() | {"a.weight": np.ones((8, 8), dtype=np.float32)}
    row = compared(before, after).changes["a.weight"]
    assert row.state == "changed"
    assert row.change is None
    assert row.largest == 1


def test_a_narrower_type_is_a_change_by_its_rounding(compared: Compare) -> None:
    after = {name: value.astype(np.float16) for name, value in base().items()}
    result = compared(base(), after)
    row = result.changes["lm_head.weight"]
    assert row.state == "changed"
    assert 1e-5 < (row.change or 0) < 1e-3
    assert not row.same_dtype
    assert "weights.slight" in [finding.code for finding in result.findings]


def test_integers_count_as_values_not_as_weights(compared: Compare) -> None:
    table = {"d2t": np.arange(100, dtype=np.int64)}
    moved = {"d2t": np.arange(100, dtype=np.int64) * 2}
    result = compared(base() | table, base() | moved)
    assert result.changes["d2t"].state == "changed"
    assert "weights.unmoved" not in [finding.code for finding in result.findings]


def test_without_a_name_in_common_it_says_where_to_look(compared: Compare) -> None:
    with pytest.raises(WorkbenchError, match="no tensor of the same name") as raised:
        compared({"a": np.ones((4, 4), np.float32)}, {"b": np.zeros((4, 4), np.float32)})
    assert "workbench diff" in raised.value.next_step


def test_a_copy_under_another_name_is_enough_to_compare(compared: Compare) -> None:
    weight = base()["lm_head.weight"]
    result = compared({"embed_tokens.weight": weight}, {"model.embed_tokens.weight": weight})
    assert result.same_bytes == (("embed_tokens.weight", "model.embed_tokens.weight"),)
    assert "equal under two names" in result.summary


@pytest.mark.parametrize("other", [None, 3, "nowhere", Path("nowhere")])
def test_what_cannot_be_compared_with(other: object, compared: Compare) -> None:
    with pytest.raises(WorkbenchError):
        scan_of(DRAFTS / "speculators").compare(other)  # type: ignore[arg-type]


def test_paths_scans_and_open_checkpoints_are_all_taken() -> None:
    before = scan_of(DRAFTS / "speculators")
    with workbench.open_checkpoint(DRAFTS / "speculators") as opened:
        results = [before.compare(other) for other in (opened, before, str(DRAFTS / "speculators"))]
    assert [result.ok for result in results] == [True] * 3
    assert {result.summary for result in results} == {"None of 16 tensors changed."}


def reinitialised(folder: Path) -> None:
    """A copy of the shipped draft with the decoder layer drawn anew."""
    shutil.copytree(DRAFTS / "speculators", folder)
    file = folder / "model.safetensors"
    import torch
    from safetensors import torch as io

    random = torch.Generator().manual_seed(1)
    tensors = io.load_file(file)
    for name, value in tensors.items():
        if name.startswith("layers.0.") and value.ndim == 2:
            tensors[name] = (torch.randn(value.shape, generator=random) * 0.02).to(value.dtype)
    io.save_file(tensors, file)


def test_every_form_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DRAFTS / "speculators", "draft")
    reinitialised(tmp_path / "reinitialised")
    check_forms(scan_of(Path("draft")).compare("reinitialised"), "weights-compared", monkeypatch)


def test_saved_loaded_shown(compared: Compare, tmp_path: Path) -> None:
    after = base()
    after["lm_head.weight"] *= 1.5
    result = compared(base(), after)
    assert workbench.load(result.save(tmp_path / "comparison.json")) == result
    assert list(result.to_pandas().state) == ["changed", "identical", "identical", "identical"]
    shown = json.loads(json.dumps(result.payload(), allow_nan=False))
    assert shown["schema"] == "workbench.weightcompare/1"
    at = shown["maps"][1]["labels"].index("lm_head")
    assert shown["maps"][1]["numbers"]["change"][at] == 0.5
    assert result.to_html(tmp_path / "page.html").stat().st_size < 400_000
    figure = result.plot()
    assert figure.axes


def test_a_state_that_is_none_does_not_load(compared: Compare, tmp_path: Path) -> None:
    data = json.loads(compared(base(), base()).to_json())
    data["changes"][0]["state"] = HOSTILE
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(data))
    with pytest.raises(WorkbenchError, match="Invalid enum value"):
        workbench.load(file)


def test_damaged_files_do_not_pass(compared: Compare, tmp_path: Path) -> None:
    data = json.loads(compared(base(), base()).to_json())
    data["changes"][0]["shape"] = "x"
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(data))
    with pytest.raises(WorkbenchError, match="not a saved workbench result"):
        workbench.load(file)


def test_more_than_memory_is_never_asked_of_a_file(
    compared: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.checkpoint.dequantize import LogicalWeight

    monkeypatch.setattr(equality, "_BLOCK", 64 * 16)
    asked: list[int] = []
    plain = LogicalWeight.rows

    def watched(self: LogicalWeight, start: int, stop: int) -> np.ndarray:  # type: ignore[type-arg]
        asked.append((stop - start) * int(np.prod(self.shape[1:])))
        return plain(self, start, stop)

    monkeypatch.setattr(LogicalWeight, "rows", watched)
    assert compared(base(), base()).ok
    assert max(asked) <= 64 * 16


NOISE = np.random.default_rng(3).normal(0, 0.02, (2, 256, 256)).astype(np.float32)


def learnt(seed: int) -> np.ndarray:  # type: ignore[type-arg]
    """Return noise with what training leaves: a few large directions, that favour rows and columns."""
    numbers = np.random.default_rng(seed)
    low = numbers.normal(size=(256, 4)) @ numbers.normal(size=(4, 256))
    low *= numbers.uniform(0.5, 2, (256, 1)) * numbers.uniform(0.5, 2, (1, 256))
    return (NOISE[0] + 0.01 * low).astype(np.float32)


TRAINED, OTHERS = learnt(4), learnt(5)
NAME = "layers.0.mlp.up_proj.weight"
OTHER = "layers.0.mlp.down_proj.weight"


@pytest.fixture
def sides(tmp_path: Path) -> Callable[..., Path]:
    def side(name: str, first: np.ndarray, second: np.ndarray = OTHERS) -> Path:  # type: ignore[type-arg]
        path = tmp_path / f"{name}.safetensors"
        save_file({NAME: np.ascontiguousarray(first), OTHER: np.ascontiguousarray(second)}, path)
        return path

    return side


def test_an_untrained_first_side_is_no_all_clear(sides: Callable[..., Path]) -> None:
    bare, same = sides("bare", NOISE[0]), sides("same", NOISE[0])
    later, good = sides("later", TRAINED), sides("good", TRAINED)
    untrained, trained = workbench.scan_weights(bare), workbench.scan_weights(good)
    assert (untrained.ok, trained.ok) == (False, True)

    # It did not change: it is as untrained on the second side.
    found = untrained.compare(same)
    assert found.ok is False
    assert [item.name for item in found.verdict.coverage.having("wrong")] == [NAME]
    assert "The first by itself:" in found.summary
    assert "is indistinguishable from random initialisation" in found.summary

    # It changed, and what it became is not known.
    found = untrained.compare(later)
    assert (found.ok, found.verdict.state) == (None, "cannot_tell")
    assert any("the second was not proved trained" in text for text in found.verdict.missing)

    # A scan that proves the second side trained settles it; the sentence still names the first.
    found = untrained.compare(trained)
    assert found.ok is True
    assert "The first by itself:" in found.summary
    assert any("the first by itself" in text for text in found.verdict.missing)

    # The other way round the second is untrained; and two trained sides are what they were.
    assert trained.compare(untrained).ok is False
    found = trained.compare(later)
    assert found.ok is True
    assert "by itself" not in found.summary + "".join(found.verdict.missing)


def test_names_limit_a_comparison_and_it_says_so(sides: Callable[..., Path]) -> None:
    scan = workbench.scan_weights(sides("good", TRAINED))
    other = sides("other", NOISE[0], NOISE[1])
    found = scan.compare(other, names="*.up_proj.*")
    assert list(found.changes.names) == [NAME]
    assert "Only 1 of 2 weights was requested." in found.summary
    assert any("only 1 of 2 weights was requested" in text for text in found.verdict.missing)
    whole = scan.compare(other, names=[NAME, OTHER])
    assert "requested" not in whole.summary + "".join(whole.verdict.missing)
    with pytest.raises(WorkbenchError, match="has no weight 'up_proj'"):
        scan.compare(other, names="up_proj")
