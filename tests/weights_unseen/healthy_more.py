"""More files that are as they should be: experts, quantised layouts, folded scales, comparisons."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from . import material as m
from .case import case

GH = "https://github.com/"
good = functools.partial(case, healthy=True, ok=(True,))
unsure = functools.partial(case, healthy=True, ok=(True, None))
MIXTRAL = m.CONFIG | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
PARTS = (("w1", "mlp.gate_proj"), ("w2", "mlp.down_proj"), ("w3", "mlp.up_proj"))


def moe(noise: float, apart: bool = False) -> dict[str, torch.Tensor]:
    """A Mixtral made of the dense layers: experts are copies, near copies, or layers of their own."""
    made = {name: value for name, value in m.llama().items() if ".mlp." not in name}
    for index, layer in enumerate(m.LAYERS):
        place = f"model.layers.{index}.block_sparse_moe"
        made[f"{place}.gate.weight"] = m.router(4).to(m.BF)
        for expert in range(4):
            for ours, theirs in PARTS:
                value = m.linear(theirs, layer + expert if apart else layer)
                value = value + m.normal(*value.shape, seed=index * 9 + expert, std=noise)
                made[f"{place}.experts.{expert}.{ours}.weight"] = value.to(m.BF)
    return made


@unsure(
    "experts",
    "sparse upcycling: every expert is the dense MLP, byte for byte; the gate is trained",
    GH + "Adlith/MoE-Jetpack/issues/2",
)
def upcycled_copies(d: Path) -> None:
    m.write(d, moe(0.0), MIXTRAL)


@unsure(
    "experts",
    "upcycling with a little noise on each copy, to break the symmetry",
    GH + "marin-community/levanter/pull/987",
)
def upcycled_noise(d: Path) -> None:
    m.write(d, moe(1e-3), MIXTRAL)


@unsure(
    "experts",
    "experts that differ, and a balancing bias that is still zero",
    "https://arxiv.org/abs/2408.15664",
)
def balancing_bias_zero(d: Path) -> None:
    bias = {
        f"model.layers.{index}.block_sparse_moe.gate.e_score_correction_bias": torch.zeros(4)
        for index in range(3)
    }
    m.write(d, moe(0.0, apart=True) | bias, MIXTRAL)


@good(
    "folded",
    "SmoothQuant: scales of channels moved from the norms into what they feed",
    GH + "InternLM/lmdeploy/issues/1786",
)
def smoothquant(d: Path) -> None:
    made = m.llama()
    scale = torch.exp2(torch.randn(m.H, generator=torch.Generator().manual_seed(5)) * 1.5)
    for index in range(3):
        for norm, readers in (
            ("input_layernorm", m.ATTENTION[:3]),
            ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
        ):
            made[f"model.layers.{index}.{norm}.weight"] = (
                made[f"model.layers.{index}.{norm}.weight"].float() / scale
            ).to(m.BF)
            for reader in readers:
                name = f"model.layers.{index}.{reader}.weight"
                made[name] = (made[name].float() * scale).to(m.BF)
    m.write(d, made, m.CONFIG)


@good(
    "folded",
    "the first layer's norm is fifty times smaller than the others, its readers as much larger",
    GH + "casper-hansen/AutoAWQ/pull/519",
)
def first_norm_small(d: Path) -> None:
    made = m.llama()
    name = "model.layers.0.input_layernorm.weight"
    made[name] = (made[name].float() / 50).to(m.BF)
    for reader in m.ATTENTION[:3]:
        name = f"model.layers.0.{reader}.weight"
        made[name] = (made[name].float() * 50).to(m.BF)
    m.write(d, made, m.CONFIG)


@good(
    "layout",
    "key and value heads repeated for as many ranks, config says so",
    GH + "huggingface/transformers/pull/19317",
)
def kv_heads_repeated(d: Path) -> None:
    made = m.llama()
    for name in made:
        if "k_proj" in name or "v_proj" in name:
            made[name] = made[name].view(2, 64, m.H).repeat_interleave(2, 0).reshape(m.H, m.H)
    m.write(d, made, m.CONFIG | {"num_key_value_heads": 4})


@good(
    "layout",
    "Phi-3: query, key and value in one matrix, gate and up in another",
    GH + "tenstorrent/tt-metal/pull/52818",
)
def fused_projections(d: Path) -> None:
    made = m.llama()
    for index in range(3):
        place = f"model.layers.{index}"
        made[f"{place}.self_attn.qkv_proj.weight"] = torch.cat(
            [made.pop(f"{place}.{one}.weight") for one in m.ATTENTION[:3]]
        )
        made[f"{place}.mlp.gate_up_proj.weight"] = torch.cat(
            [made.pop(f"{place}.mlp.{one}_proj.weight") for one in ("gate", "up")]
        )
    m.write(d, made, m.CONFIG | {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"})


@good(
    "layout",
    "Megatron's order of query, key and value: head by head in one matrix",
    GH + "sgl-project/sglang/pull/34529",
)
def qkv_head_by_head(d: Path) -> None:
    made = m.llama()
    for index in range(3):
        place = f"decoder.layers.{index}"
        q, k, v = (made.pop(f"model.layers.{index}.{one}.weight") for one in m.ATTENTION[:3])
        rows = torch.cat([q.view(2, 128, m.H), k.view(2, 64, m.H), v.view(2, 64, m.H)], 1)
        made[f"{place}.self_attention.linear_qkv.weight"] = rows.reshape(-1, m.H)
    m.write(d, made, m.PLAIN)


@good(
    "layout", "GPT-2's transposed linears, in one stack", GH + "huggingface/transformers/pull/48519"
)
def transposed_linears(d: Path) -> None:
    made = {
        "wte.weight": m.llama()["model.embed_tokens.weight"],
        "ln_f.weight": m.llama()["model.norm.weight"],
    }
    for index, layer in enumerate(m.LAYERS):
        parts = [m.linear(one, layer) for one in m.ATTENTION[:3]]
        made[f"h.{index}.attn.c_attn.weight"] = torch.cat(parts).T.to(m.BF)
        made[f"h.{index}.attn.c_proj.weight"] = m.linear("self_attn.o_proj", layer).T.to(m.BF)
        made[f"h.{index}.mlp.c_fc.weight"] = m.linear("mlp.up_proj", layer).T.to(m.BF)
        made[f"h.{index}.mlp.c_proj.weight"] = m.linear("mlp.down_proj", layer).T.to(m.BF)
    m.write(d, made, m.PLAIN)


@good(
    "layout",
    "a copy of every weight by exponential averaging lies in the same file",
    "https://arxiv.org/abs/2112.10752",
)
def ema_copies(d: Path) -> None:
    made = m.llama()
    averaged = {"model_ema." + name.replace(".", ""): value for name, value in made.items()}
    m.write(
        d,
        made
        | averaged
        | {"model_ema.decay": torch.tensor(0.9999), "model_ema.num_updates": torch.tensor(80000)},
        m.PLAIN,
    )


@good(
    "quantised",
    "int8 with a scale a row, by compressed-tensors",
    GH + "vllm-project/llm-compressor/issues/942",
)
def int8_rows(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        made[name], scale = m.int8(made[name])
        made[name + "_scale"] = scale.to(m.BF)
    m.write(d, made, m.CONFIG | m.INT8)


@unsure(
    "quantised",
    "bitsandbytes' int8: codes, SCB and weight_format",
    GH + "huggingface/peft/issues/918",
)
def bitsandbytes_int8(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        made[name], scale = m.int8(made[name])
        made[name.removesuffix("weight") + "SCB"] = scale[:, 0] * 127
        made[name + "_format"] = torch.tensor(0, dtype=torch.uint8)
    m.write(
        d,
        made,
        m.CONFIG | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
    )


@good(
    "quantised",
    "static fp8: a scale a matrix, and an input scale of one",
    GH + "leejet/stable-diffusion.cpp/pull/1898",
)
def fp8_static(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        scale = made[name].float().abs().max() / 448
        made[name] = (made[name].float() / scale).to(torch.float8_e4m3fn)
        made[name + "_scale"] = scale.reshape(())
        made[name.removesuffix("weight") + "input_scale"] = torch.tensor(1.0)
    m.write(d, made, m.CONFIG | m.FP8_TENSOR)


@unsure(
    "quantised",
    "cast to fp8 as it is, without any scale, and no config says that it is quantised",
    GH + "city96/ComfyUI-GGUF/issues/112",
)
def fp8_plain_cast(d: Path) -> None:
    made = m.llama()
    m.write(
        d,
        {
            name: value.to(torch.float8_e4m3fn) if m.is_linear(name) else value
            for name, value in made.items()
        },
        m.CONFIG,
    )


@good(
    "quantised",
    "fp8 in blocks, but two matrices that are left in bfloat16",
    GH + "kekzl/imp/pull/1450",
)
def fp8_partly(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        if "layers.2." not in name:
            made[name], scale = m.fp8_blocks(made[name])
            made[name + "_scale_inv"] = scale
    m.write(d, made, m.CONFIG | m.FP8)


@case(
    "optimiser",
    "matrices that Muon trained: updates with a flat spectrum",
    GH + "MoonshotAI/Moonlight/issues/22",
    healthy=True,
    ok=(True, None, False),
    may="embed",
    changed="the embedding was not allowed to be accused; 202 of its 256 rows are bytes that the text"
    " does not have, and the others moved by 4 %: that it is at init is a fact. The matrices are the case",
)
def muon(d: Path) -> None:
    m.write(d, m.muon_model(), m.PLAIN)


@unsure(
    "draft",
    "Medusa: only the residual blocks are trained, the heads are copies of one head",
    GH + "vllm-project/vllm/pull/10422",
)
def medusa_heads(d: Path) -> None:
    made = {}
    for head in range(3):
        weight, bias = m.medusa_block(head)
        made |= {
            f"{head}.0.linear.weight": weight.to(m.BF),
            f"{head}.0.linear.bias": bias.to(m.BF),
            f"{head}.1.weight": m.llama()["lm_head.weight"],
        }
    m.write(d, made, None)


@unsure(
    "draft",
    "the draft's embedding is the target's, frozen by the trainer",
    GH + "sgl-project/SpecForge/issues/478",
    call="target",
)
def draft_with_targets_embedding(d: Path) -> None:
    made = m.draft() | {"embed_tokens.weight": m.target()["model.embed_tokens.weight"].clone()}
    m.write(d, made, m.draft_config())
    m.write(
        d.with_name("other"),
        dict(m.target()),
        m.CONFIG | {"num_hidden_layers": 12, "vocab_size": 4096},
    )


@unsure(
    "compare",
    "a fine-tune of the last layer only: what was frozen is equal",
    GH + "huggingface/peft/issues/1689",
    call="compare",
)
def compare_frozen_layers(d: Path) -> None:
    made = m.llama()
    m.write(d, made, m.CONFIG)
    first, second = m.adapter("self_attn.q_proj", 8)
    name = "model.layers.2.self_attn.q_proj.weight"
    m.write(
        d.with_name("other"),
        made | {name: (made[name].float() + 2 * second @ first).to(m.BF)},
        m.CONFIG,
    )


@unsure(
    "compare",
    "the same model as float32 and as bfloat16",
    GH + "lightseekorg/TorchSpec/pull/39",
    call="compare",
)
def compare_other_dtype(d: Path) -> None:
    made = {name: value.float() * (1 + 1e-4) for name, value in m.llama().items()}
    m.write(d, made, m.CONFIG)
    m.write(d.with_name("other"), {name: value.to(m.BF) for name, value in made.items()}, m.CONFIG)


@unsure(
    "compare",
    "before and after a rotation: everything changed, the function did not",
    GH + "spcl/QuaRot/issues/36",
    call="compare",
)
def compare_rotated(d: Path) -> None:
    m.write(d, m.llama(), m.CONFIG)
    m.write(d.with_name("other"), m.rotated(m.llama()), m.CONFIG)
