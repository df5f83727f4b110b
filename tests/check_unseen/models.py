"""The checkpoints that the launches name: small, with sizes of real kinds where a launch depends on them.

Heads, KV heads, contexts, block sizes and layer names are those of published models; widths, vocabularies
and numbers of layers and experts are small. Values are heavy-tailed around one strong direction, so that
no tensor looks like one that was never trained. `build` writes only what is asked for.

``python -m tests.check_unseen.models FOLDER`` writes all of them.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, VOCAB, HEAD, LAYERS = 128, 2048, 64, 8
Shapes = dict[str, tuple[str, tuple[int, ...]]]
BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
          "weight_block_size": [128, 128]}  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}


@cache
def pool(kind: str) -> np.ndarray:
    """Return a million random values of a kind, from which tensors are cut."""
    random = np.random.default_rng(5)
    if kind == "F8_E4M3":  # a sign, an exponent around 1, any mantissa: never NaN
        rest = random.integers(0, 16, 1 << 20, dtype=np.uint8)
        exponent = random.binomial(14, 0.5, 1 << 20).astype(np.uint8)
        return (rest >> 3 << 7) | (exponent << 3) | (rest & 7)
    if kind == "I32":
        return random.integers(-(1 << 31), 1 << 31, 1 << 20).astype(np.int32)
    if kind == "U8":
        return random.integers(110, 128, 1 << 20).astype(np.uint8)
    return random.standard_t(5, 1 << 20).astype(np.float32)


def values(name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    """Return the bytes of one tensor, the same for the same name."""
    seed, count = zlib.crc32(name.encode()), math.prod(shape)
    drawn = pool(kind if kind in ("F8_E4M3", "I32", "U8") else "")
    start = seed % len(drawn)
    drawn = np.tile(drawn, -(-(start + count) // len(drawn)))[start : start + count]
    if kind == "F8_E4M3":  # most signs follow those of one row and one column
        random, rows = np.random.default_rng(seed), count // shape[-1]
        signs = random.integers(0, 2, (rows, 1)) ^ random.integers(0, 2, (1, shape[-1]))
        signs = signs.reshape(-1) ^ (drawn % 16 < 2)
        return ((drawn & 127) | (signs << 7).astype(np.uint8)).tobytes()
    if drawn.dtype != np.float32:
        return drawn.tobytes()
    if "scale" in name:
        found = 0.005 + 0.001 * np.abs(drawn)
    elif len(shape) == 1:
        found = 1 + 0.05 * drawn
    else:
        random, rows = np.random.default_rng(seed), count // shape[-1]
        found = 0.02 * drawn.reshape(rows, shape[-1])
        across = random.standard_normal(shape[-1], np.float32)
        found += np.outer(0.03 * random.standard_normal(rows, np.float32), across)
    if kind == "F32":
        return found.tobytes()
    return (found.reshape(-1).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write(
    folder: Path, config: Mapping[str, Any], shapes: Shapes, given: Mapping[str, bytes] = {}
) -> None:
    """Write config.json, generation_config.json and one file of weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    ends = {key: config[key] for key in ("bos_token_id", "eos_token_id") if key in config}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, start = [], 0
    for name, (kind, shape) in shapes.items():
        parts.append(given.get(name) or values(f"{folder.name}/{name}", kind, shape))
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [start, start := start + len(parts[-1])],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def common(architecture: str, model_type: str, /, **more: Any) -> dict[str, Any]:
    """Return what every config of a language model holds."""
    return {
        "architectures": [architecture], "model_type": model_type, "hidden_size": WIDTH,
        "intermediate_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": HEAD, "vocab_size": VOCAB,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    } | more  # fmt: skip


