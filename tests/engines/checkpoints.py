"""Small checkpoints to load with real engines: the writers' own, and altered copies of them.

A `Case` is a config and named tensors; `write` makes a folder of it. All is seeded: a name stands for the
same bytes everywhere. Drafts come from the real writers, those in ``data/drafts`` and further ones that their
environment writes once and keeps in the cache; targets and the Kimi draft are built here from shapes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from workbench.checkpoint.config import Config
from workbench.facts.flat_config import flattened

from . import environments

ROOT = Path(__file__).resolve().parents[2]
DRAFTS = ROOT / "data" / "drafts"
SCRIPT = ROOT / "data" / "scripts" / "write_drafts.py"
# What the writers' environment has to write, beside what is kept in the repository.
MORE_DRAFTS = (
    "specforge-embedding",
    "speculators-qwen3",
    "speculators-two-layers",
    "speculators-fc-norm",
    "speculators-norm-before-fc",
)
KEPT_DRAFTS = ("target", "speculators", "specforge")
SEED = 7
HIDDEN, VOCABULARY, DRAFT_VOCABULARY = 128, 256, 128

Tensors = Mapping[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """A checkpoint to be: its config.json, its tensors, and the class it is loaded as."""

    name: str
    config: Mapping[str, Any]
    tensors: Tensors
    model_class: str = "LlamaForCausalLMEagle3"

    def write(self, folder: Path) -> Path:
        """Write it as a folder below `folder`, named after the case."""
        out = folder / self.name
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(dict(self.config), indent=1))
        save_file(
            {key: tensor.contiguous() for key, tensor in self.tensors.items()},
            out / "model.safetensors",
            metadata={"format": "pt"},
        )
        return out


# --- the real writers' drafts -----------------------------------------------------------------------


@cache
def written_drafts(names: tuple[str, ...] = ("target", *MORE_DRAFTS)) -> Path:
    """Return a folder with drafts, written once by the writers' own environment."""
    content = SCRIPT.read_bytes() + str([environments.interpreter("writers"), *names]).encode()
    folder = environments.cache() / f"drafts-{hashlib.sha256(content).hexdigest()[:12]}"
    if not folder.exists():
        python = environments.ensure("writers")
        work = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(work, ignore_errors=True)
        subprocess.run(
            [str(python), str(SCRIPT), str(work), *names],
            check=True,
            capture_output=True,
        )
        work.rename(folder)
    return folder


def draft(name: str) -> Case:
    """Return a real writer's draft, as it was written."""
    kept = DRAFTS / name
    folder = kept if kept.exists() else written_drafts() / name
    config = json.loads((folder / "config.json").read_text())
    return Case(name, config, load_file(folder / "model.safetensors"))


def flat(case: Case, **settings: Any) -> Case:
    """Return a speculators draft with a flat config, as an engineer would write it for SGLang."""
    config = {**flattened(Config(case.config)), **settings}
    return dataclasses.replace(case, name=f"{case.name}-flat", config=config)


# --- alterations ------------------------------------------------------------------------------------


def altered(
    case: Case,
    name: str,
    change: Callable[[dict[str, torch.Tensor]], Any] | None = None,
    **settings: Any,
) -> Case:
    """Return a copy of a case with other tensors and settings. None as a setting removes it."""
    tensors = dict(case.tensors)
    if change is not None:
        change(tensors)
    config = {**case.config, **settings}
    return Case(name, config, tensors, case.model_class)


def rename(pattern: str, new: str) -> Callable[[dict[str, torch.Tensor]], None]:
    """Return a change that renames every key by a regular expression."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        renamed = {re.sub(pattern, new, key): tensor for key, tensor in tensors.items()}
        tensors.clear()
        tensors.update(renamed)

    return change


def remove(*keys: str) -> Callable[[dict[str, torch.Tensor]], None]:
    """Return a change that takes keys away."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for key in keys:
            del tensors[key]

    return change


