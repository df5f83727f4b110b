"""Fields of a draft's config.json that the replay computes nothing with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.core.verdict import Item
from workbench.errors import shorten, shown

KIND = "config field"

# What the replay reads.
_READ = """
    hidden_size target_hidden_size num_attention_heads num_key_value_heads head_dim num_hidden_layers
    intermediate_size draft_vocab_size vocab_size q_lora_rank kv_lora_rank qk_nope_head_dim
    qk_rope_head_dim v_head_dim rms_norm_eps norm_before_fc fc_norm use_aux_norm norm_before_residual
    norm_output rope_interleave rope_theta rope_parameters rope_scaling partial_rotary_factor
    max_position_embeddings eagle_config eagle_aux_hidden_state_layer_ids speculators_config
    transformer_layer_config tie_word_embeddings dtype torch_dtype model_type architectures
    quantization_config attention_bias
"""
# What no forward pass reads.
_IDLE = """
    auto_map bos_token_id eos_token_id pad_token_id initializer_range transformers_version use_cache
    attention_dropout embed_requires_grad speculators_model_type speculators_version _name_or_path
    name_or_path return_dict output_hidden_states output_attentions chunk_size_feed_forward
    is_encoder_decoder id2label label2id problem_type tokenizer_class model_max_length
"""
# What would change the computation, and the value at which the replay computes as an engine does.
_NEUTRAL: Mapping[str, Any] = {
    "hidden_act": "silu",
    "mlp_bias": False,
    "pretraining_tp": 1,
    "sliding_window": None,
    "use_sliding_window": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "query_pre_attn_scalar": None,
    "logit_scale": None,
    "clip_qkv": None,
}
_LISTED = 6  # names of unknown fields


def items(config: Mapping[str, Any], *, essential: bool) -> Iterator[Item]:
    """Yield what of a config the replay does not compute with.

    Parameters
    ----------
    config
        The fields of config.json, those of its inner tables included.
    essential
        Whether the answer rests on the replay's own rounds: a real engine's rounds are accepted with every
        field that it reads.
    """
    windows = config.get("use_sliding_window", config.get("sliding_window") is not None)
    for name, neutral in _NEUTRAL.items():
        value = config.get(name, neutral)
        if value in (neutral, None) or (name == "sliding_window" and not windows):
            continue
        how = f"it is {shown(value, 40)}; the replay computes with {shown(neutral, 40)}"
        yield Item(KIND, f"{name} of the draft's config.json", "open", how, essential=essential)
    others = sorted(set(config) - {*_READ.split(), *_IDLE.split(), *_NEUTRAL})
    if others:
        more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
        names = ", ".join(shorten(name, 40) for name in others[:_LISTED]) + more
        yield Item(
            KIND,
            f"fields of the draft's config.json that are not known: {names}",
            "open",
            "the replay does not read them",
            count=len(others),
            essential=False,
        )
