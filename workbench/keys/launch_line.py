"""Whether a launch was understood: what was given and not understood may not count as checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.core.finding import GRAVITY, Finding
from workbench.core.wording import plural
from workbench.facts.engines import spoken
from workbench.launch.records import Launch
from workbench.launch.rules.models import THERE
from workbench.launch.rules.records import Model, Ruled, Served
from workbench.launch.rules.sums import BLOCKS, EXPERTS, HEADS, WEIGHTS
from workbench.launch.rules.table import RULES, Rule, ruled, without_models
from workbench.loaders.outcome import LoadOutcome

# What SGLang's releases take as --speculative-algorithm, in capitals.
ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "LOOKAHEAD", "DFLASH"})
_ALGORITHM = "speculative-algorithm"
_MOST = 4


def doubt(launch: Launch, engine: str, version: str, draft: bool) -> str:
    """Return why a launch cannot be checked, "" where it can.

    Parameters
    ----------
    launch
        As it was read.
    engine, version
        What it is checked for.
    draft
        Whether the checkpoint is a draft: its launch must then name a speculative algorithm.
    """
    asked = spoken(engine)
    if not launch.engine:
        why = "; ".join(map(str, launch.not_read[:1]))
        return f"it is not a launch of {asked} that can be read ({why})"
    if launch.engine != engine:
        return f"it launches {spoken(launch.engine)}, not {asked}"
    if engine != "sglang":
        return f"it is read, but the arguments of {asked} are not checked"
    return "; ".join(_reasons(launch, version, draft))


def _reasons(launch: Launch, version: str, draft: bool) -> Iterator[str]:
    if launch.version and version and launch.version != version:
        yield f"it is of SGLang {launch.version} ({launch.version_basis}), not {version}"
    doubts = launch.doubts
    yield from map(str, doubts[:_MOST])
    if len(doubts) > _MOST:
        yield f"and {plural(len(doubts) - _MOST, 'more argument')}"
    algorithm = launch.value(_ALGORITHM)
    if algorithm is not None and algorithm.upper() not in ALGORITHMS:
        yield f"the algorithm {algorithm or '(none)'} is not known"
    elif draft and not doubts and launch.state(_ALGORITHM) == "absent":
        yield "it names no speculative algorithm for this draft"


def of_launch(
    launch: Launch | None, outcome: LoadOutcome, draft: Any, target: Any
) -> tuple[tuple[Rule, Ruled], ...]:
    """Return what the rules of a launch find; those that need the models only where these were given.

    Parameters
    ----------
    draft, target
        The checkpoints, None where they were not given. A checkpoint that is no draft is the target.
    """
    if launch is None or launch.engine != "sglang" or outcome.engine != "sglang":
        return ()
    models = (
        _model(launch.target or "the target", target),
        _model(launch.draft or "the draft", draft),
    )
    served = Served(launch, outcome.version, *models)
    chosen = without_models()
    both = target is not None and draft is not None
    if both:
        chosen = tuple(rule for rule in RULES if rule.name not in (THERE, WEIGHTS))
    elif target is not None:  # the sums that need a target alone
        sums = (HEADS, EXPERTS, BLOCKS)
        chosen += tuple(rule for rule in RULES if rule.name in sums)
    found = tuple(ruled(served, chosen))
    # What these rules cannot settle is not asked by a diff of keys: only what they find wrong counts, unless
    # both models and a whole command are there.
    whole = both and not served.fragment and launch.target is not None
    return tuple(
        (rule, one)
        for rule, one in found
        if (whole or one.state == "wrong")
        and (one.finding is None or one.finding.code != "argument_required")
    )


def _model(name: str, checkpoint: Any) -> Model | None:
    return None if checkpoint is None else Model(name, checkpoint.config)


def with_rules(
    findings: tuple[Finding, ...], found: tuple[tuple[Rule, Ruled], ...]
) -> tuple[Finding, ...]:
    """Return findings with those of the rules, errors first."""
    more = [one.finding for _, one in found if one.finding is not None]
    return tuple(sorted([*findings, *more], key=lambda finding: GRAVITY[finding.severity]))
