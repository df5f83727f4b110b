"""What a launch asks of its models: class and hooks of the release, context, quantisation, backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from workbench.facts import model_types, rows
from workbench.facts.capture_rules import capture_of
from workbench.launch.rules.records import Edit, Model, Ruled, Served, fault, fine, note, unclear

THERE = "the models are there"
CLASS = "model class of the target"
HOOKS = "auxiliary layers of the target"
CONTEXT = "context length"
QUANTISATION = "quantisation of the target"
_CONTEXT_KEYS = (
    "max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings",
)  # fmt: skip
_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
# What a quantisation that is asked for goes together with, where the config says another method.
_COMPATIBLE = {
    "modelopt_fp8": ("modelopt",), "modelopt_fp4": ("modelopt",), "modelopt_mixed": ("modelopt",),
    "petit_nvfp4": ("modelopt",), "nvfp4_online": ("fp8",), "awq_marlin": ("awq",),
    "w8a8_int8": ("compressed-tensors", "compressed_tensors"),
    "w8a8_fp8": ("compressed-tensors", "compressed_tensors"),
}  # fmt: skip
# Methods that may take over a checkpoint of another name, by what its config says; its scheme decides.
_TAKES: dict[str, frozenset[str]] = {
    "gptq_marlin": frozenset({"gptq"}),
    "marlin": frozenset({"gptq", "marlin"}),
    "moe_wna16": frozenset({"gptq", "awq"}),
    "auto-round": frozenset({"gptq", "awq"}),
    "gptq": frozenset({"auto-round"}),
    "awq": frozenset({"auto-round"}),
    "w4afp8": frozenset({"fp8", "mixed_precision"}),
    "mxfp4": frozenset({"quark"}),
    "quark": frozenset({"mxfp4"}),
}
_ANY = frozenset({"unquant", "modelslim", "nvfp4_online", "mxfp8"})


def there(s: Served) -> Iterator[Ruled]:
    """Rule whether each model that the launch names can be read here."""
    found = False
    for role, option, model in (
        ("target", "model-path", s.target), ("draft", "speculative-draft-model-path", s.draft),
    ):  # fmt: skip
        if model is None:
            continue
        found = True
        if model.absent:
            yield fault(
                THERE, "model_absent", f"the {role} {model.name} is not there", "checks",
                detail="It is a path with nothing at it here. The engine then asks the Hub, in vain.",
                evidence=(f"{s.settings.raw(option)} {model.name}",),
                next_step=f"Give the path of the {role}, or check it on the machine that serves.",
            )  # fmt: skip
        elif not model.readable:
            yield unclear(
                THERE, f"the {role} cannot be read here: {model.problem or 'it has no config.json'}"
            )
    if not found:
        yield unclear(THERE, "the launch names no model that is known")
    else:
        yield fine(THERE, "read")


def model_class(s: Served) -> Iterator[Ruled]:
    """Rule whether the release has a class for the target, and takes its type of config."""
    target = s.target
    if target is None or not target.readable:
        yield unclear(CLASS, "the target's config cannot be read")
        return
    named = target.config.architectures
    draft = next((name for name in named if _is_draft(name)), "")
    if draft:
        yield fault(
            CLASS,
            "draft_as_target",
            f"--model-path names a draft ({draft}), which cannot be served as the target",
            "load",
            evidence=(f"architectures {list(named)}",),
            next_step="Give the target's checkpoint as --model-path.",
        )
        return
    old = _too_old(s, target)
    if old is not None:
        yield old
        return
    if any(rows.row_in("sglang", "class", name, s.release) for name in named):
        yield fine(CLASS, f"{named[0]} is registered in {s.release}")
        return
    if not named:
        yield unclear(CLASS, "the target's config names no architectures")
        return
    found = rows.rows("sglang", "class", named[0])
    since = f"; SGLang {found[0].first_with} has it" if found else ""
    yield unclear(
        CLASS,
        f"{s.who} has no class {named[0]}{since}. It tries the implementation of transformers, "
        "and whether that serves is not known",
    )


def _is_draft(name: str) -> bool:
    return "eagle3" in name.lower() or name.endswith(("Eagle", "NextN", "DraftModel", "MTP"))


def _too_old(s: Served, target: Model) -> Ruled | None:
    """Rule a type of config that is newer than the transformers that the release pins."""
    kind = target.config.model_type
    first = model_types.FIRST_SEEN.get(kind)
    pin = rows.row_in("sglang", "pin", "transformers", s.release)
    own = rows.row_in("sglang", "model type", kind, s.release) is not None
    if not first or pin is None or own or target.config.raw.get("auto_map"):
        return None
    seen = sorted(set(model_types.FIRST_SEEN.values()), key=Version)
    if first == seen[0]:
        return None
    # The last release of transformers that was read and has no such type.
    without = max(v for v in map(Version, seen) if v < Version(first))
    if Version(str(pin.value)) > without:
        return None
    return fault(
        CLASS,
        "model_type_too_new",
        f"{s.who} does not know the model type {kind}",
        "checks",
        detail=f"It pins transformers {pin.value}. The type comes with transformers {first}, "
        "or shortly before.",
        evidence=(f"model_type {kind} in the target's config",),
        next_step="Use a later release of SGLang.",
    )


def hooks(s: Served) -> Iterator[Ruled]:
    """Rule whether the target's class can capture the layers that an EAGLE-3 draft needs."""
    if s.algorithm != "EAGLE3":
        yield fine(HOOKS, "no EAGLE-3 draft")
        return
    target = s.target
    if target is None or not target.readable:
        yield unclear(HOOKS, "the target's config cannot be read")
        return
    eagle = s.draft.config.get("eagle_config") if s.draft is not None else None
    if isinstance(eagle, dict) and eagle.get("use_aux_hidden_state") is False:
        yield fine(HOOKS, "the draft's config asks for none")
        return
    capture = capture_of(s.release, target.config.architectures, target.config.model_type)
    if capture.row is not None:
        yield fine(HOOKS, f"{capture.target} captures them ({capture.place})")
        return
    name = capture.target
    if rows.row_in("sglang", "class", name, s.release) is None:
        yield unclear(HOOKS, f"the class {name or 'of the target'} is not known in {s.release}")
        return
    later = rows.rows("sglang", "captures", name)
    since = next(
        (row.first_with for row in later if Version(row.first_with) > Version(s.release)), ""
    )
    yield fault(
        HOOKS,
        "no_capture_hooks",
        f"{name} has no set_eagle3_layers_to_capture in {s.who}",
        "load",
        detail="SGLang calls it to capture the auxiliary layers, and stops with an AttributeError."
        + (f" SGLang {since} has it." if since else " No release that is known has it."),
        evidence=(f"the target's class is {name}", "--speculative-algorithm EAGLE3"),
        next_step=f"Serve with SGLang {since} or later."
        if since
        else "This target cannot be served with EAGLE3.",
        place=f"sglang/srt/models ({s.release})",
    )


