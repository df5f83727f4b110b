"""A checkpoint of many matrices of one template: CPU seconds of its scan and of its page.

    python -m benchmarks.weights_many [--dummy 256] [--small 3000] [--tiny 23000]

All are at init: 1,024 x 2,048 of an engine's dummy weights, 128 x 128 and 16 x 16 of a normal law, BF16.
CPU time of all threads is added up, and the compiler's is left out by a first scan of a few of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHAPES = {"dummy": (1024, 2048), "small": (128, 128), "tiny": (16, 16)}


def written(folder: Path, kind: str, count: int) -> int:
    """Write a checkpoint, and return its size in bytes."""
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(1)
    draw: Callable[[], Any] = lambda: torch.randn(SHAPES[kind], generator=random) * 0.02  # noqa: E731
    if kind == "dummy":
        draw = lambda: (torch.rand(SHAPES[kind], generator=random) * 2 - 1) * 1e-3  # noqa: E731
    tensors = {
        f"model.layers.{at // 256}.mlp.experts.{at % 256}.up_proj.weight": draw().bfloat16()
        for at in range(count)
    }
    save_file(tensors, folder / "model.safetensors")
    return sum(one.nbytes for one in tensors.values())


def timed(kind: str, count: int) -> dict[str, float]:
    """Return what a scan of `count` matrices costs."""
    import workbench

    with tempfile.TemporaryDirectory(prefix="weights-") as name:
        folder = Path(name)
        size = written(folder, kind, count)
        workbench.scan_weights(folder, names="model.layers.0.mlp.experts.1?.*")
        start = time.process_time()
        scan = workbench.scan_weights(folder)
        taken = time.process_time() - start
        scan.to_html(folder / "page.html")
        page = time.process_time() - start - taken
    return {
        "matrices": count,
        "scan, CPU s": taken,
        "MB/s": size / taken / 1e6,
        "page, CPU s": page,
    }


def main() -> None:
    """Print the figures of each kind as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dummy", type=int, default=256)
    parser.add_argument("--small", type=int, default=3000)
    parser.add_argument("--tiny", type=int, default=23000)
    for kind, count in vars(parser.parse_args()).items():
        if count:
            print(json.dumps({kind: timed(kind, count)}, default=float), flush=True)


if __name__ == "__main__":
    main()
