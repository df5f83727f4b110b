"""Healthy checkpoints of many families: the shipped target's trained values under each family's names.

Every matrix is a trained matrix of `data/incident/target` in its full width, or rows of one, or several of
different layers on top of each other; norms are the target's own. Sizes are the target's (256 wide), with two
layers; names and config fields are those that each family writes. (Cut to 128 columns, a trained matrix loses
much of its spectrum, and the scan says of a few that it cannot tell: no fault of the file.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import torch

import workbench

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
BF = torch.bfloat16
H, INNER, V, HEADS, KV, HEAD = 256, 480, 512, 4, 2, 64
_LAYERS = 12


@cache
def _shipped() -> Tensors:
    with workbench.open_checkpoint(ROOT / "data/incident/target") as opened:
        return {name: opened.tensor(name) for name in opened.names}


class Pool:
    """Hands out trained values, other ones each time, so that no two tensors of a model are equal."""

    def __init__(self) -> None:
        self._next = count()

    def matrix(self, rows: int, columns: int) -> torch.Tensor:
        """Return a trained matrix of that shape."""
        if columns > INNER:
            halves = [self.matrix(rows, columns // 2) for _ in range(2)]
            return torch.cat(halves, 1)
        if rows > INNER:
            return torch.cat(
                [self.matrix(rows // 2, columns), self.matrix(rows - rows // 2, columns)]
            )
        number = next(self._next)
        layer = number % _LAYERS
        if columns > H:
            return (
                self._of(layer, "mlp.down_proj")[:rows, :columns].clone()
                if rows <= H
                else (
                    torch.cat(
                        [self.matrix(rows // 2, columns), self.matrix(rows - rows // 2, columns)]
                    )
                )
            )
        kinds = (
            ("mlp.gate_proj", "mlp.up_proj")
            if rows > H
            else ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj")
        )
        kind = kinds[number // _LAYERS % len(kinds)]
        return self._of(layer, kind)[:rows, :columns].clone()

    def norm(self, size: int = H) -> torch.Tensor:
        """Return a trained norm's scale."""
        number = next(self._next)
        kind = ("input_layernorm", "post_attention_layernorm")[number % 2]
        return self._of(number % _LAYERS, kind)[:size].clone()

    def bias(self, size: int) -> torch.Tensor:
        """Return something like a trained bias: small, with a few large values."""
        values = torch.randn(size, generator=torch.Generator().manual_seed(next(self._next)))
        return (values**3 * 0.02).to(BF)

    def embedding(self, rows: int = V, columns: int = H) -> torch.Tensor:
        """Return rows of the trained embedding, from another place each time."""
        start = 600 * next(self._next) % 3000
        return _shipped()["model.embed_tokens.weight"][start : start + rows, :columns].clone()

    def head(self, rows: int = V) -> torch.Tensor:
        """Return rows of the trained head."""
        return _shipped()["lm_head.weight"][:rows, :H].clone()

    def _of(self, layer: int, kind: str) -> torch.Tensor:
        return _shipped()[f"model.layers.{layer}.{kind}.weight"]


BASE: Config = {
    "hidden_size": H, "intermediate_size": INNER, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "num_key_value_heads": KV, "head_dim": HEAD, "vocab_size": V, "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 512, "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}  # fmt: skip


def _config(architecture: str, kind: str, **more: Any) -> Config:
    return {**BASE, "architectures": [architecture], "model_type": kind, **more}


def _attention(p: Pool, at: str, bias: bool = False, width: int = H) -> Tensors:
    out = {}
    for name, rows in (("q_proj", HEADS * HEAD), ("k_proj", KV * HEAD), ("v_proj", KV * HEAD)):
        out[f"{at}.{name}.weight"] = p.matrix(rows, width)
        if bias:
            out[f"{at}.{name}.bias"] = p.bias(rows)
    return out | {f"{at}.o_proj.weight": p.matrix(H, HEADS * HEAD)}


