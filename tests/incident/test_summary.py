"""The numbers of the shipped case are what the recorded files say."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts" / "incident"


@pytest.fixture
def summarise() -> ModuleType:
    spec = importlib.util.spec_from_file_location("incident_summarise", SCRIPTS / "summarise.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def request(chunks: list[int], **meta: Any) -> dict[str, Any]:
    last = {"output_ids": list(range(chunks[-1])), "meta_info": meta}
    return {"prompt": 0, "input_ids": [1], "chunks": [[n, 1.0] for n in chunks], "last": last}


def recorded(folder: Path, requests: list[dict[str, Any]], **run: Any) -> None:
    folder.mkdir(parents=True)
    outcome = {"outcome": "recorded", "run": {"name": folder.name, "draft": "drafts/x", **run}}
    (folder / "run.json").write_text(json.dumps(outcome))
    (folder / "server.log").write_text("a accept len: 2.00, accept rate: 0.25, b\n")
    with gzip.open(folder / "requests.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)


def test_rates_come_from_the_engines_histogram(tmp_path: Path, summarise: ModuleType) -> None:
    recorded(
        tmp_path / "v" / "good",
        [
            request([1, 4, 5, 9], spec_accept_histogram=[1, 0, 1, 1], spec_accept_length=3.0),
            # The last round is cut: two drafts more were accepted than there was room for.
            request([1, 2, 5], spec_accept_histogram=[1, 0, 0, 0, 1], spec_accept_length=2.5),
            # Two rounds came in one chunk: the stream alone does not tell the order.
            request([1, 4], spec_accept_histogram=[1, 1], spec_accept_length=2.0),
        ],
        steps=4,
    )
    run = summarise.summary(tmp_path / "v" / "good")
    assert run["histogram"] == [3, 1, 1, 1, 1]
    assert run["rounds"] == 7
    assert run["accept_length"] == round(1 + (1 + 2 + 3 + 4) / 7, 4)
    assert run["unconditional"] == [round(n / 7, 4) for n in (4, 3, 2, 1)]
    assert run["conditional"] == [round(4 / 7, 4), 0.75, 0.6667, 0.5]
    assert run["accept_length_request"] == 2.5
    assert run["chunks"] == {"rounds_in_order": False, "requests_not_explained": 1}
    assert run["log"] == {"accept_len": 2.0, "accept_rate": 0.25}


def test_without_a_histogram_the_stream_counts(tmp_path: Path, summarise: ModuleType) -> None:
    recorded(tmp_path / "old", [request([1, 2, 4, 5])])
    run = summarise.summary(tmp_path / "old")
    assert run["source"] == "stream"
    assert run["histogram"] == [2, 1, 0, 0, 0]
    assert run["conditional"] == [0.3333, 0.0, None, None]


def test_a_failed_run_is_in_the_table_with_its_reason(
    tmp_path: Path, summarise: ModuleType
) -> None:
    folder = tmp_path / "dead"
    folder.mkdir()
    outcome = {"outcome": "failed", "error": "RuntimeError: no layer", "run": {"name": "dead"}}
    (folder / "run.json").write_text(json.dumps(outcome))
    run = summarise.summary(folder)
    assert run["prompts"] == 0
    assert "no layer" in summarise.table({"dead": run})
