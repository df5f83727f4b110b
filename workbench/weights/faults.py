"""What is wrong, equal or still in a scan, beside matrices at init: one finding a sort."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.core.finding import Finding
from workbench.core.verdict import State
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.names import has_tokens, is_filled_later, named
from workbench.weights.relations import TARGETS_OWN
from workbench.weights.seen import (
    LINES,
    At,
    Seen,
    corroboration,
    lines,
    names_of,
    percent,
    step_after_init,
    title_of,
)  # fmt: skip

_UPCYCLED = "Upcycled experts and stacked layers start as copies; this can be intended."
_AFTER_COPY = (
    "Check whether they were trained after they were copied. Training would make them differ."
)
_SMALLEST_COPY = 256  # elements; smaller tensors are equal by chance or by convention


def bad_values(seen: Seen) -> dict[int, tuple[State, str]]:
    """Return the tensors with values that no training leaves: not finite, or memory never written."""
    found: dict[int, tuple[State, str]] = {
        int(i): ("wrong", "like memory that was never written")
        for i in np.flatnonzero(seen.counts & seen.is_memory)
    }
    for i in seen.having("invalid").tolist():
        # In a server's memory nothing is filled in later.
        if (
            seen.kind == "checkpoint"
            and _all_nan(seen, i)
            and is_filled_later(seen.tensors.names[i])
        ):
            found[i] = ("open", "only NaN; the engine may fill it from the target")
        else:
            found[i] = ("wrong", "NaN, Inf or values out of range")
    return found


def not_finite(seen: Seen) -> list[Finding]:
    """Return findings of NaN and infinite values."""
    bad = bad_values(seen)
    at = seen.having("invalid")
    later = np.array([bad[i][0] == "open" for i in at.tolist()], dtype=bool)
    found = []
    if later.any():
        found.append(
            Finding(
                "weights.filled_later",
                "warning",
                f"{title_of(seen, at[later])} {'holds' if later.sum() == 1 else 'hold'} only NaN",
                detail="speculators starts these tensors as NaN and fills them from the verifier.",
                evidence_for=lines(names_of(seen, at[later])),
                evidence_against=(
                    "An engine that uses the target's own embedding and head never reads them.",
                ),
                confidence="possible",
                next_step="Run `workbench diff`: it shows whether the engine loads these or shares the "
                "target's.",
            )
        )
    rest = at[~later]
    if len(rest):
        found.append(_with_bad_values(seen, rest))
    return found


# From this share on rows of zeros are no padding to a round number; but a vocabulary's may be.
_MANY_EMPTY = 1 / 8
# And from this share on a vocabulary's are none either: those tokens can never be drawn. (Padding takes up
# to 3 % of what is served: 151,665 tokens of Qwen2.5 in 152,064 rows, 50,257 of GPT-2's kind in 51,200.)
_MOST_PADDING = 0.4
_PADDED = re.compile(
    r"(?:^|\.)(?:\w*emb(?:d|ed\w*)|wte|wpe|shared|lm_head|head|output_layer|proj_out|classifier|score"
    r"|predictions\.decoder|relative_attention_bias|rel_pos\w*|pos_emb|position\w*)(?:\.weight)?$"
    r"|^(?:\w+\.)?output\.weight$"
)


def _all_nan(seen: Seen, at: int) -> bool:
    return bool(seen.tensors.column("nan")[at] == seen.tensors.column("seen")[at])


def _with_bad_values(seen: Seen, at: At) -> Finding:
    nan, inf = (int(seen.tensors.column(name)[at].sum()) for name in ("nan", "inf"))
    infinite = f"{inf:,} infinite value{'s' if inf > 1 else ''}"
    values = " and ".join([f"{nan:,} NaN"] * bool(nan) + [infinite] * bool(inf))
    rows = seen.rows(at[:200])
    return Finding(
        "weights.invalid",
        "error",
        f"{title_of(seen, at)} {'holds' if len(at) == 1 else 'hold'} {values or 'values out of range'}",
        detail=rows[0].reason,
        evidence_for=lines(names_of(seen, at)),
        changes_output=True,
        next_step="Export again from a finite training state. A diverged training run writes such values."
        if seen.kind == "checkpoint"
        else "Scan the checkpoint on disk, too. If the file is finite, the engine did not load this.",
    )


def memory(seen: Seen) -> list[Finding]:
    """Return a finding of memory that was never written."""
    at = np.flatnonzero(seen.counts & seen.is_memory)
    if not len(at):
        return []
    rows = seen.rows(at[:200])
    return [
        Finding(
            "weights.memory",
            "error",
            f"{title_of(seen, at)} {'looks' if len(at) == 1 else 'look'} like memory that was never written",
            detail=rows[0].reason,
            evidence_for=(*lines(names_of(seen, at)), *corroboration(rows)),
            confidence="likely",
            changes_output=True,
            next_step="Run `workbench diff`: it lists the keys that an engine ignores.",
        )
    ]


def constants(seen: Seen) -> list[Finding]:
    """Return a finding of constant matrices."""
    at = seen.having("constant")
    if not len(at):
        return []
    rows = seen.rows(at[:200])
    zeros = all(row.zeros == row.seen for row in rows)
    return [
        Finding(
            "weights.constant",
            "error",
            f"{title_of(seen, at)} {'is' if len(at) == 1 else 'are'} constant"
            + (": all zeros" * zeros),
            detail=rows[0].reason,
            evidence_for=lines(names_of(seen, at)),
            evidence_against=(
                "A matrix of zeros can be intended: an adapter or a branch that was switched off.",
            )
            if zeros
            else (),
            confidence="likely",
            changes_output=True,
            next_step=step_after_init(seen),
        )
    ]


def half_empty(seen: Seen) -> At:
    """Return trained matrices with many rows or columns of zeros that padding does not explain."""
    trained = seen.having("trained")
    many = np.zeros(len(trained), dtype=bool)
    for what in ("rows", "columns"):
        many |= seen.tensors.column(f"empty_{what}")[trained] >= _MANY_EMPTY
    at = trained[many]
    return at[~_usual(seen, at)] if len(at) else at


def _usual(seen: Seen, at: At) -> np.ndarray[Any, Any]:
    """Return which have rows of zeros that padding to a round number of tokens or positions explains."""
    share = np.maximum(
        seen.tensors.column("empty_rows")[at], seen.tensors.column("empty_columns")[at]
    )
    named_so = np.array([bool(_PADDED.search(name)) for name in names_of(seen, at)], dtype=bool)
    words = np.array([has_tokens(name) for name in names_of(seen, at)], dtype=bool)
    return named_so & ~(words & (share >= _MOST_PADDING))


def empty(seen: Seen) -> list[Finding]:
    """Return findings of matrices that look trained but have many rows or columns of zeros."""
    found = []
    trained = seen.having("trained")
    for what in ("rows", "columns"):
        share = seen.tensors.column(f"empty_{what}")
        at = trained[share[trained] >= _MANY_EMPTY]
        padded = _usual(seen, at)
        for group, usual in ((at[~padded], False), (at[padded], True)):
            if len(group):
                found.append(_empty(seen, group, what, share, usual))
    return found


def _empty(seen: Seen, at: At, what: str, share: np.ndarray[Any, Any], usual: bool) -> Finding:
    much = percent(share[at])
    return Finding(
        "weights.padded" if usual else "weights.empty",
        "note" if usual else "warning",
        f"{title_of(seen, at)}: {much} of the {what} are all zeros",
        detail="The rest looks trained."
        if usual
        else "The rest looks trained. A part that was never filled, a shard of another rank, pruning and "
        "padding all look like this.",
        evidence_for=lines(names_of(seen, at)),
        confidence="possible",
        next_step=""
        if usual
        else "If the model was not pruned or padded there, run `workbench diff`: it lists the keys that an "
        "engine ignores.",
    )


def copies(seen: Seen) -> list[Finding]:
    """Return findings of tensors with equal bytes."""
    digests, counts = seen.tensors.column("digest"), seen.tensors.column("count")
    usable = seen.matters & (counts >= _SMALLEST_COPY) & (seen.verdict != "constant")
    same: dict[str, list[int]] = {}
    for i in np.flatnonzero(usable):
        if digests[i]:
            same.setdefault(digests[i], []).append(int(i))
    found = _in_stacks(seen)
    groups = [np.array(group) for group in same.values() if len(group) > 1]
    tied = [group for group in groups if _is_tied(names_of(seen, group))]
    copies = [group for group in groups if not _is_tied(names_of(seen, group))]
    if copies:
        at = np.concatenate(copies)
        lines = [
            " = ".join(shorten(text, 70) for text in named(names_of(seen, group)))
            for group in copies
        ]
        found.append(
            Finding(
                "weights.copies",
                "warning",
                f"{plural(len(at), 'tensor')} are byte-for-byte copies of each other "
                f"({plural(len(copies), 'set')})",
                evidence_for=(
                    *lines[:LINES],
                    *[f"and {len(lines) - LINES:,} more sets"] * (len(lines) > LINES),
                ),
                evidence_against=(_UPCYCLED,),
                next_step=_AFTER_COPY,
            )
        )
    if tied:
        text = "; ".join(" = ".join(names_of(seen, group)) for group in tied)
        found.append(
            Finding(
                "weights.tied", "note", f"Embedding and head hold the same bytes: {shorten(text)}"
            )
        )
    return found


def targets_own(seen: Seen) -> list[Finding]:
    """Return notes of weights that are the target's own, or started from it and hardly changed."""
    own = seen.tensors.statistic(TARGETS_OWN)
    found = []
    for at, what in (
        (np.flatnonzero(seen.counts & (own == 1)), "the target's own values"),
        (np.flatnonzero(seen.counts & (own == 0)), "the target's values with a change"),
    ):
        if not len(at):
            continue
        said = _told(seen, at, lambda text: "the target's" in text)
        found.append(
            Finding(
                "weights.targets_own" if own[at[0]] == 1 else "weights.from_target",
                "note",
                f"{title_of(seen, at)} {'is' if len(at) == 1 else 'are'} {what}",
                detail="An embedding or a head that a draft shares with its target was not trained with it; "
                "this is intended. Any other layer that equals the target's was copied and not changed "
                "since; after a small change, it started from the target and was hardly trained, or noise "
                "was added.",
                evidence_for=said,
            )
        )
    return found


