"""The shipped case itself: its checkpoints through the workbench's readers, its numbers from its files."""

from __future__ import annotations

import importlib.util
import json
import lzma
import sys
from pathlib import Path
from types import ModuleType

import pytest

from workbench import diff_keys, open_checkpoint

DATA = Path(__file__).parents[2] / "data" / "incident"
SCRIPTS = DATA.parent / "scripts" / "incident"
LAYER = {
    f"layers.0.{name}.weight"
    for name in (
        "hidden_norm",
        "input_layernorm",
        "post_attention_layernorm",
        "mlp.down_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "self_attn.k_proj",
        "self_attn.o_proj",
        "self_attn.q_proj",
        "self_attn.v_proj",
    )
}


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a script of the case; its neighbours are found by their bare names."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location(f"incident_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_checkpoints_are_read() -> None:
    target = open_checkpoint(DATA / "target")
    assert target.config.get("num_hidden_layers") == 12
    speculators = open_checkpoint(DATA / "drafts" / "speculators")
    assert set(speculators.names) > LAYER
    assert speculators.config.layout == "speculators"
    specforge = open_checkpoint(DATA / "drafts" / "specforge")
    assert {name.replace("midlayer.", "layers.0.") for name in specforge.names} > LAYER


def test_the_incident_loses_ten_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = tmp_path / "draft"
    script("recipes", monkeypatch).write(
        "speculators-flattened", DATA / "drafts" / "speculators", draft
    )
    before = diff_keys(draft, "sglang==0.5.11", target=DATA / "target")
    assert before.ok is False
    assert set(before.dropped) == LAYER
    after = diff_keys(draft, "sglang==0.5.14", target=DATA / "target")
    assert after.ok is True
    assert not after.dropped


def test_the_repaired_draft_loads_in_the_engine_that_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / "draft"
    script("recipes", monkeypatch).write(
        "speculators-repaired", DATA / "drafts" / "speculators", draft
    )
    assert diff_keys(draft, "sglang==0.5.11", target=DATA / "target").ok is True


def test_expected_numbers_are_those_of_the_recorded_files(monkeypatch: pytest.MonkeyPatch) -> None:
    summarise = script("summarise", monkeypatch)
    runs = json.loads((DATA / "expected.json").read_text())["runs"]
    folders = {file.parent for file in (DATA / "runs").rglob("run.json")}
    assert {DATA / "runs" / name for name in runs} == folders
    for name, run in runs.items():
        assert json.loads(json.dumps(summarise.summary(DATA / "runs" / name))) == run, name


def test_the_story_is_in_the_numbers() -> None:
    runs = json.loads((DATA / "expected.json").read_text())["runs"]

    def length(name: str) -> float:
        return runs[name]["accept_length"]

    assert length("sglang-0.5.11/incident") < 1.1
    assert length("sglang-0.5.11/repaired-eagle") < 1.1
    assert length("sglang-0.5.11/repaired") > 2
    assert length("sglang-0.5.14/speculators") > 2
    assert length("sglang-0.5.14/no-lm-head") == 1.0
    for name, run in runs.items():
        if run["outcome"] == "recorded":
            assert run["chunks"]["rounds_in_order"], name


def test_it_is_small() -> None:
    """The target is 18 MB of it, the four drafts 9."""
    assert sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file()) < 33e6


def test_what_the_hooks_recorded_is_read(tmp_path: Path) -> None:
    """The arrays are there, and say what the incident's draft held: the file's fc, and no layer."""
    for run, name, key in (
        ("sglang-0.5.14/speculators-hooks", "hooks", "00002-draft.logits"),
        ("sglang-0.5.11/incident-hooks", "hooks", "00002-draft.logits"),
        ("sglang-0.5.11/incident-hooks", "memory", "model.midlayer.self_attn.o_proj.weight"),
    ):
        file = tmp_path / f"{name}.safetensors"
        file.write_bytes(
            lzma.decompress((DATA / "runs" / run / f"{name}.safetensors.xz").read_bytes())
        )
        assert key in open_checkpoint(file).names
    memory = json.loads((DATA / "runs/sglang-0.5.11/incident-hooks/memory.json").read_text())
    assert {name for name, found in memory.items() if found["as_in_the_file"]} == {
        "model.fc.weight"
    }
    healthy = json.loads((DATA / "runs/sglang-0.5.11/repaired-hooks/memory.json").read_text())
    assert all(found["as_in_the_file"] for found in healthy.values())


def test_the_hang_has_its_odd_rank() -> None:
    for number in (1, 2):
        snapshot = DATA / "hang" / "capture-hang" / f"snapshot-{number}"
        processes = json.loads((snapshot / "processes.json").read_text())["processes"]
        states = {process["cmd"].split()[0]: process["status"] for process in processes}
        assert states["sglang::scheduler_TP1"] == "stopped"
        assert states["sglang::scheduler_TP0"] == "sleeping"
        waiting = next(p["pid"] for p in processes if p["cmd"].startswith("sglang::scheduler_TP0"))
        threads = json.loads((snapshot / f"pyspy-{waiting}.json").read_text())
        main = next(thread for thread in threads if "Main" in (thread["thread_name"] or ""))
        assert main["frames"][0]["name"] == "barrier"


def test_the_incidents_own_line_is_that_of_the_formula_before_0_5_11() -> None:
    runs = json.loads((DATA / "expected.json").read_text())["runs"]
    assert runs["sglang-0.5.10/incident"]["log"] == {"accept_len": 1.0, "accept_rate": 0.2}
    assert runs["sglang-0.5.11/incident"]["log"] == {"accept_len": 1.0, "accept_rate": 0.0}
    log = (DATA / "runs/sglang-0.5.10/incident/server.log").read_text()
    assert "accept len: 1.00, accept rate: 0.20" in log
