"""What the question "will this launch start and serve?" covers, and the checks that settle it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from workbench.core.finding import Finding
from workbench.core.verdict import Coverage, Item, Settled, State, cover
from workbench.keys.records import KeyDiff
from workbench.launch.options import INCIDENTAL
from workbench.launch.records import Argument, Launch
from workbench.launch.rules.records import Moment, Ruled, Served
from workbench.launch.rules.table import ASIDE, RULES, Rule, items, ruled
from workbench.preflight import own_checks
from workbench.preflight.asking import Asked
from workbench.preflight.parts import Without, without

RELEASE = "the release of the engine"
LAUNCH = "the launch was read whole"
DRAFT = "draft"
TARGET = "target"
_OF = {DRAFT: "of the draft", TARGET: "of the target"}
# What `diff_keys` covers besides a checkpoint: `check` has its own items for these.
_OF_LAUNCH = ("argument", "release", "parser", "combination", "sum", "model")
# When a fault of a checkpoint shows, by the code of its finding; the others while it serves.
_MOMENTS: dict[str, Moment] = {
    "config_refused": "checks",
    "speculators_config": "checks",
    "no_architecture": "load",
    "shapes_differ": "load",
    "fc_width": "load",
    "target_hidden_size_null": "load",
    "base_architecture": "load",
    "d2t_absolute": "first request",
    "d2t_out_of_range": "first request",
    "hidden_sizes_differ": "load",
    "eagle_draft_as_eagle3": "load",
    "aux_layers_unreadable": "load",
}


@dataclasses.dataclass(frozen=True)
class Loading:
    """What a role's keys meet in this release.

    Attributes
    ----------
    diff
        None where it could not be made; `why` says why.
    """

    role: str
    diff: KeyDiff | None = None
    why: str = ""

    @cached_property
    def absent(self) -> Without:
        """The part of which the target's files hold nothing."""
        return Without() if self.diff is None else without(self.diff, self.role)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the diff found, but for the part that text does not need."""
        if self.diff is None:
            return ()
        if self.absent.note is None:
            return self.diff.findings
        kept = (f for f in self.diff.findings if f.code != "tensors_missing")
        return (*kept, self.absent.note)

    @property
    def ok(self) -> bool | None:
        """What the diff answers; a part that text does not need does not count."""
        if self.diff is None:
            return None
        if not self.absent.names:
            return self.diff.ok
        return Coverage(self.items).ok

    @property
    def items(self) -> tuple[Item, ...]:
        """What the diff covers of the checkpoint, without the part that text does not need."""
        found = self.diff.verdict.coverage.items if self.diff is not None else ()
        return tuple(
            item
            for item in found
            if item.kind not in _OF_LAUNCH and item.name not in self.absent.names
        )


@dataclasses.dataclass(frozen=True)
class Question:
    """All that a verdict on a launch is made of.

    Attributes
    ----------
    launch, served
        The launch, and the launch in front of its release; None where the engine is not SGLang.
    unsure
        Why the release is not known well enough, "" where it is.
    loadings
        What is loaded as what: the draft, the target.
    asked
        What the engine's own parser and checks said; None where they were not asked.
    """

    launch: Launch
    served: Served | None = None
    unsure: str = ""
    loadings: tuple[Loading, ...] = ()
    rules: tuple[Rule, ...] = RULES
    asked: Asked | None = None

    @cached_property
    def ruled(self) -> tuple[tuple[Rule, Ruled], ...]:
        """What every rule finds, and what the engine itself says where it was asked."""
        found = () if self.served is None else tuple(ruled(self.served, self.rules))
        return (
            found
            if self.asked is None
            else tuple(own_checks.joined(found, self.asked, self.launch.engine))
        )

    @cached_property
    def rule_findings(self) -> tuple[Finding, ...]:
        """The findings of the rules."""
        return tuple(one.finding for _, one in self.ruled if one.finding is not None)

    def own_findings(self, loading: Loading) -> tuple[Finding, ...]:
        """Return what a loading found and the rules did not: `diff_keys` asks the rules of the launch too."""
        seen = {finding.code for finding in self.rule_findings}
        return tuple(finding for finding in loading.findings if finding.code not in seen)


def covered(question: Question, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage of a question; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    return cover(_items(question), (one for check in chosen for one in check(question)))


def _items(question: Question) -> Iterator[Item]:
    """Yield everything that the question covers."""
    yield Item("release", RELEASE)
    yield Item("launch", LAUNCH)
    for argument in _holding(question.launch):
        # A port or an address that is not known decides nothing of what is served.
        known = argument.value is not None or argument.key not in INCIDENTAL
        yield Item("argument", _name(argument), essential=known)
    for name, _ in _not_essential(question.launch):
        yield Item("argument", name, essential=False)
    yield from items(question.rules)
    if question.asked is not None:
        yield Item(own_checks.RULE.kind, own_checks.RULE.name)
    for loading in question.loadings:
        if loading.diff is None:
            essential = loading.role == DRAFT
            yield Item("loading", f"keys {_OF[loading.role]}", essential=essential)
            continue
        for item in loading.items:
            name = f"{item.name} {_OF[loading.role]}"
            yield Item(item.kind, name, count=item.count, essential=item.essential)
        if loading.absent.note is not None:
            how = loading.absent.note.title
            name = f"a part that is not there, {_OF[loading.role]}"
            yield Item("model", name, "open", how, essential=False)
    yield Item(
        "weight",
        "values of the weights",
        "open",
        "not read here: `workbench weights`",
        essential=False,
    )
    for name, how in ASIDE:
        yield Item("machine", name, "open", how, essential=False)


def _holding(launch: Launch) -> Iterator[Argument]:
    """Yield the last argument of each name: the one that holds."""
    seen: set[str] = set()
    for argument in reversed(launch.arguments):
        # A key of a JSON option is an argument of its own, and what it names another: one item.
        if not seen.intersection((argument.key, _name(argument))):
            seen |= {argument.key, _name(argument)}
            yield argument


def _name(argument: Argument) -> str:
    part = "." in argument.name  # of the JSON that an option takes
    return argument.raw if argument.raw.startswith("-") and not part else f"--{argument.name}"


def _not_essential(launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield what was not understood and does not decide what is served."""
    for one in launch.not_read:
        if not one.essential:
            yield f"{one.what} of the launch", one.why


