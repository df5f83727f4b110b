"""The answer of a case from what each job answered: what decides, what does not, and how sure it is."""

from __future__ import annotations

import pytest

from workbench.core.finding import Confidence
from workbench.core.verdict import Coverage, Item, State
from workbench.triage.answer import coverage, verdict, what_next
from workbench.triage.records import Answered, Cause, Job

LOG, DRAFT = "server.log", "draft"


def said(job: Job, ok: bool | None, subject: str = LOG, text: str = "text") -> Answered:
    return Answered(job, subject, ok, text)


def cause(code: str = "keys_lost", certain: bool = True, step: str = "Do it.") -> Cause:
    return Cause(code, f"{code} is so", step, "check", LOG, certain)


@pytest.mark.parametrize(
    ("answers", "right"),
    [
        ([], None),
        ([said("check", True)], True),
        ([said("check", None)], None),
        ([said("check", False)], False),
        ([said("check", True), said("diff", None)], None),
        # Weights that cannot be told decide nothing where keys or a launch were told
        ([said("weights", None, DRAFT)], None),
        ([said("weights", None, DRAFT), said("check", True)], True),
        ([said("weights", None, DRAFT), said("diff", True, DRAFT)], True),
        ([said("weights", None, DRAFT), said("check", None)], None),
        ([said("weights", None, DRAFT), said("hang", True)], None),
        ([said("weights", False, DRAFT), said("check", True)], False),
        ([said("weights", True, DRAFT), said("check", None)], None),
        # A server whose log shows acceptance has served
        ([said("hang", None), said("acceptance", True)], True),
        ([said("hang", None), said("acceptance", True, "other.log")], None),
        ([said("hang", None), said("check", True)], None),
        ([said("hang", False), said("acceptance", True)], False),
        ([said("check", None), said("acceptance", True)], None),
    ],
)
def test_what_decides(answers: list[Answered], right: bool | None) -> None:
    assert coverage(answers, ()).ok is right


def test_what_was_not_read_keeps_the_answer_open() -> None:
    found = coverage([said("check", True)], [("launch.sh", "it holds no launch")])
    assert found.ok is None
    assert found.items[0] == Item("thing", "launch.sh", "open", "it holds no launch")


def items(*states: State) -> Coverage:
    return Coverage(
        tuple(Item("launch", f"item {at}", one, "why.") for at, one in enumerate(states))
    )


@pytest.mark.parametrize(
    ("states", "causes", "state", "confidence"),
    [
        (("wrong",), [cause()], "wrong", "certain"),
        (("wrong",), [cause(), cause("other", certain=False)], "wrong", "likely"),
        (("wrong",), [], "wrong", "likely"),
        (("ok",), [], "healthy", "likely"),
        (("open",), [], "cannot_tell", "unknown"),
        (("open",), [cause(certain=False)], "cannot_tell", "unknown"),
        ((), [], "cannot_tell", "unknown"),
    ],
)
def test_how_sure_it_is(
    states: tuple[State, ...], causes: list[Cause], state: str, confidence: Confidence
) -> None:
    made = verdict(items(*states), [said("check", False)], causes)
    assert (made.state, made.confidence) == (state, confidence)


@pytest.mark.parametrize(
    ("states", "causes", "sentence"),
    [
        (("open",), [], "Cannot tell: item 0: why."),
        (("ok", "open"), [], "Cannot tell: item 1: why."),
        ((), [], "Cannot tell: nothing was handed over."),
        (
            ("open",),
            [cause(certain=False)],
            "Cannot tell for certain. Likely: keys_lost is so.",
        ),
    ],
)
def test_what_is_missing(states: tuple[State, ...], causes: list[Cause], sentence: str) -> None:
    assert verdict(items(*states), [], causes).sentence == sentence


MISSING = "Give the launch line, the log and the checkpoints; of a server that hangs, its PID."
SEARCH = "Look for this line in the engine's issues, and undo what you changed last."
LOST = said("acceptance", False, text="accept len 1.00 in 9 lines")


@pytest.mark.parametrize(
    ("answers", "causes", "sentence"),
    [
        ([LOST], [cause()],
         "It serves, and draft tokens are not accepted (accept len 1.00). keys_lost is so."),
        ([LOST], [],
         "It serves, and draft tokens are not accepted (accept len 1.00). The cause is not in what was "
         "handed over."),
        ([said("acceptance", None)], [], "Something is wrong."),
        ([said("check", False)], [cause(), cause("b", certain=False)],
         "2 causes: (1) keys_lost is so; (2) b is so (likely)."),
        ([said("launch", False)], [cause()],
         "It stops with a failed assertion on the GPU. keys_lost is so."),
        ([said("launch", None), said("check", False)], [cause()], "keys_lost is so."),
        ([said("check", False)], [cause("abcd"[at]) for at in range(4)],
         "4 causes: (1) a is so; (2) b is so; (3) c is so; and 1 more."),
        ([said("check", False)], [cause("abcd"[at]) for at in range(3)],
         "3 causes: (1) a is so; (2) b is so; (3) c is so."),
    ],
)  # fmt: skip
def test_the_sentence_of_what_is_wrong(
    answers: list[Answered], causes: list[Cause], sentence: str
) -> None:
    assert verdict(items("wrong"), answers, causes).sentence == sentence


@pytest.mark.parametrize(
    ("answers", "causes", "step"),
    [
        ([], [], MISSING),
        ([said("check", True)], [], ""),
        ([said("check", None)], [], MISSING),
        ([said("words", None, text="it hangs. Take its stacks.")], [], "Take its stacks."),
        ([said("traceback", False)], [], SEARCH),
        ([LOST, said("check", None)], [],
         "Give the draft and the target as well: `workbench doctor LOG DRAFT TARGET`."),
        ([said("acceptance", True)], [], ""),
        ([said("check", False)], [], ""),
        ([LOST], [cause()], "Do it."),
        ([LOST], [cause(), cause("b", step=" ")], "Do it."),
        ([LOST], [cause(), cause("b", step="Then this.")], "(1) Do it. (2) Then this."),
        ([LOST], [cause("abcd"[at], step="abcd"[at]) for at in range(4)], "(1) a (2) b (3) c"),
    ],
)  # fmt: skip
def test_the_one_thing_to_do_now(answers: list[Answered], causes: list[Cause], step: str) -> None:
    assert what_next(answers, causes) == step
