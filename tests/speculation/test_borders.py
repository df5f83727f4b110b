"""Both sides of each threshold of the verdicts on a replay and its ablations, without chance if it can be."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.speculation.ablate.test_ablate import trial_of
from tests.speculation.ablate.test_causes import HEALTHY, PLAIN
from tests.speculation.faults.faults import (
    NEW,
    NEWEST,
    OLD,
    Change,
    absolute,
    listed,
    renamed,
    said,
)
from tests.speculation.faults.faults import lost as without
from tests.speculation.test_borders_ablations import BROKEN, flat, scene, tried
from tests.speculation.test_result import ERROR, OF_COUNTS, UNDONE
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.causes import judge
from workbench.speculation.ablate.lifts import Reference
from workbench.speculation.ablate.static_checks import check
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.evidence.tally import Agreement, Logged, Tally
from workbench.speculation.judge.comparable import fitting
from workbench.speculation.judge.counts import Counts, contradicting
from workbench.speculation.judge.coverage import Proof, ReplayEvidence
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.judging import judge as judge_replay
from workbench.speculation.judge.judging import suspects
from workbench.speculation.judge.texts import Texts, good_of

# -- a replay, or a log ---------------------------------------------------------------------------

WANTED = Expected(2.5)  # 1.5 drafts a round
WRONG = {"static": (ERROR,), "proof": UNDONE}


def log(
    length: float, deviation: float = 0.0, lines: int = 30, tenth: float | None = None
) -> Logged:
    return Logged(lines, length, None, 1.0, 4.0, tenth, deviation)


def seen(length: float = 2.5, deviation: float = 0.0, **changes: Any) -> ReplayEvidence:
    """Return what a log of 30 lines tells; all of one number where nothing deviates."""
    given: dict[str, Any] = {"expected": WANTED, "logged": log(length, deviation)} | changes
    counts = {"replayed": None, "observed": None, "steps": 3}
    counts |= {name: given.pop(name) for name in [*given] if name in OF_COUNTS}
    return ReplayEvidence(Counts(**counts), launch=DraftLaunch("sglang==0.5.11"), **given)


REPLAYS: list[tuple[ReplayEvidence, bool | None]] = [
    # As expected: less than 3 % of the length is missing.
    (seen(2.5), True),
    (seen(2.426), True),
    (seen(2.424), None),
    (seen(97.0, expected=Expected(100.0)), None),
    (seen(97.1, expected=Expected(100.0)), True),
    # Or less than 5 %, and that may be chance: 0.1 of a draft is 1.645 standard errors of 30 lines.
    (seen(2.4, 0.34), True),
    (seen(2.4, 0.32), None),
    (seen(2.376, 0.5), True),
    (seen(2.374, 0.5), None),
    # Far more than expected is another expectation.
    (seen(2.949), True),
    (seen(2.951), None),
    (seen(3.0, 0.17), True),
    (seen(3.0, 0.16), None),
    # Low: fewer than 80 % of the expected drafts, by more than chance; and a cause that is proved.
    (seen(2.199, **WRONG), False),
    (seen(2.201, **WRONG), None),
    (seen(2.9999, expected=Expected(3.5), **WRONG), False),
    (seen(3.0, expected=Expected(3.5), **WRONG), None),  # 2 drafts of 2.5: not fewer than 80 %
    (seen(2.15, 0.16, **WRONG), False),
    (seen(2.15, 0.17, **WRONG), None),
    # Without one it is a loss all the same, and its cause is not known.
    (seen(2.199), False),
    (seen(2.201), None),
    (seen(2.199, static=(ERROR,)), False),
    (seen(2.199, static=(ERROR,), proof=Proof(False, (ERROR.title,))), False),
    (seen(2.199, **(WRONG | {"static": (dataclasses.replace(ERROR, severity="warning"),)})), False),
    (seen(2.199, **(WRONG | {"static": (dataclasses.replace(ERROR, changes_output=False),)})), False),
    # Sampled texts are accepted less, and nothing is known of how much less.
    (seen(2.199, texts=dataclasses.replace(PLAIN, other=0.11)), None),
    (seen(2.199, texts=dataclasses.replace(PLAIN, other=0.10)), False),
    # Places accept more than rounds: only far less than they is a loss for certain.
    (seen(1.749, expected=Expected(2.5, counted="places")), False),
    (seen(1.751, expected=Expected(2.5, counted="places")), None),
    # Nothing is expected: low is what accepts hardly anything.
    (seen(1.099, expected=None, **WRONG), False),
    (seen(1.101, expected=None, **WRONG), None),
    (seen(2.5, expected=None), None),
    # A cause that costs nothing that shows leaves it open.
    (seen(2.5, static=(ERROR,)), None),
    (seen(2.5, static=(dataclasses.replace(ERROR, severity="warning"),)), True),
    (seen(2.5, static=(dataclasses.replace(ERROR, changes_output=False),)), True),
    # Lines of a log, and rounds.
    (seen(logged=log(2.5, lines=5)), True),
    (seen(logged=log(2.5, lines=4)), None),
    (seen(logged=None, observed=Tally((0, 10, 10))), True),
    (seen(logged=None, observed=Tally((0, 9, 10))), None),
    (seen(logged=None), None),
    # A tenth of the log is far lower: half of the expected drafts.
    (seen(logged=log(2.5, tenth=1.751)), True),
    (seen(logged=log(2.5, tenth=1.749)), None),
    (seen(logged=log(2.5, tenth=1.749), observed=Tally((0, 100, 100))), True),
    # What a round of so many drafts cannot be.
    (seen(2.504, expected=Expected(2.5), deepest=2), True),
    (seen(2.0049, expected=Expected(2.0), deepest=1), True),
    (seen(1 + 1.005, expected=Expected(2.0), deepest=1), True),
    (seen(2.0051, expected=Expected(2.0), deepest=1), None),
    (seen(logged=None, observed=Tally((0, 100, 100)), deepest=2), True),
    (seen(logged=None, observed=Tally((0, 100, 100)), deepest=1), None),
    (seen(logged=None, observed=Tally((0, 100, 100, 0)), deepest=2), True),
    (seen(contradictions=("the log says otherwise",)), None),
    (seen(texts=PLAIN), True),
    (seen(texts=dataclasses.replace(PLAIN, refused="all repeat themselves")), None),
    # An expectation of a chain is not one of a tree; of the first positions only these are compared.
    (seen(expected=Expected(2.5, topk=1), topk=1), True),
    (seen(expected=Expected(2.5, topk=1), topk=2), None),
    (seen(expected=Expected(2.5, topk=2), topk=2), True),
    (seen(expected=Expected(2.5, topk=0), topk=2), True),
    (seen(2.199, expected=Expected(2.5, topk=1), topk=2, **WRONG), False),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(REPLAYS)))
def test_what_a_replay_or_a_log_proves(at: int) -> None:
    case, ok = REPLAYS[at]
    assert judge_replay(case).ok is ok


def both(share: float, **changes: Any) -> ReplayEvidence:
    """Return a replay of an engine's own rounds that agrees with it in so many of 1,000."""
    same = round(1000 * share)
    tally = Tally((0, 500, 500))
    given = {"logged": None, "replayed": tally, "observed": tally, "real": True}
    return seen(**(given | {"agreement": Agreement(1000, same, same)} | changes))


