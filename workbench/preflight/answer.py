"""From what was settled to the answer: what fails first, when, and the line that would not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from workbench.core.finding import GRAVITY, Confidence, Finding
from workbench.core.verdict import Coverage, Verdict
from workbench.core.wording import begun
from workbench.launch import other_engines
from workbench.launch.options import read_arguments
from workbench.launch.records import Place
from workbench.launch.rules.corrected import corrected, line_of
from workbench.launch.rules.records import WHEN, Edit
from workbench.launch.rules.table import ruled
from workbench.preflight.question import Question, moment_of
from workbench.preflight.records import Fault

_ORDER = list(WHEN)


def faults(question: Question) -> tuple[Fault, ...]:
    """Return what fails, the first in time first; then what may fail."""
    found = [*_ruled(question), *_loaded(question)]
    return tuple(sorted(found, key=lambda one: (not one.certain, _ORDER.index(one.moment))))


def _ruled(question: Question) -> Iterator[Fault]:
    for _, one in question.ruled:
        if one.finding is not None and one.finding.severity == "error":
            yield Fault(one.moment, one.finding.title, one.finding.code, one.state == "wrong")


def _loaded(question: Question) -> Iterator[Fault]:
    known = question.served is None or question.served.certain
    for loading in question.loadings:
        diff = loading.diff
        if diff is None:
            continue
        for finding in question.own_findings(loading):
            if finding.severity == "error" and finding.changes_output:
                sure = loading.ok is False and finding.confidence == "certain" and known
                yield Fault(moment_of(finding, diff), finding.title, finding.code, sure)


def findings(question: Question) -> tuple[Finding, ...]:
    """Return all findings: those of what fails first before the others."""
    order: dict[str, int] = {}
    for at, fault in enumerate(faults(question)):
        order.setdefault(fault.code, at)
    found = list(question.rule_findings)
    for loading in question.loadings:
        found += question.own_findings(loading)
    kept = {(finding.code, finding.title): finding for finding in found}
    last = len(order)
    return tuple(
        sorted(kept.values(), key=lambda f: (GRAVITY[f.severity], order.get(f.code, last)))
    )


def verdict(question: Question, coverage: Coverage, found: tuple[Fault, ...], who: str) -> Verdict:
    """Return the verdict; whether it is one follows from the coverage."""
    certain = [one for one in found if one.certain]
    sure: Confidence = "certain"
    if coverage.ok is False:
        state, sentence = "fails", _fails(certain, who)
    elif coverage.ok:
        state = "starts"
        sentence = f"{who} takes this launch: nothing that a launch decides is wrong."
        sure = "likely"
    else:
        state, sure = "cannot_tell", "unknown"
        sentence = f"Cannot tell: {_missing(coverage)}. Nothing is found that fails for certain."
    doubt = "the engine's own parser or loader doing otherwise"
    return Verdict(state, sentence, sure, coverage, (doubt,))


def _fails(certain: list[Fault], who: str) -> str:
    first = certain[0] if certain else None
    if first is None:
        return f"{who}: something of this launch is wrong."
    more = len(certain) - 1
    also = f" {more} more {'thing is' if more == 1 else 'things are'} wrong." if more else ""
    begins = (
        "This launch serves, and does not do what it is for."
        if first.moment == "serving"
        else f"This launch fails {WHEN[first.moment]}."
    )
    return f"{begins} {begun(first.text).rstrip('.')}.{also}"


def _missing(coverage: Coverage) -> str:
    item = next(coverage.having("open", essential=True), None)
    return f"{item.name}: {item.how}" if item is not None else "nothing was checked"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """The launch with its faults corrected ("" where no correction is known), and what is left of them."""

    text: str = ""
    left: tuple[str, ...] = ()


def line(question: Question) -> Line:
    """Return the launch with its faults corrected; the rules are asked about it again."""
    edits: list[Edit] = []
    for _, one in question.ruled:
        if one.state == "wrong" and one.finding is not None and one.finding.severity == "error":
            edits += one.edits
    for loading in question.loadings:
        for finding in loading.findings:
            if finding.code == "launched_as_eagle" and finding.changes_output:
                edits.append(Edit(_typed(question), "EAGLE3"))
    served = question.served
    if not question.launch.options or served is None:
        return Line()
    words = corrected(question.launch.options, edits)
    if tuple(words) == question.launch.options and not question.launch.pasted:
        return Line()
    if question.launch.engine == "sglang":
        read = read_arguments(words, served.version, Place())
    else:
        read = other_engines.read_arguments(words, Place())
    launch = dataclasses.replace(
        question.launch,
        options=tuple(words),
        arguments=read.arguments,
        not_read=read.not_read,
        pasted=(),
    )
    again = ruled(dataclasses.replace(served, launch=launch), question.rules)
    still = dict.fromkeys(one.how for _, one in again if one.state == "wrong")
    return Line(line_of(launch, words), tuple(still))


def _typed(question: Question) -> str:
    found = question.launch.argument("speculative-algorithm")
    return found.raw if found is not None else "--speculative-algorithm"
