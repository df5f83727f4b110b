"""Drafts whose embedding and feature a matrix joins before a plain decoder layer: EAGLE-1, EAGLE-2, MTP.

All of them read the target's last features, after its final norm, and draft with its head. What a step makes
is given to the next one: EAGLE's output as it is, a prediction layer's after its own norm, as SGLang does.

Written from llama_eagle.py, deepseek_nextn.py, glm4_moe_nextn.py and mimo_mtp.py of SGLang 0.5.11 to 0.5.23,
and qwen3_moe_mtp.py and qwen3_next_mtp.py of 0.5.14.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from workbench.speculation.model.layers import linear, rms_norm

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.speculation.model.eagle3 import Settings

Joining = Literal["eagle3", "eagle", "mtp"]
MATRIX: Mapping[Joining, str] = {"eagle3": "fc", "eagle": "fc", "mtp": "eh_proj"}
"""What the joining matrix is called."""


def join(
    s: Settings, weights: Mapping[str, Tensor], embedded: Tensor, hidden: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the input of the first layer's attention, and the residual, [batch, slots, hidden] each."""
    import torch

    if s.blank_first:
        embedded = embedded.masked_fill((positions == 0)[..., None], 0.0)
    if s.joining == "mtp":
        embedded = rms_norm(embedded, weights["enorm.weight"], s.epsilon, s.numerics)
        hidden = rms_norm(hidden, weights["hnorm.weight"], s.epsilon, s.numerics)
    pair = (hidden, embedded) if s.hidden_first else (embedded, hidden)
    name = MATRIX[s.joining]
    x = linear(
        torch.cat(pair, dim=-1), weights[f"{name}.weight"], weights.get(f"{name}.bias"), s.numerics
    )
    if s.joining == "eagle":
        return x, x  # the first layer has no norm in front of its attention
    return rms_norm(x, weights["layers.0.input_layernorm.weight"], s.epsilon, s.numerics), x