def resize(key: str, *shape: int) -> Callable[[dict[str, torch.Tensor]], None]:
    """Return a change that gives a key another shape."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[key] = values(shape, tensors[key].dtype)

    return change


def add(**shapes: tuple[int, ...]) -> Callable[[dict[str, torch.Tensor]], None]:
    """Return a change that adds tensors; ``__`` in a name stands for a dot."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name, shape in shapes.items():
            tensors[name.replace("__", ".")] = values(shape)

    return change


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return random values; which ones is of no consequence, but none is a NaN."""
    if not dtype.is_floating_point:
        return torch.ones(shape, dtype=dtype)
    return torch.empty(shape, dtype=torch.float32).uniform_(-1, 1).to(dtype)


def deeper(tensors: dict[str, torch.Tensor]) -> None:
    """Write the layers as ModelOpt's Megatron export does: ``midlayer.0.*``, ``midlayer.1.*``."""
    layer = {key: tensor for key, tensor in tensors.items() if key.startswith("midlayer.")}
    for key, tensor in layer.items():
        del tensors[key]
        tail = key.removeprefix("midlayer.")
        narrow = tensor[:, : tensor.shape[1] // 2] if re.search(r"[qkv]_proj", tail) else tensor
        tensors[f"midlayer.0.{tail}"] = tensor
        tensors[f"midlayer.1.{tail}"] = narrow.clone()


def drafts() -> list[Case]:
    """Return the real drafts and their altered copies."""
    torch.manual_seed(SEED)
    specforge, speculators = draft("specforge"), draft("speculators")
    with_embedding, layered = draft("specforge-embedding"), flat(draft("speculators-two-layers"))
    aux = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}}
    return [
        speculators,
        flat(speculators),
        specforge,
        with_embedding,
        flat(draft("speculators-qwen3")),
        layered,
        flat(draft("speculators-fc-norm")),
        altered(flat(draft("speculators-fc-norm")), "fc-norm-not-in-config", fc_norm=False),
        flat(draft("speculators-norm-before-fc")),
        altered(
            flat(draft("speculators-norm-before-fc")),
            "norm-before-fc-not-in-config",
            norm_before_fc=False,
        ),
        altered(specforge, "prefix-draft_model", rename("^", "draft_model.")),
        altered(specforge, "prefix-model", rename(r"^(?!d2t|t2d|lm_head)", "model.")),
        altered(specforge, "legacy-in-new-spelling", rename(r"^midlayer\.", "layers.0.")),
        altered(flat(speculators), "new-in-legacy-spelling", rename(r"^layers\.0\.", "midlayer.")),
        altered(specforge, "decoder-layer-spelling", rename(r"^midlayer\.", "decoder.0.")),
        altered(specforge, "no-lm_head", remove("lm_head.weight")),
        altered(specforge, "no-k_proj", remove("midlayer.self_attn.k_proj.weight")),
        altered(specforge, "no-up_proj", remove("midlayer.mlp.up_proj.weight")),
        altered(specforge, "no-d2t", remove("d2t", "t2d")),
        altered(specforge, "no-norms", remove("norm.weight", "midlayer.hidden_norm.weight")),
        altered(specforge, "narrow-fc", resize("fc.weight", HIDDEN, 2 * HIDDEN)),
        altered(specforge, "long-norm", resize("norm.weight", 2 * HIDDEN)),
        altered(specforge, "long-q_proj", resize("midlayer.self_attn.q_proj.weight", 256, 256)),
        altered(specforge, "short-q_proj", resize("midlayer.self_attn.q_proj.weight", 64, 256)),
        altered(specforge, "narrow-k_proj", resize("midlayer.self_attn.k_proj.weight", 64, 128)),
        altered(specforge, "short-gate_proj", resize("midlayer.mlp.gate_proj.weight", 128, 128)),
        altered(specforge, "long-gate_proj", resize("midlayer.mlp.gate_proj.weight", 512, 128)),
        altered(specforge, "wide-o_proj", resize("midlayer.self_attn.o_proj.weight", 128, 256)),
        altered(specforge, "narrow-o_proj", resize("midlayer.self_attn.o_proj.weight", 128, 64)),
        altered(specforge, "long-lm_head", resize("lm_head.weight", VOCABULARY, HIDDEN)),
        altered(specforge, "short-lm_head", resize("lm_head.weight", 64, HIDDEN)),
        altered(with_embedding, "short-embedding", resize("embed_tokens.weight", 128, HIDDEN)),
        altered(
            specforge,
            "two-wrong-shapes",
            lambda t: (resize("fc.weight", 64, 384)(t), resize("norm.weight", 64)(t)),
        ),
        altered(specforge, "deep-midlayer", deeper, num_hidden_layers=2),
        altered(specforge, "q_norm-k_norm", add(
            midlayer__self_attn__q_norm__weight=(32,), midlayer__self_attn__k_norm__weight=(32,)
        )),
        altered(specforge, "attention-bias", add(
            midlayer__self_attn__q_proj__bias=(128,),
            midlayer__self_attn__k_proj__bias=(64,),
            midlayer__self_attn__v_proj__bias=(64,),
            midlayer__self_attn__o_proj__bias=(128,),
        ), attention_bias=True),
        altered(specforge, "fc-bias", add(fc__bias=(128,)), bias=True),
        altered(specforge, "head-from-target", remove("lm_head.weight"), draft_vocab_size=None),
        altered(specforge, "tied", remove("lm_head.weight"), tie_word_embeddings=True),
        altered(specforge, "no-draft_vocab_size-in-config", draft_vocab_size=VOCABULARY),
        altered(specforge, "four-aux-layers", resize("fc.weight", HIDDEN, 4 * HIDDEN),
                eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 4, 5]}),
        altered(specforge, "aux-layers-in-config", **aux),
        altered(specforge, "wide-target", resize("fc.weight", HIDDEN, 3 * 192), target_hidden_size=192),
        altered(specforge, "fused-qkv", fuse_qkv),
        altered(specforge, "named-as-target", architectures=["LlamaForCausalLM"]),
        altered(specforge, "gelu", hidden_act="gelu"),
        altered(specforge, "inv_freq", add(midlayer__self_attn__rotary_emb__inv_freq=(16,))),
    ]  # fmt: skip


