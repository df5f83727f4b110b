"""What a scan covers: without any one of its checks there is no all-clear."""

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
from workbench.weights.coverage import CHECKS, covered, items
from workbench.weights.results import WeightScan
from workbench.weights.seen import Seen

DRAFT = "data/incident/drafts/speculators"


@pytest.fixture(scope="module")
def healthy(root: Path) -> WeightScan:
    return workbench.scan_weights(root / DRAFT)


def test_a_trained_draft_is_an_all_clear(healthy: WeightScan) -> None:
    assert healthy.ok is True
    assert covered(healthy.seen) == healthy.verdict.coverage


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_there_is_no_all_clear(check: Any, healthy: WeightScan) -> None:
    left = covered(healthy.seen, [other for other in CHECKS if other is not check])
    assert left.ok is None
    assert {item.how for item in left.having("open", essential=True)} == {"not checked"}


def test_every_weight_and_every_matrix_is_listed(healthy: WeightScan) -> None:
    counts: dict[str, int] = {}
    for item in items(healthy.seen):
        counts[item.kind] = counts.get(item.kind, 0) + item.count
    assert counts["tensor"] == int(healthy.seen.counts.sum()) == 14
    assert counts["matrix"] == int(healthy.seen.matters.sum()) == 10


@pytest.mark.parametrize("change", [{"interrupted": True}, {"unseen": 1}], ids=str)
def test_what_was_not_read_leaves_it_open(change: dict[str, Any], healthy: WeightScan) -> None:
    coverage = covered(dataclasses.replace(healthy.seen, **change))
    assert coverage.ok is None


def scan(folder: Path, **tensors: np.ndarray[Any, Any]) -> WeightScan:
    save_file({name: tensors[name] for name in tensors}, folder / "model.safetensors")
    return workbench.scan_weights(folder)


def trained(rows: int = 256, columns: int = 256) -> np.ndarray[Any, Any]:
    """A matrix with what training leaves: a few large directions, that favour some rows and columns."""
    numbers = np.random.default_rng(7)
    low = numbers.normal(size=(rows, 4)) @ numbers.normal(size=(4, columns))
    low *= np.exp(numbers.normal(size=(rows, 1)) + numbers.normal(size=columns))
    return (low + 0.2 * numbers.normal(size=(rows, columns))).astype(np.float32) / 50


def drawn(rows: int = 256, columns: int = 256) -> np.ndarray[Any, Any]:
    return np.random.default_rng(8).normal(0, 0.02, (rows, columns)).astype(np.float32)


def test_one_matrix_at_initialisation_is_a_fault(tmp_path: Path) -> None:
    found = scan(tmp_path, **{"a.weight": trained(), "b.weight": drawn()})
    assert found.ok is False
    assert [item.name for item in found.verdict.coverage.having("wrong")] == ["b.weight"]


def test_of_a_template_the_worst_is_reported_with_its_number(tmp_path: Path) -> None:
    for second, how in (
        (trained(), "1 of 2: at random initialisation"),
        (drawn(), "at random initialisation"),
    ):
        found = scan(tmp_path, **{"layers.0.up.weight": drawn(), "layers.1.up.weight": second})
        matrix = [item for item in found.verdict.coverage.items if item.kind == "matrix"]
        assert [(item.state, item.count, item.how) for item in matrix] == [("wrong", 2, how)]


def test_without_any_matrix_there_is_no_all_clear(tmp_path: Path) -> None:
    found = scan(tmp_path, **{"norm.weight": np.ones(64, np.float32)})
    assert found.ok is None
    assert "no matrix" in found.summary


def test_a_vector_that_is_not_finite_is_a_fault_among_trained_matrices(tmp_path: Path) -> None:
    bad = np.ones(64, np.float32)
    bad[3] = np.nan
    found = scan(tmp_path, **{"a.weight": trained(), "norm.weight": bad})
    assert found.ok is False
    assert [item.name for item in found.verdict.coverage.having("wrong")] == ["norm.weight"]


def test_matrices_that_are_too_small_are_listed_and_decide_nothing(tmp_path: Path) -> None:
    small = np.random.default_rng(9).normal(size=(4, 4)).astype(np.float32)
    found = scan(tmp_path, **{"a.weight": trained(), "types.weight": small})
    assert found.ok is True
    aside = [text.partition(":")[0] for text in found.verdict.missing]
    assert aside == ["1 small matrix"]


@pytest.mark.parametrize("name", ["mlp.gate.weight", "score.weight"])
def test_a_small_gate_or_head_that_nobody_can_judge_keeps_it_open(
    name: str, tmp_path: Path
) -> None:
    small = np.random.default_rng(9).normal(size=(4, 64)).astype(np.float32)
    found = scan(tmp_path, **{"a.weight": trained(), name: small})
    assert found.ok is None
    assert name in found.summary


