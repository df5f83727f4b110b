"""Launches as people publish them, against what each of them says (cases/public.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.launch.read import read_launch

CASES = yaml.safe_load((Path(__file__).parent / "cases" / "public.yaml").read_text())
KEYS = {
    "target": "model-path",
    "draft": "speculative-draft-model-path",
    "algorithm": "speculative-algorithm",
    "steps": "speculative-num-steps",
    "topk": "speculative-eagle-topk",
    "tokens": "speculative-num-draft-tokens",
    "tp": "tp-size",
}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_published_launch_is_read(case: Mapping[str, Any]) -> None:
    found = read_launch(case["text"], version=case.get("release", ""))
    wanted = case["reading"]
    assert (found.engine or None, found.version) == (wanted["engine"], wanted.get("version", ""))
    for name, key in KEYS.items():
        value = wanted.get(name)
        if value is None:
            assert found.state(key) != "known", name
        elif value == "?":
            assert found.state(key) == "unknown", name
        else:
            assert found.value(key) == value, name
    assert case.get("environment", {}).items() <= dict(found.environment).items()
    assert found.log == case.get("log", found.log)
    unread = " ".join(map(str, found.not_read))
    assert all(word in unread for word in case.get("open", ())), unread
    assert bool(case.get("open")) == bool(found.not_read), unread


def test_the_table_has_launches_of_both_kinds() -> None:
    whole = [case for case in CASES if "open" not in case]
    assert len(CASES) >= 80
    assert 30 < len(whole) < len(CASES) - 30
    assert sum(not case.get("written") for case in CASES) >= 60
