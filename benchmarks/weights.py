"""Measuring weights: one pass against plain reading, naive torch and weightwatcher, in one run.

All figures are the best of several, by CPU time (`time.thread_time`) and by wall clock: the ratios are of CPU
times, since other programs share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

from workbench.checkpoint.compiled import kernel  # noqa: E402
from workbench.weights import kernels  # noqa: E402
from workbench.weights.figures import figures  # noqa: E402
from workbench.weights.measure import Tally  # noqa: E402
from workbench.weights.reading import BLOCK  # noqa: E402

Array = np.ndarray[Any, Any]
Timing = tuple[float, float]

SIDE = 8192
MIB = 1 << 20


@kernel()
def read_all(words: Array) -> Any:
    """Add up all words: the cheapest thing that reads them."""
    total = np.uint64(0)
    for i in range(words.size):
        total += words[i]
    return total


def best(run: Callable[[], Any], repeats: int) -> Timing:
    """Return the least wall and the least CPU seconds of several calls."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.thread_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
    return min(walls), min(cpus)


def one_pass(units: Array, kind: str, side: int = SIDE) -> dict[str, Any]:
    """Do what a scan does with a tensor in memory: every figure of `Measure`, and the digest."""
    rows = units.size // side
    tally = Tally(kind, side, 0, rows)
    for first in range(0, units.size, BLOCK):
        tally.take(units[first : first + BLOCK], first)
    return figures(tally.settle(), rows)


def bf16(values: Array) -> Array:
    """Return float32 as bfloat16 codes."""
    return ((values.view(np.uint32) + np.uint32(0x8000)) >> 16).astype(np.uint16)


