"""Values of config.json that an engine stumbles over before it builds anything.

An engine reads config.json through transformers' AutoConfig. From 5.6 on (5.3 does not yet) its config
classes check the type of every field (`huggingface_hub.dataclasses.strict`); before, a wrong value goes in,
and something later trips over it or does not. What is sure to be refused raises `Refused`; what was not seen
to be, or differs between releases, raises `NotCovered`: nobody can tell, which is no all-clear.

The verdicts were compared with the real loaders of SGLang 0.5.8, 0.5.11, 0.5.14 and 0.5.23
(tests/engines/test_conformance.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.facts.model_types import FIRST_SEEN, OF_SGLANG
from workbench.facts.rows import has
from workbench.loaders.profile import NotCovered, Refused

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

# Field -> what its type may be, by transformers' config class; `?` allows null.
_COMMON = """
    vocab_size int              hidden_size int             num_hidden_layers int
    intermediate_size int       num_attention_heads int     num_key_value_heads int?
    max_position_embeddings int hidden_act text             initializer_range float
    rms_norm_eps float          use_cache flag              tie_word_embeddings flag
    attention_dropout number?   pad_token_id int?           bos_token_id int?
    eos_token_id ints?
"""
_DEEPSEEK = """
    attention_bias flag         pretraining_tp int?         kv_lora_rank int
    q_lora_rank int?            n_routed_experts int        n_shared_experts int
    moe_intermediate_size int   qk_rope_head_dim int        qk_nope_head_dim int
    routed_scaling_factor float norm_topk_prob flag?        n_group int?
    topk_group int?             num_experts_per_tok int?
"""
_OWN = {
    "llama": "attention_bias flag mlp_bias flag pretraining_tp int? head_dim int?",
    "mistral": "num_key_value_heads int head_dim int? sliding_window int? attention_dropout number",
    "qwen2": "use_sliding_window flag sliding_window int? max_window_layers int "
    "layer_types texts? attention_dropout number",
    "qwen3": "use_sliding_window flag sliding_window int? max_window_layers int "
    "layer_types texts? attention_dropout number attention_bias flag head_dim int",
    "deepseek_v2": _DEEPSEEK + "mlp_bias flag v_head_dim int first_k_dense_replace int",
    "deepseek_v3": _DEEPSEEK + "v_head_dim int? first_k_dense_replace int? rope_interleave flag?",
}
# Fields of every config class; 5.19 does not check them any more.
_BASE = """
    transformers_version text?  output_hidden_states flag?  return_dict flag?
    chunk_size_feed_forward int is_encoder_decoder flag
"""


def _table(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


FIELDS: Mapping[str, Mapping[str, str]] = {
    kind: _table(_COMMON + own) for kind, own in _OWN.items()
}
BASE_FIELDS = _table(_BASE)
# Read by models, tokenizers and loaders alike, so that a wrong type cannot go well for long.
_SIZES = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "kv_lora_rank",
    "q_lora_rank",
    "n_routed_experts",
    "moe_intermediate_size",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "v_head_dim",
]
# No loader and no forward pass of an engine reads these.
_IDLE = [
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "pretraining_tp",
    "pad_token_id",
    "bos_token_id",
]
# Read as the length of the context, where they are there: int(value).
_LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length")
_FLOATS = ("float16", "half", "bfloat16", "float32", "float", "float64", "double")
_PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
# rope_type -> the fields it cannot do without.
ROPE: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": ("short_factor", "long_factor"),
    "proportional": (),
    "deepseek_yarn": ("factor",),
    "mrope": (),
}
AUTO = "transformers/models/auto/configuration_auto.py from_pretrained"
STRICT = "transformers/configuration_utils.py @strict"
DTYPE = "transformers/configuration_utils.py: getattr(torch, dtype)"
ROPE_PLACE = "transformers/modeling_rope_utils.py validate_rope, and the engine's get_rope"


@dataclasses.dataclass(frozen=True)
class Rules:
    """How one engine reads config.json over a range of its releases.

    Attributes
    ----------
    transformers
        The oldest transformers of the range, as listed in `model_types`.
    strict
        Its config classes check the types of their fields; `base` says whether those of every class too, None
        that some do.
    sure
        Refusals were seen; otherwise all is "cannot tell".
    only_silu
        The model classes take no other activation.
    sglang
        The config classes of SGLang are known too.
    rope
        Verdicts on the rotary embedding were seen.
    place
        Where the engine reads the config.
    release
        The release of SGLang, where its own model types are those that its wheel registers.
    """

    transformers: str = "4.57.1"
    strict: bool = False
    base: bool | None = False
    sure: bool = True
    only_silu: bool = False
    sglang: bool = False
    rope: bool = True
    place: str = AUTO
    release: str = ""

    def registers(self, model_type: str) -> bool | None:
        """Tell whether the engine has a config class of its own for a type; None where that is not known."""
        if not self.sglang:
            return False
        if self.release and has("sglang", "model type", model_type, self.release):
            return True
        listed = model_type in OF_SGLANG
        return None if listed and self.release else listed


# An engine that takes whatever transformers is installed: what is wrong for any release is "cannot tell".
ANY = Rules("5.19.0", sure=False)


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong with a config; `certain` that the engine refuses it."""

    text: str
    certain: bool
    place: str = ""


