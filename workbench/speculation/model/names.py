"""A draft's tensors by one set of names, speculators', whatever layout its file has.

The layer of a target that predicts later tokens (MTP, NextN) is a layer of its own number, and its joining
tensors lie in it: ``model.layers.61.eh_proj.weight`` is ``eh_proj.weight``, and ``model.layers.61.mlp.…`` is
``layers.0.mlp.…``. MiMo calls the same tensors by other names; Qwen3 keeps them under ``mtp.``, apart from
its own layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Naming = Callable[[str], str]

_OLD = (
    ("midlayer.", "layers.0."),
    ("aux_norm_low.", "fc_norm.0."),
    ("aux_norm_mid.", "fc_norm.1."),
    ("aux_norm_high.", "fc_norm.2."),
)
# What lies in a prediction layer beside a decoder layer, as DeepSeek and GLM call it, and as MiMo does.
_JOINING = {
    "enorm.": "enorm.",
    "hnorm.": "hnorm.",
    "eh_proj.": "eh_proj.",
    "shared_head.norm.": "norm.",
    "shared_head.head.": "lm_head.",
    "embed_tokens.": "embed_tokens.",
    "token_layernorm.": "enorm.",
    "hidden_layernorm.": "hnorm.",
    "input_proj.": "eh_proj.",
    "final_layernorm.": "norm.",
}
_APART = "mtp."  # how Qwen's names begin
_JOINING_APART = {
    "fc.": "eh_proj.", "pre_fc_norm_embedding.": "enorm.", "pre_fc_norm_hidden.": "hnorm.",
    "norm.": "norm.",
}  # fmt: skip
_PREDICTION = re.compile(
    r"(?:^|\.)((?:mtp_)?layers\.\d{1,6}\.)"
    r"(?:enorm|hnorm|eh_proj|token_layernorm|hidden_layernorm|input_proj)\.weight$"
)
_OTHERS = re.compile(r"^(?:mtp_)?layers\.\d{1,6}\.|^norm\.")


def canonical(key: str) -> str:
    """Return a tensor's name as speculators spells it: ``model.midlayer.…`` is ``layers.0.…``."""
    name = key.removeprefix("model.")
    for old, new in _OLD:
        if name.startswith(old):
            name = new + name[len(old) :]
    return name


def prediction_layer(names: Iterable[str]) -> str:
    """Return how the names of a prediction layer begin, ``layers.61.``; "" where there is none."""
    names = list(names)
    if any(canonical(name).startswith(f"{_APART}pre_fc_norm_hidden.") for name in names):
        return _APART
    return next((match[1] for name in names if (match := _PREDICTION.search(name))), "")


def naming(names: Iterable[str]) -> Naming:
    """Return what gives each tensor of a file its name here."""
    begin = prediction_layer(names)
    return (lambda key: _predicting(key, begin)) if begin else canonical


def _predicting(key: str, begin: str) -> str:
    """Return a name in a file with a prediction layer; other layers are the target's."""
    name = canonical(key)
    if not name.startswith(begin):
        return f"target.{name}" if _OTHERS.match(name) else name
    rest = name.removeprefix(begin)
    for old, new in (_JOINING_APART if begin == _APART else _JOINING).items():
        if rest.startswith(old):
            return new + rest.removeprefix(old)
    # Qwen's expert that every token passes is called without the plural.
    rest = rest.replace("mlp.shared_expert.", "mlp.shared_experts.")
    return rest if begin == _APART else f"layers.0.{rest}"
