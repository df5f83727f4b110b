"""Contracts of config.json and the command line: which class is loaded, and how it is driven."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.checkpoint.config import Config
from workbench.core.finding import Experiment, Finding
from workbench.drafts.subject import Subject
from workbench.facts.flat_config import flattened

# Drafts of the first generation whose classes have no table of ids, in every release from 0.4.4 to 0.5.23.
_NO_TABLE = ("LlamaForCausalLMEagle", "Qwen2ForCausalLMEagle")


def launched_as(s: Subject) -> Iterator[Finding]:
    """Check the speculative algorithm of the launch against the draft."""
    launch = s.launch
    if s.engine != "sglang" or launch is None or launch.engine != "sglang":
        return
    chosen = launch.value("speculative-algorithm")
    if chosen is None:
        # What was not understood may be the algorithm: only a launch that was read whole names none.
        if launch.doubts or launch.state("speculative-algorithm") != "absent":
            return
        yield Finding(
            code="launched_without_speculation",
            severity="note",
            title="the launch names no speculative algorithm",
            detail="Without --speculative-algorithm the draft is not used.",
            evidence_for=(f"{len(launch.arguments)} arguments, none is --speculative-algorithm",),
            next_step="Add --speculative-algorithm EAGLE3.",
            place=s.place("sglang/srt/server_args.py"),
        )
    elif chosen.upper() in ("EAGLE", "NEXTN") and s.eagle3:
        yield _as_eagle(s, chosen)
    elif chosen.upper() == "EAGLE3" and not s.eagle3 and s.find("eh_proj.weight"):
        yield Finding(
            code="launched_as_eagle3",
            severity="warning",
            title="the draft is not an EAGLE-3 draft, but is launched as one",
            detail="It has the tensors of a NextN layer, which takes the target's last features.",
            evidence_for=(f"--speculative-algorithm {chosen}",),
            confidence="likely",
            next_step="Launch it with --speculative-algorithm NEXTN or EAGLE.",
            place=s.place("sglang/srt/speculative/spec_info.py"),
        )
    elif chosen.upper() == "EAGLE3" and s.outcome.model_class in _NO_TABLE:
        yield _as_eagle3(s, chosen)
    elif launch.state("speculative-draft-model-path") == "absent" and not launch.doubts:
        yield from _own_draft(s, chosen)


def _own_draft(s: Subject, chosen: str) -> Iterator[Finding]:
    """Check a launch that names no draft: the server's model is then loaded again as the draft."""
    if s.eagle3 or s.other_draft:
        return
    twin = {"DeepseekV3ForCausalLM"} & {s.outcome.model_class}
    layers = s.number("num_hidden_layers")
    if chosen.upper() in ("EAGLE", "NEXTN") and twin and layers is not None:
        if any(f"layers.{layers}." in name for name in s.table.names):
            return
        yield Finding(
            code="no_prediction_layer",
            severity="error",
            title=f"the launch drafts with layer {layers}, which this checkpoint does not have",
            detail="The same files are loaded again as the class of the multi-token prediction layer: not "
            "one key is for it, its parameters stay unwritten, and there is no error.",
            evidence_for=(f"--speculative-algorithm {chosen}", f"no tensor of layers.{layers}"),
            confidence="certain",
            changes_output=True,
            next_step="Serve the checkpoint that has the layer, or leave out --speculative-algorithm.",
            place=s.place("sglang/srt/models/deepseek_nextn.py"),
        )


def _as_eagle(s: Subject, chosen: str) -> Finding:
    return Finding(
        code="launched_as_eagle",
        severity="error",
        title=f"an EAGLE-3 draft is launched with --speculative-algorithm {chosen}",
        detail="Only under EAGLE3 does SGLang capture the auxiliary layers, use d2t and keep the "
        f"draft's own lm_head. Under {chosen} the features have the width of one layer, fc is "
        "skipped, and the target's lm_head takes the place of the draft's. The server starts and "
        "serves, and reports nothing; the acceptance length stays near 1.",
        evidence_for=(f"--speculative-algorithm {chosen}", _mark(s)),
        confidence="certain",
        changes_output=True,
        next_step="Launch with --speculative-algorithm EAGLE3, everything else unchanged.",
        experiment=Experiment(
            change=f"--speculative-algorithm EAGLE3 instead of {chosen}",
            if_right="the accept length rises above 1.00",
            if_wrong="it stays at 1.00: look for dropped keys or a missing lm_head, which have "
            "the same symptom",
            cost="one restart of the server",
            undo=f"--speculative-algorithm {chosen}",
        ),
        place=s.place("sglang/srt/model_executor/model_runner.py"),
    )


