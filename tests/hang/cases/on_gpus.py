"""What the collector recorded of a real SGLang on two GPUs (`data/scripts/incident/hang_gpu.py`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.hang.cases.case import Case
from workbench.hang.read.scene import read_scene
from workbench.hang.records import Scene

FOLDER = Path(__file__).with_name("gpu")
SOURCE = "two H200, SGLang 0.5.14"


@cache
def case(name: str) -> Scene:
    """Return one recording as a scene."""
    return read_scene(FOLDER / f"gpu-{name}.zip")


ON_GPUS = (
    Case(
        "gpu-compiling",
        lambda: case("compiling"),
        "slow",
        "dist_init",
        "rank 0 compiles a kernel (ninja, nvcc), rank 1 waits for its lock",
        rule="working_rank",
        source=SOURCE,
    ),
    Case(
        "gpu-healthy-idle",
        lambda: case("healthy-idle"),
        "idle",
        "ready",
        "both ranks turn in their event loops",
        wait="IDLE",
        rule="idle",
        source=SOURCE,
    ),
    Case(
        "gpu-hook-sleep",
        lambda: case("hook-sleep"),
        "hung",
        "ready",
        "under a request rank 1 sleeps in a forward hook; rank 0 looks idle, but its GPU spins at 122 W",
        odd=(1,),
        source=SOURCE,
    ),
    Case(
        "gpu-capture-stopped",
        lambda: case("capture-stopped"),
        "hung",
        "graph_decode",
        "rank 1 is stopped as the capture begins; rank 0 waits in the barrier",
        odd=(1,),
        wait="HOST_COLL",
        rule="awaited_stopped_rank",
        proposes="kill -CONT 2330",
        source=SOURCE,
    ),
    Case(
        "gpu-starting",
        lambda: case("starting"),
        "idle",
        "ready",
        "a start that is well: in the capture first, serving fifteen seconds later",
        source=SOURCE,
    ),
    Case(
        "gpu-all-stuck",
        lambda: case("all-stuck"),
        "hung",
        "init_done",
        "both ranks sleep in Scheduler.__init__: there is no odd rank",
        source=SOURCE,
    ),
)
