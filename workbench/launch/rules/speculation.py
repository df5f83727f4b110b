"""Rules of speculative decoding: algorithm and draft, steps, topk and draft tokens, the tree that they make."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.launch.rules.parser import algorithms
from workbench.launch.rules.records import (
    DRAFTING,
    Edit,
    Model,
    Ruled,
    Served,
    fault,
    fine,
    note,
    unclear,
)

ALGORITHM = "algorithm and draft"
SHAPE = "steps, topk and draft tokens"
WITH_OTHERS = "what speculative decoding goes together with"
_PATH = "speculative-draft-model-path"
_STEPS, _TOPK = "speculative-num-steps", "speculative-eagle-topk"
_TOKENS = "speculative-num-draft-tokens"
_ARGS = "sglang/srt/server_args.py"

# The classes whose own files hold the draft (a NextN layer), and the first release that takes it from there.
# Read in the list of server_args.py (arg_groups/speculative_hook.py) of every release from 0.4.6.post3 on.
OWN_DRAFT = {
    "DeepseekV3ForCausalLM": "0.4.6.post3",
    "Glm4MoeForCausalLM": "0.4.9.post5",
    "DeepseekV32ForCausalLM": "0.5.3",
    "BailingMoeForCausalLM": "0.5.3",
    "BailingMoeV2ForCausalLM": "0.5.3",
    "MistralLarge3ForCausalLM": "0.5.6.post1",
    "PixtralForConditionalGeneration": "0.5.6.post1",
    "Glm4MoeLiteForCausalLM": "0.5.8",
    "GlmMoeDsaForCausalLM": "0.5.9",
    "BailingMoeV2_5ForCausalLM": "0.5.9",
    "HYV3ForCausalLM": "0.5.11",
    "DeepseekV4ForCausalLM": "0.5.12",
    "HYV4ForCausalLM": "0.5.20",
    "Qwen4ExpForConditionalGeneration": "0.5.20",
}


def takes_own_draft(s: Served, target: Model) -> bool:
    """Whether the release takes the target itself as the draft where none is named."""
    first = OWN_DRAFT.get(target.model_class)
    return first is not None and s.within(first)


def algorithm(s: Served) -> Iterator[Ruled]:
    """Rule whether a draft has an algorithm, and an algorithm the draft that it needs."""
    path = s.settings.text(_PATH)
    name = s.algorithm
    if not name:
        yield from _without(s, path)
        return
    known = [one.upper() for one in algorithms(s.release)]
    if name not in known:
        # The parser of older releases has refused it already; in newer ones a plugin may bring it.
        yield unclear(ALGORITHM, f"the algorithm {name} is not known in {s.who}")
    elif name not in DRAFTING:
        if path is not None:
            yield note(ALGORITHM, "draft_unused", f"{name} uses no draft model: the draft is not read")
        else:
            yield fine(ALGORITHM, f"{name} needs no draft model")
    elif path is not None:
        yield from _with_draft(s, path)
    else:
        yield from _no_draft(s, name)


def _without(s: Served, path: str | None) -> Iterator[Ruled]:
    if path is None:
        yield fine(ALGORITHM, "no speculative decoding, and no draft")
        return
    raw = s.settings.raw(_PATH)
    yield fault(
        ALGORITHM, "draft_without_algorithm",
        "a draft is named, and no algorithm: the draft is not used", "serving",
        detail="Without --speculative-algorithm the server starts without the draft, and reports nothing.",
        evidence=(f"{raw} {path}",), next_step="Add --speculative-algorithm, EAGLE3 for an EAGLE-3 draft.",
        edits=(Edit("--speculative-algorithm", _fitting(s)),) if _fitting(s) else (),
    )  # fmt: skip


def _fitting(s: Served) -> str:
    """Return the algorithm that the draft's config asks for, "" where it cannot be known."""
    named = s.draft.model_class.lower() if s.draft is not None else ""
    if "eagle3" in named:
        return "EAGLE3"
    return "EAGLE" if named.endswith(("eagle", "nextn")) else ""


def _with_draft(s: Served, path: str) -> Iterator[Ruled]:
    draft, target = s.draft, s.target
    same = draft is not None and target is not None and draft.name == target.name
    if same and target is not None and target.readable and not takes_own_draft(s, target):
        nextn = target.number("num_nextn_predict_layers", "mtp_num_hidden_layers")
        if s.algorithm != "STANDALONE" and not nextn and "eagle" not in target.model_class.lower():
            yield fault(
                ALGORITHM, "target_as_draft", "the target is named as its own draft", "load",
                detail=f"{target.model_class} has no layer that drafts.",
                evidence=(f"{s.settings.raw(_PATH)} {path}",),
                next_step="Name the draft's checkpoint.",
            )  # fmt: skip
            return
    yield fine(ALGORITHM, f"{s.algorithm} with a draft")


