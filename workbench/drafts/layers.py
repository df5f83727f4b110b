"""Contracts of fc, the norms and the auxiliary layers: what the features of the target go through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.core.finding import Finding
from workbench.drafts.subject import NAMES, Subject
from workbench.facts.capture_rules import Capture, auxiliary_off, capture_of
from workbench.facts.features import border, newest

# The classes whose norm flags are those of llama_eagle3.py in either engine.
IDS = "eagle_aux_hidden_state_layer_ids"
_RUNNER = "sglang/srt/model_executor/model_runner.py"
_LLAMA = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Qwen3ForCausalLM")


def widths(s: Subject) -> Iterator[Finding]:
    """Check fc against the auxiliary layers, and the draft's sizes against the target's."""
    fc = next((t for t in s.find("fc.weight") if len(t.shape) == 2), None)
    width = s.target_hidden
    if s.get("target_hidden_size") is None and "target_hidden_size" in s.raw and not s.nested:
        yield from _null_width(s)
    if fc is not None and width:
        count, rule = _aux_count(s)
        have = fc.shape[1]
        if count is not None and have != count * width:
            layers = (
                f"{have // width} layers"
                if have % width == 0
                else "a number of layers that is not whole"
            )
            yield Finding(
                code="fc_width",
                severity="error",
                title=f"fc takes {layers}, {s.who} builds it for {count}",
                detail="fc joins the features of the auxiliary layers, one hidden_size each.",
                evidence_for=(
                    f"{fc.name} is {list(fc.shape)}; {count} x {width} = {count * width}",
                    rule,
                ),
                changes_output=True,
                next_step=f'Set "num_aux_hidden_states": {have // width} in config.json.'
                if have % width == 0 and s.since("num_aux")
                else "Use a draft of 3 auxiliary layers, or an engine that reads their number"
                if have % width == 0
                else "Check hidden_size and target_hidden_size against the target's config.",
                place=s.place(),
            )
    yield from target_sizes(s)


def _null_width(s: Subject) -> Iterator[Finding]:
    if s.outcome.model_class not in _LLAMA or s.outcome.outcome == "refused":
        return
    yield Finding(
        code="target_hidden_size_null",
        severity="error",
        title='"target_hidden_size": null stops the engine',
        detail="It checks only that the field exists, and multiplies it by the number of "
        "auxiliary layers: TypeError.",
        evidence_for=("target_hidden_size is null in config.json",),
        confidence="certain" if s.engine == "sglang" else "likely",
        changes_output=True,
        next_step="Remove target_hidden_size from config.json.",
        place=s.place(),
    )


def _aux_count(s: Subject) -> tuple[int | None, str]:
    """Return how many auxiliary layers the class builds fc for, and why; None where unknown."""
    if s.engine not in ("sglang", "vllm") or "eagle3" not in s.outcome.model_class.lower():
        return None, ""
    if s.outcome.model_class in ("Eagle3DeepseekV2ForCausalLM", "Eagle3Qwen3ForCausalLM"):
        listed = _top_level(s) or _listed(s)
        return s.number("num_aux_hidden_states") or len(listed) or 3, "from the config's layer list"
    reads = s.since("num_aux")
    if reads is None:
        return None, ""
    if not reads:
        return 3, f"{s.who} always takes 3"
    if s.number("num_aux_hidden_states"):
        return s.number("num_aux_hidden_states"), "num_aux_hidden_states of the config"
    listed = _listed(s)
    if listed:
        return len(listed), f"eagle_config lists {listed}"
    return 3, "the config gives no number: the default is 3"


def _listed(s: Subject) -> list[int]:
    return _whole_list(s.eagle_config.get(IDS))


def _top_level(s: Subject) -> list[int]:
    return _whole_list(s.get(IDS))


def _whole_list(ids: Any) -> list[int]:
    """Return a list of layer numbers, [] for anything else."""
    return list(ids) if isinstance(ids, list | tuple) and all(map(_is_layer, ids)) else []


def _is_layer(value: Any) -> bool:
    # No model has a million layers; numbers beyond 64 bits end in an OverflowError somewhere.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1_000_000


def _odd_ids(s: Subject) -> Iterator[Finding]:
    """Check that the ids are a list of layer numbers at all."""
    for holder, ids in (("eagle_config", s.eagle_config.get(IDS)), ("the config", s.get(IDS))):
        if not ids or _whole_list(ids):
            continue
        field = "eagle_config" if holder == "eagle_config" else "top-level aux ids"
        read = s.since(field) is not False
        yield Finding(
            code="aux_layers_unreadable",
            severity="error" if read else "warning",
            title=f"{IDS} is not a list of layer numbers",
            detail="The engine adds to them and compares them with the target's layers: it "
            "stops, or never captures a layer.",
            evidence_for=(f"{holder} has {ids!r:.80}",),
            changes_output=read,
            next_step="Write a list of whole numbers, as in the draft's training run.",
            place=s.place(_RUNNER if s.engine == "sglang" else ""),
        )


def _none_captured(s: Subject) -> Iterator[Finding]:
    """Check that the config does not switch the auxiliary layers off that fc joins."""
    if not auxiliary_off(s.eagle_config, s.engine, s.outcome.version):
        return
    fc = next((t for t in s.find("fc.weight") if len(t.shape) == 2), None)
    width = s.target_hidden
    if fc is None or not width or fc.shape[1] <= width:
        return
    yield Finding(
        code="aux_layers_off",
        severity="error",
        title=f"use_aux_hidden_state is false, and {s.who} captures no auxiliary layers",
        detail="The draft is given the target's last features alone, without fc: it was trained on "
        "others, and next to nothing is accepted.",
        evidence_for=(
            "eagle_config.use_aux_hidden_state is false in config.json",
            f"{fc.name} is {list(fc.shape)}: it joins {fc.shape[1] / width:g} layers",
        ),
        changes_output=True,
        next_step='Set "use_aux_hidden_state": true in eagle_config.',
        place=s.place(_RUNNER if s.engine == "sglang" else ""),
    )


def _count_against_fc(s: Subject, ids: list[int]) -> Iterator[Finding]:
    """Check that as many layers are captured as fc joins."""
    fc = next((t for t in s.find("fc.weight") if len(t.shape) == 2), None)
    width = s.target_hidden
    if fc is None or not width or not ids:
        return
    if s.engine == "sglang" and s.since("eagle_config") is False:
        return
    if auxiliary_off(s.eagle_config, s.engine, s.outcome.version) or fc.shape[1] % width:
        return
    have = fc.shape[1] // width
    if have != len(ids):
        yield Finding(
            code="aux_layer_count",
            severity="error",
            title=f"the config names {len(ids)} auxiliary layers, but fc joins {have}",
            detail="The target passes on one feature for each listed layer, and fc expects "
            "another number of them: a shape error at the first draft step.",
            evidence_for=(
                f"the config lists {ids}",
                f"{fc.name} is {list(fc.shape)}: {have} x {width}",
            ),
            changes_output=True,
            next_step=f"List the {have} layers of the draft's training run.",
            place=s.place(_RUNNER if s.engine == "sglang" else ""),
        )


def target_sizes(s: Subject) -> Iterator[Finding]:
    """Check the draft's width and vocabulary against the target's."""
    width, vocab = s.of_target("hidden_size"), s.of_target("vocab_size")
    if width and s.target_hidden and width != s.target_hidden:
        name = "target_hidden_size" if s.number("target_hidden_size") else "hidden_size"
        yield Finding(
            code="target_hidden_size",
            severity="error",
            title="the draft was made for a target of another width",
            evidence_for=(f"target hidden_size {width}, the draft's {name} {s.target_hidden}",),
            changes_output=True,
            next_step="Use the draft that was trained on this target.",
            place=s.place(),
        )
    if vocab and s.vocab and vocab != s.vocab:
        yield Finding(
            code="target_vocabulary",
            severity="warning",
            title="draft and target have different vocabulary sizes",
            detail="A padded vocabulary looks like this and is harmless; a different tokenizer "
            "is not.",
            evidence_for=(f"target vocab_size {vocab}, the draft's vocab_size {s.vocab}",),
            confidence="possible",
            changes_output=True,
            next_step="Compare the tokenizer that the draft was trained with and the target's.",
        )


def heads(s: Subject) -> Iterator[Finding]:
    """Check that the query heads can be shared out among the key heads."""
    queries, keys = s.number("num_attention_heads"), s.number("num_key_value_heads")
    latent = s.get("kv_lora_rank") is not None  # latent attention has no key heads
    if not queries or not keys or keys < 0 or queries % keys == 0 or latent:
        return
    yield Finding(
        code="heads_not_divisible",
        severity="error",
        title=f"{queries} query heads cannot be divided evenly among {keys} key heads",
        detail="Loaders check only shapes. Each key head serves the same number of query heads, "
        "and attention kernels compute that number by division.",
        evidence_for=(f"num_attention_heads is {queries}, num_key_value_heads is {keys}",),
        confidence="likely",
        changes_output=True,
        next_step="Compare both with the config of the training run.",
    )


def norms(s: Subject) -> Iterator[Finding]:
    """Check the norm flags against the tensors, and against what the engine reads."""
    if s.outcome.model_class not in _LLAMA:
        return
    yield from _gated(s, "norm_before_fc", "input_norm.weight", _flag(s, "norm_before_fc"))
    fc_norm = bool(s.get("fc_norm") or (s.engine == "sglang" and s.get("use_aux_norm")))
    yield from _gated(s, "fc_norm", "fc_norm.0.weight", fc_norm)
    yield from _unread_flag(s, "norm_output", "the features fed to the next draft step are not "
                            "normalised: the first position is not affected, acceptance at later "
                            "ones falls")  # fmt: skip
    yield from _unread_flag(s, "norm_before_residual", "its residual is the normed hidden state, "
                            "but this engine takes the raw one: the same keys, different "
                            "numbers")  # fmt: skip


def _flag(s: Subject, name: str) -> bool:
    # speculators' own default, which vLLM takes over too (configs/speculators/algos.py).
    usual = s.nested and name == "norm_before_residual"
    return bool(s.eagle_config.get(name, s.get(name, usual)))


def _reads(s: Subject, name: str) -> bool | None:
    """Tell whether the engine reads a flag from a config of this form."""
    known = s.since(name)
    if known and s.nested and s.engine == "vllm" and name != "norm_before_residual":
        return s.since(f"speculators {name}")
    return known


def _gated(s: Subject, flag: str, tensor: str, on: bool) -> Iterator[Finding]:
    """Check a norm that a flag switches on."""
    legacy = "aux_norm_low.weight" if s.engine == "sglang" and flag == "fc_norm" else ""
    have = s.find(tensor) or (s.find(legacy) if legacy else [])
    reads = _reads(s, flag)
    if reads is None:
        return
    if have and not (on and reads):
        yield Finding(
            code="norm_not_applied",
            severity="error",
            title=f"{s.who} does not apply the norm whose weight is {have[0].name}",
            detail="The draft was trained with its features normalised; without the norm they "
            "reach fc at another scale.",
            evidence_for=(
                f"{have[0].name} {list(have[0].shape)} is in the checkpoint",
                f"{flag} is {on} in the config"
                if reads
                else f"{flag} is not read by {s.who}"
                + (" from a speculators config" if s.since(flag) else ""),
            ),
            changes_output=True,
            next_step=f'Set "{flag}": true in config.json.'
            if reads
            else f"Use {_first_with(s, flag)}",
            place=s.place(),
        )
    elif on and reads and not have:
        yield Finding(
            code="norm_missing",
            severity="error",
            title=f"{flag} is on, but {tensor} is not in the checkpoint",
            detail="The engine applies the norm with weights of one.",
            evidence_for=(f"{flag} is true in the config", f"there is no tensor named {tensor}"),
            changes_output=True,
            next_step=f"Export the draft again, or set {flag} to false if it was trained without.",
            place=s.place(),
        )
    elif on and not reads:
        yield _not_read(s, flag, "its features are not normalised before fc")


def _unread_flag(s: Subject, flag: str, effect: str) -> Iterator[Finding]:
    if _flag(s, flag) and _reads(s, flag) is False:
        yield _not_read(s, flag, effect)


def _not_read(s: Subject, flag: str, effect: str) -> Finding:
    return Finding(
        code=f"{flag}_not_read",
        severity="error",
        title=f"{s.who} does not read {flag}",
        detail=f"The draft was trained with it, so {effect}.",
        evidence_for=(f"{flag} is true in the config",),
        changes_output=True,
        next_step=f"Use {_first_with(s, flag)}",
        place=s.place(),
    )


def _first_with(s: Subject, flag: str) -> str:
    name = f"speculators {flag}" if s.nested and s.engine == "vllm" else flag
    first = border(s.engine, name)[1] or border(s.engine, flag)[1]
    if first:
        return f"{NAMES[s.engine]} {first} or newer."
    other = "vLLM" if s.engine == "sglang" else "SGLang"
    return (
        f"{other}: {NAMES[s.engine]} up to {newest(s.engine)} does not have it; or train with "
        f"{flag} false."
    )


def qk_norm(s: Subject) -> Iterator[Finding]:
    """Check for q_norm/k_norm in a class that has none."""
    if any(".q_norm." in group.template for group in s.outcome.parameters):
        return  # what is lost may have another fault in its name
    found = [
        s.table[name]
        for part in ("q_norm", "k_norm")
        for group in s.outcome.keys
        if group.status == "dropped"
        and f".{group.tensors.template}".endswith(f".self_attn.{part}.weight")
        for name in group.names
    ]
    if not found:
        return
    stops = s.engine == "vllm"
    yield Finding(
        code="qk_norm_dropped",
        severity="error",
        title=f"{s.outcome.model_class} has no q_norm and k_norm, but the draft was trained with them",
        detail="A Qwen3-like layer in a Llama class: "
        + ("the loader stops at the tensors." if stops else "queries and keys are not normalised."),
        evidence_for=tuple(f"{t.name} {list(t.shape)}" for t in found[:2]),
        changes_output=True,
        next_step='Serve it with vLLM 0.24.0 or newer and "architectures": '
        '["Eagle3Qwen3ForCausalLM"] (a speculators config of model_type qwen3 gives that), or '
        "train with a Llama layer.",
        place=s.place(),
    )


def _vllm_ids(s: Subject, inner: list[int], top: list[int]) -> list[int]:
    """Return the ids that vLLM takes; its older releases read none in eagle_config, and take the default."""
    if top and s.since("top-level aux ids") is not False:
        return top
    return inner if s.since("eagle_config") else []


def auxiliary_layers(s: Subject) -> Iterator[Finding]:
    """Check which layers of the target feed the draft: one list means different things."""
    if s.engine not in ("sglang", "vllm"):
        return
    yield from _odd_ids(s)
    yield from _none_captured(s)
    layers = s.of_target("num_hidden_layers")
    inner, top = _listed(s), _top_level(s)
    if s.engine == "sglang" and not inner and top and not s.nested:
        yield _ids_unread(s, top, layers)
        return
    ids = inner if s.engine == "sglang" else _vllm_ids(s, inner, top)
    yield from _count_against_fc(s, ids)
    if not ids or layers is None:
        return
    taken = ids if s.engine == "vllm" else _sglang_inputs(s, ids, layers)
    if taken is None:
        return
    last = layers if s.engine == "vllm" or _capture(s).takes_last else layers - 1
    outside = [v for v, at in zip(ids, taken, strict=True) if not 0 <= at <= last]
    if outside:
        yield Finding(
            code="aux_layer_range",
            severity="error",
            title="the config names auxiliary layers that the target does not have",
            detail="They are never captured, so fc gets fewer features than it takes.",
            evidence_for=(
                f"ids {ids}: {s.who} captures the inputs of layers {taken}",
                f"the target has {layers} layers",
            ),
            changes_output=True,
            next_step="Take the ids from the draft's training run on this target.",
            place=s.place(),
        )
    elif s.engine == "sglang" and taken != ids and ids == _default(layers):
        yield Finding(
            code="aux_layer_shift",
            severity="warning",
            title="the auxiliary layers may be off by one",
            detail="SGLang takes id k as the output of layer k; speculators and vLLM take it as "
            "its input. The list is the usual default in the second sense, and a trainer may have "
            "meant either.",
            evidence_for=(
                f"eagle_config lists {ids}, SGLang captures the inputs of layers {taken}",
                f"the default for a target of {layers} layers is the inputs of {_default(layers)}",
            ),
            confidence="possible",
            changes_output=True,
            next_step="If the draft was trained by speculators or on vLLM's ids, write "
            f"{[v - 1 for v in ids]} into eagle_config.",
            place=_capture(s).place,
        )


def _default(layers: int) -> list[int]:
    return [2, layers // 2, layers - 3]


def _ids_unread(s: Subject, top: list[int], layers: int | None) -> Finding:
    same = layers is not None and top == _default(layers)
    known = layers is not None
    return Finding(
        code="aux_layers_not_read",
        severity="note" if same else "error" if known else "warning",
        title="SGLang does not read eagle_aux_hidden_state_layer_ids at the top level",
        detail="It reads only eagle_config, and otherwise takes the default, the inputs of layers "
        "[2, n/2, n-3] of the target"
        + (f": {_default(layers)}." if layers is not None else "; n is not known here."),
        evidence_for=(f"the config lists {top}",),
        evidence_against=("the default is the same list",) if same else (),
        confidence="certain" if known else "unknown",
        changes_output=not same,
        next_step="Nothing needs to change."
        if same
        else "Give the target, to compare with its number of layers."
        if not known
        else '"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
        + f"{[v - 1 for v in top]}}} if the ids are speculators' or vLLM's (SGLang adds 1 on "
        "Llama- and Qwen-like targets).",
        place=s.place("sglang/srt/model_executor/model_runner.py"),
    )


def _capture(s: Subject) -> Capture:
    """Return how SGLang captures layers of this target in the outcome's version."""
    if s.target_config is None:
        return capture_of(s.outcome.version)
    named = getattr(s.target_config, "architectures", ()) or ()
    kind = str(getattr(s.target_config, "model_type", "") or "")
    return capture_of(s.outcome.version, [str(name) for name in named], kind)


def _sglang_inputs(s: Subject, ids: list[int], layers: int) -> list[int] | None:
    """Return the layers whose inputs SGLang captures for listed ids; None where not known."""
    return _capture(s).layers(ids, layers) if s.since("eagle_config") else None
