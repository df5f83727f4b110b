"""A `Replay` as an object: its rounds, its rates, what is saved, and the rules of its verdict."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.replay_samples import chain, counted, hostile, tree
from workbench.core.finding import Finding
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.evidence.tally import Logged, Tally
from workbench.speculation.judge.counts import Counts
from workbench.speculation.judge.coverage import Proof, ReplayEvidence
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.judging import judge
from workbench.speculation.judge.texts import Texts
from workbench.speculation.judge.thresholds import FEW_ROUNDS
from workbench.speculation.result import Agreement, Replay
from workbench.speculation.rounds.round_columns import MOST_CELLS


def test_rounds_are_records_made_when_asked_for() -> None:
    replay = chain()
    assert len(replay.rounds) == 6
    first, second, third = replay.rounds[:3]
    assert (first.accepted, first.bonus, first.stop) == ((), 20, "rejected")
    assert (second.accepted, second.bonus, second.stop) == ((11,), 21, "rejected")
    assert (third.accepted, third.bonus, third.stop) == ((11, 12, 13), 23, "leaf")
    assert second.observed == (11, 21)
    assert [node.reason for node in second.nodes] == ["", "target chose 21", "parent rejected"]
    assert second.nodes[0].target_top == ((11, 0.5), (9, 0.25))
    assert replay.rounds[-1] == replay.rounds[5]
    assert replay.rounds[5].request == 1
    with pytest.raises(IndexError):
        replay.rounds[6]
    with pytest.raises(IndexError):
        replay.rounds[-7]


def test_the_choices_beside_a_node_are_those_at_its_parents_place() -> None:
    replay = tree()
    assert replay.kept is not None
    replay.kept.choices[0, 2, 0] = 33  # after node 1, which is accepted
    nodes = replay.rounds[0].nodes
    assert nodes[3].parent == 1
    assert nodes[3].target_top[0][0] == 33
    assert nodes[2].parent == 0
    assert nodes[2].target_top[0][0] == 7


def test_acceptance_is_counted() -> None:
    replay = chain()
    assert replay.accept_length == pytest.approx(1 + 8 / 6)
    assert replay.per_position == pytest.approx((4 / 6, 2 / 6, 2 / 6))
    assert counted().accept_length == 1.0
    assert counted().per_position == ()


def test_the_rate_is_that_of_the_version_asked_for() -> None:
    replay = chain()
    assert float(replay.accept_rate()) == pytest.approx(8 / 18)
    assert float(replay.accept_rate("sglang==0.5.10")) == pytest.approx(14 / 24)
    assert replay.accept_rate("sglang==0.5.3").accept_rate is None
    nothing = dataclasses.replace(replay, replayed=Tally((47,)), steps=4, draft_tokens=5)
    said = nothing.accept_rate("sglang==0.5.9")
    assert float(said) == pytest.approx(0.2)
    assert "draft tokens were never accepted" in str(said)
    assert "0.20 means none were accepted" in str(said)
    assert float(nothing.accept_rate("sglang==0.5.11")) == 0.0


def test_a_rate_without_a_version_or_rounds_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="which version"):
        chain(engine="").accept_rate()
    with pytest.raises(WorkbenchError, match="which version"):
        chain().accept_rate("sglang")
    with pytest.raises(WorkbenchError, match="a log alone"):
        counted().accept_rate()


def test_the_next_rejection_is_found() -> None:
    replay = chain()
    assert replay.next_rejection() == 0
    assert replay.next_rejection(0) == 1
    assert replay.next_rejection(1) == 3
    assert replay.next_rejection(4) is None
    assert counted().next_rejection() is None


@pytest.mark.parametrize("make", [chain, tree, counted, hostile], ids=lambda f: f.__name__)
def test_it_is_saved_and_loaded(make: Any, tmp_path: Path) -> None:
    replay = make()
    loaded = workbench.load(replay.save(tmp_path / "replay.json"))
    assert isinstance(loaded, Replay)
    assert loaded.to_json() == replay.to_json()
    assert list(loaded.rounds) == list(replay.rounds)
    assert loaded.to_text(80) == replay.to_text(80)
    assert loaded.payload() == replay.payload()
    assert loaded.trial is None


def test_a_text_is_the_same_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More digits than are saved, a first rejection past what is saved, and what to do next."""
    monkeypatch.setattr("workbench.speculation.rounds.round_columns.MOST_CELLS", 60)
    replay = chain(rounds=26)
    assert replay.kept is not None
    columns = replay.kept.columns
    columns.probabilities[:] = 0.123449999
    columns.margins[:] = 0.12344999
    columns.accepted[:22] = 3
    replay = dataclasses.replace(replay, kept=dataclasses.replace(replay.kept, columns=columns))
    loaded = workbench.load(replay.save(tmp_path / "replay.json"))
    assert isinstance(loaded, Replay)
    assert loaded.to_text(80) == replay.to_text(80)
    assert loaded.rounds[0] == replay.rounds[0]
    plain = dataclasses.replace(replay, findings=())
    saved = workbench.load(plain.save(tmp_path / "plain.json")).to_text(80)
    assert saved == plain.to_text(80)
    assert "next: Run ablate(): it changes one thing at a time" in saved


