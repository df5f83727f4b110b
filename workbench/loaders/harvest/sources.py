"""The maintained table of config sources: what neither the name of a class nor an annotation tells.

A row is a config class (``hf:`` in front takes transformers' own where SGLang has one of that name) with the
fields to set in it, by path; or "" with a whole small config.json, in which ``model_type`` is given. The
value ``ABSENT`` takes a field out; ``SMALL`` with the name of a transformers config class gives a small one.
"""

from __future__ import annotations

from typing import Any

from .more_sources import MORE
from .part_sources import PARTS

Json = dict[str, Any]
_FLASH: Json = {
    "num_target_layers": 36,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 2, 3]},
}
_SPARK: Json = _FLASH | {
    "dflash_config": _FLASH["dflash_config"] | {"markov_rank": 64, "markov_head_type": "vanilla"},
    "markov_rank": 64,
    "markov_head_type": "vanilla",
}
_GELU: Json = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
_ABSOLUTE: Json = {"position_embedding_type": "absolute"}
_ONE: Json = {"num_hidden_layers": 1}
_SELECTOR: Json = _FLASH | {
    "dflash_config": _FLASH["dflash_config"] | {"selector_rank": 64, "selector_top_k": 4}
}
_CORRELATED: Json = _SPARK | {
    "dflash_config": _SPARK["dflash_config"]
    | {
        "lilicorr_candidate_topk": 4,
        "lilicorr_hidden_size": 96,
        "lilicorr_num_layers": 2,
        "lilicorr_factor_dim": 48,
        "lilicorr_mlp_ratio": 2.0,
        "lilicorr_num_heads": 4,
        "lilicorr_logit_scale": 1.0,
        "lilicorr_vector_eps": 1e-6,
    }
}
_LLAMA: Json = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024,
    "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "max_position_embeddings": 4096, "attention_bias": False,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
