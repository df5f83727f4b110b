"""A scan as text, as the data of its view, as a static preview, and as matplotlib figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tests.forms import check_forms
from tests.weights_samples import HOSTILE, draft, experts, hostile, pair, target
from workbench.core.palette import tone
from workbench.core.wording import cells
from workbench.display import assets
from workbench.display.static_html import static
from workbench.errors import WorkbenchError
from workbench.weights import grid, picture
from workbench.weights.names import named, places, short
from workbench.weights.picture import VERDICTS
from workbench.weights.plots import law_share
from workbench.weights.results import WeightScan

MAKERS: dict[str, Callable[[], WeightScan]] = {
    "weights-draft": draft,
    "weights-healthy": lambda: draft(bad=False),
    "weights-experts": experts,
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_form_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forms(MAKERS[name](), name, monkeypatch)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("make", [target, hostile], ids=lambda make: make.__name__)
def test_no_line_is_too_long_and_none_hides_anything(
    make: Callable[[], WeightScan], width: int
) -> None:
    for line in make().to_text(width).splitlines():
        assert line.isprintable()
        assert cells(line) <= width


# The view's data.


def limited(result: WeightScan, limit: int | None) -> dict[str, Any]:
    shown = result.payload(limit)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    return shown


def test_the_map_has_the_layers_in_rows_and_the_worst_state_in_each_cell() -> None:
    shown = limited(target(), None)
    layers, outside = shown["maps"]
    assert layers["stack"] == "model.layers"
    assert layers["layers"] == list(range(24))
    assert layers["labels"] == [
        "input_layernorm", "q_proj", "k_proj", "v_proj", "o_proj", "post_attention_layernorm", "gate_proj",
        "up_proj", "down_proj",
    ]  # fmt: skip
    bad = {
        row
        for row, state in zip(layers["row"], layers["state"], strict=True)
        if shown["states"][state] == "at_init"
    }
    assert bad == {17}
    assert outside["stack"] == ""
    assert outside["labels"] == ["embed_tokens", "norm", "lm_head"]
    assert shown["modes"][1]["low"] < shown["modes"][1]["high"]


def test_the_worst_matrix_comes_first_with_its_details() -> None:
    table = limited(target(), None)["tensors"]
    assert table["rows"] == len(table["template"]) == 219
    name = table["templates"][table["template"][0]].replace("{}", str(table["index"][0][0]))
    assert name == "model.layers.17.self_attn.q_proj.weight"
    detail = table["details"][0]
    assert "indistinguishable" in detail["reason"]
    assert len(detail["bins"]["edges"]) == 2  # even bins need no more
    assert sum(detail["bins"]["counts"]) == 4096
    assert ["tracy_widom", -0.4] in detail["statistics"]


def test_the_table_has_the_largest_magnitude_and_none_where_no_value_is_finite() -> None:
    pairs = [
        pair("a.weight", (64, 64), min=-448.0, max=3.0, absmax=448.0),
        pair("b.weight", (64, 64), absmax=np.nan),
    ]
    table = limited(WeightScan.build("models/two", pairs), None)["tensors"]
    assert [column["key"] for column in table["columns"]] == ["std", "kurtosis", "absmax"]
    assert dict(zip(table["templates"], table["numbers"]["absmax"], strict=True)) == {
        "a.weight": 448.0,
        "b.weight": None,
    }


def test_each_row_names_its_cell() -> None:
    shown = limited(experts(), None)
    table = shown["tensors"]
    for map_ in shown["maps"]:
        for at, count in enumerate(map_["count"]):
            assert table["cell"].count(map_["first"] + at) == count
    layers = shown["maps"][0]
    gate = layers["labels"].index("gate_proj")
    cells_at = list(zip(layers["row"], layers["column"], strict=True))
    cell = cells_at.index((3, gate))
    assert shown["maps"][0]["count"][cell] == 64
    assert shown["maps"][0]["odd"][cell] == 2
    assert shown["states"][shown["maps"][0]["state"][cell]] == "at_init"


def packed(shown: dict[str, Any]) -> int:
    return len(gzip.compress(json.dumps(shown, separators=(",", ":")).encode(), 6))


@pytest.mark.parametrize("share", [0.9, 0.7, 0.5])
def test_a_limit_is_kept_and_what_is_left_out_is_counted(share: float) -> None:
    whole = experts(layers=6)
    limit = int(share * packed(whole.payload()))
    shown = limited(whole, limit)
    assert packed(shown) <= limit
    table = shown["tensors"]
    assert table["rows"] == len(whole.tensors)
    assert table["left_out"] == len(whole.tensors) - len(table["template"])
    assert table["details_left_out"] == len(table["template"]) - len(table["details"])
    assert table["left_out"] + table["details_left_out"] > 0
    # What is wrong stays, whatever else goes; the map is whole.
    codes = [shown["states"][code] for code in table["state"]]
    assert codes.count("at_init") == 6
    assert sum(sum(map_["count"]) for map_ in shown["maps"]) == len(whole.tensors)


def test_without_a_limit_nothing_is_left_out() -> None:
    table = limited(experts(), None)["tensors"]
    assert table["left_out"] == table["details_left_out"] == 0


def test_the_static_form_shows_the_layer_and_escapes_names() -> None:
    still = static(target())
    assert "17  ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗" in still
    assert "16  ✓ ✓ ✓" not in still  # of many layers only those that are not well
    assert "layers that look trained" in still
    assert "<svg" not in still
    unsafe = static(hostile())
    assert "<img src=x" not in unsafe
    assert "</script>" not in unsafe
    assert "\u202e" not in unsafe


def test_a_page_holds_all_and_makes_no_request(tmp_path: Path) -> None:
    text = target().to_html(tmp_path / "page.html").read_text()
    assert "http://" not in text.replace("http://127.0.0.1", "")
    assert assets.base64_of(assets.packed(target().payload())) in text


def test_a_live_view_in_a_notebook_is_bounded() -> None:
    bundle, _ = experts()._repr_mimebundle_()
    assert {"text/plain", "text/html"} <= set(bundle)
    assert len(bundle["text/html"]) < 2_000_000


# Names and grids.


def test_places_of_names() -> None:
    where = places(
        ["model.layers.3.mlp.experts.7.up_proj.weight", "lm_head.weight", "3.weight", "a.b"]
    )
    assert where[0].prefix == "model.layers.3"
    assert where[0].kind == "mlp.experts.*.up_proj.weight"
    assert [where[at].layer for at in range(4)] == [3, -1, -1, -1]
    assert named(["h.0.w", "h.1.w", "x"]) == ["h.{0...1}.w", "x"]


def test_labels_tell_kinds_apart_in_few_words() -> None:
    kinds = [
        "self_attn.q_proj.weight",
        "self_attn.q_proj.bias",
        "mlp.up_proj.weight",
        "mlp.experts.*.up_proj.weight",
    ]
    assert short(kinds) == ["q_proj", "q_proj.bias", "mlp.up_proj", "experts.*.up_proj"]
    assert len(set(short([f"a.{n}.weight" for n in "xyz"]))) == 3


def test_a_cell_of_many_shows_the_worst_and_the_median() -> None:
    where = places([f"layers.0.experts.{n}.w" for n in range(5)])
    [one] = grid.grids(where)
    states = np.array(["trained", "trained", "at_init", "trained", "at_init"], dtype=object)
    shown = grid.cells(one, states, VERDICTS, {"std": np.array([1.0, 2.0, np.nan, 4.0, 9.0])})
    assert shown.state == ("at_init",)
    assert shown.odd == (2,)
    assert shown.count == (5,)
    assert shown.numbers["std"].tolist() == [3.0]


def test_values_that_are_all_alike_are_not_spread_over_the_colours() -> None:
    low, high = grid.span(grid.scale(np.full(50, 0.02), "log"))
    assert high - low == pytest.approx(1.0)
    assert grid.span(np.array([])) == (0.0, 1.0)
    assert picture.significant(float("nan")) is None
    assert picture.significant(0.123456) == 0.1235


# Figures.


def test_a_layer_at_init_stands_out_of_the_figure() -> None:
    figure = target().plot()
    shown = figure.axes[0].images[0].get_array()
    assert shown is not None
    assert shown.shape == (24, 9, 3)
    bad, good = shown[17, 3], shown[16, 3]
    assert np.allclose(bad, to_rgb(tone("at_init").light))
    assert np.abs(bad - good).max() > 0.4
    assert [text.get_text() for text in figure.axes[0].texts].count("✗") == 9
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()][1] == "q_proj"


@pytest.mark.parametrize("kind", ["std", "kurtosis"])
def test_figures_of_numbers_have_a_scale(kind: Any, tmp_path: Path) -> None:
    figure = target().plot(kind)
    assert len(figure.axes) == 3  # two maps and the bar
    figure.savefig(tmp_path / "figure.png", dpi=40)
    assert (tmp_path / "figure.png").stat().st_size > 2000


def test_a_tensor_is_drawn_with_the_law_that_fits() -> None:
    figure = target().plot_tensor("model.layers.17.mlp.up_proj.weight")
    [line] = figure.axes[0].lines
    heights = line.get_ydata()
    assert np.max(heights) == pytest.approx(4096 * 0.045, rel=0.3)
    assert "at init" in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize("family", ["normal", "uniform", "truncated"])
def test_laws_have_the_moments_they_are_drawn_with(family: str) -> None:
    edges = np.linspace(-1, 1, 4001)
    share = np.diff(law_share(family, edges, 0.1, 0.2))
    middle = (edges[1:] + edges[:-1]) / 2
    assert share.sum() == pytest.approx(1, abs=1e-3)
    assert (share * middle).sum() == pytest.approx(0.1, abs=1e-3)
    assert (share * (middle - 0.1) ** 2).sum() == pytest.approx(0.04, rel=0.01)


def test_pictures_that_cannot_be_drawn_say_why() -> None:
    for call, why in (
        (lambda: target().plot("shape"), "not a picture of 'shape'"),  # type: ignore[arg-type]
        (lambda: target().plot_tensor("nothing"), "no tensor 'nothing'"),
        (lambda: WeightScan.build("x", []).plot(), "nothing to plot"),
        (
            lambda: WeightScan.build("x", [pair("a", (4, 4), bins=None)]).plot_tensor("a"),
            "not a histogram",
        ),
    ):
        with pytest.raises(WorkbenchError, match=why):
            call()


def test_names_from_strangers_are_drawn_as_text(tmp_path: Path) -> None:
    hostile().plot().savefig(tmp_path / "x.png", dpi=30)
    assert HOSTILE not in str(
        [label.get_text() for label in hostile().plot().axes[0].get_xticklabels()]
    )
