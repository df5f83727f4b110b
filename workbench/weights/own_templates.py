"""What a file lacks by its own templates: layers, experts and projections that the others have.

Layers may differ on purpose (dense and of experts, attention and state space, with and without keys of their
own), so a thing counts as absent only where the config counts it, or where hardly any other layer lacks it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.weights.adapters import absent_factors
from workbench.weights.names import Places, places
from workbench.weights.records import Measure

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

Absent = tuple[tuple[str, str], ...]

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers",
           "encoder_layers", "depth", "num_encoder_layers")  # fmt: skip
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_STACK = re.compile(r"(^|\.)(layers?|h|blk|blocks?|encoder|decoder)$")
_EXPERT = re.compile(r"(.*\bexperts)\.(\d+)\.(.+)")
# Kinds that most layers of a stack share, below which it is no stack of equal layers.
_FEWEST_KINDS = 4
# A thing that more layers than this share lack is absent on purpose.
_FEW = 0.1
# Adapters and drafts change some modules only.
_PARTIAL = re.compile(r"lora_|adapter|\.ia3_|\.oft_|\bprompt_")
_MOST = 200


def absent_by_templates(measures: Sequence[Measure], config: Config | None) -> Absent:
    """Return names of what is absent, each with the reason; at most a few hundred."""
    names = [measure.name for measure in measures]
    if any(_PARTIAL.search(name) for name in names):
        return tuple(absent_factors(names))[:_MOST]
    where = places(names)
    found: dict[str, str] = {}
    for name, why in (
        *_layers(where, config), *_projections(where, measures), *_experts(names, config),
        *_beside_their_bias(measures), *_head(names, config), *_head_of_scores(names, config),
    ):  # fmt: skip
        found.setdefault(name, why)
    return tuple(found.items())[:_MOST]


def _stacks(where: Places) -> dict[str, dict[int, set[str]]]:
    """Return the stacks of layers: the kinds of tensors of each layer."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for stack, layer, kind in zip(where.stack, where.layer, where.kind, strict=True):
        if layer >= 0 and _STACK.search(where.stacks[stack]):
            stacks[where.stacks[stack]][int(layer)].add(where.kinds[kind])
    return {
        name: layers
        for name, layers in stacks.items()
        if sum(len(kinds) >= _FEWEST_KINDS for kinds in layers.values()) * 2 > len(layers)
    }


def _layers(where: Places, config: Config | None) -> Iterator[tuple[str, str]]:
    """Yield layers that the config counts, or that lie between others, and are not there."""
    stacks = _stacks(where)
    if not stacks:
        return
    counts = {n for name in _LAYERS if (n := _whole(config, name))}
    largest = max(stacks, key=lambda name: sum(map(len, stacks[name].values())))
    for name, layers in stacks.items():
        have = set(layers)
        wanted = set(range(min(have), max(have) + 1)) if len(have) > 2 else set(have)
        why = "the layers around it are there"
        main = name == largest and (len(stacks) == 1 or len(counts) == 1)
        # A file of the layers behind the last one alone is a draft (NextN).
        if main and counts and min(have) < min(counts):
            wanted |= set(range(min(counts)))
            why = f"the config counts {min(counts)} layers"
        for layer in sorted(wanted - have):
            yield f"{name}.{layer}", f"no tensor of this layer is in the file; {why}"


def _projections(where: Places, measures: Sequence[Measure]) -> Iterator[tuple[str, str]]:
    """Yield matrices that one layer lacks and nearly all others of its stack have."""
    matrices = {
        where.kinds[where.kind[i]]
        for i, one in enumerate(measures)
        if sum(size > 1 for size in one.shape) > 1 and "experts" not in one.name
    }
    for name, layers in _stacks(where).items():
        having = Counter(kind for kinds in layers.values() for kind in kinds)
        for kind in matrices:
            lacking = [layer for layer, kinds in layers.items() if kind not in kinds]
            if not lacking or len(lacking) > max(1, _FEW * len(layers)) or having[kind] < 2:
                continue
            for layer in lacking:
                # A layer of another sort has something in its place.
                if any(layers[layer] < kinds for kinds in layers.values() if kind in kinds):
                    yield (
                        f"{name}.{layer}.{kind}",
                        f"it is not in the file; {having[kind]:,} of {len(layers):,} layers have it",
                    )


def _experts(names: Sequence[str], config: Config | None) -> Iterator[tuple[str, str]]:
    """Yield experts, and parts of experts, that others have."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        match = _EXPERT.fullmatch(name)
        if match:
            stacks[match[1]][int(match[2])].add(match[3])
    count = next((n for name in _EXPERTS if (n := _whole(config, name))), 0)
    most = max((max(experts) + 1 for experts in stacks.values()), default=0)
    # A count that the file goes beyond is that of something else.
    wanted = count if most <= count <= 100_000 else most
    for stack, experts in stacks.items():
        usual = Counter(part for parts in experts.values() for part in parts)
        for number in range(wanted):
            if number not in experts:
                yield f"{stack}.{number}", f"this expert is not in the file; there are {wanted:,}"
                continue
            for part in usual:
                if part not in experts[number] and usual[part] * 2 > len(experts):
                    yield (
                        f"{stack}.{number}.{part}",
                        f"it is not in the file; {usual[part]:,} of {len(experts):,} experts have it",
                    )


def _beside_their_bias(measures: Sequence[Measure]) -> Iterator[tuple[str, str]]:
    """Yield the weights of modules whose bias alone is there, where such modules have both elsewhere."""
    names = {measure.name for measure in measures}
    bare = re.compile(r"\d+")
    both = {
        bare.sub("#", name.removesuffix(".bias"))
        for name in names
        if name.endswith(".bias") and f"{name.removesuffix('bias')}weight" in names
    }
    for measure in measures:
        module = measure.name.removesuffix(".bias")
        lone = module != measure.name and f"{module}.weight" not in names
        packed = any(f"{module}.{part}" in names for part in ("qweight", "weight_packed"))
        if lone and not packed and measure.count and bare.sub("#", module) in both:
            yield f"{module}.weight", "it is not in the file; its bias is"


_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output|head|output_layer)\.")


def _head(names: Sequence[str], config: Config | None) -> Iterator[tuple[str, str]]:
    """Yield the head of a language model that its config says is not the embedding."""
    if config is None or config.get("tie_word_embeddings", None) is not False:
        return
    if not any(name.endswith("ForCausalLM") for name in config.architectures):
        return
    # Names that this file spells in its own way leave the question open without an accusation.
    if any(_HEAD.search(name) for name in names) or not any("embed" in name for name in names):
        return
    yield (
        "lm_head.weight",
        "it is not in the file, and the config says that it is not tied to the embedding",
    )


_SCORES = re.compile(r"(ForSequenceClassification|RewardModel)$")
_HEAD_OF_SCORES = re.compile(
    r"(^|[._])(score|classifier|classification_head|v_head|value_head|reward\w*|regression_head|"
    r"logits_proj|rm_head|summary|head)s?\."
)


def _head_of_scores(names: Sequence[str], config: Config | None) -> Iterator[tuple[str, str]]:
    """Yield the head of a classifier or a reward model: without it an engine initialises one."""
    if config is None or not any(_SCORES.search(name) for name in config.architectures):
        return
    if any(_HEAD_OF_SCORES.search(name) for name in names):
        return
    why = f"{config.architectures[0]} answers by a head of its own, and the file has none"
    yield "score.weight", why


def _whole(config: Config | None, name: str) -> int:
    value = config.get(name, None) if config is not None else None
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10_000
        else 0
    )
