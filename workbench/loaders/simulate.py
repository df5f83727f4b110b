"""Run a profile on a whole checkpoint: near-linear, by template, never key against key.

A checkpoint of 208,000 keys has some thirty templates. `Profile.route` is called once for each, on a name
whose numbers are symbolic, and its answer holds for all keys of the template; only numbers in
`Model.special` are kept apart. What remains for every single key are vectorised look-ups of index rows.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from workbench.checkpoint.records import TensorGroup, TensorTable
from workbench.checkpoint.symbols import SYMBOL, concrete, encode, symbolic
from workbench.checkpoint.templates import Rows, field, fill, parse
from workbench.loaders.outcome import (
    Gap,
    KeyGroup,
    KeyStatus,
    LoadOutcome,
    ParameterGroup,
    ParameterStatus,
)
from workbench.loaders.profile import Model, NotCovered, Profile, Route, Slot

Tensors = TensorTable | Sequence[TensorGroup]
Resolve = Callable[[Tensors], LoadOutcome]  # a loader's rules, as a function of the tensors alone

RAISES = "the loader stops: "

LACKING = ("missing", "partial", "mismatched")

# What a route settles by itself, without looking for a parameter.
_DECIDED: dict[str, KeyStatus] = {
    "attribute": "loaded",
    "ignore": "ignored",
    "drop": "dropped",
}


class _Slots:
    """The slots of a model, found by template and index row, with what has filled them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.by_template: dict[str, list[int]] = defaultdict(list)
        for number, slot in enumerate(model.slots):
            self.by_template[slot.template].append(number)
        self.filled = [np.zeros(len(slot.index), dtype=np.int64) for slot in model.slots]
        self.wrong = [np.zeros(len(slot.index), dtype=bool) for slot in model.slots]
        self._sorted: dict[int, tuple[Rows, Rows]] = {}

    def find(self, number: int, index: Rows) -> Rows:
        """Return the row of slot `number` that each index row is, -1 where it has none."""
        have = self.model.slots[number].index
        if not have.shape[1]:
            return np.zeros(len(index), dtype=np.int64)
        if number not in self._sorted:
            codes = encode(have)
            order = np.argsort(codes, kind="stable")
            self._sorted[number] = codes[order], order
        codes, order = self._sorted[number]
        wanted = encode(index)
        place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(codes[place] == wanted, order[place], -1)


def simulate(profile: Profile, model: Model, tensors: Tensors, version: str) -> LoadOutcome:
    """Return what the profile's loader does with the tensors of a checkpoint.

    Parameters
    ----------
    profile, model
        The loader's rules, and what ``profile.build(config)`` returned.
    tensors
        The checkpoint's names, shapes and dtypes: its table, or the groups of it.
    version
        The engine's version, for the basis.
    """
    slots = _Slots(model)
    landed: list[tuple[TensorGroup, Route, int, Rows]] = []
    groups: list[KeyGroup] = []
    given = tensors.groups if isinstance(tensors, TensorTable) else tensors
    for keys, symbol in symbolic(given, model.special):
        route = profile.route(symbol, model)
        if route.fate in ("load", "raise"):
            for part, number, rows in _land(keys, route, slots):
                landed.append((part, route, number, rows))
            continue
        groups.append(_decided(keys, route))
    lost = _joint_losses(slots)
    untried: list[NotCovered] = []
    for part, route, number, rows in landed:
        groups.extend(_judge(profile, slots, part, route, number, rows, lost, untried))
    parameters = tuple(_parameters(slots, lost))
    error = _first_error(profile, groups, parameters) or _unmet(slots)
    # Whatever becomes of such a tensor: where others are wrong, the answer is known.
    if untried and not (error or _faulty(groups, parameters)):
        raise untried[0]
    return LoadOutcome(
        engine=profile.engine,
        version=version,
        model_class=profile.model_class,
        basis=profile.basis(version),
        outcome="raises" if error else "loads",
        keys=tuple(groups),
        parameters=parameters,
        error=error,
        place=profile.place,
        facts=model.facts,
        gaps=tuple(_gaps(slots, lost)),
        doubled=tuple(_doubled(slots)),
    )


def _decided(keys: TensorGroup, route: Route) -> KeyGroup:
    """Return the fate of keys that the route settles by itself."""
    if route.rank is None or len(keys.shape) == route.rank:
        return KeyGroup(_DECIDED[route.fate], keys, reason=route.reason, place=route.place)
    said = f"shape {list(keys.shape)}, the engine wants {route.rank} dimension"
    said += "s" * (route.rank != 1)
    if route.stops is not None and route.stops(keys.shape):
        return KeyGroup("mismatched", keys, reason=RAISES + said, place=route.place)
    said += "; it continues with meaningless numbers"
    return KeyGroup("mismatched", keys, reason=said, place=route.place)


