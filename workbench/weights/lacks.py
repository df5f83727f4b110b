"""Findings of what is absent, empty, unread, out of scale or not what a norm or buffer holds: one a sort."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from workbench.core.finding import Finding
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.columns import ScannedTensor
from workbench.weights.doubts import Doubts
from workbench.weights.seen import LINES, At, Seen, lines, names_of, title_of


def lacks(seen: Seen) -> list[Finding]:
    """Return what a scan did not get to judge, or found in another state than a model can use."""
    if seen.changed:
        return [_changed(seen)]
    return [
        *_promised(seen),
        *_needed(seen),
        *_no_elements(seen),
        *_unread(seen),
        *_doubts(seen),
        *_parts(seen),
        *_notes(seen),
        *_tied(seen),
        *_next_tokens(seen),
    ]


def _changed(seen: Seen) -> Finding:
    return Finding(
        "weights.changed",
        "warning",
        f"{seen.changed} changed while it was read",
        detail="Its inode, size or time differs from before: a trainer or a download writes to it. What was "
        "read may be of two checkpoints, so nothing is concluded of it.",
        confidence="certain",
        next_step="Scan again when its writer is done.",
    )


def _promised(seen: Seen) -> list[Finding]:
    """Return an error where the adapter's own config says that there is more than the file has."""
    promised = seen.needed.promised if seen.needed is not None else ()
    if not promised:
        return []
    names = [name for name, _ in promised]
    says = promised[0][1].rpartition("and ")[2]
    return [
        Finding(
            "weights.incomplete_adapter",
            "error",
            f"The adapter is incomplete: {_title(names)} {'is' if len(names) == 1 else 'are'} absent, and "
            f"{says}",
            detail="A DoRA pair without its magnitude is another change of the weight than the one that was "
            "trained. Loaders may put the norms of the base weights in its place.",
            evidence_for=lines(names),
            confidence="certain",
            changes_output=True,
            next_step="Export the adapter again with its magnitudes. If it was trained without DoRA, "
            "correct adapter_config.json.",
        )
    ]


def _needed(seen: Seen) -> list[Finding]:
    found = []
    if seen.needed is None:
        return []
    for pairs, code, what in (
        (seen.needed.absent, "weights.absent", "absent from the file"),
        (seen.needed.mismatched, "weights.mismatched", "of another shape than the model needs"),
    ):
        if pairs:
            names = [name for name, _ in pairs]
            # A head or an embedding is named first: a layer's many parts would leave no line for it.
            shown = sorted(names, key=lambda name: _IN_LAYER.search(name) is not None)
            found.append(
                Finding(
                    code,
                    "warning",
                    f"{_title(names)} {'is' if len(pairs) == 1 else 'are'} {what}",
                    detail=f"{shorten(names[0], 90)}: {pairs[0][1]}. This follows from {seen.needed.source}.",
                    evidence_for=lines(shown),
                    confidence="likely",
                    changes_output=True,
                    next_step="Run `workbench diff`: it shows what an engine does without them. Then export "
                    "or download the checkpoint again.",
                )
            )
    return found


_IN_LAYER = re.compile(r"\.\d+(\.|$)")


def _title(names: Sequence[str]) -> str:
    texts = lines(names)
    if len(texts) == 1:
        return shorten(texts[0], 90) + (f" ({len(names):,} tensors)" if len(names) > 1 else "")
    return plural(len(names), "parameter")


def _no_elements(seen: Seen) -> list[Finding]:
    at = np.flatnonzero(seen.counts & (seen.tensors.column("count") == 0))
    if not len(at):
        return []
    return [
        Finding(
            "weights.no_elements",
            "warning",
            f"{title_of(seen, at)} {'is' if len(at) == 1 else 'are'} empty: no elements",
            detail="A trainer that shards parameters (DeepSpeed ZeRO-3, FSDP) saves such tensors if it does "
            "not gather them first.",
            evidence_for=lines(names_of(seen, at)),
            confidence="certain",
            changes_output=True,
            next_step="Export again with the parameters gathered (for ZeRO-3: "
            "stage3_gather_16bit_weights_on_model_save, or zero_to_fp32.py).",
        )
    ]


def _unread(seen: Seen) -> list[Finding]:
    at = np.flatnonzero(seen.counts & ~seen.is_read & (seen.tensors.column("count") > 0))
    if not len(at):
        return []
    rows = seen.rows(at[:LINES])
    return [
        Finding(
            "weights.unread",
            "warning",
            f"{title_of(seen, at)} could not be read: {_why(rows[0].reason)}",
            detail="Nothing is concluded of what was not read.",
            evidence_for=lines(names_of(seen, at)),
            confidence="unknown",
            next_step="Check the disk and the file, or convert the weight with the tool that quantised it; "
            "then scan again.",
        )
    ]


def _why(reason: str) -> str:
    return shorten(reason.removeprefix("Its values cannot be read: "), 160)


_SORTS = (
    ("norm", "weights.norms", "not what a norm's scale holds",
     "Check whether the trainer's initialiser or an engine's dummy load wrote them; export again."),
    ("magnitude", "weights.magnitude", "of a magnitude that is not that of the model",
     "Check the scale of this tensor: the export of a quantised model, a merge, or a cast to 16 bits."),
    ("buffer", "weights.buffers", "not what the model reads there",
     "Export again. Engines that compute these buffers themselves are not affected."),
)  # fmt: skip