def _mlp(p: Pool, at: str, middle: int = INNER) -> Tensors:
    return {
        f"{at}.gate_proj.weight": p.matrix(middle, H),
        f"{at}.up_proj.weight": p.matrix(middle, H),
        f"{at}.down_proj.weight": p.matrix(H, middle),
    }


def llama(bias: bool = False, qk_norm: bool = False, tied: bool = False) -> Tensors:
    """Llama's names; with biases Qwen2's, with norms of queries and keys Qwen3's."""
    p = Pool()
    out: Tensors = {"model.embed_tokens.weight": p.embedding()}
    for layer in range(2):
        at = f"model.layers.{layer}"
        out |= _attention(p, f"{at}.self_attn", bias) | _mlp(p, f"{at}.mlp")
        if qk_norm:
            out |= {f"{at}.self_attn.{n}_norm.weight": p.norm(HEAD) for n in "qk"}
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{at}.{name}.weight"] = p.norm()
    out["model.norm.weight"] = p.norm()
    return out if tied else out | {"lm_head.weight": p.head()}


def gemma2() -> Tensors:
    """Gemma 2: four norms a layer, each stored less one; the head is the embedding."""
    out = llama(tied=True)
    p = Pool()
    for layer in range(2):
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            out[f"model.layers.{layer}.{name}.weight"] = p.norm()
    # Stored less one: of our norms, which lie around one, that is what remains.
    return {k: (v.float() - 1).to(BF) if "norm" in k else v for k, v in out.items()}


def mixtral(experts: int = 4) -> Tensors:
    """Mixtral: experts w1 to w3 and a router."""
    out = {k: v for k, v in llama().items() if ".mlp." not in k}
    p = Pool()
    for layer in range(2):
        at = f"model.layers.{layer}.block_sparse_moe"
        out[f"{at}.gate.weight"] = p.matrix(experts, H)
        for e in range(experts):
            out[f"{at}.experts.{e}.w1.weight"] = p.matrix(INNER, H)
            out[f"{at}.experts.{e}.w2.weight"] = p.matrix(H, INNER)
            out[f"{at}.experts.{e}.w3.weight"] = p.matrix(INNER, H)
    return out


def deepseek(experts: int = 4) -> Tensors:
    """DeepSeek-V3: latent attention, the first layer dense, the second of experts with a shared one."""
    p = Pool()
    out: Tensors = {"model.embed_tokens.weight": p.embedding(), "lm_head.weight": p.head(),
                    "model.norm.weight": p.norm()}  # fmt: skip
    for layer in range(2):
        at = f"model.layers.{layer}"
        out |= {
            f"{at}.self_attn.q_a_proj.weight": p.matrix(128, H),
            f"{at}.self_attn.q_a_layernorm.weight": p.norm(128),
            f"{at}.self_attn.q_b_proj.weight": p.matrix(HEADS * 48, 128),
            f"{at}.self_attn.kv_a_proj_with_mqa.weight": p.matrix(64 + 16, H),
            f"{at}.self_attn.kv_a_layernorm.weight": p.norm(64),
            f"{at}.self_attn.kv_b_proj.weight": p.matrix(HEADS * 64, 64),
            f"{at}.self_attn.o_proj.weight": p.matrix(H, HEADS * 32),
            f"{at}.input_layernorm.weight": p.norm(),
            f"{at}.post_attention_layernorm.weight": p.norm(),
        }
    out |= _mlp(p, "model.layers.0.mlp")
    at = "model.layers.1.mlp"
    out |= {f"{at}.gate.weight": p.matrix(experts, H),
            f"{at}.gate.e_score_correction_bias": torch.zeros(experts)}  # fmt: skip
    for e in range(experts):
        out |= _mlp(p, f"{at}.experts.{e}", 128)
    return out | _mlp(p, f"{at}.shared_experts", 128)


DEEPSEEK = _config(
    "DeepseekV3ForCausalLM", "deepseek_v3", q_lora_rank=128, kv_lora_rank=64, qk_nope_head_dim=32,
    qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=4, n_shared_experts=1, moe_intermediate_size=128,
    first_k_dense_replace=1, num_experts_per_tok=2, num_key_value_heads=8, num_nextn_predict_layers=0,
    n_group=1, topk_group=1,
)  # fmt: skip


