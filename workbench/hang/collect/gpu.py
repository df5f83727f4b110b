"""Readings of the GPUs by NVML, as a case's ``gpus.json`` has them."""

from __future__ import annotations

import time
from typing import Any

from workbench.hang.collect.collector import gpus

_MIB = 1 << 20


def read_gpus() -> tuple[dict[str, Any] | None, str]:
    """Return memory, utilisation, power and processes of every GPU, or None and why there is none.

    Where NVML cannot be loaded, nvidia-smi is asked. Processes have the pids of the namespace that NVML
    runs in.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library, another user's mount: nvidia-smi may know more
        return gpus.read()
    try:
        at = time.time()
        found = [_gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())]
        return {"taken_at": at, "gpus": found}, ""
    except pynvml.NVMLError as error:
        return None, f"NVML failed: {error}"
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)

    def ask(what: str) -> Any:
        """Return one reading, or None where this GPU does not give it."""
        try:
            return getattr(nvml, what)(handle)
        except nvml.NVMLError:
            return None

    memory, load = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
    power = ask("nvmlDeviceGetPowerUsage")
    limit = ask("nvmlDeviceGetEnforcedPowerLimit")
    processes = ask("nvmlDeviceGetComputeRunningProcesses") or []
    return {
        "index": number,
        "uuid": _text(ask("nvmlDeviceGetUUID")),
        "name": _text(ask("nvmlDeviceGetName")),
        "memory_used_mib": None if memory is None else round(memory.used / _MIB, 1),
        "memory_total_mib": None if memory is None else round(memory.total / _MIB, 1),
        "utilisation": None if load is None else float(load.gpu),
        "power_watts": None if power is None else power / 1000,
        "power_limit_watts": None if limit is None else limit / 1000,
        "processes": {
            str(one.pid): round(one.usedGpuMemory / _MIB, 1)
            for one in processes
            if one.usedGpuMemory is not None
        },
    }


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
