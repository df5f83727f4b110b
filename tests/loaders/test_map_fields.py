"""What a config says to a harvested map: each border with the value on either side of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines import maps_page
from workbench.loaders.harvest import fields as harvest_fields
from workbench.loaders.harvest import groups
from workbench.loaders.harvest.expressions import (
    Observations,
    column_values,
    credible,
    value_of,
)
from workbench.loaders.harvest.groups import Group
from workbench.loaders.maps import fields, records
from workbench.loaders.maps.names import Names
from workbench.loaders.maps.profiles import _own_parameter
from workbench.loaders.maps.records import ClassMap
from workbench.loaders.profile import NotCovered, Refused

LAYERS = {"num_hidden_layers": ["size", 4]}


def found(kinds: dict[str, list[Any]], **more: Any) -> ClassMap:
    return ClassMap("m", True, "", model_type="x", fields=LAYERS | kinds, **more)


def read(map_: ClassMap, **raw: Any) -> fields.Values:
    return fields.read(map_, {"model_type": "x", "num_hidden_layers": 6} | raw)


@pytest.mark.parametrize(
    ("kinds", "good", "bad"),
    [
        # A list of which only the length counts, and one that has an entry a layer.
        ({"marks": ["sized", [8, 16, 24]]}, {"marks": [5, 11, 17]}, {"marks": [5, 11]}),
        ({"kinds": ["sized", ["a", "b", "a", "b"]]}, {"kinds": ["a", "b"] * 3}, {"kinds": ["a"]}),
        ({"kinds": ["sized", ["a", "b", "a", "b"]]}, {"kinds": ["b"] * 6}, {"kinds": ["c"] * 6}),
        # Numbers of layers: a part of them is another model.
        ({"dense": ["fixed", [0, 1]]}, {"dense": [0, 1]}, {"dense": [0]}),
        ({"dense": ["fixed", []]}, {"dense": []}, {"dense": [0]}),
        ({"merge": ["fixed", [2, 2]]}, {"merge": [2, 2]}, {}),
        ({"model_type": ["among", "x"]}, {}, {"model_type": "y"}),
        ({"end": ["fixed", 27]}, {"end": 27}, {"end": 5}),
    ],
)
def test_a_value_on_either_side_of_what_was_tried(
    kinds: dict[str, list[Any]], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    read(found(kinds), **good)
    with pytest.raises(NotCovered):
        read(found(kinds), **bad)


def test_a_map_holds_up_to_so_many_layers() -> None:
    bounded = found({}, bounds={"num_hidden_layers": 29})
    assert read(bounded, num_hidden_layers=29).sizes["num_hidden_layers"] == 29
    with pytest.raises(NotCovered, match="up to a smaller number"):
        read(bounded, num_hidden_layers=30)


def test_a_list_that_the_config_class_repeats_is_as_long_as_the_layers() -> None:
    cycle = {"kinds": ["cycle", ["a", "a", "b"]]}
    pick = [["pick", ["list", "kinds", ["b"]], None, [[1, 1, [["num_hidden_layers", 1]]]]]]
    slot = records.Slot("l.{}.w", "l.{0}.w", [[[8, 1, []]]], pick, True)
    kinds = {"kinds": ["list", ["a", "a", "b"]]}
    values = read(found(kinds, defaults=cycle, slots=[slot]))
    assert values.lists["kinds"] == ["a", "a", "b", "a", "a", "b"]
    with pytest.raises(NotCovered):  # another config class may repeat another list
        read(found(kinds, defaults=cycle, slots=[slot]), model_type="y")


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_a_field_may_have_either_of_its_names(name: str) -> None:
    kinds, rule = {"num_local_experts": ["size", 4]}, {"num_local_experts": ["is", 128]}
    for pair in ({"num_experts": "num_local_experts"}, {"num_local_experts": "num_experts"}):
        values = read(found(kinds, defaults=rule, aliases=pair), **{name: 60})
        assert values.sizes["num_local_experts"] == 60


def fitted(size: Any, base: dict[str, int]) -> Any:
    """Return the expression found for a size of two fields, each doubled alone and both together."""
    seen = Observations(base)
    values = {0: size(**base)}
    one, two = base
    for changed in ((one,), (two,), (one, two)):
        point = base | {field: 2 * base[field] for field in changed}
        values[seen.add(point, *changed)] = size(**point)
    return seen.fit(values)


def test_places_of_an_image_are_no_polynomial() -> None:
    base = {"image": 224, "patch": 16}
    terms = fitted(lambda image, patch: (image // patch) ** 2, base)
    assert credible(terms)
    assert value_of(terms, {"image": 896, "patch": 14}) == 4096
    terms = fitted(lambda image, patch: (image // patch) ** 2 + 1, base)
    assert value_of(terms, {"image": 448, "patch": 14}) == 1025


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("inside", [False, True])
def test_an_image_that_its_patches_do_not_fill_has_whole_places_only(
    more: int, inside: bool
) -> None:
    def places(image_size: int, patch_size: int) -> int:
        count = (image_size // patch_size) ** 2
        return 64 * (count + 1) if inside else count + more

    terms = fitted(places, {"image_size": 384, "patch_size": 14})
    assert terms is not None
    point = {"image_size": 500, "patch_size": 16}
    assert value_of(terms, point) == places(**point)
    assert value_of(terms, {"image_size": 500}) is None


def test_observations_with_other_values_of_a_field_can_be_forgotten() -> None:
    seen = Observations({"a": 4, "b": 8})
    values = {0: 32}
    for point, field in (({"a": 8, "b": 8}, "a"), ({"a": 4, "b": 16}, "b")):
        values[seen.add(point, field)] = 8 * point["a"]
    values[seen.add({"a": 8, "b": 16})] = 5  # only together do they make another size
    assert seen.fit(values) is None
    seen.keep([0, 1], "b")
    assert seen.single == {"a": 1}
    assert seen.fit({0: 32, 1: 64}) == [[8, 1, [["a", 1]]]]


@pytest.mark.parametrize(
    ("raw", "divide"),
    [
        ({"hidden_size": 96, "num_attention_heads": 6}, True),
        ({"hidden_size": 96, "num_attention_heads": 9}, False),
        ({"hidden_size": 96, "vision_config": {"embed_dim": 64, "num_heads": 6}}, False),
        ({"hidden_size": 96, "vision_config": {"embed_dim": 64, "num_heads": 4}}, True),
        ({"num_attention_heads": 9}, True),
    ],
)
def test_heads_divide_the_width_next_to_them(raw: dict[str, Any], divide: bool) -> None:
    assert harvest_fields.splits(raw) is divide


def test_a_list_that_numbers_a_targets_layers_is_counted_and_not_one_of_the_drafts_layers() -> None:
    raw = {"num_hidden_layers": 3, "marks": [0, 1, 0], "target_layer_ids": [1, 9, 17]}
    assert harvest_fields.sizes(raw) == {"num_hidden_layers": 3, "target_layer_ids#": 3}
    more = harvest_fields.changed(raw, "num_hidden_layers", 5)
    assert (more["marks"], more["target_layer_ids"]) == ([0, 1, 0, 0, 1], [1, 9, 17])
    longer = harvest_fields.lengthened(raw, "target_layer_ids", 5)
    assert harvest_fields.sizes(longer)["target_layer_ids#"] == 5
    assert longer["target_layer_ids"][:3] == [1, 9, 17]

    kinds = {"target_layer_ids": ["counted", [1, 9, 17]]}
    values = read(found(kinds), target_layer_ids=[2, 4, 6, 8])
    assert values.sizes["target_layer_ids#"] == 4
    for other in ([], 4):
        with pytest.raises(NotCovered, match="the number of its entries decides"):
            read(found(kinds), target_layer_ids=other)
    with pytest.raises(NotCovered):
        read(found(kinds))


def test_the_text_models_fields_may_lie_at_the_top_where_that_was_tried() -> None:
    kinds = {"text_config.hidden_size": ["size", 64], "vision_config.depth": ["size", 2]}
    flat = {"hidden_size": 96, "vision_config": {"depth": 5}}
    sizes = read(found(kinds, flat=True), **flat).sizes
    assert (sizes["text_config.hidden_size"], sizes["vision_config.depth"]) == (96, 5)
    with pytest.raises(NotCovered):
        read(found(kinds), **flat)
    nested = {"text_config": {"hidden_size": 80}, "vision_config": {"depth": 5}, "hidden_size": 96}
    assert read(found(kinds, flat=True), **nested).sizes["text_config.hidden_size"] == 80


def test_a_name_that_transformers_writes_for_nothing_is_known_by_its_template() -> None:
    slot = records.Slot("l.{}.w", "l.{0}.w", [[[8, 1, []]]], [["rows", [0, 1]]], True)
    names = Names(found({}, slots=[slot], words={"l.{}.beta": "dropped", "l.{}.odd": "raises"}))
    known = names.find("l.7.beta")
    assert known is not None
    assert known.reaction == "dropped"
    assert names.find("l.7.odd") is None  # it may have raised because of its shape
    assert names.find("l.7.gamma") is None


def test_a_curve_through_few_values_is_not_credible() -> None:
    curve = fitted(lambda a, b: a * a // b + a, {"a": 64, "b": 16})
    assert curve is None or not credible(curve)
    assert credible([[1, 1, [["heads", 1], ["head_dim", 1]]], [2, 1, [["kv", 1]]]])
    assert credible([[1, 1, [["n", 1]]], [-1, 1, []]])


def test_heads_in_one_tensor_are_a_sum_of_quotients() -> None:
    def rows(hidden_size: int, num_attention_heads: int, kv: int) -> int:
        return hidden_size + 2 * kv * (hidden_size // num_attention_heads)

    base = {"hidden_size": 512, "num_attention_heads": 16, "kv": 4}
    seen = Observations(base)
    values = {0: rows(**base)}
    for field, size in base.items():
        point = base | {field: 2 * size}
        values[seen.add(point, field)] = rows(**point)
    for pair in sorted(map(sorted, seen.pairs_needed(values))):
        point = base | {field: 2 * base[field] for field in pair}
        values[seen.add(point, *pair)] = rows(**point)
    terms = seen.fit(values)
    assert terms is not None
    other = {"hidden_size": 4096, "num_attention_heads": 32, "kv": 8}
    assert value_of(terms, other) == rows(**other)


@pytest.mark.parametrize("release", records.harvested("sglang"))
def test_the_page_of_classes_says_what_the_data_say(release: str) -> None:
    text = maps_page.PAGE.read_text(encoding="utf-8")
    assert "\n".join(maps_page.states(release)) in text
    classes = records.maps_of("sglang", release).classes
    if release == records.harvested("sglang")[-1]:
        assert text == maps_page.page(maps_page.kept())
    assert all(found.slots for found in classes.values() if found.complete)


COUNT = [[1, 1, [["num_hidden_layers", 1]]]]


@pytest.mark.parametrize(
    ("first", "negated", "value", "layers"),
    [
        (0, False, [1, 2], [1, 2]),
        (1, False, [1, 2], [0, 1]),
        (1, True, [1, 2], [2, 3]),
        (0, False, "1,3", [1, 3]),
        (0, False, "1,45", [1]),
        (0, True, [], [0, 1, 2, 3]),
    ],
)
def test_layers_by_their_numbers(first: int, negated: bool, value: Any, layers: list[int]) -> None:
    rule = ["named", "moe_layers", first, negated, COUNT]
    slot = records.Slot("l.{}.w", "l.{0}.w", [[[8, 1, []]]], [rule], True)
    kinds = {"moe_layers": ["list", [1, 2]]}
    values = read(found(kinds, slots=[slot]), num_hidden_layers=4, moe_layers=value)
    assert column_values(rule, values.sizes, values.lists) == layers


@pytest.mark.parametrize("value", [["1"], "one", [1.5], [-1], None])
def test_what_is_no_list_of_layers(value: Any) -> None:
    rule = ["named", "moe_layers", 0, False, COUNT]
    slot = records.Slot("l.{}.w", "l.{0}.w", [[[8, 1, []]]], [rule], True)
    with pytest.raises(NotCovered):
        read(found({"moe_layers": ["list", [1, 2]]}, slots=[slot]), moe_layers=value)


def test_a_list_of_layers_is_recognised_only_if_it_was_changed() -> None:
    lists = [{"moe": [1, 2], "other": [1, 2]}, {"moe": [2, 3], "other": [1, 2]}]
    bounds = {0: 4, 1: 4}
    assert groups.chosen_by_number({0: (1, 2), 1: (2, 3)}, bounds, lists) == ["moe", 0, False]
    assert groups.chosen_by_number({0: (0, 3), 1: (0, 1)}, bounds, lists) == ["moe", 0, True]
    assert groups.chosen_by_number({0: (0, 1), 1: (1, 2)}, bounds, lists) == ["moe", 1, False]
    assert groups.chosen_by_number({0: (1, 2)}, bounds, lists[:1]) is None


def test_a_list_may_be_longer_than_the_layers_only_if_it_was_seen_so() -> None:
    lists = [{"kinds": ["a", "b", "a", "b", "b"]}, {"kinds": ["b", "a", "b", "a", "b"]}]
    chosen = groups.chosen_by_list({0: (0, 2), 1: (1, 3)}, lists, {0: 4, 1: 4})
    assert chosen == ["list", "kinds", ["a"], True]
    point = {"num_hidden_layers": 2}
    more = column_values(["pick", chosen, None, COUNT], point, {"kinds": ["a", "a", "b"]})
    assert more == [0, 1]
    strict = ["pick", chosen[:3], None, COUNT]
    assert column_values(strict, point, {"kinds": ["a", "a", "b"]}) is None
    assert column_values(strict, point, {"kinds": ["a", "b"]}) == [0]


def test_shapes_of_one_name_keep_their_numbers_at_another_config() -> None:
    def keys(shapes: dict[int, int]) -> dict[str, tuple[tuple[int, ...], str]]:
        return {f"l.{layer}.w": ((size,), "bfloat16") for layer, size in shapes.items()}

    base = groups.grouped(keys({0: 8, 1: 16, 2: 8}))
    assert {n: g.shape for n, g in base.items()} == {"l.{}.w": (8,), "l.{}.w#1": (16,)}
    rotated = groups.grouped(keys({0: 16, 1: 8, 2: 16}), base)
    assert {n: g.rows for n, g in rotated.items()} == {
        "l.{}.w": ((1,),),
        "l.{}.w#1": ((0,), (2,)),
    }
    larger = groups.grouped(keys({0: 24, 1: 16, 2: 24}), base)
    assert {n: g.shape for n, g in larger.items()} == {"l.{}.w": (24,), "l.{}.w#1": (16,)}
    # One shape took the size of the other: which is which cannot be seen.
    assert groups.grouped(keys({0: 16, 1: 16, 2: 16}), base) == {}
    assert isinstance(base["l.{}.w"], Group)


def test_a_field_without_which_the_engine_stops() -> None:
    rule = {"kind": ["refused", "AttributeError: no attribute 'kind'"]}
    map_ = found({"kind": ["among", "a"]}, defaults=rule)
    read(map_, kind="a")
    with pytest.raises(Refused, match="does not have kind: AttributeError"):
        read(map_)
    with pytest.raises(NotCovered):  # another config class may fill it
        read(map_, model_type="y")


def test_layers_come_with_those_of_the_prediction() -> None:
    raw = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1, "kinds": ["a", "b", "a"]}
    more = harvest_fields.changed(raw, "num_hidden_layers", 4)
    assert more["kinds"] == ["a", "b", "a", "b", "a"]
    assert harvest_fields.other_lists([0, 1, 1]) == [[1, 1, 0]]
    assert harvest_fields.other_lists("1,2") == ["2,3", "3,5"]


@pytest.mark.parametrize(
    ("parameter", "own"),
    [
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("lm_head.weight + model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("lm_head.weight + x.model.embed_tokens.weight", "x.model.embed_tokens.weight"),
        ("a.embed_tokens.weight + b.embed_tokens.weight", None),
        ("lm_head.weight + norm.weight", None),
        (None, None),
    ],
)
def test_of_several_parameters_that_of_the_key_counts(
    parameter: str | None, own: str | None
) -> None:
    slot = records.Slot("model.embed_tokens.weight", parameter, [], [], True)
    assert _own_parameter(slot) == own


def test_a_name_that_raised_whatever_its_shape_raises() -> None:
    words = {"vision.{}.w": "absent", "lm_head.weight": "raises", "a.w": "loads"}
    names = Names(ClassMap("m", True, words=words))
    known = names.find("vision.3.w")
    assert known is not None
    assert known.reaction == "raises"
    assert names.find("lm_head.weight") is None  # it may have raised because of its shape
    assert names.find("a.w") is None


def test_more_layers_are_shared_out_to_lists_that_name_each_once() -> None:
    kinds = {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 8}
    raw = {"num_hidden_layers": 4, "linear_attn_config": kinds}
    more = harvest_fields.changed(raw, "num_hidden_layers", 6)["linear_attn_config"]
    assert more == {"kda_layers": [1, 2, 3, 5, 6], "full_attn_layers": [4], "num_heads": 8}
    odd = {"num_hidden_layers": 4, "linear_attn_config": kinds | {"full_attn_layers": [3]}}
    assert harvest_fields.changed(odd, "num_hidden_layers", 6)["linear_attn_config"] == (
        kinds | {"full_attn_layers": [3]}
    )
