"""One unseen case: its truth, what an answer may say, and its evidence as data."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_name("cases")
# The sets by name. The second was written by somebody who had not read the rules, for kinds that the first
# has little of.
SETS = {"first": CASES, "second": Path(__file__).with_name("second")}
# What is true of the server: the first three are sick, the others are well or at work.
SICK = frozenset({"hung", "dead", "stopped"})
KINDS = SICK | {"idle", "serving", "slow"}
TRUTHS = frozenset(
    {
        "reported cause confirmed",  # a merged change or the maintainers say so
        "as the report states it",  # nobody has confirmed it
        "by construction",  # the report gave the shape, the case the truth
    }
)
_EVIDENCE = ("stacks", "snapshots", "process", "files", "flight")


@dataclasses.dataclass(frozen=True)
class Expected:
    """What an answer may and must say.

    Attributes
    ----------
    states
        The acceptable states. ``cannot_tell`` is right only where it is listed.
    phases
        The acceptable phases; empty: not judged.
    may, must
        Ranks that may be, and that must be, named as odd or missing.
    says, not_says
        Patterns for the verdict sentence and the titles of the findings.
    next, next_not
        Patterns for the change of the experiment: one of them, and none of them.
    not_exit_0
        Whether an exit status of 0 would be a false all-clear, whatever the state.
    """

    states: tuple[str, ...]
    phases: tuple[str, ...] = ()
    may: tuple[int, ...] = ()
    must: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    not_says: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    next_not: tuple[str, ...] = ()
    not_exit_0: bool = False


@dataclasses.dataclass(frozen=True)
class UnseenCase:
    """A case: `kind` is what is true, `truth` how that is known, `form` how a user gives it."""

    name: str
    source: str
    kind: str
    engine: str
    form: str
    truth: str
    why: str
    expected: Expected
    evidence: Mapping[str, Any]

    @property
    def sick(self) -> bool:
        return self.kind in SICK


def read_case(path: Path) -> UnseenCase:
    """Read one case."""
    data = tomllib.loads(path.read_text())
    given = data.pop("expected")
    not_exit_0 = given.pop("not_exit_0", False)
    lists = {name: tuple(value) for name, value in given.items()}
    expected = Expected(**lists, not_exit_0=not_exit_0)
    evidence = {name: data.pop(name) for name in _EVIDENCE if name in data}
    return UnseenCase(name=path.stem, expected=expected, evidence=evidence, **data)


def read_cases(name: str = "first") -> list[UnseenCase]:
    """Read all cases of one set, by name."""
    return [read_case(path) for path in sorted(SETS[name].glob("*.toml"))]