def gpt2() -> Tensors:
    """GPT-2: matrices as [in, out], queries, keys and values in one, biases, a causal mask as a buffer."""
    p = Pool()
    out: Tensors = {"wte.weight": p.embedding(), "wpe.weight": p.embedding(128)}
    for layer in range(2):
        at = f"h.{layer}"
        sizes = {"attn.c_attn": (H, 3 * H), "attn.c_proj": (H, H), "mlp.c_fc": (H, INNER),
                 "mlp.c_proj": (INNER, H)}  # fmt: skip
        for name, (rows, columns) in sizes.items():
            out[f"{at}.{name}.weight"] = p.matrix(rows, columns)
            out[f"{at}.{name}.bias"] = p.bias(columns)
        out[f"{at}.attn.bias"] = torch.tril(torch.ones(128, 128)).view(1, 1, 128, 128)
        for name in ("ln_1", "ln_2"):
            out |= {f"{at}.{name}.weight": p.norm(), f"{at}.{name}.bias": p.bias(H)}
    return out | {"ln_f.weight": p.norm(), "ln_f.bias": p.bias(H)}


def neox() -> Tensors:
    """GPT-NeoX: one fused matrix a layer, norms with biases, `embed_in` and `embed_out`."""
    p = Pool()
    out: Tensors = {"gpt_neox.embed_in.weight": p.embedding(), "embed_out.weight": p.head()}
    for layer in range(2):
        at = f"gpt_neox.layers.{layer}"
        sizes = {"attention.query_key_value": (3 * H, H), "attention.dense": (H, H),
                 "mlp.dense_h_to_4h": (INNER, H), "mlp.dense_4h_to_h": (H, INNER)}  # fmt: skip
        for name, (rows, columns) in sizes.items():
            out[f"{at}.{name}.weight"] = p.matrix(rows, columns)
            out[f"{at}.{name}.bias"] = p.bias(rows)
        out[f"{at}.attention.rotary_emb.inv_freq"] = 10000 ** -(torch.arange(4) / 4.0)
        out[f"{at}.attention.masked_bias"] = torch.tensor(-1e9)
        for name in ("input_layernorm", "post_attention_layernorm"):
            out |= {f"{at}.{name}.weight": p.norm(), f"{at}.{name}.bias": p.bias(H)}
    at = "gpt_neox.final_layer_norm"
    return out | {f"{at}.weight": p.norm(), f"{at}.bias": p.bias(H)}


def bert(pooler: bool = False) -> Tensors:
    """BERT: post-norms named LayerNorm, position ids as a buffer."""
    p = Pool()
    at = "embeddings"
    out: Tensors = {
        f"{at}.word_embeddings.weight": p.embedding(),
        f"{at}.position_embeddings.weight": p.embedding(128),
        f"{at}.token_type_embeddings.weight": p.matrix(2, H),
        f"{at}.position_ids": torch.arange(128)[None],
        f"{at}.LayerNorm.weight": p.norm(),
        f"{at}.LayerNorm.bias": p.bias(H),
    }
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        sizes = {
            "attention.self.query": (H, H), "attention.self.key": (H, H), "attention.self.value": (H, H),
            "attention.output.dense": (H, H), "intermediate.dense": (INNER, H), "output.dense": (H, INNER),
        }  # fmt: skip
        for name, (rows, columns) in sizes.items():
            out[f"{at}.{name}.weight"] = p.matrix(rows, columns)
            out[f"{at}.{name}.bias"] = p.bias(rows)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            out |= {f"{at}.{name}.weight": p.norm(), f"{at}.{name}.bias": p.bias(H)}
    return out | (
        {"pooler.dense.weight": p.matrix(H, H), "pooler.dense.bias": p.bias(H)} if pooler else {}
    )


