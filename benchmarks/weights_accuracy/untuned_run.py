"""``python -m benchmarks.weights_accuracy.untuned_run``: the verdicts on models that no rule has seen.

Every matrix of at least 32 x 32 of 30 packages is judged as it is stored, and two re-initialisations of its
shape. Equal matrices count once. Each file is then scanned as a whole model. Keras files need h5py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.weights_accuracy.confusion import judge_stored
from benchmarks.weights_accuracy.corpus import unpack
from benchmarks.weights_accuracy.files import tensors_of
from benchmarks.weights_accuracy.schemes import SCHEMES, plain
from benchmarks.weights_accuracy.untuned import UNTUNED
from workbench.weights.structure import SMALLEST_SIDE

Array = np.ndarray[Any, Any]
Row = dict[str, Any]

# Of each model file at most so many matrices: one model must not be the corpus.
_MOST, _LARGEST = 160, 1 << 22
_DRAWN = ("normal, same σ", "Kaiming uniform")
WHOLE = "whole"
_KINDS = {"float32": "float32", "float16": "float16", "float64": "float64"}


def matrices(package: str, version: str, wanted: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Yield the different matrices of a package that are large enough, as they are stored."""
    known: set[bytes] = set()
    for path in unpack(package, version, wanted):
        taken = 0
        for name, values in tensors_of(path).items():
            if values.dtype.name not in _KINDS or sum(size > 1 for size in values.shape) < 2:
                continue
            matrix = np.ascontiguousarray(values.reshape(len(values), -1))
            if min(matrix.shape) < SMALLEST_SIDE or not matrix.size <= _LARGEST or taken >= _MOST:
                continue
            digest = hashlib.blake2b(matrix.tobytes()).digest()
            if digest in known or not np.isfinite(matrix).all() or not matrix.std() > 0:
                continue
            known.add(digest)
            taken += 1
            yield f"{path.name}:{name}", np.ascontiguousarray(values)


def judged(job: tuple[str, str, tuple[str, ...]]) -> list[Row]:
    """Return the verdicts on the matrices of one package and on re-initialisations of them."""
    package, rows = job[0], list[Row]()
    for name, matrix in matrices(*job):
        store = plain(_KINDS[matrix.dtype.name])
        random = np.random.default_rng(len(rows))
        for source in ("trained", *_DRAWN):
            values = matrix
            if source != "trained":
                flat = (len(matrix), matrix.size // len(matrix))
                drawn = SCHEMES[source](flat, float(matrix.std(dtype=np.float64)), random)
                values = np.asarray(drawn, matrix.dtype).reshape(matrix.shape)
            found = judge_stored(store("model.layers.0.conv.weight", values))
            rows.append({
                "package": package, "name": name, "shape": matrix.shape, "source": source,
                "verdict": found.verdict, "reason": found.reason, "parts": [p.text() for p in found.parts],
            })  # fmt: skip
    return [*rows, *whole_models(*job)]


def whole_models(package: str, version: str, wanted: tuple[str, ...]) -> Iterator[Row]:
    """Yield the answer of a scan of each file, with all its floats in one checkpoint."""
    import torch
    from safetensors.torch import save_file

    import workbench

    for path in unpack(package, version, wanted):
        tensors = {
            name: torch.from_numpy(np.array(values, order="C"))
            for name, values in tensors_of(path).items()
            if values.dtype.name in _KINDS and values.size > 1  # numbers of an ONNX graph
        }
        if not any(sum(size > 1 for size in value.shape) > 1 for value in tensors.values()):
            continue
        with TemporaryDirectory() as folder:
            save_file(tensors, Path(folder) / "model.safetensors")
            found = workbench.scan_weights(folder)
        yield {
            "package": package, "name": path.name, "shape": (), "source": WHOLE, "verdict": str(found.ok),
            "reason": found.summary, "parts": [],
        }  # fmt: skip


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table, a package a line."""
    by_package: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_package[row["package"]].append(row)
    names = "trained | parts at init | at init | undecided | re-initialised | trained | undecided"
    yield f"| package | trained matrices | {names} | whole files with ✓ |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for package, mine in [*sorted(by_package.items()), ("all", list(rows))]:
        real = [row for row in mine if row["source"] == "trained"]
        fake = [row for row in mine if row["source"] in _DRAWN]
        whole = [row for row in mine if row["source"] == WHOLE]
        ticks = sum(row["verdict"] == "True" for row in whole)
        count = Counter("parts" if row["parts"] else row["verdict"] for row in real)
        drawn = Counter(row["verdict"] for row in fake)
        numbers = (
            len(real), count["trained"], count["parts"], count["at_init"],
            count["undecided"], len(fake), drawn["trained"], drawn["undecided"],
        )  # fmt: skip
        shown = " | ".join(f"{number:,}" for number in numbers)
        yield f"| {package} | {shown} | {ticks} of {len(whole)} |"


def main() -> None:
    """Judge all, print the table and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="JSON file that the verdicts are written to")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="these packages alone")
    chosen = parser.parse_args()
    start = time.monotonic()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows: list[Row] = []
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        for found in pool.map(
            judged, [job for job in UNTUNED if not chosen.only or job[0] in chosen.only]
        ):
            rows += found
            if chosen.rows:
                chosen.rows.write_text(json.dumps(rows))
    print("\n".join(table(rows)))
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