def test_a_replay_that_parts_from_the_engine_clears_nothing() -> None:
    assert judge_replay(both(0.85)).ok is True
    assert judge_replay(both(0.849)).ok is None
    codes = [{f.code: f.severity for f in judge_replay(both(s)).findings} for s in (0.95, 0.949)]
    assert codes == [{"faithful": "note"}, {"unfaithful": "warning"}]
    filled = judge_replay(both(0.949, filled=("fc.weight",))).findings
    assert {f.code: f.severity for f in filled} == {
        "unwritten_memory": "error",
        "unwritten_memory_differs": "note",
    }
    unknown = both(0.9, agreement=Agreement(0, 0, 0))
    assert judge_replay(unknown).ok is True
    assert judge_replay(unknown).findings == ()


def test_a_cause_that_is_proved_is_one_though_the_replay_parts() -> None:
    low = {"expected": Expected(4.0)} | WRONG
    assert judge_replay(both(0.8, **low)).ok is False
    lost = judge_replay(both(0.8, expected=Expected(4.0)))
    assert (lost.ok, lost.verdict.state) == (False, "acceptance_lost")


def test_an_engine_that_accepts_less_than_its_files_is_named_first() -> None:
    files = {"replayed": Tally((0, 0, 1000)), "files": 3.0, "expected": Expected(3.0)}
    less = judge_replay(both(0.8, observed=Tally((900, 100)), **files))
    assert (less.ok, less.verdict.state) == (False, "engine_accepts_less")
    assert less.summary.startswith("Look at the engine: on the same texts these files accept 3.00")
    assert "the engine accepted 1.10" in less.summary
    does = "The engine accepts nothing from position 2 on: 99% of its rounds are so."
    named = judge_replay(both(0.8, observed=Tally((900, 100)), does=does, **files))
    assert does in named.summary
    # What it does is proof without an expectation; without either nothing is concluded.
    alone = files | {"expected": None}
    assert judge_replay(both(0.8, observed=Tally((900, 100)), does=does, **alone)).ok is False
    assert judge_replay(both(0.8, observed=Tally((800, 200)), **alone)).ok is None
    # Uninitialised memory may be what differs.
    filled = judge_replay(both(0.8, observed=Tally((900, 100)), filled=("fc.weight",), **files))
    assert filled.verdict.state == "acceptance_lost"


