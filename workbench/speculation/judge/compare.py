"""Recorded features and draft logits beside the replay's own, layer by layer: where they part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import Hidden
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.rounds.rounds import extend

if TYPE_CHECKING:
    from torch import Tensor

# Two implementations that compute the same in bfloat16 stay above this, as measured on shipped runs.
ALIKE = 0.999


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """How far two tensors of rows are apart.

    Attributes
    ----------
    name
        What was compared: ``layer 6``, ``draft logits``.
    rows
        Number of rows.
    cosine
        The smallest of all rows.
    largest, relative
        The largest difference of one number, and the root mean square of all differences over that of the
        recorded numbers.
    exact
        Share of numbers that are equal.
    """

    name: str
    rows: int
    cosine: float
    largest: float
    relative: float
    exact: float

    @property
    def alike(self) -> bool:
        """Whether the two compute the same, as far as bfloat16 can tell."""
        return self.cosine >= ALIKE

    @classmethod
    def of(cls, name: str, recorded: Tensor, own: Tensor) -> Difference:
        """Compare rows [n, width]."""
        import torch

        apart = recorded - own
        size = recorded.pow(2).mean().sqrt().clamp(min=1e-30)
        return cls(
            name,
            len(recorded),
            float(torch.cosine_similarity(recorded, own, dim=-1).min()),
            float(apart.abs().max()),
            float(apart.pow(2).mean().sqrt() / size),
            float((apart == 0).float().mean()),
        )


def compare_hidden(
    recorded: Sequence[Hidden], trace: TargetTrace, aux: Sequence[int]
) -> list[Difference]:
    """Compare recorded features with the trace's, one result for each auxiliary layer.

    Parameters
    ----------
    recorded
        One for each request of the trace, in its order.
    aux
        Which layers the recorded rows are said to hold, side by side.

    Raises
    ------
    WorkbenchError
        The rows are not so many layers wide.
    """
    import torch

    width = next(iter(trace.inputs.values())).shape[-1]
    pairs: list[tuple[Tensor, Tensor]] = []
    for row, hidden in enumerate(recorded):
        if hidden.rows.shape[-1] != width * len(aux):
            raise WorkbenchError(
                f"recorded rows are {hidden.rows.shape[-1]} wide",
                why=f"{len(aux)} layers of {width} were expected",
                next_step="Name the layers that the engine captured.",
            )
        count = min(len(hidden.rows), int(trace.lengths[row]))
        pairs.append((hidden.rows[:count], trace.features(aux)[row, :count]))
    whole = [torch.cat(side) for side in zip(*pairs, strict=True)]
    parts = [torch.split(side, width, dim=-1) for side in whole]
    return [
        Difference.of(f"layer {k}", theirs, own) for k, theirs, own in zip(aux, *parts, strict=True)
    ]


def parts_at(differences: Sequence[Difference]) -> str:
    """Return the first name at which two implementations part, "" where they do not."""
    return next((d.name for d in differences if not d.alike), "")


@dataclasses.dataclass(frozen=True)
class Call:
    """One call that a hook saw: ``draft``, ``target`` or ``fc``, and its tensors by name."""

    number: int
    kind: str
    tensors: Mapping[str, Tensor]


def hook_calls(tensors: Mapping[str, Tensor]) -> Iterator[Call]:
    """Yield recorded hook calls in order; tensors are named ``00012-draft.logits``."""
    grouped: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        call, _, field = name.rpartition(".")
        grouped.setdefault(call, {})[field] = value
    for call in sorted(grouped):
        number, _, kind = call.partition("-")
        if number.isascii() and number.isdecimal() and len(number) < 16:
            yield Call(int(number), kind, grouped[call])


def compare_draft(
    calls: Sequence[Call], draft: Draft, driving: Driving, trace: TargetTrace
) -> list[Difference]:
    """Compare the draft's recorded first-token logits of each round with the replay's.

    A recorded extend is found by its tokens: the slots before it, the prompt's and the answer's.
    """
    import torch

    with torch.no_grad():
        cache = extend(draft, driving, trace)
        recorded, own = [], []
        for call in calls:
            if call.kind != "draft" or not _complete(call, draft.vocabulary):
                continue
            at = _place(call, trace)
            if at is not None:
                request, slot, row = at
                recorded.append(call.tensors["logits"][row].float())
                own.append(draft.logits(cache.normed[request, slot]))
        if not recorded:
            return []
        return [Difference.of("draft logits", torch.stack(recorded), torch.stack(own))]


def _complete(call: Call, vocabulary: int) -> bool:
    """Tell whether a call has tokens, positions and logits over the draft's vocabulary."""
    names = ("input_ids", "positions", "logits")
    if not call.tensors.keys() >= set(names):
        return False
    ids, positions, logits = (call.tensors[name] for name in names)
    whole = not ids.is_floating_point() and not positions.is_floating_point()
    flat = ids.ndim == positions.ndim == 1 and len(ids) == len(positions) > 1
    return whole and flat and logits.ndim == 2 and len(logits) > 0 and logits.shape[1] == vocabulary


def _place(call: Call, trace: TargetTrace) -> tuple[int, int, int] | None:
    """Return request, slot and row of the last token of a call that the text confirms; None for none."""
    ids, first = call.tensors["input_ids"], int(call.tensors["positions"][0])
    if first < 0:
        return None
    for request in range(len(trace)):
        text = trace.tokens[request, : int(trace.lengths[request])]
        follow = text[first + 1 : first + 1 + len(ids)]
        same = (follow == ids[: len(follow)].long()).tolist()
        count = (*same, False).index(False)
        rows = len(call.tensors["logits"])
        if first == 0 and count == len(ids) == int(trace.prompts[request]):
            return request, count - 1, rows - 1
        # Of a block the rows up to the last verified token are known; a later one may be chance.
        if first >= int(trace.prompts[request]) and count and rows == len(ids):
            return request, first + count - 1, count - 1
    return None
