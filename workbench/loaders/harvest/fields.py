"""The fields of a config.json by their paths, and how each is tried: doubled, flipped, emptied."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from .configs import COUNTED, LAYERS, guess
from .expressions import named_numbers

Json = dict[str, Any]
# No class builds or loads anything by these.
IDLE = frozenset(
    [
        "transformers_version",
        "torch_dtype",
        "dtype",
        "name_or_path",
        "architectures",
        "_name_or_path",
        "auto_map",
        "use_cache",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "chunk_size_feed_forward",
        "is_decoder",
        "initializer_range",
        "problem_type",
        "id2label",
        "label2id",
        "tokenizer_class",
        "is_encoder_decoder",
        "cross_attention_hidden_size",
        "quantization_config",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
    ]
)
_TOKENS = re.compile(r"token_id$|token_index$|_tokens?$|^(bos|eos|pad)_id$")
# What SGLang asks every config for, in search of the text model's.
_ASKED = frozenset(
    [
        "language_config",
        "text_config",
        "llm_config",
        "thinker_config",
        "vision_config",
        "decoder",
        "generator",
        "layer_types",
        "mtp_layer_types",
        "encoder_only",
        "language_only",
        "language_model_only",
        "name_or_path",
        "num_labels",
        "audio_config",
        "is_heterogeneous",
        "sub_configs",
        "default_theta",
        "original_max_position_embeddings",
        "partial_rotary_factor",
        "final_logit_softcapping",
        "enable_lm_head_fp32",
        "enable_lm_head_output_fp32",
        "dual_chunk_attention_config",
        "quantization",
        "quant_method",
        "attribute_map",
    ]
)
_ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu", "relu2", "swish")
# How many layers come before the first with experts.
DENSE_BEFORE = ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
# Of one value in all models: an image has three colours.
CONSTANT = ("in_chans",)
_EMPTIED = [
    "q_lora_rank",
    "n_shared_experts",
    "num_shared_experts",
    "sliding_window",
    "head_dim",
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
]


def is_idle(path: str) -> bool:
    """Tell whether no class builds anything by a field, by its name."""
    name = path.rpartition(".")[2]
    return name in IDLE or "rope" in name or bool(_TOKENS.search(name))


def asks_type(cls: Any) -> bool:
    """Tell whether the modules of a class or of its parents mention ``model_type``: it may then decide."""
    modules = {base.__module__ for base in cls.__mro__ if ".models." in base.__module__}
    return any("model_type" in inspect.getsource(sys.modules[name]) for name in modules)


def absent(raw: Json, names: set[str]) -> list[str]:
    """Return the names that a class asks for and its config does not have."""
    have = {part for path, _ in leaves(raw) for part in path.split(".")}
    return sorted(n for n in names - have if n not in _ASKED and not is_idle(n))


def text_part(raw: Json) -> str:
    """Return the path, with a dot behind it, of the part of a config that describes the text model."""
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(raw.get(name), dict) and "hidden_size" in raw[name]:
            return name + "."
    return ""


def without(raw: Json, path: str) -> Json:
    """Return the config without a field."""
    new = copy.deepcopy(raw)
    *parents, name = path.split(".")
    place = new
    for parent in parents:
        place = place[parent]
    place.pop(name, None)
    return new


def derived(raw: Json, path: str) -> list[tuple[str, Any]]:
    """Return the rules by which configs fill a field that is absent, with what each says of this config."""
    part = path.rpartition(".")[0]
    holder: Any = at(raw, part) if part else raw
    get = holder.get if isinstance(holder, dict) else {}.get
    hidden, heads = get("hidden_size"), get("num_attention_heads")
    rules: list[tuple[str, Any]] = []
    if isinstance(hidden, int) and isinstance(heads, int) and heads:
        rules = [
            ("hidden_size//num_attention_heads", hidden // heads),
            ("num_attention_heads", heads),
        ]
        rules += [("hidden_size", hidden), ("4*hidden_size", 4 * hidden)]
    if isinstance(get("vocab_size"), int):
        rules.append(("vocab_size", get("vocab_size")))
    return rules


def leaves(raw: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each field that is no object."""
    for name, value in raw.items():
        if isinstance(value, dict) and value and not name.startswith("rope"):
            yield from leaves(value, (*path, name))
        else:
            yield ".".join((*path, name)), value


def at(raw: Json, path: str) -> Any:
    """Return a field by its path, None where there is none."""
    place: Any = raw
    for part in path.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place


def changed(raw: Json, path: str, value: Any) -> Json:
    """Return the config with another value at a path; lists of one entry a layer keep up with the layers."""
    new = copy.deepcopy(raw)
    *parents, name = path.split(".")
    place = new
    for parent in parents:
        place = place[parent]
    old = place.get(name)
    place[name] = value
    if name in LAYERS and isinstance(old, int) and isinstance(value, int) and old:
        more = place.get("num_nextn_predict_layers")
        more = more if isinstance(more, int) else 0
        for other, items in place.items():
            if COUNTED.search(other):
                continue
            if isinstance(items, list) and len(items) in (old, old + more):
                place[other] = [items[i % old] for i in range(value + len(items) - old)]
            elif isinstance(items, str) and other == "hybrid_override_pattern":
                place[other] = "".join(items[i % old] for i in range(value))
            elif isinstance(items, dict):
                _share_out(items, old, value)
    return new


