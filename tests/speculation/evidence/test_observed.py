"""Recorded runs: what a folder holds, and folders that hold nonsense."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.observed import read_hidden, read_launch, read_run, read_tensors
from workbench.speculation.judge.counts import Counts
from workbench.speculation.judge.coverage import LAUNCH, ReplayEvidence, items

RUNS = ROOT / "data" / "incident" / "runs"


def test_a_recorded_run_is_told_in_rounds() -> None:
    run = read_run(RUNS / "sglang-0.5.14" / "speculators-tree")
    launch = run.launch
    assert (launch.engine, launch.algorithm, launch.dtype) == (
        "sglang==0.5.14",
        "EAGLE3",
        "bfloat16",
    )
    assert (launch.steps, launch.topk, launch.draft_tokens, launch.graphs) == (4, 4, 16, True)
    assert len(run.requests) == 200
    assert all(request.explained for request in run.requests)
    first = run.requests[0]
    assert sum(first.emitted) + 1 == len(first.answer) == 48
    assert first.starts[0] == len(first.prompt) + 1
    assert len(first.starts) == len(first.emitted) == sum(first.histogram)
    expected = json.loads((RUNS.parent / "expected.json").read_text())["runs"]
    assert (
        sum(len(r.emitted) for r in run.requests)
        == expected["sglang-0.5.14/speculators-tree"]["rounds"]
    )


def test_graphs_off_and_eagle_are_seen_in_the_command() -> None:
    assert not read_launch(RUNS / "sglang-0.5.14" / "speculators-hooks").graphs
    assert not read_launch(RUNS / "sglang-0.5.11" / "incident-graphs-off").graphs
    assert read_launch(RUNS / "sglang-0.5.11" / "incident-eagle").algorithm == "EAGLE"


def test_hidden_states_and_hooks_are_read() -> None:
    folder = RUNS / "sglang-0.5.14" / "speculators-hooks"
    hidden = read_hidden(folder)
    assert [tuple(h.rows.shape) for h in hidden] == [(63, 768), (85, 768), (57, 768)]
    assert (hidden[0].rows == hidden[0].rows.bfloat16().float()).all()
    assert read_tensors(folder, "hooks")
    assert read_tensors(folder, "nothing") == {}


def write(folder: Path, lines: list[str]) -> Path:
    with gzip.open(folder / "requests.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    return folder


def test_nonsense_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="no recorded run"):
        read_run(tmp_path)
    with pytest.raises(WorkbenchError, match="line 2"):
        read_run(write(tmp_path, ["{}", "[1]"]))
    with pytest.raises(WorkbenchError, match="token ids"):
        read_run(write(tmp_path, ['{"input_ids": [1, -2]}']))
    with pytest.raises(WorkbenchError, match="token ids"):
        read_run(write(tmp_path, ['{"input_ids": "\\u001b[31m"}']))
    (tmp_path / "requests.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(WorkbenchError, match="cannot read"):
        read_run(tmp_path)


def test_odd_chunks_and_flags_do_no_harm(tmp_path: Path) -> None:
    line = {
        "input_ids": [1, 2],
        "chunks": [[None, 1], [1, 2], [1, 3], [0, 4], [3, 5], ["x"], [99, 6]],
        "last": {"output_ids": [5, 6, 7, 8], "meta_info": {"spec_accept_histogram": [0, 1, None]}},
    }
    (tmp_path / "launch.json").write_text(
        json.dumps({"command": ["--speculative-num-steps", "many", "--dtype"], "versions": 5})
    )
    run = read_run(write(tmp_path, [json.dumps(line), json.dumps({"input_ids": [1]})]))
    assert run.requests[0].counts == (1, 3, 4)
    assert run.requests[0].emitted == (2, 1)
    assert run.launch.steps == 3
    assert "1 requests have no round" in run.notes[0]


@pytest.mark.parametrize(
    ("change", "algorithm", "open_"),
    [
        (lambda word: word, "EAGLE", False),
        (
            lambda word: word.replace("--speculative-algorithm", "--speculative-algo"),
            "EAGLE",
            False,
        ),
        (lambda word: word.replace("--speculative-algorithm", "--speculative-algoritm"), "", True),
        (lambda word: "$ALG" if word == "EAGLE" else word, "", True),
        (lambda word: "train.py" if word == "sglang.launch_server" else word, "", True),
    ],
)
def test_a_launch_as_eagle_is_not_taken_for_eagle3(
    change: Callable[[str], str], algorithm: str, open_: bool, tmp_path: Path
) -> None:
    data = json.loads((RUNS / "sglang-0.5.14" / "eagle" / "launch.json").read_text())
    data["command"] = [change(word) for word in data["command"]]
    (tmp_path / "launch.json").write_text(json.dumps(data))
    launch = read_launch(tmp_path)
    assert (launch.engine, launch.algorithm) == ("sglang==0.5.14", algorithm)
    assert bool(launch.unread) is open_
    counts = Counts(None, None, None, None, 0)
    item = [i for i in items(ReplayEvidence(counts, launch=launch)) if i.name == LAUNCH]
    assert [(i.state, i.essential) for i in item] == ([("open", True)] if open_ else [])
