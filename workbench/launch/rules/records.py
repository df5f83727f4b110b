"""What rules look at, and what they rule: one launch, one release, the models that it names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from packaging.version import Version

from workbench.checkpoint.config import Config
from workbench.core.finding import Confidence, Finding, Severity
from workbench.core.verdict import State
from workbench.facts import rows
from workbench.facts.gpus import Gpu
from workbench.launch.records import Launch
from workbench.launch.rules.settings import Settings

Moment = Literal[
    "parser", "checks", "load", "memory", "capture", "first request", "serving", "unknown"
]
"""When a fault shows: the parser refuses the line, the engine's own checks of its arguments do, …"""

WHEN: Mapping[Moment, str] = {
    "parser": "at once: the parser refuses the line",
    "checks": "at once: the engine's own checks of its arguments",
    "load": "while the models are loaded",
    "memory": "while memory is allocated",
    "capture": "while CUDA graphs are captured",
    "first request": "at the first request",
    "serving": "never: it serves, and reports nothing",
    "unknown": "it is not known when",
}
"""In words, in the order in which they come."""


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """One change of a command line: `option` as it is typed, with dashes; None removes it.

    With `words` it replaces just these (a misspelt option, its value left alone).
    """

    option: str
    value: str | None = None
    rename: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Ruled:
    """What one rule found about one item.

    Attributes
    ----------
    name
        Of the item, as `items` lists it.
    how
        In words; of a fault, its statement.
    moment
        When the fault shows.
    finding
        For a fault or a note; None where there is nothing to report.
    edits
        What would correct the line; () where that is not known.
    """

    name: str
    state: State
    how: str
    moment: Moment = "unknown"
    finding: Finding | None = None
    edits: tuple[Edit, ...] = ()


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that a launch names, as far as it can be read here.

    Attributes
    ----------
    name
        As the launch names it.
    config
        Empty where there is none.
    problem
        Why it cannot be read, "" where it can.
    absent
        Whether it is a path, and nothing is there.
    bytes
        What its tensors take, by dtype; None where the headers were not read.
    """

    name: str
    config: Config = dataclasses.field(default_factory=Config)
    problem: str = ""
    absent: bool = False
    bytes: int | None = None

    @property
    def readable(self) -> bool:
        """Whether there is a config."""
        return bool(self.config)

    def number(self, *names: str) -> int | None:
        """Return the first whole number of the config among several names, None where there is none."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def model_class(self) -> str:
        """The first class that the config names."""
        return self.config.architectures[0] if self.config.architectures else ""


@dataclasses.dataclass(frozen=True)
class Served:
    """A launch in front of one release.

    Attributes
    ----------
    version
        As it was given; `release` is the one that was read, or the one that stands for it.
    target, draft
        None where the launch names none.
    gpu
        What it is to run on, None where nobody said.
    """

    launch: Launch
    version: str
    target: Model | None = None
    draft: Model | None = None
    gpu: Gpu | None = None

    @cached_property
    def release(self) -> str:
        """The release of which the facts are."""
        return rows.nearest("sglang", self.version)

    @property
    def certain(self) -> bool:
        """Whether this release was read."""
        return rows.known("sglang", self.version) is not None

    @cached_property
    def settings(self) -> Settings:
        """The values that hold, with the defaults of the release."""
        return Settings(self.launch, self.release)

    @property
    def who(self) -> str:
        """The engine with its version, for a sentence."""
        return f"SGLang {self.version}".strip()

    def within(self, first: str, last: str = "") -> bool:
        """Whether the release lies in a range; "" for no end."""
        at = Version(self.release)
        return at >= Version(first or "0") and (not last or at <= Version(last))

    @property
    def started(self) -> bool:
        """Whether the launch was read from what a running server prints: its parser has accepted it."""
        return self.launch.form == "log" or not self.launch.options

    @property
    def fragment(self) -> bool:
        """Whether the text is arguments alone, which may not be all: it names no program."""
        return bool(self.launch.options) and not self.launch.program

    @cached_property
    def algorithm(self) -> str:
        """The algorithm as the release takes it: "" without one."""
        text = self.settings.text("speculative-algorithm") or ""
        text = text.upper() if self.within("0.5.12") else text
        return "" if text in ("", "NONE") else text

    @property
    def speculates(self) -> bool:
        """Whether a draft model drafts."""
        return self.algorithm in DRAFTING

    @property
    def eagle(self) -> bool:
        """Whether the algorithm is of the EAGLE family: steps, topk and draft tokens mean a tree."""
        return self.algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


DRAFTING = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH", "DSPARK"})


def not_typed(name: str, launch: Launch) -> Iterator[Ruled]:
    """Yield a fault for characters that came with a copied line: a shell does not read them as they look."""
    if launch.pasted:
        yield fault(
            name,
            "not_as_typed",
            f"the line has {' and '.join(launch.pasted)}",
            "parser",
            detail="They come from a page, a chat or a PDF, and look right. A shell or the parser takes them "
            "for part of a word. Everything else was checked with the characters of a keyboard.",
            evidence=launch.pasted,
            next_step="Paste the corrected line.",
        )


def fault(
    name: str,
    code: str,
    title: str,
    moment: Moment,
    *,
    detail: str = "",
    evidence: Iterable[str] = (),
    next_step: str = "",
    edits: Iterable[Edit] = (),
    place: str = "",
    state: State = "wrong",
    severity: Severity = "error",
    confidence: Confidence = "certain",
    changes: bool = True,
) -> Ruled:
    """Return what a rule found wrong."""
    finding = Finding(
        code=code,
        severity=severity,
        title=title,
        detail=detail,
        evidence_for=tuple(evidence),
        confidence=confidence,
        changes_output=changes and state == "wrong",
        next_step=next_step,
        place=place,
    )
    return Ruled(name, state, title, moment, finding, tuple(edits))


def note(
    name: str,
    code: str,
    title: str,
    *,
    detail: str = "",
    evidence: Iterable[str] = (),
    next_step: str = "",
) -> Ruled:
    """Return a remark that changes nothing: the item is settled."""
    finding = Finding(
        code=code, severity="note", title=title, detail=detail,
        evidence_for=tuple(evidence), next_step=next_step,
    )  # fmt: skip
    return Ruled(name, "ok", title, finding=finding)


def unclear(name: str, how: str, *, finding: Finding | None = None) -> Ruled:
    """Return that an item is not settled, and why."""
    return Ruled(name, "open", how, finding=finding)


def fine(name: str, how: str) -> Ruled:
    """Return that an item is healthy."""
    return Ruled(name, "ok", how)


Values = Mapping[str, Any]
