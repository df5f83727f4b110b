"""A target's weights out of its checkpoint: dequantised where they are codes, and each of the right shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError, shorten
from workbench.speculation.model.config_fields import ModelConfig
from workbench.speculation.model.shapes import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.dequantize import LogicalWeight

QUANTISED = (
    "the target is quantised: its weights are dequantised here, and where an engine rounds activations too "
    "its numbers are a little different"
)


def read_weights(checkpoint: Checkpoint, fields: ModelConfig) -> dict[str, Tensor]:
    """Return the weights that a dense decoder computes with, by Hugging Face's names.

    Raises
    ------
    WorkbenchError
        One of them is missing or of another shape than the config says, or its values cannot be told.
    """
    from workbench.checkpoint.dequantize import logical_weights

    stored = logical_weights(checkpoint)
    wanted, further = _shapes(fields, stored.has("model.layers.0.self_attn.q_norm.weight"))
    known = wanted | further
    odd = next((n for n in stored.names if n.endswith("_proj.bias") and n not in known), None)
    if odd is not None:
        raise WorkbenchError(
            f"the target has {shorten(odd, 80)}, which is not computed with here",
            why="plain PyTorch covers biases of the attention alone",
            next_step="Load it with transformers and give the model.",
        )
    for name in wanted:
        if not stored.has(name):
            raise WorkbenchError(
                f"the target's checkpoint has no {name}",
                why=_why(name, fields),
                next_step="Give the whole checkpoint, with all of its shards.",
            )
    found: dict[str, Tensor] = {}
    for name, shape in known.items():
        if not stored.has(name):
            continue
        weight = stored[name]
        if weight.shape != shape:
            raise WorkbenchError(
                f"the target's {name} has shape {list(weight.shape)}, and {list(shape)} by its config",
                why=weight.flaw or "a target of these shapes cannot be computed",
                next_step="Compare its config.json with the one that it was published with.",
            )
        found[name] = _values(checkpoint, weight)
    return found


def _values(checkpoint: Checkpoint, weight: LogicalWeight) -> Tensor:
    """Return a weight's values, dequantised where they are codes."""
    if not weight.layout:
        return checkpoint.tensor(weight.name)
    import torch

    return torch.from_numpy(weight.rows(0, weight.shape[0])).reshape(weight.shape)


def _why(name: str, fields: ModelConfig) -> str:
    if name == "lm_head.weight":
        return "tie_word_embeddings is not true in its config, so the embedding is not the head"
    return f"its config says num_hidden_layers is {fields.whole('num_hidden_layers')}"


def _shapes(fields: ModelConfig, normed: bool) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return the tensors that the model computes with, and those that it has in some versions.

    `normed`: queries and keys are normed, as in Qwen3.
    """
    hidden, gated, wide = fields.hidden, fields.whole("intermediate_size"), fields.head_dim
    queries, keys = fields.heads * wide, fields.key_heads * wide
    table = (fields.whole("vocab_size"), hidden)
    wanted: dict[str, Shape] = {"model.embed_tokens.weight": table, "model.norm.weight": (hidden,)}
    further: dict[str, Shape] = {}
    if not fields.flag("tie_word_embeddings"):
        wanted["lm_head.weight"] = table
    for layer in range(fields.whole("num_hidden_layers")):
        name = f"model.layers.{layer}."
        matrices: dict[str, Shape] = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (gated, hidden),
            "mlp.up_proj": (gated, hidden),
            "mlp.down_proj": (hidden, gated),
        }
        wanted |= {f"{name}{part}.weight": shape for part, shape in matrices.items()}
        wanted |= {
            f"{name}{part}_layernorm.weight": (hidden,) for part in ("input", "post_attention")
        }
        further |= {
            f"{name}{part}.bias": shape[:1]
            for part, shape in matrices.items()
            if "self_attn" in part
        }
        if normed or fields.config.get("model_type") == "qwen3":
            wanted |= {f"{name}self_attn.{part}_norm.weight": (wide,) for part in ("q", "k")}
    return wanted, further
