"""What the SGLang profiles share: releases, configs it cannot read, and how its layers take their share.

The profiles describe one GPU without tensor parallelism. SGLang's CPU build differs in one point: there
every tensor with a `cut` that is too short is filled up with zeros, on a GPU only those marked `pad`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.loaders.families import MOST, Blueprint, Sizes
from workbench.loaders.profile import NotCovered, Refused, Route, Slot

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

# Every release from 0.4.4 to 0.5.23 (release candidates left out), each read from its own wheel.
_RELEASES = """
    0.4.4 0.4.4.post1 0.4.4.post2 0.4.4.post3 0.4.4.post4 0.4.5 0.4.5.post1 0.4.5.post2 0.4.5.post3
    0.4.6 0.4.6.post1 0.4.6.post2 0.4.6.post3 0.4.6.post4 0.4.6.post5 0.4.7 0.4.7.post1 0.4.8
    0.4.8.post1 0.4.9 0.4.9.post1 0.4.9.post2 0.4.9.post3 0.4.9.post4 0.4.9.post5 0.4.9.post6 0.4.10
    0.4.10.post1 0.4.10.post2 0.5.1 0.5.1.post1 0.5.1.post2 0.5.1.post3 0.5.2 0.5.3 0.5.3.post1
    0.5.3.post2 0.5.3.post3 0.5.4 0.5.4.post1 0.5.4.post2 0.5.4.post3 0.5.5 0.5.5.post1 0.5.5.post2
    0.5.5.post3 0.5.6 0.5.6.post1 0.5.6.post2 0.5.7 0.5.8 0.5.8.post1 0.5.9 0.5.10 0.5.10.post1 0.5.11
    0.5.12 0.5.12.post1 0.5.13 0.5.13.post1 0.5.14 0.5.15 0.5.15.post1 0.5.16 0.5.17 0.5.18 0.5.19
    0.5.20 0.5.21 0.5.22 0.5.23
"""
RELEASES: tuple[str, ...] = tuple(_RELEASES.split())


# Releases whose real loader was run beside every class described here that they have: plain, altered and
# mutated checkpoints, FP8 blocks and Kimi's packed experts (tests/engines; `make tables`).
VERIFIED: tuple[str, ...] = ("0.5.8", "0.5.11", "0.5.12", "0.5.14", "0.5.23")

# How many layer numbers past the last layer are routed one by one, to say that they are skipped.
BEYOND = 256

LINEAR = "sglang/srt/layers/linear.py"
MISMATCH = (
    f"{LINEAR} weight_loader of QKVParallelLinear :1329, MergedColumnParallelLinear :710, "
    "RowParallelLinear :1649; vocab_parallel_embedding.py:444; "
    "model_loader/weight_utils.py:1477 default_weight_loader (0.5.23)"
)

# Where transformers' AutoConfig is called; what it refuses, SGLang cannot start.
CONFIG_PLACE = (
    "transformers AutoConfig.from_pretrained, called in sglang/srt/utils/hf_transformers_utils.py:192 "
    "(0.5.8), hf_transformers/common.py:343 (0.5.11), hf_transformers/config.py:63 (0.5.14)"
)

# What transformers' config classes assume where config.json says nothing.
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": {"hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000},
    "qwen2": {"hidden_size": 4096, "intermediate_size": 22016, "vocab_size": 151936},
    "qwen3": {
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "vocab_size": 151936,
        "head_dim": 128,
    },
}
_LAYERS = {"num_hidden_layers": 32, "num_attention_heads": 32}

# Which projection SGLang cuts to its share, along which dimension, and whether it fills up a short one
# since 0.5.3 (pad_or_narrow_weight).
_CUTS: Mapping[str, tuple[int, bool]] = {
    "q_proj": (0, False),
    "k_proj": (0, False),
    "v_proj": (0, False),
    "qkv_proj": (0, False),
    "gate_proj": (0, True),
    "up_proj": (0, True),
    "gate_up_proj": (0, False),
    "o_proj": (1, True),
    "down_proj": (1, True),
    "q_b_proj": (0, False),
    "kv_b_proj": (0, False),
}
PADS_SINCE = (0, 5, 3, 0)


def release(version: str) -> tuple[int, ...]:
    """Return a release as numbers that sort: ``0.5.12.post1`` is (0, 5, 12, 1).

    Raises
    ------
    ValueError
        It is no final release or post release.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", version)
    if match is None:
        raise ValueError(f"not a release of SGLang: {version!r}")
    return tuple(int(part or 0) for part in match.groups())


def place_in(table: str, file: str, version: str, what: str) -> str:
    """Return where a claim stands in the source: ``sglang/srt/models/llama_eagle3.py:344 (0.5.14)``.

    Parameters
    ----------
    table
        Rows of claim and line numbers, one column a release; ``-`` where a release has no such line,
        for which the line of load_weights is given.
    """
    (_, *versions), *rows = (line.split() for line in table.strip().splitlines())
    at = versions.index(version) + 1
    lines = {row[0]: row[at] for row in rows}
    line = lines.get(what, "-")
    return f"{file}:{lines['load_weights'] if line == '-' else line} ({version})"