def context_of(model: Model) -> int | None:
    """Return the context length that SGLang derives from a config, None where it is not known."""
    factor: Any = 1
    rope = model.config.get("rope_scaling") or model.config.get("rope_parameters")
    if isinstance(rope, dict) and "original_max_position_embeddings" not in rope:
        factor = (
            1 if (rope.get("rope_type") or rope.get("type")) == "llama3" else rope.get("factor", 1)
        )
    for key in _CONTEXT_KEYS:
        value = model.config.get(key)
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and isinstance(factor, int | float)
        ):
            return int(factor * value)
    return None


def context(s: Served) -> Iterator[Ruled]:
    """Rule the context length against what the configs say."""
    target = s.target
    if target is None or not target.readable:
        yield unclear(CONTEXT, "the target's config cannot be read")
        return
    derived, asked = context_of(target), s.settings.number("context-length")
    raw = s.settings.raw("context-length")
    # Up to 0.4.10 a longer context is allowed unless the variable forbids it.
    default = "true" if s.within("", "0.4.10.post2") else ""
    yes = ("1", "true", "yes", "y") if s.within("0.5.3") else ("1", "true")
    allowed = (s.settings.environment(_LONGER) or default).lower() in yes
    if asked is not None and derived is not None and asked > derived:
        if not allowed:
            yield fault(
                CONTEXT,
                "context_too_long",
                f"{raw} {asked:,} is longer than the {derived:,} of the config",
                "checks",
                detail=f"SGLang stops, unless {_LONGER}=1 is set.",
                evidence=(f"the config allows {derived:,}",),
                next_step=f"Write {raw} {derived}, or set {_LONGER}=1.",
                edits=(Edit(raw, str(derived)),),
            )
            return
        yield note(
            CONTEXT,
            "context_overridden",
            f"{raw} {asked:,} overrides the {derived:,} of the config",
        )
    if asked is not None and asked < 1:
        yield fault(CONTEXT, "context_below_one", f"{raw} {asked} is below 1", "load", edits=(Edit(raw),),
                    next_step="Give the number of positions.")  # fmt: skip
        return
    served = asked or derived
    draft = context_of(s.draft) if s.speculates and s.draft is not None else None
    if draft and served and draft < served and not allowed:
        yield unclear(
            CONTEXT,
            f"the draft's config has {draft:,} positions, the target is served with {served:,}: SGLang "
            f"may ask for {_LONGER}=1, and acceptance may fall past position {draft:,}",
        )
        return
    yield fine(
        CONTEXT,
        f"{served:,} positions" if served else "the config gives none: the engine's default",
    )