def t5() -> Tensors:
    """T5: an encoder and a decoder, tied under three names, narrow tables of relative positions."""
    p = Pool()
    shared = p.embedding()
    out: Tensors = {"shared.weight": shared, "encoder.embed_tokens.weight": shared.clone(),
                    "decoder.embed_tokens.weight": shared.clone(), "lm_head.weight": p.head()}  # fmt: skip
    for side, crossed in (("encoder", False), ("decoder", True)):
        for block in range(2):
            at = f"{side}.block.{block}.layer"
            kinds = ("SelfAttention", "EncDecAttention") if crossed else ("SelfAttention",)
            for number, kind in enumerate(kinds):
                for name in "qkvo":
                    out[f"{at}.{number}.{kind}.{name}.weight"] = p.matrix(H, H)
                out[f"{at}.{number}.layer_norm.weight"] = p.norm()
            if block == 0:
                out[f"{at}.0.SelfAttention.relative_attention_bias.weight"] = p.matrix(32, HEADS)
            last = len(kinds)
            out[f"{at}.{last}.DenseReluDense.wi.weight"] = p.matrix(INNER, H)
            out[f"{at}.{last}.DenseReluDense.wo.weight"] = p.matrix(H, INNER)
            out[f"{at}.{last}.layer_norm.weight"] = p.norm()
        out[f"{side}.final_layer_norm.weight"] = p.norm()
    return out


def mamba(trained_a: bool = True) -> Tensors:
    """Mamba: a convolution, a state matrix whose logarithm starts at log(1..16), D that starts at one."""
    p = Pool()
    out: Tensors = {"backbone.embeddings.weight": p.embedding(), "backbone.norm_f.weight": p.norm()}
    start = torch.log(torch.arange(1, 17).float()).repeat(H, 1)
    for layer in range(2):
        at = f"backbone.layers.{layer}.mixer"
        moved = torch.randn(H, 16, generator=torch.Generator().manual_seed(layer)) * 0.3
        out |= {
            f"{at}.A_log": start + moved if trained_a else start.clone(),
            f"{at}.D": torch.ones(H) + (p.bias(H).float() if trained_a else 0),
            f"{at}.conv1d.weight": p.matrix(H, 4)[:, None],
            f"{at}.conv1d.bias": p.bias(H),
            f"{at}.in_proj.weight": p.matrix(2 * H, H),
            f"{at}.x_proj.weight": p.matrix(48, H),
            f"{at}.dt_proj.weight": p.matrix(H, 16),
            f"{at}.dt_proj.bias": p.bias(H),
            f"{at}.out_proj.weight": p.matrix(H, H),
            f"backbone.layers.{layer}.norm.weight": p.norm(),
        }
    return out


def phi3() -> Tensors:
    """Phi-3: `qkv_proj` and `gate_up_proj` in one matrix each."""
    p = Pool()
    out: Tensors = {"model.embed_tokens.weight": p.embedding(), "lm_head.weight": p.head(),
                    "model.norm.weight": p.norm()}  # fmt: skip
    for layer in range(2):
        at = f"model.layers.{layer}"
        out |= {
            f"{at}.self_attn.qkv_proj.weight": p.matrix((HEADS + 2 * KV) * HEAD, H),
            f"{at}.self_attn.o_proj.weight": p.matrix(H, H),
            f"{at}.mlp.gate_up_proj.weight": p.matrix(2 * INNER, H),
            f"{at}.mlp.down_proj.weight": p.matrix(H, INNER),
            f"{at}.input_layernorm.weight": p.norm(),
            f"{at}.post_attention_layernorm.weight": p.norm(),
        }
    return out


