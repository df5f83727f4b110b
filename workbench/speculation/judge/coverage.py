"""What a replay's question covers, and the checks that settle it.

The question: does this draft accept what it should, as it was served? `items` lists what that covers; each
check of `CHECKS` settles some of it. What no check settles stays open, and the answer with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from workbench.core.finding import Confidence, Finding
from workbench.core.verdict import Coverage, Item, Settled, cover
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.judge.counts import Counts
from workbench.speculation.judge.replay_findings import unwritten_memory
from workbench.speculation.judge.texts import Texts

AMOUNT = ("amount of evidence", "number of rounds")
TEXTS = ("repetition of the texts", "texts that do not repeat themselves")
ONE_RUN = ("consistency of the counts", "all counts are of one run")
ACCEPTANCE = ("acceptance", "acceptance compared with the expected acceptance")
RECORDED = ("recorded round", "recorded rounds, reproduced by the replay")
LOG = ("log line", "lines of the log, each compared with the expected acceptance")
LAUNCH = "the launch of the server, as it was recorded"
FOLDER = ("folder", "config.json of the draft, in a form that the engine reads")
STATIC = ("static check", "files, config and launch of the draft, checked without a replay")


@dataclasses.dataclass(frozen=True)
class Proof:
    """What came of undoing what is known to be wrong, on some of the requests.

    Attributes
    ----------
    proved
        Whether that brings acceptance back.
    titles
        What was undone, as the findings' titles say it.
    words, length
        The change, and the accept length with it; "" and None where nothing could be undone.
    confidence
        How sure it is that this is the cause.
    switches
        The names of the changes, as the ablations call them.
    """

    proved: bool
    titles: tuple[str, ...] = ()
    words: str = ""
    length: float | None = None
    confidence: Confidence = "likely"
    switches: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReplayEvidence:
    """Everything that a replay's verdict rests on; see `Replay` for the same names.

    Attributes
    ----------
    counts
        What was accepted and what is expected.
    filled
        Weights that have no known values.
    static
        What was known before the replay.
    unchecked
        Why not all of the static checks could be made, "" where they were.
    fields
        What of the draft's config the replay does not compute with.
    refused
        That the engine does not accept the draft's folder as it is; the replay is of the flat form.
    ran
        The engine that the evidence is of, where another one was replayed.
    files
        What these files accept on the texts of a recorded run, where its engine clearly accepted less and it
        is as much as it should be; None otherwise.
    does
        What the engine does that its recorded rounds show, in a sentence.
    proof
        What came of undoing what static checks suspect.
    """

    counts: Counts
    engine: str = ""
    launch: DraftLaunch | None = None
    fills: dict[str, float] = dataclasses.field(default_factory=dict)
    filled: tuple[str, ...] = ()
    texts: Texts | None = None
    static: tuple[Finding, ...] = ()
    unchecked: str = ""
    fields: tuple[Item, ...] = ()
    refused: Finding | None = None
    ran: str = ""
    files: float | None = None
    does: str = ""
    proof: Proof | None = None

    @cached_property
    def known(self) -> tuple[Finding, ...]:
        """What is known without the counts."""
        return (*self.static, *unwritten_memory(self))

    @property
    def faults(self) -> list[Finding]:
        """What certainly or perhaps changes what the draft computes, and should not."""
        return [f for f in self.known if f.severity == "error" and f.changes_output]

    @property
    def silent(self) -> str:
        """Why nothing can be concluded from this evidence, "" where something may."""
        if self.counts.length is None:
            return "Cannot tell: the evidence does not report how many drafts were accepted."
        if self.counts.few:
            return f"Cannot tell: {self.counts.few} are too few for a conclusion."
        if self.texts is not None and self.texts.refused:
            return f"Cannot tell: {self.texts.refused}, and in a loop a broken draft is right too."
        if self.counts.doubtful:
            return f"Cannot tell: {self.counts.doubtful}."
        return ""

    @property
    def lost(self) -> bool:
        """Whether less is accepted than expected for certain, whatever the cause; not on sampled texts."""
        sampled = self.texts is not None and self.texts.sampled
        return not self.silent and not sampled and self.counts.lost

    @property
    def engine_loses(self) -> bool:
        """Whether the engine accepts less than its files, and that is certain."""
        certain = self.lost or (bool(self.does) and not self.silent)
        return self.files is not None and not self.filled and certain

    @property
    def proved(self) -> bool:
        """Whether acceptance is low, and undoing a known fault brings it back."""
        low = not self.silent and self.counts.low is True and bool(self.faults)
        return low and self.proof is not None and self.proof.proved


def covered(evidence: ReplayEvidence, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage of a replay; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    return cover(items(evidence), (one for check in chosen for one in check(evidence)))


def items(evidence: ReplayEvidence) -> Iterator[Item]:
    """Yield everything that the question covers."""
    counts = evidence.counts
    yield Item(*AMOUNT)
    if evidence.texts is not None:
        yield Item(*TEXTS)
    yield Item(*ONE_RUN)
    yield Item(*ACCEPTANCE)
    if counts.agreement is not None and counts.agreement.rounds:
        yield Item(*RECORDED, count=counts.agreement.rounds)
    elif counts.observed is not None or counts.logged is not None:
        how = "the evidence has no rounds to replay"
        yield Item(*RECORDED, how=how, essential=False)
    if counts.tally is None and counts.logged is not None:
        yield Item(*LOG, count=max(counts.logged.lines, 1))
    launch = evidence.launch
    if launch is not None and launch.unread:
        yield Item("argument", LAUNCH, "open", "; ".join(launch.unread[:3]))
    # What a real engine accepted is accepted, whatever a file says.
    yield Item(*STATIC, essential=not counts.of_engine)
    if evidence.engine and not counts.of_engine:
        yield Item(*FOLDER)
    yield from fault_items(evidence.known)
    yield from evidence.fields


def fault_items(findings: Iterable[Finding]) -> Iterator[Item]:
    """Yield an item for each finding that changes the output; two checks may find the same fault."""
    grave: dict[str, bool] = {}
    for finding in findings:
        if finding.changes_output:
            grave[finding.title] = grave.get(finding.title, False) or finding.severity == "error"
    for title, essential in grave.items():
        yield Item("fault", title, essential=essential)


def amount(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether there are rounds enough to conclude from."""
    counts = evidence.counts
    if counts.length is None:
        yield Settled(*AMOUNT, "open", "the evidence reports none")
    elif counts.few:
        yield Settled(*AMOUNT, "open", f"{counts.few} are too few")
    else:
        of = f"{counts.rounds:,} rounds" if counts.tally else "a log of enough lines"
        yield Settled(*AMOUNT, "ok", of)


