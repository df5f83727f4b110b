"""Both sides of each threshold of the verdicts on weights: noise with one statistic beside the border."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks.weights_accuracy.schemes import normal, orthogonal, to_bf16, truncated, uniform
from tests.weights.test_spectrum import planted
from tests.weights.test_verdict import one
from tests.weights.test_verdict_others import a_measure
from workbench.weights.families import fit, hides_law, known_scale
from workbench.weights.records import Measure
from workbench.weights.scan import scan_weights
from workbench.weights.spectrum import Spectrum, spectrum
from workbench.weights.structure import evidence, power, visible_change
from workbench.weights.vectors import judge_vector

NOISE = spectrum(normal((128, 128), 0.02, np.random.default_rng(1)))


def said(rounded: bool = False, whole: bool = True, **moved: Any) -> str:
    return evidence(dataclasses.replace(NOISE, **moved), rounded, whole).verdict


# -- structure: how far from noise is proof -----------------------------------------------------


def test_noise_alone_says_nothing() -> None:
    assert said() == "none"


@pytest.mark.parametrize("name", ["gram", "edge", "row_neighbours", "column_neighbours"])
@pytest.mark.parametrize(
    ("z", "verdict"),
    [(3.9, "none"), (4.0, "none"), (4.1, "undecided"), (6.4, "undecided"), (6.5, "undecided"),
     (6.6, "trained")],
)  # fmt: skip
def test_how_far_from_noise_is_proof_of_training(name: str, z: float, verdict: str) -> None:
    assert said(**{name: z}) == verdict
    if "neighbours" in name:
        assert said(**{name: -z}) == verdict


@pytest.mark.parametrize("name", ["row_scale", "column_scale"])
def test_norms_alone_are_no_proof(name: str) -> None:
    assert said(**{name: 6.4}) == "undecided"
    assert said(**{name: 6.6}) == "undecided"
    assert said(**{name: 60.0, "edge": 3.9}) == "undecided"
    # With anything else beyond noise they are.
    assert said(**{name: 6.6, "edge": 4.0}) == "trained"
    assert said(**{name: 6.6, "edge": 4.1}) == "trained"
    assert said(**{name: 60.0, "edge": 6.6}) == "trained"


@pytest.mark.parametrize(
    ("name", "z", "verdict"),
    [
        ("gram", -2.9, "none"),
        ("gram", -3.1, "undecided"),
        ("row_scale", -3.9, "none"),
        ("row_scale", -4.1, "undecided"),
        ("column_scale", -3.9, "none"),
        ("column_scale", -4.1, "undecided"),
        ("edge", -9.0, "none"),
    ],
)
def test_how_far_below_noise_is_no_init(name: str, z: float, verdict: str) -> None:
    assert said(**{name: z}) == verdict


def test_rows_more_orthogonal_than_chance_prove_training_of_a_whole_matrix_only() -> None:
    assert said(gram=-6.6) == "trained"
    assert said(gram=-6.4) == "undecided"
    assert said(gram=-6.6, whole=False) == "undecided"
    assert said(gram=-60.0, whole=False) == "undecided"


ORTHOGONAL = {"gram": -60.0, "orthogonality": 0.0019}
HAAR = -6 / (max(NOISE.rows, NOISE.columns) + 2)
DEVIATION = (24 / (NOISE.rows * NOISE.columns)) ** 0.5


@pytest.mark.parametrize(
    ("rounded", "moved", "verdict"),
    [
        (False, {}, "orthogonal"),
        (False, {"orthogonality": 0.0021}, "trained"),
        (True, {"orthogonality": 0.079}, "orthogonal"),
        (True, {"orthogonality": 0.081}, "trained"),
        (False, {"gram": -6.6}, "orthogonal"),
        (False, {"gram": -6.4}, "undecided"),
        (False, {"kurtosis": 0.9}, "undecided"),
        (False, {"kurtosis": -0.9}, "undecided"),
        # -6 / (n + 2) and 6.5 deviations of it, with what 16 bits do to it.
        (False, {"kurtosis": HAAR + 0.019 + 6.4 * DEVIATION}, "orthogonal"),
        (False, {"kurtosis": HAAR + 0.021 + 6.6 * DEVIATION}, "undecided"),
        (True, {"kurtosis": HAAR + 0.29}, "orthogonal"),
        (False, {"kurtosis": 1.1}, "trained"),
        (False, {"kurtosis": -1.1}, "trained"),
        (False, {"row_neighbours": 6.4}, "orthogonal"),
        (False, {"row_neighbours": -6.6}, "trained"),
        (False, {"column_neighbours": 6.6}, "trained"),
        (False, {"column_neighbours": -6.4}, "orthogonal"),
    ],
)
def test_what_is_an_orthogonal_init(rounded: bool, moved: dict[str, float], verdict: str) -> None:
    assert said(rounded, **(ORTHOGONAL | moved)) == verdict


@pytest.mark.parametrize(
    ("moved", "verdict"),
    [
        ({"filled": 11.9, "edge": 60.0}, "undecided"),
        ({"filled": 12.0, "edge": 60.0}, "trained"),
        # A narrow one needs half of its side.
        ({"filled": 7.9, "rows": 16, "edge": 60.0}, "undecided"),
        ({"filled": 8.0, "rows": 16, "edge": 60.0}, "trained"),
        ({"filled": 7.9, "columns": 16, "edge": 60.0}, "undecided"),
        ({"filled": 8.0, "columns": 16, "edge": 60.0}, "trained"),
        ({"filled": 7.9, "empty_rows": 112, "edge": 60.0}, "undecided"),
        ({"filled": 8.0, "empty_rows": 112, "edge": 60.0}, "trained"),
        ({"filled": 8.0, "empty_columns": 112, "edge": 60.0}, "trained"),
        ({"rows": 7, "edge": 60.0}, "none"),
        ({"rows": 8, "edge": 60.0}, "trained"),
        ({"columns": 7, "edge": 60.0}, "none"),
        ({"columns": 8, "edge": 60.0}, "trained"),
    ],
)
def test_too_few_values_for_a_spectrum(moved: dict[str, Any], verdict: str) -> None:
    found = evidence(dataclasses.replace(NOISE, **moved), False)
    assert found.verdict == verdict
    assert found.is_thin == ("filled" in moved and verdict == "undecided")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(2.0, 4.0, "at_init"), (4.0, 6.5, "undecided"), (6.5, 9.0, "undecided")],
)
def test_a_planted_direction_is_seen_as_far_as_it_reaches(
    tmp_path: Path, low: float, high: float, verdict: str
) -> None:
    """One direction on noise, of growing strength: the first whose edge lies in the range."""
    shape = (128, 192)
    drawn = (planted(shape, 1 + k / 25, seed=3) for k in range(40))
    values = next(v for v in drawn if low < spectrum(v).edge <= high)
    seen = spectrum(values)
    others = (
        seen.gram,
        seen.row_scale,
        seen.column_scale,
        seen.row_neighbours,
        seen.column_neighbours,
    )
    assert max(map(abs, others)) < 4.0
    assert one(tmp_path, values * np.float32(0.02)).verdict == verdict


# -- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "verdict"),
    [((31, 200), "undecided"), ((32, 128), "at_init"), ((32, 127), "undecided"), ((200, 31), "undecided"),
     ((64, 64), "at_init"), ((63, 64), "undecided")],
)  # fmt: skip
def test_how_small_an_init_may_be(tmp_path: Path, shape: tuple[int, int], verdict: str) -> None:
    values = normal(shape, 0.02, np.random.default_rng([9, *shape]))
    assert one(tmp_path, values).verdict == verdict


def test_a_small_matrix_of_no_law_is_trained(tmp_path: Path) -> None:
    heavy = np.random.default_rng(4).standard_t(3, (24, 100)).astype("f4") * np.float32(0.02)
    assert one(tmp_path, heavy).verdict == "trained"
    assert one(tmp_path, normal((24, 100), 0.02, np.random.default_rng(4))).verdict == "undecided"


def test_what_could_not_have_been_seen_is_told() -> None:
    measure = a_measure("a.weight", (256, 512))
    seen = dataclasses.replace(NOISE, rows=256, columns=512)
    size, text = power(seen, measure, False)
    assert size == visible_change(256, 512)
    assert "from" not in text
    part, told = power(dataclasses.replace(seen, rows=128), measure, False)
    assert part == visible_change(128, 512)
    assert part > size
    assert "from 128 of 256 rows)" in told
    assert "256 of 512 columns)" in power(dataclasses.replace(seen, columns=256), measure, False)[1]
    assert power(dataclasses.replace(seen, rows=0), measure, False) == (None, "")
    assert visible_change(8, 8) == 1.0
    plain, rounded = power(seen, measure, True), power(seen, a_measure("b", dtype="F8_E4M3"), True)
    assert plain[0] == pytest.approx(0.0447, abs=1e-4)
    assert rounded[0] == pytest.approx(0.2828, abs=1e-4)


def test_a_change_of_the_size_that_is_said_is_seen_and_a_smaller_one_is_not() -> None:
    shape = (96, 96)
    unit = (shape[0] * shape[1]) ** -0.25

    def share(size: float) -> float:
        drawn = (planted(shape, size * visible_change(*shape) / unit, seed) for seed in range(60))
        return sum(evidence(spectrum(values), False).verdict == "trained" for values in drawn) / 60

    assert share(1.0) >= 0.9
    assert share(0.84) <= 0.6


def test_a_few_values_far_out_are_taken_out_one_scale_at_a_time() -> None:
    def edge(count: int) -> float:
        values = normal((96, 96), 1.0, np.random.default_rng(0))
        values.flat[:count] = [1000.0 ** (k + 1) for k in range(count)]
        return spectrum(values).edge

    assert [count for count in range(9) if abs(edge(count)) > 4] == []


@pytest.mark.filterwarnings("error")
def test_a_row_at_the_mean_makes_no_nonsense() -> None:
    values = np.ones((12, 16), np.float32)
    for row in range(1, 12):
        steps = np.roll(np.arange(1, 9, dtype=np.float32) / 8, row)
        values[row, ::2] += steps
        values[row, 1::2] -= steps
    assert values.mean() == 1.0
    for matrix in (values, np.ascontiguousarray(values.T)):
        assert all(np.isfinite(dataclasses.astuple(spectrum(matrix))))


@pytest.mark.filterwarnings("error")
def test_one_value_beside_a_constant_makes_no_nonsense() -> None:
    values = np.ones((64, 64), np.float32)
    values[3, 5] = 1e6
    assert all(np.isfinite(dataclasses.astuple(spectrum(values))))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_zeros_are_left_out_and_so_are_columns(axis: int) -> None:
    values = normal((64, 64), 1.0, np.random.default_rng(2))
    holed = np.concatenate([values, np.zeros_like(values)], axis=axis)
    plain, seen = spectrum(values), spectrum(holed)
    assert (seen.filled, plain.filled) == (64.0, 64.0)
    assert (seen.empty_rows, seen.empty_columns) == ((64, 0) if axis == 0 else (0, 64))
    assert seen.edge == pytest.approx(plain.edge, abs=1e-3)
    assert seen.gram == pytest.approx(plain.gram, abs=1e-3)


# -- laws ---------------------------------------------------------------------------------------


def z(measure: Measure, spread: float, law: float, far: float, slack: float = 0.02) -> Measure:
    """Return a measure whose kurtosis lies so many deviations from a law's."""
    off = far * np.sqrt(spread / measure.seen) + np.sign(far) * slack
    return dataclasses.replace(measure, kurtosis=law + off)


