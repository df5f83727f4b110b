"""The one pass over a weight, against numpy in float64 on the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from workbench.checkpoint.dequantize import LogicalWeights, logical_weights
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.weights import kernels, reading
from workbench.weights import measure as measuring
from workbench.weights.cells import UPPER, cells_of
from workbench.weights.measure import measure
from workbench.weights.records import QUANTILES, Measure

EXACT = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
WIDE = (torch.float32, torch.float64)


def weights(folder: Path, tensors: dict[str, torch.Tensor]) -> LogicalWeights:
    path = folder / "model.safetensors"
    save_file({name: t.contiguous() for name, t in tensors.items()}, path)
    return logical_weights(open_checkpoint(path))


def measured(folder: Path, tensor: torch.Tensor, **options: Any) -> Measure:
    return measure(weights(folder, {"w": tensor})["w"], **options)


def compare(found: Measure, tensor: torch.Tensor, exact: bool) -> None:
    """Compare every figure with numpy's."""
    every = tensor.to(torch.float64).numpy().reshape(-1)
    values = every[np.isfinite(every)]
    assert (found.count, found.seen) == (every.size, every.size)
    assert found.nan == np.isnan(every).sum()
    assert found.inf == np.isinf(every).sum()
    assert found.zeros == (values == 0).sum()
    if not values.size:
        assert np.isnan(found.mean)
        return
    assert (found.min, found.max) == (values.min(), values.max())
    assert found.absmax == np.abs(values).max()
    scale = np.abs(values).max() or 1.0
    assert found.mean == pytest.approx(values.mean(), abs=1e-12 * scale)
    assert found.std == pytest.approx(values.std(), abs=1e-12 * scale)
    if values.std() > 1e-6 * scale:
        away = (values - values.mean()) / values.std()
        assert found.skew == pytest.approx((away**3).mean(), rel=1e-6, abs=1e-6)
        assert found.kurtosis == pytest.approx((away**4).mean() - 3, rel=1e-6, abs=1e-6)
    want = np.quantile(values, QUANTILES)
    if exact or values.size <= measuring.KEPT:
        assert found.rank_error == 0
        np.testing.assert_allclose(found.quantiles, want, atol=1e-12 * scale)
    else:
        assert found.rank_error > 0
        ordered = np.sort(values)
        for level, value in zip(QUANTILES, found.quantiles, strict=True):
            low, high = np.searchsorted(ordered, [value, np.nextafter(value, np.inf)])
            error = max(low / values.size - level, level - high / values.size)
            assert error <= found.rank_error + 1 / values.size
    assert found.bins is not None
    assert sum(found.bins[1]) == values.size
    half = np.float16(np.clip(values, -65504, 65504)).astype(np.float64)
    if tensor.dtype in WIDE:
        assert found.exact_in_fp16 == (half == values).mean()
    else:
        assert found.exact_in_fp16 is None


def z_of(sums: np.ndarray[Any, Any], entries: int, squares: np.ndarray[Any, Any]) -> float:
    ratio = sums.var(ddof=1) / (entries * squares.var())
    return float((ratio - 1) * np.sqrt((len(sums) - 1) / 2))