def buffers(mib: int) -> dict[str, tuple[str, Array]]:
    """Return what is measured, by what it is: type and stored units."""
    normal = np.random.default_rng(0).standard_normal(mib * MIB // 2, np.float32) * np.float32(0.02)
    codes = bf16(normal)
    sign = np.where(normal > 0, np.uint16(0x3C4A), np.uint16(0xBC4A))
    return {
        "BF16, normal": ("BF16", codes),
        "BF16, all equal": ("BF16", np.full_like(codes, 0x3C4A)),
        "BF16, plus and minus one value": ("BF16", sign),
        "BF16, half zeros": ("BF16", np.where(normal > 0, codes, np.uint16(0))),
        "BF16, all codes (uninitialised memory)": (
            "BF16", np.random.default_rng(1).integers(0, 1 << 16, codes.size, np.uint16),
        ),
        "F16, normal": ("F16", normal.astype(np.float16)),
        "F32, normal": ("F32", normal[: normal.size // 2]),
        "F8_E4M3, codes of a normal": ("F8_E4M3", (codes >> 8).astype(np.uint8)),
    }  # fmt: skip


def in_memory(mib: int, repeats: int) -> dict[str, Any]:
    """Return GB/s of one core by kind, beside a plain read of the same memory."""
    made = buffers(mib)
    result: dict[str, Any] = {}
    for name, (kind, units) in made.items():
        one_pass(units[: 1 << 20], kind)  # compiles
        read_all(units.view(np.uint64))
        plain: list[Timing] = []
        ours: list[Timing] = []
        for _ in range(repeats):  # side by side, so that noise meets both
            plain.append(best(lambda u=units: read_all(u.view(np.uint64)), 2))
            ours.append(best(lambda u=units, k=kind: one_pass(u, k), 1))
        size = units.nbytes / 1e9
        read, taken = (tuple(map(min, zip(*times, strict=True))) for times in (plain, ours))
        result[name] = {
            "plain read GB/s": size / read[1],
            "one pass GB/s": size / taken[1],
            "one pass, wall GB/s": size / taken[0],
            "share of plain read": read[1] / taken[1],
        }
    result["naive torch"] = naive(made["BF16, normal"][1], result["BF16, normal"], repeats)
    return result


@kernel()
def count_all(words: Array, table: Array) -> None:
    """Count tile by tile, as the pass does."""
    for first in range(0, words.size, kernels.STEP):
        kernels._count(words[first : first + kernels.STEP], False, table)


@kernel()
def square_all(codes: Array, none: Array, columns: Array, rows: Array) -> None:
    """Square four rows at a time, as the pass does."""
    four = 4 * columns.size
    for first in range(0, codes.size, four):
        kernels._squares_of_four(codes[first : first + four], none, columns, rows)


def parts(repeats: int) -> dict[str, float]:
    """Return GB/s of each part of the pass alone and of all of it, over 1 MiB of BF16 in the cache."""
    codes = buffers(1)["BF16, normal"][1]
    words, none = codes.view(np.uint64), np.empty(0, np.float32)
    table = np.zeros(kernels.TABLES * kernels.STRIDE, np.uint32)
    columns, rows = np.full(SIDE, kernels.LEAST), np.zeros(codes.size // SIDE + 9)
    zero, keys = np.uint64(0), kernels.KEYS
    jobs: dict[str, Callable[[], Any]] = {
        "counting": lambda: count_all(words, table),
        "squares": lambda: square_all(codes, none, columns, rows),
        "digest": lambda: kernels.digest(words, keys, zero),
        "all": lambda: kernels.pass_codes(codes, none, 0, SIDE, table, rows, columns, keys, zero),
    }
    found = {}
    for name, job in jobs.items():
        job()
        _, cpu = best(lambda run=job: [run() for _ in range(16)], repeats)
        found[f"{name}, GB/s"] = 16 * codes.nbytes / 1e9 / cpu
    return found


def naive(codes: Array, ours: dict[str, float], repeats: int) -> dict[str, float]:
    """Measure what one writes first: each statistic by a call on the whole tensor as float32."""
    import torch

    torch.set_num_threads(1)
    tensor = torch.from_numpy(codes.view(np.int16)).view(torch.bfloat16).view(-1, SIDE)
    levels = torch.tensor([0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999])

    def seven() -> None:
        wide = tensor.float()
        wide.mean(), wide.std(), wide.min(), wide.max(), wide.abs().max()
        (wide == 0).sum(), wide.isnan().sum()

    def every() -> None:
        seven()
        wide = tensor.float()
        away = wide - wide.mean()
        (
            (away**3).mean(),
            (away**4).mean(),
            wide.isinf().sum(),
            wide.square().sum(0),
            wide.square().sum(1),
        )
        torch.quantile(wide.flatten()[: 1 << 24], levels)  # it refuses more

    size = codes.nbytes / 1e9
    found = {}
    for name, run in (("seven statistics", seven), ("all that one pass gives", every)):
        _, cpu = best(run, max(1, repeats // 3))
        found[f"{name}, GB/s"] = size / cpu
        found[f"{name}, one pass is faster by"] = ours["one pass GB/s"] * cpu / size
    return found


def scaling(mib: int, repeats: int) -> dict[str, float]:
    """Return GB/s of one and of two threads, each on memory of its own: wall clock, and by CPU time."""
    parts = [
        bf16(np.random.default_rng(i).standard_normal(mib * MIB // 4, np.float32)) for i in (0, 1)
    ]
    found: dict[str, float] = {}
    for threads in (1, 2):
        walls, cpus = [], []
        for _ in range(repeats):
            used: list[float] = []

            def work(at: int, used: list[float] = used) -> None:
                start = time.thread_time()
                one_pass(parts[at], "BF16")
                used.append(time.thread_time() - start)

            crew = [threading.Thread(target=work, args=(at,)) for at in range(threads)]
            start = time.perf_counter()
            for one in crew:
                one.start()
            for one in crew:
                one.join()
            walls.append(time.perf_counter() - start)
            cpus.append(max(used))
        size = sum(part.nbytes for part in parts[:threads]) / 1e9
        found[f"{threads} threads, wall GB/s"] = size / min(walls)
        found[f"{threads} threads, CPU GB/s"] = size / min(cpus)
    found["speed-up, wall"] = found["2 threads, wall GB/s"] / found["1 threads, wall GB/s"]
    found["speed-up, CPU"] = found["2 threads, CPU GB/s"] / found["1 threads, CPU GB/s"]
    return found


_SHARED = 32  # directions


def write(folder: Path, mib: int, side: int = 4096) -> Path:
    """Write a checkpoint of bfloat16 matrices: the first as it was drawn, the others as if trained.

    Those have what training leaves: directions that many rows share, and unequal norms of rows and columns.
    """
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    tensors = {}
    for at in range(max(2, mib * MIB // (2 * side * side))):
        weight = torch.randn(side, side).mul_(0.02)
        if at:
            shared = torch.randn(side, _SHARED) @ torch.randn(_SHARED, side)
            weight += shared.mul_(0.02 / _SHARED**0.5)
            weight *= torch.exp(torch.randn(side, 1) * 0.2) * torch.exp(torch.randn(1, side) * 0.2)
        tensors[f"layers.{at}.mlp.up_proj.weight"] = weight.bfloat16()
    path = folder / "model.safetensors"
    save_file(tensors, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return path


def forget(path: Path) -> None:
    """Take a file out of the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(path: Path) -> None:
    with open(path, "rb", buffering=0) as file:
        block = bytearray(4 * MIB)
        while file.readinto(block):
            pass


def on_disk(path: Path, repeats: int) -> dict[str, float]:
    """Return GB/s of a checkpoint on disk: read alone, measured, judged; cold and from the page cache."""
    from workbench.checkpoint.dequantize import logical_weights
    from workbench.checkpoint.open import open_checkpoint
    from workbench.weights.pool import cores, measure_here
    from workbench.weights.scan import scan_weights

    def measured() -> None:
        weights = logical_weights(open_checkpoint(path))
        for _ in measure_here(weights, range(len(weights)), None, "cpu"):
            pass

    jobs = {
        "read() alone": lambda: plain_read(path),
        "measured": measured,
        "measured and judged": lambda: scan_weights(path),
        "judged, sample=128": lambda: scan_weights(path, sample=128),
    }
    measured()
    found: dict[str, float] = {"GB": path.stat().st_size / 1e9, "threads": cores()}
    for state in ("cold", "cached"):
        for name, job in jobs.items():
            walls = []
            for _ in range(repeats):
                if state == "cold":
                    forget(path)
                start = time.perf_counter()
                job()
                walls.append(time.perf_counter() - start)
            found[f"{name}, {state}, s"] = min(walls)
            if "sample" not in name:
                found[f"{name}, {state}, GB/s"] = found["GB"] / min(walls)
    return found


_WATCH = """
import json, sys, time, warnings, logging
warnings.simplefilter("ignore"); logging.disable(logging.WARNING)
import torch; torch.set_num_threads(1)
from safetensors.torch import load_file
import weightwatcher
class Model(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        for at, tensor in enumerate(tensors):
            made = torch.nn.Linear(tensor.shape[1], tensor.shape[0], bias=False, dtype=torch.float32)
            made.weight.data = tensor.float()
            self.add_module(f"m{at}", made)
tensors = [t for t in load_file(sys.argv[1]).values() if t.dim() == 2]
model = Model(tensors)
watcher = weightwatcher.WeightWatcher(model=model)
cpu, wall = time.process_time(), time.perf_counter()
found = watcher.analyze(model=model, mp_fit=True, randomize=False, plot=False)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps({"cpu": cpu, "wall": wall, "layers": len(found)}))
"""


def watched(path: Path, packages: str) -> dict[str, Any]:
    """Return how long weightwatcher takes for its spectra, and a scan for its verdicts, in CPU seconds."""
    from workbench.weights.scan import scan_weights

    environment = os.environ | {"PYTHONPATH": packages}
    ran = subprocess.run(
        [sys.executable, "-c", _WATCH, path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        return {"failed": ran.stderr.strip().splitlines()[-1][:200]}
    theirs = json.loads(ran.stdout.splitlines()[-1])
    scan_weights(path)  # compiles
    walls, cpus = [], []
    for _ in range(3):
        cpu, wall = time.process_time(), time.perf_counter()
        scan_weights(path)
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
    return {
        "matrices": theirs["layers"],
        "weightwatcher, CPU s": theirs["cpu"],
        "scan_weights, CPU s": min(cpus),
        "faster by (CPU)": theirs["cpu"] / min(cpus),
        "weightwatcher, wall s": theirs["wall"],
        "scan_weights, wall s": min(walls),
        "faster by (wall)": theirs["wall"] / min(walls),
    }


_PEAK = """
import sys
sys.path.insert(0, sys.argv[3])
from workbench.weights.scan import scan_weights
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
scan_weights(sys.argv[2])
before = peak()
scan_weights(sys.argv[1])
print(before, peak())
"""


def memory(path: Path) -> dict[str, float]:
    """Return the peak memory, in MiB, of a process that scans a small checkpoint and then this one."""
    small = ROOT / "data" / "incident" / "drafts" / "specforge"
    code = [sys.executable, "-c", _PEAK, str(path), str(small), str(ROOT)]
    ran = subprocess.run(code, capture_output=True, text=True, check=True)
    before, after = map(float, ran.stdout.split())
    return {"checkpoint MiB": path.stat().st_size / MIB, "small MiB": before, "this one MiB": after}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print every figure as JSON, stage by stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=128, help="size of the buffers in memory")
    parser.add_argument("--disk", type=int, default=1024, help="size of the checkpoint, in MiB")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--packages", default="", help="a folder that weightwatcher was installed into"
    )
    options = parser.parse_args(arguments)

    def tell(name: str, found: Any) -> None:
        print(json.dumps({name: found}, indent=1, default=float), flush=True)

    tell("memory, one core", in_memory(options.mib, options.repeats))
    tell("parts, 1 MiB", parts(options.repeats))
    tell("two cores", scaling(options.mib, options.repeats))
    with tempfile.TemporaryDirectory(prefix="weights-") as folder:
        path = write(Path(folder), options.disk)
        tell("disk", on_disk(path, 3))
        tell("peak", memory(path))
    if options.packages:
        target = ROOT / "data" / "incident" / "target" / "model.safetensors"
        tell("weightwatcher, shipped target", watched(target, options.packages))
        with tempfile.TemporaryDirectory(prefix="weights-") as folder:
            path = write(Path(folder), 32, side=2048)
            tell("weightwatcher, 2048 x 2048", watched(path, options.packages))
    import torch

    if torch.cuda.is_available():
        from benchmarks import weights_gpu

        weights_gpu.main([])


if __name__ == "__main__":
    main()