BIG = a_measure("a.weight", (512, 512))
LAWS = [("normal", 24.0, 0.0, 1.0), ("uniform", 1.317, -1.2, -1.0)]


@pytest.mark.parametrize(("family", "spread", "law", "side"), LAWS)
@pytest.mark.parametrize(
    ("far", "fits", "is_far"),
    [(3.9, True, False), (4.1, False, False), (6.4, False, False), (6.6, False, True)],
)
def test_how_far_from_a_law_an_init_may_be(
    family: str, spread: float, law: float, side: float, far: float, fits: bool, is_far: bool
) -> None:
    found = fit(z(BIG, spread, law, side * far))
    assert (found.law.family, found.fits, found.is_far) == (family, fits, is_far)
    assert found.kurtosis_z == pytest.approx(side * far)


@pytest.mark.parametrize(
    ("dtype", "layout", "slack"),
    [
        ("BF16", "", 0.02),
        ("F8_E4M3", "", 0.06),
        ("I8", "int8", 0.02),
        ("U8", "mxfp4", 0.3),
        ("I32", "int4", 0.3),
    ],
)
def test_rounding_moves_the_kurtosis_so_far(dtype: str, layout: str, slack: float) -> None:
    measure = dataclasses.replace(BIG, dtype=dtype, layout=layout)
    inside, beyond = (z(measure, 24.0, 0.0, far, slack) for far in (3.9, 4.1))
    assert fit(inside).fits
    assert not fit(beyond).fits
    assert hides_law(measure) == (slack >= 0.3)


