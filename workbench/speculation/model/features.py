"""What the target says and what a draft reads of it: run once over the whole text, and kept for all replays.

Layers are named by what goes *into* them: k is the input of layer k, the output of layer k - 1 after the
residual and before any norm; 0 is the embedding. Of Hugging Face's ``hidden_states`` entry k is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from workbench.errors import WorkbenchError
from workbench.speculation.model.layers import Numerics, rows_of

if TYPE_CHECKING:
    from torch import Tensor

Tokens = Sequence[int]
TOP = 5  # choices of the target that are kept at each place


class Target(Protocol):
    """A model that drafts are verified by."""

    layers: int
    hidden: int
    vocabulary: int
    model_type: str
    numerics: Numerics

    @property
    def embedding(self) -> Tensor:
        """Embeddings [vocabulary, hidden], float32."""

    @property
    def head(self) -> Tensor:
        """Output weights [vocabulary, hidden], float32."""

    def logits(self, final: Tensor) -> Tensor:
        """Return logits of features after the final norm."""

    def trace(
        self,
        sequences: Sequence[Tokens],
        prompts: Sequence[int],
        keep: Sequence[int] | None = None,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> TargetTrace:
        """Run once over all sequences; see `TargetTrace`."""

    def grown(
        self,
        trace: TargetTrace,
        sequences: Sequence[Tokens],
        starts: Sequence[Sequence[int]] | None = None,
    ) -> TargetTrace:
        """Return the trace of sequences that go on where those of `trace` end."""

    def branches(
        self,
        trace: TargetTrace,
        requests: Tensor,
        known: Tensor,
        tokens: Tensor,
        parents: Tensor,
        keep: Sequence[int] | None,
    ) -> Branches:
        """Run over drafted tokens that leave the traced sequences.

        Parameters
        ----------
        requests, known
            [n]: row of the trace, and how many of its tokens come before the branch.
        tokens, parents
            [n, m]: the branch's tokens, and the index of each one's parent among them (-1: the last known).
        keep
            Layers whose input is wanted, and nothing behind them is run; None: the last features.
        """

    def greedy(self, prompts: Sequence[Tokens], new_tokens: int) -> list[list[int]]:
        """Return greedy continuations, `new_tokens` each."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """The target's choices at some places.

    Attributes
    ----------
    best
        Its best token [...].
    margin
        By how much its logit leads the second best's [...].
    tokens, probabilities
        Its `TOP` best tokens and their probabilities [..., TOP].
    """

    best: Tensor
    margin: Tensor
    tokens: Tensor
    probabilities: Tensor


@dataclasses.dataclass(frozen=True)
class Branches:
    """Features [n, m, width] at drafted tokens, and choices [n, m] where they are the last features."""

    features: Tensor
    choices: Choices | None


@dataclasses.dataclass(frozen=True, eq=False)
class TargetTrace:
    """One pass of the target over prompts and answers, shared by every replay of them.

    Attributes
    ----------
    tokens
        [requests, places], zero past the end of each.
    lengths, prompts
        Tokens of each request in all, and of its prompt alone.
    inputs
        Layer → what went into it, [requests, places, hidden].
    final
        The last features after the final norm, None where unknown.
    choices
        What the target says after each place; None where only its features were recorded.
    begins
        For each place the first one that an engine computed together with it, [requests, places]: 0 in the
        prompt, later where the round began. It decides nothing but rounding.
    target
        The model, for branches; None for recorded features.
    cache
        Keys and values of each layer, [requests, places, heads, …]; empty where not kept.
    """

    tokens: Tensor
    lengths: Tensor
    prompts: Tensor
    inputs: Mapping[int, Tensor]
    final: Tensor | None
    choices: Choices | None
    begins: Tensor
    target: Target | None = None
    cache: tuple[tuple[Tensor, Tensor], ...] = ()

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def features(self, aux: Sequence[int] | None) -> Tensor:
        """Return what a draft reads, [requests, places, width].

        Parameters
        ----------
        aux
            Layers whose inputs are put side by side; None: the last features.

        Raises
        ------
        WorkbenchError
            A layer that was not kept.
        """
        import torch

        if aux is None:
            if self.final is None:
                raise WorkbenchError(
                    "the target's last features are not known",
                    why="the evidence holds auxiliary layers alone",
                    next_step="Give the target itself, not its recorded features.",
                )
            return self.final
        lost = [k for k in aux if k not in self.inputs]
        if lost:
            raise WorkbenchError(
                f"the input of layer {lost[0]} is not known",
                why=f"the inputs of {sorted(self.inputs)}",
                next_step="Trace the target with this layer kept, or choose among those.",
            )
        return torch.cat([self.inputs[k] for k in aux], dim=-1)

    def select(self, rows: Sequence[int]) -> TargetTrace:
        """Return the trace of some requests alone, in the order given."""
        import torch

        at = torch.tensor(list(rows), device=self.tokens.device)
        choices = self.choices and Choices(
            self.choices.best[at],
            self.choices.margin[at],
            self.choices.tokens[at],
            self.choices.probabilities[at],
        )
        return dataclasses.replace(
            self,
            tokens=self.tokens[at],
            lengths=self.lengths[at],
            prompts=self.prompts[at],
            begins=self.begins[at],
            inputs={k: value[at] for k, value in self.inputs.items()},
            final=None if self.final is None else self.final[at],
            choices=choices,
            cache=tuple(rows_of(pair, at) for pair in self.cache),
        )


def pad(sequences: Sequence[Tokens], device: str) -> tuple[Tensor, Tensor]:
    """Return sequences as one tensor [requests, places], and their lengths."""
    import torch

    if not sequences or not all(sequences):
        raise WorkbenchError(
            "there is no text to replay",
            why="a prompt is empty" if sequences else "prompts were not given",
            next_step="Give prompts as text or as token ids.",
        )
    lengths = torch.tensor([len(s) for s in sequences], device=device)
    tokens = torch.zeros(len(sequences), int(lengths.max()), dtype=torch.long, device=device)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = torch.tensor(list(sequence), device=device)
    return tokens, lengths


def begins_of(tokens: Tensor, starts: Sequence[Sequence[int]] | None) -> Tensor:
    """Return where the block of each place began, [requests, places], by the rounds' beginnings."""
    import torch

    begins = torch.zeros_like(tokens)
    for row, known in enumerate(starts or ()):
        for at in known:
            begins[row, at - 1 :] = at - 1
    return begins


def choices_of(logits: Tensor) -> Choices:
    """Return the choices that logits [..., vocabulary] make; of equals the lowest id is the best."""
    import torch

    top = logits.topk(min(TOP, logits.shape[-1]), dim=-1)
    best = logits.argmax(-1)
    second = top.values[..., 1] if top.values.shape[-1] > 1 else top.values[..., 0]
    probabilities = (top.values - torch.logsumexp(logits, dim=-1, keepdim=True)).exp()
    return Choices(best, top.values[..., 0] - second, top.indices, probabilities)


def join_choices(parts: Sequence[Choices]) -> Choices:
    """Put choices one below the other."""
    import torch

    names = [field.name for field in dataclasses.fields(Choices)]
    return Choices(*(torch.cat([getattr(part, name) for part in parts]) for name in names))
