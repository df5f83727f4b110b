"""Which config to try for a class: by hand, by the class of that name, by annotation, by a similar name."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from .more_sources import ABSENT, SMALL
from .sources import TABLE

Json = dict[str, Any]

# A pattern of an attribute that a class asks for and its config lacks -> what to give it.
GUESSES: tuple[tuple[str, Any], ...] = (
    (r"^num_aux_hidden_states$", 3),
    (r"^target_hidden_size$", 1024),
    (r"^topk_method$", "noaux_tc"),
    (r"^full_attention_interval$", 4),
    (r"^scoring_func$", "sigmoid"),
    (r"^position_embedding_type$", "absolute"),
    (r"^hidden_size$|^n_embd$|^d_model$", 1024),
    (r"^intermediate_size$|^ffn_hidden_size$|^n_inner$", 2048),
    (r"^vocab_size$|^padded_vocab_size$|^draft_vocab_size$", 4096),
    (r"moe_intermediate_size|shared_expert_intermediate_size", 512),
    (r"^(num_hidden_layers|n_layers?|num_layers)$", 2),
    (r"num_(local_|routed_)?experts$|n_routed_experts|moe_num_experts", 4),
    (r"experts_per_tok|moe_top_?k|^top_?k|moe_k$", 2),
    (r"n_shared_experts|num_shared_experts|n_group|topk_group", 1),
    (r"num_key_value_heads|num_kv_heads|multi_query_group_num|n_kv_heads", 4),
    (r"num_attention_heads|n_heads?|num_heads", 8),
    (r"head_dim$|kv_channels|head_size", 128),
    (r"max_position|seq_length|max_seq|seq_len|context_length|n_positions", 4096),
    (r"eps(ilon)?$", 1e-6),
    (r"rope_theta|rotary_emb_base|rotary_base", 10000.0),
    (r"rope_scaling|quantization_config", None),
    (r"hidden_act|activation", "silu"),
    (r"torch_dtype|^dtype$", "bfloat16"),
    (r"rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}),
    (r"num_nextn_predict_layers|num_mtp_layers|mtp_num", 1),
    (
        r"rope_ratio|rope_pct|rotary_pct|partial_rotary|multiplier|^scale|scaling|alpha|factor|"
        r"dim_model_base|scale_depth|scale_emb",
        1.0,
    ),
    (r"sliding_window|layer_types", None),
    (
        r"bias|use_|tie_|is_|has_|norm$|add_|apply_|parallel|enable|multi_query|interleaved|"
        r"post_layer|fp32|_only|drop",
        False,
    ),
    (r"token_id|_id$|offset|interval|freq|step|first_k_dense", 1),
    (r"q_lora_rank|kv_lora_rank", 512),
    (r"qk_nope_head_dim|v_head_dim", 128),
    (r"qk_rope_head_dim", 64),
    (r"layers?_ids?$|_layers$|target_layer", [0, 1]),
)
GENERIC: Json = {
    "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 4096, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 10000.0,
}  # fmt: skip
LAYERS = [
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "depth",
    "encoder_layers",
    "decoder_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "num_layer",
]
EXPERTS = [
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_routed_experts",
    "n_experts",
    "num_moe_experts",
]
# Lists that number layers of another model: only how many they are counts.
COUNTED = re.compile(r"(target|aux|hidden)\w*_layer_ids$|aux_hidden_state_layers$")
_TOP = [
    "num_experts_per_tok",
    "moe_topk",
    "moe_top_k",
    "top_k",
    "num_experts_per_token",
    "moe_k",
    "num_selected_experts",
    "top_k_experts",
]
_GROUPS = ["n_group", "topk_group", "num_expert_group", "moe_n_group"]
_LISTS = ("layer_types", "layers_block_type", "block_types")
_SUFFIX = re.compile(
    r"(ForCausalLM|ForConditionalGeneration|ForSequenceClassification|ForTokenClassification|"
    r"ForRewardModel|Model|LMHeadModel|MTP|NextN|Eagle3|Eagle|EAGLE|ForProcessRewardModel|"
    r"ForEmbedding|DFlash|ForMaskedLM|Draft)+$"
)


def guess(name: str) -> Any:
    """Return a value for an attribute by its name, None where nothing fits."""
    for pattern, value in GUESSES:
        if re.search(pattern, name):
            return copy.deepcopy(value)
    return None


class Whole:
    """In place of a config class: the table has the whole config.json."""


class Configs:
    """Every config class of transformers and of SGLang by name, SGLang's first; imported when asked for."""

    def __init__(self) -> None:
        from transformers import PretrainedConfig
        from transformers.models.auto import configuration_auto

        auto: Any = configuration_auto

        self._kinds = {name: kind for kind, name in auto.CONFIG_MAPPING_NAMES.items()}
        self._mapping = auto.CONFIG_MAPPING
        self._own: dict[str, Any] = {}
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("sglang.srt."):
                for name, cls in list(vars(module).items()):
                    own = isinstance(cls, type) and issubclass(cls, PretrainedConfig)
                    if own and cls.__module__.startswith("sglang"):
                        self._own[name] = cls

    def get(self, name: str) -> Any:
        """Return the class of that name, None where there is none."""
        if name in self._own:
            return self._own[name]
        with contextlib.suppress(Exception):
            return self._mapping[self._kinds[name]]
        return None

    def names(self) -> list[str]:
        """Return all names."""
        return [*self._own, *(name for name in self._kinds if name not in self._own)]


