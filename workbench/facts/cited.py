"""The lines of an engine's source that answers cite, by what they show; where they are, the data says."""

from __future__ import annotations

from workbench.facts.harvest.sources import Anchor

EAGLE3 = "models/llama_eagle3.py"
MLA = "models/kimi_k25_eagle3.py"
DEEPSEEK = "models/deepseek_v2.py"
DEEPSEEK_LOADER = "deepseek_common/deepseek_weight_loader.py"
KIMI = "models/kimi_k25.py"
LINEAR = "layers/linear.py"
_LOAD = r"^    def load_weights\("


def _of(file: str, *rows: tuple[str, str] | tuple[str, str, str]) -> tuple[Anchor, ...]:
    return tuple(Anchor(row[0], file, *row[1:]) for row in rows)


ANCHORS: tuple[Anchor, ...] = (
    *_of(
        EAGLE3,
        ("load_weights", _LOAD),
        ("legacy", r"^ +legacy_name_map = "),
        ("d2t", r"^ +self\.hot_token_id = loaded_weight \+"),
        ("t2d", r"^ +if .*[\"']t2d[\"'] (?:not )?in name"),
        ("name", r"^ +(?:param_name = name if name in params_dict|new_name = )"),
        ("borrows_head", r"^ +self\.load_lm_head_from_target = "),
        ("layers", r"^ +(?:if self\.config\.num_hidden_layers != 1|self\.layers = nn\.ModuleList)"),
        (
            "later_layer",
            r"^ +hidden_states, residual = self\.hidden_norm\(hidden_states, residual\)",
        ),
        ("fc", r"^ +self\.fc = torch\.nn\.Linear\("),
        ("aux", r"^ +self\.num_aux_hidden_states = "),
        ("input_norm", r"^ +self\.norm_before_fc = "),
        ("fc_norm", r"^ +use_fc_norm = "),
        ("tied", r"^ +if self\.config\.tie_word_embeddings"),
        ("draft_vocab", r"^ +(?:if config\.draft_vocab_size is None|config\.draft_vocab_size,)"),
        ("target_hidden_size", r"^ +if hasattr\(config, \"target_hidden_size\"\)"),
    ),
    *(
        anchor
        for name in ("llama", "qwen2")
        for anchor in _of(
            f"models/{name}_eagle.py",
            ("load_weights", _LOAD),
            ("fc", r"^ +self\.fc = torch\.nn\.Linear\("),
        )
    ),
    *_of(
        MLA,
        ("load_weights", _LOAD),
        ("d2t", r"^ +if name == \"d2t\""),
        ("t2d", r"^ +if name == \"t2d\""),
        ("rename", r"^ +mapped_name = re\.sub\(r\"\^layers"),
        ("name", r"^ +if mapped_name not in params_dict"),
        ("joint", r"^ +cached_a_proj\[mapped_name\] = "),
        ("warning", r"^ +logger\.warning\(\"Eagle3 MLA: skipping"),
        ("layers", r"^ +if config\.num_hidden_layers != 1"),
        ("aux", r"^def _get_eagle_aux_layer_count"),
        ("fc_norm", r"^ +self\.fc_norm = nn\.ModuleList"),
        ("draft_vocab", r"^ +if draft_vocab_size is None"),
        ("q_lora_rank", r"^ +if attn\.q_lora_rank is None"),
        ("set_embed", r"^    def set_embed\("),
    ),
    *_of(
        "models/llama.py",
        ("load_weights", r"^    def (?:_legacy_)?load_weights\(", r"^class LlamaForCausalLM\b"),
    ),
    *_of(
        "models/qwen2.py",
        ("load_weights", r"^    def (?:_legacy_)?load_weights\(", r"^class Qwen2ForCausalLM\b"),
    ),
    *_of(
        "models/qwen3.py",
        ("load_weights", r"^    def (?:_legacy_)?load_weights\(", r"^class Qwen3ForCausalLM\b"),
    ),
    *_of(DEEPSEEK, ("load_weights", _LOAD, r"^class DeepseekV2ForCausalLM\b")),
    *_of(DEEPSEEK_LOADER, ("load_weights", r"^    def do_load_weights\(")),
    *_of(KIMI, ("load_weights", _LOAD)),
    *_of(
        LINEAR,
        ("qkv", r"^    def weight_loader\(", r"^class QKVParallelLinear\b"),
        ("merged", r"^    def weight_loader\(", r"^class MergedColumnParallelLinear\b"),
        ("row", r"^    def weight_loader\(", r"^class RowParallelLinear\b"),
    ),
    *_of("layers/vocab_parallel_embedding.py", ("weight_loader", r"^    def weight_loader\(")),
    *_of("model_loader/weight_utils.py", ("default", r"^def default_weight_loader\(")),
    *(
        Anchor("AutoConfig", file, r"^ +(?:return|config = ) ?AutoConfig\.from_pretrained\(")
        for file in (
            "srt/hf_transformers_utils.py",
            "utils/hf_transformers_utils.py",
            "hf_transformers/common.py",
            "hf_transformers/config.py",
        )
    ),
    *(
        Anchor(name, file, rf"^ +self\.draft_\w+\.model\.{name}\(")
        for file in ("speculative/eagle_worker.py", "speculative/eagle_worker_v2.py")
        for name in ("set_embed", "set_embed_and_head")
    ),
    *_of("configs/model_config.py", ("draft class", r"^    def _config_draft_model\(")),
    *_of("srt/server_args.py", ("add_cli_args", r"^    def add_cli_args\(")),
)
