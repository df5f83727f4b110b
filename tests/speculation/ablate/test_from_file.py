"""What a loader drops is put back from the file, alone and with other faults; engines' faults, forwards."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.speculation.ablate.test_ablate import trial_of
from tests.speculation.faults.faults import INCIDENT, OLD, Config, Tensors, renamed, said
from workbench.speculation.ablate import fingerprint as prints
from workbench.speculation.ablate.single_changes import changes, undone
from workbench.speculation.ablate.static_checks import check
from workbench.speculation.ablate.switches import base
from workbench.speculation.judge.trial import Trial
from workbench.speculation.rounds.run import replay_rounds, run_freely

FEATURES = 2.92  # mean root mean square of the features on answers of the shipped target


def before_fc(tensors: Tensors, config: Config) -> None:
    """Write the same draft for norm_before_fc: a gain for each channel, taken out of fc."""
    gain = torch.exp(0.6 * torch.randn(768, generator=torch.Generator().manual_seed(1)))
    tensors["fc.weight"] = (tensors["fc.weight"].float() * FEATURES / gain).bfloat16()
    tensors["input_norm.weight"] = gain.bfloat16()
    config["norm_before_fc"] = True


def query_norms(tensors: Tensors, config: Config) -> None:
    """Write the same draft with q_norm and k_norm, which undo that its q_proj and k_proj are a quarter."""
    for part, size in (("q", 1.416), ("k", 1.642)):
        name = f"layers.0.self_attn.{part}"
        tensors[f"{name}_proj.weight"] = (tensors[f"{name}_proj.weight"].float() / 4).bfloat16()
        tensors[f"{name}_norm.weight"] = torch.full((64,), size).bfloat16()


def second_layer(tensors: Tensors, config: Config) -> None:
    """Add a layer that adds nothing, and leave the config at one."""
    for name in [n for n in tensors if n.startswith("layers.0.")]:
        value = tensors[name].clone()
        if "_proj" in name and value.shape[1] == 512 and "self_attn" in name:
            value = value[:, :256].clone()
        if "o_proj" in name or "down_proj" in name:
            value = torch.zeros_like(value)
        tensors[name.replace("layers.0.", "layers.1.")] = value


@pytest.mark.parametrize(
    ("change", "fact"), [(before_fc, "norm_before_fc"), (query_norms, "q_norm and k_norm")]
)
def test_norms_that_the_loader_drops_are_put_back(change, fact: str, tmp_path: Path) -> None:
    trial = trial_of(tmp_path, change)
    hints = check(trial)
    assert fact in {hint.fact for hint in hints if hint.sure}
    cause, _ = undone(trial, hints)
    assert (cause.state, cause.facts) == ("found", (fact,))
    assert cause.confidence == "certain"


def test_three_faults_are_three(tmp_path: Path) -> None:
    """0.5.11 drops the layer by the trainer's name, the norm, and a head under another prefix."""
    trial = trial_of(tmp_path, before_fc, renamed("lm_head.", "draft_model.lm_head."), engine=OLD)
    cause, lifts = undone(trial, check(trial))
    assert cause.state == "several"
    assert set(cause.facts) == {"decoder layer", "norm_before_fc", "lm_head"}
    assert cause.sentence.startswith("Three causes: ")
    assert "unexplained" in cause.sentence
    assert any(len(lift.switches) == 3 for lift in lifts)


def test_a_layer_that_the_config_leaves_out_is_run(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, second_layer)
    (switch,) = (s for s in changes(trial) if s.fact == "number of layers")
    state = switch.apply(base(trial))
    assert state.draft.settings.layers == 2
    assert "layers.1.mlp.up_proj.weight" in state.draft.tensors
    # It adds nothing, so the same drafts come out.
    one = run_freely(trial.draft, trial.driving, trial.trace)
    two = run_freely(state.draft, trial.driving, trial.trace)
    assert np.array_equal(one.tokens, two.tokens)


def test_a_flag_without_weights_in_the_file_is_not_turned_on(tmp_path: Path) -> None:
    facts = {switch.fact for switch in changes(trial_of(tmp_path, said(norm_before_fc=True)))}
    assert not facts & {"norm_before_fc", "fc_norm", "q_norm and k_norm", "number of layers"}


# -- faults of an engine, forwards ----------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Trial:
    run = INCIDENT / "runs" / "sglang-0.5.14" / "speculators"
    return Trial.of_run(run, INCIDENT / "target", INCIDENT / "drafts" / "speculators", requests=8)


def recorded(trial: Trial, fault) -> Trial:
    """Return the trial of an engine with a fault: each round begins where its last one ended."""
    begins = [int(n) + 1 for n in trial.trace.prompts]
    ends = [int(n) for n in trial.trace.lengths]
    starts, emitted = [[n] for n in begins], [list[int]() for _ in begins]
    while any(len(s) > len(e) for s, e in zip(starts, emitted, strict=True)):
        known = [[*e, *[1] * (len(s) - len(e))] for s, e in zip(starts, emitted, strict=True)]
        now = fault(trial.replaced(starts=starts, emitted=known))
        for request, (own, done) in enumerate(zip(starts, emitted, strict=True)):
            if len(own) == len(done):
                continue
            (row,) = np.nonzero((now.request == request) & (now.index == len(done)))[0]
            done.append(int(now.emitted[row]))
            if own[-1] + done[-1] < ends[request]:
                own.append(own[-1] + done[-1])
    return trial.replaced(starts=starts, emitted=emitted)


FAULTS = {
    "depth": (lambda t: prints._cut(t, 2), "accepts nothing from position 3 on"),
    "row": (lambda t: prints._other_row(t, "early"), "the row one place too early"),
    "prefix": (lambda t: prints._empty_prefix(t, 32), "about the first 32 places"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_an_engines_fault_is_named_by_its_rounds(kind: str, served: Trial) -> None:
    fault, words = FAULTS[kind]
    found = prints.fingerprint(recorded(served, fault))
    assert found is not None
    assert found.kind == kind
    assert words in found.words
    assert found.share > 0.98
    assert found.plain < 0.85


def test_the_ends_of_chunks_are_a_fault_of_their_own(served: Trial) -> None:
    """Another size of chunk is told apart; the fault itself is too mild to be looked for in these rounds."""
    (fault,) = (f for f in prints._faults(served) if f.kind == "chunk" and " 16 tokens" in f.words)
    run = recorded(served, fault.run)
    assert prints._share(fault.run(run)) == 1.0
    assert prints._share(prints._chunk_ends(run, 32)) < 1.0
    assert prints._share(run.replayed) < 1.0


def test_an_engine_that_does_as_replayed_has_no_fault(served: Trial) -> None:
    assert prints.fingerprint(served) is None


def test_rounds_that_nothing_reproduces_name_nothing(served: Trial) -> None:
    """Every other round accepts nothing, for no reason that is known."""
    plain = replay_rounds(served.draft, served.driving, served.trace, served.starts, served.emitted)

    def odd(trial: Trial):
        found = replay_rounds(trial.draft, trial.driving, trial.trace, trial.starts, trial.emitted)
        return dataclasses.replace(found, accepted=np.where(found.index % 2, found.accepted, 0))

    assert plain.accept_length > 2
    assert prints.fingerprint(recorded(served, odd)) is None
