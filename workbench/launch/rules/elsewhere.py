"""Rules of launches of vLLM and TensorRT-LLM: speculative configuration, heads, context.

A refusal of vLLM's checks is certain only in a release that was read and has its words (`facts.rows`, kind
``refusal``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from workbench.facts import rows
from workbench.launch.rules import models
from workbench.launch.rules.elsewhere_options import OPTIONS, parser
from workbench.launch.rules.records import Edit, Model, Ruled, fault, fine, unclear
from workbench.launch.rules.served_elsewhere import LOOKUP, NGRAM, ServedElsewhere
from workbench.launch.rules.table import Rule

SPECULATION = "speculative configuration"
DRAFT_SIZE = "ranks and length of the draft"
TARGETS = "auxiliary layers of the target"
HEADS = "attention heads by tensor parallel size"
CONTEXT = "context length"
QUANTISATION = "quantisation of the target"
FURTHER = "the target's class and the file of --extra_llm_api_options"
_EAGLE = ("eagle", "eagle3")
# Methods whose draft is a part of the target, or that need none.
_NO_MODEL = re.compile(r"mtp|.*_mtp|extract_hidden_states")
# Types of config that are drafts of their own kind, or are made one.
_OWN_DRAFT = re.compile(
    r"mtp|medusa|mlp_speculator|eagle|speculator|deepseek_v3|mimo|glm4_moe|ernie|qwen3_next|longcat|nextn"
)
# Methods of which none takes over a checkpoint of another.
_BASE = frozenset({"fp8", "gptq", "awq", "compressed-tensors", "bitsandbytes"})
_TARGETS = frozenset({"llama", "qwen2", "qwen3"})
"""Types of config whose classes have EAGLE-3's hooks in every release that was read."""