def _first_error(
    profile: Profile, groups: list[KeyGroup], parameters: tuple[ParameterGroup, ...]
) -> str:
    """Return what the loader would stop at, "" where it runs through."""
    for group in groups:
        if group.reason.startswith(RAISES):
            return f"{group.names[0]}: {group.reason.removeprefix(RAISES)}"
    if profile.missing == "raises":
        absent = [n for g in parameters if g.status in ("missing", "partial") for n in g.wanted]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            return f"missing from the checkpoint: {absent[0]}{more}"
    return ""


def _faulty(groups: list[KeyGroup], parameters: tuple[ParameterGroup, ...]) -> bool:
    """Tell whether something is proved wrong."""
    keys = any(group.status in ("dropped", "mismatched") for group in groups)
    return keys or any(group.status in LACKING for group in parameters)


def _unmet(slots: _Slots) -> str:
    """Return the first demanded tensor that is missing, "" for none."""
    for slot, filled in zip(slots.model.slots, slots.filled, strict=True):
        if slot.demanded and not filled.all():
            return f"missing from the checkpoint: {fill(slot.template, slot.index[filled == 0])[0]}"
    return ""


def _land(
    keys: TensorGroup, route: Route, slots: _Slots
) -> Iterator[tuple[TensorGroup, int, Rows]]:
    """Yield the keys by the slot they reach (number -1: none) with their rows in it."""
    template, index = concrete(route.name, keys)
    left = np.arange(len(keys))
    for number in slots.by_template.get(template, ()):
        rows = slots.find(number, index[left])
        hit = rows >= 0
        if hit.any():
            yield keys.take(left[hit]), number, rows[hit]
            slot = slots.model.slots[number]
            if slot.fits(keys.shape) or slot.untried(keys.shape, keys.dtype):
                np.add.at(slots.filled[number], rows[hit], 1)
            else:
                slots.wrong[number][rows[hit]] = True
        left = left[~hit]
        if not len(left):
            return
    yield keys.take(left), -1, np.zeros(len(left), dtype=np.int64)


def _joint_losses(slots: _Slots) -> dict[int, Rows]:
    """Return the rows of each slot that are lost because a partner of their joint is absent."""
    joints: dict[str, list[int]] = defaultdict(list)
    for number, slot in enumerate(slots.model.slots):
        if slot.joint:
            joints[slot.joint].append(number)
    lost: dict[int, Rows] = {}
    for numbers in joints.values():
        whole = np.logical_and.reduce([slots.filled[n] > 0 for n in numbers])
        for n in numbers:
            lost[n] = (slots.filled[n] > 0) & ~whole
    return lost


def _judge(
    profile: Profile,
    slots: _Slots,
    keys: TensorGroup,
    route: Route,
    number: int,
    rows: Rows,
    lost: dict[int, Rows],
    untried: list[NotCovered],
) -> Iterator[KeyGroup]:
    """Yield the fate of keys that the loader looks for a parameter for; note those that were not tried."""
    if number < 0:
        yield _unknown(profile, keys, route)
        return
    slot = slots.model.slots[number]
    if said := slot.untried(keys.shape, keys.dtype):
        untried.append(NotCovered(f"{keys.names[0]} has {said}", route.place))
        yield KeyGroup("loaded", keys, _parameter_for(slot, keys, route), place=route.place)
        return
    parameter = _parameter_for(slot, keys, route)
    if slot.shape is not None and not slot.fits(keys.shape):
        said = f"shape {list(keys.shape)}, the engine wants {list(slot.shape)}"
        if slot.tolerates(keys.shape):
            said += "; it silently cuts or pads"
        elif 0 in keys.shape and slot.shard and profile.engine == "sglang":
            said += "; it has no values, and nothing is written"  # parts of a fused parameter: seen
        elif profile.mismatch == "raises":
            said = RAISES + said
        place = profile.notes.get("mismatch", profile.place)
        yield KeyGroup("mismatched", keys, parameter=parameter, reason=said, place=place)
        return
    gone = lost.get(number, np.zeros(len(slot.index), dtype=bool))[rows]
    if gone.any():
        said = f"held back until the rest of {slot.joint} arrives, but that never happens"
        place = profile.notes.get("joint", profile.place)
        yield KeyGroup("dropped", keys.take(np.flatnonzero(gone)), reason=said, place=place)
    if not gone.all():
        kept = keys.take(np.flatnonzero(~gone))
        yield KeyGroup("loaded", kept, parameter=parameter, reason=route.reason, place=route.place)


def _unknown(profile: Profile, keys: TensorGroup, route: Route) -> KeyGroup:
    """Return the fate of keys that no parameter answers to."""
    reaction = "raises" if route.fate == "raise" else route.unknown or profile.unknown
    said = route.reason or "no parameter of that name"
    if reaction == "raises":
        said = RAISES + said
    else:
        said += ", dropped with a warning" if reaction == "warning" else ", silently dropped"
    place = route.place or profile.notes.get("unknown", profile.place)
    return KeyGroup("dropped", keys, reason=said, place=place)


def _parameter_for(slot: Slot, keys: TensorGroup, route: Route) -> str:
    """Return the slot's parameter as a template of the *key's* indices."""
    _, columns = parse(route.name)
    texts = [field(n - SYMBOL) if n >= SYMBOL else str(n) for n in columns]
    return slot.parameter.format(*texts)


