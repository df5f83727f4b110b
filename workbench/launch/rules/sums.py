"""Sums: what must divide what, how many GPUs a launch needs, how much of their memory it may take."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

from workbench.launch.rules.records import Edit, Model, Ruled, Served, fault, fine, note, unclear

GROUPS = "sizes of the parallel groups"
HEADS = "attention heads by tensor parallel size"
EXPERTS = "experts by expert parallel size"
BLOCKS = "FP8 blocks by tensor parallel size"
MEMORY = "share of memory"
WEIGHTS = "memory of the GPUs"
_SIZES = ("tp-size", "pp-size", "dp-size", "ep-size", "nnodes")


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """The parallel sizes that hold; `attention` is what the heads are divided by."""

    tp: int
    pp: int
    dp: int
    ep: int
    nodes: int
    attention: int

    @property
    def experts_by(self) -> int:
        """By what the width of an expert is divided."""
        return self.tp // self.ep if self.tp % self.ep == 0 else 1


def sizes_of(s: Served) -> Sizes:
    """Return the sizes of a launch."""
    get = s.settings
    # What is below 1 is another rule's.
    tp, pp, dp, ep, nodes = (max(get.number(key) or 1, 1) for key in _SIZES)
    # SGLang sets it so. Of all releases two let --ep-size hold next to --enable-ep-moe.
    apart = get.given("ep-size") and s.within("0.4.10", "0.4.10.post1")
    spread = (get.text("moe-a2a-backend") or "none") not in ("none", "ascend_tp")
    if spread or get.on("enable-deepep-moe") or (get.on("enable-ep-moe") and not apart):
        ep = tp
    split = dp if get.on("enable-dp-attention") else 1
    split *= max(get.number("attn-cp-size") or 1, 1)
    return Sizes(tp, pp, dp, ep, nodes, tp // split if tp % split == 0 else 0)


def groups(s: Served) -> Iterator[Ruled]:
    """Rule whether the sizes of the groups fit each other, and the GPUs that the launch makes visible."""
    size = sizes_of(s)
    broken = [*_below_one(s)] or [*_misfits(s, size)]
    yield from broken
    if not broken:
        yield fine(GROUPS, f"{size.tp * size.pp} ranks")


def _below_one(s: Served) -> Iterator[Ruled]:
    for key in _SIZES:
        value, raw = s.settings.number(key), s.settings.raw(key)
        if value is not None and value < 1:
            yield fault(
                GROUPS,
                "size_below_one",
                f"{raw} {value} is below 1",
                "checks",
                next_step=f"Write {raw} 1 or more.",
                edits=(Edit(raw),),
            )


def _misfits(s: Served, size: Sizes) -> Iterator[Ruled]:
    get, raw = s.settings, s.settings.raw
    if size.tp * size.pp % size.nodes:
        yield fault(
            GROUPS,
            "nodes_and_ranks",
            f"{size.tp * size.pp} ranks cannot be spread over {size.nodes} nodes",
            "checks",
            evidence=(f"{raw('tp-size')} {size.tp}, {raw('nnodes')} {size.nodes}",),
            next_step=f"Give a {raw('tp-size')} that is a multiple of {size.nodes}.",
        )
    if get.on("enable-dp-attention") and size.tp % size.dp and s.within("", "0.5.21"):
        yield fault(
            GROUPS,
            "dp_and_tp",
            f"{raw('tp-size')} {size.tp} is not a multiple of {raw('dp-size')} {size.dp}",
            "checks",
            detail="With --enable-dp-attention the tensor parallel ranks are split into groups of that many.",
            next_step=f"Give a {raw('dp-size')} that divides {size.tp}.",
            edits=(Edit(raw("dp-size"), str(math.gcd(size.tp, size.dp))),),
        )
    if size.tp % size.ep:
        yield fault(
            GROUPS,
            "ep_and_tp",
            f"{raw('ep-size')} {size.ep} does not divide {raw('tp-size')} {size.tp}",
            "load",
            next_step=f"Give a {raw('ep-size')} that divides {size.tp}.",
            edits=(Edit(raw("ep-size"), str(math.gcd(size.tp, size.ep))),),
        )
    yield from _too_few(s, size)


def _too_few(s: Served, size: Sizes) -> Iterator[Ruled]:
    """Rule the GPUs that CUDA_VISIBLE_DEVICES leaves."""
    visible = s.settings.environment("CUDA_VISIBLE_DEVICES")
    if visible is None or not re.fullmatch(r"\d+(?:,\d+)*", visible.strip()):
        return
    have = len(visible.split(","))
    replicas = 1 if s.settings.on("enable-dp-attention") else size.dp
    need = size.tp * size.pp * replicas // size.nodes
    step, base = s.settings.number("gpu-id-step") or 1, s.settings.number("base-gpu-id") or 0
    last = base + (need - 1) * step + 1
    if last <= have:
        return
    yield fault(
        GROUPS,
        "too_few_gpus",
        f"the launch needs {last} GPUs, and CUDA_VISIBLE_DEVICES shows {have}",
        "load",
        evidence=(f"CUDA_VISIBLE_DEVICES={visible}", f"{need} ranks on this node"),
        next_step=f"Make {last} GPUs visible, or give a smaller {s.settings.raw('tp-size')}.",
        detail="The ranks past the last GPU stop with `invalid device ordinal`.",
    )


def heads(s: Served) -> Iterator[Ruled]:
    """Rule whether the heads of target and draft can be divided among the ranks."""
    size = sizes_of(s)
    if size.tp == 1:
        yield fine(HEADS, "one rank has all heads")
        return
    if not size.attention:
        yield unclear(HEADS, "the ranks of one attention group are not a whole number")
        return
    models = [("target", s.target), ("draft", s.draft if s.speculates else None)]
    seen: list[str] = []
    for role, model in models:
        if model is None:
            continue
        if not model.readable:
            yield unclear(
                HEADS,
                f"the config of the {role} cannot be read: {model.problem or 'there is none'}",
            )
            continue
        one = _heads(s, role, model, size)
        if one.state != "ok":
            yield one
        seen.append(one.how)
    if seen:
        yield fine(HEADS, "; ".join(seen))
    else:
        yield unclear(HEADS, "configs were not read")


def _heads(s: Served, role: str, model: Model, size: Sizes) -> Ruled:
    count, kv = model.number("num_attention_heads", "n_head"), model.number("num_key_value_heads")
    raw, by = s.settings.raw("tp-size"), size.attention
    what = f"{raw} {size.tp}" if by == size.tp else f"{by} ranks of an attention group"
    if count is None:
        return unclear(HEADS, f"the {role}'s config has no num_attention_heads")
    if count % by:
        fits = max(n for n in range(1, size.tp + 1) if count % n == 0)
        edits = (Edit(raw, str(fits)),) if by == size.tp else ()
        return fault(
            HEADS,
            "heads_not_divided",
            f"{count} attention heads of the {role} are not divided by {by}",
            "load",
            evidence=(f"num_attention_heads {count}, {what}",),
            edits=edits,
            next_step=f"Write {raw} {fits}." if edits else f"Choose sizes that divide {count}.",
        )
    latent = model.config.get("kv_lora_rank")
    if kv and not latent and kv % by and by % kv:
        fits = max(
            n for n in range(1, size.tp + 1) if count % n == 0 and (kv % n == 0 or n % kv == 0)
        )
        edits = (Edit(raw, str(fits)),) if by == size.tp else ()
        return fault(
            HEADS,
            "kv_heads_not_divided",
            f"{kv} key-value heads of the {role} and {by} ranks do not divide each other",
            "load",
            evidence=(f"num_key_value_heads {kv}, {what}",),
            edits=edits,
            next_step=f"Write {raw} {fits}." if edits else f"Choose sizes that divide {kv}.",
        )
    inner = model.number("intermediate_size")
    dense = not _experts(model) or bool(model.number("first_k_dense_replace"))
    width = size.tp if role == "draft" or not s.settings.on("enable-dp-attention") else 1
    if dense and inner and inner % width:
        return fault(
            HEADS,
            "width_not_divided",
            f"the {role}'s width of {inner} is not divided by {raw} {size.tp}",
            "load",
            evidence=(f"intermediate_size {inner}",),
            next_step=f"Choose a {raw} that divides {inner}.",
        )
    return fine(HEADS, f"{count} heads of the {role} by {by}")


# Families whose experts are counted in num_local_experts, and are as wide as intermediate_size says.
_LOCAL = ("mixtral", "minimax", "phimoe", "granitemoe", "gpt_oss")


def _expert_width(model: Model) -> int | None:
    """Return how wide one expert is, None where the config does not say."""
    if model.config.model_type.startswith(_LOCAL):
        return model.number("intermediate_size")
    return model.number("moe_intermediate_size")


def _experts(model: Model) -> int | None:
    if model.config.model_type.startswith(_LOCAL):
        return model.number("num_local_experts")
    return model.number("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


def experts(s: Served) -> Iterator[Ruled]:
    """Rule whether the experts can be divided among the ranks."""
    model, size = s.target, sizes_of(s)
    if size.ep == 1 and size.tp == 1:
        yield fine(EXPERTS, "one rank has all experts")
        return
    if model is None or not model.readable:
        yield unclear(EXPERTS, "the target's config cannot be read")
        return
    count = _experts(model)
    raw = s.settings.raw("ep-size")
    if count is None:
        yield fine(EXPERTS, "the target has no experts")
        return
    spare = s.settings.number("ep-num-redundant-experts") or 0
    width = _expert_width(model)
    if count + spare < size.ep and not s.settings.given("ep-size"):
        yield unclear(EXPERTS, f"{count + spare} experts for {size.ep} ranks: is the config whole?")
    elif (count + spare) % size.ep:
        yield fault(
            EXPERTS,
            "experts_not_divided",
            f"{count + spare} experts are not divided by {raw} {size.ep}",
            "load",
            evidence=(f"{count} experts, {spare} redundant",),
            next_step=f"Give a {raw} that divides {count + spare}.",
            edits=(Edit(raw, str(math.gcd(count + spare, size.ep))),) if not spare else (),
        )
    elif width is not None and width % size.experts_by:
        yield fault(
            EXPERTS,
            "expert_width",
            f"the experts' width of {width} is not divided by {size.experts_by}",
            "load",
            evidence=(f"moe_intermediate_size {width}, {size.tp} ranks, {raw} {size.ep}",),
            next_step=f"Give sizes whose quotient divides {width}.",
        )
    else:
        yield fine(
            EXPERTS, f"{count + spare} experts by {size.ep}, their width by {size.experts_by}"
        )


def blocks(s: Served) -> Iterator[Ruled]:
    """Rule whether each rank's part of a block-quantised weight is a whole number of blocks."""
    model, size = s.target, sizes_of(s)
    if model is None or not model.readable:
        yield unclear(BLOCKS, "the target's config cannot be read")
        return
    block = model.config.quantization.get("weight_block_size")
    fp8 = model.config.quantization.get("quant_method") == "fp8"
    if (
        not fp8
        or not isinstance(block, list | tuple)
        or len(block) != 2
        or not all(isinstance(b, int) and b > 0 for b in block)
    ):
        yield fine(BLOCKS, "the target has no FP8 blocks")
        return
    experts = _experts(model)
    width, by = (
        (_expert_width(model), size.experts_by)
        if experts
        else (model.number("intermediate_size"), size.tp)
    )
    if width is None or width % by or (not experts and by == 1):
        yield fine(BLOCKS, "nothing is cut through blocks")
        return
    part = width // by
    if part % block[0] == 0 and (by == 1 or part % block[1] == 0):
        yield fine(BLOCKS, "each rank has whole blocks")
        return
    fits = _ep_for(width, size, block[0]) if experts else _tp_for(width, size, block[0])
    raw = s.settings.raw("ep-size" if experts else "tp-size")
    yield fault(
        BLOCKS,
        "blocks_not_whole",
        f"{'an expert' if experts else 'the MLP'} has {part} rows a rank: no whole number of blocks of "
        f"{block[0]}",
        "load",
        evidence=(f"{width} rows by {by} ranks; weight_block_size {list(block)}",),
        next_step=f"Use fewer tensor parallel ranks for the experts: {raw} {fits}."
        if experts
        else f"Write {raw} {fits}.",
        edits=(Edit(raw, str(fits)),),
    )