@pytest.mark.parametrize(
    ("ks", "error", "kurtosis", "family", "fits"),
    [
        ((2.1, 30.0, 12.0), 0.0, 0.0, "normal", True),
        ((2.2, 30.0, 12.0), 0.0, 0.0, "normal", False),
        ((2.3, 30.0, 12.0), 0.0, 0.0, "normal", False),
        ((2.3, 30.0, 12.0), 0.001, 0.0, "normal", True),
        ((2.8, 30.0, 12.0), 0.001, 0.0, "normal", False),
        ((30.0, 2.1, 12.0), 0.0, -1.2, "uniform", True),
        ((30.0, 2.3, 12.0), 0.0, -1.2, "uniform", False),
        ((12.0, 30.0, 2.1), 0.0, -0.6345, "truncated", True),
        # The distances fit and the tails do not.
        ((2.1, 30.0, 12.0), 0.0, 0.2, "normal", False),
        # A normal cut off at 3 σ looks normal to the distances.
        ((2.3, 30.0, 12.0), 0.0, -0.1711, "truncated", True),
        ((1.0, 30.0, 12.0), 0.0, -0.1711, "truncated", True),
        ((1.0, 30.0, 12.0), 0.0, -0.30, "truncated", False),
    ],
)
def test_the_distances_and_the_tails_both_have_to_fit(
    ks: tuple[float, float, float], error: float, kurtosis: float, family: str, fits: bool
) -> None:
    found = fit(dataclasses.replace(BIG, ks=ks, rank_error=error, kurtosis=kurtosis))
    assert (found.law.family, found.fits) == (family, fits)


