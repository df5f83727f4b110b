"""The plain models of the pair of another shape: the target is transformers', the draft the replay's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.model.huggingface import HuggingFaceTarget
from workbench.speculation.rounds.run import replay_rounds
from workbench.speculation.rounds.setup import as_launched

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts" / "incident"
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
NAMES = (
    "common", "models", "measure", "train_target", "train_draft", "expert_models", "train_experts",
)  # fmt: skip
ROOTS = [[20, 30], [25, 33]]


@pytest.fixture
def scripts() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        for name in NAMES:  # their bare names must not stay behind for other tests
            patch.delitem(sys.modules, name, raising=False)
        yield {name: importlib.import_module(name) for name in NAMES}


def scattered(model: Any) -> Any:
    """Draw weights that bfloat16 holds."""
    for name, value in model.named_parameters():
        noise = torch.randn_like(value)
        drawn = 1 + noise / 5 if "norm" in name else noise / value.shape[-1] ** 0.5
        value.data = drawn.bfloat16().float()
    for name, value in model.named_buffers():
        if name.endswith("correction"):
            value.copy_(torch.randn_like(value) / 8)
    return model.eval().requires_grad_(requires_grad=False)


def test_target_and_draft_compute_what_is_served(scripts: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(3)
    models, training = scripts["expert_models"], scripts["train_experts"]
    sizes = models.ExpertSizes(vocab_size=300)
    model = scattered(models.ExpertTarget(sizes))
    training.save_target(model, tmp_path / "target")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "target", dtype=torch.float32
    )
    ids = torch.randint(0, 300, (2, 40))
    logits, features = model(ids, sizes.auxiliary())
    with torch.no_grad():
        found = loaded(ids, output_hidden_states=True)
    torch.testing.assert_close(logits, found.logits, rtol=1e-4, atol=1e-4)
    joined = torch.cat([found.hidden_states[k] for k in sizes.auxiliary()], -1)
    torch.testing.assert_close(features, joined, rtol=1e-4, atol=1e-4)

    kept = torch.arange(0, 300, 3)
    draft = models.LatentDraft(sizes.draft(64), model.model.embed_tokens.weight, kept)
    training.save_draft(scattered(draft), tmp_path / "draft")
    target = HuggingFaceTarget(loaded)
    launch = DraftLaunch("sglang==0.5.14", "EAGLE3", steps=4, draft_tokens=5, backend="triton")
    served, driving = as_launched(launch, open_checkpoint(tmp_path / "draft"), target)
    assert not served.filled
    trace = target.trace(ids.tolist(), [10, 10])
    replayed = replay_rounds(served, driving, trace, ROOTS)
    rounds = [(row, root) for row, roots in enumerate(ROOTS) for root in roots]
    for at, (row, root) in enumerate(rounds):
        tokens, hidden = ids[row, 1:root], draft.fc(features[row, : root - 1])
        for step in range(4):
            places = torch.arange(len(tokens))
            said, fed = draft.step(tokens[None], hidden[None], [], places)
            best = kept[said[0, -1].argmax()]
            assert replayed.tokens[at, step] == best
            tokens, hidden = torch.cat([tokens, best[None]]), torch.cat([hidden, fed[0, -1:]])


def test_experts_that_are_chosen_too_rarely_become_likelier(scripts: dict[str, Any]) -> None:
    models = scripts["expert_models"]
    experts = models.Experts(models.ExpertSizes()).train()
    x = torch.randn(64, 128)
    before = experts.correction.clone()
    experts(x)
    chosen = experts.gate(x).sigmoid().topk(2, -1).indices
    load = torch.bincount(chosen.flatten(), minlength=12).float()
    moved = experts.correction - before
    assert (moved[load < load.mean()] > 0).all()
    assert (moved[load > load.mean()] < 0).all()
