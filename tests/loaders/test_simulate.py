"""Running a profile by template must give what running it key by key would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.templates import fill
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import Model, Profile, Route, Slot, indices
from workbench.loaders.simulate import simulate

LAYERS, EXPERTS = 3, 4


def model() -> Model:
    """A toy with what real classes have: a fused pair, experts in one parameter, a joint, a share."""
    layer = indices(range(LAYERS))
    expert = indices(range(1, LAYERS), range(EXPERTS))
    slots = (
        Slot("embed.weight", "embed.weight", shape=(8, 2)),
        Slot("layers.{}.q.weight", "layers.{0}.qk.weight", layer, (4, 2), 0.75, shard="q"),
        Slot("layers.{}.k.weight", "layers.{0}.qk.weight", layer, (2, 2), 0.25, shard="k"),
        Slot("layers.{}.qk.weight", "layers.{0}.qk.weight", layer, (6, 2), 1.0, alternative=True),
        Slot("layers.{}.experts.{}.up.weight", "layers.{0}.up.weight", expert, (2, 2), 1 / EXPERTS),
        Slot("layers.{}.a.weight", "layers.{0}.ab.weight", layer, (1, 2), 0.5, joint="a and b"),
        Slot("layers.{}.b.weight", "layers.{0}.ab.weight", layer, (1, 2), 0.5, joint="a and b"),
        Slot("norm.weight", "norm.weight", shape=(2,), optional=True),
    )
    return Model(slots, shared={"embed.weight": "the target"}, special=frozenset({0}))


def route(name: str, _: Model) -> Route:
    """Rename, skip, keep and lose by name; layer 0 is treated apart."""
    if name == "t2d":
        return Route("ignore", reason="only for training")
    if name == "d2t":
        return Route("attribute")
    if name.startswith("layers.0.old."):
        return Route("load", "layers.0." + name.removeprefix("layers.0.old."))
    return Route("load", name.removeprefix("model."))


def profile(**changes: object) -> Profile:
    return Profile("toy", "Toy", "1", "2", "toy.py:1", lambda config: model(), route, **changes)  # type: ignore[arg-type]


def table(rows: dict[str, tuple[int, ...]]) -> TensorTable:
    return TensorTable.from_rows([TensorInfo(n, "F32", s, "f") for n, s in rows.items()])


def complete() -> dict[str, tuple[int, ...]]:
    """Everything but the alternatives, under the engine's own names."""
    return {
        name: slot.shape or ()
        for slot in model().slots
        if not slot.alternative
        for name in fill(slot.template, slot.index)
    }


def run(rows: dict[str, tuple[int, ...]], **changes: object) -> LoadOutcome:
    return simulate(profile(**changes), model(), table(rows), "1")


def keys(outcome: LoadOutcome, status: str) -> set[str]:
    return {name for g in outcome.keys if g.status == status for name in g.names}


def parameters(outcome: LoadOutcome, status: str) -> dict[str, float]:
    return {n: g.fraction for g in outcome.parameters if g.status == status for n in g.names}


def test_complete_checkpoint_loads() -> None:
    outcome = run(complete())
    assert outcome.outcome == "loads"
    assert keys(outcome, "loaded") == set(complete())
    assert set(parameters(outcome, "shared")) == {"embed.weight"}
    assert not parameters(outcome, "missing")
    assert not outcome.doubled


def test_one_expert_shard_is_missed_by_name() -> None:
    rows = complete()
    del rows["layers.2.experts.3.up.weight"]
    (group,) = [g for g in run(rows).parameters if g.status == "partial"]
    assert group.names == ("layers.2.up.weight",)
    assert group.fraction == pytest.approx(1 - 1 / EXPERTS)
    assert group.wanted == ("layers.2.experts.3.up.weight",)


def test_fused_shard_missing_is_partial_with_its_fraction() -> None:
    rows = complete()
    del rows["layers.1.k.weight"]
    assert parameters(run(rows), "partial") == {"layers.1.qk.weight": pytest.approx(0.75)}


def test_ready_fused_tensor_fills_the_parameter() -> None:
    rows = complete()
    del rows["layers.1.k.weight"], rows["layers.1.q.weight"]
    rows["layers.1.qk.weight"] = (6, 2)
    outcome = run(rows)
    assert "layers.1.qk.weight" in parameters(outcome, "written")
    assert not keys(outcome, "dropped")


def test_joint_partner_is_lost_when_the_other_is_absent() -> None:
    rows = complete()
    del rows["layers.1.b.weight"]
    outcome = run(rows)
    assert keys(outcome, "dropped") == {"layers.1.a.weight"}
    assert "layers.1.ab.weight" in parameters(outcome, "missing")


