"""Free runs at a temperature: the target's own distribution, and acceptance by its probabilities."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.speculation.model.test_draft import target_of, write_draft
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import DraftLaunch, read_run
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import replay_rounds, run_freely
from workbench.speculation.rounds.sampled import Sampled, Sampling, sample_freely
from workbench.speculation.rounds.setup import as_launched

INCIDENT = ROOT / "data" / "incident"
CHAIN = Driving(steps=3, topk=1, draft_tokens=4, aux=(1, 2, 4))
TREE = Driving(steps=3, topk=3, draft_tokens=10, aux=(1, 2, 4), moved=False)


def test_a_distribution_is_cut_as_engines_cut_it() -> None:
    logits = torch.tensor([3.0, 1.0, 2.0, 0.0])
    plain = (logits / 2).softmax(-1)
    assert torch.equal(Sampling(2.0).probabilities(logits), plain)
    assert Sampling(0.0).probabilities(logits).tolist() == [1, 0, 0, 0]
    two = Sampling(2.0, top_k=2).probabilities(logits)
    kept = plain * torch.tensor([1.0, 0.0, 1.0, 0.0])
    torch.testing.assert_close(two, kept / kept.sum())
    # 0.455 is not 0.6 yet; with 0.276 it is.
    assert (Sampling(2.0, top_p=0.6).probabilities(logits) > 0).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert (Sampling(2.0, top_p=0.4).probabilities(logits) > 0).tolist() == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("driving", "rule"),
    [(CHAIN, "sglang"), (TREE, "sglang"), (CHAIN, "vllm")],
    ids=("chain", "tree", "vllm"),
)
def test_answers_are_the_targets_own(driving: Driving, rule: str, tmp_path: Path) -> None:
    """Three tokens of 1,500 answers to one prompt, as often as the target alone would say them."""
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    sampling = Sampling(0.7, top_k=3, rule=rule, seed=4)  # type: ignore[arg-type]
    prompt, count = [5, 9, 2, 30], 1500
    found = sample_freely(target, draft, driving, [prompt] * count, 3, sampling)
    said = Counter(tuple(row[4:7]) for row in found.trace.tokens.tolist())

    def shares(text: list[int]) -> dict[int, float]:
        trace = target.trace([text], [4], keep=())
        assert trace.final is not None
        row = sampling.probabilities(target.logits(trace.final[0, -1]))
        return {int(t): float(row[t]) for t in row.nonzero()[:, 0]}

    exact = {
        (a, b, c): p * q * r
        for a, p in shares(prompt).items()
        for b, q in shares([*prompt, a]).items()
        for c, r in shares([*prompt, a, b]).items()
    }
    assert set(said) <= set(exact)
    worst = max(abs(said[k] / count - p) / math.sqrt(p * (1 - p) / count) for k, p in exact.items())
    assert worst < 4.5  # of 27 outcomes, in standard deviations
    assert sum(found.counts) > 0


def near(found: Sampled) -> float:
    """Return by how many standard deviations counts and probabilities part, counts taken as unequal coins."""
    chances = [c for request in found.chances for c in request]
    parts = [a - b for a, b in zip(found.counts, chances, strict=True)]
    return abs(sum(parts)) / math.sqrt(sum(x * x for x in parts))


@pytest.fixture(scope="module")
def shipped() -> tuple[LlamaTarget, list[tuple[int, ...]]]:
    target = LlamaTarget.read(open_checkpoint(INCIDENT / "target"), Numerics("bfloat16"))
    run = read_run(INCIDENT / "runs" / "sglang-0.5.14" / "speculators").some(8)
    return target, [request.prompt for request in run.requests]


@pytest.mark.parametrize(("topk", "rule"), [(1, "sglang"), (4, "sglang"), (1, "vllm")])
def test_the_shipped_pair_accepts_what_the_probabilities_say(
    topk: int, rule: str, shipped: tuple[LlamaTarget, list[tuple[int, ...]]]
) -> None:
    target, prompts = shipped
    checkpoint = open_checkpoint(INCIDENT / "drafts" / "speculators")
    draft, driving = as_launched(
        DraftLaunch("", steps=4, topk=topk, draft_tokens=5 if topk == 1 else 16), checkpoint, target
    )
    sampling = Sampling(1.0, rule=rule, seed=1)  # type: ignore[arg-type]
    found = sample_freely(target, draft, driving, prompts, 12, sampling)
    assert near(found) < 4
    assert sum(found.counts) > 0
    # It gives what a recorded run is: the replay finds the same rounds, but for near ties of bfloat16.
    replayed = replay_rounds(draft, driving, found.trace, found.starts, found.emitted)
    assert replayed.agrees().mean() > 0.95
    assert found.per_position[0] == pytest.approx((replayed.accepted >= 1).mean(), abs=0.05)


def test_without_temperature_it_is_the_greedy_run(tmp_path: Path) -> None:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    prompts = [[5, 9, 2, 30], [7, 1, 1], [3, 3]]
    for driving in (CHAIN, TREE, CHAIN.replaced(extend="block"), CHAIN.replaced(extend="accepted")):
        found = sample_freely(target, draft, driving, prompts, 9, Sampling(0.0))
        free = run_freely(draft, driving, found.trace)
        for n, prompt in enumerate(prompts):
            answer = target.greedy([prompt], 9)[0]
            assert found.trace.tokens[n, len(prompt) :].tolist()[:9] == answer
            assert list(found.starts[n]) == free.prefix[free.request == n].tolist()
            assert list(found.emitted[n]) == (free.accepted[free.request == n] + 1).tolist()
        assert found.accept_length == free.accept_length
        assert found.per_position == free.per_position[: len(found.per_position)]


def test_an_answer_does_not_depend_on_the_others(tmp_path: Path) -> None:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    sampling = Sampling(1.0, seed=3)
    both = sample_freely(target, draft, CHAIN, [[5, 9, 2, 30], [7, 1, 1]], 12, sampling)
    alone = sample_freely(target, draft, CHAIN, [[5, 9, 2, 30]], 12, sampling)
    other = sample_freely(target, draft, CHAIN, [[5, 9, 2, 30]], 12, Sampling(1.0, seed=4))
    length = int(alone.trace.lengths[0])
    assert both.trace.tokens[0, :length].tolist() == alone.trace.tokens[0].tolist()
    assert both.emitted[0] == alone.emitted[0]
    assert other.trace.tokens[0, :length].tolist() != alone.trace.tokens[0].tolist()


def test_what_cannot_be_sampled_is_refused(tmp_path: Path) -> None:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    for driving, sampling, tokens, words in (
        (TREE, Sampling(rule="vllm"), 5, "chains"),
        (CHAIN, Sampling(-1.0), 5, "no distribution"),
        (CHAIN, Sampling(math.nan), 5, "no distribution"),
        (CHAIN.replaced(refreshed=False), Sampling(), 5, "refreshes"),
        (CHAIN, Sampling(), 1, "no round"),
    ):
        with pytest.raises(WorkbenchError, match=words):
            sample_freely(target, draft, driving, [[1, 2]], tokens, sampling)


def test_drafts_past_the_targets_vocabulary_are_never_taken(tmp_path: Path) -> None:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    odd = draft.replaced(to_target=draft.to_target + target.vocabulary)
    for rule in ("sglang", "vllm"):
        found = sample_freely(target, odd, CHAIN, [[1, 2]], 6, Sampling(rule=rule))
        assert set(found.counts) == {0}


def test_a_trace_that_grows_is_the_one_of_the_whole_text() -> None:
    target = target_of()
    texts = [[5, 9, 2, 30, 7, 7, 3, 1, 8], [7, 1, 1, 4], [3, 3, 9, 9, 12]]
    starts = [[5, 7], [3], [4]]
    first = target.trace([texts[0][:5], texts[1][:3], texts[2][:4]], [4, 2, 3], keep=(1, 4))
    part = target.grown(first, [texts[0][:7], *texts[1:]], starts)
    grown = target.grown(part.select([0, 2]), [texts[0], texts[2] + [1]], [starts[0], starts[2]])
    whole = target.trace(
        [texts[0], texts[2] + [1]], [4, 3], keep=(1, 4), starts=[starts[0], starts[2]]
    )
    assert torch.equal(grown.tokens, whole.tokens)
    assert torch.equal(grown.begins, whole.begins)
    assert torch.equal(grown.prompts, whole.prompts)
    assert grown.choices is not None
    assert whole.choices is not None
    assert grown.final is not None
    assert whole.final is not None
    pairs = [(a, b) for one, other in zip(grown.cache, whole.cache, strict=True)
             for a, b in zip(one, other, strict=True)]  # fmt: skip
    for row, length in enumerate(whole.lengths.tolist()):
        for a, b in (
            *((grown.inputs[k], whole.inputs[k]) for k in (1, 4)), (grown.final, whole.final),
            (grown.choices.probabilities, whole.choices.probabilities),
            *pairs,
        ):  # fmt: skip
            torch.testing.assert_close(a[row, :length], b[row, :length], rtol=1e-4, atol=1e-5)
        assert torch.equal(grown.choices.best[row, :length], whole.choices.best[row, :length])