def candidates(cls: Any, configs: Configs) -> Iterator[tuple[str, Any, Json]]:
    """Yield where a config comes from, its class (None: the generic one) and fields to set, best first."""
    seen: set[Any] = set()
    for source, config, more in _candidates(cls, configs):
        if config is not None and (config not in seen or source == "table"):
            seen.add(config)
            yield source, config, more
    yield "generic", None, {}


def _candidates(cls: Any, configs: Configs) -> Iterator[tuple[str, Any, Json]]:
    import transformers

    name = cls.__name__
    if name in TABLE and "model_type" in TABLE[name][1] and not TABLE[name][0]:
        yield "table", Whole, TABLE[name][1]
    elif name in TABLE:
        source, more = TABLE[name]
        theirs, _, plain = source.rpartition(
            ":"
        )  # "hf:" in front: transformers' class, not SGLang's
        cls_ = (None if theirs else configs.get(plain)) or getattr(transformers, plain, None)
        if more.get("num_hidden_layers") == 1:  # some releases take no more
            yield "table", cls_, more | {"num_hidden_layers": 2}
        yield "table", cls_, more
    own = None
    with contextlib.suppress(Exception):
        own = getattr(getattr(transformers, name, None), "config_class", None)
    if own is not None:
        yield "the class of that name", configs.get(own.__name__), {}
        yield "the class of that name", own, {}
    for base in cls.__mro__[:3]:
        with contextlib.suppress(Exception):
            kind = inspect.signature(base.__init__).parameters["config"].annotation
            kind = configs.get(kind.split(".")[-1]) if isinstance(kind, str) else kind
            if hasattr(kind, "to_dict") and kind.__name__.lower() != "pretrainedconfig":
                yield "annotation", kind, {}
    yield from (("a similar name", kind, {}) for kind in _similar(name, configs))


def _similar(name: str, configs: Configs) -> list[Any]:
    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    stem, best = plain(_SUFFIX.sub("", name)), []
    for other in configs.names():
        short = plain(re.sub(r"Config$", "", other))
        begins = stem.startswith(short) or short.startswith(stem)
        if short and begins and (short == stem or min(len(short), len(stem)) >= 4):
            best.append((abs(len(short) - len(stem)), other))
    return [configs.get(other) for _, other in sorted(best)[:3]]