def check(config: Config, rules: Rules) -> None:
    """Refuse a config whose values the engine refuses.

    Raises
    ------
    Refused
        The engine is certain to refuse it.
    NotCovered
        A value is not of the kind that it should be, and what the engine makes of it is not known.
    """
    if config.layout in ("none", "speculators"):
        return  # the profiles themselves have something to say of these
    found = sorted(problems(config, rules), key=lambda p: not p.certain)
    if not found:
        return
    first = found[0]
    kind = Refused if first.certain and rules.sure else NotCovered
    raise kind(first.text, first.place or rules.place)


def problems(config: Config, rules: Rules) -> Iterator[Problem]:
    """Yield all that is wrong with a config's values."""
    yield from _file(config)
    yield from _model_type(config, rules)
    yield from _architectures(config, rules)
    yield from _shape_of_tables(config)
    if config.layout == "multimodal":
        return  # the classes of the parts are not described
    yield from _dtype(config.text)
    yield from _fields(config, rules)
    yield from _relations(config, rules)
    yield from _rope(config, rules)


def _file(config: Config) -> Iterator[Problem]:
    if "bom" in config.quirks:
        yield Problem(
            "config.json begins with a UTF-8 byte order mark: OSError, not a valid JSON file. "
            "Save it without one",
            True,
            "transformers/configuration_utils.py _get_config_dict",
        )


def _model_type(config: Config, rules: Rules) -> Iterator[Problem]:
    named = config.raw.get("model_type")
    auto = config.raw.get("auto_map")
    if isinstance(auto, dict) and "AutoConfig" in auto:
        return  # with --trust-remote-code the type is the checkpoint's own
    if named is None or named == "":
        return  # said by the profiles
    if not isinstance(named, str):
        yield Problem(f"model_type is {_show(named)}, not text: ValueError", True, AUTO)
        return
    own = rules.registers(named)
    if own:
        return
    seen = FIRST_SEEN.get(named)
    if seen is not None and _release(seen) <= _release(rules.transformers):
        return
    if own is None:
        said = f"model_type {named!r} is of another release of SGLang than {rules.release}"
        yield Problem(said, False, AUTO)
    elif seen is None:
        yield Problem(
            f"model_type is {named!r}: ValueError, transformers does not recognize this architecture",
            rules.transformers != "",
            AUTO,
        )
    else:
        yield Problem(f"model_type {named!r} is known from transformers {seen} on", False, AUTO)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _architectures(config: Config, rules: Rules) -> Iterator[Problem]:
    named = config.raw.get("architectures")
    if named is None and rules.sglang and "architectures" in config.raw:
        yield Problem("architectures is null: TypeError", True)
    if named is None or (isinstance(named, list) and all(isinstance(n, str) for n in named)):
        return
    if isinstance(named, str):
        said = f"architectures is the text {_show(named)}, not a list"
        yield Problem(said, rules.strict and rules.base is True, STRICT)
        return
    first = named[0] if isinstance(named, list) and named else None
    yield Problem(
        f"architectures is {_show(named)}, not a list of names", not isinstance(first, str)
    )


def _shape_of_tables(config: Config) -> Iterator[Problem]:
    """Check fields that hold a table, in every model type."""
    for name in ("quantization_config", "auto_map", "id2label"):
        for holder in (config.raw, config.text):
            value = holder.get(name)
            if value is not None and not isinstance(value, dict):
                yield Problem(f"{name} is {_show(value)}, not an object", True)
                break
    if config.raw.get("quantization_config") == {}:
        yield Problem("quantization_config is empty: ValueError, no quantisation method", True)
    for name, kind in (("label2id", dict), ("pruned_heads", dict)):
        value = config.raw.get(name)
        if value is not None and not isinstance(value, kind):
            yield Problem(f"{name} is {_show(value)}, not an object", False)