def verified_in(first: str, last: str) -> tuple[str, ...]:
    """Return the verified releases of a range."""
    return tuple(v for v in VERIFIED if release(first) <= release(v) <= release(last))


def readable(config: Config) -> None:
    """Refuse a config that SGLang cannot read at all, before any model class is asked.

    Raises
    ------
    Refused
        Speculators' nested form, or no model_type.
    NotCovered
        No config.json: SGLang needs one, and so does a profile.
    """
    if config.layout == "none":
        raise NotCovered("no config.json, so the shapes that SGLang would build are not known")
    if config.layout == "speculators":
        raise Refused(
            "config.json is in speculators' nested form without a model_type: transformers' AutoConfig "
            "raises ValueError (Unrecognized model), and no SGLang release reads transformer_layer_config",
            CONFIG_PLACE,
        )
    if not config.model_type:
        raise Refused(
            "config.json has no model_type: transformers' AutoConfig raises ValueError (Unrecognized model)",
            CONFIG_PLACE,
        )


def sizes(config: Config) -> Sizes:
    """Return the sizes of a Llama-like class, with transformers' defaults."""
    known = DEFAULTS.get(config.model_type or "", {})
    return Sizes.of(config, **{**_LAYERS, **known})


def flag(config: Config, name: str) -> bool:
    """Return whether a config field is there and true."""
    return bool(config.get(name, False))


def vocabulary(out: Blueprint, name: str, size: int, hidden: int) -> None:
    """Add an embedding or an output head; SGLang rounds the rows up to 64 and zeroes the rest."""
    padded = -(-size // 64) * 64
    out.add(f"{name}.weight", (size, hidden), whole=(padded, hidden))


def cut_to_share(out: Blueprint, first: str) -> None:
    """Mark the slots that SGLang's linear layers cut to their share silently.

    Parameters
    ----------
    first
        First release of the range: short gate, up, down and o projections are filled up since 0.5.3.
    """
    pads = release(first) >= PADS_SINCE
    out.slots[:] = [_with_cut(slot, pads) for slot in out.slots]


def _with_cut(slot: Slot, pads: bool) -> Slot:
    parts = slot.template.split(".")
    cut, pad = _CUTS.get(parts[-2] if len(parts) > 1 else "", (-1, False))
    bias = parts[-1] == "bias"
    if cut < 0 or ".experts." in slot.template or (bias and cut == 1):
        return slot
    if parts[-1] not in ("weight", "bias"):
        return slot
    return dataclasses.replace(slot, cut=cut, pad=pad and pads)


def eagle_table(config: Config) -> Mapping[str, Any]:
    """Return the ``eagle_config`` of a draft, {} where it is none."""
    table = config.get("eagle_config", None)
    return table if isinstance(table, dict) else {}


def draft_number(config: Config, name: str, place: str) -> None:
    """Refuse a number of a draft's config that a class computes sizes with; null is left to the class.

    Raises
    ------
    Refused
        It is no whole number, or a negative one (TypeError, RuntimeError).
    NotCovered
        It is true or false, which counts as 1 or 0 in some releases, or a negative vocabulary.
    """
    value = config.get(name, None)
    if value is None:
        return
    said = f"{name} is {value!r:.60} in the config, not a whole number"
    if isinstance(value, bool):
        raise NotCovered(said, place)
    if not isinstance(value, int):
        raise Refused(f"{said}: TypeError", place)
    if value < 0:
        raise (NotCovered if name == "draft_vocab_size" else Refused)(said, place)
    if value > MOST:
        raise NotCovered(f"the config asks for {name} {value:.6g}: not credible", place)


def offsets(reason: str, place: str) -> Route:
    """Return the route of d2t: the loader computes d2t + arange(d2t.shape[0])."""
    return Route("attribute", reason=reason, place=place, rank=1, stops=_no_sum)


def _no_sum(shape: tuple[int, ...]) -> bool:
    return not shape or (shape[-1] != shape[0] and 1 not in (shape[-1], shape[0]))


def merge(out: Blueprint, other: Blueprint, rename: Callable[[str], str]) -> None:
    """Add another blueprint's slots, its parameters renamed.

    Layer 0 of a draft is wider than its other layers, and one parameter template has one shape; a NextN
    layer has other names inside the engine than on disk.
    """
    for slot in other.slots:
        joint = rename(slot.joint) if slot.joint else ""
        out.slots.append(dataclasses.replace(slot, parameter=rename(slot.parameter), joint=joint))
    for name, shape in other.shapes.items():
        out.shapes.setdefault(rename(name), shape)
