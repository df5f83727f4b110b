"""The pair of another shape: latent attention and experts, its target a model of transformers."""

from __future__ import annotations

import lzma
import tempfile
from functools import cache
from pathlib import Path

import torch

from workbench.speculation.model.huggingface import HuggingFaceTarget
from workbench.speculation.model.layers import Numerics

EXPERTS = Path(__file__).resolve().parents[1] / "data" / "experts"
RUNS = EXPERTS / "runs" / "sglang-0.5.14"
DRAFT = EXPERTS / "draft"


@cache
def expert_target(kind: torch.dtype = torch.float32) -> HuggingFaceTarget:
    """Return the target as transformers loads it; its file is kept compressed."""
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packed = EXPERTS / "target" / "model.safetensors.xz"
        (folder / "model.safetensors").write_bytes(lzma.decompress(packed.read_bytes()))
        for file in ("config.json", "generation_config.json"):
            (folder / file).write_bytes((EXPERTS / "target" / file).read_bytes())
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
    named = "bfloat16" if kind is torch.bfloat16 else "float32"
    return HuggingFaceTarget(model, Numerics(named))
