"""What an engine computed beside what the replay computes: recorded features and the draft's logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.result import Finding
from workbench.speculation.compare import (
    Difference,
    compare_draft,
    compare_hidden,
    hook_calls,
    parts_at,
)
from workbench.speculation.facts import Facts
from workbench.speculation.observed import Hidden, read_tensors

if TYPE_CHECKING:
    from workbench.speculation.trial import Trial


def beside(trial: Trial, facts: Facts) -> Iterator[Finding]:
    """Yield where recorded numbers and the replay's agree, and where they part, layer by layer."""
    features, logits = _features(trial, facts), _logits(trial, facts)
    for name, found in (
        ("features of the target", features),
        ("first logits of the draft", logits),
    ):
        if found:
            yield _told(name, found)


def _features(trial: Trial, facts: Facts) -> list[Difference]:
    """Compare recorded features with the target's, where it was run over the same texts."""
    aux = trial.driving.aux
    own = trial.trace.target is not None and len(facts.recorded) == len(trial.trace)
    if not own or aux is None or any(r.layers is not None for r in facts.recorded):
        return []
    width = len(aux) * next(iter(trial.trace.inputs.values())).shape[-1]
    if any(r.rows.shape[-1] != width for r in facts.recorded):
        return []
    texts = trial.trace.tokens.tolist()
    if any(
        tuple(row[: len(r.tokens)]) != r.tokens
        for row, r in zip(texts, facts.recorded, strict=True)
    ):
        return []
    rows = [Hidden(r.name, r.tokens, r.prompt, r.rows) for r in facts.recorded]
    return compare_hidden(rows, trial.trace, aux)


def _logits(trial: Trial, facts: Facts) -> list[Difference]:
    """Compare the draft's first logits of each round with those that hooks saw."""
    folder = Path(facts.source)
    held = read_tensors(folder, "hooks") if folder.is_dir() else {}
    if not held:
        return []
    return compare_draft(list(hook_calls(held)), trial.draft, trial.driving, trial.trace)


def _told(name: str, found: list[Difference]) -> Finding:
    lines = tuple(
        f"{d.name}: smallest cosine {d.cosine:.5f}, largest difference {d.largest:.3g} "
        f"over {d.rows:,} rows, {d.exact:.0%} of the numbers equal"
        for d in found
    )
    if any(math.isnan(d.cosine) for d in found):
        return Finding(
            code="no-numbers",
            severity="warning",
            title=f"The {name} hold NaN, as recorded or as replayed",
            detail="A draft whose logits are no numbers proposes the same token each time.",
            evidence_for=lines,
        )
    place = parts_at(found)
    if place:
        return Finding(
            code="numbers-part",
            severity="warning",
            title=f"The {name}, as recorded and as replayed, part at {place}",
            evidence_for=lines,
            next_step="Check that target, draft and layers are those of the evidence.",
        )
    return Finding(
        code="numbers-agree",
        severity="note",
        title=f"The {name} are as recorded",
        evidence_for=lines,
    )
