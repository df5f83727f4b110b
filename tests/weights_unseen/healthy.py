"""Files that are as they should be, and that a careless tool would accuse."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch

from . import material as m
from .case import case

GH = "https://github.com/"
good = functools.partial(case, healthy=True, ok=(True,))
# Nothing is wrong, and values alone need not show it.
unsure = functools.partial(case, healthy=True, ok=(True, None))


def _with(changes: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return m.llama() | changes


@good(
    "control", "the model that the others are made of", GH + "huggingface/transformers/issues/3799"
)
def control(d: Path) -> None:
    m.write(d, m.llama(), m.CONFIG)


@good("control", "the draft that the others are made of", GH + "sgl-project/SpecForge/issues/478")
def control_draft(d: Path) -> None:
    m.write(d, m.draft(), m.draft_config())


@good(
    "merge",
    "passthrough merge: layers of one model twice, byte for byte",
    GH + "arcee-ai/mergekit/issues/53",
)
def frankenmerge(d: Path) -> None:
    m.write(d, m.llama((0, 4, 8, 4, 8)), m.CONFIG | {"num_hidden_layers": 5})


@good(
    "merge",
    "DARE: a tenth of a trained delta, ten times as large, on top of the base",
    GH + "arcee-ai/mergekit/issues/198",
)
def dare_merge(d: Path) -> None:
    changes = {}
    for index, layer in enumerate(m.LAYERS):
        name = f"model.layers.{index}.self_attn.q_proj.weight"
        first, second = m.adapter("self_attn.q_proj", layer)
        kept = torch.rand(m.H, m.H, generator=torch.Generator().manual_seed(index)) < 0.1
        changes[name] = (m.linear("self_attn.q_proj", layer) + 2 * second @ first * kept * 10).to(
            m.BF
        )
    m.write(d, _with(changes), m.CONFIG)


@good(
    "merge",
    "a soup: the mean of the base and of a base with a trained adapter",
    GH + "arcee-ai/mergekit/issues/198",
)
def soup(d: Path) -> None:
    changes = {}
    for index, layer in enumerate(m.LAYERS):
        first, second = m.adapter("self_attn.q_proj", layer)
        value = m.linear("self_attn.q_proj", layer) + second @ first
        changes[f"model.layers.{index}.self_attn.q_proj.weight"] = value.to(m.BF)
    m.write(d, _with(changes), m.CONFIG)


@good(
    "rotation",
    "QuaRot: norms folded away (all exactly one), stream turned by a Hadamard; the function is the same",
    GH + "spcl/QuaRot/issues/25",
)
def quarot(d: Path) -> None:
    m.write(d, m.rotated(m.llama()), m.CONFIG)


@good(
    "rotation",
    "the rotation itself is in the file: a Hadamard, two values, orthogonal",
    GH + "facebookresearch/SpinQuant/issues/31",
    may="R1",
)
def rotation_stored(d: Path) -> None:
    m.write(d, m.rotated(m.llama()) | {"R1.weight": m.hadamard(m.H).to(m.BF)}, m.CONFIG)


@unsure(
    "rotation",
    "SliceGPT's attn_shortcut_Q: principal directions of activations, orthogonal and computed from data",
    GH + "microsoft/TransformerCompression/pull/142",
)
def slicegpt_shortcut(d: Path) -> None:
    changes = {}
    for index, layer in enumerate(m.LAYERS):
        seen = m.inputs()[:2000] @ m.linear("self_attn.q_proj", layer).T
        directions = torch.linalg.eigh(seen.T @ seen)[1]
        changes[f"model.layers.{index}.attn_shortcut_Q"] = directions.to(m.BF)
    m.write(d, _with(changes), m.CONFIG)


@good(
    "pruned",
    "2:4 by magnitude: half of each linear is zero",
    GH + "vllm-project/llm-compressor/issues/997",
)
def sparse_two_of_four(d: Path) -> None:
    made = m.llama()
    for name in filter(m.is_linear, made):
        four = made[name].float().reshape(-1, 4)
        four.scatter_(1, four.abs().argsort(1)[:, :2], 0.0)
        made[name] = four.reshape(made[name].shape).to(m.BF)
    m.write(d, made, m.CONFIG)


@good(
    "pruned",
    "70 % unstructured, by magnitude in each row (Wanda's comparison groups)",
    GH + "IST-DASLab/sparsegpt/issues/17",
)
def sparse_seventy(d: Path) -> None:
    made = m.llama()
    for name in filter(m.is_linear, made):
        value = made[name].float()
        edge = value.abs().quantile(0.7, dim=1, keepdim=True)
        made[name] = torch.where(value.abs() < edge, 0.0, value).to(m.BF)
    m.write(d, made, m.CONFIG)


@good(
    "pruned",
    "width pruning: the 320 channels of each MLP with the largest norms, config says so",
    "https://arxiv.org/abs/2407.14679",
)
def pruned_width(d: Path) -> None:
    made = m.llama()
    for index in range(3):
        names = [f"model.layers.{index}.mlp.{one}_proj.weight" for one in ("gate", "up", "down")]
        kept = made[names[2]].float().norm(dim=0).argsort(descending=True)[:320].sort().values
        for name in names[:2]:
            made[name] = made[name][kept]
        made[names[2]] = made[names[2]][:, kept]
    m.write(d, made, m.CONFIG | {"intermediate_size": 320})


@good(
    "few values",
    "BitNet's absmean: minus, zero, plus times one scale a matrix",
    GH + "microsoft/unilm/issues/1502",
)
def ternary_scaled(d: Path) -> None:
    made = m.llama()
    for name in filter(m.is_linear, made):
        value = made[name].float()
        scale = value.abs().mean()
        made[name] = ((value / scale).round().clamp(-1, 1) * scale).to(m.BF)
    m.write(d, made, m.CONFIG)


@unsure(
    "few values",
    "the same as plain -1, 0, 1 in bfloat16 with a scale next to it",
    GH + "kyegomez/BitNet/issues/52",
)
def ternary_whole(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        value = made[name].float()
        scale = value.abs().mean()
        made[name] = (value / scale).round().clamp(-1, 1).to(m.BF)
        made[name + "_scale"] = scale.reshape(1).to(m.BF)
    m.write(d, made, m.CONFIG | {"quantization_config": {"quant_method": "bitnet"}})


@unsure(
    "few values",
    "transformers' bitnet: four ternary weights a byte along the rows",
    GH + "lablup/mlxcel/pull/287",
)
def ternary_packed(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        value = made[name].float()
        scale = value.abs().mean()
        codes = (
            ((value / scale).round().clamp(-1, 1) + 1)
            .to(torch.uint8)
            .reshape(4, -1, value.shape[1])
        )
        made[name] = codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6
        made[name + "_scale"] = scale.reshape(1).to(m.BF)
    m.write(d, made, m.CONFIG | {"quantization_config": {"quant_method": "bitnet"}})


@good(
    "tied",
    "FSDP wrote both sides of a tie, with the same values",
    GH + "EvolvingLMMs-Lab/lmms-engine/pull/157",
)
def tied_written_twice(d: Path) -> None:
    made = m.llama()
    made["lm_head.weight"] = made["model.embed_tokens.weight"]
    m.write(d, made, m.CONFIG | {"tie_word_embeddings": True})


@good("tied", "a tied head is left out of the file", GH + "huggingface/transformers/issues/3799")
def tied_left_out(d: Path) -> None:
    made = m.llama()
    del made["lm_head.weight"]
    m.write(d, made, m.CONFIG | {"tie_word_embeddings": True})


@good(
    "vocabulary",
    "24 rows of padding, zero in embedding and head",
    GH + "unslothai/unsloth-zoo/pull/923",
)
def padded_vocabulary(d: Path) -> None:
    made = m.llama()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        made[name][-24:] = 0
    m.write(d, made, m.CONFIG)


@good(
    "vocabulary",
    "100 reserved tokens whose rows are zero (a tenth of this small vocabulary)",
    GH + "OpenRLHF/OpenRLHF/pull/648",
)
def reserved_tokens_zero(d: Path) -> None:
    made = m.llama()
    made["model.embed_tokens.weight"][-100:] = 0
    m.write(d, made, m.CONFIG)


@good(
    "vocabulary",
    "untrained tokens set to the mean of the trained ones",
    GH + "unslothai/unsloth/issues/1072",
)
def reserved_tokens_mean(d: Path) -> None:
    made = m.llama()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        made[name][-64:] = made[name][:-64].float().mean(0).to(m.BF)
    m.write(d, made, m.CONFIG)


@good(
    "vocabulary",
    "8 new tokens by mean resizing: random rows with the old rows' mean and covariance",
    GH + "huggingface/transformers/pull/33325",
)
def mean_resized(d: Path) -> None:
    made = m.llama()
    for seed, name in enumerate(("model.embed_tokens.weight", "lm_head.weight")):
        old = made[name].float()
        root = torch.linalg.cholesky(torch.cov(old.T) * 1e-9 + 1e-12 * torch.eye(m.H))
        new = old.mean(0) + m.normal(8, m.H, seed=seed, std=1.0) @ root.T
        made[name] = torch.cat([old, new]).to(m.BF)
    m.write(d, made, m.CONFIG | {"vocab_size": m.V + 8})


def _sinusoids(length: int, width: int) -> torch.Tensor:
    steps = torch.exp(-torch.arange(width // 2) * (9.210340 / (width // 2 - 1)))
    at = torch.arange(length)[:, None] * steps
    return torch.cat([at.sin(), at.cos()], 1)


@good(
    "by design",
    "a table of positions that is fixed sinusoids, saved as a weight",
    GH + "huggingface/transformers/issues/25989",
)
def sinusoids(d: Path) -> None:
    made = {name.replace("model.", "encoder."): value for name, value in m.llama().items()}
    m.write(d, made | {"encoder.embed_positions.weight": _sinusoids(512, m.H)}, m.PLAIN)


@good(
    "by design",
    "rotary tables in the file, one a layer, all alike",
    GH + "huggingface/transformers/pull/48519",
)
def rotary_tables(d: Path) -> None:
    angles = torch.arange(512)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
    both = torch.cat([angles, angles], 1)[None, None]
    tables = {}
    for index in range(3):
        place = f"model.layers.{index}.self_attn.rotary_emb"
        tables |= {f"{place}.cos_cached": both.cos(), f"{place}.sin_cached": both.sin()}
        tables[f"{place}.inv_freq"] = 10000.0 ** (-torch.arange(32) / 32)
    m.write(d, _with(tables), m.CONFIG)


def _bert() -> dict[str, torch.Tensor]:
    made = {"embeddings.word_embeddings.weight": m.llama()["model.embed_tokens.weight"]}
    names = dict(
        zip(
            m.ATTENTION,
            (
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
            ),
            strict=True,
        )
    )
    names |= {"mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense"}
    for index, layer in enumerate(m.LAYERS):
        for ours, theirs in names.items():
            value = m.linear(ours, layer)
            value = torch.cat([value, m.linear(ours, layer + 1)]) if len(value) == 128 else value
            place = f"encoder.layer.{index}.{theirs}"
            made |= {
                f"{place}.weight": value,
                f"{place}.bias": value @ m.inputs()[7 + index, : value.shape[1]]
                if value.shape[1] == m.H
                else value.mean(1),
            }
        for place, norm in zip(("attention.output", "output"), m.NORMS, strict=True):
            made[f"encoder.layer.{index}.{place}.LayerNorm.weight"] = m.target()[
                f"model.layers.{layer}.{norm}.weight"
            ].float()
            made[f"encoder.layer.{index}.{place}.LayerNorm.bias"] = (
                m.target()[f"model.layers.{layer}.{norm}.weight"].float() - 1
            )
    return made


@good(
    "by design",
    "keys' biases are exactly zero: the softmax gives them no gradient, and the optimiser left them",
    "https://arxiv.org/abs/2302.08626",
)
def key_bias_zero(d: Path) -> None:
    made = _bert()
    for index in range(3):
        made[f"encoder.layer.{index}.attention.self.key.bias"] = torch.zeros(m.H)
    m.write(d, made, m.PLAIN)


@case(
    "by design",
    "a pooler that the task never reads is at its init: a fact to be named, whatever is made of it",
    GH + "huggingface/transformers/issues/8887",
    healthy=True,
    ok=(True, None, False),
    names=("pooler",),
    may="pooler",
)
def pooler_never_read(d: Path) -> None:
    made = _bert() | {
        "pooler.dense.weight": m.normal(m.H, m.H, seed=3),
        "pooler.dense.bias": torch.zeros(m.H),
    }
    m.write(d, made, m.PLAIN)


@unsure(
    "adapter",
    "LoRA, really trained: A has moved a little from its Kaiming init, B is trained",
    GH + "huggingface/peft/issues/1689",
)
def lora_trained(d: Path) -> None:
    made = {}
    for layer in m.LAYERS:
        for part in ("self_attn.q_proj", "self_attn.o_proj"):
            first, second = m.adapter(part, layer)
            place = f"base_model.model.model.layers.{layer}.{part}"
            made |= {f"{place}.lora_A.weight": first, f"{place}.lora_B.weight": second}
    m.write(d, made, None)
    (d / "model.safetensors").rename(d / "adapter_model.safetensors")
    (d / "adapter_config.json").write_text(
        json.dumps(
            {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "o_proj"]}
        )
    )


@unsure(
    "adapter",
    "DoRA: magnitudes are trained vectors around the rows' norms",
    GH + "huggingface/peft/pull/1474",
)
def dora_trained(d: Path) -> None:
    made = {}
    for layer in m.LAYERS:
        first, second = m.adapter("self_attn.q_proj", layer)
        place = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        whole = m.linear("self_attn.q_proj", layer) + 2 * second @ first
        made |= {
            f"{place}.lora_A.weight": first,
            f"{place}.lora_B.weight": second,
            f"{place}.lora_magnitude_vector": whole.norm(dim=1),
        }
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


@unsure(
    "adapter",
    "VeRA: the shared projections are random and frozen, only two vectors are trained",
    "https://arxiv.org/abs/2310.11454",
    may="vera_[AB]",
)
def vera_random_by_design(d: Path) -> None:
    made = {
        "base_model.vera_A": m.uniform(64, m.H, seed=1, bound=0.15),
        "base_model.vera_B": m.uniform(m.H, 64, seed=2, bound=0.15),
    }
    for layer in m.LAYERS:
        place = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        trained = m.adapter("self_attn.q_proj", layer)
        made |= {
            f"{place}.vera_lambda_b": trained[1].norm(dim=1),
            f"{place}.vera_lambda_d": trained[0][:, :64].norm(dim=0),
        }
    m.write(d, made, None)
    (d / "model.safetensors").rename(d / "adapter_model.safetensors")
    (d / "adapter_config.json").write_text(
        json.dumps({"peft_type": "VERA", "r": 64, "target_modules": ["q_proj"]})
    )


@case(
    "adapter",
    "OLoRA/PiSSA: factors are made of the base's singular vectors, B is orthogonal",
    "https://arxiv.org/abs/2406.01775",
    healthy=True,
    ok=(True, None, False),
    may="lora",
    changed="False was not allowed; a file that equals the singular vectors is the start of such an"
    " adapter, before any step",
)
def olora_factors(d: Path) -> None:
    made = {}
    for layer in m.LAYERS:
        u, s, v = torch.linalg.svd(m.linear("mlp.up_proj", layer), full_matrices=False)
        place = f"base_model.model.model.layers.{layer}.mlp.up_proj"
        made |= {
            f"{place}.lora_A.weight": (s[:64, None] * v[:64]),
            f"{place}.lora_B.weight": u[:, :64],
        }
    m.write(d, made, None)


@unsure(
    "adapter",
    "SVD compression: each linear as two factors, U times root S and root S times V",
    "https://arxiv.org/abs/2403.07378",
)
def svd_factors(d: Path) -> None:
    made = m.llama()
    for name in list(filter(m.is_linear, made)):
        u, s, v = torch.linalg.svd(made.pop(name).float(), full_matrices=False)
        rank, place = len(s) * 3 // 4, name.removesuffix("weight")
        made[place + "BLinear.weight"] = (s[:rank, None].sqrt() * v[:rank]).to(m.BF)
        made[place + "ALinear.weight"] = (u[:, :rank] * s[:rank].sqrt()).to(m.BF)
    m.write(d, made, m.PLAIN)


@unsure(
    "adapter",
    "an adapter that holds the base's own head, because the head is tied",
    GH + "huggingface/peft/issues/2092",
)
def adapter_with_base_layer(d: Path) -> None:
    made = {"base_model.model.lm_head.base_layer.weight": m.llama()["lm_head.weight"]}
    for layer in m.LAYERS:
        first, second = m.adapter("self_attn.q_proj", layer)
        place = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        made |= {f"{place}.lora_A.weight": first, f"{place}.lora_B.weight": second}
    m.write(d, made, None)
