"""Names of tensors that a class may take: what transformers saves, and the loader's substitutions undone."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from .spellings import OTHER_FIELDS, SPELLINGS

NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")
Shape = tuple[int, ...]
Keys = dict[str, tuple[Shape, str]]  # name -> shape and dtype
Mapping = tuple[Any, ...]  # (parameter's part, key's part, shard) or (…, expert, shard)


# The substitutions of nearly all loaders, for one that does not get as far as its own.
USUAL: tuple[Mapping, ...] = (
    ("qkv_proj", "q_proj", "q"),
    ("qkv_proj", "k_proj", "k"),
    ("qkv_proj", "v_proj", "v"),
    ("gate_up_proj", "gate_proj", 0),
    ("gate_up_proj", "up_proj", 1),
)


def template(name: str) -> str:
    """Return a name with ``{}`` for each number that stands alone."""
    return NUMBER.sub("{}", name)


def numbers(name: str) -> tuple[int, ...]:
    """Return the numbers of a name that stand alone."""
    return tuple(map(int, NUMBER.findall(name)))


def saved_by_transformers(name: str, config: Any) -> Keys:
    """Return what transformers' own class of that name would save; {} where it has none."""
    import torch
    import transformers

    cls = getattr(transformers, name, None) if name not in OTHER_FIELDS else None
    if cls is None or not hasattr(cls, "config_class"):
        return {}
    try:
        if not isinstance(config, cls.config_class):
            plain = {k: v for k, v in config.to_dict().items() if k != "architectures"}
            config = cls.config_class.from_dict(plain)
        with torch.device("meta"):
            model = cls(config)
        state = model.state_dict()
        tied = getattr(model, "_tied_weights_keys", None) or ()
        tied = set(tied) if getattr(config, "tie_word_embeddings", False) else set()
        with contextlib.suppress(Exception):
            from transformers.core_model_loading import revert_weight_conversion

            state = revert_weight_conversion(model, state)
        skipped = set(getattr(model, "_keys_to_ignore_on_save", None) or ()) | tied
        return {k: (tuple(v.shape), str(v.dtype)) for k, v in state.items() if k not in skipped}
    except Exception:
        return {}


@contextlib.contextmanager
def seeing_mappings(into: list[Mapping]) -> Iterator[None]:
    """Note the lists of (parameter, key, shard) that functions called load_weights hold when they end."""

    def local(frame: Any, event: str, argument: Any) -> Any:
        if event in ("return", "exception"):
            for value in list(frame.f_locals.values()):
                if isinstance(value, list) and value and all(map(_is_mapping, value)):
                    into.extend(x for x in value if x not in into)
        return local

    def enter(frame: Any, event: str, argument: Any) -> Any:
        if "load_weight" not in frame.f_code.co_name:
            return None
        frame.f_trace_lines = False
        return local

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def _is_mapping(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) >= 3
        and isinstance(value[0], str)
        and isinstance(value[1], str)
    )


def shard_shape(module: Any, leaf: str, parameter: Any, shard: Any, whole: bool = False) -> Shape:
    """Return the shape in a checkpoint of one shard of a parameter; ``whole`` for experts in one stack."""
    shape = list(parameter.shape)
    output = getattr(parameter, "output_dim", 0) or 0
    sizes = getattr(module, "output_sizes", None)
    if hasattr(module, "org_vocab_size") and leaf in ("weight", "bias"):
        shape[0] = module.org_vocab_size
    heads_known = "QKV" in type(module).__name__ and hasattr(module, "total_num_heads")
    if heads_known and shard in ("q", "k", "v"):
        heads = module.total_num_heads if shard == "q" else module.total_num_kv_heads
        size = (
            getattr(module, "v_head_size", module.head_size) if shard == "v" else module.head_size
        )
        shape[output] = heads * size
    elif isinstance(sizes, (list, tuple)) and isinstance(shard, int) and shard < len(sizes):
        shape[output] = sizes[shard]
    elif isinstance(sizes, (list, tuple)) and isinstance(shard, (list, tuple)):
        with contextlib.suppress(TypeError, IndexError):
            shape[output] = sum(sizes[s] for s in shard)
    elif re.match(r"w13|w2", leaf):
        shape = shape if whole else shape[1:]
        if leaf.startswith("w13") and shard in ("w1", "w3") and shape:
            turned = getattr(parameter, "is_transposed", False)
            shape[len(shape) - 1 if turned else len(shape) - 2] //= 2
    return tuple(shape)


def inverse(model: Any, mappings: list[Mapping], q_lora: int | None) -> tuple[Keys, set[str]]:
    """Return the keys that would reach each parameter if all substitutions were undone.

    Names of stacked parameters themselves are among them: the second value.
    """
    keys: Keys = {}
    stacked: set[str] = set()
    modules = dict(model.named_modules())
    has_experts = any("w13" in x[0] for x in mappings)
    for name, parameter in model.named_parameters():
        for key, shape, _ in _undone(name, parameter, modules, mappings, q_lora, has_experts):
            keys[key] = (shape, str(parameter.dtype))
        if name not in keys:
            keys[name] = (tuple(parameter.shape), str(parameter.dtype))
            stacked.add(name)
    return keys, stacked


