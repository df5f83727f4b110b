"""Attention backends: which targets, caches and GPUs each takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from workbench.launch.rules.records import (
    Edit,
    Model,
    Moment,
    Ruled,
    Served,
    fault,
    fine,
    note,
    unclear,
)

BACKENDS = "attention backends"
_KEYS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
_DRAFT = "speculative-draft-attention-backend"
_LATENT = frozenset({"flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla"})
# Kernels whose Python does not say which GPUs they are built for.
_UNSAID = frozenset({"flashmla", "cutlass_mla", "fa4"})
# Backends of other makers.
_OTHERS = {
    "ascend": "an Ascend NPU", "intel_amx": "a CPU of Intel", "intel_xpu": "a GPU of Intel",
    "aiter": "a GPU of AMD", "wave": "a GPU of AMD",
}  # fmt: skip
_DEVICES = {"ascend": "npu", "intel_amx": "cpu", "intel_xpu": "xpu"}
_AMD = ("aiter", "wave")


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """The compute capabilities that a backend is refused without.

    Read in attention_registry.py, model_runner.py, server_args.py and arg_groups of every release from 0.4.4
    to 0.5.23.

    Attributes
    ----------
    majors
        First numbers of the compute capability.
    phase
        ``prefill`` or ``decode``; "" for both.
    plain
        Those that a target without latent attention may have besides.
    """

    backend: str
    first: str
    last: str
    majors: tuple[int, ...]
    phase: str = ""
    moment: Moment = "checks"
    plain: tuple[int, ...] = ()


NEEDS = (
    Needs("fa3", "0.4.4.post2", "0.4.6.post1", (9,), moment="load"),
    Needs("fa3", "0.4.6.post2", "0.5.23", (9,), moment="load", plain=(8,)),
    Needs("trtllm_mla", "0.4.10.post1", "0.5.4.post1", (10,)),
    Needs("trtllm_mla", "0.5.4.post2", "0.5.23", (10, 12)),
    Needs("trtllm_mha", "0.5.1", "0.5.9", (10,)),
    Needs("trtllm_mha", "0.5.10", "0.5.18", (10,), "prefill"),
    Needs("trtllm_mha", "0.5.10", "0.5.18", (9, 10, 12), "decode"),
    Needs("trtllm_mha", "0.5.19", "0.5.23", (9, 10, 12)),
    Needs("tokenspeed_mla", "0.5.12", "0.5.22", (10, 12)),
    Needs("cutedsl_mla", "0.5.13", "0.5.23", (10,)),
)
# What a backend takes as --kv-cache-dtype; read at the same places.
CACHES = (
    ("trtllm_mla", "0.5.1", "0.5.4.post2", ("fp8_e4m3", "auto")),
    ("trtllm_mla", "0.5.4.post3", "0.5.6.post2", ("fp8_e4m3", "fp4_e2m1", "auto")),
    ("trtllm_mla", "0.5.7", "0.5.20", ("fp8_e4m3", "fp4_e2m1", "bf16", "auto")),
    ("trtllm_mla", "0.5.21", "0.5.23", ("fp8_e4m3", "bf16", "auto")),
    ("tokenspeed_mla", "0.5.12", "0.5.22", ("fp8_e4m3",)),
    ("cutedsl_mla", "0.5.13", "0.5.23", ("fp8_e4m3", "bf16", "bfloat16", "auto")),
)
# Major numbers that a release may count among those above, or not: nothing is said of them.
_UNSURE = (11,)
# Sizes of heads with which SGLang itself chooses trtllm_mha (gpt-oss, Llama 4).
_MHA_HEADS = (64, 128)


def backends(s: Served) -> Iterator[Ruled]:
    """Rule the attention backends that the launch names: against the target, the cache and the GPU."""
    given = {key: value for key in (*_KEYS, _DRAFT) if (value := s.settings.text(key)) is not None}
    if not given:
        yield fine(BACKENDS, "the engine chooses")
        return
    target = s.target
    if target is None or not target.readable:
        yield unclear(BACKENDS, "the target's config cannot be read")
        return
    ruled = [one for key, value in given.items() for one in _one(s, key, value, target)]
    yield from ruled
    if not any(one.state != "ok" for one in ruled):
        on = f", on {s.gpu}" if s.gpu is not None else ""
        yield fine(BACKENDS, ", ".join(f"{key} {value}" for key, value in given.items()) + on)


def _one(s: Served, key: str, value: str, target: Model) -> Iterator[Ruled]:
    """Rule one option that names a backend; nothing is yielded where nothing is to be said."""
    latent = target.config.get("kv_lora_rank") is not None
    raw = s.settings.raw(key)
    if key == _DRAFT and value in (_LATENT | {"trtllm_mha"}):
        yield unclear(BACKENDS, f"whether {value} serves the draft is not known")
        return
    if value in _LATENT and not latent:
        yield _wrong(
            s, key, "backend_for_mla", f"{raw} {value} is for targets with latent attention", "load",
            detail="The target has no kv_lora_rank: its cache has another form.",
            evidence=f"class {target.model_class}",
        )  # fmt: skip
        return
    if value == "trtllm_mha" and latent and s.within("0.5.1"):
        yield _wrong(
            s, key, "backend_for_mha", f"{raw} {value} is for targets without latent attention", "load",
            detail="`trtllm_mha backend can only be used with non-MLA models`, after the weights are loaded.",
            evidence=f"kv_lora_rank {target.config.get('kv_lora_rank')}",
        )  # fmt: skip
        return
    yield from _cache(s, key, value)
    yield from _gpu(s, key, value, latent)
    if value in _LATENT and s.algorithm:
        yield unclear(BACKENDS, f"whether {s.who} drafts with {value} is not known")
    elif (value in _LATENT or value == "trtllm_mha") and not _known_sizes(value, target):
        yield unclear(BACKENDS, f"whether {value} takes heads of the target's sizes is not known")


def _known_sizes(value: str, target: Model) -> bool:
    if value != "trtllm_mha":
        return target.number("kv_lora_rank") == 512 and target.number("qk_rope_head_dim") == 64
    heads, width = target.number("num_attention_heads"), target.number("hidden_size")
    size = target.number("head_dim") or (width // heads if heads and width else None)
    return size in _MHA_HEADS


def _cache(s: Served, key: str, value: str) -> Iterator[Ruled]:
    """Rule --kv-cache-dtype against what the backend takes."""
    if key == "prefill-attention-backend" and value != "cutedsl_mla":
        return
    kind, raw = s.settings.text("kv-cache-dtype") or "auto", s.settings.raw("kv-cache-dtype")
    for name, first, last, takes in CACHES:
        if name == value and s.within(first, last) and kind not in takes:
            if kind == "auto":
                yield unclear(BACKENDS, f"{value} takes a cache of {' or '.join(takes)} only")
                return
            yield fault(
                BACKENDS, "backend_and_cache", f"{value} does not take {raw} {kind}", "checks",
                evidence=(f"{s.settings.raw(key)} {value}, {raw} {kind}",),
                next_step=f"Write {raw} {takes[0]}; {value} takes {', '.join(takes)}.",
                edits=(Edit(raw, takes[0]),),
            )  # fmt: skip


def _gpu(s: Served, key: str, value: str, latent: bool) -> Iterator[Ruled]:
    """Rule the backend against the GPU, as far as it is known."""
    gpu = s.gpu
    if value in _OTHERS:
        by_device = s.settings.text("device") == _DEVICES.get(value, "-")
        by_gpu = value in _AMD and gpu is not None and gpu.maker == "AMD"
        if not (by_device or by_gpu):
            yield unclear(BACKENDS, f"{value} needs {_OTHERS[value]}{_say(s)}")
        return
    rows = [one for one in NEEDS if one.backend == value and s.within(one.first, one.last)]
    rows = [one for one in rows if not one.phase or _holds(s, key, one.phase)]
    if value in _UNSAID or (not rows and value in (_LATENT | {"trtllm_mha"})):
        yield unclear(BACKENDS, f"{value} needs certain GPUs, and the release does not say which")
        return
    for row in rows:
        majors = tuple(sorted({*row.majors, *(() if latent else row.plain)}))
        yield from _against(s, key, row, majors)


def _holds(s: Served, key: str, phase: str) -> bool:
    """Whether an option says which backend a phase has: its own does, and the common one without it."""
    own = f"{phase}-attention-backend"
    return key == own or (key == "attention-backend" and s.settings.text(own) is None)


def _against(s: Served, key: str, row: Needs, majors: tuple[int, ...]) -> Iterator[Ruled]:
    raw, gpu = s.settings.raw(key), s.gpu
    needs = f"GPUs of compute capability {', '.join(f'{n}.x' for n in majors)}"
    what = f"{row.backend} needs {needs}" + (f" to {row.phase}" if row.phase else "")
    if gpu is None and row.backend == "fa3":  # what SGLang itself chooses on Hopper
        yield note(
            BACKENDS, "backend_and_gpu", f"{raw} {what}",
            detail="On other GPUs SGLang stops while the models are loaded. With --gpu this is checked.",
        )  # fmt: skip
    elif gpu is None:
        yield unclear(BACKENDS, f"{what}{_say(s)}")
    elif gpu.capability is not None and gpu.capability[0] in majors:
        return
    elif gpu.capability is not None and gpu.capability[0] in _UNSURE:
        yield unclear(BACKENDS, f"whether {row.backend} takes {gpu} is not known")
    else:
        yield _wrong(
            s, key, "backend_and_gpu", f"{what}: {gpu} is not one", row.moment, evidence=f"--gpu {gpu.name}"
        )  # fmt: skip


def _say(s: Served) -> str:
    return ": say which with --gpu" if s.gpu is None else f": {s.gpu} is none"


def _wrong(
    s: Served, key: str, code: str, title: str, moment: Moment, *, detail: str = "", evidence: str = ""
) -> Ruled:  # fmt: skip
    raw = s.settings.raw(key)
    return fault(
        BACKENDS, code, title, moment, detail=detail, evidence=(evidence,), edits=(Edit(raw),),
        next_step=f"Remove {raw}: SGLang chooses one.",
    )  # fmt: skip