def _share_out(part: Json, old: int, count: int) -> None:
    """Share more layers out to the lists of a part that name each layer once, as they do the old ones."""
    lists = {n: x for n, x in part.items() if n.endswith("layers") and named_numbers(x)}
    every = sorted(number for items in lists.values() for number in items)
    if len(lists) < 2 or every not in (list(range(old)), list(range(1, old + 1))):
        return
    last = every[0] + count
    for name, items in lists.items():
        more = [n + old * turn for turn in range(count // old + 1) for n in items]
        part[name] = [n for n in more if n < last]


def sizes(raw: Json) -> dict[str, Any]:
    """Return every field that is a number, by its path; of a list that is counted, ``#`` is the length."""
    found: dict[str, Any] = {}
    for path, value in leaves(raw):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[path] = value
        elif is_counted(path, value):
            found[f"{path}#"] = len(value)
    return found


def is_counted(path: str, value: Any) -> bool:
    """Tell whether a field is a list of which only the length counts."""
    return isinstance(value, list) and bool(value) and bool(COUNTED.search(path))


def lengthened(raw: Json, path: str, count: int) -> Json:
    """Return the config with so many entries in a list that is counted."""
    value = at(raw, path)
    return changed(raw, path, [*value, *range(value[-1] + 1, value[-1] + 1 + count)][:count])


def lists(raw: Json) -> dict[str, list[Any]]:
    """Return every field that is a list of plain values, by its path; a pattern of letters is one, too."""
    found: dict[str, list[Any]] = {}
    for path, value in leaves(raw):
        if isinstance(value, list) and value and not isinstance(value[0], (dict, list)):
            found[path] = value
        elif names_layers(path, value):
            found[path] = named_numbers(value) or []
        elif path.endswith("hybrid_override_pattern") and isinstance(value, str):
            found[path] = list(value)
    return found


def names_layers(path: str, value: Any) -> bool:
    """Tell whether a field is a text such as ``"3,4,5"``, of the layers' numbers."""
    return isinstance(value, str) and "layer" in path and named_numbers(value) is not None


def longer_list(value: list[Any] | str) -> list[Any] | str:
    """Return a list with one more entry."""
    if isinstance(value, str):
        return ",".join(map(str, longer_list(named_numbers(value) or [])))
    last = value[-1] if value else 0
    return [*value, last + 1 if isinstance(last, int) and not isinstance(last, bool) else last]


def is_read(path: str, names: set[str]) -> bool:
    """Tell whether a class asks for a field, by its last name."""
    return path.rpartition(".")[2] in names


_WIDE = ("hidden_size", "n_embd", "d_model", "embed_dim", "hidden_dim")
_HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads")


def splits(raw: Json) -> bool:
    """Tell whether every width is a multiple of the number of heads next to it: no part of a head is lost."""
    found = sizes(raw)
    for path, heads in found.items():
        part, _, name = path.rpartition(".")
        if name in _HEADS and isinstance(heads, int) and heads:
            wide = (found.get(f"{part}.{w}" if part else w) for w in _WIDE)
            if any(isinstance(w, int) and w % heads for w in wide):
                return False
    return True


def larger(path: str, value: Any, taken: frozenset[Any] = frozenset()) -> list[Any]:
    """Return values to try in place of a number, best first; last those that other fields have."""
    if value is None:
        known = guess(path.rpartition(".")[2])
        return [known] if isinstance(known, (bool, int, float)) else [64]
    if isinstance(value, float):
        return [value * 2]
    tries = [value * 2, value * 4, value * 3, value + 1] if value else [1, 2]
    return sorted(tries, key=lambda one: one in taken)  # what is equal cannot be distinguished


def others(path: str, value: Any) -> list[Any]:
    """Return other values of another kind to try: what might build another model."""
    name = path.rpartition(".")[2]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        if name in DENSE_BEFORE and value:
            return [0]
        if name in _EMPTIED:
            return [None, 0] if "shared" in name else [None]
        return []
    if isinstance(value, str) and value in _ACTIVATIONS:
        return [other for other in _ACTIVATIONS[:4] if other != value]
    return []


def different(path: str, value: Any) -> Any:
    """Return another value of the same kind for a field, the same one where none is known."""
    if isinstance(value, bool):
        return not value
    if value is None or isinstance(value, int | float):
        return larger(path, value)[0]
    if isinstance(value, list):
        return next(iter(other_lists(value)), value)
    return value


def other_lists(value: list[Any] | str) -> list[Any]:
    """Return other lists of the same length to try in place of one: shifted, or with other numbers."""
    if isinstance(value, str):
        return [",".join(map(str, x)) for x in other_lists(named_numbers(value) or [])]
    if not value:
        return [[0], [1]]
    if {repr(x) for x in value} == {"0", "1"}:  # a switch for each layer
        return [[*value[1:], value[0]]]
    if all(isinstance(x, int) and not isinstance(x, bool) for x in value):
        return [[x + 1 for x in value], [x * 2 + 1 for x in value]]
    return [[*value[1:], value[0]]] if len({repr(x) for x in value}) > 1 else []
