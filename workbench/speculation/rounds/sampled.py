"""A free run at a temperature: the target draws its answers, and an engine's rule verifies the drafts.

The text is not known beforehand, as it is in a greedy run: each round is drafted from what was emitted so
far, and the target says what it thinks at every node. What comes out is what a recorded run is: a text,
where its rounds began, and how many tokens each of them emitted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import Target, TargetTrace, Tokens
from workbench.speculation.rounds.rounds import Drafted, Rounds, extend
from workbench.speculation.rounds.run import next_rounds
from workbench.speculation.rounds.verify import sample_sglang, sample_vllm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Rule = Literal["sglang", "vllm"]


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn and drafts are verified.

    Attributes
    ----------
    temperature
        0 always draws the likeliest.
    top_k, top_p
        Cuts of the target's distribution before verification; 0 and 1 cut nothing.
    rule
        Whose verification: SGLang's for chains and trees, or vLLM's for chains.
    threshold_single, threshold_acc
        SGLang's ``--speculative-accept-threshold-single`` and ``-acc``.
    seed
        Each request draws from a generator of its own: its answer does not depend on the others.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    rule: Rule = "sglang"
    threshold_single: float = 1.0
    threshold_acc: float = 1.0
    seed: int = 0

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the distribution that verification sees, [..., vocabulary]."""
        import torch

        if self.temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        found = (logits / self.temperature).softmax(-1)
        if self.top_k:
            least = found.topk(min(self.top_k, found.shape[-1]), dim=-1).values[..., -1:]
            found = torch.where(found < least, 0.0, found)
            found = found / found.sum(-1, keepdim=True)
        if self.top_p < 1:
            ordered, where = found.sort(dim=-1, descending=True)
            # A token stays while those before it do not fill the share yet.
            ordered = torch.where(ordered.cumsum(-1) - ordered > self.top_p, 0.0, ordered)
            found = torch.zeros_like(found).scatter(-1, where, ordered)
            found = found / found.sum(-1, keepdim=True)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class Sampled:
    """What a free run at a temperature gave.

    Attributes
    ----------
    trace
        The target's pass over the answers, of the layers that the draft reads.
    starts, emitted
        For each request how many tokens were known before each round, and how many it emitted.
    chances
        How many drafts of each round the rule accepts on average, by the target's probabilities: an estimate
        of the acceptance with less noise than the counts. NaN with thresholds other than 1.
    """

    trace: TargetTrace
    starts: tuple[tuple[int, ...], ...]
    emitted: tuple[tuple[int, ...], ...]
    chances: tuple[tuple[float, ...], ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Drafts that each round accepted."""
        return tuple(n - 1 for request in self.emitted for n in request)

    @property
    def accept_length(self) -> float:
        """Tokens a round, as an engine reports it."""
        return 1 + sum(self.counts) / len(self.counts)

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of rounds in which at least k drafts were accepted, from k = 1 on."""
        deepest = max(self.counts)
        return tuple(
            sum(n >= k for n in self.counts) / len(self.counts) for k in range(1, deepest + 1)
        )


@dataclasses.dataclass
class _Request:
    """A request that is being answered."""

    prompt: int
    text: list[int]
    generator: torch.Generator
    starts: list[int] = dataclasses.field(default_factory=list)
    emitted: list[int] = dataclasses.field(default_factory=list)
    chances: list[float] = dataclasses.field(default_factory=list)


def sample_freely(
    target: Target,
    draft: Draft,
    driving: Driving,
    prompts: Sequence[Tokens],
    new_tokens: int,
    sampling: Sampling,
) -> Sampled:
    """Answer prompts by sampling and draft along.

    Parameters
    ----------
    new_tokens
        Each answer has at least so many: it ends with a whole round.
    sampling
        The temperature, and whose rule verifies.

    Returns
    -------
    Sampled
        `replay_rounds` of its trace, starts and emitted tokens gives the rounds one by one.
    """
    import torch

    _check(driving, sampling, new_tokens)
    requests = [
        _Request(len(prompt), list(prompt), torch.Generator().manual_seed(_seed(sampling, number)))
        for number, prompt in enumerate(prompts)
    ]
    with torch.no_grad():
        trace = _begin(target, requests, driving, sampling)
        active, before = requests, None
        while active:
            trace, before = _round(target, draft, driving, active, sampling, trace, before)
            going = [n for n, r in enumerate(active) if len(r.text) - r.prompt < new_tokens]
            before = before.rows(torch.tensor(going, dtype=torch.long, device=before.ranks.device))
            active = [active[n] for n in going]
            trace = trace.select(going) if going else trace
        starts = [request.starts for request in requests]
        texts, lengths = [r.text for r in requests], [r.prompt for r in requests]
        trace = target.trace(texts, lengths, keep=driving.aux or (), starts=starts)
    return Sampled(
        trace,
        tuple(tuple(request.starts) for request in requests),
        tuple(tuple(request.emitted) for request in requests),
        tuple(tuple(request.chances) for request in requests),
    )


def _begin(
    target: Target, requests: Sequence[_Request], driving: Driving, sampling: Sampling
) -> TargetTrace:
    """Draw each answer's first token, which needs no draft; return the prompts' trace."""
    import torch

    texts, lengths = [r.text for r in requests], [r.prompt for r in requests]
    trace = target.trace(texts, lengths, keep=driving.aux or ())
    rows = torch.arange(len(requests), device=trace.tokens.device)
    logits = _last(target, trace)[rows, trace.lengths - 1]
    assert trace.choices is not None
    if bool(
        (logits.argmax(-1) != trace.choices.best[rows, trace.lengths - 1]).float().mean() > 0.5
    ):
        raise WorkbenchError(
            "the target's logits are not its head times its last features",
            why="its likeliest tokens are others: it changes its logits",
            next_step="Sample with the engine, and give what it recorded as evidence.",
        )
    for request, row in zip(requests, sampling.probabilities(logits).cpu(), strict=True):
        request.text.append(int(torch.multinomial(row, 1, generator=request.generator)))
    return trace


def _round(
    target: Target,
    draft: Draft,
    driving: Driving,
    active: Sequence[_Request],
    sampling: Sampling,
    trace: TargetTrace,
    before: Drafted | None,
) -> tuple[TargetTrace, Drafted]:
    """Draft and verify one round of each request that is not answered yet.

    `trace` knows the texts as they were before the last tokens were emitted.
    """
    import torch

    for request in active:
        request.starts.append(len(request.text))
    starts = [request.starts for request in active]
    trace = target.grown(trace, [request.text for request in active], starts)
    now = Rounds.of(starts, None, trace)
    now = now.rows((now.known == trace.lengths[now.request]).nonzero()[:, 0])
    found = next_rounds(draft, driving, trace, now, extend(draft, driving, trace), before)
    tokens, parents = found.tree.tokens, found.tree.parents
    # A draft past the target's vocabulary has no probability, and nothing follows it.
    size = target.vocabulary
    beside = target.branches(
        trace, now.request, now.known, tokens.clamp(max=size - 1), parents, None
    ).features
    root = _last(target, trace)[now.request, now.known - 1]
    logits = torch.cat([root[:, None], target.logits(beside)], dim=1)
    shares = torch.nn.functional.pad(sampling.probabilities(logits), (0, 1)).cpu()
    drafted = tokens.clamp(max=shares.shape[-1] - 1).tolist()
    for row, (request, ids, above) in enumerate(
        zip(active, drafted, parents.tolist(), strict=True)
    ):
        if sampling.rule == "vllm":
            count, last = sample_vllm(ids, shares[row], request.generator)
            path = list(range(count))
        else:
            path, last = sample_sglang(
                ids, above, shares[row], request.generator,
                sampling.threshold_single, sampling.threshold_acc,
            )  # fmt: skip
        request.text += [*(ids[node] for node in path), last]
        request.emitted.append(len(path) + 1)
        request.chances.append(_chance(ids, above, shares[row], sampling))
    return trace, found


def _last(target: Target, trace: TargetTrace) -> Tensor:
    """Return the target's logits along the text."""
    assert trace.final is not None
    return target.logits(trace.final)


def _chance(ids: list[int], parents: list[int], shares: Tensor, sampling: Sampling) -> float:
    """Return how many drafts are accepted on average: the sum over nodes of the chance to get there."""
    if sampling.rule == "sglang" and (sampling.threshold_single, sampling.threshold_acc) != (1, 1):
        return math.nan
    reached: list[float] = []
    for token, parent in zip(ids, parents, strict=True):
        above = reached[parent] if parent >= 0 else 1.0
        reached.append(above * float(shares[parent + 1, token]))
    return math.fsum(reached)


def _seed(sampling: Sampling, number: int) -> int:
    return (sampling.seed * 1_000_003 + number) & (2**63 - 1)


def _check(driving: Driving, sampling: Sampling, new_tokens: int) -> None:
    good = sampling.temperature >= 0 and sampling.top_k >= 0 and 0 < sampling.top_p <= 1
    if not good or not math.isfinite(sampling.temperature):
        raise WorkbenchError(
            "the sampling makes no distribution",
            why="temperature and top_k are 0 or more, top_p lies between 0 and 1",
            next_step="Take the values of the served requests.",
        )
    if sampling.rule == "vllm" and driving.topk > 1:
        raise WorkbenchError(
            "vLLM's rule verifies chains, not trees",
            next_step="Draft a chain (topk 1), or verify by SGLang's rule.",
        )
    if not driving.refreshed:
        raise WorkbenchError(
            "a run at a temperature refreshes the draft's cache",
            next_step="Replay its rounds with refreshed=False afterwards.",
        )
    if new_tokens < 2:
        raise WorkbenchError(
            "an answer of one token has no rounds",
            why="the first token comes from the prompt alone",
            next_step="Ask for two tokens or more.",
        )
