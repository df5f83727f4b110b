"""`workbench.replay` on the shipped case: real runs, recorded features, prompts; and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.conftest import ROOT
from workbench.cli import app
from workbench.core.verdict import Verdict, unrecorded
from workbench.errors import WorkbenchError
from workbench.speculation.result import Replay

pytest.importorskip("torch")
INCIDENT = ROOT / "data" / "incident"
RUNS = INCIDENT / "runs"
TARGET, DRAFT = INCIDENT / "target", INCIDENT / "drafts" / "speculators"
TRAINED = INCIDENT / "training" / "draft-report.json"


def codes(replay: Replay) -> set[str]:
    return {finding.code for finding in replay.findings}


@pytest.fixture(scope="module")
def broken() -> Replay:
    return workbench.replay(
        TARGET, DRAFT, evidence=RUNS / "sglang-0.5.11/incident", expected=TRAINED, requests=4
    )


@pytest.fixture(scope="module")
def healthy() -> Replay:
    return workbench.replay(
        TARGET, DRAFT, evidence=RUNS / "sglang-0.5.14/speculators", expected=TRAINED, requests=24
    )


def test_the_incident_is_wrong_and_its_cause_known(broken: Replay) -> None:
    assert broken.ok is False
    assert broken.observed_length == 1.0
    assert {"key_dropped", "unwritten_memory"} <= codes(broken)
    assert set(broken.fills) == {"zero", "random", "nan"}
    assert all(value < 1.2 for value in broken.fills.values())
    assert "sglang 0.5.11 accepts no draft token" in broken.summary
    assert float(broken.accept_rate("sglang==0.5.10", observed=True)) == pytest.approx(0.2)
    assert "as the evidence was launched: sglang==0.5.11" in broken.notes[0]


def test_the_healthy_run_is_right_and_replayed_faithfully(healthy: Replay) -> None:
    assert healthy.ok is True
    assert healthy.agreement is not None
    assert healthy.agreement.share is not None
    assert healthy.agreement.share > 0.97
    assert codes(healthy) == {"faithful"}
    histogram = json.loads((INCIDENT / "expected.json").read_text())["runs"]
    whole = histogram["sglang-0.5.14/speculators"]["accept_length"]
    assert healthy.observed_length == pytest.approx(whole, abs=0.25)


@pytest.mark.parametrize("ok", [True, False])
def test_ablations_never_contradict_their_replay(healthy: Replay, ok: bool) -> None:
    """The ablations of a healthy run clear it, unless the replay that they belong to does not."""
    verdict = Verdict("x", "x", coverage=unrecorded(ok, "the answer of the replay"))
    found = dataclasses.replace(healthy, verdict=verdict).ablate(pairs=False, requests=8)
    assert found.ok is (True if ok else None)
    assert ("disagree" in found.summary) is not ok
    kinds = {item.kind for item in found.verdict.coverage.items}
    assert {"change", "acceptance", "recorded run", "verdict of the replay"} <= kinds


def test_every_item_of_a_healthy_run_is_settled(healthy: Replay) -> None:
    items = healthy.verdict.coverage.items
    assert {item.state for item in items} == {"ok"}
    assert {item.kind for item in items} >= {"acceptance", "recorded round", "static check"}
    assert sum(item.count for item in items if item.kind == "recorded round") == healthy.total


def test_the_fault_that_was_undone_is_wrong_and_nothing_else(broken: Replay) -> None:
    items = broken.verdict.coverage.having("wrong")
    assert [(item.kind, item.name) for item in items] == [
        ("acceptance", "acceptance compared with the expected acceptance"),
        ("fault", "sglang 0.5.11 drops 10 keys of the decoder layer"),
    ]
    assert broken.verdict.state == "cause_known"


def test_without_an_expectation_nobody_is_praised() -> None:
    replay = workbench.replay(
        TARGET, DRAFT, evidence=RUNS / "sglang-0.5.14/speculators", requests=3
    )
    assert replay.ok is None
    assert "there is no expected acceptance length" in replay.summary


def test_a_draft_launched_as_eagle_is_named() -> None:
    replay = workbench.replay(
        TARGET, DRAFT, evidence=RUNS / "sglang-0.5.14/eagle", expected=TRAINED, requests=3
    )
    assert replay.ok is False
    assert codes(replay) == {"launched_as_eagle", "faithful"}


def test_a_healthy_run_may_be_the_expectation() -> None:
    replay = workbench.replay(
        TARGET,
        DRAFT,
        evidence=RUNS / "sglang-0.5.14/speculators-tree",
        expected=RUNS / "sglang-0.5.14/speculators-tree",
        requests=16,
    )
    assert replay.ok is True
    assert replay.expected is not None
    assert replay.expected.counted == "rounds"
    assert replay.topk == 4
    assert max(len(item.nodes) for item in replay.rounds) == 15


def test_a_run_that_accepts_nothing_is_no_expectation() -> None:
    run_of = RUNS / "sglang-0.5.11/incident"
    with pytest.raises(WorkbenchError, match="is not a healthy run"):
        workbench.replay(TARGET, DRAFT, evidence=run_of, expected=run_of, requests=2)


def test_another_engine_on_the_same_evidence_is_said_to_be_one() -> None:
    run = RUNS / "sglang-0.5.11/incident"
    as_meant = workbench.replay(TARGET, DRAFT, evidence=run, engine="trainer", requests=4)
    assert as_meant.engine == ""
    assert as_meant.accept_length is not None
    assert as_meant.accept_length > 1.8
    assert "as the trainer means the draft" in as_meant.notes[0]
    assert "unfaithful" in codes(as_meant)
    newer = workbench.replay(TARGET, DRAFT, evidence=run, engine="sglang==0.5.14", requests=2)
    assert "though the evidence ran sglang==0.5.11" in newer.notes[0]
    assert "key_dropped" not in codes(newer)


def test_recorded_features_stand_in_for_the_target() -> None:
    """The target is not run, and yet the rounds are those of the run with it."""
    folder = RUNS / "sglang-0.5.14/speculators-hooks"
    alone = workbench.replay(folder, DRAFT)
    beside = workbench.replay(TARGET, DRAFT, evidence=folder)
    assert alone.total == beside.total == 34
    assert alone.kept is not None
    for one, other in zip(alone.rounds, beside.rounds, strict=True):
        left = len(alone.kept.requests[one.request].tokens) - one.prefix  # what no text confirms
        assert one.accepted[:left] == other.accepted[:left]
        assert one.nodes[0].token == other.nodes[0].token
    assert alone.agreement is not None
    assert alone.agreement.same_count == 34
    # What hooks and hidden states recorded, beside what the target run here computes.
    told = [f for f in beside.findings if f.code == "numbers_agree"]
    assert [f.title for f in told] == [
        "The features of the target are as recorded",
        "The first logits of the draft are as recorded",
    ]
    assert len(told[0].evidence_for) == 3
    assert any("the target was not run" in note for note in alone.notes)
    # What a rejected draft would have been answered is not in the evidence, and not guessed.
    fell = next(item for item in alone.rounds if item.stop == "rejected")
    assert fell.nodes[-1].target_top == ()
    assert all(item.margin is None for item in alone.rounds)


def test_features_of_other_layers_are_told_apart() -> None:
    """A draft that reads other layers than the evidence recorded: the numbers part, and it is said where."""
    from workbench.checkpoint.open import open_checkpoint
    from workbench.speculation.evidence.reading import read_facts
    from workbench.speculation.judge.engine_features import compare_with_engine
    from workbench.speculation.judge.trial import Trial

    facts = read_facts(RUNS / "sglang-0.5.14/speculators-hooks")
    assert facts.run is not None
    trial = Trial.of_run(facts.run, TARGET, open_checkpoint(DRAFT))
    other = trial.replaced(driving=trial.driving.replaced(aux=(2, 7, 9)))
    titles = [f.title for f in compare_with_engine(other, facts)]
    assert (
        titles[0] == "The features of the target, as recorded and as replayed, differ from layer 7"
    )


def test_captured_memory_goes_before_the_file() -> None:
    """The real memory of the dropped layer holds NaN: the replay computes what the engine computed."""
    replay = workbench.replay(TARGET, DRAFT, evidence=RUNS / "sglang-0.5.11/incident-hooks")
    assert replay.ok is False
    assert replay.fills == {}
    assert replay.agreement is not None
    assert replay.agreement.same_count == replay.agreement.rounds == 69
    assert "no_numbers" in codes(replay)
    assert "the draft's own logits are NaN" in replay.show(0)


def test_prompts_may_be_ids_text_or_a_file(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    lines = (INCIDENT / "training/prompts.jsonl").read_text().splitlines()[:3]
    ids = [json.loads(line)["ids"] for line in lines]
    by_ids = workbench.replay(TARGET, DRAFT, ids, new_tokens=16)
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(lines))
    by_file = workbench.replay(TARGET, DRAFT, file, new_tokens=16)
    assert by_file.to_json() == by_ids.to_json()
    assert by_ids.kept is not None
    assert [r.tokens[: r.prompt] for r in by_ids.kept.requests] == [tuple(i) for i in ids]
    text = workbench.replay(TARGET, DRAFT, ["def main():\n    return"], new_tokens=8)
    assert text.kept is not None
    words = text.kept.words
    asked = text.kept.requests[0]
    assert "".join(words[t] for t in asked.tokens[: asked.prompt]) == "def main():\n    return"
    assert by_ids.ok is None
    assert by_ids.agreement is None
    # Greedy verification emits what the target says alone.
    for item in by_ids.rounds:
        tokens = by_ids.kept.requests[item.request].tokens
        path = (*item.accepted, item.bonus)[: len(tokens) - item.prefix]
        assert tokens[item.prefix : item.prefix + len(path)] == path


@pytest.mark.parametrize("engine", [None, "vllm==0.32.0"])
def test_prompts_may_be_answered_by_sampling(engine: str | None) -> None:
    lines = (INCIDENT / "training/prompts.jsonl").read_text().splitlines()[:3]
    ids = [json.loads(line)["ids"] for line in lines]
    replay = workbench.replay(TARGET, DRAFT, ids, engine=engine, temperature=1.0, new_tokens=16)
    assert replay.temperature == 1.0
    assert replay.agreement is None
    rule = "vllm" if engine else "sglang"
    assert f"sampled at temperature 1, verified by the rule of {rule}" in " ".join(replay.notes)
    # The rounds are those of the run: each begins where the one before ended.
    pairs = list(zip(replay.rounds, replay.rounds[1:], strict=False))
    followed = [(a, b) for a, b in pairs if a.request == b.request]
    assert len(followed) > 10
    assert all(a.prefix + len(a.accepted) + 1 == b.prefix for a, b in followed)
    assert replay.ok is None


def test_the_engine_counts_with_prompts_too() -> None:
    lines = (INCIDENT / "training/prompts.jsonl").read_text().splitlines()[:4]
    ids = [json.loads(line)["ids"] for line in lines]
    lost = workbench.replay(TARGET, DRAFT, ids, engine="sglang==0.5.11", new_tokens=24)
    assert lost.ok is False
    assert {"key_dropped", "unwritten_memory"} <= codes(lost)


def test_a_log_alone_says_what_it_can() -> None:
    log = RUNS / "sglang-0.5.10/incident/server.log"
    replay = workbench.replay(TARGET, DRAFT, evidence=log, engine="sglang==0.5.10")
    assert replay.ok is False
    assert len(replay.rounds) == 0
    assert replay.accept_length == 1.0
    assert "key_dropped" in codes(replay)
    unknown = workbench.replay(TARGET, DRAFT, evidence=log)
    assert unknown.ok is None  # no version is known, so no loader is accused
    assert unknown.per_position == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "there is nothing to replay"),
        ({"prompts": [[1, 2]], "evidence": RUNS}, "prompts and evidence were both given"),
        ({"prompts": [[1, 2]], "temperature": -1.0}, "temperature"),
        ({"prompts": []}, "there are no prompts"),
        ({"prompts": [[]]}, "is not a prompt"),
        ({"prompts": [[1, "a"]]}, "is not a prompt"),
        ({"prompts": [[-1]]}, "is not a prompt"),
        ({"prompts": "no-such.jsonl"}, "cannot read the prompts"),
        ({"prompts": [[1, 2, 3]], "new_tokens": 1}, "an answer of 1 tokens has no round"),
        ({"prompts": [[1, 2]], "new_tokens": 10**9}, "has no rounds, or too many"),
        ({"prompts": [[1, 2]], "new_tokens": 6.5}, "has no rounds, or too many"),
        ({"prompts": [[1, 2]], "steps": 0}, "drafts nothing"),
        ({"prompts": [[1, 2]], "steps": 10**9}, "drafts nothing"),
        ({"prompts": [[1, 2]], "steps": 2.5}, "drafts nothing"),
        ({"prompts": [[1, 2]], "steps": "3"}, "drafts nothing"),
        ({"prompts": [[1, 2]], "steps": True}, "drafts nothing"),
        ({"prompts": [[1, 2]], "topk": 5000}, "drafts nothing"),
        ({"prompts": [[1, 2]], "topk": 2, "draft_tokens": 1}, "makes no tree"),
        ({"prompts": [[1, 2]], "topk": 2, "draft_tokens": "4"}, "makes no tree"),
        (
            {"prompts": [[1, 2]], "topk": 2, "draft_tokens": 10_000},
            "with the root it has 2 to 11 nodes",
        ),
        ({"prompts": [[1, 2]], "requests": 1.5}, "1.5 is not a number of requests"),
        ({"prompts": [[1, 2]], "engine": "nothing==1"}, "nothing"),
        ({"prompts": [[1, 2]], "expected": 0.5}, "is not between 1 and"),
        ({"evidence": "no-such-folder"}, "there is no evidence at"),
        ({"prompts": [[1, 2]], "requests": 0}, "0 is not a number of requests"),
        ({"evidence": RUNS / "sglang-0.5.14"}, "holds no known evidence"),
    ],
)
def test_what_is_of_no_use_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        workbench.replay(TARGET, DRAFT, **arguments)


def test_prompts_past_the_targets_vocabulary_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="vocabulary"):
        workbench.replay(TARGET, DRAFT, [[1, 2, 99_999]])


def test_a_checkpoint_that_is_no_draft_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="is not an EAGLE-3 draft"):
        workbench.replay(TARGET, TARGET, [[1, 2, 3]])


def test_evidence_without_features_does_not_replace_the_target() -> None:
    with pytest.raises(WorkbenchError, match="holds no hidden states"):
        workbench.replay(RUNS / "sglang-0.5.14/speculators", DRAFT)


def test_features_of_another_width_are_refused(tmp_path: Path) -> None:
    import torch

    sample = {"input_ids": torch.arange(9), "aux_hidden_state": torch.zeros(9, 3 * 128)}
    torch.save(sample, tmp_path / "data_0.ckpt")
    (tmp_path / "launch.json").write_text(json.dumps({"command": ["--model-path", str(TARGET)]}))
    with pytest.raises(WorkbenchError, match="are 384 wide"):
        workbench.replay(tmp_path, DRAFT)


def test_training_files_are_replayed_on_their_features(tmp_path: Path) -> None:
    """speculators' samples, made of the target's own pass: the last layer gives the target's choices."""
    from safetensors.torch import save_file

    from workbench.checkpoint.open import open_checkpoint
    from workbench.speculation.model.target import LlamaTarget

    run = RUNS / "sglang-0.5.14/speculators"
    ids = workbench.replay(TARGET, DRAFT, evidence=run, engine="trainer", requests=2)
    assert ids.kept is not None
    texts = [list(r.tokens) for r in ids.kept.requests]
    target = LlamaTarget.read(open_checkpoint(TARGET))
    trace = target.trace(texts, [1, 1])
    import torch

    for row, text in enumerate(texts):
        layers = [trace.inputs[k][row, : len(text)] for k in (2, 6, 9, 12)]
        sample = {
            "token_ids": torch.tensor(text),
            "hidden_states": torch.stack(layers, dim=1),
            "loss_mask": (torch.arange(len(text)) >= ids.kept.requests[row].prompt).long(),
        }
        save_file(sample, tmp_path / f"hs_{row}.safetensors")
    replay = workbench.replay(TARGET, DRAFT, evidence=tmp_path)
    whole = {(r.request, r.prefix): r for r in ids.rounds}
    both = [
        (r, whole[r.request, r.prefix]) for r in replay.rounds if (r.request, r.prefix) in whole
    ]
    assert len(both) > 10
    same = [a.nodes[0].token == b.nodes[0].token for a, b in both]
    assert sum(same) / len(same) > 0.9


# The command


def run(*arguments: str) -> tuple[int, str]:
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["replay", *arguments])
    return done.exit_code, done.output


PAIR = ("--target", str(TARGET), "--draft", str(DRAFT))


def test_the_command_prints_and_exits_by_the_verdict(tmp_path: Path) -> None:
    log = ("--evidence", str(RUNS / "sglang-0.5.10/incident/server.log"))
    code, text = run(*PAIR, *log, "--engine", "sglang==0.5.10")
    assert code == 1
    assert "accepts no draft token" in text
    code, text = run(*PAIR, *log, "--json")
    assert code == 3
    assert json.loads(text)["schema"] == "workbench.replay/1"
    run_of = ("--evidence", str(RUNS / "sglang-0.5.14/speculators"), "--expected", "2.386")
    page = tmp_path / "replay.html"
    code, text = run(*PAIR, *run_of, "--requests", "24", "--html", str(page))
    assert (code, page.exists()) == (0, True)


def test_the_command_ablates() -> None:
    run_of = ("--evidence", str(RUNS / "sglang-0.5.11/incident"), "--expected", str(TRAINED))
    code, text = run(*PAIR, *run_of, "--requests", "6", "--ablate")
    assert code in (1, 3)
    assert "reload decoder layer" in text
