"""speculators' nested config in the flat form that SGLang's LlamaForCausalLMEagle3 reads.

What that class reads was taken from its source (0.5.8 to 0.5.23, models/llama_eagle3.py):
``num_aux_hidden_states`` or ``eagle_config.eagle_aux_hidden_state_layer_ids``, ``target_hidden_size``,
``bias``, ``norm_before_fc`` (from 0.5.18), ``fc_norm``, ``norm_output`` (from 0.5.12),
``draft_vocab_size``, ``tie_word_embeddings``, and Llama's own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.checkpoint.config import Flattened

DRAFT_CLASS = "LlamaForCausalLMEagle3"

# Fields of speculators that are copied to the top as they are.
_KEPT = ("draft_vocab_size", "norm_before_fc", "norm_output", "fc_norm", "embed_requires_grad")
# Fields that say how the draft was trained or packed; nothing is computed from them.
_PACKING = {
    "architectures", "auto_map", "model_type", "speculators_config", "speculators_model_type",
    "speculators_version", "transformer_layer_config", "transformers_version", "torch_dtype", "dtype",
}  # fmt: skip
_ROPE_LINEAR = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}

# Targets whose class in SGLang takes id v as "the output of layer v" (it adds one); speculators counts
# the input of layer v, as vLLM does.
_ADDS_ONE = (
    "Llama", "Qwen2", "Qwen3", "MiniMax", "LongcatFlash", "Bailing", "Gemma4", "Glm4Moe", "Mistral",
)  # fmt: skip
# Targets that take the ids as they are, unless the first one is 1.
_AS_GIVEN = ("DeepseekV2", "DeepseekV3", "KimiK2", "KimiK25", "Glm4MoeLite", "GlmMoeDsa")


def flatten(raw: Mapping[str, Any]) -> Flattened:
    """Return the flat form of speculators' nested config, and what it cannot say.

    Parameters
    ----------
    raw
        A config with ``transformer_layer_config``.
    """
    layer = dict(raw["transformer_layer_config"])
    lost: list[str] = []
    flat: dict[str, Any] = {
        k: v for k, v in layer.items() if k not in ("auto_map", "_name_or_path")
    }
    trained_as = layer.get("model_type")
    flat["architectures"] = [DRAFT_CLASS]
    flat["model_type"] = "llama"
    for key in _KEPT:
        if raw.get(key) is not None:
            flat[key] = raw[key]
    # SGLang does not read it; kept so that whoever looks at the flat copy still knows how it was trained.
    flat["norm_before_residual"] = bool(raw.get("norm_before_residual", True))
    flat["tie_word_embeddings"] = bool(raw.get("tie_word_embeddings", False))
    if raw.get("target_hidden_size") is not None:
        flat["target_hidden_size"] = raw["target_hidden_size"]
    dtype = (
        raw.get("torch_dtype") or raw.get("dtype") or layer.get("torch_dtype") or layer.get("dtype")
    )
    if dtype is not None:
        flat["torch_dtype"] = dtype
    _rope(flat, lost)
    _auxiliary_layers(raw, flat, lost)
    _norms(raw, lost)
    if trained_as not in (None, "llama"):
        qk = (
            " It has q_norm and k_norm, which the class lacks."
            if "qwen3" in str(trained_as)
            else ""
        )
        lost.append(
            f"transformer_layer_config.model_type {trained_as!r}: the class is a Llama layer.{qk}"
        )
    if layer.get("attention_bias"):
        lost.append("attention_bias: the class builds q, k and v without a bias.")
    if raw.get("embed_requires_grad"):
        lost.append(
            "embed_requires_grad: the draft has its own embeddings, but the class uses the "
            "target's."
        )
    known = _PACKING | set(_KEPT) | _HANDLED
    for key in raw:
        if key not in known and raw[key] is not None:
            if isinstance(raw[key], dict):
                lost.append(f"{key}: the class does not read it.")
            else:
                flat.setdefault(key, raw[key])
    return Flattened(flat, tuple(lost))


_HANDLED = {
    "eagle_aux_hidden_state_layer_ids", "target_hidden_size", "tie_word_embeddings", "norm_before_residual",
}  # fmt: skip


def _rope(flat: dict[str, Any], lost: list[str]) -> None:
    """Say the rotary embedding in the words of transformers 4 too: rope_theta and rope_scaling."""
    rope = flat.get("rope_parameters")
    if not isinstance(rope, dict):
        flat.setdefault("rope_theta", 10000.0)
        return
    if rope and all(isinstance(value, dict) for value in rope.values()):
        lost.append("rope_parameters by layer type: transformers 4 has one for all layers.")
        return
    flat.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
    if "partial_rotary_factor" in rope:
        flat.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default" and flat.get("rope_scaling") is None:
        scaling = {k: v for k, v in rope.items() if k not in _ROPE_LINEAR}
        flat["rope_scaling"] = {"rope_type": kind} | scaling


def _auxiliary_layers(raw: Mapping[str, Any], flat: dict[str, Any], lost: list[str]) -> None:
    ids = raw.get("eagle_aux_hidden_state_layer_ids")
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        flat["eagle_config"] = {"use_aux_hidden_state": True}
        return
    target = _target_class(raw)
    written = list(ids)
    if target.startswith(_ADDS_ONE) and not target.startswith(_AS_GIVEN):
        written = [i - 1 for i in ids]
        if min(written) < 0:
            lost.append(
                "auxiliary layer 0 (the embeddings): SGLang adds one to each id of this target."
            )
            written = list(ids)
    elif target.startswith(_AS_GIVEN):
        if ids[0] == 1:
            lost.append(
                "auxiliary layers that begin with 1: SGLang reads such ids of this target as "
                "outputs of layers (it adds one to all), and cannot express the inputs that were "
                "meant."
            )
    else:
        lost.append(
            f"which layers the auxiliary ids {ids} mean: the target's class "
            f"({target or 'not named'}) is not known here, and SGLang adds one to them for most targets."
        )
    flat["eagle_config"] = {
        "eagle_aux_hidden_state_layer_ids": written,
        "use_aux_hidden_state": True,
    }


def _target_class(raw: Mapping[str, Any]) -> str:
    config = raw.get("speculators_config")
    verifier = config.get("verifier") if isinstance(config, dict) else None
    named = verifier.get("architectures") if isinstance(verifier, dict) else None
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""


def _norms(raw: Mapping[str, Any], lost: list[str]) -> None:
    if raw.get("norm_before_residual", True):
        said = "true" if "norm_before_residual" in raw else "not given, and true by default"
        lost.append(
            f"norm_before_residual ({said}): the class always adds the residual before the norm, so "
            "the hidden states differ from those in training."
        )
    if raw.get("norm_output"):
        lost.append("norm_output: read from SGLang 0.5.12 on; older versions ignore it silently.")
    if raw.get("norm_before_fc"):
        lost.append(
            "norm_before_fc: read from SGLang 0.5.18 on; older versions lose input_norm.weight."
        )