def _doubts(seen: Seen) -> list[Finding]:
    found = []
    by_sort = {
        "norm": seen.norm_doubts,
        "magnitude": seen.magnitude_doubts,
        "buffer": seen.buffer_doubts,
    }
    for sort, code, what, step in _SORTS:
        doubts = by_sort[sort]
        for state in ("wrong", "open"):
            at = np.array([i for i in sorted(doubts) if doubts[i].state == state], dtype=np.int64)
            if len(at):
                found.append(_doubted(seen, at, doubts, code, what, step))
    return found


def _doubted(seen: Seen, at: At, doubts: Doubts, code: str, what: str, step: str) -> Finding:
    first = doubts[int(at[0])]
    wrong = first.state == "wrong"
    verb = ("is" if len(at) == 1 else "are") if wrong else "may be"
    return Finding(
        code,
        "error" if wrong else "warning",
        f"{title_of(seen, at)} {verb} {what}: {first.how}",
        detail="" if wrong else "Which of the possible causes it is, the values alone do not say.",
        evidence_for=tuple(
            f"{shorten(seen.tensors.names[int(i)], 90)}: {doubts[int(i)].how}" for i in at[:LINES]
        ),
        confidence="likely" if wrong else "possible",
        changes_output=True,
        next_step=step,
    )


def _parts(seen: Seen) -> list[Finding]:
    """Return a note of the parts of matrices that are judged otherwise than the rest."""
    parts = seen.tensors.column("parts") if _have_parts() else np.zeros(len(seen.tensors), object)
    at = np.array([i for i in seen.having("trained").tolist() if parts[i]], dtype=np.int64)
    rows = names_of(seen, at)
    if not rows:
        return []
    told = []
    for i, name in zip(at[:LINES].tolist(), rows, strict=False):
        each = "; ".join(f"{part.text()} ({part.verdict})" for part in parts[i][:LINES])
        told.append(f"{shorten(name, 90)}: {each}")
    more = [f"and {len(rows) - LINES:,} more tensors"] * (len(rows) > LINES)
    return [
        Finding(
            "weights.parts",
            "note",
            f"{_title(rows)} {'has' if len(rows) == 1 else 'have'} parts that do not look trained",
            detail="New rows of a vocabulary look like this before they are trained.",
            evidence_for=(*told, *more),
            confidence="likely",
            next_step="Check whether tokens of these rows occur in your prompts.",
        )
    ]


def _have_parts() -> bool:
    return "parts" in {field.name for field in dataclasses.fields(ScannedTensor)}


def _notes(seen: Seen) -> list[Finding]:
    found = []
    at = np.flatnonzero(seen.counts & seen.by_design & (seen.verdict == "at_init"))
    if len(at):
        rows = seen.rows(at[:LINES])
        found.append(
            Finding(
                "weights.by_design",
                "note",
                f"{title_of(seen, at)} {'is' if len(at) == 1 else 'are'} as before training; this can be "
                "intended",
                detail=rows[0].reason,
                evidence_for=lines(names_of(seen, at)),
                confidence="possible",
            )
        )
    at = np.flatnonzero(seen.excused)
    if len(at):
        found.append(
            Finding(
                "weights.excused",
                "note",
                f"{title_of(seen, at)} could be trained or at init; it is a small share of the model"
                if len(at) == 1
                else f"{title_of(seen, at)} could be trained or at init; they are a small share of the model",
                detail=seen.tensors[int(at[0])].reason,
                evidence_for=lines(names_of(seen, at)),
                confidence="unknown",
            )
        )
    return found


def _tied(seen: Seen) -> list[Finding]:
    """Return a warning where the config ties the head to the embedding, and the file has another head."""
    if seen.tied is None or seen.tied.agree:
        return []
    names = (seen.tied.head, seen.tied.embedding)
    return [
        Finding(
            "weights.tied_differs",
            "warning",
            f"{seen.tied.by}, but {shorten(names[0], 80)} differs from {shorten(names[1], 80)}",
            detail="An engine that ties them ignores one of the two. The file does not say with which of "
            "them the model was trained.",
            evidence_for=names,
            confidence="certain",
            changes_output=True,
            next_step=AFTER_TIED,
        )
    ]


AFTER_TIED = (
    "If the head was trained, set tie_word_embeddings to false. `workbench diff` shows which of the two an "
    "engine uses."
)


_NEXT_TOKENS = re.compile(r"(^|[._])(mtp|nextn|eh_proj)", re.I)
_COUNTS_NEXT = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def _next_tokens(seen: Seen) -> list[Finding]:
    """Return a note where the config counts layers for later tokens (MTP), and the file has none."""
    if seen.config is None or seen.limited or seen.needed is None:
        return []
    field, count = next(
        ((name, n) for name in _COUNTS_NEXT if (n := seen.config.get(name, None))), ("", 0)
    )
    layers = seen.config.get("num_hidden_layers", None)
    if type(count) is not int or type(layers) is not int or count < 1:
        return []
    behind = seen.places.layer.max(initial=-1) >= layers
    if behind or any(_NEXT_TOKENS.search(name) for name in seen.tensors.names):
        return []
    return [
        Finding(
            "weights.next_tokens",
            "note",
            f"the config counts {plural(count, 'layer')} that predict later tokens (MTP, NextN), and the "
            "file has none",
            detail=f"{field} = {count}. The model itself works without them. Speculative decoding with them "
            "does not: an engine that starts it reads uninitialised memory, or refuses.",
            confidence="certain",
            next_step="If you launch with NEXTN, MTP or EAGLE on this checkpoint, take one that holds these "
            "layers.",
        )
    ]