def _as_eagle3(s: Subject, chosen: str) -> Finding:
    return Finding(
        code="eagle_draft_as_eagle3",
        severity="error",
        title=f"a draft of the first EAGLE generation is launched with --speculative-algorithm {chosen}",
        detail="Under EAGLE3 the worker asks the draft for its table of ids, which its class does not have: "
        "SGLang stops with an AttributeError after the weights are loaded.",
        evidence_for=(
            f"--speculative-algorithm {chosen}",
            f"the draft's class is {s.outcome.model_class}",
        ),
        confidence="certain",
        changes_output=True,
        next_step="Launch with --speculative-algorithm EAGLE, or give an EAGLE-3 draft.",
        place=s.place("sglang/srt/speculative/eagle_worker.py"),
    )


def _mark(s: Subject) -> str:
    """Return what shows that the draft is EAGLE-3."""
    if "eagle3" in s.outcome.model_class.lower():
        return f"the draft's class is {s.outcome.model_class}"
    fc = s.find("fc.weight")
    return f"it has {fc[0].name} {list(fc[0].shape)}" if fc else "its config says eagle3"


def architecture(s: Subject) -> Iterator[Finding]:
    """Check that the class which config.json names is that of the tensors."""
    named = tuple(getattr(s.checkpoint.config, "architectures", ()) or ())
    if not s.eagle3_tensors or s.other_draft or s.nested or s.engine not in ("sglang", "vllm"):
        return
    if not named:
        yield Finding(
            code="no_architecture",
            severity="error",
            title="config.json names no architectures for this EAGLE-3 draft",
            detail="The engine picks its class by that field.",
            evidence_for=(_mark(s),),
            evidence_against=(f"it was treated as {s.outcome.model_class} here",)
            if s.outcome.model_class
            else (),
            confidence="likely",
            changes_output=True,
            next_step='Set "architectures": ["LlamaForCausalLMEagle3"] in config.json.',
            place=s.place("sglang/srt/configs/model_config.py" if s.engine == "sglang" else ""),
        )
    elif s.engine == "sglang" and not any("eagle3" in name.lower() for name in named):
        yield Finding(
            code="base_architecture",
            severity="error",
            title=f"config.json says {named[0]}, so this EAGLE-3 draft is loaded as a base model",
            detail="The base class has no fc, no hidden_norm and no d2t, and its attention takes "
            "half the input width (sglang PR#33966).",
            evidence_for=(f"architectures {list(named)}", *_eagle3_keys(s)),
            confidence="certain",
            changes_output=True,
            next_step='Set "architectures": ["LlamaForCausalLMEagle3"] in config.json.',
            place=s.place("sglang/srt/configs/model_config.py"),
        )


def _eagle3_keys(s: Subject) -> tuple[str, ...]:
    found = [*s.find("fc.weight")[:1], *s.find("hidden_norm.weight")[:1], *s.containing("d2t")[:1]]
    return tuple(f"{t.name} {list(t.shape)}" for t in found)


def config_form(s: Subject) -> Iterator[Finding]:
    """Check that the engine reads a config of this form at all."""
    if not s.nested:
        return
    reads = s.since("speculators") if s.engine in ("sglang", "vllm") else None
    if s.engine in ("transformers", "tensorrt-llm"):
        reads = False
    if reads is not False:
        return
    lost = _lost(s)
    if s.outcome.outcome == "refused":  # the diff says so already; what is left is what a fix loses
        if lost:
            yield _cannot_say(s, lost)
        return
    yield Finding(
        code="speculators_config",
        severity="error",
        title=f"{s.who} does not read speculators' nested config",
        detail="The layer's sizes are under transformer_layer_config, and there is no model_type "
        "at the top: the config is refused before any key is loaded."
        + (f" What flattening cannot carry over: {' '.join(lost)}" if lost else ""),
        evidence_for=(
            "config.json has transformer_layer_config",
            "it has no top-level model_type"
            if "model_type" not in s.raw
            else f"model_type {s.raw['model_type']}",
        ),
        confidence="certain" if s.engine == "sglang" else "likely",
        changes_output=True,
        next_step="workbench fix CHECKPOINT "
        + (f"sglang=={s.outcome.version}" if s.outcome.version else "sglang")
        + " -o FIXED: writes a flat config and lists what SGLang cannot express."
        if s.engine == "sglang"
        else "Serve it with vLLM, which reads this form.",
        place=s.place("sglang/srt/configs/model_config.py" if s.engine == "sglang" else ""),
    )


def _cannot_say(s: Subject, lost: list[str]) -> Finding:
    return Finding(
        code="speculators_config_loses",
        severity="note",
        title=f"a flat config for {s.who} cannot express everything that this one does",
        detail="workbench fix lists it again with what it writes. Where it changes the output, "
        "there is a separate finding.",
        evidence_for=tuple(lost),
        next_step="Serve the draft with vLLM, which reads the nested form, or check each line.",
    )


def _lost(s: Subject) -> list[str]:
    """Return the fields that flattening cannot carry over, as far as the config knows them."""
    config = s.checkpoint.config
    if not isinstance(config, Config) or s.engine != "sglang":
        return []
    return list(flattened(config, s.outcome.version).lost)
