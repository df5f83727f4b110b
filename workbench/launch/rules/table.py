"""All rules of a launch: which item each settles, whether the item is essential, and what they rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from workbench.core.verdict import Item
from workbench.launch.rules import (
    arguments,
    backends,
    companions,
    exclusions,
    models,
    speculation,
    sums,
    tree,
)
from workbench.launch.rules.records import Ruled, Served, unclear
from workbench.launch.rules.settings import UnknownValueError

Check = Callable[[Served], Iterator[Ruled]]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes
    ----------
    kind, name
        Of the item that it settles.
    models
        Whether it looks at the models: `diff --launch`, which has one checkpoint, leaves these out.
    later
        Whether what it checks may come after a server has printed its arguments: that needs the models.
    """

    name: str
    check: Check
    kind: str = "combination"
    essential: bool = True
    models: bool = False
    later: bool = False


RULES: tuple[Rule, ...] = (
    Rule(arguments.NAME, arguments.parser, "parser"),
    Rule(companions.NAME, companions.companions),
    Rule(speculation.ALGORITHM, speculation.algorithm),
    Rule(tree.SHAPE, tree.shape),
    Rule(exclusions.WITH_OTHERS, exclusions.with_others),
    Rule(sums.GROUPS, sums.groups, "sum"),
    Rule(sums.HEADS, sums.heads, "sum", models=True),
    Rule(sums.EXPERTS, sums.experts, "sum", models=True),
    Rule(sums.BLOCKS, sums.blocks, "sum", models=True),
    Rule(sums.MEMORY, sums.memory, "sum"),
    Rule(models.THERE, models.there, "model", models=True, later=True),
    Rule(models.CLASS, models.model_class, "model", models=True, later=True),
    Rule(models.HOOKS, models.hooks, "model", models=True),
    Rule(models.CONTEXT, models.context, "model", models=True),
    Rule(models.QUANTISATION, models.quantisation, "model", models=True),
    Rule(backends.BACKENDS, backends.backends, "model", models=True),
    Rule(sums.WEIGHTS, sums.weights, "model", essential=False, models=True),
)

# What no rule looks at, listed so that nobody takes it for checked.
ASIDE = (
    ("tokenizer and chat template", "their files are read by the engine only"),
    ("drivers, network and free memory of the machine", "nothing of the machine is asked"),
)


def items(rules: Sequence[Rule] = RULES) -> Iterator[Item]:
    """Yield what the rules are asked about."""
    for rule in rules:
        yield Item(rule.kind, rule.name, essential=rule.essential)


def without_models() -> tuple[Rule, ...]:
    """Return the rules that need the launch alone."""
    return tuple(rule for rule in RULES if not rule.models)


def ruled(served: Served, rules: Sequence[Rule] = RULES) -> Iterator[tuple[Rule, Ruled]]:
    """Yield what each rule finds; one that needs a value that is not known leaves its item open."""
    for rule in rules:
        try:
            for one in rule.check(served):
                yield rule, _fitted(served, rule, one)
        except UnknownValueError as error:
            yield rule, unclear(rule.name, str(error))


def _fitted(served: Served, rule: Rule, one: Ruled) -> Ruled:
    """Weaken what is not certain: a release that was not read, or a check that the server has passed."""
    if (
        one.state == "wrong"
        and served.started
        and not rule.later
        and one.moment in ("parser", "checks")
    ):
        how = "the server printed its arguments, so its own checks let them pass"
        return Ruled(one.name, "ok", how)
    if one.state != "open" and not served.certain:
        how = f"{one.how} (in {served.release}; {served.who} was not read)"
        return dataclasses.replace(one, state="open", how=how)
    return one