_QWEN2: Json = _LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
_QWEN3: Json = _LLAMA | {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 128,
}
_CLIP: Json = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 2, "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
    "projection_dim": 768, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
}  # fmt: skip
_INTERN_VISION: Json = {
    "model_type": "intern_vit_6b", "architectures": ["InternVisionModel"], "hidden_size": 1024,
    "intermediate_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 16, "image_size": 448,
    "patch_size": 14, "qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm",
    "layer_norm_eps": 1e-6, "initializer_factor": 1.0, "drop_path_rate": 0.0, "num_channels": 3,
    "hidden_act": "gelu", "use_flash_attn": True, "attention_dropout": 0.0, "dropout": 0.0,
}  # fmt: skip
_BAILING: Json = {
    "model_type": "bailing_moe", "hidden_size": 1024, "intermediate_size": 2816,
    "moe_intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qkv_bias": False, "use_bias": False,
    "vocab_size": 4096, "norm_topk_prob": True, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 4096, "rope_theta": 10000.0, "embedding_dropout": 0.0,
    "tie_word_embeddings": False, "n_group": 1, "topk_group": 1, "use_qk_norm": True,
    "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5, "norm_head": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "score_function": "sigmoid", "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1,
}  # fmt: skip
_GROK: Json = {
    "model_type": "grok-1", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096,
    "num_local_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "pad_token_id": 0,
    "max_position_embeddings": 4096, "rope_theta": 10000.0, "output_multiplier_scale": 0.5,
    "embedding_multiplier_scale": 2.0, "tie_word_embeddings": False, "hidden_act": "gelu",
    "attn_logit_softcapping": 30.0, "final_logit_softcapping": 50.0, "router_logit_softcapping": 30.0,
}  # fmt: skip
_EXAONE: Json = {
    "num_hidden_layers": 4,
    "is_moe_layer": [False, True, True, True],
    "layer_types": [*["sliding_attention"] * 3, "full_attention"],
    "first_k_dense_replace": 1,
}
_NO_STACKS: Json = {"vision_config.deepstack_visual_indexes": []}
_INTERN: Json = {
    "model_type": "internvl_chat", "llm_config": _QWEN2, "vision_config": _INTERN_VISION,
    "force_image_size": 448, "downsample_ratio": 0.5, "select_layer": -1, "ps_version": "v2",
    "template": "internvl2_5", "use_thumbnail": True, "dynamic_image_size": True,
    "max_dynamic_patch": 12, "min_dynamic_patch": 1, "tie_word_embeddings": False,
}  # fmt: skip
_OCR_VISION: Json = {
    "model_name": "deeplip_b_l",
    "model_type": "vision",
    "image_size": 1024,
    "mlp_ratio": 3.7,
}
_OCR: Json = {
    "tile_tag": "2D", "global_view_pos": "head", "vision_config": _OCR_VISION,
    "projector_config": {"model_type": "mlp_projector", "projector_type": "linear", "input_dim": 2048,
                         "n_embed": 1280, "depth": 1, "mlp_ratio": 1, "downsample_ratio": 2},
    "language_config": {
        "model_type": "deepseek_v2", "architectures": ["DeepseekOCRForCausalLM"], "hidden_size": 1280,
        "intermediate_size": 6848, "moe_intermediate_size": 896, "num_hidden_layers": 4,
        "num_attention_heads": 10, "num_key_value_heads": 10, "n_routed_experts": 4,
        "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "use_mla": False,
        "vocab_size": 4096, "q_lora_rank": None, "kv_lora_rank": None, "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0, "v_head_dim": 0, "topk_method": "greedy", "moe_layer_freq": 1,
        "n_group": 1, "topk_group": 1, "lm_head": True, "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    },
}  # fmt: skip
_KIMI_TEXT: Json = {
    "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 1024,
    "intermediate_size": 2304, "moe_intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "vocab_size": 4096, "q_lora_rank": 192,
    "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 48,
    "topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1, "n_group": 1,
    "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "max_position_embeddings": 8192, "tie_word_embeddings": False,
    "attention_bias": False, "rope_theta": 50000.0, "torch_dtype": "bfloat16", "num_nextn_predict_layers": 0,
}  # fmt: skip
# Class -> config class, with fields to set: where neither name nor annotation tells.
TABLE: dict[str, tuple[str, Json]] = {
    "LlamaForCausalLMEagle3": ("LlamaConfig", {"draft_vocab_size": 4096} | _ONE),
    "LlamaForCausalLMEagle": ("LlamaConfig", _ONE),
    "Qwen2ForCausalLMEagle": ("Qwen2Config", _ONE),
    "DeepseekV3ForCausalLMNextN": ("DeepseekV3Config", {}),
    "DeepseekV32ForCausalLM": ("DeepseekV3Config", {}),
    "Glm4MoeForCausalLMNextN": ("Glm4MoeConfig", {}),
    "InternLM2ForCausalLM": ("LlamaConfig", {"bias": False}),
    "DFlashDraftModel": ("Qwen3Config", _FLASH),
    "DFlashLagunaForCausalLM": ("LagunaConfig", _FLASH),
    "DSparkDraftModel": ("Qwen3Config", _SPARK),
    "Qwen3DSparkModel": ("Qwen3Config", _SPARK),
    "LingDSparkModel": ("Qwen3Config", _SPARK),
    "Lfm2DSparkDraftModel": ("Lfm2Config", _SPARK),
    "MistralLarge3ForCausalLM": ("DeepseekV3Config", {}),
    "MistralLarge3ForCausalLMEagle": ("DeepseekV3Config", _ONE),
    "Gemma2ForCausalLM": ("Gemma2Config", _GELU),
    "Gemma2ForSequenceClassification": ("Gemma2Config", _GELU),
    "Qwen3_5ForCausalLMMTP": ("Qwen3_5Config", {}),
    "MossVLForConditionalGeneration": ("Qwen3VLConfig", {}),
    "DeepseekV4ForCausalLMDSpark": ("DeepSeekV4Config", {"markov_rank": 64}),
    "BertModel": ("BertConfig", _ABSOLUTE),
    "Contriever": ("BertConfig", _ABSOLUTE),
    "BertForSequenceClassification": ("BertConfig", _ABSOLUTE),
    "XLMRobertaModel": ("XLMRobertaConfig", _ABSOLUTE),
    "XLMRobertaForSequenceClassification": ("XLMRobertaConfig", _ABSOLUTE),
    "LlamaForClassification": ("LlamaConfig", {"classification_out_size": 2}),
    "Phi3SmallForCausalLM": (
        "Phi3Config",
        {"hidden_act": "gegelu", "rope_embedding_base": 10000.0, "mup_attn_multiplier": 1.0},
    ),
    "MiMoV2ForCausalLM": (
        "MiMoV2FlashConfig",
        {"hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1]},
    ),
    "BaichuanForCausalLM": ("LlamaConfig", {}),
    "BaiChuanForCausalLM": ("LlamaConfig", {}),
    "MiMoForCausalLM": ("Qwen2Config", {}),
    "MiMoMTP": ("Qwen2Config", {"num_nextn_predict_layers": 1}),
    "DFlash2DraftModel": ("Qwen3Config", _SELECTOR),
    "DFlash2BeamDraftModel": ("Qwen3Config", _SELECTOR),
    "LiLiCorrDraftModel": ("Qwen3Config", _CORRELATED),
    "BailingMoEForCausalLM": ("", _BAILING),
    "BailingMoeForCausalLM": ("", _BAILING),
    "BailingMoeV2ForCausalLM": ("", _BAILING | {"model_type": "bailing_moe_v2"}),
    "BailingMoeForCausalLMNextN": ("", _BAILING | {"model_type": "bailing_moe_v2"}),
    "Grok1ForCausalLM": ("", _GROK),
    "Grok1ModelForCausalLM": ("", _GROK),
    "ExaoneMoeForCausalLM": ("ExaoneMoeConfig", _EXAONE),
    "ExaoneMoEForCausalLM": ("ExaoneMoeConfig", _EXAONE),
    "ExaoneMoEForCausalLMMTP": ("ExaoneMoeConfig", _EXAONE),
    "Qwen3_5ForConditionalGeneration": ("Qwen3_5Config", _NO_STACKS),
    "Qwen3_5MoeForConditionalGeneration": ("Qwen3_5MoeConfig", _NO_STACKS),
    "InternVLChatModel": ("", _INTERN),
    "InternS2PreviewForConditionalGeneration": ("InternS2PreviewConfig", _NO_STACKS),
    "DeepseekOCRForCausalLM": (
        "",
        _OCR
        | {
            "model_type": "deepseek_vl_v2",
            "auto_map": {"AutoModel": "modeling_deepseekocr.DeepseekOCRForCausalLM"},
        },
    ),
    "UnlimitedOCRForCausalLM": (
        "",
        _OCR | {"model_type": "unlimited-ocr", "text_config": _OCR["language_config"]},
    ),
    "KimiK25ForConditionalGeneration": (
        "KimiK25Config",
        {
            "text_config": _KIMI_TEXT,
            "vision_config.vt_hidden_size": 1152,
            "vision_config.mm_hidden_size": 1152,
            "vision_config.text_hidden_size": 1024,
            "vision_config.num_hidden_layers": 2,
        },
    ),
    "Cohere2MoeForCausalLM": ("hf:Cohere2MoeConfig", {"num_shared_experts": 1}),
    "Ernie4_5_ForCausalLM": ("Ernie4_5Config", {}),
    "Ernie4_5ForCausalLM": ("Ernie4_5Config", {}),
    "DeepseekV2ForCausalLM": (
        "",
        _KIMI_TEXT
        | {
            "model_type": "deepseek_v2",
            "topk_method": "group_limited_greedy",
            "scoring_func": "softmax",
        },
    ),
    "PhiForCausalLM": ("PhiConfig", {"num_attention_heads": 32, "num_key_value_heads": None}),
    "SolarForCausalLM": (
        "",
        _LLAMA
        | {
            "model_type": "solar",
            "bskcn_1": [0],
            "bskcn_2": [],
            "bskcn_3": [1],
            "bskcn_4": [],
            "bskcn_tv": [0.9, 0.8],
        },
    ),
    "MiniMaxDFlash2DraftModel": (
        "",
        _QWEN3 | _SELECTOR | {"model_type": "minimax_dflash2", "rope_theta": 10000.0},
    ),
    "K2HorizonForCausalLM": (
        "K2HorizonConfig",
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "num_hidden_layers": 2,
            "mlp_only_layers": [0, 1],
        },
    ),
    "DbrxForCausalLM": ("DbrxConfig", {"ffn_config.moe_normalize_expert_weights": 1.0}),
    "PixtralForConditionalGeneration": (
        "LlavaConfig",
        {
            "text_config": _LLAMA,
            "vision_config": {
                "hidden_size": 256,
                "intermediate_size": 512,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 256,
                "patch_size": 16,
                "num_channels": 3,
                "rope_theta": 10000.0,
                "image_token_id": 10,
                "model_type": "pixtral",
            },
        },
    ),
    "InternS1ForConditionalGeneration": ("InternVLConfig", {"text_config": _QWEN3}),
    "DeciLMForCausalLM": (
        "",
        _LLAMA
        | {
            "model_type": "nemotron-nas",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "block_configs": [
                {
                    "attention": {"n_heads_in_group": 4, "no_op": False},
                    "ffn": {"ffn_mult": 2.625, "no_op": False},
                }
            ]
            * 2,
        },
    ),
    "Glm4MoeLiteForCausalLM": (
        "Glm4MoeLiteConfig",
        {
            "first_k_dense_replace": 1,
            "num_hidden_layers": 4,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        },
    ),
    "GraniteMoeSharedForCausalLM": ("GraniteMoeSharedConfig", {"shared_intermediate_size": 768}),
    "GraniteMoeSWAForCausalLM": ("GraniteMoeSWAConfig", {"shared_intermediate_size": 768}),
    "GraniteMoeHybridForCausalLM": (
        "GraniteMoeHybridConfig",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 768},
    ),
    "MiniMaxM3SparseForConditionalGeneration": (
        "hf:MiniMaxM3VLConfig",
        {
            "vision_config": _CLIP
            | {
                "hidden_act": "gelu",
                "num_channels": 3,
                "img_token_compression_config": {
                    "image_token_compression_method": "patch_merge",
                    "spatial_merge_size": 2,
                    "temporal_patch_size": 2,
                },
                "position_embedding_type": "rope",
                "rope_mode": "3d",
                "rope_theta": 10000.0,
                "vision_segment_max_frames": 4,
            }
        },
    ),
    "MiniMaxM2ForCausalLM": (
        "MiniMaxM2Config",
        {"qk_norm_type": "per_layer", "use_qk_norm": True, "rotary_dim": 64},
    ),
}
TABLE |= MORE | PARTS
