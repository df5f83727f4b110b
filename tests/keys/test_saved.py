"""Saved diffs: read as they were written, never believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.keys.records import KeyDiff

OLD = Path(__file__).parents[1] / "golden" / "saved-0.1"


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@pytest.fixture(scope="module")
def saved(root: Path) -> dict[str, Any]:
    return workbench.diff_keys(root / "data/drafts/speculators", "sglang==0.5.11").to_dict()


def load(data: dict[str, Any], folder: Path) -> KeyDiff:
    file = folder / "x.json"
    file.write_text(json.dumps(data))
    found = workbench.load(file)
    assert isinstance(found, KeyDiff)
    return found


@pytest.mark.parametrize(
    ("name", "ok"), [("keydiff-ok", True), ("keydiff-wrong", False), ("keydiff-open", None)]
)
def test_a_diff_of_version_01_loads_and_says_what_it_lacks(
    name: str, ok: bool | None, tmp_path: Path
) -> None:
    found = workbench.load(OLD / f"{name}.json")
    assert found.ok is ok
    old = json.loads((OLD / f"{name}.json").read_text())
    assert found.summary == old["summary"]
    assert "recorded no coverage" in found.verdict.coverage.items[0].how
    again = workbench.load(found.save(tmp_path / "again.json"))
    assert again == found
    new = again.to_dict()
    for finding in old["findings"]:
        finding["code"] = finding["code"].replace("-", "_")  # as the codes are spelt today
    assert {key: new[key] for key in old} == old  # nothing is lost, much is added


def wrong_ok(data: dict[str, Any]) -> None:
    data["ok"] = True


def as_if_of_01(data: dict[str, Any]) -> None:
    data["ok"] = True
    del data["verdict"]


def all_items_ok(data: dict[str, Any]) -> None:
    data["ok"] = True
    for item in data["verdict"]["coverage"]["items"]:
        item["state"] = "ok"


def lists_emptied(data: dict[str, Any]) -> None:
    all_items_ok(data)
    for name in ("dropped", "missing", "partial"):
        data[name] = []


def other_sentence(data: dict[str, Any]) -> None:
    data["summary"] = "All is well."


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "ok": wrong_ok,
    "verdict taken out": as_if_of_01,
    "items": all_items_ok,
    "lists": lists_emptied,
    "sentence": other_sentence,
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_verdict_does_not_load(edit: str, saved: dict[str, Any], tmp_path: Path) -> None:
    data = json.loads(json.dumps(saved))
    EDITS[edit](data)
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        load(data, tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("ok",), "yes"),
        (("ok",), 1),
        (("basis",), "guessed"),
        (("outcome",), "fine"),
        (("findings", 0, "confidence"), "sure"),
        (("findings", 0, "severity"), "bad"),
        (("findings", 0, "evidence_for"), "text"),
        (("verdict", "confidence"), "sure"),
        (("verdict", "coverage", "items", 0, "state"), "fine"),
        (("verdict", "coverage", "items", 0, "count"), 0),
        (("renames", 0, "renamed"), -1),
        (("details", "keys", 0, "status"), "lost"),
        (("details", "keys", 0, "index"), [[1], [2]]),
        (("details", "parameters", 0, "fraction"), 1.5),
        (("dropped",), ["other.weight"]),
    ],
    ids=str,
)
def test_a_field_of_another_type_or_word_does_not_load(
    path: tuple[Any, ...], value: Any, saved: dict[str, Any], tmp_path: Path
) -> None:
    data = json.loads(json.dumps(saved))
    at = data
    for step in path[:-1]:
        at = at[step]
    assert at[path[-1]] != value
    at[path[-1]] = value
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        load(data, tmp_path)


def test_a_field_that_is_not_known_is_ignored(saved: dict[str, Any], tmp_path: Path) -> None:
    assert load(saved | {"later": 1}, tmp_path).ok is False


def test_the_text_of_a_rule_follows_from_the_rule(saved: dict[str, Any], tmp_path: Path) -> None:
    data = json.loads(json.dumps(saved))
    data["renames"][0]["text"] = "rm -rf /"
    assert load(data, tmp_path).renames[0].text == r"^layers\.0\. -> midlayer."
