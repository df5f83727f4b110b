"""The table of launches is whole, and the runner counts what it should."""

from __future__ import annotations

import collections
import json
import struct
from pathlib import Path

import pytest

from workbench.launch.read import read_launch

from . import judge
from .__main__ import summary, table
from .cases import MOMENTS, TRUTHS, Line, read_lines
from .judge import Judged, outcome
from .models import MODELS, build
from .truth import differs

LINES = read_lines()
PLACES = {name: Path("/models") / name for name in MODELS}


def test_half_of_about_a_hundred_are_good() -> None:
    assert len(LINES) >= 100
    assert len({line.name for line in LINES}) == len(LINES)
    assert 0.4 < sum(line.good for line in LINES) / len(LINES) < 0.6
    engines = collections.Counter(line.engine.partition("==")[0] for line in LINES)
    assert engines["sglang"] > 80
    assert set(engines) == {"sglang", "vllm", "tensorrt-llm"}


@pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])
def test_a_launch_has_all_that_it_needs(line: Line) -> None:
    assert set(line.models) <= set(MODELS)
    assert line.models
    assert line.moment in ("", *MOMENTS)
    assert bool(line.names) is not line.good
    assert line.truth in TRUTHS
    assert line.url.startswith("https://")
    refused = line.moment in ("parser", "check")
    if line.engine.startswith("sglang"):
        assert refused <= (line.truth == "parser")
        assert bool(line.said) is (refused and line.truth == "parser")
    if line.truth != "parser":
        assert line.basis
    read = read_launch(line.placed(PLACES), version=line.engine.partition("==")[2])
    assert read.engine == line.engine.partition("==")[0]


def test_both_sides_of_most_kinds() -> None:
    sides = collections.defaultdict(set)
    for line in LINES:
        sides[line.kind].add(line.good)
    assert [kind for kind, found in sides.items() if len(found) == 1] == []


def test_a_model_is_what_its_config_says(tmp_path: Path) -> None:
    place = build(tmp_path, ["eagle3-vocab", "small"])["eagle3-vocab"]
    data = (place / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    config = json.loads((place / "config.json").read_text())
    assert header["lm_head.weight"]["shape"] == [config["draft_vocab_size"], config["hidden_size"]]
    assert header["t2d"]["shape"] == [config["vocab_size"]]
    last = max(row["data_offsets"][1] for name, row in header.items() if name[0] != "_")
    assert last == len(data) - 8 - size


def line(moment: str = "", names: tuple[str, ...] = ()) -> Line:
    return Line("one", "sglang==0.5.14", "", "flag", moment, names, "parser", "", "", "", "")


def test_outcomes() -> None:
    good, bad = line(), line("parser", ("--nope|--no", "3"))
    found = [outcome(good, status, "") for status in (0, 1, 3, 2)]
    assert found == ["✓", "wrongly accused", "cannot tell", "error"]
    assert outcome(bad, 1, "--NO\n takes 3") == "caught"
    assert outcome(bad, 1, "--no") == "unnamed"
    assert outcome(bad, 0, "--no 3") == "missed"
    assert outcome(bad, 3, "--no 3") == "cannot tell"


def test_an_answer_of_the_engine_is_compared() -> None:
    bad = Line("one", "sglang==0.5.14", "", "flag", "check", (), "parser", "divisible", "", "", "")
    assert differs(bad, {"moment": "check", "why": "must be divisible"}) == ""
    assert "other words" in differs(bad, {"moment": "check", "why": "no"})
    assert "seen" in differs(bad, {"moment": "", "why": ""})
    assert differs(line("load"), {"moment": "", "why": ""}) == ""
    assert "seen" in differs(line("load"), {"moment": "parser", "why": "no"})


def test_what_came_out_is_counted() -> None:
    judged = [Judged(line(), "✓", ""), Judged(line("load", ("x",)), "missed", "")]
    assert "| all | 2 | 0 | 1 | 0 | 0 | 1 | 0 | 0 |" in table(judged)
    assert "1 of 1 good launches get ✓, 0 of 1 are wrongly accused" in summary(judged)


def test_nothing_is_judged_without_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from . import __main__ as program

    monkeypatch.setattr(program, "is_there", lambda: False)
    assert program.main([]) == 3
    assert isinstance(judge.is_there(), bool)
