"""Each class is harvested in a process of its own: what one does costs no other."""

from __future__ import annotations

import lzma
import os
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from workbench.loaders import harvesting
from workbench.loaders.harvest import run
from workbench.loaders.maps.records import Maps


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = types.SimpleNamespace(quiet=lambda: None)
    monkeypatch.setitem(sys.modules, "workbench_harvest.engine", quiet)


def work(name: str) -> dict[str, Any]:
    """Return, raise or die, as the name says."""
    if name == "raises":
        raise ValueError("no config")
    if name == "dies":
        os._exit(7)
    return {"pid": os.getpid(), "complete": True}


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_what_one_class_does_costs_no_other(jobs: int) -> None:
    names = ["a", "raises", "dies", "b"]
    found = {record.pop("class"): record for record in run.each(work, names, jobs)}
    assert sorted(found) == sorted(names)
    assert found["a"]["complete"]
    assert found["a"]["pid"] not in (os.getpid(), found["b"]["pid"])
    assert found["raises"]["why"] == "ValueError: no config"
    assert found["dies"]["why"].startswith("stopped: ")
    assert all(record["seconds"] >= 0 for record in found.values())


def packed(folder: Path, classes: list[str], keep: bool) -> dict[str, str]:
    """Pack what was seen of some classes; return what is said of each class."""
    head: dict[str, Any] = {
        "engine": "sglang",
        "version": "9.9",
        "transformers": "9",
        "modules": {},
    }
    lines = [head | {"classes": classes}, *({"class": name, "why": "new"} for name in classes)]
    file = harvesting.pack(lines, folder, keep)
    maps = msgspec.json.decode(lzma.decompress(file.read_bytes()), type=Maps)
    return {name: found.why for name, found in maps.classes.items()}


def test_classes_that_are_not_harvested_keep_their_maps_if_asked(tmp_path: Path) -> None:
    assert packed(tmp_path, ["A", "B"], False) == {"A": "new", "B": "new"}
    assert packed(tmp_path, ["B", "C"], True) == {"A": "new", "B": "new", "C": "new"}
    assert packed(tmp_path, ["B"], False) == {"B": "new"}
