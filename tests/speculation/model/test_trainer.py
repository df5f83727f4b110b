"""The draft against its trainer: speculators' own forward pass on the same tokens and features, all steps."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.engines import environments
from tests.engines.speculators_forward import CASES, STEPS
from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.layers import bias_of
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.rounds import Branches, extend
from workbench.speculation.rounds.run import replay_rounds

SCRIPT = Path(__file__).parents[2] / "engines" / "speculators_forward.py"
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainer")
    python = environments.ensure("writers")
    subprocess.run([python, SCRIPT, folder], check=True, capture_output=True)
    return folder


def case_of(written: Path, name: str) -> tuple[Draft, TargetTrace, torch.Tensor]:
    """Return the draft as read, a trace of the trainer's inputs, and the trainer's logits."""
    target = LlamaTarget.read(open_checkpoint(written / "target"))
    draft = load_draft(open_checkpoint(written / name), target)
    said = load_file(written / name / "forward.st")
    tokens, features = said["tokens"][None], said["features"]
    rows = torch.cat([features, torch.zeros(1, features.shape[1])])[None]
    trace = TargetTrace(
        tokens, torch.tensor([tokens.shape[1]]), torch.tensor([1]), {0: rows}, None, None,
        torch.zeros_like(tokens),
    )  # fmt: skip
    return draft, trace, said["logits"]


def forced(draft: Draft, trace: TargetTrace) -> list[torch.Tensor]:
    """Return the logits of each step at the roots of the text, its own tokens given as drafts."""
    driving = Driving(STEPS, 1, STEPS + 1, (0,))
    with torch.no_grad():
        cache = extend(draft, driving, trace)
        places = torch.arange(trace.tokens.shape[1])
        root = torch.arange(trace.tokens.shape[1] - STEPS)
        found = [draft.logits(cache.normed[0, root])]
        past = [(k.expand(len(root), *k.shape[1:]), v.expand(len(root), *v.shape[1:]))
                for k, v in cache.past]  # fmt: skip
        bias = bias_of(places[None, :] <= root[:, None])[:, None]
        branches = Branches(draft, past, bias, root, 1)
        fed = cache.fed[0, root][:, None]
        for step in range(1, STEPS):
            token = trace.tokens[0, root + 1 + step][:, None]
            normed, fed = draft.forward(token, fed, (root + step)[:, None], branches)
            found.append(draft.logits(normed)[:, 0])
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_step_says_what_the_trainer_says(name: str, written: Path) -> None:
    draft, trace, logits = case_of(written, name)
    assert not draft.filled
    for step, found in enumerate(forced(draft, trace)):
        wanted = logits[step, : len(found)]
        alike = torch.nn.functional.cosine_similarity(found, wanted, dim=-1)
        assert wanted.std() > 0.3  # nothing that is alike by being flat
        assert float(alike.min()) > 0.99999
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_rounds_begin_with_the_trainers_choice(name: str, written: Path) -> None:
    draft, trace, logits = case_of(written, name)
    starts = list(range(2, trace.tokens.shape[1]))
    found = replay_rounds(draft, Driving(STEPS, 1, STEPS + 1, (0,)), trace, [starts])
    for row, known in enumerate(starts):
        share = logits[0, known - 2].softmax(-1)
        assert found.tokens[row, 0] == int(draft.to_target[share.argmax()])
        assert found.probabilities[row, 0] == pytest.approx(float(share.max()), rel=1e-4)


FLIPS = {
    "layers-norm-before-fc": ("norm_before_fc", "norm_before_residual", "norm_output"),
    "qwen3-layers-fc-norm": ("fc_norm", "norm_output"),
    "llama3-rope-biases": ("norm_before_residual", "hidden_first"),
}


@pytest.mark.parametrize(
    ("name", "flag"), [(n, flag) for n, flags in FLIPS.items() for flag in flags]
)
def test_a_flag_turned_is_another_draft(name: str, flag: str, written: Path) -> None:
    """What is equal above is equal by these flags: each of them turned parts from the trainer."""
    draft, trace, logits = case_of(written, name)
    changes: dict[str, Any] = {flag: not getattr(draft.settings, flag)}
    other = draft.replaced(**changes)
    found = forced(other, trace)
    parted = [float((f - logits[n, : len(f)]).abs().max()) for n, f in enumerate(found)]
    assert max(parted) > 0.1


@pytest.mark.parametrize(
    "tensor", ["layers.1.self_attn.q_norm.weight", "layers.1.input_layernorm.weight"]
)
def test_a_norm_of_a_later_layer_counts(tensor: str, written: Path) -> None:
    draft, trace, logits = case_of(written, "qwen3-layers-fc-norm")
    other = draft.replaced(tensors={tensor: torch.ones_like(draft.tensors[tensor])})
    assert (
        float((forced(other, trace)[0] - logits[0, : trace.tokens.shape[1] - STEPS]).abs().max())
        > 0.01
    )
