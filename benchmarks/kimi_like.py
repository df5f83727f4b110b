"""A synthetic checkpoint shaped like Kimi-K2.5: 208,000 tensors in 64 shards, sparse on disk.

Headers, file sizes, index and config are as real ones would be; the values are holes, which read as zeros.
Every length is a field of `Shape`, so that tests make a small one in milliseconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path

from workbench.checkpoint.records import DTYPE_BITS

Entry = tuple[str, str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Shape:
    """The lengths of the model. The defaults are those of Kimi-K2.5."""

    layers: int = 61
    first_k_dense: int = 1
    experts: int = 384
    shared_experts: int = 1
    hidden: int = 7168
    intermediate: int = 18432
    moe_intermediate: int = 2048
    heads: int = 64
    q_lora: int = 1536
    kv_lora: int = 512
    qk_nope: int = 128
    qk_rope: int = 64
    v_head: int = 128
    vocab: int = 163840
    group: int = 32
    vision_layers: int = 27
    vision_hidden: int = 1152
    vision_intermediate: int = 4304
    vision_heads: int = 16
    patch: int = 14
    vision_grid: int = 64


SMALL = Shape(
    layers=3, experts=4, hidden=64, intermediate=128, moe_intermediate=32, heads=2, q_lora=16,
    kv_lora=32, qk_nope=8, qk_rope=4, v_head=8, vocab=96, vision_layers=2, vision_hidden=16,
    vision_intermediate=32, vision_heads=2, patch=2, vision_grid=4,
)  # fmt: skip


def tensors(shape: Shape) -> Iterator[Entry]:
    """Yield name, dtype and shape of every tensor, in the order of the model's modules."""
    yield from _vision(shape)
    model = "language_model.model."
    yield model + "embed_tokens.weight", "BF16", (shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        yield from _layer(shape, layer, f"{model}layers.{layer}.")
    yield model + "norm.weight", "BF16", (shape.hidden,)
    yield "language_model.lm_head.weight", "BF16", (shape.vocab, shape.hidden)


def _layer(shape: Shape, layer: int, at: str) -> Iterator[Entry]:
    hidden, heads = shape.hidden, shape.heads
    qk = shape.qk_nope + shape.qk_rope
    yield at + "self_attn.q_a_proj.weight", "BF16", (shape.q_lora, hidden)
    yield at + "self_attn.q_a_layernorm.weight", "BF16", (shape.q_lora,)
    yield at + "self_attn.q_b_proj.weight", "BF16", (heads * qk, shape.q_lora)
    yield (
        at + "self_attn.kv_a_proj_with_mqa.weight",
        "BF16",
        (shape.kv_lora + shape.qk_rope, hidden),
    )
    yield at + "self_attn.kv_a_layernorm.weight", "BF16", (shape.kv_lora,)
    rows = heads * (shape.qk_nope + shape.v_head)
    yield at + "self_attn.kv_b_proj.weight", "BF16", (rows, shape.kv_lora)
    yield at + "self_attn.o_proj.weight", "BF16", (hidden, heads * shape.v_head)
    yield at + "input_layernorm.weight", "BF16", (hidden,)
    yield at + "post_attention_layernorm.weight", "BF16", (hidden,)
    if layer < shape.first_k_dense:
        yield from _mlp(at + "mlp.", hidden, shape.intermediate)
        return
    yield at + "mlp.gate.weight", "BF16", (shape.experts, hidden)
    yield at + "mlp.gate.e_score_correction_bias", "F32", (shape.experts,)
    for expert in range(shape.experts):
        for name, _, (rows, width) in _mlp("", hidden, shape.moe_intermediate):
            base = f"{at}mlp.experts.{expert}.{name}_"
            yield base + "packed", "I32", (rows, width // 8)
            yield base + "scale", "BF16", (rows, width // shape.group)
            yield base + "shape", "I32", (2,)
    width = shape.moe_intermediate * shape.shared_experts
    yield from _mlp(at + "mlp.shared_experts.", hidden, width)


def _mlp(at: str, hidden: int, width: int) -> Iterator[tuple[str, str, tuple[int, int]]]:
    yield at + "gate_proj.weight", "BF16", (width, hidden)
    yield at + "up_proj.weight", "BF16", (width, hidden)
    yield at + "down_proj.weight", "BF16", (hidden, width)


def _vision(shape: Shape) -> Iterator[Entry]:
    width, patch, grid = shape.vision_hidden, shape.patch, shape.vision_grid
    yield "vision_tower.patch_embed.proj.weight", "BF16", (width, 3, patch, patch)
    yield "vision_tower.patch_embed.proj.bias", "BF16", (width,)
    yield "vision_tower.patch_embed.pos_emb.weight", "BF16", (grid, grid, width)
    for block in range(shape.vision_layers):
        at = f"vision_tower.encoder.blocks.{block}."
        for name, out, into in (
            ("wqkv", 3 * width, width),
            ("wo", width, width),
            ("mlp.fc0", shape.vision_intermediate, width),
            ("mlp.fc1", width, shape.vision_intermediate),
        ):
            yield f"{at}{name}.weight", "BF16", (out, into)
            yield f"{at}{name}.bias", "BF16", (out,)
        for norm in ("norm0", "norm1"):
            yield f"{at}{norm}.weight", "BF16", (width,)
            yield f"{at}{norm}.bias", "BF16", (width,)
    for norm in ("vision_tower.encoder.final_layernorm", "mm_projector.pre_norm"):
        yield norm + ".weight", "BF16", (width,)
        yield norm + ".bias", "BF16", (width,)
    for number, out in ((0, 4 * width), (2, shape.hidden)):
        yield f"mm_projector.proj.{number}.weight", "BF16", (out, 4 * width)
        yield f"mm_projector.proj.{number}.bias", "BF16", (out,)


def config(shape: Shape) -> dict[str, object]:
    """Return a config.json as Kimi-K2.5 has it, without tokenizer and generation fields."""
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "group",
                    "group_size": shape.group,
                },
                "input_activations": None,
                "output_activations": None,
            }
        },
        "ignore": [
            "lm_head",
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
        ],
        "quantization_status": "compressed",
    }
    text = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "moe_intermediate_size": shape.moe_intermediate,
        "num_hidden_layers": shape.layers,
        "first_k_dense_replace": shape.first_k_dense,
        "n_routed_experts": shape.experts,
        "n_shared_experts": shape.shared_experts,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "q_lora_rank": shape.q_lora,
        "kv_lora_rank": shape.kv_lora,
        "qk_nope_head_dim": shape.qk_nope,
        "qk_rope_head_dim": shape.qk_rope,
        "v_head_dim": shape.v_head,
        "vocab_size": shape.vocab,
        "num_nextn_predict_layers": 0,
        "moe_layer_freq": 1,
        "tie_word_embeddings": False,
        "rope_theta": 50000.0,
        "quantization_config": quantization,
    }
    vision = {
        "model_type": "kimi_k25_vision",
        "vt_num_hidden_layers": shape.vision_layers,
        "vt_hidden_size": shape.vision_hidden,
        "vt_intermediate_size": shape.vision_intermediate,
        "vt_num_attention_heads": shape.vision_heads,
        "patch_size": shape.patch,
        "init_pos_emb_height": shape.vision_grid,
        "init_pos_emb_width": shape.vision_grid,
        "mm_hidden_size": shape.vision_hidden,
        "text_hidden_size": shape.hidden,
    }
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text,
        "vision_config": vision | _plain_vision(shape),
        "tie_word_embeddings": False,
    }