def test_what_is_unknown_comes_back_unknown(tmp_path: Path) -> None:
    replay = chain()
    assert replay.kept is not None
    replay.kept.columns.margins[:] = float("nan")
    replay.kept.columns.bonus[2] = -1
    replay.kept.choices[:, 1:] = -1
    loaded = workbench.load(replay.save(tmp_path / "replay.json"))
    assert isinstance(loaded, Replay)
    assert loaded.rounds[0].margin is None
    assert loaded.rounds[2].bonus is None
    assert loaded.rounds[2].stop == "unknown"
    assert loaded.rounds[0].nodes[1].target_top == ()


def test_a_saved_replay_is_bounded_and_says_so(tmp_path: Path) -> None:
    many = MOST_CELLS // 3 + 300
    replay = chain(rounds=many)
    path = replay.save(tmp_path / "many.json")
    loaded = workbench.load(path)
    assert isinstance(loaded, Replay)
    assert len(loaded.rounds) == MOST_CELLS // 3
    assert loaded.total == many
    assert loaded.accept_length == replay.accept_length
    assert loaded.payload()["left_out"] == 300


def test_a_loaded_replay_is_not_ablated(tmp_path: Path) -> None:
    loaded = workbench.load(chain().save(tmp_path / "replay.json"))
    assert isinstance(loaded, Replay)
    with pytest.raises(WorkbenchError, match=r"cannot be ablated[\s\S]*no models"):
        loaded.ablate()


def _damage(data: dict[str, Any], path: str, value: Any) -> None:
    *way, last = path.split(".")
    for step in way:
        data = data[step]
    data[last] = value


NO_SIZES: list[Any] = [-1, 1.5, "3", True, None]
NO_NUMBERS: list[Any] = ["0", None, 1e300, True]
NO_TEXTS: list[Any] = [1, None, []]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("ok", "yes"),
        ("replayed", [-1, 3]),
        ("observed", "many"),
        ("kept.rounds", 10**9),
        ("kept.rounds", 5),
        ("kept.columns.parents", [[5, 0, 1]] * 6),
        ("kept.columns.parents", [[-1, 0]] * 6),
        ("kept.columns.parents", [[-2, 0, 1]] * 6),
        ("kept.columns.depths", [[1, 2, 9]] * 6),
        ("kept.columns.depths", [[0, 1, 2]] * 6),
        ("kept.columns.accepted", [0, 1, 3, 0, 1, 4]),
        ("kept.columns.accepted", [0, 1, 3, 0, 1, -1]),
        ("kept.columns.observed", [1, 2, 4, 1, 2, 9]),
        ("kept.columns.prefix", [6, 9, 12, 6, 9, 99]),
        ("kept.columns.prefix", [6, 9, 12, 6, 9, -1]),
        ("kept.columns.margins", [[1.5]] * 6),
        ("kept.requests", [{"name": "a", "tokens": [1], "prompt": 2}] * 2),
        ("kept.columns.request", [0, 0, 0, 9, 9, 9]),
        ("kept.columns.tokens", [["x", 1, 2]] * 6),
        ("kept.columns.taken", None),
        ("kept.choices", [[[1]]] * 6),
        ("kept.requests", [{"name": "a", "tokens": ["b"], "prompt": 1}]),
        ("kept.words", {"x": "y"}),
        ("expected", {"per_position": [0.5]}),
        *[(name, bad) for name in ("steps", "topk") for bad in (257, 10**15, *NO_SIZES)],
        *[(name, bad) for name in ("draft_tokens", "total") for bad in (10**16, *NO_SIZES)],
        *[("temperature", bad) for bad in NO_NUMBERS],
        *[(name, bad) for name in ("target", "draft", "summary") for bad in NO_TEXTS],
        ("replayed", [0] * 258),
        ("logged.lines", "many"),
        ("logged.accept_length", None),
        ("logged.tenth", "x"),
        ("agreement.rounds", 1.5),
        ("expected.accept_length", "2"),
        ("expected.per_position", [0.5, "x"]),
        ("expected.counted", "drafts"),
        ("fills", {"zero": "x"}),
        ("fills", [1]),
        ("notes", "x"),
        ("notes", [1]),
        ("course", [["a", 1.0]]),
        ("course", [[1.0]]),
        ("findings", [{}]),
    ],
)
def test_a_damaged_file_is_refused(path: str, value: Any, tmp_path: Path) -> None:
    data = chain().to_dict()
    _damage(data, path, value)
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(data))
    with pytest.raises(WorkbenchError, match="is not a saved workbench result"):
        workbench.load(file)


