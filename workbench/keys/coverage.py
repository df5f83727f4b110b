"""What the question "does this engine load this checkpoint?" covers, and the checks that settle it.

`items` lists every key, every parameter, every contract, the config and the release. Each check of `CHECKS`
settles some of them; what none settles stays open, and the answer with it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.templates import describe
from workbench.core.finding import Finding
from workbench.core.verdict import Coverage, Item, Settled, State, cover
from workbench.core.wording import plural
from workbench.launch.records import Launch
from workbench.launch.rules.records import Ruled
from workbench.launch.rules.table import Rule
from workbench.loaders.outcome import LoadOutcome, ParameterGroup

# What each contract compares, in words; its key is the name of the contract's function.
CONTRACTS = {
    "config_form": "form of the config",
    "architecture": "model class of the config",
    "launched_as": "algorithm of the launch",
    "target_sizes": "width and vocabulary of the target",
    "qk_norm": "q_norm and k_norm",
    "heads": "sizes of the attention heads",
    "dtypes": "dtypes",
    "vocabulary": "draft vocabulary (d2t, t2d)",
    "head_and_embedding": "lm_head and embedding",
    "widths": "widths of fc and of the target's features",
    "norms": "norms and flags",
    "auxiliary_layers": "auxiliary layers",
}
LAUNCH = "the launch"
LOADER = "the loader runs to its end"
_BAD_KEYS = ("dropped", "mismatched")
_BAD_PARAMETERS = ("missing", "partial", "mismatched")


@dataclasses.dataclass(frozen=True)
class Question:
    """All that a verdict on keys is made of.

    Attributes
    ----------
    table, outcome
        The checkpoint's tensors, and where its loader puts them.
    contracts
        The findings of each contract that applies, by its name.
    unsure
        Why the release is not known well enough to be sure, "" where it is.
    uncovered
        What the profile does not describe, "" where it describes all.
    target
        Whether it was given.
    launch
        What of a given launch was not understood, "" where all was; None where none was given.
    launched
        The launch itself, as it was read.
    ruled
        What the rules of a launch find in it.
    draft
        Whether the checkpoint is an EAGLE-3 draft: only then its target and its launch matter.
    """

    table: TensorTable
    outcome: LoadOutcome
    contracts: Mapping[str, Sequence[Finding]] = dataclasses.field(default_factory=dict)
    unsure: str = ""
    uncovered: str = ""
    target: bool = False
    launch: str | None = None
    launched: Launch | None = None
    ruled: tuple[tuple[Rule, Ruled], ...] = ()
    draft: bool = False

    @property
    def known(self) -> bool:
        """Whether it is known what the engine does with this checkpoint."""
        return not self.unsure and not self.uncovered

    @property
    def release(self) -> str:
        """The engine with its version."""
        return f"{self.outcome.engine} {self.outcome.version}".strip()


def covered(question: Question, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage of a question; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    return cover(items(question), (one for check in chosen for one in check(question)))


def items(question: Question) -> Iterator[Item]:
    """Yield everything that the question covers."""
    yield Item("release", question.release)
    yield Item("config", "config.json")
    yield Item("loader", LOADER)
    for name, count in _keys(question).items():
        yield Item("key", name, count=count)
    for name, group in _parameters(question).items():
        yield Item("parameter", name, count=max(len(group.index), 1))
    for contract in question.contracts:
        yield Item("contract", CONTRACTS.get(contract, contract))
    if question.draft and not question.target:
        how = "the target was not given (target=)"
        yield Item("comparison", "sizes and vocabulary of the target", "open", how, essential=False)
    if question.launch is not None:
        yield Item("argument", LAUNCH)
        yield from _unread(question.launched)
        for rule in dict.fromkeys(rule for rule, _ in question.ruled):
            yield Item(rule.kind, rule.name, essential=rule.essential)
    elif question.draft:
        how = "the launch line was not given (launch=)"
        yield Item("argument", "arguments of the launch", "open", how, essential=False)


def _unread(launch: Launch | None) -> Iterator[Item]:
    """Yield what of a launch was not understood and does not decide what is served: its port, say."""
    named: dict[str, str] = {}
    for one in launch.not_read if launch is not None else ():
        if not one.essential:
            named.setdefault(f"{one.what} of the launch", one.why)
    for what, why in named.items():
        yield Item("argument", what, "open", why, essential=False)


def _keys(question: Question) -> dict[str, int]:
    groups = Counter[str]()
    for group in question.table.groups:
        groups[describe(group.template, group.index)] += len(group)
    return dict(groups)


def _parameters(question: Question) -> dict[str, ParameterGroup]:
    named: dict[str, ParameterGroup] = {}
    for group in question.outcome.parameters:
        name = group.text
        named[name if name not in named else f"{name} ({group.status})"] = group
    return named


def release(question: Question) -> Iterator[Settled]:
    """Settle whether this release's loader is known."""
    if question.unsure:
        yield Settled("release", question.release, "open", question.unsure)
    else:
        yield Settled("release", question.release, "ok", question.outcome.basis.replace("_", " "))


