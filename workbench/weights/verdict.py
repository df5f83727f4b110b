"""Trained, or as it was drawn? One tensor at a time: checks, then cheap statistics, then the spectrum.

What can be concluded, and what not: entries that know nothing of each other are what every usual
initialisation gives, and what training takes away. So structure between the entries proves training, and
its absence says "indistinguishable from i.i.d.", with the size of change that would not have been seen.
docs/weights.md has the error rates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.weights.blocks import judge_blocks
from workbench.weights.by_design import judge_fixed
from workbench.weights.checks import check
from workbench.weights.context import BUDGET, Context, context_of
from workbench.weights.fused import judge_parts
from workbench.weights.masks import MASK, is_mask, is_rotation
from workbench.weights.matrices import judge_matrix
from workbench.weights.names import why_no_weight
from workbench.weights.records import Judgement, Measure
from workbench.weights.stacks import judge_stack
from workbench.weights.vectors import judge_vector

__all__ = ["BUDGET", "Context", "context_of", "judge"]

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = Callable[[int, int], Floats]


def judge(measure: Measure, rows: Rows, context: Context | None = None) -> Judgement:
    """Return what is concluded of one tensor.

    Parameters
    ----------
    measure
        What one pass over its values gave.
    rows
        Reads rows of it, start to stop, as float32 ``[rows, columns]``; only called where the measure
        alone does not decide.
    context
        What the config and the other tensors say.

    Returns
    -------
    Judgement
        ``at_init`` means: indistinguishable from independent entries of the named family.
    """
    context = context or Context()
    is_matrix = sum(size > 1 for size in measure.shape) > 1
    why = why_no_weight(measure.name, measure.dtype, measure.layout, is_matrix)
    if why:
        return Judgement("undecided", f"not a weight: {why}", stage=0)
    if is_matrix and is_mask(measure, rows):
        text = "not a weight: a mask, two values in a triangle"
        return Judgement("undecided", text, stage=0, statistics=((MASK, 1.0),))
    if is_matrix and is_rotation(measure, rows):
        text = "not a weight: a stored rotation, a Hadamard matrix"
        return Judgement("undecided", text, stage=0, statistics=((MASK, 1.0),))
    found = check(measure) or judge_fixed(measure, rows)
    if found:
        return found
    if not is_matrix:
        return judge_vector(measure, context.fan_in)
    if context.is_stack:
        return judge_stack(measure, rows, context)
    whole = judge_parts(judge_matrix(measure, rows, context), measure, rows, context)
    return judge_blocks(whole, measure, rows, context)
