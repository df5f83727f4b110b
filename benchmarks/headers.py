"""Reading headers: the workbench against `safetensors.safe_open` on the same files, alternating, in one run.

The checkpoint is the sparse synthetic one of `kimi_like.py`: 208,550 tensors in 64 shards. Each repeat reads
it once with each reader; the figures are medians, and the ratio is that of the CPU times. Peak memory is
measured in processes of their own, since a process never gives its peak back.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # also works from a clone that is not installed

from benchmarks.kimi_like import write  # noqa: E402
from workbench.checkpoint.header_columns import Specs  # noqa: E402
from workbench.checkpoint.open import open_checkpoint  # noqa: E402
from workbench.checkpoint.safetensors import join_headers, read_header  # noqa: E402
from workbench.checkpoint.sources import LocalFile  # noqa: E402

Reader = Callable[[Path], int]


def headers_only(folder: Path) -> int:
    """Read and check all headers into one table."""
    specs = Specs()
    files = sorted(folder.glob("*.safetensors"))
    headers = [read_header(LocalFile(file), specs) for file in files]
    return len(join_headers(headers, [file.name for file in files], specs))


def whole(folder: Path) -> int:
    """Do the same through `open_checkpoint`, which also reads the index and compares it."""
    return len(open_checkpoint(folder))


def safe_open_keys(folder: Path) -> int:
    """List the names alone with safetensors."""
    from safetensors import safe_open

    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            count += len(list(file.keys()))
    return count


def safe_open_all(folder: Path) -> int:
    """List names, shapes and dtypes with safetensors: what the workbench is measured against."""
    from safetensors import safe_open

    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                part = file.get_slice(name)
                found.append((name, part.get_dtype(), part.get_shape()))
    return len(found)


READERS: dict[str, Reader] = {
    "workbench, headers": headers_only,
    "workbench, open_checkpoint": whole,
    "safe_open, names": safe_open_keys,
    "safe_open, names, shapes, dtypes": safe_open_all,
}
ANCHOR = "safe_open, names, shapes, dtypes"


def measure(folder: Path, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return CPU and wall seconds of each reader and repeat; a first repeat is not counted."""
    times: dict[str, dict[str, list[float]]] = {name: {"cpu": [], "wall": []} for name in READERS}
    for repeat in range(repeats + 1):
        for name, read in READERS.items():
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            read(folder)
            if repeat:
                times[name]["cpu"].append(time.process_time() - cpu)
                times[name]["wall"].append(time.perf_counter() - wall)
    return times


def peak(folder: Path, name: str) -> int:
    """Return the peak memory, in bytes, of a process that runs one reader once."""
    code = [sys.executable, __file__, "--folder", str(folder), "--once", name]
    return int(subprocess.run(code, capture_output=True, text=True, check=True).stdout)


def peak_of_this_process() -> int:
    """Return the peak resident memory in bytes, counted from this program's start (ru_maxrss is not)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def run(folder: Path | None = None, repeats: int = 7) -> dict[str, Any]:
    """Measure all readers; the checkpoint is made where `folder` is None."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="kimi-like-") as made:
            write(made)
            return run(Path(made), repeats)
    count = headers_only(folder)
    times = measure(folder, repeats)
    medians = {
        name: {kind: statistics.median(values) for kind, values in kinds.items()}
        for name, kinds in times.items()
    }
    anchor = medians[ANCHOR]["cpu"]
    return {
        "tensors": count,
        "shards": len(list(folder.glob("*.safetensors"))),
        "repeats": repeats,
        "python": platform.python_version(),
        "readers": {
            name: {
                "cpu_s": round(values["cpu"], 4),
                "cpu_best_s": round(min(times[name]["cpu"]), 4),
                "wall_s": round(values["wall"], 4),
                "times_as_fast": round(anchor / values["cpu"], 2),
                "peak_mb": round(peak(folder, name) / 1e6, 1),
            }
            for name, values in medians.items()
        },
    }


def text(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        f"{result['tensors']:,} tensors, {result['shards']} shards, median of {result['repeats']}",
        "",
        "|Reader|CPU s|best CPU s|wall s|times as fast|peak MB|",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"|{name}|{row['cpu_s']:.3f}|{row['cpu_best_s']:.3f}|{row['wall_s']:.3f}"
        f"|{row['times_as_fast']:.1f}|{row['peak_mb']:.0f}|"
        for name, row in result["readers"].items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, or one reader once (for its peak memory)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="a checkpoint; made in a temporary folder if absent"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", choices=list(READERS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.once:
        READERS[options.once](options.folder)
        print(peak_of_this_process())
        return
    result = run(options.folder, options.repeats)
    print(json.dumps(result, indent=1) if options.json else text(result))


if __name__ == "__main__":
    main()
