"""16-bit weights on a CUDA card: exact counts and squares against the card's own copy, in one run.

Prints JSON. Needs a card; `python -m benchmarks` leaves it out where there is none.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SIDE = 1 << 15


def seconds(run: Callable[[], Any], repeats: int = 15) -> float:
    """Return the median time of a call on the card."""
    import torch

    for _ in range(3):
        run()
    times: list[float] = []
    for _ in range(repeats):
        start, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return median(times)


def queued(run: Callable[[], Any], calls: int = 10, repeats: int = 9) -> float:
    """Return the time of a call among others that wait for it on the card: Python's own is left out."""
    import torch

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return seconds(graph.replay, repeats) / calls


def inputs(side: int, kind: Any) -> dict[str, Any]:
    """Return matrices of the usual and of the worst sort."""
    import torch

    normal = torch.randn(side, side, device="cuda", dtype=torch.float32).mul_(0.02).to(kind)
    made = {
        "normal 0.02": normal,
        "uniform 0.02": torch.empty(side, side, device="cuda").uniform_(-0.02, 0.02).to(kind),
        "all equal": torch.full((side, side), 0.0123, device="cuda", dtype=kind),
        "plus and minus one value": torch.where(normal > 0, 0.0123, -0.0123).to(kind),
        "half zeros": torch.where(normal > 0, normal, 0).to(kind),
        "normal 1": normal.float().mul_(50).to(kind),
        "of fewer bits": normal.to(torch.bfloat16).to(kind),
    }
    if side <= 4096:  # every code: memory that nobody wrote
        bits = torch.randint(-(1 << 15), 1 << 15, (side, side), device="cuda", dtype=torch.int16)
        made["garbage"] = bits.view(kind)
    return made