def _no_draft(s: Served, name: str) -> Iterator[Ruled]:
    target = s.target
    if target is None or not target.readable:
        yield unclear(
            ALGORITHM, "no draft is named, and the target cannot be read: it may hold the draft itself"
        )
        return
    step = f"Add --{_PATH} with the draft's checkpoint."
    if name in ("EAGLE", "NEXTN", "EAGLE3") and takes_own_draft(s, target):
        layers = target.number("num_nextn_predict_layers")
        if name != "EAGLE3" and layers != 0:
            yield fine(ALGORITHM, "no draft is named: the target's own NextN layer drafts")
            return
        why = "a NextN layer is no EAGLE-3 draft" if layers else "it has no NextN layer"
        title = f"no draft is named, so {name} takes the target as its own draft, and {why}"
        yield fault(
            ALGORITHM, "no_draft", title, "load", next_step=step,
            evidence=(f"--speculative-algorithm {name}", f"num_nextn_predict_layers {layers}"),
        )  # fmt: skip
        return
    moment = "checks" if name in ("DFLASH", "DSPARK") else "load"
    yield fault(
        ALGORITHM, "no_draft", f"--speculative-algorithm {name} without a draft", moment,
        detail="The parser takes the line. The server then loads the target once more as the draft, and stops."
        if moment == "load" else "",
        evidence=(f"--speculative-algorithm {name}, and no --{_PATH}",
                  f"the target's class is {target.model_class or 'not named'}"),
        next_step=step, place=f"{_ARGS} ({s.release})",
    )  # fmt: skip


def shape(s: Served) -> Iterator[Ruled]:
    """Rule the number of steps, topk and draft tokens: given together, and enough candidates for the tree."""
    if not s.eagle:
        yield fine(SHAPE, "no tree is drafted")
        return
    if s.settings.on("speculative-adaptive"):
        yield unclear(SHAPE, "--speculative-adaptive changes them while the server runs")
        return
    steps, topk, tokens = (s.settings.number(key) for key in (_STEPS, _TOPK, _TOKENS))
    if steps is None:
        yield from _no_steps(s, topk, tokens)
    elif topk is None:
        yield from _no_topk(s, steps, tokens)
    elif min(steps, topk) < 1 or (tokens is not None and tokens < 1):
        yield _not_positive(s, steps, topk, tokens)
    elif tokens is None and topk > 1:
        yield fault(
            SHAPE, "no_draft_tokens", f"topk {topk} without --{_TOKENS}", "load",
            detail="The size of the tree has no default once steps and topk are given.",
            next_step=f"Add --{_TOKENS} {min(_most(steps, topk), 2 * topk + steps)}.",
            edits=(Edit(f"--{_TOKENS}", str(min(_most(steps, topk), 2 * topk + steps))),),
        )  # fmt: skip
    elif topk == 1:
        yield from _chain(s, steps, tokens)
    else:
        yield from _tree(s, steps, topk, tokens or 0)


def _no_steps(s: Served, topk: int | None, tokens: int | None) -> Iterator[Ruled]:
    if topk is None and tokens is None:
        yield fine(SHAPE, "the release chooses all three")
        return
    given = ", ".join(
        f"--{key} {value}" for key, value in ((_TOPK, topk), (_TOKENS, tokens)) if value is not None
    )
    sure = s.within("0.4.4.post4")
    steps = (tokens - 1 if topk in (None, 1) and tokens and tokens > 1 else 3) or 3
    edits = [Edit(f"--{_STEPS}", str(steps))]
    edits += [] if topk is not None else [Edit(f"--{_TOPK}", "1")]
    edits += [] if tokens is not None else [Edit(f"--{_TOKENS}", str(steps + 1 if topk in (None, 1) else 2 * topk + steps))]
    yield fault(
        SHAPE, "no_steps", f"{given} without --{_STEPS}", "checks",
        detail="All three are given, or none: the check of the arguments is an assertion.",
        next_step=f"Add --{_STEPS}, or remove the others.", edits=tuple(edits),
        state="wrong" if sure else "open", place=f"{_ARGS} ({s.release})",
    )  # fmt: skip


def _no_topk(s: Served, steps: int, tokens: int | None) -> Iterator[Ruled]:
    sure = s.within("0.5.2")
    add = [Edit(f"--{_TOPK}", "1")]
    add += [Edit(f"--{_TOKENS}", str(steps + 1))] if tokens is None else []
    yield fault(
        SHAPE, "no_topk", f"--{_STEPS} {steps} without --{_TOPK}", "checks",
        detail="It has no default once the steps are given: SGLang compares None with 1 and stops "
        "with a TypeError." if sure else "It has no default once the steps are given.",
        next_step=f"Add --{_TOPK} 1 and --{_TOKENS} {steps + 1}.", edits=tuple(add),
        state="wrong" if sure else "open", place=f"{_ARGS} ({s.release})",
    )  # fmt: skip


