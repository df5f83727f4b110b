"""Feed-forward parts with experts: which of them a token is sent to, and what they make of it.

Written from deepseek_v2.py, glm4_moe.py and topk.py of SGLang 0.5.14 and 0.5.23, and from transformers'
modules of the same families. An engine runs the experts in one fused kernel, the shared one sometimes among
them; the result is the same but for rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, get_args

from workbench.speculation.model.layers import Numerics, gated, linear

if TYPE_CHECKING:
    from torch import Tensor

Scoring = Literal["sigmoid", "softmax"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)
CORRECTION = "mlp.gate.e_score_correction_bias"
_PARTS = ("gate_proj", "up_proj", "down_proj")


@dataclasses.dataclass(frozen=True, slots=True)
class Routing:
    """How tokens are sent to experts.

    Attributes
    ----------
    experts, chosen
        How many experts a layer has, and how many of them a token is sent to.
    width, shared
        Width of each, and of the part that every token passes; 0: there is none.
    scoring
        What makes scores of the gate's outputs.
    groups, open_groups
        Into how many groups the experts fall, and how many of these a token may be sent to.
    normed
        Whether the weights of the chosen sum to one.
    factor
        Of what the experts make; the shared part is added as it is.
    """

    experts: int
    chosen: int
    width: int
    shared: int = 0
    scoring: Scoring = "sigmoid"
    groups: int = 1
    open_groups: int = 1
    normed: bool = True
    factor: float = 1.0


def expert_shapes(routing: Routing, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a layer with experts, by their names in it, and their shapes."""
    shapes: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (routing.experts, hidden)}
    begins = [(f"mlp.experts.{number}.", routing.width) for number in range(routing.experts)]
    if routing.shared:
        begins.append(("mlp.shared_experts.", routing.shared))
    for begin, width in begins:
        gate, up, down = (f"{begin}{part}.weight" for part in _PARTS)
        shapes |= {gate: (width, hidden), up: (width, hidden), down: (hidden, width)}
    return shapes


def further_expert_shapes(routing: Routing, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors that a layer with experts computes with where it has them."""
    return {CORRECTION: (routing.experts,), "mlp.shared_expert_gate.weight": (1, hidden)}


def route(
    x: Tensor, gate: Tensor, correction: Tensor | None, routing: Routing, numerics: Numerics
) -> tuple[Tensor, Tensor]:
    """Return the experts that each row is sent to, and their weights, [rows, chosen] each.

    Parameters
    ----------
    x, gate
        [rows, hidden] and [experts, hidden].
    correction
        Added to the scores for the choice alone, [experts]; None: the scores choose.
    """
    given = linear(x, gate, None, numerics)
    scores = given.sigmoid() if routing.scoring == "sigmoid" else given.softmax(-1)
    choice = scores if correction is None else scores + correction
    if routing.groups > 1:
        grouped = choice.reshape(*choice.shape[:-1], routing.groups, -1)
        # DeepSeek-V3 asks for the two best of a group, those before it for the best.
        best = min(2, grouped.shape[-1]) if correction is not None else 1
        groups = grouped.topk(best, -1).values.sum(-1).topk(routing.open_groups, -1).indices
        closed = grouped.new_ones(grouped.shape[:-1]).scatter(-1, groups, 0.0).bool()
        choice = grouped.masked_fill(closed[..., None], -math.inf).flatten(-2)
    chosen = choice.topk(routing.chosen, -1).indices
    weights = scores.gather(-1, chosen)
    if routing.normed:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return chosen, weights * routing.factor


def mixed(
    x: Tensor, weights: Mapping[str, Tensor], layer: str, routing: Routing, numerics: Numerics
) -> Tensor:
    """Return what the experts of a layer make of [..., hidden].

    Parameters
    ----------
    weights, layer
        All tensors, and what the names of this layer begin with.
    """
    import torch

    def part(begin: str, rows: Tensor) -> Tensor:
        # Experts are kept as the file stores them: together they may be half of all memory.
        gate, up, down = (weights[f"{layer}mlp.{begin}{p}.weight"].float() for p in _PARTS)
        return gated(rows, (gate, up, down), numerics)

    rows = x.reshape(-1, x.shape[-1])
    gate, correction = weights[f"{layer}mlp.gate.weight"], weights.get(f"{layer}{CORRECTION}")
    chosen, shares = route(rows, gate, correction, routing, numerics)
    out = torch.zeros_like(rows)
    for number in sorted(set(chosen.flatten().tolist())):
        at, place = (chosen == number).nonzero(as_tuple=True)
        out.index_add_(0, at, part(f"experts.{number}.", rows[at]) * shares[at, place, None])
    out = numerics.round(out)
    if routing.shared:
        more = part("shared_experts.", rows)
        if (own := weights.get(f"{layer}mlp.shared_expert_gate.weight")) is not None:
            more = numerics.round(more * linear(rows, own, None, numerics).sigmoid())
        out = numerics.round(out + more)
    return out.reshape(x.shape)


def computed_in(name: str, value: Tensor) -> Tensor:
    """Return a draft's tensor in float32; experts as the file stores them, since they are most of it."""
    return value if ".mlp.experts." in name else value.float()


def gates_and_ups(names: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield the names of each gate and the up-projection beside it, dense or an expert's."""
    for name in names:
        other = name.replace("gate_proj", "up_proj")
        if ".mlp." in name and other != name and other in names:
            yield name, other
