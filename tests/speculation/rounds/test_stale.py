"""A cache that is not refreshed: against a cache kept slot by slot, and how it worsens with the round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from tests.speculation.model.test_draft import target_of, write_draft
from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import DraftLaunch, read_run
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.layers import AttentionContext, Numerics, attend
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import replay_rounds, run_freely
from workbench.speculation.rounds.setup import as_launched

INCIDENT = ROOT / "data" / "incident"
AUX = (1, 2, 4)


class Slots:
    """A cache that grows slot by slot, as plain lists."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.kept: list[list[tuple[torch.Tensor, torch.Tensor]]] = [
            [] for _ in range(draft.settings.layers)
        ]

    def run(
        self, token: int, hidden: torch.Tensor, place: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one slot behind all that are kept, and keep it."""

        def attention(
            layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
        ) -> torch.Tensor:
            self.kept[layer].append((k, v))
            keys, values = (torch.cat([pair[n] for pair in self.kept[layer]], 1) for n in (0, 1))
            seen = AttentionContext(keys, values, torch.zeros(1, 1, keys.shape[1]))
            return attend(q, seen, None, self.draft.settings.scale, Numerics())

        normed, fed = self.draft.forward(
            torch.tensor([[token]]), hidden[None, None], torch.tensor([[place]]), attention
        )
        return normed[0, 0], fed[0, 0]

    def cut(self, count: int) -> None:
        self.kept = [pairs[:count] for pairs in self.kept]


def slowly(
    draft: Draft, trace: TargetTrace, known: list[int], steps: int, topk: int
) -> list[list[int]]:
    """Return each round's best tokens at its root, and behind the first: the cache is never refreshed."""
    ids = trace.tokens[0].tolist()
    hidden = draft.features(trace.features(AUX))[0]
    cache, best = Slots(draft), []
    for at, following in zip(known, [*known[1:], len(ids) + 1], strict=True):
        for slot in range(len(cache.kept[0]), at - 1):
            normed, fed = cache.run(ids[slot + 1], hidden[slot], slot)
        best.append(draft.to_target[draft.logits(normed).topk(topk).indices].tolist())
        # The verified path was drafted on, but for the deepest draft.
        for depth, token in enumerate(ids[at : following - 1][: steps - 1], start=1):
            normed, fed = cache.run(token, fed, at - 2 + depth)
    return best


@pytest.mark.parametrize(("layers", "topk", "accepted"), [(1, 1, 2), (2, 1, 3), (2, 3, 1)])
def test_drafted_keys_stay(layers: int, topk: int, accepted: int, tmp_path: Path) -> None:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d", layers=layers)), target)
    driving = Driving(3, topk, 4 if topk == 1 else 10, AUX, refreshed=False)
    known = [5 + n * (accepted + 1) for n in range(5)]
    text = [5, 9, 2, 30, 7] + [3] * (known[-1] - 1)
    # A text that goes along the drafts of every round, the last of them in a tree.
    for number, at in enumerate(known):
        trace = target.trace([text], [4])
        found = replay_rounds(draft, driving, trace, [known])
        text[at : at + accepted] = found.tokens[number, topk - 1 : topk - 1 + accepted].tolist()
    trace = target.trace([text], [4])
    found = replay_rounds(draft, driving, trace, [known])
    assert (found.accepted >= accepted).all()
    assert found.tokens[:, :topk].tolist() == slowly(draft, trace, known, 3, topk)
    fresh = replay_rounds(draft, driving.replaced(refreshed=True), trace, [known])
    np.testing.assert_allclose(found.probabilities[0], fresh.probabilities[0], rtol=1e-5)
    assert not np.allclose(found.probabilities[1:], fresh.probabilities[1:], rtol=1e-3)
    free = run_freely(draft, driving, trace)
    assert (free.tokens[0] == found.tokens[0]).all()
    again = replay_rounds(draft, driving, trace, [free.prefix.tolist()])
    assert (free.tokens == again.tokens).all()


def test_it_worsens_with_the_round() -> None:
    target = LlamaTarget.read(open_checkpoint(INCIDENT / "target"), Numerics("bfloat16"))
    run = read_run(INCIDENT / "runs" / "sglang-0.5.14" / "speculators").some(24)
    draft, driving = as_launched(
        DraftLaunch("", steps=4), open_checkpoint(INCIDENT / "drafts" / "speculators"), target
    )
    assert driving.aux
    trace = target.trace(run.texts, run.prompts, keep=driving.aux)
    fresh = replay_rounds(draft, driving, trace, run.starts)
    stale = replay_rounds(draft, driving.replaced(refreshed=False), trace, run.starts)
    assert (stale.accepted == fresh.accepted)[fresh.index == 0].all()

    def sign(mask: np.ndarray) -> float:
        """Return by how much the text's token falls in the draft's order at the root."""
        known = mask & (fresh.ranks[:, 0] > 0)
        return float((1 / fresh.ranks[known, 0] - 1 / stale.ranks[known, 0]).mean())

    early, late = sign(fresh.index < 4), sign(fresh.index >= 4)
    assert late > max(0.01, early + 0.01)
    assert fresh.accept_length > stale.accept_length + 0.03
