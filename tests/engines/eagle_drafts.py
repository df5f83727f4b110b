"""Drafts of the first EAGLE generation, from shapes, and altered copies of them."""

from __future__ import annotations

import dataclasses

import torch

from .checkpoints import (
    HIDDEN,
    SEED,
    SIZES,
    Case,
    add,
    altered,
    dense,
    remove,
    rename,
    resize,
    values,
)


def _draft(kind: str, layers: int = 1) -> Case:
    """Return a draft for a target of this kind: no norm at its ends, fc in front, no first input norm."""
    of_target = dense(kind, layers)
    tensors = {
        key.removeprefix("model."): tensor
        for key, tensor in of_target.tensors.items()
        if not key.startswith(("lm_head", "model.norm", "model.layers.0.input_layernorm"))
    }
    tensors["fc.weight"] = values((HIDDEN, 2 * HIDDEN))
    cls = f"{of_target.model_class}Eagle"
    config = {**of_target.config, "architectures": [cls]}
    return Case(f"eagle-{kind}", config, tensors, cls)


def eagle_drafts() -> list[Case]:
    """Return the drafts and their altered copies."""
    torch.manual_seed(SEED + 3)
    llama, qwen2 = _draft("llama"), _draft("qwen2")
    attention = "layers.0.self_attn."
    wide = {f"layers__0__self_attn__{name}_proj__bias": (rows,) for name, rows in (
        ("q", 128), ("k", 64), ("v", 64), ("o", HIDDEN),
    )}  # fmt: skip
    return [
        llama,
        altered(llama, "eagle-fc-bias", add(fc__bias=(HIDDEN,))),
        altered(llama, "eagle-own-head", add(lm_head__weight=(SIZES["vocab_size"], HIDDEN))),
        altered(llama, "eagle-prefix-model", rename("^", "model.")),
        altered(llama, "eagle-no-k_proj", remove(f"{attention}k_proj.weight")),
        altered(llama, "eagle-no-embedding", remove("embed_tokens.weight")),
        altered(llama, "eagle-input-norm", add(layers__0__input_layernorm__weight=(HIDDEN,))),
        altered(llama, "eagle-second-layer", add(layers__1__mlp__up_proj__weight=(192, HIDDEN))),
        altered(llama, "eagle-narrow-fc", resize("fc.weight", HIDDEN, HIDDEN)),
        altered(llama, "eagle-tied", tie_word_embeddings=True),
        altered(llama, "eagle-bias", add(**wide), bias=True),
        altered(llama, "eagle-bias-not-saved", bias=True),
        altered(llama, "eagle-midlayer", rename(r"^layers\.0\.", "midlayer.")),
        altered(llama, "eagle-unknown", add(extra__weight=(4,))),
        dataclasses.replace(_draft("llama", 2), name="eagle-two-layers"),
        qwen2,
        altered(qwen2, "eagle-qwen2-no-bias", remove(f"{attention}q_proj.bias")),
        altered(qwen2, "eagle-qwen2-prefix-model", rename("^", "model.")),
        altered(qwen2, "eagle-qwen2-second-layer", add(layers__1__mlp__up_proj__weight=(192, HIDDEN))),
        altered(qwen2, "eagle-qwen2-fused", rename(r"q_proj\.weight$", "qkv_proj.weight")),
    ]  # fmt: skip