def _dtype(text: Mapping[str, Any]) -> Iterator[Problem]:
    name = "dtype" if text.get("dtype") is not None else "torch_dtype"
    value = text.get(name)
    if value is None or (isinstance(value, str) and value in _FLOATS):
        return
    known = isinstance(value, str) and value.startswith("float8")
    yield Problem(
        f"{name} is {_show(value)}, which is not a floating-point type of torch",
        not known and not isinstance(value, dict),
        DTYPE,
    )


def _fields(config: Config, rules: Rules) -> Iterator[Problem]:
    """Check types against the table of the config's class."""
    own = FIELDS.get(config.model_type)
    table = dict(own or _table(_COMMON))
    yield from _base_fields(config.raw, rules)
    for name, kind in table.items():
        if name not in config.text or fits(config.text[name], kind):
            continue
        value = config.text[name]
        said = f"{name} is {_show(value)}, not {_WORDS[kind.rstrip('?')]}"
        if rules.strict:
            yield Problem(said, own is not None, STRICT)
        elif name not in _IDLE and not _passes(name, value, kind):
            hard = value is None or isinstance(value, str | list | dict)
            yield Problem(said, name in _SIZES and hard and own is not None)
    for name in _LENGTHS:
        if name in config.text and not fits(config.text[name], "number?"):
            yield Problem(f"{name} is {_show(config.text[name])}, not a number", True)
    for name in ("partial_rotary_factor", "num_labels"):
        if name in config.text and not fits(config.text[name], "number?"):
            mla = config.model_type.startswith("deepseek") or config.model_type == "qwen3"
            yield Problem(f"{name} is {_show(config.text[name])}, not a number", not mla)
    if rules.only_silu and config.text.get("hidden_act", "silu") != "silu":
        said = (
            f"hidden_act is {_show(config.text['hidden_act'])}: ValueError, only silu is supported"
        )
        yield Problem(said, True, "the model's MLP class")


def _base_fields(values: Mapping[str, Any], rules: Rules) -> Iterator[Problem]:
    if values.get("problem_type") not in (None, *_PROBLEMS) and rules.base is not False:
        said = f"problem_type is {_show(values['problem_type'])}"
        yield Problem(said, rules.base is True, STRICT)
    elif values.get("problem_type") not in (None, *_PROBLEMS) and not rules.strict:
        yield Problem(f"problem_type is {_show(values['problem_type'])}: ValueError", True)
    if not rules.strict or rules.base is False:
        return
    for name, kind in BASE_FIELDS.items():
        if name in values and not fits(values[name], kind):
            said = f"{name} is {_show(values[name])}, not {_WORDS[kind.rstrip('?')]}"
            yield Problem(said, rules.base is True, STRICT)


def _passes(name: str, value: Any, kind: str) -> bool:
    """Tell whether a value of another type does the same without checks: 0 for false, 1 for 1.0."""
    if kind == "flag":
        return value is None or value in (0, 1)
    if kind == "float":
        return fits(value, "number")
    return False


def _relations(config: Config, rules: Rules) -> Iterator[Problem]:
    """Check numbers against each other."""
    text, mla = config.text, config.model_type.startswith("deepseek")
    if rules.strict and not fits(text.get("head_dim"), "int?"):
        yield Problem(f"head_dim is {_show(text['head_dim'])}, not a whole number", not mla)
    hidden, heads = _int(text, "hidden_size"), _int(text, "num_attention_heads")
    if heads is not None and heads < 1:
        yield Problem(f"num_attention_heads is {heads}", config.model_type == "llama")
    elif hidden is not None and heads and hidden % heads:
        said = f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}: ValueError"
        if config.model_type in ("llama", "deepseek_v2") and rules.strict:
            yield Problem(said, True, f"{STRICT} validate_architecture")
        elif config.text.get("head_dim") is None and not mla:
            yield Problem(said, False)
    groups = _int(text, "num_key_value_heads")
    if groups is not None and groups < 1:
        # A small negative number is taken for one head.
        yield Problem(f"num_key_value_heads is {groups}", groups == 0 and not mla)
    length = _int(text, "max_position_embeddings")
    if length is not None and length < 0:
        yield Problem(f"max_position_embeddings is {length}", not mla)
    spread = text.get("initializer_range")
    if rules.strict and isinstance(spread, float) and not 0 <= spread <= 1:
        yield Problem(f"initializer_range is {spread}", False)
    width = _int(text, "head_dim")
    if rules.strict and width is not None and width % 2:
        yield Problem(f"head_dim is {width}: an odd number cannot be rotated", False, ROPE_PLACE)
    yield from _layer_types(text, rules)


