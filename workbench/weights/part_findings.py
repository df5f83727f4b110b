"""Parts at random initialisation in matrices that stay trained: rows of a vocabulary."""

from __future__ import annotations

import numpy as np

from workbench.core.finding import Finding
from workbench.weights.seen import LINES, Seen, title_of


def unused_rows(seen: Seen) -> list[Finding]:
    """Return a note on trained embeddings and heads of which some rows are at random initialisation."""
    parts = seen.tensors.column("parts")
    some = np.array([bool(one) for one in parts], dtype=bool)
    at = np.flatnonzero(some & seen.counts & (seen.verdict == "trained"))
    if not len(at):
        return []
    rows = seen.rows(at)
    where = [f"{row.name}: {part.text()}" for row in rows for part in row.parts]
    verb = "has" if len(at) == 1 else "have"
    return [
        Finding(
            "weights.unused_rows",
            "note",
            f"{title_of(seen, at)} {verb} rows at random initialisation",
            detail="Rows of tokens that the training data does not use stay as they were initialised. If "
            "these tokens are used, the model reads noise there.",
            evidence_for=tuple(where[:LINES]),
            confidence="likely",
            next_step="Check whether your prompts use these token ids.",
        )
    ]
