"""Names in groups: every name comes back from its group, and odd names cost the others nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.checkpoint.records import TensorGroup
from workbench.checkpoint.symbols import concrete, encode, symbolic
from workbench.checkpoint.templates import (
    MOST_INDICES,
    describe,
    fill,
    group_names,
    numbered,
    parse,
    spans,
)

segment = st.one_of(
    st.sampled_from(["layers", "d2t", "w2", "", "0", "00", "07", "experts", "é", "½", "٣", "1_0"]),
    st.integers(0, 10**11).map(str),
    st.text(max_size=4),
    st.sampled_from(["{}", "{0}", "}{", "a\nb", "\0", "{{", "\ud800", "\x85", "\u2028"]),
)
name = st.lists(segment, min_size=1, max_size=5).map(".".join)


def refilled(names: list[str], *labels: np.ndarray) -> list[str]:
    back: list[str] = [""] * len(names)
    for group in group_names(names, *labels):
        for at, text in zip(group.at, fill(group.template, group.index), strict=True):
            back[at] = text
    return back


@settings(max_examples=120, deadline=None)
@given(st.lists(name, max_size=12))
def test_every_name_comes_back(names: list[str]) -> None:
    assert refilled(names) == names


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(name, st.integers(0, 3)), min_size=1, max_size=12))
def test_labels_split_groups(pairs: list[tuple[str, int]]) -> None:
    names = [text for text, _ in pairs]
    labels = np.array([label for _, label in pairs])
    assert refilled(names, labels) == names
    for group in group_names(names, labels):
        assert len(set(labels[group.at])) == 1


def test_odd_names_leave_the_others_grouped() -> None:
    ordinary = [f"layers.{i}.w2.{j}" for i in range(3) for j in range(2)]
    odd = ["a.{}.7", "b.1\nc.2", "\0.3", "x.\ud800.4"]
    names = [*ordinary[:3], *odd, *ordinary[3:]]
    groups = {group.template: len(group.at) for group in group_names(names)}
    assert groups.pop("layers.{}.w2.{}") == 6
    assert set(groups.values()) == {1}
    assert refilled(names) == names


def test_an_odd_name_is_no_template() -> None:
    """The name ``a.{}`` and the template of ``a.1`` are told apart."""
    assert [len(g.at) for g in group_names(["a.{}", "a.1", "a.2"])] == [1, 2]


def test_groups_span_blocks() -> None:
    names = [f"l.{i}.w" for i in range(20_000)] + ["{odd}"] + [f"l.{i}.w" for i in range(5)]
    groups = group_names(names)
    assert [len(g.at) for g in groups] == [20_005, 1]
    assert groups[0].index[-1] == 4


def test_what_is_an_index() -> None:
    cases = {
        "layers.10.w": "layers.{}.w",
        "d2t": "d2t",
        "layers.02.w": "layers.02.w",
        "0": "{}",
        "a.1234567890": "a.1234567890",
        "a.123456789": "a.{}",
        "a.-1": "a.-1",
    }
    for text, template in cases.items():
        assert [g.template for g in group_names([text])] == [template]


def test_text_forms() -> None:
    assert spans([3, 0, 1, 2, 7, 9, 8]) == "0...3, 7...9"
    assert numbered("layers.{}.experts.{}.w1") == "layers.{0}.experts.{1}.w1"
    (group,) = group_names([f"l.{i}.{j}" for i in (0, 1, 2) for j in (5,)])
    assert describe(group.template, group.index) == "l.{0...2}.5"
    assert group_names([]) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(segment, min_size=1, max_size=14).map(".".join), min_size=1, max_size=8))
def test_one_name_is_parsed_as_many_are(names: list[str]) -> None:
    grouped = {
        int(at): (group.template, row)
        for group in group_names(names)
        for at, row in zip(group.at, group.index.tolist(), strict=True)
    }
    for at, text in enumerate(names):
        assert parse(text) == grouped[at]
        assert len(parse(text)[1]) <= MOST_INDICES


def test_fifty_thousand_numbers_in_a_name() -> None:
    long = ".".join(["1"] * 50_000)
    names = ["layers.3.w", long, "layers.4.w", "0." + long]
    groups = group_names(names)
    assert [g.index.shape[1] for g in groups] == [1, 8, 8]
    assert groups[1].template == "{}." * 8 + ".".join(["1"] * 49_992)
    assert refilled(names) == names


def test_symbols_of_many_columns() -> None:
    """Many special numbers in many columns: neither a table of 41^8 entries, nor an overflow."""
    index = np.random.default_rng(0).integers(0, 60, (500, MOST_INDICES))
    template = ".".join(["{}"] * MOST_INDICES) + ".900000003.900000099"
    group = TensorGroup(template, np.arange(500), index, (1,), "F32")
    back = {}
    for part, name in symbolic([group], range(40)):
        form, numbers = concrete(name, part)
        back |= dict(zip(part.at.tolist(), fill(form, numbers), strict=True))
    assert [back[at] for at in range(500)] == group.names
    # A rule that takes a number away moves text into a column; it is no symbol.
    form, numbers = concrete("900000001.900000099", group)
    assert form == "{}.{}"
    assert numbers[:, 0].tolist() == index[:, 1].tolist()
    assert set(numbers[:, 1].tolist()) == {900_000_099}


def test_codes_of_many_columns() -> None:
    rows = np.random.default_rng(1).integers(0, 10**9, (3000, 12))
    with np.errstate(all="raise"):
        codes = encode(np.concatenate([rows, rows]))
    assert len(set(codes.tolist())) == 3000
    assert (codes[:3000] == codes[3000:]).all()
