"""Rules of what speculative decoding excludes: pipeline stages, LoRA, paged trees, parallel attention."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.launch.rules.records import Edit, Ruled, Served, fault, fine, note, unclear

WITH_OTHERS = "what speculative decoding goes together with"
_TOPK = "speculative-eagle-topk"
_ARGS = "sglang/srt/server_args.py"


def with_others(s: Served) -> Iterator[Ruled]:
    """Rule what speculative decoding excludes: pipeline stages, LoRA, paged trees, parallel attention."""
    if not s.algorithm:
        yield fine(WITH_OTHERS, "no speculative decoding")
        return
    broken = [one for one in _excluded(s) if one is not None]
    yield from broken
    if not broken:
        yield fine(WITH_OTHERS, "nothing that excludes it")


def _excluded(s: Served) -> Iterator[Ruled | None]:
    name, get = s.algorithm, s.settings
    if _several(s, "pp-size"):
        yield _pipeline(s, name)
    if get.on("enable-dp-attention") and _several(s, "dp-size"):
        first = {"STANDALONE": "0.5.2", "NGRAM": "0.5.3"}.get(name)
        if first and s.within(first):
            yield _against(
                s,
                "dp_attention",
                f"{name} does not go with --enable-dp-attention",
                "--enable-dp-attention",
            )
        elif name == "DFLASH" and s.within("0.5.11", "0.5.19"):
            yield _against(
                s,
                "dp_attention",
                "DFLASH does not go with --enable-dp-attention",
                "--enable-dp-attention",
            )
        elif name == "DFLASH":
            yield unclear(WITH_OTHERS, "DFLASH goes with --enable-dp-attention on NPUs only")
    # From 0.5.19 on LoRA goes with all of these but STANDALONE.
    refused = name == "STANDALONE" or (name != "NGRAM" and s.within("", "0.5.18"))
    if refused and s.within("0.5.5.post3") and _lora(s):
        yield _against(s, "lora", f"LoRA does not go with {name}", get.raw("enable-lora"))
    backends = {
        get.text(key)
        for key in ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
    }
    if s.within("0.5.3") and get.text("attention-backend") == "flex_attention":
        yield _against(
            s,
            "flex_attention",
            "flex_attention does not go with speculative decoding",
            get.raw("attention-backend"),
        )
    if s.eagle:
        yield _paged(s, backends)
    if get.on("enable-mixed-chunk") and not s.within("0.4.7"):
        yield unclear(WITH_OTHERS, f"whether {s.who} drafts with mixed chunks is not known")
    elif get.on("enable-mixed-chunk") and (s.within("", "0.5.18") or name == "NGRAM"):
        yield note(
            WITH_OTHERS,
            "mixed_chunk_off",
            "--enable-mixed-chunk has no effect with a draft",
            detail="SGLang switches it off, with a warning.",
        )


def _several(s: Served, key: str) -> bool:
    size = s.settings.number(key)
    return size is not None and size > 1


def _lora(s: Served) -> bool:
    return s.settings.on("enable-lora") or s.settings.given("lora-paths")


def _against(s: Served, code: str, title: str, option: str) -> Ruled:
    return fault(
        WITH_OTHERS,
        f"excludes_{code}",
        title,
        "checks",
        next_step=f"Remove {option}, or the speculative options.",
        edits=(Edit(option),),
        place=f"{_ARGS} ({s.release})",
    )


def _pipeline(s: Served, name: str) -> Ruled | None:
    raw = s.settings.raw("pp-size")
    title = "pipeline stages do not go with speculative decoding"
    if not s.within("0.4.6.post2"):
        return unclear(WITH_OTHERS, f"{raw}: whether {s.who} drafts across stages is not known")
    if s.within("", "0.5.20"):
        return _against(s, "pipeline", title, raw)
    plain = s.settings.environment("SGLANG_ENABLE_PP_SPEC") is None
    prefill = s.settings.text("disaggregation-mode") == "prefill"
    if name not in ("EAGLE", "NEXTN", "DSPARK") or (plain and not prefill):
        return _against(s, "pipeline", f"{title}, but for EAGLE on a prefill server", raw)
    return unclear(WITH_OTHERS, f"{raw}: whether {s.who} drafts across stages is not known")


_YES = ("1", "true", "yes", "y")
_PAGED_BY = {"flashmla": 64, "cutlass_mla": 128, "trtllm_mla": 64, "trtllm_mha": 64}


def _paged(s: Served, backends: set[str | None]) -> Ruled | None:
    topk = s.settings.number(_TOPK)
    if topk is None or topk == 1:
        return None
    if "trtllm_mha" in backends and s.within("0.5.1"):
        return fault(
            WITH_OTHERS,
            "trtllm_mha_topk",
            f"trtllm_mha drafts with topk 1 only, not {topk}",
            "checks",
            next_step=f"Write --{_TOPK} 1, or choose another attention backend.",
            edits=(Edit(f"--{_TOPK}", "1"),),
            place=f"{_ARGS} ({s.release})",
        )
    latent = s.target is not None and s.target.config.get("kv_lora_rank") is not None
    if latent and "flashinfer" in backends:
        return fault(
            WITH_OTHERS,
            "flashinfer_mla_topk",
            f"flashinfer drafts with topk 1 only for latent attention, not {topk}",
            "load",
            evidence=("the target's config has kv_lora_rank",),
            next_step=f"Write --{_TOPK} 1, or choose another attention backend.",
            edits=(Edit(f"--{_TOPK}", "1"),),
            place=f"sglang/srt/layers/attention/flashinfer_mla_backend.py ({s.release})",
        )
    overlap = (s.settings.environment("SGLANG_ENABLE_SPEC_V2") or "").lower() in _YES
    if s.within("0.5.4.post1", "0.5.6.post2") and overlap:
        why = f"SGLANG_ENABLE_SPEC_V2 with topk {topk}: later releases refuse it"
        return unclear(WITH_OTHERS, why)
    if s.within("0.5.7", "0.5.10.post1") and overlap:
        return fault(
            WITH_OTHERS,
            "overlap_topk",
            f"SGLANG_ENABLE_SPEC_V2 drafts with topk 1 only, not {topk}",
            "checks",
            next_step=f"Write --{_TOPK} 1, or leave SGLANG_ENABLE_SPEC_V2 out.",
            edits=(Edit(f"--{_TOPK}", "1"),),
            place=f"{_ARGS} ({s.release})",
        )
    backend = s.settings.text("attention-backend")
    page = max(s.settings.number("page-size") or 1, _PAGED_BY.get(backend or "", 1))
    if page <= 1:
        return None
    if s.within("0.4.4.post4", "0.4.8.post1"):
        return note(WITH_OTHERS, "topk_adjusted", f"topk {topk} becomes 1: the page size is {page}")
    if not s.within("0.5.2"):
        return unclear(WITH_OTHERS, f"topk {topk} with pages of {page}: not known in {s.who}")
    good = (
        {"flashinfer"}
        | ({"fa3"} if s.within("0.5.6") else set())
        | ({"triton"} if s.within("0.5.13") else set())
    )
    if backend is None:
        return unclear(
            WITH_OTHERS,
            f"topk {topk} with pages of {page} needs {' or '.join(sorted(good))}, and the "
            "GPU decides which attention backend is taken",
        )
    if backend in good:
        return None
    return fault(
        WITH_OTHERS,
        "paged_tree",
        f"topk {topk} with pages of {page} does not go with {backend}",
        "checks",
        detail=f"{s.who} drafts such a tree with {', '.join(sorted(good))} only.",
        next_step=f"Write --page-size 1, --{_TOPK} 1, or --attention-backend {sorted(good)[-1]}.",
        edits=(Edit("--page-size", "1"),)
        if backend not in _PAGED_BY
        else (Edit(f"--{_TOPK}", "1"),),
        place=f"{_ARGS} ({s.release})",
    )
