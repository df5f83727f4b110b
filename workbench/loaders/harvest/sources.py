"""The maintained table of config sources: what neither the name of a class nor an annotation tells.

A row is a config class (``hf:`` in front takes transformers' own where SGLang has one of that name) with the
fields to set in it, by path; or "" with a whole small config.json, in which ``model_type`` is given.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_FLASH: Json = {
    "num_target_layers": 36,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 2]},
    "target_layer_ids": [1, 2],
}
_SPARK: Json = _FLASH | {
    "dflash_config": _FLASH["dflash_config"] | {"markov_rank": 64, "markov_head_type": "vanilla"},
    "markov_rank": 64,
    "markov_head_type": "vanilla",
}
_GELU: Json = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
_ABSOLUTE: Json = {"position_embedding_type": "absolute"}
_ONE: Json = {"num_hidden_layers": 1}
_FOURTH: Json = {
    "full_attention_interval": 4,
    "layer_types": [*["linear_attention"] * 3, "full_attention"],
    "num_hidden_layers": 4,
}
_STEP: Json = {
    "layer_types": ["full_attention", "sliding_attention"],
    "yarn_only_types": ["full_attention"],
    "moe_layers_enum": [1],
    "attention_other_setting": {
        "attention_type": "sliding_attention",
        "num_attention_heads": 64,
        "num_attention_groups": 8,
        "head_dim": 128,
    },
}
# Class -> config class, with fields to set: where neither name nor annotation tells.
TABLE: dict[str, tuple[str, Json]] = {
    "LlamaForCausalLMEagle3": ("LlamaConfig", {"draft_vocab_size": 4096} | _ONE),
    "LlamaForCausalLMEagle": ("LlamaConfig", _ONE),
    "Qwen2ForCausalLMEagle": ("Qwen2Config", _ONE),
    "Eagle3DeepseekV2ForCausalLM": ("DeepseekV3Config", {"draft_vocab_size": 4096} | _ONE),
    "DeepseekV3ForCausalLMNextN": ("DeepseekV3Config", {}),
    "DeepseekV32ForCausalLM": ("DeepseekV3Config", {}),
    "DeepseekForCausalLM": ("DeepseekV2Config", {}),
    "Glm4MoeForCausalLMNextN": ("Glm4MoeConfig", {}),
    "KimiK25ForConditionalGeneration": ("KimiK25Config", {}),
    "InternLM2ForCausalLM": ("LlamaConfig", {"bias": False}),
    "DFlashDraftModel": ("Qwen3Config", _FLASH),
    "DFlash2DraftModel": (
        "Qwen3Config",
        _FLASH | {"dflash_config": _FLASH["dflash_config"] | {"selector_rank": 64}},
    ),
    "DFlash2BeamDraftModel": (
        "Qwen3Config",
        _FLASH | {"dflash_config": _FLASH["dflash_config"] | {"selector_rank": 64}},
    ),
    "DFlashLagunaForCausalLM": ("LagunaConfig", _FLASH),
    "DSparkDraftModel": ("Qwen3Config", _SPARK),
    "Qwen3DSparkModel": ("Qwen3Config", _SPARK),
    "LiLiCorrDraftModel": ("Qwen3Config", _SPARK),
    "LingDSparkModel": ("Qwen3Config", _SPARK),
    "Lfm2DSparkDraftModel": ("Lfm2Config", _SPARK),
    "MistralLarge3ForCausalLM": ("DeepseekV3Config", {}),
    "MistralLarge3ForCausalLMEagle": ("DeepseekV3Config", _ONE),
    "Gemma2ForCausalLM": ("Gemma2Config", _GELU),
    "Gemma2ForSequenceClassification": ("Gemma2Config", _GELU),
    "Qwen3_5ForCausalLMMTP": ("Qwen3_5Config", {}),
    "Qwen3NextForCausalLM": ("hf:Qwen3NextConfig", _FOURTH),
    "Qwen3NextForCausalLMMTP": ("hf:Qwen3NextConfig", _FOURTH),
    "SarvamMLAForCausalLM": ("DeepseekV3Config", {}),
    "InternS1ForConditionalGeneration": ("InternVLConfig", {}),
    "InternS1ProForConditionalGeneration": ("Qwen3VLMoeConfig", {}),
    "MossVLForConditionalGeneration": ("Qwen3VLConfig", {}),
    "PixtralForConditionalGeneration": ("LlavaConfig", {}),
    "DeepseekV4ForCausalLM": ("DeepSeekV4Config", {}),
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
    "Qwen2VLForConditionalGeneration": (
        "Qwen2VLConfig",
        {"vision_config.in_channels": 3, "vision_config.in_chans": 3},
    ),
    "Ernie4_5_VLMoeForConditionalGeneration": (
        "Ernie4_5_VLMoeConfig",
        {"vision_config.in_channels": 3, "vision_config.in_chans": 3},
    ),
    "Step3p5ForCausalLM": ("Step3p5Config", _STEP),
    "Step3p5MTP": ("Step3p5Config", _STEP),
    "MiMoV2FlashForCausalLM": (
        "MiMoV2FlashConfig",
        {"hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1]},
    ),
    "MiMoV2ForCausalLM": (
        "MiMoV2FlashConfig",
        {"hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1]},
    ),
    "ExaoneMoeForCausalLM": ("ExaoneMoeConfig", {"is_moe_layer": [False, True]}),
    "ExaoneMoEForCausalLM": ("ExaoneMoeConfig", {"is_moe_layer": [False, True]}),
    "ExaoneMoEForCausalLMMTP": ("ExaoneMoeConfig", {"is_moe_layer": [False, True]}),
    "Lfm2MoeForCausalLM": ("Lfm2MoeConfig", {"layer_types": ["conv", "full_attention"]}),
    "DeepseekV2ForCausalLM": ("DeepseekV2Config", {"n_shared_experts": 2}),
    "K2HorizonForCausalLM": (
        "K2HorizonConfig",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    ),
    "BaichuanForCausalLM": ("LlamaConfig", {}),
    "BaiChuanForCausalLM": ("LlamaConfig", {}),
    "MiMoForCausalLM": ("Qwen2Config", {}),
    "MiMoMTP": ("Qwen2Config", {"num_nextn_predict_layers": 1}),
}
