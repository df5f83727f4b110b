"""The answer to a case: its coverage, and the headline that names every cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.core.finding import Confidence
from workbench.core.verdict import Coverage, Item, State, Verdict
from workbench.core.wording import begun, plural
from workbench.triage.records import Answered, Cause

_STATE: dict[bool | None, State] = {True: "ok", False: "wrong", None: "open"}
_KIND = {
    "check": "launch", "hang": "server", "acceptance": "acceptance", "diff": "checkpoint",
    "weights": "weight", "launch": "launch", "traceback": "traceback", "replay": "acceptance",
    "words": "message",
}  # fmt: skip
_NAMED = 3


def coverage(answers: Sequence[Answered], not_read: Sequence[tuple[str, str]]) -> Coverage:
    """Return what a case covers: each thing, and what each job answered about it."""
    return Coverage(tuple(_items(answers, not_read)))


def _items(answers: Sequence[Answered], not_read: Sequence[tuple[str, str]]) -> Iterator[Item]:
    for name, why in not_read:
        yield Item("thing", name, "open", why)
    checked = any(one.job in ("check", "diff") for one in answers)
    for one in answers:
        # Whether weights look trained does not decide by itself where keys or a launch are known.
        essential = not (one.job == "weights" and one.ok is None and checked)
        essential = essential and not (
            one.job == "hang" and one.ok is None and _served(answers, one.subject)
        )
        yield Item(
            _KIND[one.job],
            f"{one.job} of {one.subject}",
            _STATE[one.ok],
            one.text,
            essential=essential,
        )


def _served(answers: Sequence[Answered], subject: str) -> bool:
    """Whether a log shows acceptance: the server served, wherever it is now."""
    return any(one.job == "acceptance" and one.subject == subject for one in answers)


def verdict(found: Coverage, answers: Sequence[Answered], causes: Sequence[Cause]) -> Verdict:
    """Return the verdict; whether it is one follows from the coverage."""
    ok = found.ok
    if ok is False:
        sure = all(cause.certain for cause in causes) if causes else False
        # A loss of acceptance is certain even where its cause is not.
        confidence: Confidence = "certain" if sure else "likely"
        return Verdict(
            "wrong",
            _wrong(answers, causes),
            confidence,
            found,
            ("a run without these faults that is no better",),
        )
    if ok:
        return Verdict(
            "healthy", "Nothing is found to be wrong in what was handed over.", "likely", found
        )
    if causes:
        return Verdict(
            "cannot_tell",
            f"Cannot tell for certain. Likely: {_statements(causes, marked=False)}.",
            "unknown",
            found,
        )
    told = handed_on(answers)
    if told is not None:
        return Verdict(
            "cannot_tell", f"Cannot tell: {told.text.partition('. ')[0]}.", "unknown", found
        )
    reported = next((one for one in answers if one.job == "traceback" and one.ok is None), None)
    if reported is not None:
        return Verdict(
            "cannot_tell", f"Cannot tell: {reported.text.rstrip('.')}.", "unknown", found
        )
    item = next(found.having("open", essential=True), None)
    # What a job could not tell begins with the same words.
    missing = (
        f"{item.name}: {item.how.removeprefix('Cannot tell: ')}"
        if item is not None
        else "nothing was handed over"
    )
    return Verdict("cannot_tell", f"Cannot tell: {missing.rstrip('.')}.", "unknown", found)


def _wrong(answers: Sequence[Answered], causes: Sequence[Cause]) -> str:
    symptom = next((one for one in answers if one.job == "acceptance" and one.ok is False), None)
    crash = next((one for one in answers if one.job == "launch" and one.ok is False), None)
    if crash is not None:
        return f"It stops with a failed assertion on the GPU. {_counted(causes)}"
    stopped = next((one for one in answers if one.job == "traceback" and one.ok is False), None)
    if stopped is not None and not any(cause.code == "hang_hung" for cause in causes):
        return f"{begun(stopped.text)}. {_counted(causes)}" if causes else f"{begun(stopped.text)}."
    begins = (
        f"It serves, and draft tokens are not accepted ({symptom.text.split(' in ')[0]}). "
        if symptom
        else ""
    )
    if not causes:
        return (
            f"{begins}The cause is not in what was handed over."
            if begins
            else "Something is wrong."
        )
    return f"{begins}{_counted(causes)}"


def _counted(causes: Sequence[Cause]) -> str:
    """Return the causes as a sentence, counted where there are several."""
    number = f"{plural(len(causes), 'cause')}: " if len(causes) > 1 else ""
    text = _statements(causes)
    return f"{number}{text if number else begun(text)}."


def _statements(causes: Sequence[Cause], *, marked: bool = True) -> str:
    """Return the causes in a row, those that are not proved marked."""
    texts = []
    mixed = any(cause.certain for cause in causes) or marked
    for number, cause in enumerate(causes[:_NAMED], 1):
        title = cause.title.rstrip(".")
        sure = "" if cause.certain or not mixed else " (likely)"
        texts.append(f"({number}) {title}{sure}" if len(causes) > 1 else f"{title}{sure}")
    more = len(causes) - _NAMED
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")


def what_next(answers: Sequence[Answered], causes: Sequence[Cause]) -> str:
    """Return the one thing to do now."""
    steps = [cause.next_step.strip() for cause in causes[:_NAMED] if cause.next_step.strip()]
    if len(steps) > 1:
        return " ".join(f"({number}) {step}" for number, step in enumerate(steps, 1))
    if steps:
        return steps[0]
    symptom = any(one.job == "acceptance" and one.ok is False for one in answers)
    replayed = next((one for one in answers if one.job == "replay" and "`" in one.text), None)
    if symptom and replayed is not None:
        line = replayed.text[replayed.text.rindex("`workbench") :].rstrip(".")
        return f"Change one thing at a time: {line}."
    if symptom:
        return "Give the draft and the target as well: `workbench doctor LOG DRAFT TARGET`."
    told = handed_on(answers)
    if told is not None:
        return told.text.partition(". ")[2]
    if any(one.job == "traceback" and one.ok is False for one in answers):
        return "Look for this line in the engine's issues, and undo what you changed last."
    if answers and all(one.ok is not None for one in answers):
        return ""
    return "Give the launch line, the log and the checkpoints; of a server that hangs, its PID."


def handed_on(answers: Sequence[Answered]) -> Answered | None:
    """Return the answer to what a person says, None where there is none: its step is behind its first dot."""
    return next((one for one in answers if one.job == "words"), None)
