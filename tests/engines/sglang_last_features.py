"""Run by an SGLang environment's interpreter: chains drafted by its own EAGLE and MTP classes, on a CPU.

Usage: ``python sglang_last_features.py TRACER TARGET DRAFT FILE``. TRACER is the folder of the tracer.
FILE holds ``tokens`` [texts, places], ``features`` [texts, places, hidden] and ``roots`` [texts, rounds]; it
is written again with ``drafted`` [texts, rounds, STEPS] and the first ``logits`` [texts, rounds, vocabulary].

The class is built and loaded by the engine itself, in float32. Only attention is ours, since its kernels need
a GPU: plain and causal, over the slots in the order in which they are given; of latent attention that is all
between its projections and norms. What the engine compiles runs as it is written.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
from safetensors.torch import load_file, save_file

STEPS = 4


def attend(self: Any, q: Any, k: Any, v: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:
    """Stand in for RadixAttention.forward: one text, every slot sees itself and those before."""
    width = self.head_dim
    q, k, v = (x.reshape(len(x), -1, width).transpose(0, 1) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True, scale=self.scaling, enable_gqa=True
    )
    return out[0].transpose(0, 1).reshape(out.shape[2], -1)


def attend_latent(self: Any, positions: Any, hidden_states: Any, *_: Any, **__: Any) -> Any:
    """Stand in for DeepseekV2AttentionMLA.forward, by the class's own modules and factor."""
    heads = self.num_local_heads
    parts = [self.q_lora_rank, self.kv_lora_rank, self.qk_rope_head_dim]
    q, latent, shared = self.fused_qkv_a_proj_with_mqa(hidden_states)[0].split(parts, -1)
    q = self.q_b_proj(self.q_a_layernorm(q.contiguous()))[0].unflatten(-1, (heads, -1))
    kv = self.kv_b_proj(self.kv_a_layernorm(latent.contiguous()))[0].unflatten(-1, (heads, -1))
    k, v = kv.split([self.qk_nope_head_dim, self.v_head_dim], -1)
    plain, turned = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], -1)
    turned, shared = self.rotary_emb(positions, turned.contiguous(), shared[:, None].contiguous())
    k = torch.cat([k, shared.expand(-1, heads, -1)], -1)
    q, k, v = (x.transpose(0, 1)[None] for x in (torch.cat([plain, turned], -1), k, v))
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=self.scaling
    )
    return self.o_proj(out[0].transpose(0, 1).flatten(1))[0]


def build(tracer: str, target: Path, draft: Path) -> Any:
    """Return the draft as the engine loads it, with the target's embedding and head."""
    # Beside the tracer lies a module called sglang, so its folder cannot be on the path.
    spec = importlib.util.spec_from_file_location(
        "tracer", f"{tracer}/__init__.py", submodule_search_locations=[tracer]
    )
    assert spec is not None
    sys.modules["tracer"] = importlib.util.module_from_spec(spec)
    importlib.import_module("tracer.stubs").install(("sgl_kernel", "triton", "vllm"))
    engine = importlib.import_module("tracer.sglang_loader").SGLang()
    config = engine._model_config({"draft": True, "target": str(target)}, draft)
    torch.set_default_dtype(torch.float32)
    config.dtype = torch.float32
    name = json.loads((draft / "config.json").read_text())["architectures"][0]
    model = engine._build(engine._class(name), config)
    model.load_weights(iter(load_file(draft / "model.safetensors").items()))
    lent = load_file(target / "model.safetensors")
    model.model.embed_tokens.weight.data = lent["model.embed_tokens.weight"].float()
    model.lm_head.weight.data = lent["lm_head.weight"].float()
    from sglang.srt.layers.radix_attention import RadixAttention

    RadixAttention.forward = attend
    from sglang.srt.models.deepseek_v2 import DeepseekV2AttentionMLA

    DeepseekV2AttentionMLA.forward = attend_latent
    return model.float().eval()


class Plain:
    """A forward pass of no special mode: not idle, not split over ranks."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("is_"):
            raise AttributeError(name)
        return lambda *_: False


class Batch:
    """A batch of one text, of which nothing else is known."""

    def __init__(self, tokens: Any, hidden: Any) -> None:
        self.spec_info = types.SimpleNamespace(hidden_states=hidden)
        self.forward_mode, self.input_ids = Plain(), tokens

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def forward(model: Any, tokens: Any, hidden: Any) -> Any:
    """Return what the class makes of each slot: the head reads it, and it is the next step's feature."""
    return model.model(tokens, torch.arange(len(tokens)), Batch(tokens, hidden))


def chain(model: Any, tokens: Any, features: Any, root: int) -> tuple[list[int], Any]:
    """Draft behind the token at `root`: slot i has the token after it and the target's features at i."""
    given, hidden, drafted, first = tokens[1 : root + 1], features[:root], list[int](), None
    for _ in range(STEPS):
        made = forward(model, given, hidden)[-1]
        logits = torch.nn.functional.linear(made, model.lm_head.weight)
        first = logits if first is None else first
        drafted.append(int(logits.argmax()))
        given = torch.cat([given, logits.argmax()[None]])
        hidden = torch.cat([hidden, made[None]])
    return drafted, first


@torch.no_grad()
def main(tracer: str, target: str, draft: str, file: str) -> None:
    """Draft from every root."""
    model = build(tracer, Path(target), Path(draft))
    asked = load_file(file)
    found = [
        [chain(model, tokens, features, int(root)) for root in roots]
        for tokens, features, roots in zip(
            asked["tokens"], asked["features"], asked["roots"], strict=True
        )
    ]
    drafted = torch.tensor([[one[0] for one in row] for row in found])
    logits = torch.stack([torch.stack([one[1] for one in row]) for row in found])
    save_file({**asked, "drafted": drafted, "logits": logits}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