def check(side: int = 2048) -> list[str]:
    """Return what the card gets wrong, against numpy in float64: with its own table and a small card's."""
    import torch

    from workbench.weights import gpu

    wrong, tables = [], gpu._TABLES
    try:
        for some in (tables, tables[1:], ()):
            gpu._TABLES = some  # type: ignore[assignment]
            gpu.compiled.cache_clear()
            for kind, name in ((torch.bfloat16, "BF16"), (torch.float16, "F16")):
                found = compare(side if some == tables else side // 4, kind, name)
                wrong += [f"{name}, {len(some)} tables, {what}" for what in found]
    finally:
        gpu._TABLES = tables
        gpu.compiled.cache_clear()
    return wrong


def compare(side: int, kind: Any, name: str) -> list[str]:
    """Return where counts and squares of one type differ from numpy's."""
    import numpy as np
    import torch

    from workbench.weights.gpu import Sums, tally_codes

    wrong = []
    for what, matrix in inputs(side, kind).items():
        for shape in ((side, side), (77, 1000), (65, 8), (100, 999), (3, 80_000), (5000, 8)):
            if shape[0] * shape[1] > matrix.numel():
                continue
            part = matrix.reshape(-1)[: shape[0] * shape[1]].contiguous()
            into = Sums(shape[0], shape[1], "cuda")
            tally_codes(part.view(torch.int16), *shape, name, into)
            codes = part.view(torch.int16).cpu().numpy().view(np.uint16)
            if not np.array_equal(into.counts.cpu().numpy(), np.bincount(codes, minlength=1 << 16)):
                wrong.append(f"{shape} {what}: counts")
            if what == "garbage":
                continue
            squares = part.cpu().double().numpy().reshape(shape) ** 2
            for axis, sums in ((1, into.rows), (0, into.columns)):
                got, want = sums.cpu().double().numpy(), squares.sum(axis)
                if not np.abs(got - want).max() <= 2e-5 * want.max():
                    wrong.append(f"{shape} {what}: squares along {axis}")
    return wrong


def speeds(side: int) -> dict[str, Any]:
    """Return rates in GB/s of bytes read, and their share of the card's copy (read and written)."""
    import torch

    from workbench.weights import gpu

    result: dict[str, Any] = {"side": side}
    matrix = torch.randn(side, side, device="cuda").mul_(0.02).bfloat16()
    nbytes = matrix.numel() * 2
    # Not from a graph, which copies more slowly.
    other = torch.empty_like(matrix)
    copy = 2 * nbytes * 10 / seconds(lambda: [other.copy_(matrix) for _ in range(10)]) / 1e9
    result["copy, read + written GB/s"] = copy

    def tell(what: str, size: int, taken: float) -> None:
        rate = size / taken / 1e9
        result[what] = {"GB/s": rate, "share of copy": rate / copy}

    into = gpu.Sums(side, side, "cuda")
    for name, kind in (("BF16", torch.bfloat16), ("F16", torch.float16)):
        for what, one in inputs(side, kind).items():
            codes = one.view(torch.int16).reshape(-1)
            run = partial(gpu.tally_codes, codes, side, side, name, into)
            tell(f"{name}, {what}", nbytes, queued(run))
            if what == "normal 0.02":
                tell(f"{name}, {what}, one call from Python", nbytes, seconds(run))
    part = matrix.view(torch.int16).reshape(-1)[: side * 1024]
    slow = partial(gpu.slowly, part, 1024, side, "BF16", into)
    tell("torch's own functions (fallback)", part.numel() * 2, seconds(slow, 5))
    few = matrix[:4096]
    tell("naive torch, six statistics", few.numel() * 2, seconds(lambda: _naive(few), 5))
    return result


def _naive(matrix: Any) -> list[Any]:
    wide = matrix.float()
    return [
        wide.mean(), wide.std(), wide.min(), wide.max(), (wide == 0).sum(), wide.square().sum(1),
        wide.square().sum(0),
    ]  # fmt: skip


def from_disk(gib: float) -> dict[str, Any]:
    """Return rates of a whole checkpoint: read, counted on the card or the CPU, figures made."""
    import torch
    from safetensors.torch import save_file

    from workbench.checkpoint.dequantize import logical_weights
    from workbench.checkpoint.open import open_checkpoint
    from workbench.weights import pool

    result: dict[str, Any] = {"threads": pool.cores()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        count = max(1, int(gib * 8))
        save_file(
            {f"w{i}": torch.randn(8192, 8192).mul_(0.02).bfloat16() for i in range(count)}, path
        )
        size = path.stat().st_size
        start = time.perf_counter()
        with open(path, "rb", buffering=0) as file:
            block = bytearray(1 << 24)
            while file.readinto(block):
                pass
        result["read(), one thread, GB/s"] = size / (time.perf_counter() - start) / 1e9
        for device in ("cuda", "cpu", "cuda"):
            weights = logical_weights(open_checkpoint(path))
            found: dict[str, Any] = {}
            start = time.perf_counter()
            for measure in pool.measure_here(weights, range(len(weights)), None, device):
                found[measure.name] = measure
            result[f"{device}, GB/s"] = size / (time.perf_counter() - start) / 1e9
            result[f"{device}, digests"] = sorted(m.digest for m in found.values())[0]
            one = found["w0"]
            result[f"{device}, w0"] = [one.mean, one.std, one.row_dispersion, one.column_dispersion]
    return result


def variants(side: int) -> dict[str, float]:
    """Return GB/s of the kernel by threads and rows that each loads ahead: how it was tuned."""
    import torch

    from workbench.weights import gpu

    codes = inputs(side, torch.bfloat16)["normal 0.02"].view(torch.int16).reshape(-1)
    into = gpu.Sums(side, side, "cuda")
    plain = gpu.compiled
    found = {}
    try:
        for threads, ahead in product((512, 640, 768, 1024), (2, 4, 8)):
            gpu.compiled = partial(plain, threads=threads, ahead=ahead)  # type: ignore[assignment]
            taken = queued(lambda: gpu.tally_codes(codes, side, side, "BF16", into))
            found[f"{threads} threads, {ahead} rows"] = codes.numel() * 2 / taken / 1e9
    finally:
        gpu.compiled = plain
    return found


STAGES: dict[str, Callable[[argparse.Namespace], Any]] = {
    "wrong": lambda options: check(),
    "speeds": lambda options: speeds(options.side),
    "small": lambda options: speeds(8192),
    "variants": lambda options: variants(options.side // 2),
    "disk": lambda options: from_disk(options.gib) if options.gib else {},
}


def main(arguments: list[str] | None = None) -> None:
    """Print each stage as it is done: a stage that fails does not take the others with it."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=SIDE, help="rows and columns of the matrix")
    parser.add_argument("--gib", type=float, default=4, help="size of the checkpoint on disk")
    options = parser.parse_args(arguments)
    print(json.dumps({"card": torch.cuda.get_device_name(), "torch": torch.__version__}))
    for name, stage in STAGES.items():
        try:
            found = stage(options)
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({name: found}, indent=1), flush=True)


if __name__ == "__main__":
    main()
