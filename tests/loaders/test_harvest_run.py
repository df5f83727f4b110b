"""Each class is harvested in a process of its own: what one does costs no other."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import pytest

from workbench.loaders.harvest import run


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
