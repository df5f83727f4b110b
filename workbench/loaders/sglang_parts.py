"""What the SGLang profiles share: releases, configs it cannot read, and how its layers take their share.

The profiles describe one GPU without tensor parallelism. SGLang's CPU build differs in one point: there
every tensor with a `cut` that is too short is filled up with zeros, on a GPU only those marked `pad`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.facts.features import border, since
from workbench.facts.rows import releases, row_in
from workbench.loaders.families import MOST, Blueprint, Sizes
from workbench.loaders.profile import NotCovered, Refused, Route, Slot

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

RELEASES: tuple[str, ...] = releases("sglang")
"""Every release that was read, oldest first (release candidates are left out)."""

READ = "0.5.23"
"""The newest release whose loaders were read by a person. One with the same source is covered as well."""

# Releases whose real loader was run beside every class described here that they have: plain, altered and
# mutated checkpoints, FP8 blocks and Kimi's packed experts (tests/engines; `make tables`).
VERIFIED: tuple[str, ...] = ("0.5.8", "0.5.11", "0.5.12", "0.5.14", "0.5.23")

# How many layer numbers past the last layer are routed one by one, to say that they are skipped.
BEYOND = 256

_LINEAR = "layers/linear.py"


def mismatch_place(version: str) -> str:
    """Return where a release checks shapes, as it copies a tensor into its parameter."""
    places = (
        ("weight_loader of QKVParallelLinear", _LINEAR, "qkv"),
        ("MergedColumnParallelLinear", _LINEAR, "merged"),
        ("RowParallelLinear", _LINEAR, "row"),
        ("VocabParallelEmbedding", "layers/vocab_parallel_embedding.py", "weight_loader"),
        ("default_weight_loader", "model_loader/weight_utils.py", "default"),
    )
    found = [f"{name} {line_of(file, version, what)}" for name, file, what in places]
    return f"{', '.join(found)} ({version})"


def config_place(version: str) -> str:
    """Return where transformers' AutoConfig is called; what it refuses, SGLang cannot start."""
    files = (
        "hf_transformers/config.py",
        "hf_transformers/common.py",
        "utils/hf_transformers_utils.py",
        "srt/hf_transformers_utils.py",
    )
    found = (line_of(file, version, "AutoConfig") for file in files)
    where = next((line for line in found if ":" in line), "sglang/srt")
    return f"transformers AutoConfig.from_pretrained, called in {where} ({version})"


def worker_place(what: str, version: str) -> str:
    """Return where a release's worker calls a method of the draft: ``set_embed``."""
    files = ("speculative/eagle_worker_v2.py", "speculative/eagle_worker.py")
    found = [line_of(file, version, what) for file in files]
    named = [line.removeprefix("sglang/srt/") for line in found if ":" in line]
    return f"{what}: {', '.join(named) or files[1]} ({version})"


def read_since(feature: str) -> str:
    """Return since when a field of a draft's config is read, in words."""
    first = border("sglang", feature)[1]
    return f"read since {first}" if first else "read by no release"


def line_of(file: str, version: str, what: str) -> str:
    """Return the file and the line of a claim in a release, the file alone where it is not known."""
    row = row_in("sglang", "line", f"{file}:{what}", version)
    return f"{row.file}:{row.value}" if row is not None else f"sglang/srt/{file}"


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

# Which projection SGLang cuts to its share, along which dimension, and whether newer releases fill up a short
# one (pad_or_narrow_weight).
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


def place_in(file: str, version: str, what: str) -> str:
    """Return where a claim stands in a release: ``sglang/srt/models/llama_eagle3.py:344 (0.5.14)``.

    Where the release has no such line, that of load_weights.
    """
    line = line_of(file, version, what)
    return f"{line if ':' in line else line_of(file, version, 'load_weights')} ({version})"


def last_alike(*files: str) -> str:
    """Return the newest release whose loader is that of `READ`, by the digests of its files."""
    want = [_digest(file, READ) for file in files]
    last = READ
    for version in RELEASES[RELEASES.index(READ) + 1 :] if READ in RELEASES else ():
        if not all(want) or [_digest(file, version) for file in files] != want:
            break
        last = version
    return last


def _digest(file: str, version: str) -> str:
    row = row_in("sglang", "digest", file, version)
    return str(row.value) if row is not None else ""


def verified_in(first: str, last: str) -> tuple[str, ...]:
    """Return the verified releases of a range."""
    return tuple(v for v in VERIFIED if release(first) <= release(v) <= release(last))


def readable(config: Config, version: str) -> None:
    """Refuse a config that SGLang cannot read at all, before any model class is asked.

    Parameters
    ----------
    version
        The release whose source is cited.

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
            config_place(version),
        )
    if not config.model_type:
        raise Refused(
            "config.json has no model_type: transformers' AutoConfig raises ValueError (Unrecognized model)",
            config_place(version),
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
        First release of the range: short gate, up, down and o projections are filled up in newer ones.
    """
    pads = since("sglang", "pads short projections", first) is True
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