@pytest.mark.parametrize(("wide", "ok"), [(9200, True), (4600, None)])
def test_an_undecided_matrix_is_excused_up_to_a_share_of_the_model(
    wide: int, ok: bool | None
) -> None:
    undecided = pair("b.weight", (64, 64), verdict="undecided")
    made = WeightScan.build("x", [pair("a.weight", (90, wide)), undecided])
    assert made.ok is ok


def test_a_sample_says_what_it_left_out(root: Path) -> None:
    found = workbench.scan_weights(root / DRAFT, sample=64)
    assert any(text.startswith("values that were not read") for text in found.verdict.missing)


# Saved scans.

EDITS = {
    "ok": {"ok": True},
    "ok, without its verdict": {"ok": True, "verdict": None},
    "kind": {"kind": "disk"},
    "summary": {"summary": "All is well."},
    "interrupted": {"interrupted": "no"},
}


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sick")
    return scan(folder, **{"a.weight": trained(), "b.weight": drawn()}).to_dict()


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_scan_does_not_load(edit: str, sick: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(sick | EDITS[edit]))
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        workbench.load(tmp_path / "x.json")


def test_all_items_edited_to_ok_are_contradicted_by_the_tensors(
    sick: dict[str, Any], tmp_path: Path
) -> None:
    data = json.loads(json.dumps(sick | {"ok": True}))
    for item in data["verdict"]["coverage"]["items"]:
        item["state"] = "ok"
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(workbench.WorkbenchError, match=r"b\.weight is at_init"):
        workbench.load(tmp_path / "x.json")


OLD = Path(__file__).parents[1] / "golden" / "saved-0.1"


@pytest.mark.parametrize(
    ("name", "ok"),
    [("weightscan-ok", True), ("weightscan-wrong", False), ("weightscan-open", None)],
)
def test_a_scan_of_version_01_loads_and_says_what_it_lacks(
    name: str, ok: bool | None, tmp_path: Path
) -> None:
    old = json.loads((OLD / f"{name}.json").read_text())
    found = workbench.load(OLD / f"{name}.json")
    assert (found.ok, found.summary) == (ok, old["summary"])
    assert "recorded no coverage" in found.verdict.coverage.items[0].how
    new = workbench.load(found.save(tmp_path / "again.json")).to_dict()
    rows = [
        {key: row[key] for key in before}  # a field that is newer than 0.1 has its default
        for before, row in zip(old["tensors"], new["tensors"], strict=True)
    ]
    assert {key: new[key] for key in old} | {"tensors": rows} == old


def test_a_comparison_of_version_01_loads() -> None:
    old = json.loads((OLD / "weightcompare-ok.json").read_text())
    found = workbench.load(OLD / "weightcompare-ok.json")
    assert found.ok is True
    assert {key: found.to_dict()[key] for key in old} == old


def test_a_loaded_scan_opens_nothing_that_its_file_names(
    healthy: WeightScan, tmp_path: Path, root: Path
) -> None:
    data = healthy.to_dict() | {"source": "http://127.0.0.1:9/", "kind": "server"}
    (tmp_path / "x.json").write_text(json.dumps(data))
    loaded = workbench.load(tmp_path / "x.json")
    assert isinstance(loaded, WeightScan)
    for call in (lambda: loaded.compare(root / DRAFT), lambda: healthy.compare(loaded)):
        with pytest.raises(workbench.WorkbenchError, match="was read from a file"):
            call()
    again = workbench.load(healthy.save(tmp_path / "y.json"))
    assert isinstance(again, WeightScan)
    assert again.compare(root / DRAFT, source=root / DRAFT).ok is True


def test_what_a_comparison_covers(healthy: WeightScan, root: Path, tmp_path: Path) -> None:
    same = healthy.compare(root / DRAFT)
    assert same.ok is True
    assert same.verdict.coverage.count("ok") == 16
    before = scan(tmp_path, **{"a.weight": trained(), "b.weight": drawn()})
    (tmp_path / "after").mkdir()
    tensors = {"a.weight": trained()[:128], "c.weight": drawn()}
    save_file(tensors, tmp_path / "after" / "model.safetensors")
    after = before.compare(tmp_path / "after")
    assert after.ok is False
    assert [item.name for item in after.verdict.coverage.having("wrong")] == ["a.weight"]
    aside = {item.name for item in after.verdict.coverage.having("open", essential=False)}
    assert aside == {"b.weight", "c.weight"}


def test_seen_is_made_anew_from_a_file(healthy: WeightScan) -> None:
    assert isinstance(WeightScan.from_dict(healthy.to_dict()).seen, Seen)
