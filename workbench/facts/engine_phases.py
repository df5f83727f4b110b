"""What tells a phase, by engine: the order of a start-up, the lines of a log, the frames of a stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workbench.facts import startup, startup_frames, startup_markers, vllm_startup
from workbench.facts.startup import Step
from workbench.facts.startup_markers import Event


def order_of(engine: str, version: str) -> tuple[Step, ...]:
    """Return the steps of a start-up in their order; SGLang's newest where the engine has none of its own."""
    if engine == "vllm":
        return vllm_startup.ORDER
    return startup.likely_order(version)


def marker_reader(engine: str) -> Callable[[str], Event | None]:
    """Return what reads a line of an engine's log; errors of torch, NCCL and CPython are read for each."""
    return vllm_startup.read_marker if engine == "vllm" else startup_markers.read_marker


def phase_of_stack(engine: str, frames: Iterable[tuple[str, str]], version: str) -> str:
    """Return the phase that a stack tells, "" for none."""
    if engine == "vllm":
        return vllm_startup.phase_of_stack(frames)
    if engine in ("sglang", ""):
        return startup_frames.phase_of_stack(frames, version)
    return ""