def test_rows_are_rounds() -> None:
    frame = chain().to_pandas()
    assert list(frame["accepted"]) == [0, 1, 3, 0, 1, 3]
    assert list(frame["observed"]) == [0, 1, 3, 0, 1, 3]


# The verdict

ERROR = Finding("key_dropped", "error", "ten keys are dropped", changes_output=True)
HARMLESS = Finding("dtype", "error", "a name is odd", changes_output=False)
WANTED = Expected(2.5, (0.7, 0.5, 0.3))
LOOPS = Texts((0.1, 0.1, 0.1), (0, 1), 2, "2 of 2 answers repeat themselves", None)
UNDONE = Proof(True, (ERROR.title,), "the keys renamed", 2.4)
IN_VAIN = Proof(False, (ERROR.title,), "the keys renamed", 1.1)
LOG = Logged(30, 1.0, 0.2, 1.0, 1.0, 1.0)
LIKE = Logged(30, 2.5, 0.5, 2.2, 2.8, 2.3, 0.1)
NONE, SOME, GOOD = Tally((400,)), Tally((200, 100, 100)), Tally((100, 100, 100, 100))


OF_COUNTS = {field.name for field in dataclasses.fields(Counts)}


def seen(tally: Tally | None, **changes: Any) -> ReplayEvidence:
    """Evidence of these replayed rounds, with these other fields of it or of its counts."""
    plain = ReplayEvidence(
        Counts(tally, None, None, None, 3), "sglang==0.5.11", DraftLaunch("sglang==0.5.11")
    )
    return changed(plain, **changes)


def changed(case: ReplayEvidence, **changes: Any) -> ReplayEvidence:
    own = {name: value for name, value in changes.items() if name in OF_COUNTS}
    rest = {name: value for name, value in changes.items() if name not in OF_COUNTS}
    return dataclasses.replace(case, counts=dataclasses.replace(case.counts, **own), **rest)