def _tp_for(width: int, size: Sizes, block: int) -> int:
    """Return the most ranks below those of the launch of which each has whole blocks."""
    return max(
        (n for n in range(1, size.tp) if size.tp % n == 0 and width % (n * block) == 0), default=1
    )


def _ep_for(width: int, size: Sizes, block: int) -> int:
    """Return the expert parallel size with which each rank has whole blocks."""
    fits = [
        n
        for n in range(1, size.tp + 1)
        if size.tp % n == 0 and width % ((size.tp // n) * block) == 0
    ]
    return min(fits, default=size.tp)


def memory(s: Served) -> Iterator[Ruled]:
    """Rule the share of the GPU's memory that is asked for."""
    share = s.settings.fraction("mem-fraction-static")
    raw = s.settings.raw("mem-fraction-static")
    if share is None:
        yield fine(MEMORY, "the engine chooses")
    elif share <= 0 or (share > 1 and s.settings.number("max-total-tokens") is None):
        right = share / 100 if 0 < share / 100 < 1 else 0.85
        yield fault(
            MEMORY,
            "share_out_of_range",
            f"{raw} {share:g} is no share: it must lie between 0 and 1",
            "memory",
            detail="It is the share of a GPU's memory for weights and cache.",
            next_step=f"Write {raw} {right:g}.",
            edits=(Edit(raw, f"{right:g}"),),
        )
    elif share >= 0.95:
        yield note(
            MEMORY,
            "share_high",
            f"{raw} {share:g} leaves little room for graphs, activations and the draft",
            next_step=f"If memory runs out, lower {raw} first.",
        )
    else:
        yield fine(MEMORY, f"{share:g}")


def weights(s: Served) -> Iterator[Ruled]:
    """State how much the weights take on each GPU; whether they fit is not known."""
    size = sizes_of(s)
    known = [
        (role, size_of)
        for role, model in (("target", s.target), ("draft", s.draft))
        if model is not None and (size_of := model.bytes)
    ]
    if not known:
        yield unclear(WEIGHTS, "the weights were not read, and the GPUs are not known")
        return
    total = sum(number for _, number in known)
    share = total / (size.tp * size.pp) / 1e6
    text = f"{share / 1000:,.1f} GB" if share >= 100 else f"{share:,.1f} MB"
    parts = " and ".join(role for role, _ in known)
    yield unclear(
        WEIGHTS,
        f"the weights of {parts} take about {text} a GPU; whether that fits is not known",
    )