def _told(seen: Seen, at: At, which: Callable[[str], bool]) -> tuple[str, ...]:
    """Return what corroborates the first of some tensors, each with its name."""
    return tuple(
        f"{shorten(row.name, 90)}: {text}"
        for row in seen.rows(at[:LINES])
        for text in row.corroboration
        if which(text)
    )


def _in_stacks(seen: Seen) -> list[Finding]:
    """Return a finding of stacks of which some matrices equal each other."""
    equal = seen.tensors.statistic("experts_equal")
    at = np.flatnonzero(seen.matters & (equal > 0))
    if not len(at):
        return []
    said = _told(seen, at, lambda text: text.endswith("equal, value by value"))
    many = plural(int(equal[at].sum()), "matrix", "matrices")
    return [
        Finding(
            "weights.copies",
            "warning",
            f"{many} in {plural(len(at), 'stack')} are copies of each other",
            evidence_for=said[:LINES],
            evidence_against=(_UPCYCLED,),
            next_step=_AFTER_COPY,
        )
    ]


def _is_tied(names: Sequence[str]) -> bool:
    return len(names) == 2 and all(
        "embed" in name or "head" in name or "wte" in name for name in names
    )


def vectors(seen: Seen) -> list[Finding]:
    """Return findings of norms at one and biases at zero: notes."""
    vectors = seen.counts & ~seen.tensors.is_matrix
    families = seen.tensors.column("family")
    still = np.isin(seen.verdict, ("at_init", "constant"))
    found = []
    ones = np.flatnonzero(vectors & still & (families == "ones"))
    if len(ones):
        sixteen = seen.tensors.column("dtype")[ones[0]] in ("BF16", "F16")
        found.append(
            Finding(
                "weights.norms_at_one",
                "note",
                f"{title_of(seen, ones)} {'is' if len(ones) == 1 else 'are'} exactly one, as at init"
                + ("; a change may be too small for 16 bits" if sixteen else ""),
                evidence_for=lines(names_of(seen, ones)),
                confidence="possible",
            )
        )
    doubted = np.isin(np.arange(len(seen.tensors)), list(seen.norm_doubts))
    zeros = np.flatnonzero(vectors & still & ~doubted & np.isin(families, ("zeros",)))
    if len(zeros):
        found.append(
            Finding(
                "weights.biases_at_zero",
                "note",
                f"{title_of(seen, zeros)} {'is' if len(zeros) == 1 else 'are'} exactly zero",
                evidence_for=lines(names_of(seen, zeros)),
                confidence="possible",
            )
        )
    return found