def test_what_is_asked_for_next() -> None:
    assert "ounts alone" in judge_replay(seen(2.199)).summary
    assert "ounts alone" not in judge_replay(both(0.95, expected=Expected(4.0))).summary
    known = {"static": (ERROR,)}
    assert "ounts alone" in judge_replay(seen(2.199, **known)).summary
    said = judge_replay(both(0.95, expected=Expected(4.0), **known)).summary
    assert "ounts alone" not in said
    assert "Known to be wrong" in said
    assert "Known to be wrong" in judge_replay(seen(2.3, **known)).summary
    assert "Known to be wrong" not in judge_replay(seen(2.3)).summary


def test_an_expectation_of_every_place_is_held_against_a_faithful_replay_only() -> None:
    places = Expected(2.5, counted="places")
    assert judge_replay(both(0.95, expected=places, alike=2.5)).ok is True
    assert judge_replay(both(0.949, expected=places, alike=2.5)).ok is None
    assert judge_replay(both(0.95, expected=places)).ok is None
    assert judge_replay(both(0.95, expected=places, alike=2.426)).ok is True
    assert judge_replay(both(0.95, expected=places, alike=2.42)).ok is None
    assert judge_replay(both(0.95, expected=places, alike=2.17, **WRONG)).ok is False
    assert judge_replay(both(0.949, expected=places, alike=2.17, **WRONG)).ok is None


def test_some_positions_are_compared_where_only_some_are_known() -> None:
    one = Expected(1.7, (0.7,))
    few, many = Tally((30_000, 70_000)), Tally((32_500, 0, 0, 67_500))
    assert judge_replay(seen(expected=one, logged=None, observed=few)).ok is True
    assert judge_replay(seen(expected=one, logged=None, observed=many)).ok is True
    # Of all positions that would be far more than expected.
    whole = Expected(1.7, (0.5, 0.1, 0.1))
    assert judge_replay(seen(expected=whole, logged=None, observed=many)).ok is None


def test_undoing_is_worth_its_time_where_it_could_tell() -> None:
    assert suspects(seen(2.199, static=(ERROR,)))
    assert not suspects(seen(2.201, static=(ERROR,)))
    assert not suspects(seen(2.199))
    assert suspects(seen(2.199, filled=("fc.weight",)))
    assert not suspects(seen(2.199, static=(ERROR,), contradictions=("no",)))