def _gaps(slots: _Slots, lost: dict[int, Rows]) -> Iterator[Gap]:
    """Yield the slots that nothing filled, those of shared parameters as optional."""
    lent = {*slots.model.shared, *slots.model.fallback}
    for number, slot in enumerate(slots.model.slots):
        open_ = slots.filled[number] == 0
        if number in lost:
            open_ = open_ | lost[number]
        if open_.any():
            free = slot.alternative or slot.optional or slot.parameter in lent
            yield Gap(slot.template, slot.index[open_], slot.shape, free)


def _doubled(slots: _Slots) -> Iterator[str]:
    for slot, filled in zip(slots.model.slots, slots.filled, strict=True):
        twice = filled > 1
        if twice.any():
            yield from fill(slot.template, slot.index[twice])


@dataclasses.dataclass
class _State:
    """What is known of the parameters of one template while the slots are added up."""

    index: Rows
    fraction: np.ndarray[Any, np.dtype[np.float64]]
    wrong: np.ndarray[Any, np.dtype[np.bool_]]
    absent: list[tuple[Slot, Rows, Rows]]  # slot, its rows without a key, the parameters of those


def _parameters(slots: _Slots, lost: dict[int, Rows]) -> Iterator[ParameterGroup]:
    """Yield the parameters by template and state."""
    model = slots.model
    by_parameter: dict[str, list[int]] = defaultdict(list)
    for number, slot in enumerate(model.slots):
        by_parameter[slot.parameter].append(number)
    for template, numbers in by_parameter.items():
        state = _add_up(slots, template, numbers, lost)
        optional = all(model.slots[n].optional for n in numbers)
        yield from _states(model, template, state, optional)


def _columns(parameter: str) -> list[int]:
    """Return which index columns a parameter template names: ``layers.{0}.w13`` → [0]."""
    return [c for c in range(8) if field(c) in parameter]


def _add_up(slots: _Slots, template: str, numbers: list[int], lost: dict[int, Rows]) -> _State:
    columns = _columns(template)
    rows = np.concatenate([slots.model.slots[n].index[:, columns] for n in numbers])
    if columns:
        codes = encode(rows)
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    else:
        first, which = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    fraction = np.zeros(len(first))
    wrong = np.zeros(len(first), dtype=bool)
    absent: list[tuple[Slot, Rows, Rows]] = []
    start = 0
    for n in numbers:
        slot = slots.model.slots[n]
        mine = which[start : start + len(slot.index)]
        start += len(slot.index)
        filled = (slots.filled[n] > 0) & ~lost.get(n, np.zeros(len(slot.index), dtype=bool))
        np.add.at(fraction, mine, filled * slot.fraction)
        np.logical_or.at(wrong, mine, slots.wrong[n] & ~filled)
        if not slot.alternative:
            unfilled = np.flatnonzero(~filled)
            absent.append((slot, unfilled, mine[unfilled]))
    return _State(rows[first], np.minimum(fraction, 1.0), wrong, absent)


def _states(model: Model, template: str, state: _State, optional: bool) -> Iterator[ParameterGroup]:
    """Yield one group for each status and fraction that occurs among a template's parameters."""
    plain = template
    for c in _columns(template):
        plain = plain.replace(field(c), "{}")
    shared = model.shared.get(template, "")
    fallback = model.fallback.get(template, "")
    for rows, found, fraction in _statuses(state, bool(shared), optional):
        status: ParameterStatus = "shared" if found == "missing" and fallback else found
        yield ParameterGroup(
            status=status,
            template=plain,
            index=state.index[rows],
            shape=model.shapes.get(template),
            fraction=fraction,
            lacks=tuple(_lacks(state, rows)) if status in LACKING else (),
            source=shared or fallback if status == "shared" else "",
            unused=model.unused.get(template, ""),
        )


def _lacks(state: _State, rows: Rows) -> Iterator[Gap]:
    """Yield the tensors that the parameters in `rows` lack."""
    for slot, unfilled, parameters in state.absent:
        here = unfilled[np.isin(parameters, rows)]
        if len(here):
            yield Gap(slot.template, slot.index[here], slot.shape)


def _statuses(
    state: _State, shared: bool, optional: bool
) -> Iterator[tuple[Rows, ParameterStatus, float]]:
    whole = state.fraction >= 1 - 1e-9
    if shared:
        yield np.arange(len(whole)), "shared", float(state.fraction.min(initial=1.0))
        return
    if optional:
        whole = whole | (state.fraction == 0) & ~state.wrong
    if whole.any():
        yield np.flatnonzero(whole), "written", 1.0
    for value in np.unique(np.round(state.fraction[~whole], 9)).tolist():
        here = ~whole & np.isclose(state.fraction, value, atol=1e-9)
        if (wrong := here & state.wrong).any():
            yield np.flatnonzero(wrong), "mismatched", float(value)
        if (short := here & ~state.wrong).any():
            yield np.flatnonzero(short), "partial" if value else "missing", float(value)
