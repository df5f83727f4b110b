"""One weight, stored in a file and judged as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from workbench.checkpoint.dequantize import logical_weights
from workbench.checkpoint.open import open_checkpoint
from workbench.weights.measure import measure
from workbench.weights.records import Judgement
from workbench.weights.verdict import context_of, judge

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parents[2]


def judged(
    folder: Path, values: Array | torch.Tensor, name: str = "model.layers.0.mlp.up_proj.weight"
) -> Judgement:
    """Return the verdict on one weight; arrays are stored as float32."""
    tensor = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.float32(values))
    save_file({name: tensor.contiguous()}, folder / "model.safetensors")
    (weight,) = logical_weights(open_checkpoint(folder / "model.safetensors"))
    return judge(measure(weight), weight.rows, context_of(weight.name, weight.shape))


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32) * 0.02


def trained(name: str, folder: str = "target") -> Array:
    """Return a trained matrix of the shipped case."""
    found = open_checkpoint(ROOT / "data/incident" / folder).tensor(name)
    return np.array(found.float().numpy())