def release(question: Question) -> Iterator[Settled]:
    """Settle whether the release is known."""
    state: State = "open" if question.unsure or question.served is None else "ok"
    how = question.unsure or (
        question.served.who if question.served else "its options are not known here"
    )
    yield Settled("release", RELEASE, state, how)


def launch(question: Question) -> Iterator[Settled]:
    """Settle whether the launch was read whole; what the parser refuses is settled by that rule."""
    refused = {
        ruled.finding.code
        for _, ruled in question.ruled
        if ruled.finding and ruled.moment == "parser"
    }
    doubts = [
        one
        for one in question.launch.doubts
        if one.options or not refused or "depends on" in one.why
    ]
    if doubts:
        yield Settled("launch", LAUNCH, "open", "; ".join(map(str, doubts[:3])))
    else:
        yield Settled("launch", LAUNCH, "ok", question.launch.form)


def arguments(question: Question) -> Iterator[Settled]:
    """Settle every argument: its value is known, and the parser takes it."""
    parser = [one for rule, one in question.ruled if rule.kind == "parser"]
    taken = bool(parser) and all(one.state == "ok" for one in parser)
    refused = {
        option: one
        for one in parser
        if one.state == "wrong"
        for option in (
            *(edit.option for edit in one.edits),
            *(one.finding.evidence_for if one.finding else ()),  # of one that has no correction
        )
    }
    whole = not any(one.options for one in question.launch.not_read)
    for argument in _holding(question.launch):
        name = _name(argument)
        if argument.raw in refused:
            yield Settled("argument", name, "wrong", refused[argument.raw].how)
        elif argument.value is None:
            yield Settled("argument", name, "open", "its value is not known")
        elif taken and whole:
            yield Settled("argument", name, "ok", argument.value)
        elif parser and any(one.state == "wrong" for one in parser):
            yield Settled("argument", name, "ok" if question.served else "open", argument.value)
    for name, why in _not_essential(question.launch):
        yield Settled("argument", name, "open", why)


def rules(question: Question) -> Iterator[Settled]:
    """Settle the item of every rule."""
    for rule, one in question.ruled:
        yield Settled(rule.kind, rule.name, one.state, one.how)


def loadings(question: Question) -> Iterator[Settled]:
    """Settle what is loaded as what: every key, parameter and contract of draft and target."""
    for loading in question.loadings:
        if loading.diff is None:
            yield Settled("loading", f"keys {_OF[loading.role]}", "open", loading.why)
            continue
        for item in loading.items:
            state: State = item.state
            if question.served is not None and not question.served.certain and state != "open":
                state = "open"
            yield Settled(item.kind, f"{item.name} {_OF[loading.role]}", state, item.how)


Check = Callable[[Question], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (release, launch, arguments, rules, loadings)


def moment_of(finding: Finding, diff: KeyDiff) -> Moment:
    """Return when a fault of a checkpoint shows."""
    known = _MOMENTS.get(finding.code)
    if known is not None:
        return known
    if diff.outcome == "raises" and finding.code in ("keys_lost", "tensors_missing"):
        return "load"
    return "serving"
