"""More files in which something is wrong: casts, shards, copies, comparisons."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from . import material as m
from .case import case

GH = "https://github.com/"
bad = functools.partial(case, healthy=False, ok=(False,))
open_ = functools.partial(case, healthy=False, ok=(False, None))
UP = "model.layers.1.mlp.up_proj.weight"
UP_ONLY = r"layers\.1\.mlp\.up_proj"


@bad(
    "cast",
    "the bytes of one matrix are in the other order",
    GH + "ggml-org/llama.cpp/pull/3364",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def bytes_swapped(d: Path) -> None:
    made = m.llama()
    made[UP] = (
        made[UP].view(torch.uint8).view(-1, 2).flip(1).contiguous().view(m.BF).view(m.MLP, m.H)
    )
    m.write(d, made, m.CONFIG)


@open_(
    "cast",
    "one matrix of bfloat16 was read as if it were float16",
    GH + "xjdr-alt/entropix/pull/100",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def bfloat_read_as_half(d: Path) -> None:
    made = m.llama()
    made[UP] = made[UP].view(torch.float16).float().to(m.BF)
    m.write(d, made, m.CONFIG)


@open_(
    "cast",
    "the whole model was read so",
    GH + "xjdr-alt/entropix/pull/100",
    names=("proj|matri|tensor",),
    may=".",
)
def bfloat_read_as_half_everywhere(d: Path) -> None:
    made = {
        name: value.view(torch.float16) if value.ndim == 2 else value
        for name, value in m.llama().items()
    }
    m.write(d, made, m.CONFIG | {"torch_dtype": "float16"})


@open_(
    "cast",
    "one matrix of float16 was read as if it were bfloat16: values of 10^-15",
    GH + "facebookresearch/metaseq/pull/254",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def half_read_as_bfloat(d: Path) -> None:
    made = m.llama()
    made[UP] = made[UP].to(torch.float16).view(m.BF)
    m.write(d, made, m.CONFIG)


@bad(
    "cast",
    "one matrix was cut to whole numbers: nearly all zero",
    GH + "huggingface/transformers/issues/13193",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def cut_to_whole_numbers(d: Path) -> None:
    made = m.llama()
    made[UP] = made[UP].float().trunc().to(m.BF)
    m.write(d, made, m.CONFIG)


@open_(
    "shards",
    "rank 0's half was written twice: the lower rows repeat the upper ones",
    GH + "pytorch/torchtitan/pull/4787",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def half_written_twice(d: Path) -> None:
    made = m.llama()
    made[UP][m.MLP // 2 :] = made[UP][: m.MLP // 2]
    m.write(d, made, m.CONFIG)


@open_(
    "shards",
    "the second rank's half of one matrix is missing, and zero",
    GH + "huggingface/accelerate/pull/4206",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def half_missing(d: Path) -> None:
    made = m.llama()
    made[UP][m.MLP // 2 :] = 0
    m.write(d, made, m.CONFIG)


@open_(
    "shards",
    "the second rank's columns of one down_proj were left at the init",
    GH + "verl-project/verl/pull/4063",
    names=(r"layers\.1\.mlp\.down_proj",),
    may=r"layers\.1\.mlp\.down_proj",
)
def half_columns_random(d: Path) -> None:
    made, name = m.llama(), "model.layers.1.mlp.down_proj.weight"
    made[name][:, m.MLP // 2 :] = m.normal(
        m.H, m.MLP // 2, seed=3, std=float(made[name].float().std())
    ).to(m.BF)
    m.write(d, made, m.CONFIG)


@open_(
    "shards",
    "half of the head's vocabulary is zero: one rank of a vocabulary-parallel head",
    GH + "verl-project/verl/issues/7834",
    names=("lm_head",),
    may="lm_head",
)
def half_head_zero(d: Path) -> None:
    made = m.llama()
    made["lm_head.weight"][m.V // 2 :] = 0
    m.write(d, made, m.CONFIG)


@open_(
    "shards",
    "four heads of one q_proj are one head four times",
    GH + "ggml-org/llama.cpp/issues/3018",
    names=(r"layers\.1\.self_attn\.q_proj",),
    may=r"layers\.1\.self_attn\.q_proj",
)
def query_heads_repeated(d: Path) -> None:
    made, name = m.llama(), "model.layers.1.self_attn.q_proj.weight"
    made[name] = made[name][:64].repeat(4, 1)
    m.write(d, made, m.CONFIG)


@open_(
    "collapsed",
    "every row of one matrix is the same trained row",
    GH + "huggingface/transformers/issues/13193",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def rows_all_alike(d: Path) -> None:
    made = m.llama()
    made[UP] = made[UP][:1].repeat(m.MLP, 1)
    m.write(d, made, m.CONFIG)


@open_(
    "collapsed",
    "a branch that got no gradient decayed: one part in a thousand is left above 10^-6",
    GH + "xinghaochen/TinySAM/issues/6",
    names=(UP_ONLY,),
    may=UP_ONLY,
)
def branch_decayed(d: Path) -> None:
    made = m.llama()
    kept = torch.rand(m.MLP, m.H, generator=torch.Generator().manual_seed(1)) < 1e-3
    made[UP] = torch.where(kept, made[UP].float(), made[UP].float() * 1e-7).to(m.BF)
    m.write(d, made, m.CONFIG)


@open_(
    "collapsed",
    "one layer's linears are a hundred thousand times too small, its norms as they were",
    GH + "casper-hansen/AutoAWQ/pull/519",
    names=(r"layers\.(1|\{)",),
    may=r"layers\.1\.",
)
def layer_too_small(d: Path) -> None:
    made = m.llama()
    for name in made:
        if m.is_linear(name) and "layers.1." in name:
            made[name] = (made[name].float() * 1e-5).to(m.BF)
    m.write(d, made, m.CONFIG)


def _target(d: Path) -> None:
    m.write(
        d.with_name("other"),
        dict(m.target()),
        m.CONFIG | {"num_hidden_layers": 12, "vocab_size": 4096},
    )


@case(
    "target",
    "the draft's o_proj is the target's, plus noise of a thousandth: warm-started, never trained",
    GH + "verl-project/verl/issues/6947",
    names=("o_proj",),
    may="o_proj",
    call="target",
    healthy=False,
    ok=(False, None, True),
    changed="True was not allowed; among the known cases a copy of the target allows it where it is named",
)
def draft_of_target_and_noise(d: Path) -> None:
    made, value = m.draft(), m.linear("self_attn.o_proj", 11)
    made["midlayer.self_attn.o_proj.weight"] = (
        value + m.normal(m.H, m.H, seed=9, std=1e-3 * float(value.std()))
    ).float()
    m.write(d, made, m.draft_config())
    _target(d)


@case(
    "target",
    "the draft's head is rows of the target's head, in the draft's order: fine before training, to be named",
    GH + "SafeAILab/EAGLE/issues/305",
    healthy=False,
    ok=(False, None, True),
    names=("lm_head",),
    call="target",
)
def draft_head_of_target(d: Path) -> None:
    made = m.draft()
    ids = torch.arange(len(made["d2t"])) + made["d2t"]
    made["lm_head.weight"] = m.target()["lm_head.weight"][ids].clone()
    m.write(d, made, m.draft_config())
    _target(d)


def _pair(d: Path, after: dict[str, torch.Tensor]) -> None:
    m.write(d, m.llama(), m.CONFIG)
    m.write(d.with_name("other"), m.llama() | after, m.CONFIG)


@open_(
    "compare",
    "q and k were permuted for the other rotary order",
    GH + "huggingface/transformers/issues/31766",
    names=("q_proj", "order|permut|rearrang|same values"),
    call="compare",
)
def compare_rotary_order(d: Path) -> None:
    made = m.llama()
    after = {}
    for name, value in made.items():
        if "q_proj" in name or "k_proj" in name:
            after[name] = value.view(-1, 2, 32, m.H).transpose(1, 2).reshape(value.shape)
    _pair(d, after)


@open_(
    "compare",
    "gate and up of one layer changed places",
    GH + "pytorch/torchtitan/pull/4535",
    names=("gate_proj", "up_proj", "order|permut|swap|exchang|same values|another"),
    call="compare",
)
def compare_gate_up_swapped(d: Path) -> None:
    made = m.llama()
    names = [f"model.layers.1.mlp.{one}_proj.weight" for one in ("gate", "up")]
    _pair(d, dict(zip(names, (made[names[1]], made[names[0]]), strict=True)))


@open_(
    "compare",
    "two layers changed places",
    GH + "arcee-ai/mergekit/issues/53",
    names=(r"layers\.(\{|0|1)", "order|permut|swap|exchang|same values|another"),
    call="compare",
)
def compare_layers_swapped(d: Path) -> None:
    made = m.llama()
    after = {
        name.replace("layers.0.", "layers.1."): value
        for name, value in made.items()
        if "layers.0." in name
    }
    after |= {
        name.replace("layers.1.", "layers.0."): value
        for name, value in made.items()
        if "layers.1." in name
    }
    _pair(d, after)


@open_(
    "compare",
    "a square matrix was transposed",
    GH + "huggingface/transformers/pull/48519",
    names=("o_proj", "transpos|order|same values"),
    call="compare",
)
def compare_transposed(d: Path) -> None:
    name = "model.layers.1.self_attn.o_proj.weight"
    _pair(d, {name: m.llama()[name].T.contiguous()})


@open_(
    "compare",
    "a fused matrix was cut in the wrong places: reshaped, not transposed",
    GH + "meta-pytorch/gpt-fast/issues/190",
    names=("o_proj", "transpos|order|same values|rearrang"),
    call="compare",
)
def compare_reshaped(d: Path) -> None:
    name = "model.layers.1.self_attn.o_proj.weight"
    value = m.llama()[name]
    _pair(d, {name: value.reshape(64, 4, m.H).transpose(0, 1).reshape(m.H, m.H)})


@case(
    "compare",
    "merge_and_unload changed nothing: every tensor equals the base",
    GH + "huggingface/peft/issues/918",
    healthy=False,
    ok=(True, False, None),
    names=("identical|unchanged|no change|nothing changed|equal|did not change|same",),
    call="compare",
)
def compare_merge_without_effect(d: Path) -> None:
    _pair(d, {})


@open_(
    "compare",
    "training broke a layer: after it, one matrix is a fresh init",
    GH + "huggingface/transformers/issues/46620",
    names=(UP_ONLY,),
    call="compare",
    may=UP_ONLY,
)
def compare_drawn_again(d: Path) -> None:
    _pair(d, {UP: m.normal(m.MLP, m.H, seed=3).to(m.BF)})
