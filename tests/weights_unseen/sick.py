"""Files in which something is wrong, as real tools made it."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch

from . import material as m
from .case import case

GH = "https://github.com/"
# Wrong, and the values show it.
bad = functools.partial(case, healthy=False, ok=(False,))
# Not to be cleared; whether it is proved depends on what is known.
open_ = functools.partial(case, healthy=False, ok=(False, None))
UP = "model.layers.1.mlp.up_proj.weight"


def _with(changes: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return m.llama() | changes


def _fresh(
    prefixes: tuple[str, ...], made: dict[str, torch.Tensor], seed: int = 0
) -> dict[str, torch.Tensor]:
    """Draw the matrices below some prefixes again, normal with 0.02."""
    for name, value in made.items():
        if name.startswith(prefixes) and value.ndim == 2:
            made[name] = m.normal(*value.shape, seed=seed + len(name)).to(value.dtype)
    return made


@bad(
    "head at init",
    "a resized head was drawn again after it was filled",
    GH + "huggingface/transformers/pull/45079",
    names=("lm_head",),
    may="lm_head",
)
def head_drawn_again(d: Path) -> None:
    m.write(d, _fresh(("lm_head",), m.llama()), m.CONFIG)


@open_(
    "head at init",
    "the export left the draft's embedding at its init: N(0, 0.02)",
    GH + "lightseekorg/TorchSpec/issues/38",
    names=("embed_tokens",),
    may="embed_tokens",
)
def draft_embedding_random(d: Path) -> None:
    m.write(
        d,
        m.draft() | {"embed_tokens.weight": m.normal(4096, m.H, seed=1).to(m.BF)},
        m.draft_config(),
    )


@bad(
    "head at init",
    "the same with torch's default for embeddings, N(0, 1), next to the target",
    GH + "lightseekorg/TorchSpec/pull/39",
    names=("embed_tokens",),
    may="embed_tokens",
    call="target",
)
def draft_embedding_default(d: Path) -> None:
    m.write(
        d,
        m.draft() | {"embed_tokens.weight": m.normal(4096, m.H, seed=2, std=1.0).to(m.BF)},
        m.draft_config(),
    )
    m.write(
        d.with_name("other"),
        dict(m.target()),
        m.CONFIG | {"num_hidden_layers": 12, "vocab_size": 4096},
    )


@open_(
    "head at init",
    "speculators starts embed_tokens as NaN until the target fills it, and nothing did",
    GH + "vllm-project/speculators/pull/585",
    names=("embed_tokens",),
    may="embed_tokens",
    changed="False only was right; SGLang fills this tensor from the target, so None that names it is right",
)
def draft_embedding_nan(d: Path) -> None:
    m.write(
        d,
        m.draft() | {"embed_tokens.weight": torch.full((4096, m.H), float("nan"), dtype=m.BF)},
        m.draft_config(),
    )


@bad(
    "module at init",
    "an MTP layer was added at random and never trained",
    GH + "radixark/miles/pull/1007",
    names=("mtp",),
    may="mtp",
)
def mtp_random(d: Path) -> None:
    layer = {
        name.replace("model.layers.2", "mtp.layers.0"): value
        for name, value in m.llama().items()
        if "layers.2." in name
    }
    layer["mtp.eh_proj.weight"] = torch.zeros(m.H, 2 * m.H, dtype=m.BF)
    for name in ("enorm", "hnorm", "norm"):
        layer[f"mtp.{name}.weight"] = torch.ones(m.H, dtype=m.BF)
    for name in layer:
        if "layernorm" in name:
            layer[name] = torch.ones(m.H, dtype=m.BF)
    m.write(d, _with(_fresh(("mtp",), layer)), m.CONFIG | {"num_nextn_predict_layers": 1})


@bad(
    "module at init",
    "depth was expanded by a new layer that is random",
    GH + "arcee-ai/mergekit/issues/198",
    names=(r"layers\.(\{?\d*\}?|2)",),
    may=r"layers\.2\.",
)
def new_layer_random(d: Path) -> None:
    m.write(d, _fresh(("model.layers.2.",), m.llama()), m.CONFIG)


@bad(
    "module at init",
    "the vision tower of a VLM kept its random start because of a wrong prefix",
    GH + "microsoft/olive-recipes/pull/380",
    names=("visual",),
    may="visual",
)
def vision_random(d: Path) -> None:
    tower = {}
    for index in range(3):
        for name, shape in (
            ("attn.qkv", (768, 256)),
            ("attn.proj", (256, 256)),
            ("mlp.fc1", (512, 256)),
            ("mlp.fc2", (256, 512)),
        ):
            tower[f"visual.blocks.{index}.{name}.weight"] = m.uniform(
                *shape, seed=index + len(name), bound=shape[1] ** -0.5
            ).to(m.BF)
            tower[f"visual.blocks.{index}.{name}.bias"] = m.uniform(
                shape[0], seed=index, bound=shape[1] ** -0.5
            ).to(m.BF)
        tower[f"visual.blocks.{index}.norm1.weight"] = torch.ones(m.H, dtype=m.BF)
    m.write(d, _with(tower), m.PLAIN)


@bad(
    "module at init",
    "the projector between vision and language was never trained",
    GH + "JIA-Lab-research/LISA/issues/177",
    names=("projector",),
    may="projector",
)
def projector_random(d: Path) -> None:
    made = {
        f"multi_modal_projector.linear_{one}.weight": m.uniform(m.H, m.H, seed=one, bound=m.H**-0.5)
        for one in (1, 2)
    }
    made |= {
        f"multi_modal_projector.linear_{one}.bias": m.uniform(m.H, seed=one, bound=m.H**-0.5)
        for one in (1, 2)
    }
    m.write(d, _with(made), m.PLAIN)


@bad(
    "module at init",
    "a table of learned positions was drawn again",
    GH + "huggingface/transformers/issues/46620",
    names=("wpe",),
    may="wpe",
)
def positions_random(d: Path) -> None:
    m.write(d, _with({"model.wpe.weight": m.normal(512, m.H, seed=4).to(m.BF)}), m.PLAIN)


@open_(
    "module at init",
    "Medusa's residual blocks are zero, as before the first step",
    GH + "huggingface/transformers/issues/29240",
    names=(r"linear",),
    may="linear",
)
def medusa_untrained(d: Path) -> None:
    made = {}
    for head in range(3):
        made |= {
            f"{head}.0.linear.weight": torch.zeros(m.H, m.H, dtype=m.BF),
            f"{head}.0.linear.bias": torch.zeros(m.H, dtype=m.BF),
            f"{head}.1.weight": m.llama()["lm_head.weight"],
        }
    m.write(d, made, None)


@open_(
    "module at init",
    "block expansion: o_proj and down_proj of an added layer are zero and were not trained",
    "https://arxiv.org/abs/2401.02415",
    names=("o_proj|down_proj",),
    may=r"layers\.3\.",
)
def added_layer_silent(d: Path) -> None:
    made = m.llama((0, 4, 8, 8))
    for part in ("self_attn.o_proj", "mlp.down_proj"):
        made[f"model.layers.3.{part}.weight"] = torch.zeros_like(
            made[f"model.layers.3.{part}.weight"]
        )
    m.write(d, made, m.CONFIG | {"num_hidden_layers": 4})


@open_(
    "module at init",
    "a value head of one row is all zero",
    GH + "OpenRLHF/OpenRLHF/issues/839",
    names=("v_head|value_head",),
    may="value_head",
)
def value_head_zero(d: Path) -> None:
    m.write(d, _with({"value_head.weight": torch.zeros(1, m.H, dtype=m.BF)}), m.CONFIG)


def _experts(count: int, fresh: int) -> dict[str, torch.Tensor]:
    made = {name: value for name, value in m.llama().items() if ".mlp." not in name}
    for index, layer in enumerate(m.LAYERS):
        place = f"model.layers.{index}.mlp"
        made[f"{place}.gate.weight"] = m.router(64).to(m.BF)
        for expert in range(count):
            for part in ("gate_proj", "up_proj", "down_proj"):
                value = m.linear(f"mlp.{part}", (layer + expert) % 12)
                if (index, expert) == (1, fresh):
                    value = m.normal(*value.shape, seed=expert, std=float(value.std()))
                made[f"{place}.experts.{expert}.{part}.weight"] = value.to(m.BF)
    return made


QWEN_MOE = m.CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "moe_intermediate_size": m.MLP,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


@bad(
    "experts",
    "one expert never had a token: it is at its init, with the others' sigma",
    GH + "AkihikoWatanabe/paper_notes/issues/2088",
    names=(r"experts",),
    may=r"layers\.1\.mlp\.experts\.2\.",
)
def one_expert_random(d: Path) -> None:
    made = {name: value for name, value in _experts(4, 2).items() if "gate.weight" not in name}
    m.write(d, made, m.PLAIN)


@bad(
    "experts",
    "a router of 64 rows was drawn again",
    GH + "huggingface/transformers/issues/46620",
    names=(r"gate",),
    may=r"mlp\.gate\.",
)
def router_random(d: Path) -> None:
    made = _experts(2, -1)
    made["model.layers.1.mlp.gate.weight"] = m.normal(64, m.H, seed=6).to(m.BF)
    m.write(d, made, m.PLAIN)


@open_(
    "adapter",
    "one of two targets never ran: its B is zero in every layer, the others are trained",
    GH + "huggingface/peft/issues/1402",
    names=(r"o_proj",),
    may=r"o_proj",
)
def lora_one_target_dead(d: Path) -> None:
    made = {}
    for layer in m.LAYERS:
        for part in ("self_attn.q_proj", "self_attn.o_proj"):
            first, second = m.adapter(part, layer)
            if "o_proj" in part:
                first, second = (
                    m.uniform(16, m.H, seed=layer, bound=m.H**-0.5),
                    torch.zeros_like(second),
                )
            place = f"base_model.model.model.layers.{layer}.{part}"
            made |= {f"{place}.lora_A.weight": first, f"{place}.lora_B.weight": second}
    m.write(d, made, None)


@open_(
    "adapter",
    "use_dora is set, and the magnitudes are not in the file",
    GH + "NVIDIA-NeMo/Megatron-Bridge/pull/6031",
    names=("magnitude",),
)
def dora_without_magnitudes(d: Path) -> None:
    made = {}
    for layer in m.LAYERS:
        first, second = m.adapter("self_attn.q_proj", layer)
        place = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        made |= {f"{place}.lora_A.weight": first, f"{place}.lora_B.weight": second}
    m.write(d, made, None)
    (d / "model.safetensors").rename(d / "adapter_model.safetensors")
    (d / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "use_dora": True,
                "r": 16,
                "lora_alpha": 32,
                "target_modules": ["q_proj"],
            }
        )
    )


@open_(
    "tied",
    "the config ties, both sides are in the file, and they differ: engines drop one",
    GH + "NVIDIA-NeMo/Automodel/pull/2511",
    names=("lm_head",),
)
def tied_and_different(d: Path) -> None:
    m.write(d, m.llama(), m.CONFIG | {"tie_word_embeddings": True})


@bad(
    "not finite",
    "one value of a convolution is NaN",
    GH + "ICTMCG/Make-Your-Anchor/issues/9",
    names=("conv2",),
    may="conv2",
)
def one_nan_in_convolution(d: Path) -> None:
    value = (
        torch.stack([m.linear("self_attn.o_proj", layer) for layer in range(9)], -1)
        .reshape(m.H, m.H, 3, 3)
        .clone()
    )
    value[100, 7, 1, 1] = float("nan")
    m.write(d, _with({"mid_block.resnets.0.conv2.weight": value}), m.PLAIN)


@bad(
    "scales",
    "scales of one matrix in 4 bits hold NaN and infinity",
    GH + "vllm-project/compressed-tensors/issues/832",
    names=(r"layers\.1\.mlp\.up_proj",),
    may=r"layers\.1\.mlp\.up_proj",
)
def int4_scales_not_finite(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        value = made.pop(name)
        packed, scale = m.int4(value)
        if name == UP:
            scale[3, 2], scale[9] = float("nan"), float("inf")
        made |= {
            name + "_packed": packed,
            name + "_scale": scale,
            name + "_shape": torch.tensor(value.shape),
        }
    m.write(d, made, m.CONFIG | m.INT4)


@bad(
    "scales",
    "scales of one matrix in 4 bits are all zero: so is the matrix",
    GH + "vllm-project/compressed-tensors/issues/832",
    names=(r"layers\.1\.mlp\.up_proj",),
    may=r"layers\.1\.mlp\.up_proj",
)
def int4_scales_zero(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        value = made.pop(name)
        packed, scale = m.int4(value)
        made |= {
            name + "_packed": packed,
            name + "_scale": scale * (name != UP),
            name + "_shape": torch.tensor(value.shape),
        }
    m.write(d, made, m.CONFIG | m.INT4)


@open_(
    "scales",
    "the scale of one matrix was written as its reciprocal",
    GH + "NVIDIA/TransformerEngine/pull/123",
    names=(r"layers\.1\.mlp\.up_proj",),
    may=r"layers\.1\.mlp\.up_proj",
)
def fp8_scale_inverted_once(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        made[name], scale = m.fp8_blocks(made[name])
        made[name + "_scale_inv"] = 1 / scale if name == UP else scale
    m.write(d, made, m.CONFIG | m.FP8)


@open_(
    "scales",
    "all scales were written as their reciprocals: weights of 10^6",
    GH + "NVIDIA/TransformerEngine/pull/123",
    names=("proj|scale",),
    may="proj",
)
def fp8_scales_inverted(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        made[name], scale = m.fp8_blocks(made[name])
        made[name + "_scale_inv"] = 1 / scale
    m.write(d, made, m.CONFIG | m.FP8)


@open_(
    "scales",
    "int8 codes whose scales were all set to one",
    GH + "leejet/stable-diffusion.cpp/pull/1898",
    names=("proj|scale",),
    may="proj",
)
def int8_scales_one(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        made[name], scale = m.int8(made[name])
        made[name + "_scale"] = torch.ones_like(scale).to(m.BF)
    m.write(d, made, m.CONFIG | m.INT8)


@bad(
    "scales",
    "a random model in 4 bits: dummy weights were quantised",
    GH + "vllm-project/compressed-tensors/issues/832",
    names=("proj",),
    may="proj|lm_head|embed",
)
def int4_random(d: Path) -> None:
    made = m.llama()
    for index, name in enumerate(list(filter(m.is_linear, made))):
        shape = made.pop(name).shape
        packed, scale = m.int4(m.normal(*shape, seed=index))
        made |= {
            name + "_packed": packed,
            name + "_scale": scale,
            name + "_shape": torch.tensor(shape),
        }
    m.write(d, made, m.CONFIG | m.INT4)
