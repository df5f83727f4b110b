"""Contracts of lm_head and the embedding: whose tensors the engine serves with."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.checkpoint.records import TensorInfo
from workbench.core.finding import Finding
from workbench.drafts.subject import Subject


def head_and_embedding(s: Subject) -> Iterator[Finding]:
    """Check where lm_head and the embedding come from."""
    head, embed = s.find("lm_head.weight"), s.find("embed_tokens.weight")
    size, vocab = s.draft_vocab, s.vocab
    tied = bool(s.get("tie_word_embeddings", False))
    if s.engine == "sglang":
        yield from _sglang_head(s, head, tied)
        yield from _sglang_embedding(s, embed)
    if s.engine == "vllm" and not head and size is not None and vocab is not None and size < vocab:
        yield Finding(
            code="lm_head_missing",
            severity="error",
            title="lm_head is not in the checkpoint, and the target's does not fit",
            detail=f"vLLM takes the target's head, whose rows are the {vocab} target ids, for a "
            f"draft of {size} ids.",
            evidence_for=(f"no lm_head.weight; draft_vocab_size {size} < vocab_size {vocab}",),
            confidence="likely",
            changes_output=True,
            next_step="Export the draft again with its lm_head.weight of "
            f"[{size}, {s.number('hidden_size')}].",
            place=s.place("vllm/v1/spec_decode/llm_base_proposer.py"),
        )


def _sglang_head(s: Subject, head: list[TensorInfo], tied: bool) -> Iterator[Finding]:
    size = s.draft_vocab
    if tied:
        if head:
            shape = list(head[0].shape)
            yield Finding(
                code="tied_lm_head",
                severity="error",
                title="tie_word_embeddings is true, so SGLang drops the draft's own lm_head",
                detail="It uses the embedding as head, but an EAGLE-3 draft is trained with its "
                "own head.",
                evidence_for=(f"{head[0].name} {shape} is in the checkpoint",),
                confidence="certain",
                changes_output=True,
                next_step='Set "tie_word_embeddings": false in config.json.',
                place=s.place(),
            )
        return
    if not head and size is not None:
        yield Finding(
            code="lm_head_missing",
            severity="error",
            title="lm_head is not in the checkpoint: SGLang serves with a random head",
            detail="SGLang takes the target's head only if draft_vocab_size is null. The server "
            "starts and looks healthy, but draft tokens are never accepted (accept length "
            "1.00, sglang#27829).",
            evidence_for=(f"no lm_head.weight; draft_vocab_size is {size}",),
            confidence="certain",
            changes_output=True,
            next_step="Copy lm_head.weight into the checkpoint"
            + (
                f" (from the target: draft_vocab_size equals vocab_size {size})."
                if size == s.vocab
                else f" from the training run, [{size}, {s.number('hidden_size')}]."
            ),
            place=s.place(),
        )
    if head and size is None and s.since("lm_head from target"):
        yield Finding(
            code="lm_head_replaced",
            severity="warning",
            title="the draft's lm_head is replaced by the target's",
            detail="If draft_vocab_size is null, SGLang replaces the draft's head with the "
            "target's after loading. That changes nothing if the draft's head is a copy of "
            "it; the checkpoint alone does not say.",
            evidence_for=(f"{head[0].name} {list(head[0].shape)}; draft_vocab_size is null",),
            confidence="unknown",
            changes_output=True,
            next_step=f'If the head was trained, set "draft_vocab_size": {head[0].shape[0]}.',
            place=s.place("sglang/srt/speculative/eagle_worker.py"),
        )


def _sglang_embedding(s: Subject, embed: list[TensorInfo]) -> Iterator[Finding]:
    width, hidden = s.number("target_hidden_size"), s.number("hidden_size")
    own = width is not None and hidden is not None and width != hidden
    if own and not embed:
        yield Finding(
            code="embedding_missing",
            severity="error",
            title="embed_tokens is not in the checkpoint, and the target's is not used",
            detail="SGLang shares the target's embedding only if target_hidden_size equals "
            "hidden_size: here it stays random.",
            evidence_for=(f"target_hidden_size {width}, hidden_size {hidden}",),
            changes_output=True,
            next_step="Export the draft again with its embed_tokens.weight.",
            place=s.place("sglang/srt/models/llama.py"),
        )
    if embed and not own and s.get("embed_requires_grad") is True:
        yield Finding(
            code="embedding_replaced",
            severity="error",
            title="the draft's trained embedding is replaced by the target's",
            detail="SGLang always shares the target's embedding with a draft of the same width.",
            evidence_for=(f"embed_requires_grad is true, {embed[0].name} is in the checkpoint",),
            confidence="likely",
            changes_output=True,
            next_step="Serve the draft with vLLM, which keeps an embedding that differs from the "
            "target's, or train with a frozen embedding.",
            place=s.place("sglang/srt/models/llama.py"),
        )