def test_wrong_shape_stops_the_loader_and_marks_both_sides() -> None:
    rows = complete() | {"layers.1.k.weight": (3, 2)}
    outcome = run(rows)
    assert outcome.outcome == "raises"
    assert "layers.1.k.weight" in outcome.error
    assert keys(outcome, "mismatched") == {"layers.1.k.weight"}
    assert set(parameters(outcome, "mismatched")) == {"layers.1.qk.weight"}


@pytest.mark.parametrize(
    ("reaction", "outcome"), [("silent", "loads"), ("warning", "loads"), ("raises", "raises")]
)
def test_unknown_key(reaction: str, outcome: str) -> None:
    done = run(complete() | {"layers.9.q.weight": (4, 2), "stray": (1,)}, unknown=reaction)
    assert keys(done, "dropped") == {"layers.9.q.weight", "stray"}
    assert done.outcome == outcome


def test_two_keys_for_one_tensor_are_told() -> None:
    outcome = run(complete() | {"model.layers.1.q.weight": (4, 2)})
    assert outcome.doubled == ("layers.1.q.weight",)
    assert not keys(outcome, "dropped")


def test_special_layer_is_routed_on_its_own() -> None:
    rows = complete()
    rows["layers.0.old.q.weight"] = rows.pop("layers.0.q.weight")
    rows["layers.1.old.q.weight"] = rows.pop("layers.1.q.weight")
    outcome = run(rows)
    assert keys(outcome, "dropped") == {"layers.1.old.q.weight"}
    assert set(parameters(outcome, "partial")) == {"layers.1.qk.weight"}


NAMES = st.one_of(
    st.sampled_from(sorted(complete())),
    st.builds(
        ".".join,
        st.lists(
            st.sampled_from(
                [
                    "model",
                    "layers",
                    "0",
                    "1",
                    "2",
                    "00",
                    "q",
                    "k",
                    "qk",
                    "weight",
                    "experts",
                    "old",
                    "x",
                ]
            ),
            min_size=1,
            max_size=6,
        ),
    ),
    st.sampled_from(["d2t", "t2d", "a{b}", "layers.{}.q.weight", "line\nbreak", "é.1.weight"]),
)
SHAPES = st.sampled_from([(4, 2), (2, 2), (6, 2), (8, 2), (1, 2), (2,)])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, SHAPES, min_size=1, max_size=40))
def test_by_template_equals_key_by_key(rows: dict[str, tuple[int, ...]]) -> None:
    whole = run(rows)
    slots = {name: slot for slot in model().slots for name in fill(slot.template, slot.index)}
    expected: dict[str, set[str]] = {
        "loaded": set(),
        "dropped": set(),
        "ignored": set(),
        "mismatched": set(),
    }
    filled: dict[str, set[str]] = {}
    for name, shape in rows.items():
        way = route(name, model())
        if way.fate != "load":
            expected[{"ignore": "ignored", "attribute": "loaded"}[way.fate]].add(name)
        elif way.name not in slots:
            expected["dropped"].add(name)
        elif slots[way.name].shape != shape:
            expected["mismatched"].add(name)
        else:
            filled.setdefault(way.name, set()).add(name)
    for name, sources in filled.items():
        partner = name.replace(".a.", ".#.").replace(".b.", ".a.").replace(".#.", ".b.")
        lost = slots[name].joint and partner not in filled
        expected["dropped" if lost else "loaded"] |= sources
    for status, names in expected.items():
        assert keys(whole, status) == names, status
    everything = [name for group in whole.keys for name in group.names]
    assert sorted(everything) == sorted(rows)
    fractions = {n: g.fraction for g in whole.parameters for n in g.names}
    assert len(fractions) == sum(len(g.index) for g in whole.parameters)
    del fractions["norm.weight"]  # optional: whole, though nothing may have written it
    for parameter, fraction in fractions.items():
        parts = [
            slot.fraction
            for slot in model().slots
            for row in slot.index
            for name in fill(slot.template, row[None])
            if slot.parameter.format(*row) == parameter
            and filled.get(name, set()) & expected["loaded"]
        ]
        assert fraction == pytest.approx(min(1.0, sum(parts))), parameter


def test_empty_table() -> None:
    outcome = run({})
    assert not outcome.keys
    assert len(parameters(outcome, "missing")) > 0


def test_indices_is_the_product() -> None:
    assert indices(range(2), [5, 7]).tolist() == [[0, 5], [0, 7], [1, 5], [1, 7]]
    assert indices().shape == (1, 0)
    assert np.array_equal(indices([3]), np.array([[3]]))