def _not_positive(s: Served, steps: int, topk: int, tokens: int | None) -> Ruled:
    if steps == 0 and topk == 1:
        return unclear(SHAPE, "0 steps: what this release does with them is not known")
    return fault(
        SHAPE, "not_positive", "steps, topk and draft tokens must be at least 1", "load",
        evidence=(f"steps {steps}, topk {topk}, draft tokens {tokens}",),
        next_step=f"Give --{_STEPS} 3, --{_TOPK} 1, --{_TOKENS} 4.",
        edits=(Edit(f"--{_STEPS}", "3"), Edit(f"--{_TOPK}", "1"), Edit(f"--{_TOKENS}", "4")),
    )  # fmt: skip


def _chain(s: Served, steps: int, tokens: int | None) -> Iterator[Ruled]:
    if tokens is None or tokens == steps + 1:
        yield fine(SHAPE, f"{steps} steps, topk 1, {steps + 1} draft tokens")
    elif s.within("0.4.5.post3"):
        yield note(
            SHAPE, "tokens_adjusted", f"--{_TOKENS} {tokens} becomes {steps + 1}",
            detail="With topk 1 a round has one token for each step, and the one before: SGLang warns, "
            "and takes that number.",
            next_step=f"Write --{_TOKENS} {steps + 1}, or {tokens - 1} steps.",
        )  # fmt: skip
    else:
        yield unclear(SHAPE, f"{s.who} may not adjust {tokens} draft tokens to {steps} steps")


def _most(steps: int, topk: int) -> int:
    """Return the most draft tokens that a tree has: the root, topk candidates, then topk² a step."""
    return 1 + topk + (steps - 1) * topk * topk


def _tree(s: Served, steps: int, topk: int, tokens: int) -> Iterator[Ruled]:
    most = _most(steps, topk)
    if tokens > most:
        yield fault(
            SHAPE, "tree_too_small", f"a tree of {steps} steps and topk {topk} has {most} tokens, not {tokens}",
            "first request",
            detail="SGLang takes the best of the candidates, and there are too few: `selected index k out of "
            "range`, while the graph of the draft is captured or at the first request.",
            evidence=(f"1 + {topk} + {steps - 1} x {topk} x {topk} = {most}",),
            next_step=f"Write --{_TOKENS} {most} or less, or raise --{_STEPS} or --{_TOPK}.",
            edits=(Edit(f"--{_TOKENS}", str(most)),), place=f"sglang/srt/speculative ({s.release})",
        )  # fmt: skip
    elif tokens <= steps:
        yield note(
            SHAPE, "steps_unused", f"{tokens} draft tokens cannot reach the depth of {steps} steps",
            detail="The last steps are computed and thrown away.",
            next_step=f"Write --{_TOKENS} {steps + 1} or more, or fewer steps.",
        )  # fmt: skip
    else:
        yield fine(SHAPE, f"{tokens} of {most} possible draft tokens")


def with_others(s: Served) -> Iterator[Ruled]:
    """Rule what speculative decoding excludes: pipeline stages, LoRA, paged trees, parallel attention."""
    if not s.algorithm:
        yield fine(WITH_OTHERS, "no speculative decoding")
        return
    broken = [one for one in _excluded(s) if one is not None]
    yield from broken
    if not any(one.state != "ok" for one in broken):
        yield from () if broken else (fine(WITH_OTHERS, "nothing that excludes it"),)


def _excluded(s: Served) -> Iterator[Ruled | None]:
    name, get = s.algorithm, s.settings
    if (get.number("pp-size") or 1) > 1:
        yield _pipeline(s, name)
    if get.on("enable-dp-attention") and (get.number("dp-size") or 1) > 1:
        first = {"STANDALONE": "0.5.2", "NGRAM": "0.5.3"}.get(name)
        if first and s.within(first):
            yield _against(s, "dp_attention", f"{name} does not go with --enable-dp-attention", "--enable-dp-attention")
        elif name == "DFLASH" and s.within("0.5.11", "0.5.18"):
            yield _against(s, "dp_attention", "DFLASH does not go with --enable-dp-attention", "--enable-dp-attention")
    if s.within("0.5.5.post3", "0.5.18") and name != "NGRAM" and _lora(s):
        yield _against(s, "lora", f"LoRA goes with NGRAM only, not with {name}", get.raw("enable-lora"))
    backends = {get.text(key) for key in ("attention-backend", "prefill-attention-backend", "decode-attention-backend")}
    if "flex_attention" in backends and s.within("0.5.3") and get.text("attention-backend") == "flex_attention":
        yield _against(s, "flex_attention", "flex_attention does not go with speculative decoding", get.raw("attention-backend"))
    if s.eagle:
        yield _paged(s, backends)
    if get.on("enable-mixed-chunk"):
        off = "SGLang switches it off, with a warning" if s.within("0.4.9.post4") or s.eagle else "it is off"
        yield note(WITH_OTHERS, "mixed_chunk_off", "--enable-mixed-chunk has no effect with a draft", detail=f"{off}.")