@pytest.mark.parametrize(
    ("accepted", "length", "deviation", "lines", "apart"),
    [
        (0, 1.299, 0.0, 30, False),
        (0, 1.301, 0.0, 30, True),
        (1, 2.428, 0.0, 30, False),
        (1, 2.430, 0.0, 30, True),
        (1, 1.701, 0.0, 30, False),
        (1, 1.699, 0.0, 30, True),
        (1, 2.6, 0.4, 30, False),
        (1, 2.6, 0.39, 30, True),
        (0, 2.5, 0.0, 5, True),
        (0, 2.5, 0.0, 4, False),
    ],
)
def test_how_far_answers_and_log_may_be_apart(
    accepted: int, length: float, deviation: float, lines: int, apart: bool
) -> None:
    tally = Tally((0,) * accepted + (10_000,))
    assert bool(contradicting(tally, log(length, deviation, lines))) is apart
    assert contradicting(None, log(length)) == contradicting(tally, None) == ()
    assert contradicting(Tally(()), log(length)) == ()


def test_how_sure_the_findings_of_a_replay_are() -> None:
    sampled = dataclasses.replace(PLAIN, other=0.2)
    found = {
        f.code: (f.severity, f.confidence, f.changes_output)
        for f in judge_replay(both(0.95, texts=sampled, filled=("fc.weight",))).findings
    }
    assert found == {
        "unwritten_memory": ("error", "certain", True),
        "faithful": ("note", "certain", False),
        "sampled_text": ("note", "likely", False),
    }
    loops = dataclasses.replace(PLAIN, looping=(1, 2))
    assert [f.severity for f in judge_replay(seen(texts=loops)).findings] == ["note"]
    assert [
        f.code for f in judge_replay(seen(texts=dataclasses.replace(PLAIN, other=0.1))).findings
    ] == []
    refused = judge_replay(seen(texts=dataclasses.replace(PLAIN, refused="all repeat")))
    assert [(f.code, f.severity) for f in refused.findings] == [("repetitive_text", "warning")]


# -- what is known without a replay -----------------------------------------------------------------

CERTAIN = "error certain"
PARTS = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.o_proj")


def middle(*parts: str) -> list[Change]:
    """Write some of the layer's ten tensors under the name that an older release reads."""
    return [renamed(f"layers.0.{part}", f"midlayer.{part}") for part in parts]


def scaled_embedding(tensors: Any, config: Any) -> None:
    tensors["embed_tokens.weight"] = tensors["embed_tokens.weight"] * 2