@pytest.mark.parametrize("kind", [*EXACT, *WIDE])
@pytest.mark.parametrize(
    "shape", [(700, 301), (64, 4096), (3, 100_001), (5, 7, 3, 3), (9,), (1, 1)]
)
def test_figures_are_numpys(tmp_path: Path, kind: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(sum(shape))
    tensor = (torch.randn(shape) * 0.02 + 0.003).to(kind)
    found = measured(tmp_path, tensor)
    compare(found, tensor, exact=kind in EXACT)
    matrix = tensor.to(torch.float64).numpy().reshape(shape[0], -1)
    if sum(size > 1 for size in shape) < 2:
        assert found.row_dispersion is None
        return
    squares = matrix**2
    for z, axis in ((found.row_dispersion, 1), (found.column_dispersion, 0)):
        want = z_of(squares.sum(axis), squares.shape[axis], squares)
        assert z == pytest.approx(want, rel=1e-3, abs=2e-3)


@pytest.mark.parametrize("kind", [*EXACT, *WIDE])
def test_what_is_no_number_is_counted_and_left_out(tmp_path: Path, kind: torch.dtype) -> None:
    tensor = torch.randn(200, 500).to(kind).float()
    tensor[3, 5] = torch.nan
    tensor[7] = 0.0
    tensor[9, 9] = -0.0
    if kind != torch.float8_e4m3fn:  # which has no infinity
        tensor[11, 3:6] = torch.inf
        tensor[12, 3] = -torch.inf
    found = measured(tmp_path, tensor.to(kind))
    compare(found, tensor.to(kind), exact=kind in EXACT)
    assert found.row_dispersion is None
    assert found.nan == 1
    empty = measured(tmp_path, torch.full((8, 9), torch.nan).to(kind))
    assert (empty.nan, empty.inf) == (72, 0)
    assert np.isnan(empty.std)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=90),
    st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_any_16_bit_codes(
    tmp_path_factory: pytest.TempPathFactory, codes: list[int], kind: torch.dtype
) -> None:
    """Every code, in any number: also those at the end of a block that fill no word."""
    tensor = torch.tensor(np.array(codes, np.uint16).view(np.int16)).view(kind)
    found = measured(tmp_path_factory.getbasetemp(), tensor)
    values = tensor.to(torch.float64).numpy()
    finite = values[np.isfinite(values)]
    assert found.nan == np.isnan(values).sum()
    assert found.inf == np.isinf(values).sum()
    tiny = 2.0**-126 if kind == torch.bfloat16 else 2.0**-14
    assert found.denormal == ((np.abs(finite) < tiny) & (finite != 0)).sum()
    if finite.size:
        np.testing.assert_allclose(found.quantiles, np.quantile(finite, QUANTILES), rtol=1e-12)
        magnitude = np.abs(finite)
        far = (magnitude >= 2.0**20) | ((magnitude < 2.0**-40) & (magnitude > 0))
        assert found.top_exponent_share == far.mean()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=90))