def _lora(s: Served) -> bool:
    return s.settings.on("enable-lora") or s.settings.given("lora-paths")


def _against(s: Served, code: str, title: str, option: str) -> Ruled:
    return fault(
        WITH_OTHERS, f"excludes_{code}", title, "checks", next_step=f"Remove {option}, or the speculative options.",
        edits=(Edit(option),), place=f"{_ARGS} ({s.release})",
    )  # fmt: skip


def _pipeline(s: Served, name: str) -> Ruled | None:
    raw = s.settings.raw("pp-size")
    title = "pipeline stages do not go with speculative decoding"
    if s.within("0.4.6.post2", "0.5.20"):
        return _against(s, "pipeline", title, raw)
    if s.within("0.5.21"):
        plain = s.settings.environment("SGLANG_ENABLE_PP_SPEC") is None
        prefill = s.settings.text("disaggregation-mode") == "prefill"
        if name not in ("EAGLE", "NEXTN", "DSPARK") or (plain and not prefill):
            return _against(s, "pipeline", f"{title}, but for EAGLE on a prefill server", raw)
    return unclear(WITH_OTHERS, f"{raw}: whether {s.who} drafts across stages is not known")


_PAGED_BY = {"flashmla": 64, "cutlass_mla": 128, "trtllm_mla": 64, "trtllm_mha": 64}


def _paged(s: Served, backends: set[str | None]) -> Ruled | None:
    topk = s.settings.number(_TOPK)
    if topk is None or topk == 1:
        return None
    if "trtllm_mha" in backends and s.within("0.5.1"):
        return fault(
            WITH_OTHERS, "trtllm_mha_topk", f"trtllm_mha drafts with topk 1 only, not {topk}", "checks",
            next_step=f"Write --{_TOPK} 1, or choose another attention backend.",
            edits=(Edit(f"--{_TOPK}", "1"),), place=f"{_ARGS} ({s.release})",
        )  # fmt: skip
    overlap = s.settings.environment("SGLANG_ENABLE_SPEC_V2")
    if s.within("0.5.7", "0.5.10.post1") and (overlap or "").lower() in ("1", "true"):
        return fault(
            WITH_OTHERS, "overlap_topk", f"SGLANG_ENABLE_SPEC_V2 drafts with topk 1 only, not {topk}", "checks",
            next_step=f"Write --{_TOPK} 1, or leave SGLANG_ENABLE_SPEC_V2 out.",
            edits=(Edit(f"--{_TOPK}", "1"),), place=f"{_ARGS} ({s.release})",
        )  # fmt: skip
    backend = s.settings.text("attention-backend")
    page = max(s.settings.number("page-size") or 1, _PAGED_BY.get(backend or "", 1))
    if page <= 1:
        return None
    if s.within("0.4.5.post3", "0.4.8.post1"):
        return note(WITH_OTHERS, "topk_adjusted", f"topk {topk} becomes 1: the page size is {page}")
    if not s.within("0.5.2"):
        return unclear(WITH_OTHERS, f"topk {topk} with pages of {page}: not known in {s.who}")
    good = {"flashinfer"} | ({"fa3"} if s.within("0.5.6") else set()) | ({"triton"} if s.within("0.5.13") else set())
    if backend is None:
        return unclear(WITH_OTHERS, f"topk {topk} with pages of {page} needs {' or '.join(sorted(good))}, and the "
                       "GPU decides which attention backend is taken")  # fmt: skip
    if backend in good:
        return None
    return fault(
        WITH_OTHERS, "paged_tree", f"topk {topk} with pages of {page} does not go with {backend}", "checks",
        detail=f"{s.who} drafts such a tree with {', '.join(sorted(good))} only.",
        next_step=f"Write --page-size 1, --{_TOPK} 1, or --attention-backend {sorted(good)[-1]}.",
        edits=(Edit("--page-size", "1"),) if backend not in _PAGED_BY else (Edit(f"--{_TOPK}", "1"),),
        place=f"{_ARGS} ({s.release})",
    )  # fmt: skip