def repetition(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether the texts repeat themselves."""
    texts = evidence.texts
    if texts is None:
        return
    if texts.refused:
        yield Settled(*TEXTS, "open", texts.refused)
    else:
        yield Settled(*TEXTS, "ok", f"{len(texts.kept)} of {texts.requests} answers do not")


def one_run(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether the counts can be of one run."""
    doubtful = evidence.counts.doubtful
    how = doubtful or "they agree, and a round can accept as many"
    yield Settled(*ONE_RUN, "open" if doubtful else "ok", how)


def acceptance(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether acceptance is as expected, low by a proved fault, or neither."""
    counts, expected = evidence.counts, evidence.counts.expected
    proof = evidence.proof
    if evidence.proved and proof is not None:
        with_it = "" if proof.length is None else f"; with {proof.words} it is {proof.length:.2f}"
        yield Settled(
            *ACCEPTANCE, "wrong", f"the acceptance length is {counts.length:.2f}{with_it}"
        )
    elif evidence.engine_loses:
        how = (
            f"the acceptance length is {counts.length:.2f}; these files accept {evidence.files:.2f}"
        )
        yield Settled(*ACCEPTANCE, "wrong", how)
    elif evidence.lost and expected is not None:
        how = f"{counts.length:.2f} of {expected.accept_length:.2f}: lost, and the cause is not proved"
        yield Settled(*ACCEPTANCE, "wrong", how)
    elif expected is None:
        how = "there is nothing to compare with (expected=: a number, the trainer's metrics, a run)"
        yield Settled(*ACCEPTANCE, "open", how)
    elif counts.low is False:
        how = f"{counts.alike or counts.length:.2f} of {expected.accept_length:.2f} tokens a round"
        yield Settled(*ACCEPTANCE, "ok", how)
    elif counts.low:
        how = f"{counts.length:.2f} of {expected.accept_length:.2f}, and the cause is not proved"
        yield Settled(*ACCEPTANCE, "open", how)
    else:
        yield Settled(*ACCEPTANCE, "open", counts.between or "the evidence reports none")


def reproduction(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether the replay does what the engine did."""
    same = evidence.counts.agreement
    if same is None or same.share is None:
        return
    unlike = evidence.counts.unlike
    how = unlike or f"{same.share:.1%} of them accept as many drafts as in the engine"
    yield Settled(*RECORDED, "open" if unlike else "ok", how)


def log_lines(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether a log has stretches that are much lower than its mean."""
    log = evidence.counts.logged
    if log is None or evidence.counts.tally is not None:
        return
    if evidence.counts.stretch:
        yield Settled(*LOG, "open", f"a tenth of them report {log.tenth:.2f} or less")
    else:
        yield Settled(*LOG, "ok", "none of its stretches is much lower than the mean")


def faults(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle each static fault: the cause of the loss, without effect on acceptance, or not known."""
    how = evidence.unchecked
    yield Settled(
        *STATIC, "open" if how else "ok", how or f"faults found: {len(evidence.faults) or 'none'}"
    )
    proof, named = evidence.proof, _undone(evidence)
    for finding in evidence.known:
        if not finding.changes_output:
            continue
        if finding in evidence.faults and evidence.proved and finding in named:
            yield Settled("fault", finding.title, "wrong", "undone, acceptance comes back")
        elif finding not in evidence.faults and evidence.counts.low is False:
            yield Settled("fault", finding.title, "ok", "acceptance is as expected with it")
        elif proof is not None and proof.length is not None and finding in named:
            how = f"undone, the acceptance length is {proof.length:.2f}: something else may hide it"
            yield Settled("fault", finding.title, "open", how)
        else:
            yield Settled("fault", finding.title, "open", "what it costs was not measured")


def folder(evidence: ReplayEvidence) -> Iterator[Settled]:
    """Settle whether the engine accepts the draft's folder; where it served, it was given what it accepts."""
    if not evidence.engine or evidence.counts.of_engine:
        return
    if evidence.refused is not None:
        yield Settled(*FOLDER, "wrong", evidence.refused.title)
    elif evidence.unchecked:
        yield Settled(*FOLDER, "open", evidence.unchecked)
    else:
        yield Settled(*FOLDER, "ok", "nothing in it is known to be refused")


def _undone(evidence: ReplayEvidence) -> list[Finding]:
    """Return the faults that the proof undid; of those that it does not name, the first."""
    titles = evidence.proof.titles if evidence.proof is not None else ()
    named = [f for f in evidence.faults if f.title.rstrip(".") in titles]
    return named or evidence.faults[:1]


Check = Callable[[ReplayEvidence], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (
    amount, repetition, one_run, acceptance, reproduction, log_lines, faults, folder,
)  # fmt: skip