def quantisation(s: Served) -> Iterator[Ruled]:
    """Rule the quantisation that is asked for against that of the checkpoint."""
    target = s.target
    asked = s.settings.text("quantization")
    if target is None or not target.readable:
        yield unclear(QUANTISATION, "the target's config cannot be read")
        return
    has = str(target.config.quantization.get("quant_method") or "").lower()
    raw = s.settings.raw("quantization")
    if target.config.quantization and not has:
        # SGLang takes the method that is asked for, or finds one by other fields, or refuses the config.
        yield unclear(QUANTISATION, "the target's quantization_config names no quant_method")
    elif asked is not None and asked == has and has in _HALF_ONLY and _bfloat16(s, target):
        yield _half_only(s, asked, target)
    elif asked is None or asked.lower() == has:
        yield fine(QUANTISATION, f"{has} of the checkpoint" if has else "none")
    elif not has:
        yield from _not_quantised(s, target, asked)
    elif has in _COMPATIBLE.get(asked, ()):
        yield fine(QUANTISATION, f"{asked} reads a checkpoint of {has}")
    elif asked in _ANY or has in _TAKES.get(asked, ()):
        yield unclear(
            QUANTISATION, f"the checkpoint is {has}; whether {asked} takes it depends on its scheme"
        )
    else:
        yield fault(
            QUANTISATION,
            "quantisation_differs",
            f"{raw} {asked}, and the checkpoint is quantised with {has}",
            "checks",
            detail="SGLang compares the two, and stops.",
            evidence=(f"quant_method {has} in the target's config",),
            next_step=f"Remove {raw}: SGLang reads the method from the config.",
            edits=(Edit(raw),),
        )


# Methods whose own kernels compute in float16; without --quantization SGLang takes the Marlin kernels.
# (Read in get_supported_act_dtypes of 0.5.8, 0.5.11, 0.5.14, 0.5.23; on an NPU awq takes bfloat16, too.)
_HALF_ONLY = ("awq", "gptq")


def _bfloat16(s: Served, target: Model) -> bool:
    """Whether the launch computes in bfloat16: because it says so, or by the target's config."""
    dtype = s.settings.text("dtype") or "auto"
    config = target.config.get("torch_dtype") or target.config.get("dtype")
    return dtype == "bfloat16" or (dtype == "auto" and config == "bfloat16")


def _half_only(s: Served, asked: str, target: Model) -> Ruled:
    raw, dtype = s.settings.raw("quantization"), s.settings.raw("dtype")
    title = f"{raw} {asked} computes in float16, and the launch in bfloat16"
    if s.settings.text("dtype") != "bfloat16" or s.settings.text("device") == "npu":
        return unclear(QUANTISATION, f"{title}, by the target's config")
    return fault(
        QUANTISATION,
        "quantisation_and_dtype",
        title,
        "load",
        detail=f"`bfloat16 is not supported for quantization method {asked}`, while the target is built.",
        next_step=f"Write {dtype} float16.",
        edits=(Edit(dtype, "float16"),),
        state="wrong" if s.within("0.5.8", "0.5.23") else "open",
    )


# What quantises a plain checkpoint while it is loaded; the others read files that are quantised already.
_ONLINE = frozenset({
    "fp8", "w8a8_fp8", "w8a8_int8", "bitsandbytes", "mxfp8", "mxfp4", "nvfp4_online", "unquant", "qoq",
    "quark_mxfp4", "quark_int4fp8_moe", "modelopt", "modelopt_fp8", "modelopt_fp4", "mlx_q4", "mlx_q8",
    "petit_nvfp4", "blockwise_int8", "w4afp8",
})  # fmt: skip


def _not_quantised(s: Served, target: Model, asked: str) -> Iterator[Ruled]:
    raw = s.settings.raw("quantization")
    if asked in ("fp8", "unquant"):
        yield fine(QUANTISATION, f"{asked} while it is loaded")
    elif asked in ("awq", "gptq", "gptq_marlin", "awq_marlin", "marlin", "compressed-tensors"):
        yield fault(
            QUANTISATION,
            "not_quantised",
            f"{raw} {asked}, and the checkpoint is not quantised",
            "load",
            detail=f"{asked} reads weights that are quantised already, and their settings from the config.",
            evidence=("the target's config has no quantization_config",),
            next_step=f"Remove {raw}, or give a checkpoint of {asked}.",
            edits=(Edit(raw),),
        )
    else:
        yield unclear(
            QUANTISATION, f"{asked} of a checkpoint that is not quantised depends on the GPU"
        )
