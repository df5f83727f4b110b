"""Claim a GPU on a machine without one: quantised layers are chosen by what the GPU can do.

Nothing is computed on it. What an engine asks torch while it is imported and while a model is built is
answered as on one NVIDIA GPU of a compute capability; a kernel that is called fails all the same.
"""

from __future__ import annotations

import types
from typing import Any

MEMORY = 140 << 30
PROCESSORS = 132


def claim(capability: str) -> None:
    """Answer for a GPU of a compute capability (``9.0``), from now on.

    Parameters
    ----------
    capability
        Major and minor number.
    """
    import torch as real_torch

    torch: Any = real_torch
    major, minor = (int(part) for part in capability.split("."))
    properties = types.SimpleNamespace(
        name=f"claimed GPU {capability}",
        major=major,
        minor=minor,
        total_memory=MEMORY,
        multi_processor_count=PROCESSORS,
        warp_size=32,
        shared_memory_per_block_optin=232448,
        max_threads_per_multi_processor=2048,
        is_integrated=False,
        uuid="0",
    )
    torch.version.cuda = "12.9"
    answers = {
        "is_available": True,
        "is_initialized": False,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (major, minor),
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "mem_get_info": (MEMORY, MEMORY),
        "set_device": None,
        "synchronize": None,
        "empty_cache": None,
        "is_current_stream_capturing": False,
        "memory_allocated": 0,
        "memory_reserved": 0,
        "get_arch_list": [f"sm_{major}{minor}"],
        "init": None,
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_, _value=value, **__: _value)
    torch.cuda.Stream = torch.cuda.Event = _Stream
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *_, **__: _Stream()
    _elsewhere(torch).__enter__()


def _elsewhere(torch: Any) -> Any:
    """Return a mode in which tensors for the GPU are made on the default device instead."""
    from torch.overrides import TorchFunctionMode

    def there(value: Any) -> Any:
        text = isinstance(value, str) and value.partition(":")[0] == "cuda"
        gpu = text or (isinstance(value, torch.device) and value.type == "cuda")
        return torch.get_default_device() if gpu else value

    class Elsewhere(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if "device" in kwargs:
                kwargs["device"] = there(kwargs["device"])
            if func is torch.Tensor.to:
                args = tuple(map(there, args))
            if func is torch.Tensor.cuda:
                return args[0]
            return func(*args, **kwargs)

    return Elsewhere()


class _Stream:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cuda_stream = 0
        self.device = "cuda:0"

    def wait_stream(self, *args: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass
