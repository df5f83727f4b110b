"""What each version prints about acceptance: the incident's own numbers, and the engines' sources."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines import environments
from workbench.errors import EngineError
from workbench.facts.metrics import (
    Acceptance,
    accept_rate,
    rate_formula,
)

NOTHING = Acceptance(rounds=1880, accepted=0, steps=4, draft_tokens=5)


@pytest.mark.parametrize(
    ("version", "rate"),
    [
        ("0.4.10", None),
        ("0.5.3", None),
        ("0.5.3.post2", 0.2),
        ("0.5.5.post2", 0.2),
        ("0.5.9", 0.2),
        ("0.5.10.post1", 0.2),
        ("0.5.11", 0.0),
        ("0.5.23", 0.0),
    ],
)
def test_nothing_accepted_prints_one_fifth_until_0_5_10(version: str, rate: float | None) -> None:
    printed = accept_rate("sglang", version, NOTHING)
    assert printed.accept_length == 1.0
    assert printed.accept_rate == rate
    assert "draft tokens were never accepted" in printed.meaning
    assert printed.drafts_accepted == 0.0


def test_a_tree_counts_nodes_from_0_5_5_post3_and_steps_before() -> None:
    tree = Acceptance(rounds=100, accepted=150, steps=4, draft_tokens=16)
    assert accept_rate("sglang", "0.5.4", tree).accept_rate == pytest.approx(250 / 500)
    assert accept_rate("sglang", "0.5.9", tree).accept_rate == pytest.approx(250 / 1600)
    assert accept_rate("sglang", "0.5.14", tree).accept_rate == pytest.approx(150 / 1500)
    assert accept_rate("vllm", "0.32.0", tree).accept_rate == pytest.approx(150 / 400)


def test_no_round_gives_no_number() -> None:
    printed = accept_rate("sglang", "0.5.9", Acceptance(0, 0, 4, 5))
    assert printed.accept_length is None
    assert printed.accept_rate is None
    assert "there were no rounds" in str(printed)


@pytest.mark.parametrize(("engine", "version"), [("llama.cpp", "1.0"), ("sglang", "latest")])
def test_what_is_not_known_is_said(engine: str, version: str) -> None:
    with pytest.raises(EngineError):
        accept_rate(engine, version, NOTHING)


RUNS = sorted((ROOT / "data/incident/runs").glob("*/*/server.log"))


@pytest.mark.parametrize("log", RUNS, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_recorded_servers_print_what_the_formula_says(log: Path) -> None:
    """Every logged pair of length and rate of a real server follows from the formula of its version."""
    version = log.parts[-3].removeprefix("sglang-")
    expected = json.loads((ROOT / "data/incident/expected.json").read_text())["runs"]
    run = expected["/".join(log.parts[-3:-1])]
    pairs = re.findall(r"accept len: ([\d.]+), accept rate: ([\d.]+)", log.read_text())
    assert pairs
    for length, rate in pairs:
        # The line has two digits of each: the rate is the formula's within what the length leaves open.
        accepted = round((float(length) - 1) * 10_000)
        seen = Acceptance(10_000, accepted, run["steps"], run["draft_tokens"])
        assert accept_rate("sglang", version, seen).accept_rate == pytest.approx(
            float(rate), abs=0.005 + 0.005 / run["steps"] + 1e-9
        )


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.8", "0.5.11", "0.5.12", "0.5.14", "0.5.23"])
def test_the_formula_stands_in_the_source(version: str) -> None:
    environments.ensure(f"sglang-{version}")
    packages = environments.cache() / f"packages-{environments.PYTHON_TAG}"
    package = packages / f"sglang=={version}" / "sglang" / "srt"
    texts = [path.read_text() for path in package.rglob("*metrics*.py")]
    text = next(text for text in texts if "accept len:" in text)
    before = text[: text.index("accept len:")][-3000:]
    formula = rate_formula(version)
    assert ("draft_tokens_fallback" in before) == (formula == "tokens/drafts")
    assert ("_draft_tokens - 1" in before) == (formula == "drafts/(drafts-1)")
