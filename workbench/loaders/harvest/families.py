"""Names that almost match: what writers, wrappers and other releases make of a right name.

Each family turns a name, or its template, into another. A map holds what the engine did with a member of each
family; the workbench turns the map's templates in the same way to recognise a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Change = Callable[[str], str]
ADDED = (
    "model.", "language_model.", "module.", "draft_model.", "base_model.model.", "transformer.",
    "model.language_model.", "language_model.model.", "_orig_mod.",
)  # fmt: skip
_REPLACED = (
    (r"^model\.", "language_model.model."),
    (r"^model\.", "model.language_model."),
    (r"^model\.", "transformer."),
    (r"^model\.language_model\.", "model."),
    (r"^model\.language_model\.", "language_model.model."),
    (r"^language_model\.model\.", "model.language_model."),
    (r"^language_model\.model\.", "model."),
    (r"^language_model\.", ""),
    (r"^model\.visual\.", "visual."),
    (r"^visual\.", "model.visual."),
    (r"^(model\.)?layers\.(0|\{\})\.", r"midlayer."),
    (r"^(model\.)?midlayer\.", r"layers.0."),
    (r"^(model\.)?midlayer\.", r"model.layers.0."),
    (r"^model\.", "mtp."),
    (r"^model\.language_model\.", "mtp."),
    (r"\.layers\.", ".h."),
    (r"\.self_attn\.", ".attn."),
    (r"\.mlp\.", ".feed_forward."),
)
_BESIDE = (
    (r"\.weight$", ".bias"),
    (r"\.weight$", ".weight_scale"),
    (r"\.weight$", ".weight_scale_inv"),
    (r"\.weight$", ".qweight"),
    (r"\.(q_proj|qkv_proj)\.weight$", ".rotary_emb.inv_freq"),
    (r"\.q_proj\.weight$", ".q_norm.weight"),
    (r"\.k_proj\.weight$", ".k_norm.weight"),
    (r"\.k_proj\.weight$", ".k_scale"),
    (r"\.k_proj\.weight$", ".k_proj.k_scale"),
)
# Names that stand alone in checkpoints of many kinds.
WORDS = (
    "t2d", "d2t", "model.d2t", "lm_head.weight", "embed_tokens.weight", "model.embed_tokens.weight",
    "verifier_lm_head.weight", "verifier_norm.weight", "model.norm.weight", "norm.weight", "fc.weight",
    "score.weight", "mask_embedding", "model.rotary_emb.inv_freq",
)  # fmt: skip
# What a target's file has for its layer of multi-token prediction; ``N`` is the number of layers.
PREDICTION = (
    "model.layers.N.eh_proj.weight", "model.layers.N.enorm.weight", "model.layers.N.hnorm.weight",
    "model.layers.N.embed_tokens.weight", "model.layers.N.shared_head.norm.weight",
    "model.layers.N.shared_head.head.weight", "mtp.fc.weight", "mtp.norm.weight",
    "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
)  # fmt: skip


def _regular(pattern: str, text: str) -> Change:
    return lambda name: re.sub(pattern, text, name, count=1)


def _without_first(name: str) -> str:
    return name.partition(".")[2]


def _without_two(name: str) -> str:
    return _without_first(_without_first(name))


def all_families() -> Iterator[tuple[str, Change]]:
    """Yield each family's name and what it does to a name."""
    for prefix in ADDED:
        yield f"+{prefix}", lambda name, prefix=prefix: prefix + name  # type: ignore[misc]
    yield "-1", _without_first
    yield "-2", _without_two
    for pattern, text in (*_REPLACED, *_BESIDE):
        yield f"{pattern} {text}", _regular(pattern, text)