def fuse_qkv(tensors: dict[str, torch.Tensor]) -> None:
    """Store q, k and v as one tensor, under the engine's own name."""
    at = "midlayer.self_attn."
    parts = [tensors.pop(f"{at}{name}_proj.weight") for name in "qkv"]
    tensors[f"{at}qkv_proj.weight"] = torch.cat(parts)


# --- targets and the Kimi draft, from shapes --------------------------------------------------------


def _linear(
    out: dict[str, tuple[int, ...]], name: str, rows: int, columns: int, bias: bool = False
) -> None:
    out[f"{name}.weight"] = (rows, columns)
    if bias:
        out[f"{name}.bias"] = (rows,)


def _attention(out: dict[str, tuple[int, ...]], at: str, bias: bool, qk_norm: bool) -> None:
    _linear(out, f"{at}.q_proj", 128, HIDDEN, bias)
    _linear(out, f"{at}.k_proj", 64, HIDDEN, bias)
    _linear(out, f"{at}.v_proj", 64, HIDDEN, bias)
    _linear(out, f"{at}.o_proj", HIDDEN, 128)
    if qk_norm:
        out[f"{at}.q_norm.weight"] = out[f"{at}.k_norm.weight"] = (32,)


def _mlp(out: dict[str, tuple[int, ...]], at: str, inner: int) -> None:
    _linear(out, f"{at}.gate_proj", inner, HIDDEN)
    _linear(out, f"{at}.up_proj", inner, HIDDEN)
    _linear(out, f"{at}.down_proj", HIDDEN, inner)


