"""From the changes of each tensor to what the training changed, and what it did not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from workbench.core.finding import GRAVITY, Confidence, Finding
from workbench.core.verdict import Verdict
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.changes import Change, Changes
from workbench.weights.coverage import compared
from workbench.weights.exchanged import ELSEWHERE, exchange_lines
from workbench.weights.names import is_weight, named
from workbench.weights.sides import Sides

_LINES = 6
# Below this relative change a 16-bit type hides most of what an optimiser does.
_SLIGHT = 1e-3
# Rounding to bfloat16 changes the norm by 0.2 %.
_ROUNDED = 5e-3

Same = Sequence[tuple[str, str]]
Moved = Sequence[tuple[str, str, str]]


def conclude(
    changes: Changes,
    same: Same,
    is_own: bool = False,
    moved: Moved = (),
    sides: Sides | None = None,
) -> tuple[Verdict, tuple[Finding, ...]]:
    """Return the verdict on a comparison, and its findings.

    `is_own`: one side is what a server holds of the other. `moved`: names of both sides of which the second
    holds the values of the first in another place, and how. `sides`: what the scans of both say.
    """
    by_state: dict[str, list[Change]] = {}
    for row in changes:
        by_state.setdefault(row.state, []).append(row)
    findings = [
        *_broken(by_state.get("shape", []), by_state.get("invalid", [])),
        *_unread(by_state.get("unread", [])),
        *(
            _held(by_state.get("changed", []))
            if is_own
            else _moved(by_state.get("changed", []), by_state.get("identical", []))
        ),
        *_alone(by_state.get("left", []), by_state.get("right", [])),
        *_same(same),
        *_rearranged(moved),
    ]
    findings.sort(key=lambda finding: GRAVITY[finding.severity])
    differ = _otherwise(by_state.get("changed", [])) if is_own else []
    coverage = compared(
        changes, frozenset(row.name for row in differ), moved, sides, _unchanged(by_state, is_own)
    )
    state = {True: "compared", False: "wrong", None: "cannot_tell"}[coverage.ok]
    sure: Confidence = "unknown" if coverage.ok is None else "certain"
    sentence = " ".join((_summary(by_state, same, moved), *(sides.sentences if sides else ())))
    return Verdict(state, sentence, sure, coverage), tuple(findings)


def _unchanged(by_state: Mapping[str, Sequence[Change]], is_own: bool) -> frozenset[str]:
    """Return what has the same values on both sides; an engine rounds what it holds of its own files."""
    changed = by_state.get("changed", [])
    rounded = set(changed) - set(_otherwise(changed)) if is_own else set()
    return frozenset(row.name for row in (*by_state.get("identical", []), *rounded))


def _summary(by_state: dict[str, list[Change]], same: Same, moved: Moved) -> str:
    changed, identical = by_state.get("changed", []), by_state.get("identical", [])
    both = len(changed) + len(identical) + len(by_state.get("invalid", []))
    parts = []
    if changed:
        values = [row.change for row in changed if row.change is not None and _is_matrix(row)]
        middle = f" (matrices by {_range(values)})" if values else ""
        parts.append(f"{len(changed):,} of {plural(both, 'tensor')} changed{middle}")
    else:
        parts.append(f"none of {plural(both, 'tensor')} changed")
    if identical and changed:
        parts.append(f"{len(identical):,} are identical")
    for state, words in (
        ("shape", "differ in shape"),
        ("invalid", "hold NaN or Inf"),
        ("unread", "could not be read"),
    ):
        if by_state.get(state):
            parts.append(f"{len(by_state[state]):,} {words}")
    alone = len(by_state.get("left", [])) + len(by_state.get("right", []))
    if alone:
        parts.append(f"{alone:,} are on one side only")
    if same:
        parts.append(f"{plural(len(same), 'pair')} of them are equal under two names")
    if moved:
        parts.append(f"{len(moved):,} of them hold the same values in another order or place")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2g}" if high <= 1.05 * low else f"{low:.2g} to {high:.2g}"


def _is_matrix(row: Change) -> bool:
    return sum(size > 1 for size in row.shape) > 1


def _lines(rows: Sequence[Change]) -> tuple[str, ...]:
    texts = [shorten(text) for text in named([row.name for row in rows])]
    if len(texts) <= _LINES:
        return tuple(texts)
    return (*texts[: _LINES - 1], f"and {plural(len(texts) - _LINES + 1, 'template')} more")


def _broken(shapes: Sequence[Change], invalid: Sequence[Change]) -> list[Finding]:
    found = []
    if shapes:
        told = [
            f"{shorten(r.name, 90)}: {list(r.shape)} became {list(r.shape_after)}" for r in shapes
        ]
        found.append(
            Finding(
                "weights.shapes_differ",
                "error",
                f"{plural(len(shapes), 'tensor')} of the same name differ in shape",
                evidence_for=(
                    *told[:_LINES],
                    *[f"and {len(told) - _LINES:,} more"] * (len(told) > _LINES),
                ),
                changes_output=True,
                next_step="Check that both belong to the same model. These tensors were not compared.",
            )
        )
    if invalid:
        found.append(
            Finding(
                "weights.not_finite",
                "error",
                f"{plural(len(invalid), 'tensor')} hold NaN or Inf on one side or both",
                detail=invalid[0].reason,
                evidence_for=_lines(invalid),
                changes_output=True,
                next_step="Scan both sides: scan_weights lists the values and the tensors.",
            )
        )
    return found


def _unread(rows: Sequence[Change]) -> list[Finding]:
    if not rows:
        return []
    return [
        Finding(
            "weights.unread",
            "warning",
            f"{plural(len(rows), 'tensor')} could not be compared",
            detail=rows[0].reason,
            evidence_for=_lines(rows),
            confidence="unknown",
        )
    ]


def _otherwise(changed: Sequence[Change]) -> list[Change]:
    """Return what differs by more than rounding to 16 bits."""
    return [row for row in changed if row.change is None or row.change > _ROUNDED]


def _held(changed: Sequence[Change]) -> list[Finding]:
    """Return findings of what an engine holds otherwise than the checkpoint that it names."""
    other = _otherwise(changed)
    rounded = len(changed) - len(other)
    found = []
    if other:
        most = max(other, key=lambda row: math.inf if row.change is None else row.change)
        by = "" if most.change is None else f", by {most.change:.2g} of its norm"
        found.append(
            Finding(
                "weights.engine_differs",
                "error",
                f"The engine's values differ from its checkpoint in {plural(len(other), 'tensor')}",
                detail=f"The largest difference is in {shorten(most.name, 90)}{by}.",
                evidence_for=_lines(other),
                evidence_against=(
                    "Weights updated while it runs, and an adapter merged at its start, also look like this.",
                ),
                changes_output=True,
                next_step="Run `workbench diff` on the checkpoint and this engine: a parameter without a "
                "key keeps what was in memory.",
            )
        )
    if rounded:
        found.append(
            Finding(
                "weights.engine_rounded",
                "note",
                f"{plural(rounded, 'tensor')} in the engine differ from the file only by rounding",
            )
        )
    return found


def _moved(changed: Sequence[Change], identical: Sequence[Change]) -> list[Finding]:
    still = [row for row in identical if is_weight(row.name, row.dtype, "", _is_matrix(row))]
    moved = [row for row in changed if is_weight(row.name, row.dtype, "", _is_matrix(row))]
    if not still and not moved:
        return []
    if not moved:
        return [
            Finding(
                "weights.all_identical",
                "note",
                f"All {plural(len(still), 'weight')} are identical: the same model, or an untrained one",
                evidence_for=_lines(still),
            )
        ]
    found = []
    matrices = [row for row in still if _is_matrix(row)]
    if matrices:
        found.append(
            Finding(
                "weights.unmoved",
                "warning",
                f"{plural(len(matrices), 'matrix', 'matrices')} did not change at all, while "
                f"{plural(len(moved), 'tensor')} did",
                evidence_for=_lines(matrices),
                evidence_against=(
                    "They look like this when they are frozen on purpose, as a draft's embedding often is.",
                ),
                next_step="Check whether these should have been trained.",
            )
        )
    measured = [row for row in moved if _is_matrix(row) and row.change is not None]
    slight = [row for row in measured if row.change is not None and row.change < _SLIGHT]
    if slight:
        usual = statistics.median(row.change or 0.0 for row in measured)
        found.append(
            Finding(
                "weights.slight",
                "note",
                f"{plural(len(slight), 'matrix', 'matrices')} changed by less than {_SLIGHT:.1%} of the norm "
                f"(the median is {usual:.2g})",
                evidence_for=_lines(slight),
            )
        )
    return found


def _alone(left: Sequence[Change], right: Sequence[Change]) -> list[Finding]:
    found = []
    for rows, side in ((left, "first"), (right, "second")):
        if rows:
            found.append(
                Finding(
                    "weights.one_side",
                    "note",
                    f"{plural(len(rows), 'tensor')} {'is' if len(rows) == 1 else 'are'} only in the {side}",
                    evidence_for=_lines(rows),
                )
            )
    return found


def _rearranged(moved: Moved) -> list[Finding]:
    if not moved:
        return []
    orders = [
        f"{shorten(a, 90)}: {how}" if a == b else f"{shorten(a, 90)} and {shorten(b, 90)}: {how}"
        for a, b, how in moved
        if how != ELSEWHERE
    ]
    told = [*exchange_lines([(a, b) for a, b, how in moved if how == ELSEWHERE]), *orders]
    return [
        Finding(
            "weights.rearranged",
            "warning",
            f"{plural(len(moved), 'tensor')} hold the same values in another order or place",
            detail="Training does not do this: a conversion, a merge or a permutation did. The change above "
            "is not one of the values.",
            evidence_for=(
                *told[:_LINES],
                *[f"and {len(told) - _LINES:,} more"] * (len(told) > _LINES),
            ),
            confidence="certain",
            next_step="Check that both sides use one layout, and that what reads the second expects it.",
        )
    ]


def _same(same: Same) -> list[Finding]:
    if not same:
        return []
    told = [f"{shorten(a, 90)} = {shorten(b, 90)}" for a, b in same]
    return [
        Finding(
            "weights.same_values",
            "note",
            f"{plural(len(same), 'tensor')} of the first equal a tensor of the second under another name",
            evidence_for=(
                *told[:_LINES],
                *[f"and {len(told) - _LINES:,} more"] * (len(told) > _LINES),
            ),
        )
    ]
