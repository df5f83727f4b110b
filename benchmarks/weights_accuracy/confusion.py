"""Every trained matrix and its re-initialisations, in every format, through the shipped pipeline."""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import prod
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.weights_accuracy.corpus import PACKAGES, UNSEEN, Trained, trained
from benchmarks.weights_accuracy.schemes import FORMATS, GROUPED, SCHEMES
from workbench.weights.structure import SMALLEST_SIDE, SMALLEST_SIZE, SMALLEST_SIZE_4_BITS

Array = np.ndarray[Any, Any]
TRAINED = "trained"
VERDICTS = ("trained", "at_init", "undecided")

# What no training ever moved, found by this benchmark and then looked up in the model: the reason beside it.
_ANGLE = "the output of CHGNet's last angle layer is never read (model.py of chgnet 0.4.2)"
UNTRAINED = {
    "pooler.dense.weight": "the model averages tokens; this bias is 0 and all of it exact in fp16",
    "angle_layers.2.twoBody_bond.mlp_core.layers.1.weight": _ANGLE,
    "angle_layers.2.twoBody_bond.mlp_gate.layers.1.weight": _ANGLE,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One judged matrix."""

    package: str
    name: str
    shape: tuple[int, int]
    source: str
    format: str
    verdict: str
    family: str
    stage: int
    reason: str

    @property
    def half(self) -> str:
        """Which part it belongs to: thresholds were fixed on one, and are judged on the others."""
        return half_of(self.package)


# Half of the benchmark's time went into five matrices.
LARGE, FORMATS_OF_LARGE = 1 << 22, ("fp32", "bf16", "mxfp4")

HALVES = ("fixing", "judging", "unseen")


def half_of(package: str) -> str:
    """Return the part by a hash of the package, so that no model is in two."""
    if any(package == name for name, *_ in UNSEEN):
        return "unseen"
    return "fixing" if zlib.crc32(package.encode()) % 2 else "judging"


def matrix_of(tensor: Trained) -> Array | None:
    """Return the tensor as a matrix, None where it is no matrix."""
    if sum(size > 1 for size in tensor.values.shape) < 2:
        return None
    return np.ascontiguousarray(tensor.values.reshape(len(tensor.values), -1))


def is_large_enough(shape: tuple[int, ...]) -> bool:
    """Say whether a matrix is large enough for the verdict to be promised, in formats of 8 bits and more."""
    return min(shape) >= SMALLEST_SIDE and prod(shape) >= SMALLEST_SIZE


def is_promised(case: Case) -> bool:
    """Say whether a matrix is large enough for the verdict to be promised, in the format it was judged in."""
    if case.format not in GROUPED:
        return is_large_enough(case.shape)
    shape = in_whole_groups(case.shape)
    return is_large_enough(shape) and prod(shape) >= SMALLEST_SIZE_4_BITS


def in_whole_groups(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the shape that is left of a matrix in a format of groups of 32 columns."""
    return shape[0], shape[1] - shape[1] % 32


def judged(tensor: Trained, formats: Sequence[str] = tuple(FORMATS)) -> list[Case]:
    """Return the verdicts on one trained matrix and on all its re-initialisations.

    In each format where it has 32 rows and columns and 4,096 values, in three where it is large, and in fp32
    where it is smaller.
    """
    matrix = matrix_of(tensor)
    assert matrix is not None
    m, n = matrix.shape
    found = []
    for scheme in (TRAINED, *SCHEMES):
        drawn: dict[int, Array] = {}
        for name in formats:
            store = FORMATS[name]
            columns = in_whole_groups((m, n))[1] if name in GROUPED else n
            usable = is_large_enough((m, columns))
            if not usable and (is_large_enough(matrix.shape) or name != "fp32"):
                continue
            if matrix.size > LARGE and name not in FORMATS_OF_LARGE:
                continue
            if columns not in drawn:
                drawn[columns] = values_of(tensor, matrix[:, :columns], scheme)
            judgement = judge_stored(store("model.layers.0.proj.weight", drawn[columns]))
            found.append(
                Case(
                    tensor.package, tensor.name, (m, n), scheme, name,
                    judgement.verdict, judgement.family, judgement.stage, judgement.reason,
                )
            )  # fmt: skip
    return found


def values_of(tensor: Trained, matrix: Array, scheme: str) -> Array:
    """Return the trained values, or new ones of the same shape by a scheme; the same ones each time."""
    if scheme == TRAINED:
        return np.array(matrix)
    random = np.random.default_rng(zlib.crc32(f"{tensor.package} {tensor.name} {scheme}".encode()))
    return SCHEMES[scheme](matrix.shape, float(matrix.std()), random)


def judge_stored(tensors: dict[str, Any]) -> Any:
    """Return the verdict on the one weight of a checkpoint, read from a file as any other."""
    from safetensors.torch import save_file

    from workbench.checkpoint.dequantize import logical_weights
    from workbench.checkpoint.open import open_checkpoint
    from workbench.weights.measure import measure
    from workbench.weights.verdict import context_of, judge

    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({name: value.contiguous() for name, value in tensors.items()}, path)
        (weight,) = logical_weights(open_checkpoint(path))
        return judge(measure(weight), weight.rows, context_of(weight.name, weight.shape))


def corpus() -> tuple[list[Trained], list[Trained]]:
    """Return the matrices of usable size, and those that are too small."""
    usable, small = [], []
    for tensor in trained():
        matrix = matrix_of(tensor)
        if matrix is not None and matrix.std() > 0:
            (usable if is_large_enough(matrix.shape) else small).append(tensor)
    return usable, small


def run(
    tensors: Sequence[Trained], workers: int = 2, formats: Sequence[str] = tuple(FORMATS)
) -> list[Case]:
    """Judge everything, in as many processes."""
    from tqdm import tqdm

    largest_first = sorted(tensors, key=lambda tensor: -tensor.values.size)
    # One thread each for what computes in numpy and torch.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        parts = tqdm(
            pool.map(partial(judged, formats=formats), largest_first),
            total=len(tensors),
            unit="matrix",
        )
        return [case for part in parts for case in part]


