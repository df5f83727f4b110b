"""How a replay looks as text and as data: word for word, bounded, and harmless whatever its names are."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable

import pytest

from tests.forms import check_forms
from tests.replay_samples import EVIL, WORDS, beside, chain, counted, hostile, tree
from tests.speculation.ablate.test_causes import BROKEN, HEALTHY, hint, scaled, scene, tried
from tests.speculation.judge.test_coverage import question
from workbench.core.wording import cells
from workbench.display import static_html
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.ablate.causes_coverage import AblationQuestion, answered
from workbench.speculation.result import Replay
from workbench.speculation.rounds.player import percent, quoted
from workbench.speculation.rounds.round_columns import MOST_CELLS

CASES: tuple[Callable[[], Replay], ...] = (chain, tree, counted, beside)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_form_is_as_it_was(
    case: Callable[[], Replay], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_forms(case(), f"replay-{case.__name__}", monkeypatch)


def changed_twice(**changes: object) -> Ablations:
    """Two causes, one behind the other, both known without a replay."""
    singles = (tried(scaled(0.05), "launch"), tried(BROKEN, "layer"))
    facts = scene(
        *singles, pairs=[tried(HEALTHY, "launch", "layer")], hints=[hint("launch"), hint("layer")]
    )
    return ablations_of(question(facts, **changes))


def interrupted() -> Ablations:
    """Nothing is lost, and not every change was tried."""
    facts = scene(tried(scaled(0.9), "layer", served=HEALTHY), served=HEALTHY)
    asked = question(facts, left="interrupted")
    catalogue = {**asked.catalogue, "fc order": ("fc order 2 1", "fc order 1 2")}
    return ablations_of(dataclasses.replace(asked, catalogue=catalogue))


def contradicted() -> Ablations:
    """A cause is found, and the replay says that nothing is lost."""
    return ablations_of(question(scene(tried(HEALTHY, "layer")), replayed_ok=True))


def ablations_of(asked: AblationQuestion) -> Ablations:
    cause, verdict = answered(asked)
    return Ablations.build(
        asked.facts, cause, verdict, (3.0, 6.9), counted="rounds", idle=("reload fc",),
        source="models/draft", engine="sglang==0.5.14", notes=("made up",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("case", "ok"), [(changed_twice, False), (interrupted, None), (contradicted, None)]
)
def test_every_form_of_ablations_is_as_it_was(
    case: Callable[[], Ablations], ok: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = case()
    assert result.ok is ok
    check_forms(result, f"ablations-{case.__name__.replace('_', '-')}", monkeypatch)
    assert Ablations.from_dict(json.loads(result.to_json())) == result


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("case", [*CASES, hostile], ids=lambda case: case.__name__)
def test_every_line_fits_and_can_be_printed(case: Callable[[], Replay], width: int) -> None:
    for line in case().to_text(width).splitlines():
        assert cells(line) <= width
        assert line.isprintable()


def test_one_round_as_text() -> None:
    replay = chain()
    text = replay.show(1, 80)
    assert text.splitlines()[0].startswith("Round 2 of 6 ")
    assert "request: r0, its round 2" in text
    assert "accepted: “·word11”" in text
    assert "then: “·word21”" in text
    assert "engine: 1 draft accepted, the same" in text
    assert "target chose “·word21”" in text
    assert "it was number 3 in the draft's own order" in text
    assert "every draft was accepted" in replay.show(2)
    assert replay.show(-1) == replay.show(5)
    assert "#11" in chain(words={}).show(1)
    with pytest.raises(WorkbenchError, match="there is no round 6"):
        replay.show(6)


def test_a_node_is_under_its_parent() -> None:
    lines = [line for line in tree().show(0, 100).splitlines() if "└" in line]
    assert [line.index("└") for line in lines if line.strip().startswith("accepted")] == [14]
    assert any("target" in line and "“·word7” 50 %" in line for line in lines)


def test_the_reason_is_that_of_the_draft_where_the_path_ended() -> None:
    replay = tree()
    assert replay.kept is not None
    replay.kept.columns.ranks[0] = [9, 1, 8, 1, 4]  # node 4 hangs on the accepted path
    assert "number 4 in the draft's own order" in replay.show(0)


@pytest.mark.parametrize(("rank", "said"), [(-1, True), (0, False)])
def test_a_choice_that_the_draft_cannot_make_is_said_to_be_one(rank: int, said: bool) -> None:
    replay = chain()
    assert replay.kept is not None
    replay.kept.columns.ranks[0] = rank
    assert ("the draft's vocabulary does not have it" in replay.show(0)) is said
    assert replay.kept.round(0).nodes[0].outside is said
    assert replay.payload()["rounds"][0][7][0][5] == rank


def test_a_draft_of_no_numbers_is_not_ranked() -> None:
    replay = chain()
    assert replay.kept is not None
    replay.kept.columns.probabilities[0] = float("nan")
    text = replay.show(0)
    assert "the draft's own logits are NaN" in text
    assert "in the draft's own order" not in text
    assert replay.payload()["rounds"][0][7][0][3] == -1


@pytest.mark.parametrize("row", [6, -7])
def test_a_round_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(WorkbenchError, match="there is no round"):
        chain().show(row)
    with pytest.raises(WorkbenchError, match="there is no round"):
        counted().show(0)


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert quoted(" a\n\tb") == "“·a⏎⇥b”"
    assert [percent(p) for p in (0.0, 0.0994, 0.0996, 0.5, float("nan"))] == [
        "0.0 %", "9.9 %", "10 %", "50 %", "? %",
    ]  # fmt: skip


def test_the_payload_says_what_the_player_needs() -> None:
    data = chain().payload()
    assert data["schema"] == "workbench.replay/1"
    assert len(data["rounds"]) == 6
    request, index, prefix, bonus, observed, margin, stop, nodes, tops, wanted, own = data[
        "rounds"
    ][1]
    assert (request, index, prefix, bonus, observed, stop) == (0, 1, 9, 21, 2, "rejected")
    assert margin == 1.5
    assert [node[:3] for node in nodes] == [[11, -1, 1], [12, 0, 2], [13, 1, 3]]
    assert [node[4] for node in nodes] == [1, 0, 0]
    assert nodes[2][5] == 0  # its parent was rejected: its rank means nothing
    assert tops[0] == [11, 500, 9, 250]
    assert wanted == [11, 21]
    assert own[0][:4] == [11, 200, 11, 200]  # at the root
    assert own[2][:4] == [12, 100, 13, 100]  # behind the second draft
    assert data["words"]["11"] == WORDS[11]
    assert data["left_out"] == 0
    assert data["positions"][0] == [1, pytest.approx(4 / 6), pytest.approx(4 / 6), 0.7]
    json.dumps(data, allow_nan=False)


def test_a_limit_takes_rounds_away_and_counts_them() -> None:
    replay = chain(rounds=3000)
    whole = replay.payload()
    limited = replay.payload(limit=8_000)
    assert len(gzip.compress(json.dumps(limited).encode(), 6)) <= 8_000
    assert 0 < len(limited["rounds"]) < len(whole["rounds"]) == 3000
    assert limited["left_out"] == 3000 - len(limited["rounds"])
    assert limited["lengths"] == whole["lengths"]
    asked = max(item[0] for item in limited["rounds"]) + 1
    assert len(limited["requests"]) == asked
    assert MOST_CELLS > 9000  # all of these rounds are kept


def test_static_html_is_plain_and_escaped() -> None:
    page = static_html.static(hostile())
    assert EVIL not in page
    assert "<img src=x" not in page
    assert "\x1b" not in page
    static = static_html.static(chain())
    assert "The first rejection" in static
    assert "target chose “·word20”" in static
    assert "66.7%" in static


def test_the_line_of_the_version_is_shown() -> None:
    assert "sglang 0.5.11 prints: accept len: 2.33, accept rate: 0.44" in chain().to_text(100)
    assert "prints" not in chain(engine="").to_text(100)
