"""Quantised weights of a class: the plain map, each layer's tensors exchanged for those of its scheme.

Nothing is answered for a class and a scheme that the real loader was not seen to take together, on GPUs of
all the compute capabilities that were claimed (`workbench.loaders.quantising`).
"""

from __future__ import annotations

import dataclasses
import functools
import lzma
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from workbench.loaders.maps import records, schemes
from workbench.loaders.maps.ignored import EXPERTS, Asked
from workbench.loaders.maps.layouts import ENDINGS, Scheme, Stored
from workbench.loaders.profile import NotCovered, Reaction, Refused, Route, Slot

_FIELD = re.compile(r"\{(\d)\}")
# Kernels want certain sizes: what rows and columns were tried with are multiples of these.
ROWS, COLUMNS = 64, 128
BLOCK_ROWS = 128
REFUSES, PASSES = "refuses: ", "passes over every "
NEVER = " (which the loader passes over)"
# What was tried of layers of other schemes stands for these; Llama's loader renames the one that is left out.
FOREIGN = frozenset(ENDINGS) - {"weight_scale_inv"}
REACTIONS: dict[str, Reaction] = {"dropped": "silent", "raises": "raises"}


class Layers(msgspec.Struct, frozen=True):
    """What was seen of a class.

    Attributes
    ----------
    asks
        Module, ``{0}`` for its first number -> kind of layer, and the name that it asks under.
    packed, mapper
        Fused layers and their parts, and substitutions in names, as the class declares them.
    holds
        Scheme -> compute capability -> "" where the loader did as predicted, else what it did.
    foreign
        State of a layer, ``plain`` or ``coded`` -> what the loader does with tensors that layers of other
        schemes have, ``dropped`` or ``raises``: the usual, and by template where that is another; "" where it
        is not known.
    """

    asks: dict[str, tuple[str, str]] = {}
    packed: dict[str, list[str]] = {}
    mapper: dict[str, Any] | None = None
    holds: dict[str, dict[str, str]] = {}
    foreign: dict[str, Any] = {}


class Quantised(msgspec.Struct, frozen=True):
    """All that was seen of a release."""

    engine: str
    release: str
    capabilities: list[str]
    classes: dict[str, Layers]


def file_name(engine: str, release: str) -> str:
    """Return what the data of a release are called."""
    return f"quantised-{engine}-{release}.json.xz"


@functools.lru_cache(maxsize=8)
def quantised_of(engine: str, release: str) -> Quantised | None:
    """Return what was seen of a release, None where it was not harvested."""
    file = records._data() / file_name(engine, release)
    if not file.is_file():
        return None
    return msgspec.json.decode(lzma.decompress(file.read_bytes()), type=Quantised)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A class under one ``quantization_config``; ``lost`` is a kind of tensor that its loader passes over."""

    layers: Layers
    method: schemes.Method
    lost: str = ""

    def strange(self, template: str, coded: bool) -> str:
        """Return what the loader does with another scheme's tensor of a layer, "" if unknown."""
        usual = self.layers.foreign.get("coded" if coded else "plain")
        if not isinstance(usual, list):
            return ""
        return str(usual[1].get(template, usual[0]))

    def scheme(self, module: str, numbers: Sequence[int]) -> Scheme | None:
        """Return how a module's weights are stored, None for plain ones."""
        kind, name = self.layers.asks[module]
        return self.method.of(Asked(kind, name.format(*numbers)))


def recipe(
    engine: str, release: str, model_class: str, quant: Mapping[str, Any], check: bool = True
) -> Recipe:
    """Return what a class does under a ``quantization_config``.

    Parameters
    ----------
    check
        Whether the class must have been seen with the scheme; the harvest itself asks without.

    Raises
    ------
    NotCovered, Refused
        It was not tried, or GPUs differ; every GPU that was tried refuses it.
    """
    seen = quantised_of(engine, release)
    layers = seen.classes.get(model_class) if seen is not None else None
    if layers is None or not layers.asks:
        raise NotCovered(
            "the map of this class is of weights that are not quantised; how it takes others was not tried"
        )
    return of_layers(layers, quant, check)


def of_layers(layers: Layers, quant: Mapping[str, Any], check: bool = True) -> Recipe:
    """Return a class's recipe; see `recipe`."""
    method = schemes.read(_mapped(quant, layers.mapper), layers.packed)
    return Recipe(layers, method, _seen_to_hold(layers, method.scheme) if check else "")


def _seen_to_hold(layers: Layers, scheme: Scheme) -> str:
    """Return the kind of tensor that the loader passes over on every GPU, "" for none; raise for all else."""
    held = layers.holds.get(str(scheme))
    if not held:
        raise NotCovered(f"weights stored as {scheme} were not tried with this class")
    wrong = {capability: said for capability, said in held.items() if said}
    if not wrong:
        return ""
    texts = set(wrong.values())
    if len(wrong) == len(held) and len(texts) == 1:
        text = texts.pop()
        if text.startswith(REFUSES):
            raise Refused(text.removeprefix(REFUSES), "layers/quantization")
        if text.startswith(PASSES):
            return text.removeprefix(PASSES)
    said = "; ".join(
        f"compute capability {capability}: {text}" for capability, text in wrong.items()
    )
    good = " and ".join(capability for capability in held if capability not in wrong)
    where = f"GPUs of compute capability {good} take {scheme} and others do not" if good else ""
    raise NotCovered(f"{where or f'{scheme} was not seen to load'} ({said})")


