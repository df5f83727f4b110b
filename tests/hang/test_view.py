"""A diagnosis as text, as the data of its view, and as a speedscope file."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.forms import check_forms
from tests.hang_samples import HOSTILE, diverged, hostile, idle, partly_seen
from workbench.core.wording import cells
from workbench.display.static_html import static
from workbench.hang.diagnosis_records import RankRow, Span, TreeNode, walk
from workbench.hang.judge import wording
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.records import Frame
from workbench.hang.saved import forest_of, nodes_of

MAKERS = {"hang-diverged": diverged, "hang-partly-seen": partly_seen, "hang-idle": idle}


@pytest.mark.parametrize("name", MAKERS)
def test_every_form_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forms(MAKERS[name](), name, monkeypatch)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("make", [diverged, partly_seen, hostile, lambda: diverged(512, 77)])
def test_the_text_fits_and_is_printable(make: Callable[[], HangDiagnosis], width: int) -> None:
    for line in make().to_text(width).splitlines():
        assert line.isprintable()
        assert cells(line) <= width


def test_512_ranks_still_fit_a_screen() -> None:
    lines = diverged(512, 77).to_text(100).splitlines()
    assert len(lines) < 60
    assert any("TP77" in line and "odd" in line for line in lines[:18])
    assert any("TP0-76,78-511" in line for line in lines)


def test_without_unicode_the_text_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.display.text.unicode_wanted", lambda: False)
    for make in (diverged, partly_seen):
        assert make().to_text(80).isascii()


def test_ranks_that_were_not_seen_say_why_and_what_to_do() -> None:
    text = " ".join(partly_seen().to_text(80).split())
    for said in (
        "TP2 not seen",
        "no permission to trace",
        "do: run as root",
        "exit code -9",
        "TP6-7 not collected",
    ):
        assert said in text
    assert "stacks of 4 of 8" in text


def test_who_goes_no_further_is_named() -> None:
    ends = [branch for branch in wording.branches(partly_seen().tree) if branch.ends]
    assert [branch.ends for branch in ends] == [(5,)]


def test_no_snapshot_no_rank_no_log() -> None:
    made = dataclasses.replace(diverged(), ranks=(), tree=(), timeline=(), threads=())
    nothing = dataclasses.replace(made, times=(), findings=())
    assert "no snapshot, only logs" in nothing.to_text(80)
    data = nothing.payload()
    assert data["timeline"] is None
    assert data["tree"]["nodes"] == []
    static(nothing)


def test_branches_cover_the_tree_once() -> None:
    forest = diverged(16, 3).tree
    assert [f for b in wording.branches(forest) for f in b.frames] == [
        n.frame for _, n in walk(forest)
    ]
    for branch in wording.branches(forest):
        assert sorted({*branch.has, *branch.lacks}) == list(range(16))
        assert not set(branch.has) & set(branch.lacks)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8"), ([2, 1, 2], "1-2")],
)
def test_numbers_as_ranges(numbers: list[int], text: str) -> None:
    assert wording.spans(numbers) == text


def test_names_of_ranks() -> None:
    def ranks(*names: str) -> list[RankRow]:
        return [RankRow(at, name, "waiting") for at, name in enumerate(names)]

    assert wording.names_of(ranks("TP0", "TP1", "TP3")) == "TP0-1,3"
    assert wording.names_of(ranks("DP0 TP0", "DP0 TP1")) == "DP0 TP0, DP0 TP1"
    assert wording.names_of(ranks(*(f"DP{n} TP0" for n in range(20)))) == "ranks 0-19"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.96, "10 s"), (119.4, "119 s"), (119.6, "2 min"),
     (485, "8 min 5 s"), (7380, "2 h 3 min")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


# The data of the view


@pytest.mark.parametrize("make", [diverged, partly_seen, hostile, lambda: diverged(64, 9)])
def test_the_data_is_strict_and_its_numbers_point_somewhere(
    make: Callable[[], HangDiagnosis],
) -> None:
    made = make()
    data = json.loads(json.dumps(made.payload(), allow_nan=False))
    frames, sets = data["frames"], data["tree"]["sets"]
    for depth, at, ranks, moving in data["tree"]["nodes"]:
        assert depth >= 0
        assert frames[at]
        assert len(sets[ranks]) == len(made.times)
        assert moving in (0, 1)
    assert all(rank["frame"] is None or frames[rank["frame"]] for rank in data["ranks"])
    assert all(frames[at] for thread in data["threads"] for at in thread["frames"])
    assert data["left_out"] == {"threads": 0, "nodes": 0, "ranks": 0}
    grouped = [r for g in data["groups"] for a, b in g["ranks"] for r in range(a, b + 1)]
    assert sorted(grouped) == [rank.rank for rank in made.ranks]


def packed(data: dict[str, Any]) -> int:
    return len(gzip.compress(json.dumps(data).encode(), 6))


@pytest.mark.parametrize("limit", [30_000, 15_000, 9_000, 5_000])
def test_a_bounded_view_is_bounded_and_says_what_it_lacks(limit: int) -> None:
    made = diverged(512, 77)
    assert packed(made.payload()) > 30_000
    data = made.payload(limit)
    assert packed(data) <= limit
    assert any(rank["standing"] == "odd" for rank in data["ranks"])
    left = data["left_out"]
    assert left["threads"] == len(made.threads) - len(data["threads"]) > 0
    assert left["ranks"] == 512 - len(data["ranks"])
    assert left["nodes"] == sum(1 for _ in walk(made.tree)) - len(data["tree"]["nodes"])


def test_the_bystanders_are_left_out_first() -> None:
    made = diverged(64, 9)
    whole = made.payload()
    data = made.payload(packed(whole) - 1)
    assert all("folded" not in thread for thread in data["threads"])
    assert data["threads"]


def test_the_static_form_names_the_odd_rank_and_the_experiment() -> None:
    page = static(diverged())
    for said in ("TP5", "FlashInferAutotuner.choose_one", "decode=disabled", "never ended"):
        assert said in page


def test_hostile_texts_are_escaped_in_the_static_form_and_the_page(tmp_path: Path) -> None:
    made = hostile()
    assert "<img src=x" not in static(made)
    assert HOSTILE not in made.to_html(tmp_path / "page.html").read_text()


def test_a_saved_diagnosis_is_read_in_a_fresh_process(tmp_path: Path) -> None:
    made = partly_seen()
    path = made.save(tmp_path / "hang.json")
    code = f"import workbench; print(workbench.load({str(path)!r}).to_text(80))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == made.to_text(80) + "\n"


def test_stacks_deeper_than_python_recurses() -> None:
    node = TreeNode(Frame("leaf"), ((0,),))
    for at in range(5000):
        node = TreeNode(Frame(f"f{at}"), ((0,),), False, (node,))
    made = dataclasses.replace(diverged(1, 0), tree=(node,), times=(1.0,))
    assert nodes_of(forest_of(nodes_of((node,)))) == nodes_of((node,))
    assert "4998 frames" in made.to_text(80)
    assert len(made.payload()["tree"]["nodes"]) == 5001
    again = HangDiagnosis.from_dict(json.loads(made.to_json()))
    assert again.to_dict() == made.to_dict()


def test_impossible_times_are_shown_somehow() -> None:
    made = dataclasses.replace(diverged(), timeline=(Span(0, "weights", "weights", 1e30, None),))
    assert "an impossible time" in made.to_text(80)


def test_stages_too_quick_for_a_bar_share_a_line() -> None:
    quick = [("weights", 0.0, 0.1), ("draft", 0.2, 0.3), ("KV pool", 0.4, 0.5)]
    spans = (*(Span(0, n, n, a, b) for n, a, b in quick), Span(0, "graphs", "graphs", 1.0, None))
    made = dataclasses.replace(diverged(), timeline=spans, log_end=1.0, silent_for=99.0)
    lines = made.to_text(80).splitlines()
    assert any("weights to KV pool" in line and "together 0.5 s" in line for line in lines)
    assert any(line.startswith("  ? graphs") and "never ended" in line for line in lines)


def test_where_no_further_phase_began_is_told() -> None:
    spans = (Span(0, "weights", "weights", 0.0, 40.0),)
    made = dataclasses.replace(diverged(), timeline=spans, log_end=1240.0, silent_for=None)
    assert "the log has no further phase for 20 min" in made.to_text(80)
    healthy = dataclasses.replace(made, verdict=idle().verdict)
    assert "no further phase" not in healthy.to_text(80)


# speedscope

FORMAT: dict[str, Any] = {
    # The parts of speedscope's file-format-schema.json that a sampled profile uses.
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "number"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "additionalProperties": False,
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "file": {"type": "string"},
                            "line": {"type": "number"},
                            "col": {"type": "number"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string"},
                    "unit": {
                        "enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
                    },
                    "startValue": {"type": "number"},
                    "endValue": {"type": "number"},
                    "samples": {
                        "type": "array",
                        "items": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                    },
                    "weights": {"type": "array", "items": {"type": "number"}},
                },
            },
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("make", [diverged, partly_seen, hostile, lambda: diverged(512, 77)])
def test_a_speedscope_file_keeps_its_format(
    make: Callable[[], HangDiagnosis], tmp_path: Path
) -> None:
    made = make()
    data = json.loads(made.to_speedscope(tmp_path / "stacks.speedscope.json").read_bytes())
    jsonschema.validate(data, FORMAT)
    count = len(data["shared"]["frames"])
    assert len(data["profiles"]) == len(made.times)
    assert data["activeProfileIndex"] < len(data["profiles"])
    for profile in data["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]
        assert all(at < count for sample in profile["samples"] for at in sample)


def test_a_speedscope_sample_is_a_ranks_stack_root_first(tmp_path: Path) -> None:
    made = partly_seen()
    data = json.loads(made.to_speedscope(tmp_path / "stacks.json").read_bytes())
    names = [frame["name"] for frame in data["shared"]["frames"]]
    last = data["profiles"][-1]
    stacks = [[names[at] for at in sample] for sample in last["samples"]]
    ends = sorted(stack[-1].rpartition(".")[2] for stack in stacks)
    assert ends == ["barrier", "barrier", "barrier", "capture"]
    assert {stack[0] for stack in stacks} == {"_main"}


def test_a_speedscope_file_of_nothing_is_one_still(tmp_path: Path) -> None:
    made = dataclasses.replace(diverged(), tree=(), times=())
    jsonschema.validate(
        json.loads(made.to_speedscope(tmp_path / "nothing.json").read_bytes()), FORMAT
    )