def _plain_vision(shape: Shape) -> dict[str, int]:
    """Return the fields that SGLang builds the vision tower from.

    Kimi-K2.5's own file has the ``vt_`` names alone, and the plain names' defaults happen to fit it; a tower
    of another size must say so, or the real class would not take its tensors.
    """
    if shape == Shape():
        return {}
    return {
        "hidden_size": shape.vision_hidden,
        "intermediate_size": shape.vision_intermediate,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": shape.vision_heads,
    }


def write(
    folder: str | os.PathLike[str],
    shape: Shape | None = None,
    shards: int = 64,
    leave_out: frozenset[str] = frozenset(),
    prefix: str = "",
) -> int:
    """Write the checkpoint and return the number of its tensors.

    Parameters
    ----------
    folder
        Where to; made if absent.
    shape
        The lengths of the model; those of Kimi-K2.5 where None.
    shards
        Number of files, each with about the same number of bytes.
    leave_out
        Names of tensors that are not written (and that the index does not name).
    prefix
        What every name begins with.
    """
    shape = shape or Shape()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        (prefix + name, dtype, dims, prod(dims) * DTYPE_BITS[dtype] // 8)
        for name, dtype, dims in tensors(shape)
        if name not in leave_out
    ]
    total = sum(size for *_, size in entries)
    weight_map: dict[str, str] = {}
    at, before = 0, 0
    for shard in range(1, shards + 1):
        file = f"model-{shard:05d}-of-{shards:06d}.safetensors"
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        begin = 0
        while at < len(entries) and (shard == shards or before + begin < total * shard / shards):
            name, dtype, dims, size = entries[at]
            header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [begin, begin + size]}
            weight_map[name] = file
            begin += size
            at += 1
        before += begin
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # as the format's own writer aligns the data
        with open(folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + begin)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(config(shape), indent=2))
    return len(entries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--small", action="store_true", help="three layers and four experts")
    arguments = parser.parse_args()
    number = write(arguments.folder, SMALL if arguments.small else Shape(), arguments.shards)
    print(f"{number:,} tensors in {arguments.shards} shards: {arguments.folder}")