def vit() -> Tensors:
    """A ViT: a patch convolution, a class token, a position table, biases of keys at zero."""
    p = Pool()
    out: Tensors = {
        "vit.embeddings.cls_token": p.norm().view(1, 1, H),
        "vit.embeddings.position_embeddings": p.embedding(50).view(1, 50, H),
        "vit.embeddings.patch_embeddings.projection.weight": p.matrix(H, 192).view(H, 3, 8, 8),
        "vit.embeddings.patch_embeddings.projection.bias": p.bias(H),
        "vit.layernorm.weight": p.norm(), "vit.layernorm.bias": p.bias(H),
        "classifier.weight": p.matrix(100, H), "classifier.bias": p.bias(100),
    }  # fmt: skip
    for layer in range(2):
        at = f"vit.encoder.layer.{layer}"
        for name, rows, columns in (
            ("attention.attention.query", H, H), ("attention.attention.key", H, H),
            ("attention.attention.value", H, H), ("attention.output.dense", H, H),
            ("intermediate.dense", INNER, H), ("output.dense", H, INNER),
        ):  # fmt: skip
            out[f"{at}.{name}.weight"] = p.matrix(rows, columns)
            out[f"{at}.{name}.bias"] = torch.zeros(rows) if "key" in name else p.bias(rows)
        for name in ("layernorm_before", "layernorm_after"):
            out |= {f"{at}.{name}.weight": p.norm(), f"{at}.{name}.bias": p.bias(H)}
    return out


def lora() -> Tensors:
    """An adapter of rank 64, both factors trained."""
    p = Pool()
    out: Tensors = {}
    for layer in range(2):
        for name in ("q_proj", "v_proj"):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            out[f"{at}.lora_A.weight"] = p.matrix(64, H).float()
            out[f"{at}.lora_B.weight"] = p.matrix(H, 64).float()
    return out


def eagle3(prefix: str = "midlayer") -> Tensors:
    """An EAGLE-3 draft of the shipped target's size, with its maps of the vocabulary."""
    p = Pool()
    ids = torch.arange(0, 2 * V, 2)
    mask = torch.zeros(2 * V, dtype=torch.bool)
    mask[ids] = True
    at = prefix
    return {
        "fc.weight": p.matrix(H, 3 * H), "norm.weight": p.norm(), "lm_head.weight": p.head(),
        **_attention(p, f"{at}.self_attn", width=2 * H), **_mlp(p, f"{at}.mlp"),
        **{f"{at}.{n}.weight": p.norm() for n in
           ("hidden_norm", "input_layernorm", "post_attention_layernorm")},
        "d2t": ids - torch.arange(V), "t2d": mask,
    }  # fmt: skip


HEALTHY: dict[str, tuple[Callable[[], Tensors], Config | None]] = {
    "llama": (llama, _config("LlamaForCausalLM", "llama")),
    "llama, tied": (lambda: llama(tied=True), _config("LlamaForCausalLM", "llama", tie_word_embeddings=True)),
    "llama, no config": (llama, None),
    "qwen2": (lambda: llama(bias=True), _config("Qwen2ForCausalLM", "qwen2")),
    "qwen3": (lambda: llama(qk_norm=True), _config("Qwen3ForCausalLM", "qwen3")),
    "gemma2": (gemma2, _config("Gemma2ForCausalLM", "gemma2", tie_word_embeddings=True)),
    "mixtral": (mixtral, _config("MixtralForCausalLM", "mixtral", num_local_experts=4)),
    "deepseek": (deepseek, DEEPSEEK),
    "gpt2": (gpt2, {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": H, "n_head": HEADS,
                    "n_layer": 2, "vocab_size": V}),
    "neox": (neox, _config("GPTNeoXForCausalLM", "gpt_neox")),
    "bert": (bert, _config("BertModel", "bert")),
    "bert, with its pooler": (lambda: bert(pooler=True), _config("BertModel", "bert")),
    "t5": (t5, {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": H,
                "num_layers": 2, "num_heads": HEADS, "vocab_size": V, "tie_word_embeddings": False}),
    "mamba": (mamba, {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": H,
                      "num_hidden_layers": 2, "vocab_size": V}),
    "phi3": (phi3, _config("Phi3ForCausalLM", "phi3")),
    "vit": (vit, {"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": H,
                  "num_hidden_layers": 2, "num_attention_heads": HEADS}),
    "lora": (lora, None),
    "eagle3": (eagle3, _config("LlamaForCausalLMEagle3", "llama", num_hidden_layers=1, vocab_size=2 * V,
                               draft_vocab_size=V)),
}  # fmt: skip