def test_any_floats(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    found = measured(tmp_path_factory.getbasetemp(), tensor)
    every = tensor.numpy().astype(np.float64)
    finite = every[np.isfinite(every)]
    assert found.nan == np.isnan(every).sum()
    assert found.inf == np.isinf(every).sum()
    if finite.size:
        assert (found.min, found.max) == (finite.min(), finite.max())
        assert found.zeros == (finite == 0).sum()
        tiny = (np.abs(finite) < 2.0**-126) & (finite != 0)
        assert found.denormal == tiny.sum()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_moments_far_from_zero_are_stable(tmp_path: Path, kind: torch.dtype) -> None:
    """Sums of plain powers would lose all digits of a spread that is small beside the mean."""
    tensor = (1000 + torch.randn(300, 1000, dtype=torch.float64)).to(kind)
    found = measured(tmp_path, tensor)
    compare(found, tensor, exact=kind == torch.bfloat16)
    if kind == torch.float32:  # half of the values share their upper bits: the error says so
        assert found.rank_error > 0.3
        assert found.ks is None


def test_a_normal_spread_has_small_rank_errors(tmp_path: Path) -> None:
    assert 0 < measured(tmp_path, torch.randn(900, 900)).rank_error < 0.004


def test_blocks_and_pieces_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of many blocks gives what a tensor of one gives: rows lie across blocks."""
    tensors = {
        "b": torch.randn(333, 257).bfloat16(),
        "f": torch.randn(333, 257) + 5,
        "d": torch.randn(333, 257).double(),
        "e": torch.randn(333, 257).to(torch.float8_e4m3fn),
    }
    whole = {w.name: measure(w) for w in weights(tmp_path, tensors)}
    for block in (64, 300, 5000):
        monkeypatch.setattr(reading, "BLOCK", block)
        monkeypatch.setattr(reading, "PIECE", 3 * block)
        monkeypatch.setattr(measuring, "KEPT", 0)
        for weight in weights(tmp_path, tensors):
            found, want = measure(weight), whole[weight.name]
            for field in ("mean", "std", "skew", "kurtosis", "row_dispersion", "column_dispersion"):
                assert getattr(found, field) == pytest.approx(
                    getattr(want, field), rel=1e-4, abs=1e-4
                ), field
            assert found.ks == pytest.approx(want.ks, rel=1e-6)
            for field in ("min", "max", "zeros", "denormal", "exact_in_fp16", "bins"):
                assert getattr(found, field) == getattr(want, field), field


def sums_of(units: np.ndarray[Any, Any], kind: str, width: int) -> measuring.Tally:
    tally = measuring.Tally(kind, width, 0, -(-units.size // width))
    tally.take(units, 0)
    return tally.settle()


@pytest.mark.parametrize("width", [1, 3, 8, 31, 4095, 4096, 4097, 1 << 16, (1 << 16) + 8])
def test_rows_and_columns_are_summed_whatever_their_length(width: int) -> None:
    """Rows shorter and longer than a tile, four at a time or not, and a last row that is cut off."""
    size = max(9 * width, 30_000) + width // 2
    values = np.random.default_rng(width).standard_normal(size).astype(np.float32)
    bits = values.view(np.uint32) & np.uint32(0xFFFF0000)
    narrow, eight = (bits >> 16).astype(np.uint16), (bits >> 24).astype(np.uint8)
    for units, kind, real in (
        (narrow, "BF16", bits.view(np.float32)),
        (values.astype(np.float16), "F16", values.astype(np.float16)),
        (values, "F32", values),
        (eight, "F8_E5M2", torch.tensor(eight).view(torch.float8_e5m2).float().numpy()),
    ):
        tally = sums_of(units, kind, width)
        squares = real.astype(np.float64) ** 2
        rows = np.add.reduceat(squares, np.arange(0, size, width))
        columns = np.bincount(np.arange(size) % width, squares, width)
        np.testing.assert_allclose(tally.rows[: len(rows)], rows, rtol=2e-5)
        np.testing.assert_allclose(tally.columns, columns, rtol=2e-5)


@pytest.mark.parametrize("size", [1, 7, 8, 63, 4095, 4097, 70_001])
def test_every_code_is_counted_once(size: int) -> None:
    """Also in runs of equal words, which are counted together, and beyond the last whole word."""
    random = np.random.default_rng(size)
    runs = np.repeat(random.integers(0, 1 << 16, size, np.uint16), random.integers(1, 40, size))
    for codes in (random.integers(0, 1 << 16, size, np.uint16), runs[:size]):
        for kind in ("BF16", "F16"):
            units = codes.view(np.float16) if kind == "F16" else codes
            counts = sums_of(units, kind, size).counts
            np.testing.assert_array_equal(counts, np.bincount(codes, minlength=1 << 16))
        eight = codes.astype(np.uint8)
        counts = sums_of(eight, "F8_E4M3", size).counts
        np.testing.assert_array_equal(counts, np.bincount(eight, minlength=1 << 16))


@pytest.mark.parametrize("kind", ["BF16", "F16", "F8_E4M3", "F32"])
def test_ten_million_equal_values_overflow_nothing(kind: str) -> None:
    size = 10_000_001
    made = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F8_E4M3": np.uint8}
    tally = sums_of(np.full(size, 3, made[kind]), kind, 1000)
    assert tally.counts.max() == tally.counts.sum() == size


def test_the_digest_is_what_it_was() -> None:
    """Word by word in Python: other rooms, and a card, make the same of the same bytes."""
    codes = np.random.default_rng(4).integers(0, 1 << 16, 3 * 4096 + 1204, np.uint16)
    state, most = 77, (1 << 64) - 1
    words = codes.view(np.uint64).tolist()
    for first in range(0, len(words), kernels.STEP):
        total = 0
        for word, key in zip(
            words[first : first + kernels.STEP], kernels.KEYS.tolist(), strict=False
        ):
            total += ((word ^ key) & 0xFFFFFFFF) * ((word ^ key) >> 32)
        state = ((state ^ (total & most)) * 0x9E3779B97F4A7C15) & most
        state ^= state >> 29
    assert kernels.digest(codes.view(np.uint64), kernels.KEYS, np.uint64(77)) == state
    tally = measuring.Tally("BF16", 100, 0, 140)
    tally.take(codes, 0)
    assert tally.settle().hashes[0] == kernels.digest(
        codes.view(np.uint64), kernels.KEYS, np.uint64(0)
    )


LAWS = {
    "normal": lambda: torch.empty(1000, 1000).normal_(0, 0.02),
    "uniform": lambda: torch.empty(1000, 1000).uniform_(-0.03, 0.03),
    "truncated": lambda: torch.nn.init.trunc_normal_(
        torch.empty(1000, 1000), std=0.02, a=-0.04, b=0.04
    ),
}


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("law", list(LAWS))
def test_rounding_does_not_pass_for_another_law(
    tmp_path: Path, law: str, kind: torch.dtype
) -> None:
    """A million values rounded to bfloat16 have 1e-3 of them in one code: compared at the codes
    themselves, any law would be refuted."""
    torch.manual_seed(11)
    found = measured(tmp_path, LAWS[law]().to(kind))
    assert found.ks is not None
    distances = dict(zip(LAWS, found.ks, strict=True))
    assert distances.pop(law) < 1.7
    assert min(distances.values()) > 8


def test_float32_that_holds_bfloat16_is_read_as_such(tmp_path: Path) -> None:
    tensor = torch.randn(700, 400).bfloat16()
    wide, narrow = measured(tmp_path, tensor.float()), measured(tmp_path, tensor)
    assert wide.ks == pytest.approx(narrow.ks)
    assert wide.quantiles == narrow.quantiles
    assert wide.rank_error == 0
    assert wide.exact_in_fp16 == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float16])
def test_all_equal(tmp_path: Path, kind: torch.dtype) -> None:
    found = measured(tmp_path, torch.full((70, 90), 0.5, dtype=kind))
    assert (found.mean, found.std, found.kurtosis) == (0.5, 0, 0)
    assert set(found.quantiles) == {0.5}
    assert found.ks is None
    assert found.row_dispersion is None


def test_digests(tmp_path: Path) -> None:
    """Equal tensors have equal digests; one bit, one swap, another shape or type make another one."""
    tensor = torch.randn(512, 300).bfloat16()
    bit, swap = tensor.clone(), tensor.clone()
    bit.view(torch.int16)[400, 77] ^= 1
    swap[[3, 4]] = swap[[4, 3]]
    made = weights(
        tmp_path,
        {
            "a": tensor, "same": tensor.clone(), "bit": bit, "swap": swap,
            "shape": tensor.reshape(300, 512).clone(),
            "half": tensor.view(torch.float16).clone(), "float": tensor.float(),
        },
    )  # fmt: skip
    digests = {weight.name: measure(weight).digest for weight in made}
    assert digests["a"] == digests["same"]
    assert len(set(digests.values())) == len(digests) - 1


def test_whole_numbers(tmp_path: Path) -> None:
    found = measured(tmp_path, torch.arange(1000))
    assert (found.min, found.max, found.mean, found.zeros) == (0, 999, 499.5, 1)
    mask = measured(tmp_path, torch.arange(1000) % 4 == 0)
    assert (mask.mean, mask.zeros) == (0.25, 750)
    big = measured(tmp_path, torch.tensor([1e300, -1e300, 1e-300, 0.0], dtype=torch.float64))
    assert (big.max, big.zeros, big.inf) == (1e300, 1, 0)


def test_empty(tmp_path: Path) -> None:
    found = measured(tmp_path, torch.zeros(0, 5))
    assert (found.count, found.seen, found.digest) == (0, 0, "")


@pytest.mark.parametrize("sample", [0.1, 128])
def test_a_sample_reads_rows_spread_over_the_tensor(tmp_path: Path, sample: float) -> None:
    rows = 2000
    tensor = (torch.arange(rows)[:, None] + torch.zeros(1, 64)).float()
    weight = weights(tmp_path, {"w": tensor})["w"]
    plan = reading.plan_reading(weight, sample)
    wanted = 200 if sample == 0.1 else 128
    assert (plan.rows, plan.seen, plan.count) == (wanted, wanted * 64, rows * 64)
    found = measure(weight, sample=sample)
    assert (found.count, found.seen, found.digest) == (rows * 64, wanted * 64, "")
    taken = sorted(first // 64 for piece in plan.pieces for first, _, _ in piece)
    assert len(taken) == reading.RUNS
    assert max(np.diff([0, *taken, rows])) < 3 * rows / reading.RUNS
    assert found.mean == pytest.approx(rows / 2, rel=0.05)
    assert measure(weight, sample=sample) == found
    few = measure(weights(tmp_path, {"w": tensor[:50]})["w"], sample=sample)
    assert few.seen == few.count


@pytest.mark.parametrize("sample", [0, -1, 0.0, 1.5, True, "half", float("nan")])
def test_samples_that_are_none(sample: Any) -> None:
    with pytest.raises(WorkbenchError, match="neither a share nor a number"):
        reading.check_sample(sample)


@pytest.mark.parametrize("kind", ["BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E5M2FNUZ", UPPER])
def test_cells_cover_the_line(kind: str) -> None:
    cells = cells_of(kind)
    assert (cells.lower <= cells.values).all()
    assert (cells.values <= cells.upper).all()
    zero = cells.values[:-1] == cells.values[1:]
    np.testing.assert_array_equal(cells.upper[:-1][~zero], cells.lower[1:][~zero])
    codes = 256 if kind.startswith("F8") else 1 << 16
    assert len(cells.order) + len(cells.nan) + len(cells.inf) == codes


def test_what_a_broken_file_left_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 1 << 10)
    made = weights(tmp_path, {"w": torch.randn(64, 512).bfloat16()})
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9000])
    with pytest.raises(WorkbenchError, match="shorter"):
        measure(made["w"])
    (tmp_path / "other").mkdir()
    found = measured(tmp_path / "other", torch.ones(8, 8).bfloat16())
    assert (found.min, found.max, sum(found.bins[1] if found.bins else ())) == (1, 1, 64)