def _layer_types(text: Mapping[str, Any], rules: Rules) -> Iterator[Problem]:
    types, layers = text.get("layer_types"), _int(text, "num_hidden_layers")
    if types is None:
        return
    if not isinstance(types, list):
        yield Problem(f"layer_types is {_show(types)}, not a list", rules.strict, STRICT)
    elif layers is not None and len(types) != layers:
        said = f"layer_types names {len(types)} layers, num_hidden_layers is {layers}"
        yield Problem(said, rules.strict, f"{STRICT} validate_layer_type")
    elif not all(str(t) in ("full_attention", "sliding_attention") for t in types):
        yield Problem(f"layer_types holds {_show(types)}", False, STRICT)


def _int(text: Mapping[str, Any], name: str) -> int | None:
    value = text.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rope(config: Config, rules: Rules) -> Iterator[Problem]:
    """Check the rotary embedding: rope_parameters since transformers 5, rope_scaling before."""
    text, five = config.text, not rules.transformers.startswith("4")
    sure = rules.rope and (rules.strict or not five)
    scaling, table = text.get("rope_scaling"), text.get("rope_parameters")
    if table is not None and not isinstance(table, dict):
        # Not read before 5.0; in 5.3 as loosely as all the rest.
        said = f"rope_parameters is {_show(table)}, not an object"
        yield Problem(said, rules.strict, STRICT)
        return
    if not five and table:
        yield from (*_theta(table, text, False), *_rope_type(table, False))
    table = (scaling or table or {}) if five else scaling
    if table is None:
        table = {}
    elif not isinstance(table, dict):
        name = "rope_scaling" if scaling else "rope_parameters"
        yield Problem(f"{name} is {_show(table)}, not an object", sure, ROPE_PLACE)
        return
    elif table and all(isinstance(value, dict) for value in table.values()):
        return  # one for each type of layer, not described
    elif not five and table.get("rope_type", table.get("type")) is None:
        yield Problem("rope_scaling has no rope_type: KeyError", True, ROPE_PLACE)
        return
    yield from _theta(table if five else {}, text, sure)
    # Latent attention takes every table for one of deepseek_yarn, whatever it says.
    yield from _rope_type(table, sure and not config.model_type.startswith("deepseek"))


def _theta(table: Mapping[str, Any], text: Mapping[str, Any], sure: bool) -> Iterator[Problem]:
    theta = table.get("rope_theta", text.get("rope_theta", 1.0))
    if isinstance(theta, bool) or (fits(theta, "number") and theta <= 0):
        yield Problem(f"rope_theta is {_show(theta)}", False, ROPE_PLACE)
    elif not fits(theta, "number"):
        yield Problem(f"rope_theta is {_show(theta)}, not a number", sure, ROPE_PLACE)


def _rope_type(table: Mapping[str, Any], sure: bool) -> Iterator[Problem]:
    kind = table.get("rope_type", table.get("type", "default"))
    if not isinstance(kind, str) or kind not in ROPE:
        yield Problem(f"rope_type is {_show(kind)}, which is not known", sure, ROPE_PLACE)
        return
    if kind == "mrope":
        yield Problem("rope_type mrope in a text-only model", False, ROPE_PLACE)
    for name in ROPE[kind]:
        if name not in table:
            known = sure and kind != "deepseek_yarn"
            yield Problem(f"rope_type {kind} without {name}: KeyError", known, ROPE_PLACE)
    for name in ("factor", "low_freq_factor", "high_freq_factor"):
        if name in table and not fits(table[name], "number"):
            yield Problem(f"rope {name} is {_show(table[name])}, not a number", sure, ROPE_PLACE)


_WORDS = {
    "int": "a whole number",
    "ints": "a whole number or a list of them",
    "float": "a number with a point",
    "number": "a number",
    "flag": "true or false",
    "text": "text",
    "texts": "a list of texts",
}


def fits(value: Any, kind: str) -> bool:
    """Tell whether a value of JSON is of a kind, as strict dataclasses take it.

    Booleans are no numbers, and a whole number is none with a point.
    """
    if value is None:
        return kind.endswith("?")
    kind = kind.rstrip("?")
    if kind == "ints":
        return fits(value, "int") or (
            isinstance(value, list) and all(fits(v, "int") for v in value)
        )
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if kind == "flag" or isinstance(value, bool):
        return kind == "flag" and isinstance(value, bool)
    wanted: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (float,),
        "number": (int, float),
        "text": (str,),
    }
    return isinstance(value, wanted[kind])


def _show(value: Any) -> str:
    """Return a value for a sentence, shortened."""
    text = {True: "true", False: "false", None: "null"}.get(value) if _simple(value) else None
    text = text or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _simple(value: Any) -> bool:
    return value is None or isinstance(value, bool)
