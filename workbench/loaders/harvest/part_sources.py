"""Rows of the table of config sources for models that see or hear, and for layers chosen by their numbers.

Fields and their spelling are those of the models' own config.json; sizes need not be.
"""

from __future__ import annotations

from typing import Any

from .more_sources import ABSENT

Json = dict[str, Any]
_ROPE: Json = {"rope_type": "default", "rope_theta": 10000.0}
_SIGLIP: Json = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
    "num_hidden_layers": 2, "num_attention_heads": 16, "image_size": 384, "patch_size": 14,
    "num_channels": 3, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
}  # fmt: skip
_QWEN2: Json = {
    "model_type": "qwen2", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 4096, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "rope_theta": 10000.0, "use_sliding_window": False, "torch_dtype": "bfloat16",
}  # fmt: skip
_JET: Json = {
    "model_type": "jet_nemotron", "hidden_size": 1536, "intermediate_size": 2816, "num_hidden_layers": 4,
    "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 4096, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "max_position_embeddings": 4096, "rope_theta": 10000.0, "rope_scaling": None,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "initializer_range": 0.02,
    "layer_types": ["jet", "attn", "swa", "jet"],
    "efficient_attention_config": {
        "swa": {"window_size": 1152},
        "jet": {
            "mode": "chunk", "expand_v": 2.0, "num_heads": 8, "head_dim": 256, "norm_eps": "1e-5",
            "conv_size": 4, "dconv_generator_reduction": 8, "dconv_implementation": "triton",
        },
    },
}  # fmt: skip
_KIMI_K3: Json = {
    "model_type": "kimi_linear", "hidden_size": 1024, "intermediate_size": 2304, "vocab_size": 4096,
    "moe_intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": 192, "kv_lora_rank": 128,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 96, "mla_use_nope": True,
    "mla_use_output_gate": True, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 2.5,
    "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
    "tie_word_embeddings": False, "num_nextn_predict_layers": 0, "max_position_embeddings": 8192,
    "attn_res_block_size": 2, "routed_expert_hidden_size": 512, "latent_moe_use_norm": True,
    "activation_situ_beta": None, "activation_situ_linear_beta": None, "dtype": "bfloat16",
    "linear_attn_config": {
        "kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 8, "head_dim": 128,
        "short_conv_kernel_size": 4, "use_full_rank_gate": True, "gate_lower_bound": -5.0,
    },
}  # fmt: skip
_STEP3: Json = {
    "model_type": "step3_text", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_attention_groups": 1, "vocab_size": 4096, "rms_norm_eps": 1e-5,
    "moe_intermediate_size": 640, "moe_num_experts": 4, "moe_top_k": 2, "rope_theta": 500000.0,
    "rope_scaling": None, "share_expert_dim": 768, "share_q_dim": 512, "head_dim": 256,
    "norm_expert_weight": False, "moe_layers_enum": "1,2", "max_seq_len": 65536,
    "max_position_embedding": 65536, "torch_dtype": "bfloat16",
}  # fmt: skip
_STEP35: Json = {
    "model_type": "step3p5", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_attention_groups": 4, "vocab_size": 4096, "rms_norm_eps": 1e-5,
    "moe_intermediate_size": 640, "moe_num_experts": 4, "moe_top_k": 2, "share_expert_dim": 768,
    "head_dim": 128, "norm_expert_weight": True, "use_head_wise_attn_gate": True,
    "use_moe_router_bias": True, "need_fp32_gate": True, "moe_router_activation": "sigmoid",
    "moe_router_scaling_factor": 3.0, "moe_layers_enum": "1,2", "moe_every_n_layer": 1,
    "max_position_embeddings": 8192, "max_seq_len": 8192, "sliding_window": 512,
    "rope_theta": [10000.0] * 5, "rope_scaling": None, "partial_rotary_factors": [1.0] * 5,
    "layer_types": [
        "full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention",
    ],
    "yarn_only_types": ["full_attention"], "swiglu_limits": [0.0] * 5,
    "swiglu_limits_shared": [0.0] * 5, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 24, "num_attention_groups": 8,
        "head_dim": 128,
    },
    "torch_dtype": "bfloat16",
}  # fmt: skip
_PERCEPTION: Json = {
    "model_type": "perception_encoder", "width": 512, "layers": 2, "heads": 8, "num_channels": 3,
    "image_size": 728, "patch_size": 14, "mlp_ratio": 4.0, "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5, "use_cls_token": False, "use_ln_pre": True, "use_ln_post": False,
    "use_abs_posemb": True, "use_rope2d": True, "ls_init_value": 0.1, "output_dim": None,
    "pool_type": "none",
}  # fmt: skip
_BAILING: Json = {
    "model_type": "bailing_moe_v2", "hidden_size": 1024, "intermediate_size": 2816,
    "moe_intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qkv_bias": False, "use_bias": False,
    "vocab_size": 4096, "norm_topk_prob": True, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 4096, "rope_theta": 10000.0, "embedding_dropout": 0.0,
    "tie_word_embeddings": False, "n_group": 1, "topk_group": 1, "use_qk_norm": True,
    "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5, "norm_head": False,
    "partial_rotary_factor": 0.5, "score_function": "sigmoid", "torch_dtype": "bfloat16",
    "num_nextn_predict_layers": 0, "moe_shared_expert_intermediate_size": 352,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]},
}  # fmt: skip
_BAILING_VISION: Json = {
    "model_type": "qwen3_vl_moe", "architectures": ["Qwen3MoeVisionTransformer"], "depth": 2,
    "hidden_size": 512,
    "intermediate_size": 1536, "num_heads": 8, "in_channels": 3, "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 768, "in_chans": 3,
    "num_position_embeddings": 2304, "deepstack_visual_indexes": [],
}  # fmt: skip
_BAILING_MM: Json = {
    "model_type": "bailingmm_moe_v2_lite", "mlp_depth": 2, "llm_config": _BAILING,
    "vision_config": _BAILING_VISION,
}  # fmt: skip
_WHISPER: Json = {
    "model_type": "whisper", "d_model": 512, "encoder_layers": 2, "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048, "decoder_layers": 2, "decoder_attention_heads": 8, "decoder_ffn_dim": 2048,
    "num_mel_bins": 80, "max_source_positions": 1500, "num_hidden_layers": 2,
    "activation_function": "gelu",
}  # fmt: skip
_IQUEST: Json = {
    "num_hidden_layers": 4, "use_hybrid_layers": False, "num_hybrid_layers_block": 0,
    "intermediate_size": 640,
    "hidden_size": 1024, "dense_intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
    "mlp_only_layers": [1, 2], "layer_types": ABSENT, "hybrid_layer_pattern": ABSENT, "num_experts": 4,
    "num_experts_per_tok": 2, "vocab_size": 4096,
}  # fmt: skip
PARTS: dict[str, tuple[str, Json]] = {
    "JetNemotronForCausalLM": ("", _JET),
    "JetVLMForConditionalGeneration": (
        "",
        {"model_type": "jet_vlm", "text_config": _JET, "vision_config": _SIGLIP, "tie_word_embeddings": True},
    ),
    "KimiK3LinearForCausalLM": ("", _KIMI_K3),
    "KimiK3ForConditionalGeneration": (
        "",
        {
            "model_type": "kimi_k3",
            "text_config": _KIMI_K3,
            "vision_config": {
                "model_type": "kimi_k3_vision", "patch_size": 14, "vt_num_attention_heads": 12,
                "vt_num_hidden_layers": 2, "vt_hidden_size": 768, "vt_intermediate_size": 2048,
                "qkv_hidden_size": 1536, "mm_hidden_size": 896, "text_hidden_size": 1024,
                "init_pos_emb_height": 64, "init_pos_emb_width": 64, "init_pos_emb_time": 4,
                "merge_kernel_size": [2, 2],
            },
        },
    ),
    "Step3VLForConditionalGeneration": (
        "",
        {
            "model_type": "step3_vl", "text_config": _STEP3, "understand_projector_stride": 2,
            "projector_bias": False, "image_token_id": 100,
            "vision_config": {
                "model_type": "step3_vision_encoder", "hidden_size": 512, "intermediate_size": 1536,
                "output_hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 8,
                "num_channels": 3, "image_size": 728, "patch_size": 14, "hidden_act": "quick_gelu",
                "layer_norm_eps": 1e-5,
            },
        },
    ),
    "StepVLForConditionalGeneration": (
        "",
        {
            "model_type": "step_robotics", "understand_projector_stride": 2, "projector_bias": False,
            "image_token_id": 100, "vision_config": _PERCEPTION,
            "text_config": _QWEN2 | {"model_type": "qwen3", "head_dim": 128, "attention_bias": False},
        },
    ),
    "Step3p5ForCausalLM": ("", _STEP35),
    "Step3p5MTP": (  # the class takes layer 45 for its own, whatever the config says
        "",
        _STEP35
        | {
            "num_hidden_layers": 45, "num_nextn_predict_layers": 3,
            "moe_layers_enum": ",".join(map(str, range(3, 45))),
            "layer_types": ["full_attention", *["sliding_attention"] * 3] * 12, "rope_theta": [10000.0] * 48,
            "partial_rotary_factors": [1.0] * 48, "swiglu_limits": [0.0] * 48,
            "swiglu_limits_shared": [0.0] * 48,
        },
    ),
    "Step3p7ForConditionalGeneration": (
        "",
        {
            "model_type": "step3p7", "text_config": _STEP35, "vision_config": _PERCEPTION,
            "understand_projector_stride": 2, "projector_bias": False, "image_token_id": 100,
        },
    ),
    "POINTSV15ChatModel": (
        "",
        {
            "model_type": "pointsv1.5_chat", "llm_config": _QWEN2,
            "vision_config": {
                "model_type": "qwen2_vl", "depth": 2, "embed_dim": 640, "hidden_size": 1024,
                "hidden_act": "quick_gelu", "mlp_ratio": 4, "num_heads": 8, "in_channels": 3, "in_chans": 3,
                "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    "BailingMMNativeForConditionalGeneration": ("", _BAILING_MM),
    "BailingMM2NativeForConditionalGeneration": ("", _BAILING_MM),
    "MiniCPMO": (
        "",
        _QWEN2 | {
            "model_type": "minicpmo", "version": "2.6", "query_num": 64, "image_size": 448, "patch_size": 14,
            "drop_vision_last_layer": False, "slice_mode": True, "batch_vision_input": True,
            "use_image_id": True, "vision_batch_size": 16, "audio_pool_step": 2, "audio_chunk_length": 1.0,
            "init_vision": True, "init_audio": True, "init_tts": False, "_attn_implementation": "sdpa",
            "vision_config": _SIGLIP | {"image_size": 980}, "audio_config": _WHISPER,
            "rope_parameters": _ROPE,
        },
    ),
    "Ernie4_5_MoeForCausalLMMTP": (
        "Ernie4_5_MoeConfig",
        {"hidden_act": "silu", "num_nextn_predict_layers": 1, "num_hidden_layers": 2},
    ),
    "IQuestQ1ForCausalLM": ("IQuestQ1Config", _IQUEST),
}  # fmt: skip
