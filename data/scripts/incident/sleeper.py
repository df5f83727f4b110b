"""A forward hook that lets one rank sleep, for SGLang's ``--forward-hooks``: a true divergence of ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any


def factory(config: dict[str, Any]) -> Callable[..., None]:
    """Return a hook that sleeps in rank `config["rank"]` once the file `config["file"]` is there."""

    def hook(module: Any, inputs: Any, output: Any) -> None:
        import torch

        if torch.distributed.get_rank() == config["rank"] and os.path.exists(config["file"]):
            time.sleep(600)

    return hook