HINTS: dict[str, tuple[list[Change], str, str, list[str]]] = {
    "a healthy draft": ([], NEW, "EAGLE3", []),
    "as the trainer means it": ([], "", "EAGLE3", []),
    "a layer that is dropped": ([], OLD, "EAGLE3", [f"decoder layer key_dropped {CERTAIN} whole"]),
    "seven keys of the layer are dropped": (
        middle(*PARTS[:3]), OLD, "EAGLE3", [f"decoder layer key_dropped {CERTAIN} whole"]),
    "six keys of the layer are dropped": (
        middle(*PARTS), OLD, "EAGLE3", [f"decoder layer key_dropped {CERTAIN} part"]),
    "launched as EAGLE": ([], NEW, "EAGLE", [f"launch launched_as_eagle {CERTAIN} whole"]),
    "no head": (
        [without("lm_head.weight")], NEW, "EAGLE3",
        [f"lm_head tensor_absent {CERTAIN} part", f"lm_head lm_head_missing {CERTAIN} part"]),
    "no head, as the trainer means it": (
        [without("lm_head.weight")], "", "EAGLE3", [f"lm_head tensor_absent {CERTAIN} part"]),
    "no fc": ([without("fc.weight")], NEW, "EAGLE3", [f"fc tensor_absent {CERTAIN} part"]),
    "no last norm": ([without("norm.weight")], NEW, "EAGLE3", [f"last norm norm_absent {CERTAIN} part"]),
    "no norm of the layer": (
        [without("layers.0.hidden_norm.weight")], NEW, "EAGLE3",
        [f"decoder layer norm_absent {CERTAIN} part"]),
    "no d2t": ([without("d2t")], NEW, "EAGLE3", [f"draft vocabulary d2t_missing {CERTAIN} part"]),
    "ids in d2t": ([absolute], NEW, "EAGLE3", [f"draft vocabulary d2t_absolute {CERTAIN} part"]),
    "the default layers written down": (
        [listed(2, 6, 9)], NEW, "EAGLE3", ["auxiliary layers aux_layer_shift warning possible part"]),
    "a norm without its tensor": (
        [said(fc_norm=True)], NEW, "EAGLE3", [f"fc_norm norm_missing {CERTAIN} part"] * 2),
    "another norm without its tensor": (
        [said(norm_before_fc=True)], NEWEST, "EAGLE3",
        [f"norm_before_fc norm_missing {CERTAIN} part"] * 2),
    "other rotary positions": (
        [said(rope_parameters={"rope_theta": 50.0, "rope_type": "default"})], NEW, "EAGLE3",
        ["rotary positions rope_differs note possible part"]),
    "an embedding of its own": (
        [scaled_embedding], "", "EAGLE3", ["embedding embedding_differs note possible part"]),
    "an embedding of its own that the engine replaces": ([scaled_embedding], NEW, "EAGLE3", []),
    "a flag that is not read": (
        [said(norm_before_residual=True)], NEW, "EAGLE3",
        [f"norm_before_residual norm_before_residual_not_read {CERTAIN} part"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HINTS)
def test_what_is_known_without_a_replay(name: str, tmp_path: Path) -> None:
    changes, engine, algorithm, wanted = HINTS[name]
    trial = trial_of(tmp_path, *changes, engine=engine, algorithm=algorithm)
    found = [
        f"{h.fact} {h.finding.code} {h.finding.severity} {h.finding.confidence} "
        f"{'whole' if h.whole else 'part'}"
        for h in check(trial)
    ]
    assert found == wanted
    assert all(h.finding.changes_output for h in check(trial))
    assert all(h.sure == (h.finding.confidence == "certain") for h in check(trial))


# -- what is expected -------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1.0, 0.0, 1000.0, float("nan")])
def test_an_expectation_that_says_nothing(length: float) -> None:
    with pytest.raises(WorkbenchError, match="is not between 1 and"):
        Expected.given(length)


@pytest.mark.parametrize("length", [1.001, 999.0])
def test_an_expectation_that_says_something(length: float) -> None:
    assert Expected.given(length).accept_length == length


def test_a_trainers_metrics_are_chances() -> None:
    def of(**metrics: Any) -> Expected:
        return Expected.of_training(metrics, 2)

    assert of(full_acc_0=1.0, full_acc_1=0.0).per_position == (1.0, 0.0)
    assert of(full_acc_0=0.5, full_acc_1=0.4, coverage=0.5).per_position == (0.25, 0.2)
    assert of(full=[0.5, 0.4], coverage=0.5).per_position == (0.5, 0.4)
    assert of(full=[0.5, 0.4, 0.3]).per_position == (0.5, 0.4)
    assert of(full=[0.5]).per_position == (0.5,)
    assert of(val={"full_acc_0": 0.5}).per_position == (0.5,)
    assert of(full_acc_0=0.5, coverage=1.5).per_position == (0.5,)
    assert (of(full=[0.5]).counted, of(full=[0.5]).topk) == ("places", 1)
    for odd in (
        {"full_acc_0": 1.001}, {"full_acc_0": -0.001}, {"full_acc_0": True}, {"full_acc_1": 0.5},
        {"full": []}, {"full": "0.5"}, {"full": [0.5, None]},
    ):  # fmt: skip
        with pytest.raises(WorkbenchError, match="not hold an acceptance"):
            Expected.of_training(odd, 2)


def test_the_last_metrics_of_a_file_count(tmp_path: Path) -> None:
    lines = [{"full_acc_0": 0.3}, {"loss": 1.0}, {"full_acc_0": 0.6}, {"loss": 0.5}]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert Expected.of_training(tmp_path / "m.jsonl", 1).per_position == (0.6,)


def test_long_files_of_metrics_are_read(tmp_path: Path) -> None:
    lines = [json.dumps({"loss": 1.0, "note": "x" * 1000})] * 300
    (tmp_path / "m.jsonl").write_text("\n".join([*lines, json.dumps({"full_acc_0": 0.6})]))
    assert Expected.of_training(tmp_path / "m.jsonl", 1).per_position == (0.6,)


@pytest.mark.parametrize(("beyond", "read"), [(0, True), (1, False)])
def test_a_file_of_metrics_has_at_most_64_mebibytes(
    tmp_path: Path, beyond: int, read: bool
) -> None:
    text = json.dumps({"full_acc_0": 0.6})
    file = tmp_path / "m.json"
    file.write_text(" " * ((1 << 26) + beyond - len(text)) + text)
    if read:
        assert Expected.of_training(file, 1).per_position == (0.6,)
    else:
        with pytest.raises(WorkbenchError, match="cannot read"):
            Expected.of_training(file, 1)


def test_without_an_expectation_the_best_change_is_named() -> None:
    nothing = Reference(flat(BROKEN), None)
    assert "The best change is" not in judge(scene(reference=nothing)).sentence
    one = dataclasses.replace(tried(1.0, "layer"), reference=nothing)
    found = judge(scene(one, reference=nothing))
    assert (found.state, found.nearest) == ("no_expectation", "layer")
    assert "The best change is" in found.sentence


def test_where_nothing_was_lost_nothing_is_restored() -> None:
    lift = tried(1.0, "layer", served=HEALTHY).lift
    assert (lift.restored, lift.restored_interval) == (None, None)
    more = tuple(value * 1.1 for value in HEALTHY)
    assert tried(HEALTHY, "layer", served=more).lift.restored is None
    little = tuple(value * 0.99 for value in HEALTHY)
    assert tried(1.0, "layer", served=little).lift.restored == pytest.approx(1.0)


def test_an_expectation_fits_a_tree_or_is_left_out() -> None:
    chain = Expected(2.5, (0.7, 0.5, 0.3), topk=1)
    wide = Expected(2.5, (0.7, 0.5, 0.3), topk=4)
    assert fitting(None, 3, 1) == (None, ())
    assert fitting(chain, 3, 1) == (chain, ())
    assert fitting(chain, 3, 4) == (chain, ())
    assert fitting(chain, 4, 1) == (chain, ())
    short, notes = fitting(chain, 2, 1)
    assert short is not None
    assert (short.per_position, short.accept_length) == ((0.7, 0.5), pytest.approx(2.2))
    assert notes
    assert fitting(wide, 3, 4) == (wide, ())
    for steps, topk in ((2, 4), (4, 4), (3, 2), (3, 1)):
        assert fitting(wide, steps, topk)[0] is None
    assert fitting(Expected(4.0), 3, 1)[0] is not None
    assert fitting(Expected(4.0 + 0.9e-6), 3, 1)[0] is not None
    assert fitting(Expected(3 + 1 + 1e-6), 3, 1)[0] is not None
    with pytest.raises(WorkbenchError, match="cannot be expected"):
        fitting(Expected(4.0 + 1.2e-6), 3, 1)
    with pytest.raises(WorkbenchError, match="cannot be expected"):
        fitting(Expected(4.001), 3, 1)


def test_good_answers_count_alone_where_most_repeat_themselves() -> None:
    loop, good = [7] * 30, list(range(30))
    assert good_of([good] * 8 + [loop] * 9) == list(range(8))
    assert good_of([good] * 7 + [loop] * 9) is None  # too few: the evidence is refused
    assert good_of([good] * 9 + [loop] * 9) is None  # half of them: all stay, and a note says so
    assert good_of([]) is None


def test_texts_are_plain() -> None:
    assert isinstance(PLAIN, Texts)
    assert not PLAIN.refused
    assert not dataclasses.replace(PLAIN, other=0.10).sampled
    assert dataclasses.replace(PLAIN, other=0.101).sampled