def config(question: Question) -> Iterator[Settled]:
    """Settle whether the engine accepts the config, as far as the profile describes it."""
    outcome = question.outcome
    if question.uncovered:
        yield Settled("config", "config.json", "open", question.uncovered)
    elif outcome.outcome == "refused":
        yield Settled("config", "config.json", _sure(question, "wrong"), outcome.error)
    else:
        yield Settled("config", "config.json", _sure(question, "ok"), "accepted")


def ends(question: Question) -> Iterator[Settled]:
    """Settle whether the loader runs to its end."""
    stops = question.outcome.outcome == "raises"
    how = question.outcome.error if stops else "it raises nothing"
    yield Settled("loader", LOADER, _sure(question, "wrong" if stops else "ok"), how)


def keys(question: Question) -> Iterator[Settled]:
    """Settle every key: where the loader puts it."""
    fate = np.full(len(question.table), -1)
    for number, group in enumerate(question.outcome.keys):
        fate[group.tensors.at] = number
    by_name: dict[str, list[int]] = {}
    for tensors in question.table.groups:
        named = by_name.setdefault(describe(tensors.template, tensors.index), [])
        named += np.unique(fate[tensors.at]).tolist()
    for name, numbers in by_name.items():
        groups = [question.outcome.keys[number] for number in numbers if number >= 0]
        bad = [group for group in groups if group.status in _BAD_KEYS]
        if bad:
            how = f"{bad[0].status}: {bad[0].reason}"
            yield Settled("key", name, _sure(question, "wrong"), how)
        elif -1 not in numbers:
            statuses = " or ".join(dict.fromkeys(group.status for group in groups))
            yield Settled("key", name, _sure(question, "ok"), statuses)


def parameters(question: Question) -> Iterator[Settled]:
    """Settle every parameter: whether it is written whole."""
    for name, group in _parameters(question).items():
        state: State = "wrong" if group.status in _BAD_PARAMETERS else "ok"
        yield Settled("parameter", name, _sure(question, state), group.status)


def contracts(question: Question) -> Iterator[Settled]:
    """Settle every contract: broken for certain, perhaps broken, or kept."""
    for contract, findings in question.contracts.items():
        name = CONTRACTS.get(contract, contract)
        breaking = [f for f in findings if f.changes_output and f.severity != "note"]
        certain = [f for f in breaking if f.severity == "error" and f.confidence == "certain"]
        if certain:
            yield Settled("contract", name, _sure(question, "wrong"), certain[0].title)
        elif breaking:
            yield Settled("contract", name, "open", breaking[0].title)
        else:
            yield Settled("contract", name, _sure(question, "ok"), "kept")


def launch_line(question: Question) -> Iterator[Settled]:
    """Settle whether a launch that was given was understood."""
    if question.launch is not None:
        state: State = "open" if question.launch else "ok"
        yield Settled("argument", LAUNCH, state, question.launch or _understood(question.launched))


def launch_rules(question: Question) -> Iterator[Settled]:
    """Settle what the rules of a launch find: its parser, its own checks, the sums."""
    for rule, one in question.ruled:
        yield Settled(rule.kind, rule.name, _sure(question, one.state), one.how)


def _understood(launch: Launch | None) -> str:
    count = len(launch.arguments) if launch is not None else 0
    return f"understood ({plural(count, 'argument')})" if count else "understood"


def _sure(question: Question, state: State) -> State:
    """Return a state that holds only where the release and the config are known."""
    return state if question.known else "open"


Check = Callable[[Question], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (
    release, config, ends, keys, parameters, contracts, launch_line, launch_rules,
)  # fmt: skip