def _undone(
    name: str, parameter: Any, modules: Any, mappings: list[Mapping], q_lora: Any, has_experts: bool
) -> Iterator[tuple[str, Shape, Any]]:
    path, _, leaf = name.rpartition(".")
    module, fused = modules.get(path), "fused_qkv_a_proj_with_mqa"
    shape = tuple(parameter.shape)
    if path.endswith(fused) and q_lora and len(shape) == 2 and q_lora < shape[0]:
        yield name.replace(fused, "q_a_proj"), (q_lora, shape[1]), 0
        yield name.replace(fused, "kv_a_proj_with_mqa"), (shape[0] - q_lora, shape[1]), 1
        return
    found = False
    for mapping in mappings:
        part, of_key = mapping[0], mapping[1]
        shard = mapping[3] if len(mapping) > 3 else mapping[2]
        if not part or part not in name:
            continue
        if not part.startswith(".") and re.search(rf"[A-Za-z0-9_]{re.escape(part)}", name):
            continue
        if "{}" in of_key:  # a name for each expert
            found = True
            for expert in range(shape[0]):
                key = name.replace(part, of_key.format(expert))
                yield key, shard_shape(module, leaf, parameter, shard), shard
            continue
        key = name.replace(part, of_key)
        if len(mapping) > 3 and of_key.endswith("."):
            key = key.replace("..", ".")
        found = True
        whole = len(numbers(key)) == len(numbers(name))  # of all experts
        yield key, shard_shape(module, leaf, parameter, shard, whole), shard
    if not found and re.match("w13_|w2_", leaf) and module is not None and not has_experts:
        parts = (
            (("w1", "gate_proj"), ("w3", "up_proj"))
            if leaf[1:3] == "13"
            else (("w2", "down_proj"),)
        )
        tail = leaf.partition("_")[2]
        for expert in range(shape[0]):
            for shard, part in parts:
                key = f"{path}.{expert}.{part}.{tail}"
                yield key, shard_shape(module, leaf, parameter, shard), shard
        return
    if not found:
        yield name, shard_shape(module, leaf, parameter, None), None


# Prefixes that files and engines spell differently: a pattern of the engine's name, and what the file has.
# ``N`` stands for the number of layers.
PREFIXES: tuple[tuple[str, str], ...] = (
    (r"^", ""),
    (r"^model\.decoder\.", "model.layers.N."),
    (r"^model\.", "model.layers.N."),
    (r"^", "model.layers.N."),
    (r"^model\.mtp_block\.", "model.layers.N."),
    (r"^", "mtp."),
    (r"^model\.", "mtp."),
    (r"^", "model.mtp."),
    (r"^model\.", ""),
    (r"^", "model."),
    (r"^model\.", "model.language_model."),
    (r"^model\.", "language_model.model."),
    (r"^language_model\.model\.", "model.language_model."),
    (r"^language_model\.", ""),
    (r"^model\.layers\.0\.", "midlayer."),
    (r"^model\.midlayer\.", "midlayer."),
    (r"^model\.midlayer\.", "layers.0."),
    (r"^model\.layers\.", "layers."),
    (r"^(model\.)?shared_head\.", "model.layers.N.shared_head."),
    (r"^lm_head", "model.layers.N.shared_head.head"),
    (r"^model\.", "language_model.model.layers.N."),
    (r"^model\.decoder\.", "model.language_model.layers.N."),
    (r"^model\.", "model.language_model.layers.N."),
    (r"^model\.layers\.0\.", "model.mtp_layers.0."),
    (r"^model\.layers\.0\.", "model.layers.N."),
)


def substitutions(cls: Any) -> list[tuple[str, str]]:
    """Return what the loader's source replaces, to be undone: (in the parameter, in the key)."""
    found: dict[tuple[str, str], None] = {}
    pattern = r"""\.replace\(\s*r?["']([^"']+)["'],\s*r?["']([^"']*)["']"""
    for base in cls.__mro__:
        function = base.__dict__.get("load_weights")
        with contextlib.suppress(Exception):
            if function is not None:
                text = inspect.getsource(function) + inspect.getsource(sys.modules[base.__module__])
                found.update(((b, a), None) for a, b in re.findall(pattern, text) if b)
        mapper = getattr(base, "hf_to_sglang_mapper", None)
        for kind in ("orig_to_new_prefix", "orig_to_new_substr", "orig_to_new_suffix"):
            pairs = getattr(mapper, kind, None) or {}
            found.update(((b, a), None) for a, b in pairs.items() if b)
    common = [("qkv_proj", "qkv"), ("gate_up_proj", "gate_up"), ("gate_up_proj", "up_gate_proj")]
    return [*list(found)[:24], *common]


def respelled(
    cls: Any, stem: str, subs: list[tuple[str, str]]
) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Yield other names for a name, each with the rule that makes it: substitution, then prefix."""
    for pattern, text in SPELLINGS.get(cls.__name__, ()):
        if re.search(pattern, stem):
            yield re.sub(pattern, text, stem, count=1), ("", "", pattern, text)
    pairs = [("", ""), *[(b, a) for b, a in subs if b in stem]]
    for b, a in pairs[:12]:
        middle = stem.replace(b, a) if b else stem
        for pattern, text in PREFIXES:
            name = re.sub(pattern, text, middle, count=1)
            if name != stem:
                yield name, (b, a, pattern, text)


def respell(stem: str, rule: tuple[str, str, str, str]) -> str:
    """Return a name after a rule of `respelled`, ``N`` still standing for the number of layers."""
    b, a, pattern, text = rule
    return re.sub(pattern, text, stem.replace(b, a) if b else stem, count=1)
