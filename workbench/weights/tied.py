"""A head that the config ties to the embedding, and whether the file's own head has the same values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeights, matrix_shape
from workbench.checkpoint.records import DTYPE_BITS
from workbench.errors import WorkbenchError
from workbench.weights.equality import blocks

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config
    from workbench.weights.records import Measure

_HEAD = re.compile(
    r"(^|\.)(lm_head|lm_head\.decoder|embed_out|output_layer|proj_out|predictions\.decoder)\.weight$"
    r"|^(model\.)?output\.weight$"
)
_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|shared|embed_in|tok_embeddings|word_embeddings)\.weight$"
)
# Their configs leave the field out, and transformers ties them then: their classes set no other default.
_TIED_BY_DEFAULT = frozenset(("t5", "bart", "mbart", "pegasus", "marian", "gpt2", "opt", "bloom", "bert",
                              "roberta", "whisper"))  # fmt: skip
# bfloat16 keeps 8 bits of a value, and the smallest step of fp16 is 2^-24.
_ROUNDING, _SMALLEST_STEP = 2.0**-8, 2.0**-24
# Quantisers of 3 bits and more change less of the norm; another matrix differs by more than all of it.
_QUANTISED = 0.3


@dataclasses.dataclass(frozen=True)
class Tied:
    """The head and the embedding of a file that the config ties, and whether their values agree.

    `by` is what ties them, in words.
    """

    head: str
    embedding: str
    agree: bool
    by: str


def tied(
    weights: LogicalWeights, measures: Sequence[Measure], config: Config | None
) -> Tied | None:
    """Return whether head and embedding agree; None where nothing ties them, or one is not in the file.

    Parameters
    ----------
    weights
        The checkpoint's weights.
    measures
        What was read of them; only what was read whole is compared.
    config
        The model's config.
    """
    by = _tie(config)
    if not by:
        return None
    whole = sorted((one for one in measures if one.digest), key=lambda one: one.name.count("."))
    head = next((one for one in whole if _HEAD.search(one.name)), None)
    if head is None:
        return None
    width = matrix_shape(head.shape)[1]
    likely = [
        one
        for one in whole
        if _EMBEDDING.search(one.name) and matrix_shape(one.shape)[1] == width and one.count
    ]
    try:
        # A model with several embeddings ties one of them.
        for one in likely:
            if one.digest == head.digest or _agree(weights, head, one):
                return Tied(head.name, one.name, True, by)
    except WorkbenchError:
        return None
    return Tied(head.name, likely[0].name, False, by) if likely and head.count else None


def _tie(config: Config | None) -> str:
    """Return what of the config ties the head to the embedding, "" where nothing does."""
    if config is None:
        return ""
    value = config.get("tie_word_embeddings", None)
    if value is True:
        return "tie_word_embeddings is true in the config"
    family = config.get("model_type", None)
    if value is None and family in _TIED_BY_DEFAULT:
        return f"the config does not set tie_word_embeddings, and {family} ties them by default"
    return ""


def _agree(weights: LogicalWeights, head: Measure, embedding: Measure) -> bool:
    """Say whether two matrices have the same values but for rounding; of one type they have none.

    One may have more rows, which pad the vocabulary.
    """
    short, long = sorted((head, embedding), key=lambda one: one.shape[0])
    quantised = any(one.layout or DTYPE_BITS.get(one.dtype, 0) < 16 for one in (head, embedding))
    exact = head.dtype == embedding.dtype and not quantised
    difference = norm = 0.0
    for a, b in blocks(weights[short.name], weights[long.name]):
        first, second = a.astype(np.float64), b.astype(np.float64)
        if quantised:
            difference += float(np.square(first - second).sum())
            norm += float(np.square(second).sum())
            continue
        slack = 0.0 if exact else _ROUNDING * np.maximum(abs(first), abs(second)) + _SMALLEST_STEP
        if not (abs(first - second) <= slack).all():
            return False
    return difference <= _QUANTISED**2 * norm