def fields_of(cls: Any, config_class: Any, more: Json, distinct: bool = True) -> Json:
    """Return the fields of a small config of a class, as config.json would hold them."""
    from transformers import PretrainedConfig

    if config_class is Whole:
        return copy.deepcopy(more) | {"architectures": [cls.__name__]}
    config = PretrainedConfig(**GENERIC) if config_class is None else config_class()
    own = {k: v for k, v in vars(config).items() if not k.startswith("_")}
    own = {
        k: v for k, v in own.items() if v is None or isinstance(v, (bool, int, float, str, list))
    }
    raw: Json = json.loads(json.dumps(own | config.to_dict(), default=str))
    if config_class is None:
        raw |= GENERIC
    shrink(raw)
    for path, value in more.items():
        *parents, name = path.split(".")
        place = raw
        for parent in parents:
            place = place.setdefault(parent, {})
        if value == ABSENT:
            place.pop(name, None)
        else:
            place[name] = _given(value)
    if re.search("NextN|MTP", cls.__name__):
        for holder in (raw, raw.get("text_config")):
            if isinstance(holder, dict) and not holder.get("num_nextn_predict_layers"):
                holder["num_nextn_predict_layers"] = 1
    raw["architectures"] = [cls.__name__]
    raw.pop("quantization_config", None)
    for holder in (raw, raw.get("text_config")):  # sizes that are equal cannot be distinguished
        if isinstance(holder, dict) and distinct:
            heads, shared = holder.get("num_attention_heads"), holder.get("num_key_value_heads")
            if isinstance(heads, int) and heads == shared and heads % 4 == 0:
                holder["num_key_value_heads"] = heads // 4
    return raw


def _given(value: Any) -> Any:
    """Return what a row of the table gives; in place of the name of a config class a small config of it."""
    if not isinstance(value, str) or not value.startswith(SMALL):
        return copy.deepcopy(value)
    import transformers

    made = getattr(transformers, value.removeprefix(SMALL))()
    raw: Json = json.loads(json.dumps(made.to_dict(), default=str))
    shrink(raw)
    return raw


def shrink(raw: Json, experts: int = 4) -> None:
    """Cut layers and experts, in place; all else may have its real size on the meta device."""
    total = next((raw[k] for k in LAYERS if isinstance(raw.get(k), int)), None)
    least = _layers_needed(raw, total)
    if isinstance(raw.get("first_k_dense_replace"), int):
        raw["first_k_dense_replace"] = 1
        least = max(least, 4)  # one more dense layer must leave others
    for name in LAYERS:
        if isinstance(raw.get(name), int) and raw[name] > least:
            raw[name] = least
    for name, value in list(raw.items()):
        if COUNTED.search(name):
            continue  # layers of the target, of which this config has none
        if total and isinstance(value, list) and len(value) == total and total > least:
            raw[name] = value[:least]
        elif name == "per_layer_config" and isinstance(value, dict) and total:
            raw[name] = {a: b for a, b in value.items() if int(a) < least}
        elif name in EXPERTS and isinstance(value, int) and value > experts:
            raw[name] = experts
        elif isinstance(value, dict):
            shrink(value)
    have = next((raw[k] for k in EXPERTS if isinstance(raw.get(k), int)), None)
    if have:
        for name in _TOP:
            if isinstance(raw.get(name), int) and raw[name] > have:
                raw[name] = 2
        for name in _GROUPS:
            if isinstance(raw.get(name), int) and raw[name] > 1:
                raw[name] = 1


def _layers_needed(raw: Json, total: int | None) -> int:
    """Return the length of the shortest prefix that has every type of layer."""
    least = 2
    for name in _LISTS:
        kinds = raw.get(name)
        if isinstance(kinds, list) and kinds and total:
            wanted, n = set(map(str, kinds)), 0
            while n < len(kinds) and set(map(str, kinds[:n])) != wanted:
                n += 1
            least = max(least, min(n, 12))
            break
    pattern = raw.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        least = next((i for i in range(1, len(pattern) + 1) if set(pattern[:i]) == set(pattern)), 2)
        raw["hybrid_override_pattern"] = pattern[:least]
    if isinstance(raw.get("full_attention_interval"), int):
        least = max(least, raw["full_attention_interval"])
    return least
