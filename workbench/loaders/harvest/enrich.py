"""What a config may leave out: optional fields that a class asks for, and what an absent field counts as."""

from __future__ import annotations

import copy
import json
from typing import Any

from . import configs, fields, names
from .engine import Builder, holders

Json = dict[str, Any]
# Sizes that a class takes from its config where they are there, and else computes.
OPTIONAL = frozenset(
    [
        "head_dim",
        "v_head_dim",
        "draft_vocab_size",
        "target_hidden_size",
        "num_aux_hidden_states",
        "num_key_value_heads",
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
    ]
)


def enriched(builder: Builder, raw: Json) -> tuple[Json, Json, list[str]]:
    """Return the config with optional fields that the class asks for, their rules when absent, and the rest.

    A rule is ``["class", value]``, where the class itself says so, or ``["rule", name]`` of `fields.derived`.
    """
    added: Json = {}
    unknown: list[str] = []
    part = fields.text_part(raw)
    plain = _signature(builder, raw)
    pairs = aliases(builder, raw).items()
    other_names = {path.rpartition(".")[2] for path, _ in pairs}
    other_names |= {
        name.rpartition(".")[2] for path, name in pairs if fields.at(raw, path) is not None
    }
    # A list that is counted may stand at the top or in a part: both have not been tried together.
    asked = {n for n in builder.reads.names if configs.COUNTED.search(n)}
    unknown += sorted(n for n in asked if fields.at(raw, n) is None)
    for name in fields.absent(raw, builder.reads.names - other_names - asked):
        path, value = part + name, configs.guess(name)
        if isinstance(value, bool):
            rule = _flag(builder, raw, path, plain)
            value = rule[1] if rule else value
        elif name in OPTIONAL:
            rule = _number(builder, raw, path, value, plain)
        else:
            rule = None
        if rule is None:
            unknown.append(path)
        else:
            added[path] = rule
            raw = fields.changed(raw, path, value)
            plain = _signature(builder, raw)
    return raw, added, unknown


def is_flat_too(builder: Builder, raw: Json) -> bool:
    """Tell whether the text model's fields may lie at the top of config.json, as older files have them."""
    text = raw.get("text_config")
    if builder.config_class is not None or not isinstance(text, dict):
        return False
    top = {name: value for name, value in raw.items() if name != "text_config"}
    flat = {n: v for n, v in text.items() if not isinstance(v, dict)} | top
    return bool(_try(builder, flat) == _signature(builder, raw))


def _signature(builder: Builder, raw: Json) -> Any:
    return {name: tuple(p.shape) for name, p in builder.build(raw).named_parameters()}


def _try(builder: Builder, raw: Json) -> Any:
    try:
        return _signature(builder, raw)
    except Exception:
        return None


def _flag(builder: Builder, raw: Json, path: str, plain: Any) -> list[Any] | None:
    """Return what an absent switch counts as."""
    for value in (False, True):
        if _try(builder, fields.changed(raw, path, value)) == plain:
            return ["class", value]
    return None


def _number(builder: Builder, raw: Json, path: str, value: Any, plain: Any) -> list[Any] | None:
    """Return what an absent number counts as; the class must take the value given, too."""
    other = _try(builder, fields.changed(raw, path, value))
    if other is None:
        return None
    twice = value * 2 or 1
    more = _try(builder, fields.changed(raw, path, twice))
    if other == plain and more == plain:
        return ["class", None]  # it builds nothing
    if more != plain and _unmoved(builder, raw, path, twice):
        return None
    for name, derived in fields.derived(raw, path):
        if _try(builder, fields.changed(raw, path, derived)) == plain:
            return ["rule", name]
    if other == plain:
        return ["class", value]
    return None


def _unmoved(builder: Builder, raw: Json, path: str, value: Any) -> bool:
    """Tell whether transformers' own class saves the same with another number: files do not follow it."""
    name = builder.cls.__name__
    before = names.saved_by_transformers(name, builder.config(raw))
    after = names.saved_by_transformers(name, builder.config(fields.changed(raw, path, value)))
    return bool(before) and before == after


def defaults(builder: Builder, raw: Json, kinds: Json) -> Json:
    """Return what each field counts as where config.json lacks it, as the config class itself fills it."""
    if not builder.reads_like_a_server(raw):
        return {}
    found: Json = {}
    doubled = copy.deepcopy(raw)
    for path, value in fields.sizes(raw).items():
        if path.rpartition(".")[2] in ("hidden_size", "num_attention_heads", "vocab_size"):
            doubled = fields.changed(doubled, path, value * (2 if "heads" in path else 4))
    for path in kinds:
        seen = []
        for whole in (raw, doubled):
            given = fields.without(whole, path)
            value = _filled(builder, given, path)
            seen.append((value, {v: name for name, v in fields.derived(given, path)}))
        (one, rules), (other, more) = seen
        if one is _MISSING or other is _MISSING:
            continue
        if one == other and _plain(one):
            found[path] = ["is", one]
        elif isinstance(one, list) and (cycle := _cycle(builder, raw, path, one)):
            found[path] = ["cycle", cycle]
        elif (
            isinstance(one, int)
            and rules.get(one) is not None
            and rules.get(one) == more.get(other)
        ):
            found[path] = ["rule", rules[one]]
    return found


def _cycle(builder: Builder, raw: Json, path: str, short: list[Any]) -> list[Any]:
    """Return what a list of one entry a layer repeats when config.json lacks it; [] where it does not."""
    part = path.rpartition(".")[0]
    layers = f"{part}.num_hidden_layers" if part else "num_hidden_layers"
    count = fields.at(raw, layers)
    if not isinstance(count, int) or len(short) != count:
        return []
    more = fields.without(fields.changed(raw, layers, 5 * count + 1), path)
    long = _filled(builder, more, path)
    for size in range(1, count + 1):
        if isinstance(long, list) and long == [long[i % size] for i in range(5 * count + 1)]:
            return long[:size]
    return []


_MISSING = object()


def _filled(builder: Builder, raw: Json, path: str) -> Any:
    try:
        config: Any = json.loads(json.dumps(builder.config(raw).to_dict(), default=str))
    except Exception:
        return _MISSING
    for part in path.split("."):
        if not isinstance(config, dict) or part not in config:
            return _MISSING
        config = config[part]
    return config


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str)) or value == []


def aliases(builder: Builder, raw: Json) -> dict[str, str]:
    """Return other names that a config class has for fields: ``num_experts`` for ``num_local_experts``."""
    found: dict[str, str] = {}
    try:
        for path, holder in holders(builder.config(raw)):
            for other, name in (getattr(type(holder), "attribute_map", None) or {}).items():
                found[".".join((*path, other))] = ".".join((*path, name))
    except Exception:
        return found
    return found