@pytest.mark.parametrize(
    ("side", "ks", "fits"),
    [
        (2048, 2.19, True),
        (2048, 2.21, False),
        (2148, 2.24, True),  # 100 beyond 2,048: 0.05 more
        (2148, 2.26, False),
        (4096, 3.2, True),  # 2,048 beyond: 1.024 more
        (4096, 3.25, False),
    ],
)
def test_of_many_values_the_distance_may_grow(side: int, ks: float, fits: bool) -> None:
    measure = dataclasses.replace(BIG, seen=side**2, ks=(ks, 60.0, 40.0), kurtosis=0.0)
    assert fit(measure).fits is fits


def test_a_scale_is_known_within_its_error() -> None:
    def known(std: float, layout: str = "", range_: float | None = 0.02, **more: Any) -> str:
        measure = a_measure("a.weight", (1024, 1024), std=std, layout=layout, **more)
        return known_scale(measure, (1024, 1024), range_, None)

    # 0.3 %, and three standard errors of a million values.
    assert known(0.02 * 1.0049).startswith("initializer_range")
    assert known(0.02 * 0.9951).startswith("initializer_range")
    assert known(0.02 * 1.0054) == ""
    assert known(0.02 * 1.029, "int8").startswith("initializer_range")
    assert known(0.02 * 1.033, "int8") == ""
    assert known(0.02 * 1.0049, range_=None) == "0.02"
    assert known(1.0).startswith("1, the default")
    assert known((3 * 1024) ** -0.5).startswith("1/√(3 fan_in)")
    assert known(1024**-0.5).startswith("1/√fan_in")
    assert known((2 / 1024) ** 0.5).startswith("√(2/fan_in)")
    assert known_scale(
        a_measure("a", (1024, 512), std=(2 / 1536) ** 0.5), (1024, 512), None, None
    ) == ("√(2/(fan_in + fan_out)) (Xavier)")
    # initialize_dummy_weights of both engines: uniform between -10^-3 and 10^-3.
    flat, dummy = {"range_": None, "kurtosis": -1.2}, 1e-3 / 3**0.5
    assert known(dummy * 1.004, **flat).startswith("10^-3/√3, the dummy weights")
    assert known(dummy * 0.996, **flat).startswith("10^-3/√3, the dummy weights")
    assert known(dummy * 1.0046, **flat) == known(dummy * 0.9954, **flat) == ""
    assert known(dummy, range_=None) == ""  # no uniform values
    deep = known_scale(a_measure("a", (1024, 1024), std=0.02 / 8), (1024, 1024), 0.02, 32)
    assert deep == "initializer_range / √(2 layers)"
    assert known_scale(a_measure("a", std=0.02 / 8), (64, 64), None, 32).startswith(
        "0.02/√(2 layers)"
    )


# -- vectors ------------------------------------------------------------------------------------


def vector(name: str, values: Any, fan_in: int | None = 256, **more: Any) -> str:
    data = np.asarray(values, dtype=np.float64)
    spread = data.std()
    kurtosis = float(np.mean(((data - data.mean()) / spread) ** 4)) - 3
    measure = a_measure(
        name, data.shape, mean=float(data.mean()), std=float(spread), min=float(data.min()),
        max=float(data.max()), absmax=float(np.abs(data).max()), kurtosis=kurtosis,
    )  # fmt: skip
    found = judge_vector(dataclasses.replace(measure, **more), fan_in)
    return f"{found.verdict} {found.family}".strip()


BOUND = 256**-0.5
EVEN = np.linspace(-1, 1, 512)