def configuration(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule the speculative configuration of vLLM: method, model, number of tokens."""
    config = s.speculation
    if config is None:
        yield unclear(SPECULATION, "it cannot be read")
    elif not config:
        yield fine(SPECULATION, "there is none")
    else:
        found = list(_configured(s, config))
        yield from found
        if not found:
            yield fine(SPECULATION, f"method {s.method or 'by the draft'}")


def _configured(s: ServedElsewhere, config: dict[str, Any]) -> Iterator[Ruled]:
    number, model = config.get("num_speculative_tokens"), config.get("model")
    unknown = [
        one for one in config if one not in rows.names("vllm", "speculative field", s.release)
    ]
    if unknown:
        yield unclear(
            SPECULATION, f"{s.who} has no field {unknown[0]} there; what it does then is not known"
        )
    if s.method and s.method not in (*rows.names("vllm", "method", s.release), "[ngram]"):
        yield unclear(SPECULATION, f"the method {s.method} is not one of {s.who} that is known")
        return
    alone = s.method in LOOKUP or _NO_MODEL.fullmatch(s.method)
    if model is None and number is not None and not alone:
        yield _checked(
            s,
            "model_missing",
            "there is a number of speculative tokens, and no draft model",
            'Add "model" with the draft to --speculative-config.',
        )
    if number is None:
        yield from _without_number(s)
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if (
        (s.method or model) in NGRAM
        and isinstance(low, int)
        and isinstance(high, int)
        and low > high
    ):
        yield _checked(
            s,
            "lookup_crossed",
            f"prompt_lookup_min {low} is above prompt_lookup_max {high}",
            f"Give a prompt_lookup_min of {high} or less.",
        )
    yield from _plain_draft(s, model)


def _without_number(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule a configuration without a number of tokens."""
    found = _number_elsewhere(s)
    if found is None:
        why = "there is no num_speculative_tokens, and whether the draft's config gives it is not known"
        yield unclear(SPECULATION, why)
    elif not found:
        yield _checked(
            s,
            "tokens_missing",
            "--speculative-config has no num_speculative_tokens",
            'Add "num_speculative_tokens": 3 to it.',
        )


def _number_elsewhere(s: ServedElsewhere) -> bool | None:
    """Whether vLLM takes the number of tokens from elsewhere; None where that is not known."""
    if s.method in NGRAM:
        return False
    if s.method == "suffix":  # the depth of its tree
        return True
    draft = s.draft
    if s.method not in _EAGLE or draft is None or not draft.readable:
        return None
    if draft.config.layout == "speculators":
        return None
    return draft.config.get("n_predict") is not None


def _plain_draft(s: ServedElsewhere, model: Any) -> Iterator[Ruled]:
    """Rule a draft that is an ordinary small model, which old releases do not take."""
    if s.draft is None or s.method not in ("", "draft_model") or not s.refuses("plain_draft"):
        return
    kind = str(s.draft.config.get("model_type") or "")
    named = str(model).lower()
    own = re.search("eagle-|eagle3", named) or _OWN_DRAFT.search(kind) or not kind
    if not own and s.draft.config.layout != "speculators":
        yield _checked(
            s,
            "plain_draft",
            f"{s.who} takes no ordinary model as the draft (draft model: {kind})",
            "Use an EAGLE-3 draft, or a release that takes one (0.14 or later).",
        )


def _checked(s: ServedElsewhere, name: str, title: str, step: str) -> Ruled:
    """Return a fault of vLLM's own checks; open where the release has no such refusal."""
    if not s.refuses(name):
        return unclear(SPECULATION, f"{title}: whether {s.who} refuses that is not known")
    return fault(SPECULATION, name, title, "checks", next_step=step, place=s.place(name))


def draft_size(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule the draft's own ranks and length."""
    config = s.speculation or {}
    tp, given = s.number("tp-size", 1), config.get("draft_tensor_parallel_size")
    longest = config.get("max_model_len")
    found = []
    if isinstance(given, int) and tp is not None and given not in (1, tp) and s.refuses("draft_tp"):
        found.append(
            fault(
                DRAFT_SIZE,
                "draft_tp",
                f"draft_tensor_parallel_size {given} is neither 1 nor the target's {tp}",
                "checks",
                next_step=f"Write 1 or {tp}, or leave it out.",
                place=s.place("draft_tp"),
            )
        )
    have = _positions(s.draft)
    if isinstance(longest, int) and have and longest > have and s.refuses("draft_longer"):
        found.append(
            fault(
                DRAFT_SIZE,
                "draft_longer",
                f"max_model_len {longest:,} of the draft is above its {have:,}",
                "checks",
                next_step=f'Write "max_model_len": {have}, or leave it out.',
                place=s.place("draft_longer"),
            )
        )
    yield from found or [fine(DRAFT_SIZE, "as the target" if config else "there is no draft")]


def _positions(model: Model | None) -> int | None:
    """Return the positions of a config whose rotary embedding is not stretched."""
    if model is None or not model.readable or model.config.get("rope_scaling"):
        return None
    parameters = model.config.get("rope_parameters")
    if isinstance(parameters, dict) and parameters.get("rope_type", "default") != "default":
        return None
    return model.number("max_position_embeddings")


def target(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule whether the target can feed an EAGLE-3 draft."""
    config = s.speculation or {}
    named = str(config.get("model") or "").lower()
    if s.method != "eagle3" and not (not s.method and "eagle3" in named):
        yield fine(TARGETS, "none are needed")
        return
    kind = str(s.target.config.get("model_type") or "") if s.target is not None else ""
    taken = rows.names("vllm", "eagle3 target", s.release)
    if not kind:
        yield unclear(TARGETS, "the target's config cannot be read")
    elif taken and not any(one in kind for one in taken) and kind in _TEXT:
        yield fault(
            TARGETS,
            "no_capture_hooks",
            f"{s.who} has EAGLE-3 only for {', '.join(taken)}, not for {kind}",
            "checks",
            next_step="Serve without speculation, or with a release that takes this target.",
            place=f"vllm/config/speculative.py ({s.release})",
        )
    elif kind in _TARGETS or (taken and any(one in kind for one in taken)):
        yield fine(TARGETS, f"{kind} has them")
    else:
        yield unclear(TARGETS, f"whether {kind} has them in {s.who} is not known")


# Types of config that are the text model itself: of others vLLM looks at a part.
_TEXT = frozenset(
    {
        "gemma3_text",
        "gemma2",
        "gemma",
        "mistral",
        "mixtral",
        "phi3",
        "deepseek_v2",
        "deepseek_v3",
        "olmo2",
    }
)


def heads(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule whether the heads of target and draft can be divided among the ranks."""
    tp = s.number("tp-size", 1)
    if tp is None or s.launch.state("tp-size") == "unknown":
        yield unclear(HEADS, "the number of ranks is not known")
        return
    vllm = s.launch.engine == "vllm"
    own = (s.speculation or {}).get("draft_tensor_parallel_size") if vllm else None
    parts = [("target", s.target, tp)]
    if s.draft is not None and (not vllm or s.method in (*_EAGLE, "draft_model")):
        parts.append(("draft", s.draft, own if isinstance(own, int) else tp))
    texts = []
    for role, model, by in parts:
        count = model.number("num_attention_heads") if model is not None else None
        if count is None:
            texts.append(f"the {role}'s config does not say how many")
        elif by >= 1 and count % by and (not vllm or s.refuses("heads")):
            fits = max(n for n in range(1, by) if count % n == 0)
            raw = next(
                (a.raw for a in s.launch.arguments if a.key == "tp-size"), "--tensor-parallel-size"
            )
            yield fault(
                HEADS,
                "heads_and_ranks",
                f"{count} heads of the {role} cannot be divided by {by} ranks",
                "checks" if vllm else "load",
                next_step=f"Write {raw} {fits}.",
                edits=(Edit(raw, str(fits)),) if role == "target" else (),
                place=s.place("heads"),
            )
            return
    if texts:
        yield unclear(HEADS, texts[0])
    else:
        yield fine(HEADS, f"by {tp}")


def context(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule a context that is longer than the target's."""
    text = s.read.values.get("max-model-len", "")
    have = _positions(s.target)
    if not text:
        yield (
            fine(CONTEXT, "the target's own") if text == "" else unclear(CONTEXT, "it is not known")
        )
    elif s.launch.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") not in ("0", ""):
        yield fine(CONTEXT, "VLLM_ALLOW_LONG_MAX_MODEL_LEN allows it")
    elif not text.isdigit() or have is None:
        yield unclear(CONTEXT, f"{text} against the target's positions is not known")
    elif int(text) <= have:
        yield fine(CONTEXT, f"{int(text):,} of {have:,} positions")
    elif (
        "rope-scaling" in s.read.values
        or "hf-overrides" in s.read.values
        or not s.refuses("context")
    ):
        yield unclear(CONTEXT, f"{int(text):,} is above the target's {have:,} positions")
    else:
        raw = s.read.raw["max-model-len"]
        yield fault(
            CONTEXT,
            "context_too_long",
            f"{raw} {int(text):,} is above the target's {have:,} positions",
            "checks",
            next_step=f"Write {raw} {have}.",
            edits=(Edit(raw, str(have)),),
            place=s.place("context"),
        )


def quantisation(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule a method that is not the checkpoint's."""
    asked = s.read.values.get("quantization", "")
    if asked in ("", "None"):
        yield fine(QUANTISATION, "the checkpoint's own")
        return
    if asked is None or s.target is None or not s.target.readable:
        yield unclear(QUANTISATION, "it is not known")
        return
    have = str(s.target.config.quantization.get("quant_method") or "")
    if have == asked:
        yield fine(QUANTISATION, asked)
    elif have in _BASE and asked in _BASE and s.refuses("quantisation"):
        raw = s.read.raw["quantization"]
        yield fault(
            QUANTISATION,
            "quantisation_differs",
            f"{raw} {asked} is asked for, and the checkpoint is {have}",
            "checks",
            next_step=f"Remove {raw}.",
            edits=(Edit(raw),),
            place=s.place("quantisation"),
        )
    else:
        yield unclear(
            QUANTISATION, f"{asked} is asked for, and the checkpoint is {have or 'not quantised'}"
        )


def further(_: ServedElsewhere) -> Iterator[Ruled]:
    """Name what is not looked at in a line of TensorRT-LLM."""
    yield unclear(
        FURTHER, "whether this release serves the target's class and its speculation is not on file"
    )


VLLM: tuple[Rule, ...] = (
    Rule(OPTIONS, parser, "parser"),  # type: ignore[arg-type]
    Rule(SPECULATION, configuration),  # type: ignore[arg-type]
    Rule(DRAFT_SIZE, draft_size, models=True),  # type: ignore[arg-type]
    Rule(HEADS, heads, "sum", models=True),  # type: ignore[arg-type]
    Rule(models.THERE, models.there, "model", models=True),
    Rule(TARGETS, target, "model", models=True),  # type: ignore[arg-type]
    Rule(CONTEXT, context, "model", models=True),  # type: ignore[arg-type]
    Rule(QUANTISATION, quantisation, "model", models=True),  # type: ignore[arg-type]
)
TENSORRT: tuple[Rule, ...] = (
    Rule(OPTIONS, parser, "parser"),  # type: ignore[arg-type]
    Rule(HEADS, heads, "sum", models=True),  # type: ignore[arg-type]
    Rule(FURTHER, further, "model"),  # type: ignore[arg-type]
)
