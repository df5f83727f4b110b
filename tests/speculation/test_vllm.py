"""The replay as vLLM loads and drives a draft, against what a real vLLM drafted and accepted (recorded).

The record is made by hand: see tests/engines/vllm_acceptance.py.
"""

import dataclasses
import json

import numpy as np
import pytest

import workbench
from tests.engines.vllm_acceptance import (
    DATA,
    ENGINE,
    NEW_TOKENS,
    RECORDED,
    SETUPS,
    compare,
    prompts,
)
from workbench import open_checkpoint
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.setup import as_launched

NAMED = {setup.name: setup for setup in SETUPS}
EXACT = [setup for setup in SETUPS if setup.dtype == "float32"]
LAUNCH = DraftLaunch(ENGINE, "EAGLE3", 4, 1, 5, dtype="float32")


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def target():
    return LlamaTarget.read(open_checkpoint(DATA / "target"), Numerics())


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_the_record_is_what_vllms_own_counters_say(recorded, setup):
    run = next(run for run in recorded["runs"] if run["name"] == setup.name)
    accepted = np.concatenate([request["accepted"] for request in run["requests"]])
    counters = run["counters"]
    assert len(accepted) == counters["drafts"] > 10 * setup.prompts
    assert accepted.sum() == counters["accepted_tokens"]
    deep = [int((accepted >= k).sum()) for k in range(1, setup.steps + 1)]
    assert deep == counters["accepted_tokens_per_pos"]


@pytest.mark.parametrize("setup", EXACT, ids=lambda setup: setup.name)
def test_in_float32_rounds_and_drafted_tokens_are_vllms(recorded, setup, tmp_path):
    found = compare(recorded, setup, tmp_path, most=12)
    assert found.plain == found.greedy == found.answers == 12
    assert found.agrees >= 0.99
    assert found.same_drafts >= 0.99
    assert found.begin_alike >= 0.99
    assert found.replayed.same_tokens().mean() >= 0.99


def test_in_bfloat16_they_differ_by_rounding_alone(recorded, tmp_path):
    found = compare(recorded, NAMED["chain of 4, bfloat16"], tmp_path, most=12)
    assert found.agrees >= 0.95
    assert found.same_drafts >= 0.9


def test_a_fault_that_vllm_was_not_served_with_is_seen(recorded, tmp_path):
    """The comparison can fail: the healthy draft does not explain what vLLM did with other layers."""
    other = dataclasses.replace(NAMED["layers 4, 8, 11 named"], changed=())
    assert compare(recorded, other, tmp_path, most=12).agrees < 0.9


def test_layer_ids_of_a_nested_config_are_taken_as_they_are(target, tmp_path):
    draft = open_checkpoint(NAMED["layers 4, 8, 11 named"].write(tmp_path))
    for engine in (ENGINE, "vllm", "sglang==0.5.14"):
        launch = dataclasses.replace(LAUNCH, engine=engine)
        assert as_launched(launch, draft, target)[1].aux == (4, 8, 11)


def test_what_a_draft_lacks_is_the_targets(target, tmp_path):
    borrowed, _ = as_launched(LAUNCH, open_checkpoint(DATA / "drafts" / "specforge"), target)
    assert borrowed.origins["embed_tokens.weight"] == "target"
    assert (borrowed.tensors["embed_tokens.weight"] == target.embedding).all()
    headless = open_checkpoint(NAMED["no lm_head in the file"].write(tmp_path))
    borrowed, _ = as_launched(LAUNCH, headless, target)
    assert (borrowed.tensors["lm_head.weight"] == target.head[:1024]).all()


def test_a_flag_counts_from_the_version_on_that_reads_it(target, tmp_path):
    draft = open_checkpoint(NAMED["norm_output claimed"].write(tmp_path))
    older = dataclasses.replace(LAUNCH, engine="vllm==0.21.0")
    assert as_launched(LAUNCH, draft, target)[0].settings.norm_output
    assert not as_launched(older, draft, target)[0].settings.norm_output


def test_replay_reads_a_draft_as_vllm_does(recorded):
    run = next(r for r in recorded["runs"] if r["name"] == "chain of 4, bfloat16")
    accepted = np.concatenate([request["accepted"] for request in run["requests"][:12]])
    made = workbench.replay(
        DATA / "target",
        DATA / "drafts" / "speculators",
        prompts(12),
        engine=ENGINE,
        steps=4,
        new_tokens=NEW_TOKENS,
    )
    assert made.accept_length == pytest.approx(1 + accepted.mean(), rel=0.03)
    assert "speculators_config" not in {finding.code for finding in made.findings}
    assert not [note for note in made.notes if "Triton" in note]
