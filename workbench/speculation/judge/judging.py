"""The verdict on a replay: pure, from what was counted, what was expected and what static checks found.

The rules, in this order:

1. Texts that repeat themselves are no evidence, nor are counts that contradict each other or cannot be:
   cannot tell.
2. Acceptance is that of the engine where a real one was recorded, else the replay's. It is *low* where fewer
   than 80 % of the expected drafts are accepted, by more than chance, and as expected where less than 3 % of
   the expected length is missing, or less than 5 % that may be chance; between them it is open. Without an
   expectation it is low only where hardly any is accepted (`HARDLY` a round): a small draft is not accused of
   being small.
3. Low, and something is known that changes what is computed (a static check, weights that hold no known
   values): wrong where undoing it brings acceptance back. Where it does not, or nothing undoes it, the fault
   is reported, and not as the cause.
4. Low without that: a loss all the same where it is certain (an expectation, more than chance, texts that the
   target chose); its cause is not known, and the ablations are the next step. Where these files accept more
   than the engine that served them, the engine loses it.
5. A folder that the engine refuses is wrong, whatever its flat form accepts: it is never served.
6. Not low: right only where an expectation says so, no static check is broken, no part of a log is much
   lower, and the replay does what the engine did; else cannot tell.

`ok` follows from `coverage`; what is here is the sentence that goes with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.core.finding import GRAVITY, Confidence, Finding
from workbench.core.verdict import Coverage, Verdict
from workbench.speculation.judge import replay_findings
from workbench.speculation.judge.coverage import ReplayEvidence, covered
from workbench.speculation.judge.engine_loss import look_at_engine
from workbench.speculation.judge.thresholds import FAITHFUL
from workbench.speculation.judge.unmodelled import named

_OVERTURNED = {
    True: ("an expected acceptance that is of another draft, or of other texts",),
    False: ("the server, launched again with only that repaired, accepting as little as before",),
    None: (),
}
_STARTS = ("a server of that version that starts with this folder as it is",)


@dataclasses.dataclass(frozen=True)
class Judged:
    """The verdict, and all findings."""

    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool | None:
        """True: as expected. False: a cause is known. None: cannot tell."""
        return self.verdict.ok

    @property
    def summary(self) -> str:
        """The verdict in one or two sentences."""
        return self.verdict.sentence


def judge(evidence: ReplayEvidence) -> Judged:
    """Return the verdict, its sentence, and all findings, the static ones first among equals."""
    parts = (replay_findings.texts, replay_findings.fidelity, replay_findings.doubts)
    found = [*evidence.known, *(finding for part in parts for finding in part(evidence))]
    found += replay_findings.losses(evidence)
    found += [evidence.refused] if evidence.refused is not None else []
    coverage = covered(evidence)
    state = _state(evidence, coverage.ok)
    sentence = f"{_accepted(evidence)} {_sentence(evidence, coverage)}".strip()
    verdict = Verdict(
        state,
        sentence,
        _confidence(evidence, coverage.ok),
        coverage,
        _STARTS if state == "refused" else _OVERTURNED[coverage.ok],
    )
    return Judged(verdict, tuple(sorted(found, key=lambda f: GRAVITY[f.severity])))


def _state(evidence: ReplayEvidence, ok: bool | None) -> str:
    if ok is not False:
        return "as_expected" if ok else "cannot_tell"
    if evidence.proved:
        return "cause_known"
    if evidence.refused is not None and not evidence.lost:
        return "refused"
    return "engine_accepts_less" if evidence.engine_loses else "acceptance_lost"


def suspects(evidence: ReplayEvidence) -> bool:
    """Tell whether the verdict rests on what is known to be wrong, so that undoing that is worth its time."""
    return bool(not evidence.silent and evidence.counts.low and evidence.faults)


def _confidence(evidence: ReplayEvidence, ok: bool | None) -> Confidence:
    if ok is None:
        return "unknown"
    if evidence.refused is not None and not ok:
        return evidence.refused.confidence
    return "likely" if ok or evidence.proof is None else evidence.proof.confidence


def _sentence(evidence: ReplayEvidence, coverage: Coverage) -> str:
    """Return what follows from the counts, and where nothing does, what is missing."""
    counts, causes = evidence.counts, evidence.faults
    if evidence.refused is not None and not (evidence.proved or evidence.lost):
        return f"But {evidence.refused.title}: that is what the flat form of it accepts."
    if coverage.ok:
        same = counts.agreement.share if counts.agreement is not None else None
        if same is not None and same < FAITHFUL:
            return (
                f"That is what is expected; replay and engine part in {1 - same:.0%} of the rounds."
            )
        return "That is what is expected."
    if evidence.silent:
        return evidence.silent
    if evidence.engine_loses and not evidence.proved:
        return ""  # the sentence begins with it
    unmodelled = named(evidence.fields)
    if counts.low is None and counts.unlike:
        return f"Cannot tell: {unmodelled and unmodelled + ', and '}{counts.unlike}."
    if counts.low is None:
        known = f" Known to be wrong: {_titles(causes)}." if causes else ""
        return f"Cannot tell: {counts.between}.{known}"
    if counts.low and causes:
        return _suspected(evidence, causes)
    if counts.low and counts.replayed is None:
        return f"{_loss(evidence)}Cannot tell why: counts alone do not show it; give texts, target and draft."
    if counts.low:
        return (
            f"{_loss(evidence)}Cannot tell why: static checks find no cause; the ablations change one thing "
            "at a time."
        )
    if causes:
        return f"Cannot tell what this costs: {_titles(causes)}."
    if counts.expected is None:
        return (
            "Cannot tell whether this draft can do better: there is no expected acceptance length."
        )
    if counts.unlike:
        return (
            f"Cannot tell: {unmodelled and unmodelled + ', and '}{counts.unlike}, and its counts may be of "
            "something else."
        )
    if counts.stretch and counts.logged is not None:
        return (
            f"Cannot tell: a tenth of the log's lines report {counts.logged.tenth:.2f} or less. Some "
            "requests, or some time, go wrong; examine those lines alone."
        )
    missing = next(coverage.having("open", essential=True))
    known = "the replay does not model " if missing in evidence.fields else ""
    return f"Cannot tell: {known}{missing.name}: {missing.how}."


def _loss(evidence: ReplayEvidence) -> str:
    return "That is a loss. " if evidence.lost else ""


def _suspected(evidence: ReplayEvidence, causes: Sequence[Finding]) -> str:
    """Return the sentence on acceptance that is low where something is known to be wrong."""
    proof = evidence.proof
    if proof is None:
        known = f"Known to be wrong: {_titles(causes)}."
        if evidence.counts.replayed is None:
            return (
                f"{known} Cannot tell what it costs: counts alone do not show it; give texts and "
                "target."
            )
        return f"{known} Cannot tell what it costs: the ablations show it."
    undone = (
        ""
        if proof.length is None
        else f"with {proof.words} the acceptance length is {proof.length:.2f}"
    )
    if proof.proved:
        return f"A cause is known: {_titles(causes, proof.titles)}{undone and ': ' + undone}."
    vain = f" But {undone}: that alone does not bring it back." if undone else ""
    return (
        f"Known to be wrong: {_titles(causes)}.{vain} Cannot tell the cause: the ablations change one "
        "thing at a time."
    )


def _titles(causes: Sequence[Finding], first: tuple[str, ...] = ()) -> str:
    """Return the title of what was undone, or of the first, and how many more there are."""
    titles = [cause.title.rstrip(".") for cause in causes]
    chosen = next((title for title in titles if title in first), titles[0])
    return f"{chosen} ({len(causes) - 1} more below)" if len(causes) > 1 else chosen


def _accepted(evidence: ReplayEvidence) -> str:
    """Return the sentence that says what was accepted."""
    counts = evidence.counts
    if counts.length is None:
        return ""
    ran = evidence.ran or (evidence.launch.engine if evidence.launch else "")
    if evidence.engine_loses and not evidence.proved and evidence.files is not None:
        wanted = (
            f", and {counts.expected.accept_length:.2f} are expected" if counts.expected else ""
        )
        return look_at_engine(evidence.files, f"{counts.length:.2f}{wanted}", evidence.does)
    who = ran.replace("==", " ") if counts.real else ""
    who = who or ("The engine" if counts.of_engine else "The replay")
    accepted = counts.length - 1
    number = "no draft token" if accepted < 0.0005 else f"{accepted:.2f} draft tokens a round"
    wanted = f", {counts.expected.accept_length:.2f} expected" if counts.expected else ""
    text = f"{who} accepts {number} (acceptance length {counts.length:.2f}{wanted})."
    if counts.alike is not None:
        text += (
            f" Counted from every place, as the trainer counts, the replay has {counts.alike:.2f}."
        )
    return text