def limits(seen: Seen) -> list[Finding]:
    """Return what was not judged, and why."""
    found = []
    small = np.flatnonzero(seen.counts & seen.tensors.is_matrix & seen.too_small)
    if len(small):
        found.append(
            Finding(
                "weights.too_small",
                "note",
                f"{title_of(seen, small)} {'is' if len(small) == 1 else 'are'} too small to tell",
                evidence_for=lines(names_of(seen, small)),
                confidence="unknown",
            )
        )
    aside = len(seen.tensors) - int(seen.counts.sum())
    if aside:
        at = np.flatnonzero(~seen.counts)
        found.append(
            Finding(
                "weights.not_weights",
                "note",
                f"{plural(aside, 'tensor')} {'is' if aside == 1 else 'are'} not weights and not judged",
                evidence_for=lines(names_of(seen, at)),
            )
        )
    if seen.unseen:
        found.append(
            Finding(
                "weights.not_seen",
                "warning",
                f"{plural(seen.unseen, 'tensor')} that {'was' if seen.unseen == 1 else 'were'} asked for "
                "could not be read",
                detail="The notes list them, with the reason.",
                confidence="unknown",
                next_step="Scan the checkpoint itself for these. The engine's own values stay unknown.",
            )
        )
    if seen.interrupted:
        found.append(
            Finding(
                "weights.interrupted",
                "warning",
                "The scan was interrupted; tensors that it did not read are not judged",
                next_step="Run it again, or use `sample` for a quick check.",
            )
        )
    return found
