"""Both sides of each border of a scan's and a comparison's verdict: what one tensor does to the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.weights_samples import pair
from workbench.weights.changes import Change, Changes
from workbench.weights.records import Judgement, Measure
from workbench.weights.results import WeightScan
from workbench.weights.verdict_compare import conclude

# -- the whole scan -----------------------------------------------------------------------------


def scan(*pairs: tuple[Measure, Judgement], **more: Any) -> WeightScan:
    return WeightScan.build("models/x", list(pairs), **more)


def codes(found: WeightScan) -> dict[str, str]:
    return {f.code.removeprefix("weights."): f"{f.severity} {f.confidence}" for f in found.findings}


GOOD = pair("layers.0.q_proj.weight", (64, 64))
MORE = pair("layers.1.q_proj.weight", (64, 64))
MEMORY = Judgement("undecided", "looks like memory", "memory", stage=0)


def judged(
    name: str, shape: tuple[int, ...], verdict: str, **more: Any
) -> tuple[Measure, Judgement]:
    measure, judgement = pair(name, shape, **more)
    return measure, dataclasses.replace(judgement, verdict=verdict, family="")


SCANS: dict[str, tuple[Callable[[], WeightScan], bool | None, dict[str, str]]] = {
    "all trained": (lambda: scan(GOOD, MORE), True, {}),
    "one at init": (
        lambda: scan(GOOD, pair("layers.1.q_proj.weight", (64, 64), "at_init")),
        False, {"at_init": "error likely"}),
    "a head at init that is seldom read": (
        lambda: scan(GOOD, pair("pooler.dense.weight", (64, 64), "at_init")),
        None, {"seldom_read": "warning likely"}),
    "one undecided": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (64, 64), "undecided")),
        None, {"undecided": "warning unknown"}),
    "one undecided and too small": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (63, 64), "undecided")),
        True, {"too_small": "note unknown"}),
    "one undecided and too narrow": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (31, 4096), "undecided")),
        True, {"too_small": "note unknown"}),
    "one undecided and just not too narrow": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (32, 4096), "undecided")),
        None, {"undecided": "warning unknown"}),
    "a stack of experts that is undecided": (
        lambda: scan(GOOD, judged("layers.1.experts.weight", (4, 64, 64), "undecided")),
        None, {"undecided": "warning unknown"}),
    "a stack of narrow experts that is undecided": (
        lambda: scan(GOOD, judged("layers.1.experts.weight", (4, 31, 640), "undecided")),
        True, {"too_small": "note unknown"}),
    "one that was not read": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (16, 16), "undecided", seen=0)),
        None, {"unread": "warning unknown"}),
    "one constant": (
        lambda: scan(GOOD, pair("layers.1.q_proj.weight", (64, 64), "zeros")),
        False, {"constant": "error likely"}),
    "one invalid": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (64, 64), "invalid", nan=3)),
        False, {"invalid": "error certain"}),
    "an invalid vector": (
        lambda: scan(GOOD, judged("layers.1.bias", (64,), "invalid", nan=3)),
        False, {"invalid": "error certain"}),
    "an embedding that is NaN and filled later": (
        lambda: scan(GOOD, judged("embed_tokens.weight", (64, 64), "invalid", nan=4096)),
        None, {"filled_later": "warning possible"}),
    "an embedding of which a part is NaN": (
        lambda: scan(GOOD, judged("embed_tokens.weight", (64, 64), "invalid", nan=4095)),
        False, {"invalid": "error certain"}),
    "an embedding that is NaN in a server": (
        lambda: scan(GOOD, judged("embed_tokens.weight", (64, 64), "invalid", nan=4096), kind="server"),
        False, {"invalid": "error certain"}),
    "another matrix that is NaN": (
        lambda: scan(GOOD, judged("layers.1.q_proj.weight", (64, 64), "invalid", nan=4096)),
        False, {"invalid": "error certain"}),
    "memory that was never written": (
        lambda: scan(GOOD, (MORE[0], MEMORY)), False, {"memory": "error likely"}),
    "a vector of memory that was never written": (
        lambda: scan(GOOD, (pair("layers.1.bias", (64,))[0], MEMORY)), False, {"memory": "error likely"}),
    "no matrix at all": (lambda: scan(pair("norm.weight", (64,))), None, {}),
    "interrupted": (
        lambda: scan(GOOD, interrupted=True), None, {"interrupted": "warning certain"}),
    "one that could not be read": (
        lambda: scan(GOOD, unseen=1), None, {"not_seen": "warning unknown"}),
    "rows of zeros": (
        lambda: scan(GOOD, pair("layers.1.q_proj.weight", (64, 64), empty_rows=0.125)),
        None, {"empty": "warning possible"}),
    "few rows of zeros": (
        lambda: scan(GOOD, pair("layers.1.q_proj.weight", (64, 64), empty_rows=0.124)), True, {}),
    "columns of zeros": (
        lambda: scan(GOOD, pair("layers.1.q_proj.weight", (64, 64), empty_columns=0.125)),
        None, {"empty": "warning possible"}),
    "rows of zeros in an embedding": (
        lambda: scan(GOOD, pair("model.embed_tokens.weight", (64, 64), empty_rows=0.39)),
        True, {"padded": "note possible"}),
    "half a vocabulary of zeros": (
        lambda: scan(GOOD, pair("lm_head.weight", (64, 64), empty_rows=0.4)),
        None, {"empty": "warning possible"}),
    "half a table of positions of zeros": (
        lambda: scan(GOOD, pair("embeddings.position_embeddings.weight", (64, 64), empty_rows=0.5)),
        True, {"padded": "note possible"}),
    "a norm at one": (
        lambda: scan(GOOD, pair("norm.weight", (64,), "ones")), True, {"norms_at_one": "note possible"}),
    "a bias at zero": (
        lambda: scan(GOOD, pair("q_proj.bias", (64,), "zeros")), True, {"biases_at_zero": "note possible"}),
    "copies": (
        lambda: scan(GOOD, pair("layers.1.k_proj.weight", (64, 64), digest=GOOD[0].digest)),
        True, {"copies": "warning certain"}),
    "small copies": (
        lambda: scan(
            GOOD, pair("a.weight", (15, 17), digest="x"), pair("b.weight", (15, 17), digest="x")),
        True, {}),
    "copies that are just large enough": (
        lambda: scan(
            GOOD, pair("a.weight", (16, 16), digest="x"), pair("b.weight", (16, 16), digest="x")),
        True, {"copies": "warning certain"}),
    "two without a digest": (
        lambda: scan(pair("a.weight", (64, 64), digest=""), pair("b.weight", (64, 64), digest="")),
        True, {}),
    "embedding and head tied": (
        lambda: scan(
            GOOD, pair("embed_tokens.weight", (64, 64), digest="x"),
            pair("lm_head.weight", (64, 64), digest="x")),
        True, {"tied": "note certain"}),
    "embedding, head and a layer alike": (
        lambda: scan(
            pair("embed_tokens.weight", (64, 64), digest="x"), pair("lm_head.weight", (64, 64), digest="x"),
            pair("fc.weight", (64, 64), digest="x")),
        True, {"copies": "warning certain"}),
    "an embedding and a layer alike": (
        lambda: scan(
            GOOD, pair("embed_tokens.weight", (64, 64), digest="x"),
            pair("fc.weight", (64, 64), digest="x")),
        True, {"copies": "warning certain"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SCANS)
def test_what_a_tensor_does_to_the_verdict(name: str) -> None:
    build, ok, wanted = SCANS[name]
    found = build()
    assert (found.ok, codes(found)) == (ok, wanted)


def test_what_changes_the_output_says_so() -> None:
    for name, (build, ok, _) in SCANS.items():
        errors = [f for f in build().findings if f.severity == "error"]
        assert bool(errors) == (ok is False), name
        assert all(f.changes_output for f in errors), name


def test_the_module_that_is_whole_at_init_is_named() -> None:
    bad = [pair(f"layers.1.mlp.{n}.weight", (64, 64), "at_init") for n in ("up", "down")]
    (found,) = scan(GOOD, *bad).findings
    assert found.title.startswith("layers.1")
    assert "2 of 2" in found.title
    (part,) = scan(GOOD, *bad[:1], pair("layers.1.mlp.down.weight", (64, 64))).findings
    assert "2 of 2" not in part.title
    (every,) = scan(*bad).findings
    assert every.title.startswith("All 2 matrices")


def test_the_scale_of_an_init_is_named_where_it_is_known() -> None:
    def title(*sigmas: float | None) -> str:
        drawn = [pair(f"layers.0.{n}.weight", (64, 64), "at_init") for n in ("up", "down")]
        known = [
            (measure, dataclasses.replace(judgement, family="normal", sigma=sigma))
            for (measure, judgement), sigma in zip(drawn, sigmas, strict=True)
        ]
        return scan(*known).findings[0].title

    assert title(0.02, None).endswith("(normal, σ = 0.02)")
    assert title(0.02, 0.04).endswith("(normal, σ = 0.02 to 0.04)")
    assert title(None, None).endswith("(normal)")


def test_a_sentence_counts_its_matrices() -> None:
    assert scan(GOOD).summary == "The one matrix looks trained."
    assert scan(GOOD, MORE).summary == "All 2 matrices look trained."
    assert scan(GOOD, kind="server").summary == "The one matrix that was requested looks trained."
    two = scan(GOOD, MORE, kind="server")
    assert two.summary == "All 2 matrices that were requested look trained."


# -- two sets of weights ------------------------------------------------------------------------


def change(state: str, by: float | None = None, name: str = "a.weight", **more: Any) -> Change:
    given = {"shape": (64, 64), "shape_after": (64, 64), "dtype": "BF16", "dtype_after": "BF16"}
    return Change(name=name, state=state, change=by, **(given | more))  # type: ignore[arg-type]


def compared(*rows: Change, own: bool = False) -> tuple[bool | None, dict[str, str]]:
    verdict, findings = conclude(Changes(rows), (), own)
    return verdict.ok, {
        f.code.removeprefix("weights."): f"{f.severity} {f.confidence}" for f in findings
    }


def test_what_changed_slightly_is_held_against_the_usual_change() -> None:
    rows = [change("changed", by, name=f"{by}.weight") for by in (0.0005, 0.4, 0.5)]
    _, (found,) = conclude(Changes(rows), (), False)
    assert "the median is 0.4" in found.title
    _, (other, *_) = conclude(Changes([*rows, change("changed")]), (), True)
    assert "by 0.5 of its norm" not in other.detail
    _, (known, *_) = conclude(Changes(rows), (), True)
    assert "by 0.5 of its norm" in known.detail


NORM = {"name": "norm.weight", "shape": (64,), "shape_after": (64,)}
COMPARED: list[tuple[tuple[Change, ...], bool, bool | None, dict[str, str]]] = [
    ((change("changed", 0.5),), False, True, {}),
    ((change("identical"),), False, True, {"all_identical": "note certain"}),
    ((change("shape"), change("changed", 0.5)), False, False, {"shapes_differ": "error certain"}),
    ((change("invalid"), change("changed", 0.5)), False, False, {"not_finite": "error certain"}),
    ((change("unread"), change("changed", 0.5)), False, None, {"unread": "warning unknown"}),
    ((change("unread"), change("shape")), False, False,
     {"shapes_differ": "error certain", "unread": "warning unknown"}),
    ((change("left"), change("changed", 0.5)), False, True, {"one_side": "note certain"}),
    ((change("right"), change("changed", 0.5)), False, True, {"one_side": "note certain"}),
    ((change("identical"), change("changed", 0.5)), False, True, {"unmoved": "warning certain"}),
    ((change("identical", **NORM), change("changed", 0.5)), False, True, {}),
    ((change("changed", 0.00101),), False, True, {}),
    ((change("changed", 0.00099),), False, True, {"slight": "note certain"}),
    ((change("changed", 0.00099, **NORM),), False, True, {}),
    ((change("changed"),), False, True, {}),
    ((change("changed", 0.5, name="t2d", dtype="BOOL"),), False, True, {}),
    # What a server holds of its own file: rounding to bfloat16 is no other value.
    ((change("changed", 0.0049),), True, True, {"engine_rounded": "note certain"}),
    ((change("changed", 0.0051),), True, False, {"engine_differs": "error certain"}),
    ((change("changed"),), True, False, {"engine_differs": "error certain"}),
    ((change("changed", 0.0051), change("changed", 0.0049, name="b.weight")), True, False,
     {"engine_differs": "error certain", "engine_rounded": "note certain"}),
    ((change("identical"),), True, True, {}),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(COMPARED)))
def test_what_a_change_does_to_the_comparison(at: int) -> None:
    rows, own, ok, wanted = COMPARED[at]
    assert compared(*rows, own=own) == (ok, wanted)


def test_equal_values_under_two_names_are_a_note() -> None:
    verdict, findings = conclude(Changes([change("changed", 0.5)]), (("a.weight", "b.weight"),))
    assert verdict.ok is True
    assert [(f.code, f.severity) for f in findings] == [("weights.same_values", "note")]


def test_what_moved_little_is_held_against_what_is_usual() -> None:
    rows = [change("changed", by, name=f"{by}.weight") for by in (0.0005, 0.2, 0.4)]
    _, (found,) = conclude(Changes(rows), ())
    assert "the median is 0.2" in found.title


def test_errors_of_a_comparison_change_the_output() -> None:
    for rows, own, ok, _ in COMPARED:
        _, findings = conclude(Changes(rows), (), own)
        assert all(f.changes_output == (f.severity == "error") for f in findings)
        assert any(f.severity == "error" for f in findings) == (ok is False)