def matrix(layout: str, name: str, rows: int, columns: int) -> Shapes:
    """One linear layer in a layout: ``bf16``, ``fp8`` in blocks of 128, ``awq``."""
    if layout == "fp8":
        blocks = (-(-rows // 128), -(-columns // 128))
        return {
            name + ".weight": ("F8_E4M3", (rows, columns)),
            name + ".weight_scale_inv": ("F32", blocks),
        }
    if layout == "awq":
        groups = columns // 64
        return {
            name + ".qweight": ("I32", (columns, rows // 8)),
            name + ".qzeros": ("I32", (groups, rows // 8)),
            name + ".scales": ("BF16", (groups, rows)),
        }
    return {name + ".weight": ("BF16", (rows, columns))}


def attention(prefix: str, config: Mapping[str, Any], layout: str, wide: int = 1) -> Shapes:
    """Return the projections of one layer; `wide` times the hidden size goes in."""
    hidden, head = config["hidden_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found: Shapes = {}
    for name, rows in (("q", query), ("k", key), ("v", key)):
        found |= matrix(layout, f"{prefix}.{name}_proj", rows, wide * hidden)
        if config["architectures"][0] in ("Qwen2ForCausalLM", "GptOssForCausalLM"):
            found[f"{prefix}.{name}_proj.bias"] = ("BF16", (rows,))
    return found | matrix(layout, f"{prefix}.o_proj", hidden, query)


def feed_forward(
    prefix: str, hidden: int, inner: int, layout: str, names: str = "gate up down"
) -> Shapes:
    """Return the three matrices of a gated feed-forward layer."""
    gate, up, down = (f"{prefix}.{name}" for name in names.split())
    sides = ((gate, inner, hidden), (up, inner, hidden), (down, hidden, inner))
    end = "_proj" if names.startswith("gate") else ""
    found: Shapes = {}
    for name, rows, columns in sides:
        found |= matrix(layout, name + end, rows, columns)
    return found


def norms(prefix: str, size: int, names: Iterable[str]) -> Shapes:
    """Return norms of one size."""
    return {f"{prefix}.{name}.weight": ("BF16", (size,)) for name in names}


def ends(config: Mapping[str, Any]) -> Shapes:
    """Return the embedding, the last norm, and the head unless it is tied."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    found: Shapes = {"model.embed_tokens.weight": ("BF16", (vocab, hidden))}
    found["model.norm.weight"] = ("BF16", (hidden,))
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = ("BF16", (vocab, hidden))
    return found


def dense(folder: Path, layout: str = "bf16", **config: Any) -> None:
    """Write a Llama, a Qwen2, a Qwen3 or a Gemma 3 of text."""
    settings = common("LlamaForCausalLM", "llama", **config)
    found, kind = ends(settings), settings["architectures"][0]
    around = ["input_layernorm", "post_attention_layernorm"]
    if kind == "Gemma3ForCausalLM":
        around += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for number in range(settings["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        found |= attention(layer + ".self_attn", settings, layout)
        found |= feed_forward(layer + ".mlp", WIDTH, settings["intermediate_size"], layout)
        found |= norms(layer, WIDTH, around)
        if kind in ("Qwen3ForCausalLM", "Gemma3ForCausalLM"):
            found |= norms(layer + ".self_attn", HEAD, ("q_norm", "k_norm"))
    write(folder, settings, found)


def experts(folder: Path, layout: str = "bf16", **config: Any) -> None:
    """Write a Qwen3-MoE or a MiniMax-M2."""
    base = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    settings = common("Qwen3MoeForCausalLM", "qwen3_moe", **(base | config))
    found = ends(settings)
    minimax = settings["model_type"] == "minimax_m2"
    count = settings["num_local_experts" if minimax else "num_experts"]
    inner = settings["intermediate_size" if minimax else "moe_intermediate_size"]
    block, names = ("block_sparse_moe", "w1 w3 w2") if minimax else ("mlp", "gate up down")
    for number in range(settings["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        found |= attention(layer + ".self_attn", settings, layout)
        found |= norms(layer, WIDTH, ("input_layernorm", "post_attention_layernorm"))
        found[f"{layer}.{block}.gate.weight"] = ("BF16", (count, WIDTH))
        if minimax:
            found[f"{layer}.{block}.e_score_correction_bias"] = ("F32", (count,))
            for name, heads in (
                ("q_norm", "num_attention_heads"),
                ("k_norm", "num_key_value_heads"),
            ):
                found |= norms(layer + ".self_attn", settings[heads] * HEAD, (name,))
        else:
            found |= norms(layer + ".self_attn", HEAD, ("q_norm", "k_norm"))
        for expert in range(count):
            found |= feed_forward(f"{layer}.{block}.experts.{expert}", WIDTH, inner, layout, names)
    write(folder, settings, found)


def deepseek(folder: Path, nextn: int = 1) -> None:
    """Write a DeepSeek-V3 in FP8 blocks, with or without its layer for multi-token prediction."""
    layers, heads, inner, lora = 2, 32, 2048, 128
    settings = common(
        "DeepseekV3ForCausalLM", "deepseek_v3", num_hidden_layers=layers, num_key_value_heads=heads,
        q_lora_rank=lora, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=4, moe_intermediate_size=inner,
        intermediate_size=4096, first_k_dense_replace=1, moe_layer_freq=1, n_group=2, topk_group=1,
        topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True, routed_scaling_factor=2.5,
        max_position_embeddings=163840, rope_theta=10000.0, num_nextn_predict_layers=nextn,
        attention_bias=False, quantization_config=BLOCKS,
        rope_scaling={"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                      "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    )  # fmt: skip
    del settings["head_dim"]
    found = ends(settings)
    for number in range(layers + nextn):
        layer = f"model.layers.{number}"
        for name, rows, columns in (
            ("q_a_proj", lora, WIDTH), ("q_b_proj", heads * 192, lora), ("kv_a_proj_with_mqa", 576, WIDTH),
            ("kv_b_proj", heads * 256, 512), ("o_proj", WIDTH, heads * 128),
        ):  # fmt: skip
            found |= matrix("fp8", f"{layer}.self_attn.{name}", rows, columns)
        found |= norms(layer + ".self_attn", lora, ("q_a_layernorm",))
        found |= norms(layer + ".self_attn", 512, ("kv_a_layernorm",))
        found |= norms(layer, WIDTH, ("input_layernorm", "post_attention_layernorm"))
        if number == 0:
            found |= feed_forward(layer + ".mlp", WIDTH, 4096, "fp8")
            continue
        found[layer + ".mlp.gate.weight"] = ("BF16", (8, WIDTH))
        found[layer + ".mlp.gate.e_score_correction_bias"] = ("F32", (8,))
        for one in ("shared_experts", *(f"experts.{expert}" for expert in range(8))):
            found |= feed_forward(f"{layer}.mlp.{one}", WIDTH, inner, "fp8")
        if number == layers:
            found |= norms(layer, WIDTH, ("enorm", "hnorm", "shared_head.norm"))
            found |= matrix("bf16", layer + ".eh_proj", WIDTH, 2 * WIDTH)
            for name in ("embed_tokens", "shared_head.head"):
                found[f"{layer}.{name}.weight"] = ("BF16", (VOCAB, WIDTH))
    write(folder, settings, found)


def gpt_oss(folder: Path) -> None:
    """Write a gpt-oss with MXFP4 experts."""
    count, inner, groups = 8, 256, WIDTH // 32
    kinds = ["sliding_attention", "full_attention"] * (LAYERS // 2)
    settings = common(
        "GptOssForCausalLM", "gpt_oss", num_attention_heads=64, intermediate_size=inner, rope_theta=150000.0,
        num_local_experts=count, num_experts_per_tok=4, experts_per_token=4, sliding_window=128,
        layer_types=kinds, attention_bias=True, swiglu_limit=7.0, router_aux_loss_coef=0.9,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                      "original_max_position_embeddings": 4096, "truncate": False},
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
    )  # fmt: skip
    found = ends(settings)
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        found |= attention(layer + ".self_attn", settings, "bf16")
        found[layer + ".self_attn.o_proj.bias"] = ("BF16", (WIDTH,))
        found[layer + ".self_attn.sinks"] = ("BF16", (64,))
        found |= norms(layer, WIDTH, ("input_layernorm", "post_attention_layernorm"))
        found |= {f"{layer}.mlp.router.weight": ("BF16", (count, WIDTH))}
        found |= {f"{layer}.mlp.router.bias": ("BF16", (count,))}
        for name, rows, depth in (
            ("gate_up_proj", 2 * inner, groups),
            ("down_proj", WIDTH, inner // 32),
        ):
            place = f"{layer}.mlp.experts.{name}"
            found[place + "_blocks"] = ("U8", (count, rows, depth, 16))
            found[place + "_scales"] = ("U8", (count, rows, depth))
            found[place + "_bias"] = ("BF16", (count, rows))
    write(folder, settings, found)


def eagle3(
    folder: Path, some: int = 512, layer: str = "midlayer", nested: bool = False, **config: Any
) -> None:
    """Write an EAGLE-3 draft of one layer; `nested` as speculators describes it."""
    base = {"num_hidden_layers": 1, "draft_vocab_size": some, "pad_token_id": 0}
    settings = common("LlamaForCausalLMEagle3", "llama", **(base | config))
    hidden, vocab = settings["hidden_size"], settings["vocab_size"]
    found = attention(layer + ".self_attn", settings, "bf16", wide=2)
    found |= feed_forward(layer + ".mlp", hidden, settings["intermediate_size"], "bf16")
    found |= norms(layer, hidden, ("input_layernorm", "hidden_norm", "post_attention_layernorm"))
    found |= matrix("bf16", "fc", hidden, 3 * hidden)
    found |= {"norm.weight": ("BF16", (hidden,)), "lm_head.weight": ("BF16", (some, hidden))}
    given = {}
    if some != vocab:
        step = vocab // some
        chosen = np.arange(some, dtype=np.int64) * step
        mask = np.zeros(vocab, bool)
        mask[chosen] = True
        found |= {"d2t": ("I64", (some,)), "t2d": ("BOOL", (vocab,))}
        given = {"d2t": (chosen - np.arange(some)).tobytes(), "t2d": mask.tobytes()}
    if nested:
        settings = {
            "architectures": ["Eagle3DraftModel"], "speculators_model_type": "eagle3",
            "draft_vocab_size": some,
            "speculators_version": "0.3.0", "norm_before_residual": False, "torch_dtype": "bfloat16",
            "transformer_layer_config": settings | {"architectures": None},
            "speculators_config": {
                "algorithm": "eagle3", "default_proposal_method": "greedy",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
                "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "target"}},
        }  # fmt: skip
    write(folder, settings, found, given)


def eagle(folder: Path, **config: Any) -> None:
    """Write a draft of the first EAGLE: one layer, the target's embedding and head are shared."""
    settings = common("LlamaForCausalLMEagle", "llama", **({"num_hidden_layers": 1} | config))
    found = attention("layers.0.self_attn", settings, "bf16")
    found |= feed_forward("layers.0.mlp", WIDTH, settings["intermediate_size"], "bf16")
    found |= norms("layers.0", WIDTH, ("post_attention_layernorm",))
    found |= {
        "embed_tokens.weight": ("BF16", (VOCAB, WIDTH)),
        "fc.weight": ("BF16", (WIDTH, 2 * WIDTH)),
    }
    write(folder, settings, found)


QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768,
         "rope_theta": 1e6}  # fmt: skip
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "max_position_embeddings": 40960,
         "rope_theta": 1e6, "attention_bias": False}  # fmt: skip
QWEN3_MOE = {"num_key_value_heads": 4, "max_position_embeddings": 40960, "attention_bias": False,
             "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}  # fmt: skip
GEMMA = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_attention_heads": 8,
         "num_key_value_heads": 4, "sliding_window": 1024, "query_pre_attn_scalar": HEAD,
         "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000.0,
         "tie_word_embeddings": True, "sliding_window_pattern": 6}  # fmt: skip
MINIMAX = {"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "num_attention_heads": 48,
           "intermediate_size": 1536, "num_local_experts": 4, "use_qk_norm": True,
           "qk_norm_type": "per_layer",
           "rotary_dim": 32, "scoring_func": "sigmoid", "use_routing_bias": True, "num_mtp_modules": 0,
           "max_position_embeddings": 196608, "quantization_config": BLOCKS}  # fmt: skip

MODELS: dict[str, Callable[[Path], None]] = {
    # targets
    "llama": dense,
    "llama-2": partial(dense, num_hidden_layers=4, num_key_value_heads=32, max_position_embeddings=4096,
                       rope_theta=10000.0),
    "llama-awq": partial(dense, layout="awq", num_hidden_layers=2, quantization_config=AWQ,
                         torch_dtype="float16"),
    "qwen2-14-heads": partial(dense, **QWEN2, num_attention_heads=14, num_key_value_heads=2,
                              tie_word_embeddings=True),
    "qwen2-28-heads": partial(dense, **QWEN2, num_attention_heads=28, num_key_value_heads=4),
    "qwen3": partial(dense, **QWEN3),
    "gemma3": partial(dense, **GEMMA),
    "qwen3-moe": partial(experts, **QWEN3_MOE),
    "qwen3-moe-fp8": partial(experts, layout="fp8", **QWEN3_MOE, num_hidden_layers=2,
                             moe_intermediate_size=768, quantization_config=BLOCKS),
    "minimax": partial(experts, layout="fp8", **MINIMAX),
    "deepseek": deepseek,
    "deepseek-no-mtp": partial(deepseek, nextn=0),
    "gpt-oss": gpt_oss,
    # drafts
    "eagle3": eagle3,
    "eagle3-196k": partial(eagle3, max_position_embeddings=196608),
    "eagle3-full-vocab": partial(eagle3, some=VOCAB),
    "eagle3-context-2k": partial(eagle3, max_position_embeddings=2048),
    "eagle3-wide": partial(eagle3, hidden_size=256),
    "eagle3-vocab": partial(eagle3, vocab_size=4096),
    "eagle3-4-heads": partial(eagle3, num_attention_heads=4, num_key_value_heads=4),
    "eagle3-layers-0": partial(eagle3, layer="layers.0"),
    "eagle3-nested": partial(eagle3, layer="layers.0", nested=True),
    "eagle": eagle,
    "eagle-llama-2": partial(eagle, num_key_value_heads=32, max_position_embeddings=4096, rope_theta=10000.0),
    "small": partial(dense, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4),
    "small-vocab": partial(dense, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                           vocab_size=1024),
}  # fmt: skip


def build(folder: Path, names: Iterable[str] = MODELS) -> dict[str, Path]:
    """Write the checkpoints of `names` into `folder`, and return where each is."""
    found = {}
    for name in names:
        found[name] = folder / name
        if not found[name].exists():
            MODELS[name](found[name])
    return found


if __name__ == "__main__":
    for name, place in build(Path(sys.argv[1])).items():
        print(f"{name:20} {place}")
