"""Matrices in which many rows are copies of others: a half that was written twice, one head for all."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from workbench.core.finding import Finding
from workbench.weights.names import is_vocabulary
from workbench.weights.records import has_few_values
from workbench.weights.seen import At, Seen, lines, names_of, percent, title_of

# From this share on. By chance squared norms of float values agree in a few rows of ten thousand.
_MANY = 1 / 4
_FEWEST_ROWS, _FEWEST_COLUMNS = 32, 64
# Values of a few steps have norms of a few steps, which agree without a copy.
_FINE = frozenset(("BF16", "F16", "F32", "F64"))
# Heads of keys and values are repeated on purpose, to split them over more ranks than there are.
_REPEATED_BY_DESIGN = re.compile(
    r"(^|[._])(w?k|w?v|w?kv|w?qkv|key|value|query_key_value|key_value|in_proj|c_attn)([._]|$)"
)


def half_repeated(seen: Seen) -> At:
    """Return trained matrices of which many rows are copies, where no design repeats them."""
    share = seen.tensors.column("copied_rows")
    at = np.flatnonzero((share >= _MANY) & (seen.verdict == "trained") & seen.tensors.is_matrix)
    return at[[_decides(seen, int(i)) for i in at]] if len(at) else at


def _decides(seen: Seen, i: int) -> bool:
    row = seen.tensors[i]
    if len(row.shape) != 2 or row.shape[0] < _FEWEST_ROWS or row.shape[1] < _FEWEST_COLUMNS:
        return False
    if row.dtype not in _FINE or row.layout or is_vocabulary(row.name):
        return False
    if row.bins is not None and has_few_values(row.bins):
        return False
    return not _REPEATED_BY_DESIGN.search(row.name)


def repeated(seen: Seen) -> Iterator[Finding]:
    """Yield a finding of matrices whose rows are copies of each other."""
    at = half_repeated(seen)
    if not len(at):
        return
    much = percent(seen.tensors.column("copied_rows")[at])
    yield Finding(
        "weights.repeated_rows",
        "warning",
        f"{title_of(seen, at)}: {much} of the rows are copies of other rows",
        detail="Each row alone looks trained. A part that was written twice, one head in the place of all, "
        "and a model that was widened by copies look like this.",
        evidence_for=lines(names_of(seen, at)),
        confidence="possible",
        next_step="Compare with the checkpoint that it was made from: `workbench weights` of that one, or "
        "`scan.compare`. If the model was widened by copies, this is its design.",
    )
