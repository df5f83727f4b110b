"""What a GPU does, by its utilisation and its power: it computes, spins in a kernel that waits, or rests."""

from __future__ import annotations

from typing import Literal

from workbench.hang.records import Gpu

Load = Literal["computes", "spins", "rests"]

# A kernel that waits for another GPU keeps the utilisation at 100 %. Measured on H200 of 700 W: resting
# 118 W, spinning 122 to 150 W (0.21 of the limit); public reports of work on such cards: 500 to 690 W.
_BUSY = 90.0
_RESTS = 20.0
_COMPUTES_FROM = 0.45
_SPINS_TO = 0.3
# Of a card whose limit is not in the evidence: what no card of this memory needs to spin, and what each draws
# at work.
_BIG_MIB = 60_000.0
_BIG_COMPUTES_WATTS = 400.0
_BIG_SPINS_WATTS = 200.0


def load(gpu: Gpu) -> Load | None:
    """Return what a GPU does, None where utilisation and power do not decide it.

    Utilisation alone never decides: a spinning kernel has 100 % too.
    """
    if gpu.utilisation is None:
        return None
    if gpu.utilisation < _RESTS:
        return "rests"
    watts, limit = gpu.power_watts, gpu.power_limit_watts
    if watts is None or gpu.utilisation < _BUSY:
        return None
    if limit:
        share = watts / limit
        return "computes" if share >= _COMPUTES_FROM else "spins" if share <= _SPINS_TO else None
    if (gpu.memory_total_mib or 0.0) <= _BIG_MIB:
        return None
    if watts >= _BIG_COMPUTES_WATTS:
        return "computes"
    return "spins" if watts < _BIG_SPINS_WATTS else None


def text(gpu: Gpu) -> str:
    """Return the figures in words: ``GPU 0 at 100 % and 125 W of 700 W``."""
    parts = []
    if gpu.utilisation is not None:
        parts.append(f"{gpu.utilisation:.0f} %")
    if gpu.power_watts is not None:
        limit = f" of {gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else ""
        parts.append(f"{gpu.power_watts:.0f} W{limit}")
    return f"GPU {gpu.index} at {' and '.join(parts)}" if parts else f"GPU {gpu.index}"