@pytest.mark.parametrize(
    ("case", "ok"),
    [
        (seen(GOOD, expected=WANTED), True),
        (seen(GOOD, expected=WANTED, static=(HARMLESS,)), True),
        # Without anything to compare with, nothing is praised and nothing is accused.
        (seen(GOOD), None),
        (seen(SOME), None),
        (seen(NONE), None),
        (seen(NONE, static=(HARMLESS,)), None),
        (seen(SOME, static=(ERROR,)), None),
        # Low, with and without something that is wrong; the cause it is only where undoing it helps. Against
        # an expectation it is a loss all the same.
        (seen(NONE, static=(ERROR,), proof=UNDONE), False),
        (seen(SOME, expected=WANTED, static=(ERROR,), proof=UNDONE), False),
        (seen(NONE, static=(ERROR,)), None),
        (seen(SOME, expected=WANTED, static=(ERROR,), proof=IN_VAIN), False),
        (seen(SOME, expected=WANTED), False),
        # A broken contract with good acceptance: cannot tell what it costs.
        (seen(GOOD, expected=WANTED, static=(ERROR,)), None),
        # Loops, few rounds, and rounds that may be either.
        (seen(NONE, static=(ERROR,), texts=LOOPS), None),
        (seen(GOOD, expected=WANTED, texts=LOOPS), None),
        (seen(Tally((FEW_ROUNDS - 1,)), static=(ERROR,)), None),
        (seen(Tally((9, 9, 9)), expected=WANTED, static=(ERROR,)), None),
        # A real engine's rounds go before the replay's.
        (seen(GOOD, observed=NONE, real=True, static=(ERROR,), proof=UNDONE), False),
        (seen(GOOD, observed=NONE, real=True, expected=WANTED), False),
        (seen(None, observed=GOOD, expected=WANTED), True),
        (seen(None, logged=LOG, static=(ERROR,), proof=Proof(True, (ERROR.title,))), False),
        (seen(None, logged=LOG, static=(ERROR,)), None),
        (seen(None), None),
        # A log: enough lines, none of them far below the others.
        (seen(None, logged=LIKE, expected=WANTED), True),
        (seen(None, logged=dataclasses.replace(LIKE, lines=1), expected=WANTED), None),
        (seen(None, logged=dataclasses.replace(LIKE, tenth=1.0), expected=WANTED), None),
        # Counts that cannot be, or that contradict each other.
        (seen(None, logged=LIKE, expected=WANTED, deepest=1), None),
        (seen(None, observed=GOOD, expected=WANTED, deepest=2), None),
        (seen(None, observed=GOOD, expected=WANTED, deepest=3), True),
        (seen(GOOD, expected=WANTED, contradictions=("the log says otherwise",)), None),
        # An expectation of fewer positions is held against those; a chain's not against a tree's.
        (seen(GOOD, expected=Expected(1.7, (0.7,))), True),
        (seen(Tally((200, 0, 100, 100)), expected=Expected(1.7, (0.7,))), None),
        (seen(GOOD, expected=dataclasses.replace(WANTED, topk=1), topk=4), None),
        # A little less than expected: neither cleared nor low. Far more: another expectation.
        (seen(GOOD, expected=Expected(2.57)), True),
        (seen(GOOD, expected=Expected(2.7)), None),
        (seen(Tally((10, 10, 10, 10)), expected=Expected(2.6)), True),
        (seen(Tally((10, 10, 10, 10)), expected=Expected(2.8)), None),
        (seen(GOOD, expected=Expected(1.9)), None),
        # What was replayed is not what ran.
        (
            seen(
                GOOD, observed=GOOD, real=True, expected=WANTED, agreement=Agreement(400, 200, 200)
            ),
            None,
        ),
    ],
)
def test_the_verdict(case: ReplayEvidence, ok: bool | None) -> None:
    judged = judge(case)
    assert judged.ok is ok
    assert judged.summary


PLACES = Expected(2.5, (0.7, 0.5, 0.3), counted="places")
FAITHFUL, OTHER = Agreement(400, 396, 390), Agreement(400, 200, 200)


def test_an_expectation_from_every_place_is_compared_with_every_place() -> None:
    low_rounds = seen(SOME, observed=SOME, real=True, expected=PLACES, agreement=FAITHFUL)
    assert judge(changed(low_rounds, alike=2.47)).ok is True
    assert judge(changed(low_rounds, alike=2.3)).ok is None
    low = changed(low_rounds, alike=1.4, static=(ERROR,), proof=UNDONE)
    assert judge(low).ok is False
    assert "A cause is known: ten keys are dropped: with the keys renamed" in judge(low).summary
    vain = judge(changed(low, proof=IN_VAIN))
    assert vain.ok is False
    assert "Known to be wrong: ten keys are dropped. But with the keys renamed" in vain.summary


def test_a_replay_that_is_not_what_ran_cannot_clear_the_engine() -> None:
    other = seen(GOOD, observed=GOOD, real=True, expected=PLACES, agreement=OTHER, alike=2.5)
    judged = judge(other)
    assert judged.ok is None
    assert "unfaithful" in {f.code for f in judged.findings}


def test_unwritten_memory_is_a_cause_and_its_range_is_told() -> None:
    case = seen(
        NONE, filled=("fc.weight",), fills={"zero": 1.0, "random": 1.02, "nan": 1.0}, proof=UNDONE
    )
    judged = judge(case)
    assert judged.ok is False
    (found,) = (f for f in judged.findings if f.code == "unwritten_memory")
    assert "1.00 (zero), 1.02 (random), 1.00 (nan)" in found.detail
    assert "between 1.00 and 1.02" in found.evidence_for[0]