def _mapped(quant: Mapping[str, Any], mapper: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Refuse lists of names where the class substitutes in them, but for the head."""
    for field in ("ignore", "modules_to_not_convert", "ignored_layers"):
        names = quant.get(field) or []
        if mapper is not None and any(name != "lm_head" for name in names):
            raise NotCovered(f"the class substitutes in the names of {field}, which was not tried")
    return quant


# -- slots -----------------------------------------------------------------------------------------


def slots(plain: Sequence[Slot], made: Recipe) -> Iterator[Slot]:
    """Yield the slots of quantised weights in place of plain ones.

    Raises
    ------
    NotCovered
        A layer has sizes, or is stored in a way, that was not tried.
    """
    together: dict[str, set[str]] = {}
    for slot in plain:
        if not slot.alternative:
            together.setdefault(slot.parameter, set()).add(slot.template)
    for slot in plain:
        module, _, leaf = slot.parameter.rpartition(".")
        weight = slot.template.endswith(".weight") or leaf in ("w13_weight", "w2_weight")
        if module not in made.layers.asks or not weight:
            yield slot
            continue
        for rows, scheme in by_scheme(slot, module, made):
            part = dataclasses.replace(slot, index=slot.index[rows])
            if scheme is None:
                yield part
            elif not slot.alternative:
                kind = made.layers.asks[module][0]
                for one in _coded(part, scheme, len(together[slot.parameter]), kind):
                    lost = one.template.rpartition(".")[2] == made.lost
                    yield dataclasses.replace(one, template=one.template + NEVER) if lost else one


def module_of(slot: Slot) -> str:
    """Return the module that a slot's parameter belongs to, ``{0}`` for its first number."""
    return slot.parameter.rpartition(".")[0]


def by_scheme(slot: Slot, module: str, made: Recipe) -> Iterator[tuple[Any, Scheme | None]]:
    """Yield which rows of a slot are stored how."""
    columns = [int(c) for c in _FIELD.findall(module)]
    if columns != list(range(len(columns))):
        raise NotCovered(f"the numbers in {module} are in another order than in the key")
    keys = slot.index[:, columns]
    every, which = np.unique(keys, axis=0, return_inverse=True) if columns else (keys[:1], None)
    found = [made.scheme(module, row.tolist()) for row in every]
    for scheme in dict.fromkeys(found):
        hit = np.asarray([one == scheme for one in found])
        yield (hit[which.ravel()] if which is not None else np.ones(len(keys), bool)), scheme


def _coded(slot: Slot, scheme: Scheme, parts: int, kind: str) -> Iterator[Slot]:
    shape = slot.shape
    if shape is None or len(shape) != 2 or not slot.template.endswith(".weight"):
        raise NotCovered(f"{slot.template} quantised is stored in a way that was not tried")
    out, size = shape
    rows = BLOCK_ROWS if "block" in str(scheme) else ROWS
    if out % rows or size % COLUMNS:
        raise NotCovered(
            f"{slot.template} is [{out}, {size}]: as {scheme}, multiples of {rows} and {COLUMNS} were tried"
        )
    experts = _experts(slot) if kind == EXPERTS else 0
    base, into = slot.template.removesuffix("weight"), slot.parameter.removesuffix("weight")
    for ending, stored in scheme.layout.items():
        yield dataclasses.replace(
            slot,
            template=base + ending,
            parameter=into + ending,
            shape=None if stored.shape is None else stored.shape(out, size),
            fraction=stored.share(slot.fraction, parts * max(1, experts), experts),
            single=stored.shape is None,
            dtypes=stored.dtypes,
        )


def _experts(slot: Slot) -> int:
    """Return how many experts' tensors land in one parameter."""
    used = [int(c) for c in _FIELD.findall(slot.parameter)]
    others = [c for c in range(slot.index.shape[1]) if c not in used]
    return math.prod(len(np.unique(slot.index[:, c])) for c in others)


def foreign(
    made: Recipe, key: str, bases: Mapping[str, Sequence[Slot]], template: Callable[[str], str]
) -> Route | None:
    """Return the route of a key that a layer of another scheme would have, None for other keys.

    Raises
    ------
    NotCovered
        What the loader does with it was not seen.
    """
    base, _, ending = key.rpartition(".")
    plain = bases.get(template(f"{base}.weight"), ())
    if plain and ending == made.lost:
        return Route("drop", reason="the class's loader passes over tensors of this kind")
    if not plain or ending not in FOREIGN or any(slot.alternative for slot in plain):
        return None
    if any(module_of(slot) not in made.layers.asks for slot in plain):
        return None
    coded = {s is not None for slot in plain for _, s in by_scheme(slot, module_of(slot), made)}
    states = {made.strange(plain[0].template, one) for one in coded}
    if len(states) != 1 or "" in states:
        raise NotCovered(
            f"what the loader does with {key.rpartition('.')[2]} of such a layer was not seen"
        )
    reaction = states.pop()
    if reaction == "raises":
        return Route(
            "raise", reason="no parameter of that name: the layer is stored in another way"
        )
    return Route("drop", reason="no parameter of that name: the layer is stored in another way")


def reaction(made: Recipe, plain: Sequence[Slot], beyond: str) -> Reaction:
    """Return what the loader does with a quantised tensor of a row that no quantised layer has."""
    coded = {s is not None for slot in plain for _, s in by_scheme(slot, module_of(slot), made)}
    known = {beyond.replace("warned", "dropped")}
    if len(coded) > 1:
        known.add(made.strange(plain[0].template, coded=False))
    if len(known) != 1 or "" in known:
        raise NotCovered("what the loader does with quantised tensors of other layers was not seen")
    return REACTIONS.get(known.pop(), "silent")


__all__ = ["Layers", "Quantised", "Recipe", "Stored", "foreign", "quantised_of", "recipe", "slots"]
