"""What an engine computed beside what the replay computes: recorded features and the draft's logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core.finding import Finding
from workbench.errors import shorten
from workbench.speculation.evidence.facts import Facts, Recorded
from workbench.speculation.evidence.observed import Hidden, read_tensors
from workbench.speculation.judge.compare import (
    Difference,
    compare_draft,
    compare_hidden,
    hook_calls,
    parts_at,
)

if TYPE_CHECKING:
    from workbench.speculation.judge.trial import Trial

_NO_CALL = "none of the calls is of this draft at the end of a round"


def compare_with_engine(trial: Trial, facts: Facts) -> Iterator[Finding]:
    """Yield where recorded numbers and the replay's agree, and where they part, layer by layer.

    What was recorded and is not compared is said, too: nobody should take it for agreement.
    """
    if facts.recorded and trial.trace.target is not None:
        yield from _features(trial, facts.recorded)
    folder = Path(facts.source)
    held = read_tensors(folder, "hooks") if folder.is_dir() else {}
    if held:
        found = compare_draft(list(hook_calls(held)), trial.draft, trial.driving, trial.trace)
        name = "first logits of the draft"
        yield (
            _difference_finding(name, found)
            if found
            else _unused("what hooks recorded", [_NO_CALL])
        )


def _features(trial: Trial, recorded: Sequence[Recorded]) -> Iterator[Finding]:
    """Compare recorded features with the target's, which was run over the same texts."""
    trace = trial.trace
    width = next(iter(trace.inputs.values())).shape[-1]
    ends = trace.lengths.tolist()
    texts = [tuple(t[:end]) for t, end in zip(trace.tokens.tolist(), ends, strict=True)]
    fitting: dict[tuple[int, ...], list[tuple[int, Hidden]]] = {}
    unused, other = [], []
    for item in recorded:
        layers = item.layers or trial.driving.aux
        row = next((n for n, t in enumerate(texts) if t[: len(item.tokens)] == item.tokens), None)
        if layers is None:
            unused.append(
                "as EAGLE the draft reads the target's last features, and those are not recorded"
            )
        elif item.rows.shape[-1] != len(layers) * width or not trace.inputs.keys() >= set(layers):
            wanted = (
                f"layers {', '.join(map(str, layers))} of this target are {len(layers) * width}"
            )
            other.append(f"{item.name} is {item.rows.shape[-1]} wide, {wanted}")
        elif row is None:
            unused.append("their texts are not among those that were replayed")
        else:
            hidden = Hidden(item.name, item.tokens, item.prompt, item.rows)
            fitting.setdefault(tuple(layers), []).append((row, hidden))
    for layers, pairs in fitting.items():
        rows = [row for row, _ in pairs]
        part = trace if rows == list(range(len(trace))) else trace.select(rows)
        yield _difference_finding(
            "features of the target", compare_hidden([h for _, h in pairs], part, layers)
        )
    if other:
        yield Finding(
            code="features_of_another",
            severity="warning",
            title=f"Recorded features of {len(other)} texts cannot be this target's",
            detail="They were recorded of another target, or of other layers. The target was run instead.",
            evidence_for=tuple(shorten(line) for line in other[:3]),
            next_step="Give the target and the draft that the features were recorded with.",
        )
    if unused:
        yield _unused(f"recorded features of {len(unused)} texts", sorted(set(unused)))


def _unused(what: str, why: Sequence[str]) -> Finding:
    return Finding(
        code="recorded_unused",
        severity="note",
        title=f"Not compared: {what}",
        detail=f"{'; '.join(why)}.".capitalize(),
    )


def _difference_finding(name: str, found: list[Difference]) -> Finding:
    lines = tuple(
        f"{d.name}: smallest cosine {d.cosine:.5f}, largest difference {d.largest:.3g} "
        f"over {d.rows:,} rows, {d.exact:.0%} of the numbers equal"
        for d in found
    )
    if any(math.isnan(d.cosine) for d in found):
        return Finding(
            code="no_numbers",
            severity="warning",
            title=f"The {name} hold NaN, as recorded or as replayed",
            detail="A draft whose logits are NaN proposes the same token each time.",
            evidence_for=lines,
        )
    place = parts_at(found)
    if place:
        return Finding(
            code="numbers_part",
            severity="warning",
            title=f"The {name}, as recorded and as replayed, differ from {place}",
            evidence_for=lines,
            next_step="Check that target, draft and layers are those of the evidence.",
        )
    return Finding(
        code="numbers_agree",
        severity="note",
        title=f"The {name} are as recorded",
        evidence_for=lines,
    )