def contents(usable: Sequence[Trained], small: Sequence[Trained]) -> Iterator[str]:
    """Yield a table of the packages and what is used of them."""
    versions = {name: version for name, version, _ in (*PACKAGES, *UNSEEN)}
    count = Counter(tensor.package for tensor in usable)
    too_small = Counter(tensor.package for tensor in small)
    yield "| package | version | part | matrices | too small |"
    yield "|---|---|---|---|---|"
    for package in sorted(count | too_small, key=lambda name: (HALVES.index(half_of(name)), name)):
        version = versions.get(package, "shipped")
        numbers = f"{count[package]} | {too_small[package]}"
        yield f"| {package} | {version} | {half_of(package)} | {numbers} |"


def small_ones(cases: Sequence[Case]) -> Iterator[str]:
    """Yield the table of what is said of matrices that are too small, in fp32 and in formats of 4 bits."""
    yield "| format | what it is | judged | trained | at init | undecided |"
    yield "|---|---|---|---|---|---|"
    for kind in ("fp32", *GROUPED):
        mine = [case for case in cases if case.format == kind]
        for name, rows in (
            (
                "trained",
                [case for case in mine if case.source == TRAINED and not is_untrained(case)],
            ),
            ("in a trained model, never trained", [case for case in mine if is_untrained(case)]),
            ("re-initialised, orthogonal", [case for case in mine if case.source == "orthogonal"]),
            (
                "re-initialised, others",
                [c for c in mine if c.source not in (TRAINED, "orthogonal")],
            ),
        ):
            numbers = " | ".join(f"{_count(rows, verdict):,}" for verdict in VERDICTS)
            if rows:
                yield f"| {kind} | {name} | {len(rows):,} | {numbers} |"


def is_untrained(case: Case) -> bool:
    """Say whether it is a tensor of a trained model that was never trained itself."""
    return case.source == TRAINED and any(case.name.endswith(name) for name in UNTRAINED)


def table(cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of the confusion table, a part of the corpus after the other."""
    yield "| part | what it is | judged | trained | at init | undecided | family named right |"
    yield "|---|---|---|---|---|---|---|"
    for half in HALVES:
        mine = [case for case in cases if case.half == half]
        for source in (TRAINED, *SCHEMES):
            rows = [case for case in mine if case.source == source and not is_untrained(case)]
            yield _line(half, source, rows)
        untrained = [case for case in mine if is_untrained(case)]
        if untrained:
            yield _line(half, "in a trained model, never trained", untrained)


_FAMILIES = {
    "normal 0.02": "normal", "normal, same σ": "normal", "Kaiming uniform": "uniform",
    "Xavier uniform": "uniform", "truncated normal": "truncated", "orthogonal": "orthogonal",
}  # fmt: skip


def _line(half: str, source: str, rows: Sequence[Case]) -> str:
    counts = Counter(case.verdict for case in rows)
    at_init = [case for case in rows if case.verdict == "at_init"]
    right = sum(case.family == _FAMILIES.get(source) for case in at_init)
    family = f"{100 * right / len(at_init):.1f} %" if at_init and source in _FAMILIES else ""
    other = len(rows) - sum(counts[name] for name in VERDICTS)
    assert not other, Counter(case.verdict for case in rows)
    numbers = " | ".join(f"{counts[name]:,}" for name in VERDICTS)
    return f"| {half} | {source} | {len(rows):,} | {numbers} | {family} |"


def by_format(cases: Sequence[Case]) -> Iterator[str]:
    """Yield a table of the errors a format."""
    yield "| format | trained | called at init | undecided | re-initialised | called trained | undecided |"
    yield "|---|---|---|---|---|---|---|"
    for name in FORMATS:
        real = [
            c for c in cases if c.format == name and c.source == TRAINED and not is_untrained(c)
        ]
        fake = [c for c in cases if c.format == name and c.source != TRAINED]
        numbers = [
            len(real), _count(real, "at_init"), _count(real, "undecided"),
            len(fake), _count(fake, "trained"), _count(fake, "undecided"),
        ]  # fmt: skip
        yield f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _count(cases: Sequence[Case], verdict: str) -> int:
    return sum(case.verdict == verdict for case in cases)


def odd_ones(cases: Sequence[Case]) -> Iterator[str]:
    """Yield a line for each matrix that was judged otherwise than expected, with the formats."""
    groups: dict[tuple[str, str, str, str, tuple[int, int]], list[Case]] = {}
    for case in cases:
        expected = "trained" if case.source == TRAINED else "at_init"
        if case.verdict != expected:
            key = (case.package, case.name, case.source, case.verdict, case.shape)
            groups.setdefault(key, []).append(case)
    for (package, name, source, verdict, shape), found in groups.items():
        known = next((why for end, why in UNTRAINED.items() if name.endswith(end)), "")
        why = known if known and source == TRAINED else found[0].reason
        formats = ", ".join(case.format for case in found)
        what = f"`{name}` of {package}, {shape[0]:,} × {shape[1]:,}"
        yield f"- {what}; {source}: **{verdict}** in {formats}. {why[:1].upper()}{why[1:]}."