def _mla(out: dict[str, tuple[int, ...]], at: str, columns: int, q_lora: bool = True) -> None:
    """Multi-head latent attention: 4 heads, q rank 48, kv rank 32, 16 rotary and 32 other dimensions."""
    if q_lora:
        _linear(out, f"{at}.q_a_proj", 48, columns)
        out[f"{at}.q_a_layernorm.weight"] = (48,)
        _linear(out, f"{at}.q_b_proj", 4 * 48, 48)
    else:
        _linear(out, f"{at}.q_proj", 4 * 48, columns)
    _linear(out, f"{at}.kv_a_proj_with_mqa", 32 + 16, columns)
    out[f"{at}.kv_a_layernorm.weight"] = (32,)
    _linear(out, f"{at}.kv_b_proj", 4 * (32 + 32), 32)
    _linear(out, f"{at}.o_proj", HIDDEN, 4 * 32)


def _experts(out: dict[str, tuple[int, ...]], at: str, count: int) -> None:
    out[f"{at}.gate.weight"] = (count, HIDDEN)
    out[f"{at}.gate.e_score_correction_bias"] = (count,)
    for number in range(count):
        _mlp(out, f"{at}.experts.{number}", 64)
    _mlp(out, f"{at}.shared_experts", 64)


def _norms(out: dict[str, tuple[int, ...]], at: str) -> None:
    out[f"{at}.input_layernorm.weight"] = (HIDDEN,)
    out[f"{at}.post_attention_layernorm.weight"] = (HIDDEN,)


def _around(out: dict[str, tuple[int, ...]]) -> None:
    out["model.embed_tokens.weight"] = (VOCABULARY, HIDDEN)
    out["model.norm.weight"] = (HIDDEN,)
    out["lm_head.weight"] = (VOCABULARY, HIDDEN)


