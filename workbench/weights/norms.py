"""Scales of norms: they start at one (of some families at zero, being stored less one), and stay near it.

Zero in a family that multiplies with what is stored passes nothing on; values spread evenly around zero are
those of an initialiser that did not spare norms, or of an engine's dummy weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.weights.doubts import Doubt, Doubts
from workbench.weights.families import UNIFORM, fit
from workbench.weights.vectors import is_norm

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config
    from workbench.weights.columns import ScannedTensor
    from workbench.weights.seen import Seen

# They multiply with one more than what is stored (`(1 + w)` in their modelling code, or LayerNorm1P).
_LESS_ONE = ("gemma", "paligemma", "recurrent_gemma", "vaultgemma", "t5gemma", "shieldgemma", "qwen3_next",
             "qwen3_5", "nemotron")  # fmt: skip
# They multiply with what is stored.
_PLAIN = frozenset((
    "llama", "llama4", "llama4_text", "mistral", "mistral3", "mixtral", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_moe", "deepseek", "deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "phi", "phi3",
    "phimoe", "olmo2", "olmo3", "bert", "roberta", "xlm-roberta", "distilbert", "electra", "gpt2",
    "gpt_neox", "gpt_oss", "t5", "mt5", "glm", "glm4", "glm4_moe", "granite", "granitemoe", "cohere",
    "cohere2", "starcoder2", "stablelm", "internlm2", "opt", "bloom", "falcon", "vit", "whisper",
    "bart", "smollm3", "exaone4", "minimax", "chatglm",
))  # fmt: skip
# Dummy weights of vLLM and SGLang (`--load-format dummy`) are uniform between these.
_DUMMY = 1e-3
_FEWEST = 16
# Quantiles 4 and 6 of `QUANTILES`: a quarter of the values lies below the one, a quarter above the other.
_LOWER, _UPPER = 4, 6


def norm_doubts(seen: Seen) -> Doubts:
    """Return what is doubted of the scales of norms."""
    kind = convention(seen.config)
    found: Doubts = {}
    for i in np.flatnonzero(seen.is_norm).tolist():
        row = seen.tensors[i]
        doubt = _doubt(row, kind) if row.seen and row.verdict != "invalid" else None
        if doubt is not None:
            found[i] = doubt
    return found


def is_scale_of_norm(name: str, is_matrix: bool) -> bool:
    """Say whether a tensor is the scale of a norm."""
    return not is_matrix and is_norm(name)


def convention(config: Config | None) -> str:
    """Return how the family stores a norm's scale: ``plain``, ``less one``, or "" where it is not known."""
    kind = "" if config is None else str(config.get("model_type", "") or config.model_type)
    if kind.startswith(_LESS_ONE):
        return "less one"
    return "plain" if kind in _PLAIN else ""


def _doubt(row: ScannedTensor, kind: str) -> Doubt | None:
    if row.count < 2:
        return None
    if row.min == row.max == 0:
        if kind == "less one":
            return None
        how = "all zero: a norm whose scale is zero passes nothing on"
        return Doubt("wrong" if kind == "plain" else "open", how)
    if row.count < _FEWEST:
        return None
    if _is_dummy(row):
        how = f"uniform within ±{row.absmax:.2g}, as an engine's dummy weights are; not a norm's scale"
        return Doubt("open" if kind == "less one" else "wrong", how)
    if kind == "less one" or not _is_around_zero(row):
        return None
    how = f"spread around zero (σ = {row.std:.3g}); a norm's scale starts at one; these are fresh values"
    return Doubt("wrong" if kind == "plain" and fit(row).fits else "open", how)


def _is_dummy(row: ScannedTensor) -> bool:
    within = _DUMMY * (1 - 24 / row.count) < row.absmax <= _DUMMY * 1.01
    return (
        within
        and abs(row.std / (_DUMMY / 3**0.5) - 1) < 3 / row.count**0.5 + 0.01
        and (abs(row.kurtosis - UNIFORM.kurtosis) < 6 / row.count**0.5 + 0.05)
    )


def _is_around_zero(row: ScannedTensor) -> bool:
    low, high = row.quantiles[_LOWER], row.quantiles[_UPPER]
    return low < 0 < high and abs(row.mean) < 0.5 * row.std