@pytest.mark.parametrize(
    ("name", "values", "fan_in", "verdict"),
    [
        ("a.bias", EVEN * BOUND, 256, "at_init uniform"),
        ("a.bias", EVEN * BOUND * 1.004, 256, "at_init uniform"),
        ("a.bias", EVEN * BOUND * 1.006, 256, "undecided"),
        ("a.bias", EVEN * BOUND * (1 - 0.005 - 11.9 / 512), 256, "at_init uniform"),
        ("a.bias", EVEN * BOUND * (1 - 0.005 - 12.1 / 512), 256, "undecided"),
        ("a.bias", EVEN * BOUND * 1.049, 256, "undecided"),
        ("a.bias", EVEN * BOUND * 1.051, 256, "trained"),
        ("a.other", EVEN * BOUND * 1.051, 256, "undecided"),
        ("a.bias", EVEN * BOUND * 1.051, None, "undecided"),
        ("a.bias", EVEN * BOUND, None, "undecided"),
        ("a.bias", EVEN[:63] * BOUND, 256, "undecided"),
        ("norm.weight", EVEN * BOUND, 256, "trained"),
        ("input_layernorm.weight", EVEN * BOUND, 256, "trained"),
        ("norm.bias", EVEN * BOUND, 256, "at_init uniform"),
        ("bn1.weight", EVEN * BOUND, 256, "trained"),
        ("ln_f.weight", EVEN * BOUND, 256, "trained"),
    ],
)
def test_what_is_said_of_a_vector(name: str, values: Any, fan_in: int | None, verdict: str) -> None:
    assert vector(name, values, fan_in) == verdict


def test_a_short_vector_says_nothing_and_64_values_do() -> None:
    drawn = np.random.default_rng(8).standard_t(1.2, 64)
    assert vector("a.other", drawn) == "trained"
    assert vector("a.other", drawn, seen=63) == "undecided"


def test_a_bias_that_is_not_uniform_is_no_default_one() -> None:
    measure = {"absmax": BOUND, "min": -BOUND, "max": BOUND}
    spread = np.sqrt(1.317 / 512)
    near, far = (-1.2 + 0.02 + k * spread for k in (3.9, 4.1))
    assert vector("a.bias", EVEN * BOUND, kurtosis=near, **measure) == "at_init uniform"
    assert vector("a.bias", EVEN * BOUND, kurtosis=far, **measure) != "at_init uniform"
    assert vector("a.bias", EVEN * BOUND, kurtosis=-1.2 - 0.02 - 4.1 * spread, **measure) != (
        "at_init uniform"
    )


def test_a_noise_of_the_shape_is_measured_once() -> None:
    assert isinstance(NOISE, Spectrum)
    assert max(abs(NOISE.gram), abs(NOISE.edge), abs(NOISE.row_scale)) < 3.0


@pytest.mark.parametrize(("falls", "verdict"), [(0.0, "at_init"), (1.5, "undecided")])
def test_factors_of_a_decomposition_are_no_orthogonal_init(
    falls: float, verdict: str, tmp_path: Path
) -> None:
    """The left vectors of a decomposition times the roots of its values: norms fall from column to column."""
    drawn = orthogonal((128, 96), np.random.default_rng(11))
    norms = np.exp(-falls * np.arange(96) / 96).astype(np.float32)
    trained = planted((96, 128), 4.0, seed=1) * np.float32(0.02)
    save_file(
        {"layers.0.a.weight": trained, "layers.1.a.weight": drawn * norms},
        tmp_path / "model.safetensors",
    )
    found = scan_weights(tmp_path)
    assert found.tensors["layers.1.a.weight"].verdict == verdict
    assert found.ok is (None if falls else False)


def test_a_file_of_weights_is_judged_to_its_edge(tmp_path: Path) -> None:
    """The same through the front door: a file, a scan, its verdict."""
    random = np.random.default_rng(11)
    trained = planted((96, 128), 4.0, seed=1) * np.float32(0.02)
    drawn = {
        "normal": normal((96, 128), 0.02, random),
        "uniform": uniform((96, 128), 0.05, random),
        "truncated": truncated((96, 128), 0.02, random),
        "orthogonal": orthogonal((96, 128), random),
        "rounded": to_bf16(orthogonal((96, 128), random)),
    }
    save_file({"layers.0.a.weight": trained}, tmp_path / "model.safetensors")
    assert scan_weights(tmp_path).ok is True
    for name, values in drawn.items():
        save_file(
            {"layers.0.a.weight": trained, "layers.1.a.weight": values},
            tmp_path / "model.safetensors",
        )
        found = scan_weights(tmp_path)
        assert (found.ok, found.tensors["layers.1.a.weight"].verdict) == (False, "at_init"), name