def _filled(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    return {key: values(shape) for key, shape in shapes.items()}


SIZES: Mapping[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
    "rope_theta": 10000.0,
}
MLA_SIZES: Mapping[str, Any] = {
    **SIZES,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "head_dim": 16,
    # On a CPU the real class reads the scaling factor without asking whether there is one.
    "rope_scaling": {
        "type": "yarn", "rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 128,
        "rope_theta": 10000.0,
    },
}  # fmt: skip


def dense(kind: str, layers: int = 2) -> Case:
    """Return a dense target: ``llama``, ``qwen2`` or ``qwen3``."""
    shapes: dict[str, tuple[int, ...]] = {}
    _around(shapes)
    for number in range(layers):
        at = f"model.layers.{number}"
        _norms(shapes, at)
        _attention(shapes, f"{at}.self_attn", kind == "qwen2", kind == "qwen3")
        _mlp(shapes, f"{at}.mlp", 192)
    cls = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[
        kind
    ]
    config = {**SIZES, "architectures": [cls], "model_type": kind, "num_hidden_layers": layers}
    if kind == "qwen2":
        config.pop("head_dim")
    return Case(f"target-{kind}", config, _filled(shapes), cls)


def deepseek(cls: str = "DeepseekV3ForCausalLM", q_lora: bool = True, nextn: bool = False) -> Case:
    """Return a tiny DeepSeek: one dense layer, two with four experts, on request its NextN layer."""
    shapes: dict[str, tuple[int, ...]] = {}
    _around(shapes)
    layers = 3
    for number in range(layers + nextn):
        at = f"model.layers.{number}"
        _norms(shapes, at)
        _mla(shapes, f"{at}.self_attn", HIDDEN, q_lora)
        if number == 0:
            _mlp(shapes, f"{at}.mlp", 192)
        else:
            _experts(shapes, f"{at}.mlp", 4)
    if nextn:
        at = f"model.layers.{layers}"
        for name in ("enorm", "hnorm", "shared_head.norm"):
            shapes[f"{at}.{name}.weight"] = (HIDDEN,)
        shapes[f"{at}.eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
        shapes[f"{at}.shared_head.head.weight"] = (VOCABULARY, HIDDEN)
        shapes[f"{at}.embed_tokens.weight"] = (VOCABULARY, HIDDEN)
    config = {
        **MLA_SIZES,
        "architectures": [cls],
        "model_type": "deepseek_v2" if "V2" in cls else "deepseek_v3",
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 48 if q_lora else None,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
    }
    name = f"target-{cls}{'' if q_lora else '-no-q_lora'}{'-with-nextn' if nextn else ''}"
    return Case(name, config, _filled(shapes), cls)


def kimi_draft() -> Case:
    """Return an EAGLE-3 draft with latent attention, as trained for Kimi K2.5."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (VOCABULARY, HIDDEN),
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (DRAFT_VOCABULARY, HIDDEN),
        "layers.0.hidden_norm.weight": (HIDDEN,),
    }
    _norms(shapes, "layers.0")
    _mla(shapes, "layers.0.self_attn", 2 * HIDDEN)
    _mlp(shapes, "layers.0.mlp", 192)
    tensors = _filled(shapes)
    tensors["d2t"] = torch.arange(DRAFT_VOCABULARY)
    config = {
        **MLA_SIZES,
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": 1,
        "draft_vocab_size": DRAFT_VOCABULARY,
        "first_k_dense_replace": 1,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]},
    }
    return Case("kimi-draft", config, tensors, "Eagle3DeepseekV2ForCausalLM")


def targets() -> list[Case]:
    """Return targets and the Kimi draft, with altered copies."""
    torch.manual_seed(SEED + 1)
    llama, qwen2, qwen3, v3 = dense("llama"), dense("qwen2"), dense("qwen3"), deepseek()
    kimi, nextn = kimi_draft(), deepseek(nextn=True)
    as_draft = dataclasses.replace(
        nextn, name="draft-nextn", model_class="DeepseekV3ForCausalLMNextN"
    )
    attention = "model.layers.1.self_attn."
    return [
        llama,
        altered(llama, "llama-no-prefix", rename(r"^model\.", "")),
        altered(llama, "llama-third-layer", rename(r"layers\.1\.", "layers.2.")),
        altered(llama, "llama-no-v_proj", remove(f"{attention}v_proj.weight")),
        altered(llama, "llama-tied", remove("lm_head.weight"), tie_word_embeddings=True),
        altered(llama, "llama-tied-with-head", tie_word_embeddings=True),
        altered(llama, "llama-unknown", add(model__extra__weight=(4,), vision__weight=(4,))),
        altered(llama, "llama-long-vocabulary", resize("lm_head.weight", 320, HIDDEN)),
        altered(llama, "llama-odd-vocabulary", lambda t: (
            resize("lm_head.weight", 250, HIDDEN)(t),
            resize("model.embed_tokens.weight", 250, HIDDEN)(t),
        ), vocab_size=250),
        qwen2,
        altered(qwen2, "qwen2-no-bias", remove(f"{attention}q_proj.bias")),
        qwen3,
        altered(qwen3, "qwen3-no-q_norm", remove(f"{attention}q_norm.weight")),
        altered(qwen3, "qwen3-with-bias", add(model__layers__1__self_attn__q_proj__bias=(128,))),
        v3,
        altered(v3, "deepseek-no-expert", remove("model.layers.1.mlp.experts.2.up_proj.weight")),
        altered(v3, "deepseek-fifth-expert", add(
            model__layers__1__mlp__experts__4__up_proj__weight=(64, HIDDEN)
        )),
        altered(v3, "deepseek-no-q_a", remove(f"{attention}q_a_proj.weight")),
        altered(v3, "deepseek-no-kv_b", remove(f"{attention}kv_b_proj.weight")),
        deepseek(q_lora=False),
        deepseek("DeepseekV2ForCausalLM"),
        nextn,
        as_draft,
        altered(as_draft, "draft-nextn-no-eh_proj", remove("model.layers.3.eh_proj.weight")),
        kimi,
        altered(kimi, "kimi-draft-midlayer", rename(r"^layers\.0\.", "midlayer.")),
        altered(kimi, "kimi-draft-no-q_a", remove("layers.0.self_attn.q_a_proj.weight")),
        altered(kimi, "kimi-draft-no-kv_a", remove("layers.0.self_attn.kv_a_proj_with_mqa.weight")),
        altered(kimi, "kimi-draft-no-lm_head", remove("lm_head.weight")),
        altered(kimi, "kimi-draft-wrong-fc", resize("fc.weight", HIDDEN, 2 * HIDDEN)),
    ]  # fmt: skip
