"""Run by an SGLang environment's interpreter: its DeepSeek rotary positions and attention scale, on a CPU.

Usage: ``python sglang_rotary.py STUBS FILE``. STUBS is the folder of the tracer's stand-ins. FILE becomes
queries and keys before and after turning, and the factor of the scores.
"""

from __future__ import annotations

import sys

import torch
from safetensors.torch import save_file

YARN = {
    "rope_type": "deepseek_yarn", "factor": 8.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.8,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
}  # fmt: skip
THETA, TURNED, WIDTH, PLACES = 500, 8, 14, 40


def main(stubs: str, file: str) -> None:
    """Turn random queries and keys by the engine's own class."""
    sys.path.insert(0, stubs)
    __import__("stubs").install(("sgl_kernel", "triton", "vllm"))
    from sglang.srt.configs.model_config import compute_mla_mscale_scaling
    from sglang.srt.layers.rotary_embedding import get_rope_wrapper

    rope = get_rope_wrapper(
        TURNED, rotary_dim=TURNED, max_position=128, base=THETA, rope_scaling=dict(YARN),
        is_neox_style=False, device="cpu",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(PLACES, 4, TURNED, generator=generator)
    k = torch.randn(PLACES, 1, TURNED, generator=generator)
    turned = rope.forward_native(torch.arange(PLACES), q.clone(), k.clone())
    scale = compute_mla_mscale_scaling(dict(YARN), WIDTH**-0.5)
    found = {"q": q, "k": k, "turned_q": turned[0], "turned_k": turned[1]}
    found = {name: value.float().contiguous() for name, value in found.items()}
    save_file({**found, "scale": torch.tensor(scale)}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
