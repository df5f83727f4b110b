"""More rows of the table of config sources: models of several parts, hybrids, and lists of one entry a layer.

Fields and their spelling are those of the models' own config.json; sizes need not be.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
ABSENT = "absent:"
SMALL = "small:"
_ROPE: Json = {"rope_type": "default", "rope_theta": 10000.0}
_MISTRAL: Json = {
    "model_type": "mistral", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 4096,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 4096,
    "rope_parameters": _ROPE, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
_PIXTRAL: Json = {
    "model_type": "pixtral", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 2,
    "num_attention_heads": 8, "head_dim": 64, "image_size": 1540, "patch_size": 14, "num_channels": 3,
    "hidden_act": "silu", "rope_parameters": _ROPE, "attention_dropout": 0.0,
}  # fmt: skip
_GEMMA4_TEXT: Json = {
    "text_config": SMALL + "Gemma4TextConfig",
    "vision_config": SMALL + "Gemma4VisionConfig",
    "audio_config": SMALL + "Gemma4AudioConfig",
}
_NEMOTRON_H = {
    "hybrid_override_pattern": "M-*EM-*E",
    "num_hidden_layers": 8,
    "layers_block_type": ABSENT,
    "layer_types": ABSENT,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
}
_DEEPSEEK: Json = {
    "model_type": "deepseek", "hidden_size": 1024, "intermediate_size": 2816, "vocab_size": 4096,
    "moe_intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 2, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "max_position_embeddings": 4096, "rope_theta": 10000.0,
    "rope_parameters": _ROPE, "tie_word_embeddings": False, "attention_bias": False,
    "scoring_func": "softmax", "torch_dtype": "bfloat16",
}  # fmt: skip
_DEEPSEEK4: Json = {
    "compress_ratios": [0, 4, 128, 4],
    "num_hidden_layers": 4,
    "num_hash_layers": 1,
    "layer_types": ABSENT,
    "mlp_layer_types": ABSENT,
    "compress_rates": ABSENT,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 65536,
    },
    "qk_rope_head_dim": 64,
    "topk_method": "noaux_tc",
}
MORE: dict[str, tuple[str, Json]] = {
    "DbrxForCausalLM": (
        "",
        {
            "model_type": "dbrx",
            "d_model": 1024,
            "n_heads": 16,
            "n_layers": 2,
            "max_seq_len": 4096,
            "vocab_size": 4096,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "attn_config": {"kv_n_heads": 4, "clip_qkv": 8, "rope_theta": 500000},
            "ffn_config": {
                "ffn_hidden_size": 2688,
                "moe_num_experts": 4,
                "moe_top_k": 2,
                "moe_loss_weight": 0.05,
                "ffn_act_fn": {"name": "silu"},
                "moe_jitter_eps": 0.0,
                "moe_normalize_expert_weights": 1.0,
            },
        },
    ),
    "GptOssForCausalLM": ("hf:GptOssConfig", {}),
    "Llama4ForConditionalGeneration": (
        "Llama4Config",
        {
            "text_config.moe_layers": ABSENT,
            "text_config.interleave_moe_layer_step": 2,
            "text_config.num_hidden_layers": 4,
            "text_config.layer_types": ABSENT,
            "text_config.no_rope_layers": ABSENT,
        },
    ),
    "LlavaForConditionalGeneration": (
        "LlavaConfig",
        {"text_config": _MISTRAL, "vision_config": _PIXTRAL},
    ),
    "Mistral3ForConditionalGeneration": (
        "Mistral3Config",
        {"text_config": _MISTRAL, "vision_config": _PIXTRAL},
    ),
    "Gemma4ForConditionalGeneration": ("hf:Gemma4Config", _GEMMA4_TEXT),
    "DiffusionGemmaForBlockDiffusion": (
        "hf:DiffusionGemmaConfig",
        {
            "text_config.num_experts": 4,
            "text_config.top_k_experts": 2,
            "text_config.moe_intermediate_size": 704,
            "text_config.enable_moe_block": True,
            "vision_config": SMALL + "Gemma4VisionConfig",
        },
    ),
    "Gemma4AssistantForCausalLM": (
        "hf:Gemma4AssistantConfig",
        {
            "text_config": SMALL + "Gemma4TextConfig",
            "backbone_hidden_size": 1536,
            "text_config.hidden_size_per_layer_input": 0,
            "text_config.vocab_size_per_layer_input": 0,
        },
    ),
    "Gemma4UnifiedAssistantForCausalLM": (
        "hf:Gemma4UnifiedAssistantConfig",
        {"text_config": SMALL + "Gemma4UnifiedTextConfig", "backbone_hidden_size": 1536},
    ),
    "Exaone4ForCausalLM": (
        "Exaone4Config",
        {
            "sliding_window_pattern": "LLLG",
            "num_hidden_layers": 4,
            "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        },
    ),
    "Lfm2MoeForCausalLM": (
        "Lfm2MoeConfig",
        {
            "num_hidden_layers": 4,
            "num_dense_layers": 1,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
        },
    ),
    "MiMoV2FlashForCausalLM": (
        "MiMoV2FlashConfig",
        {
            "hybrid_layer_pattern": [1, 0],
            "moe_layer_freq": [0, 1],
            "layer_types": ABSENT,
            "mlp_layer_types": ABSENT,
            "swa_num_attention_heads": 64,
            "swa_num_key_value_heads": 8,
            "swa_head_dim": 192,
            "swa_v_head_dim": 128,
            "sliding_window_size": 128,
            "add_swa_attention_sink_bias": True,
            "add_full_attention_sink_bias": False,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "layernorm_epsilon": 1e-5,
        },
    ),
    "HunYuanMoEV1ForCausalLM": (
        "HunYuanMoEV1Config",
        {
            "head_dim": 128,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_experts": 4,
            "moe_topk": [2, 2],
            "num_shared_expert": [1, 1],
            "use_mixed_mlp_moe": True,
            "moe_intermediate_size": [3072, 3072],
            "use_qk_norm": True,
            "use_cla": False,
            "cla_share_factor": 2,
        },
    ),
    "Qwen2VLForConditionalGeneration": (
        "Qwen2VLConfig",
        {"vision_config.in_chans": 3},
    ),
    "DeepseekForCausalLM": ("", _DEEPSEEK),
    "NemotronHForCausalLM": (
        "NemotronHConfig",
        _NEMOTRON_H,
    ),
    "NemotronHForCausalLMMTP": (
        "NemotronHConfig",
        {
            **_NEMOTRON_H,
            "num_nextn_predict_layers": 1,
            "mtp_hybrid_override_pattern": "*E",
        },
    ),
    "LongcatFlashForCausalLMNextN": (
        "LongcatFlashConfig",
        {"rope_parameters": _ROPE, "rope_theta": 10000.0},
    ),
    "Eagle3DeepseekV2ForCausalLM": (
        "DeepseekV3Config",
        {
            "draft_vocab_size": 2048,
            "num_hidden_layers": 1,
            "first_k_dense_replace": 0,
            "rope_parameters": _ROPE,
            "target_hidden_size": 1024,
        },
    ),
    "DeepseekV4ForCausalLM": ("hf:DeepseekV4Config", _DEEPSEEK4),
    "DeepseekV4ForCausalLMDSpark": (
        "hf:DeepseekV4Config",
        _DEEPSEEK4 | {"markov_rank": 64, "markov_head_type": "vanilla"},
    ),
    "MuseGlimmerForCausalLM": (
        "hf:MuseGlimmerConfig",
        {},
    ),
    "SarvamMLAForCausalLM": (
        "DeepseekV3Config",
        {"num_experts": 4, "num_shared_experts": 1, "moe_router_enable_expert_bias": True},
    ),
    "DSparkMiniMaxDraftModel": (
        "MiniMaxM3VLTextConfig",
        {
            "num_target_layers": 36,
            "block_size": 16,
            "markov_rank": 64,
            "markov_head_type": "vanilla",
            "use_gemma_norm": True,
            "dflash_config": {
                "mask_token_id": 1,
                "target_layer_ids": [1, 2, 3],
                "markov_rank": 64,
                "markov_head_type": "vanilla",
            },
            "layer_types": ["full_attention", "full_attention"],
        },
    ),
}
