"""Names of tensors that no general rule undoes, read in the loaders' own sources, by class.

What a row says is tried with the real loader like every other name: a row that is wrong finds nothing.
"""

from __future__ import annotations

# Substitutions that a loader makes in code: (part of the parameter, part of the key, shard). ``{}`` in the
# key stands for each expert; a shard that is none of ``w1``, ``w2``, ``w3`` fills the whole of an expert.
MAPPINGS: dict[str, list[tuple[str, str, str]]] = {
    "Step3p5ForCausalLM": [
        ("moe.experts.w13_weight", "moe.gate_proj.weight", "w1"),
        ("moe.experts.w13_weight", "moe.up_proj.weight", "w3"),
        ("moe.experts.w2_weight", "moe.down_proj.weight", "w2"),
    ],
    "ZayaForCausalLM": [
        ("experts.w13_weight", "experts.local_experts.{}.linear_fc1.weight", "both"),
        ("experts.w2_weight", "experts.local_experts.{}.linear_fc2.weight", "w2"),
    ],
}
MAPPINGS["Step3p7ForConditionalGeneration"] = MAPPINGS["Step3p5ForCausalLM"]
MAPPINGS["Step3VLForConditionalGeneration"] = MAPPINGS["Step3p5ForCausalLM"]
_MISTRAL = (
    (r"^model\.layers\.(\d+)\.input_layernorm\.", r"layers.\1.attention_norm."),
    (r"^model\.layers\.(\d+)\.self_attn\.q_proj\.", r"layers.\1.attention.wq."),
    (r"^model\.layers\.(\d+)\.self_attn\.q_a_proj\.", r"layers.\1.attention.wq_a."),
    (r"^model\.layers\.(\d+)\.self_attn\.q_a_layernorm\.", r"layers.\1.attention.q_a_norm."),
    (r"^model\.layers\.(\d+)\.self_attn\.q_b_proj\.", r"layers.\1.attention.wq_b."),
    (
        r"^model\.layers\.(\d+)\.self_attn\.kv_a_proj_with_mqa\.",
        r"layers.\1.attention.wkv_a_with_mqa.",
    ),
    (r"^model\.layers\.(\d+)\.self_attn\.kv_a_layernorm\.", r"layers.\1.attention.kv_a_norm."),
    (r"^model\.layers\.(\d+)\.self_attn\.kv_b_proj\.", r"layers.\1.attention.wkv_b."),
    (r"^model\.layers\.(\d+)\.self_attn\.o_proj\.", r"layers.\1.attention.wo."),
    (r"^model\.layers\.(\d+)\.post_attention_layernorm\.", r"layers.\1.ffn_norm."),
    (r"^model\.layers\.(\d+)\.mlp\.gate_proj\.", r"layers.\1.feed_forward.w1."),
    (r"^model\.layers\.(\d+)\.mlp\.down_proj\.", r"layers.\1.feed_forward.w2."),
    (r"^model\.layers\.(\d+)\.mlp\.up_proj\.", r"layers.\1.feed_forward.w3."),
    (r"^model\.layers\.(\d+)\.mlp\.gate\.weight", r"layers.\1.gate.weight"),
    (r"^model\.layers\.(\d+)\.mlp\.gate\.e_score_correction_bias", r"layers.\1.router_biases"),
    (r"^model\.layers\.(\d+)\.mlp\.shared_experts\.gate_proj\.", r"layers.\1.shared_experts.w1."),
    (r"^model\.layers\.(\d+)\.mlp\.shared_experts\.down_proj\.", r"layers.\1.shared_experts.w2."),
    (r"^model\.layers\.(\d+)\.mlp\.shared_experts\.up_proj\.", r"layers.\1.shared_experts.w3."),
    (r"^model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.gate_proj\.", r"layers.\1.experts.\2.w1."),
    (r"^model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.down_proj\.", r"layers.\1.experts.\2.w2."),
    (r"^model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.up_proj\.", r"layers.\1.experts.\2.w3."),
    (r"^model\.norm\.", r"norm."),
    (r"^model\.embed_tokens\.", r"tok_embeddings."),
    (r"^lm_head\.", r"output."),
    (r"^model\.fc\.", r"eagle_linear."),
)
# How files spell a name: a pattern of the loader's own, and what a file has.
SPELLINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "MistralLarge3ForCausalLM": _MISTRAL,
    "MistralLarge3ForCausalLMEagle": _MISTRAL,
    "LightOnOCRForConditionalGeneration": (
        (r"^patch_merger\.", "model.vision_projection.patch_merger."),
        (r"^vision_projection_norm\.", "model.vision_projection.norm."),
        (r"^vision_language_adapter\.w_in\.", "model.vision_projection.linear_1."),
        (r"^vision_language_adapter\.w_out\.", "model.vision_projection.linear_2."),
        (r"^vision_encoder\.(.*)\.attention\.proj\.", r"model.vision_encoder.\1.attention.o_proj."),
        (r"^vision_encoder\.", "model.vision_encoder."),
        (r"^language_model\.model\.", "model.language_model."),
        (r"^language_model\.", ""),
    ),
    "StepVLForConditionalGeneration": (
        (r"\.attn\.qkv_proj\.(\w+)$", r".attn.in_proj_\1"),
        (r"\.attn\.proj\.", ".attn.out_proj."),
        (r"\.mlp\.fc1\.", ".mlp.c_fc."),
        (r"\.mlp\.fc2\.", ".mlp.c_proj."),
        (r"^language_model\.", ""),
    ),
    "MuseGlimmerForConditionalGeneration": (
        (r"\.post_attention_layernorm\.", ".pre_feedforward_layernorm."),
    ),
    "Ernie4_5_MoeForCausalLMMTP": (
        (r"^model\.mtp_(block|emb_norm|hidden_norm|linear_proj)\.", r"model.mtp_\1.0."),
    ),
    "HYV4ForCausalLMNextN": (
        (r"^model\.shared_head\.norm\.", "model.mtp_layers.0.final_layernorm."),
        (r"^model\.decoder\.", "model.mtp_layers.0."),
        (r"^model\.", "model.mtp_layers.0."),
    ),
}
SPELLINGS["Step3p7ForConditionalGeneration"] = SPELLINGS["StepVLForConditionalGeneration"]
# transformers' class of that name goes by other fields than the engine's, so that it shows nothing:
# ``mlp_layer_types`` in place of ``moe_layer_freq``, or the sizes of its own default.
OTHER_FIELDS = frozenset({"MiMoV2FlashForCausalLM", "MuseGlimmerForConditionalGeneration"})
# Parameters that no key reaches and that no forward pass needs, and why.
_OTHER = "the module makes it and never uses it: its attention has an output of its own"
UNREAD: dict[str, dict[str, str]] = {
    "Step3VLForConditionalGeneration": {
        "vision_model.transformer.layers.{}.self_attn.out_proj.weight": _OTHER,
        "vision_model.transformer.layers.{}.self_attn.out_proj.bias": _OTHER,
    },
    "DotsOCRForCausalLM": {
        "lm_head.weight": "the language model has a head of its own, which the file's lm_head.weight fills",
    },
}
