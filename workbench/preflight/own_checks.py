"""What the engine's own parser and checks said, next to what the rules found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from workbench.errors import shorten
from workbench.facts.engines import spoken
from workbench.launch.rules.records import Ruled, Served, fault, fine, unclear
from workbench.launch.rules.table import Rule
from workbench.preflight.asking import Asked


def _nothing(_: Served) -> Iterator[Ruled]:
    return iter(())


RULE = Rule("the engine's own parser and checks", _nothing, "engine")
"""The item that the engine itself settles; its answer is not made by a rule."""
_ASKED = ("parser", "checks")
_TAKES = "the engine's own parser takes every argument"


def joined(
    found: Iterable[tuple[Rule, Ruled]], asked: Asked, engine: str = "sglang"
) -> Iterator[tuple[Rule, Ruled]]:
    """Yield what the rules found, where the engine says otherwise as it says; then its own answer."""
    kept = [(rule, _heard(rule, one, asked)) for rule, one in found]
    yield from kept
    same = any(one.state == "wrong" and one.moment in _ASKED for _, one in kept)
    yield RULE, _own(asked, same, spoken(engine, asked.version))


def _heard(rule: Rule, one: Ruled, asked: Asked) -> Ruled:
    """Return one ruling after the engine was heard: the rule of the parser follows it."""
    parsed = asked.state in ("accepted", "parsed") or asked.moment == "checks"
    if rule.kind == "parser" and parsed:
        return fine(one.name, _TAKES)
    if one.state == "wrong" and one.moment == "checks" and asked.state == "accepted":
        how = f"{one.how}: but the engine's own checks let it pass"
        return dataclasses.replace(unclear(one.name, how), moment=one.moment)
    return one


def _own(asked: Asked, same: bool, who: str) -> Ruled:
    """Return the engine's answer; `same`: a rule explains what it refuses, and how to correct it."""
    says = shorten(asked.says)
    if asked.state == "accepted":
        return fine(RULE.name, f"{who} was asked, and takes the launch")
    if asked.state != "refused":
        return unclear(RULE.name, says or "not asked")
    which = "parser" if asked.moment == "parser" else "checks"
    how = f"{who} was asked: its {which} refuse{'s' if which == 'parser' else ''} it: {says}"
    if same:
        return Ruled(RULE.name, "wrong", how)
    return fault(
        RULE.name,
        "engine_refuses",
        f"the {which} of {who} refuse{'s' if which == 'parser' else ''} it: {says}",
        "parser" if asked.moment == "parser" else "checks",
        evidence=(f"{who} itself was asked, without a GPU", *filter(None, (asked.place,))),
        next_step="Change what the message names, and check the launch again.",
        place=asked.place,
    )
