"""speculators' nested config in the flat form that a release's LlamaForCausalLMEagle3 reads.

No release of SGLang reads speculators' fields: the decoder layer's config moves to the top, and the auxiliary
layers into ``eagle_config``, as ids that mean the same layers in that release. What the class reads is a fact
of each release (`workbench.facts.features`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.checkpoint.config import Config, Flattened
from workbench.facts.capture_rules import RULES, Capture, capture_of
from workbench.facts.features import border, newest, since
from workbench.facts.rows import rows

DRAFT_CLASS = "LlamaForCausalLMEagle3"

# Fields of speculators that are copied to the top as they are.
_KEPT = ("draft_vocab_size", "norm_before_fc", "norm_output", "fc_norm", "embed_requires_grad")
# Fields that say how the draft was trained or packed; nothing is computed from them.
_PACKING = {
    "architectures", "auto_map", "model_type", "speculators_config", "speculators_model_type",
    "speculators_version", "transformer_layer_config", "transformers_version", "torch_dtype", "dtype",
}  # fmt: skip
_ROPE_LINEAR = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}


def flattened(config: Config, version: str = "") -> Flattened:
    """Return a flat config that a release's ``LlamaForCausalLMEagle3`` can read.

    A config that is flat already is returned unchanged, with nothing lost.

    Parameters
    ----------
    version
        Of SGLang: ids of auxiliary layers mean other layers in other releases. "", or a version that was not
        read: those of the newest release, and what is lost says so where that matters.

    Returns
    -------
    Flattened
        A dict, with `lost`: in words, what cannot be expressed there.
    """
    return _flat(config.raw, version) if config.layout == "speculators" else Flattened(config.raw)


def _flat(raw: Mapping[str, Any], version: str) -> Flattened:
    layer = dict(raw["transformer_layer_config"])
    lost: list[str] = []
    flat: dict[str, Any] = {
        k: v for k, v in layer.items() if k not in ("auto_map", "_name_or_path")
    }
    trained_as = layer.get("model_type")
    flat["architectures"] = [DRAFT_CLASS]
    flat["model_type"] = "llama"
    for key in _KEPT:
        if raw.get(key) is not None:
            flat[key] = raw[key]
    # SGLang does not read it; kept so that whoever looks at the flat copy still knows how it was trained.
    flat["norm_before_residual"] = bool(raw.get("norm_before_residual", True))
    flat["tie_word_embeddings"] = bool(raw.get("tie_word_embeddings", False))
    if raw.get("target_hidden_size") is not None:
        flat["target_hidden_size"] = raw["target_hidden_size"]
    dtype = (
        raw.get("torch_dtype") or raw.get("dtype") or layer.get("torch_dtype") or layer.get("dtype")
    )
    if dtype is not None:
        flat["torch_dtype"] = dtype
    _rope(flat, lost)
    _auxiliary_layers(raw, flat, lost, version)
    _norms(raw, lost, version)
    if trained_as not in (None, "llama"):
        qk = (
            " It has q_norm and k_norm, which the class lacks."
            if "qwen3" in str(trained_as)
            else ""
        )
        lost.append(
            f"transformer_layer_config.model_type {trained_as!r}: the class is a Llama layer.{qk}"
        )
    if layer.get("attention_bias"):
        lost.append("attention_bias: the class builds q, k and v without a bias.")
    if raw.get("embed_requires_grad"):
        lost.append(
            "embed_requires_grad: the draft has its own embeddings, but the class uses the "
            "target's."
        )
    known = _PACKING | set(_KEPT) | _HANDLED
    for key in raw:
        if key not in known and raw[key] is not None:
            if isinstance(raw[key], dict):
                lost.append(f"{key}: the class does not read it.")
            else:
                flat.setdefault(key, raw[key])
    return Flattened(flat, tuple(lost))


_HANDLED = {
    "eagle_aux_hidden_state_layer_ids", "target_hidden_size", "tie_word_embeddings", "norm_before_residual",
}  # fmt: skip


def _rope(flat: dict[str, Any], lost: list[str]) -> None:
    """Say the rotary embedding in the words of transformers 4 too: rope_theta and rope_scaling."""
    rope = flat.get("rope_parameters")
    if not isinstance(rope, dict):
        flat.setdefault("rope_theta", 10000.0)
        return
    if rope and all(isinstance(value, dict) for value in rope.values()):
        lost.append("rope_parameters by layer type: transformers 4 has one for all layers.")
        return
    flat.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
    if "partial_rotary_factor" in rope:
        flat.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default" and flat.get("rope_scaling") is None:
        scaling = {k: v for k, v in rope.items() if k not in _ROPE_LINEAR}
        flat["rope_scaling"] = {"rope_type": kind} | scaling


def _auxiliary_layers(
    raw: Mapping[str, Any], flat: dict[str, Any], lost: list[str], version: str
) -> None:
    ids = raw.get("eagle_aux_hidden_state_layer_ids")
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        flat["eagle_config"] = {"use_aux_hidden_state": True}
        return
    named = _target_classes(raw)
    capture = capture_of(version, named)
    if not capture.known:
        capture = capture_of(newest("sglang"), named)
        if version or _differs(named):
            unread = f"SGLang {version} was not read" if version else "the release is not named"
            lost.append(
                f"which layers the auxiliary ids mean: {unread}, and the ids are written for SGLang "
                f"{capture.version}."
            )
    layers = _target_layers(raw)
    written = capture.ids(ids, layers)
    if written is None:
        lost.append(_inexpressible(ids, capture, named))
    flat["eagle_config"] = {
        "eagle_aux_hidden_state_layer_ids": list(ids) if written is None else written,
        "use_aux_hidden_state": True,
    }


def _differs(named: list[str]) -> bool:
    """Whether releases capture layers of a target in different ways."""
    found = {row.value for name in named for row in rows("sglang", "captures", name)}
    return len(found & set(RULES)) > 1


def _inexpressible(ids: list[int], capture: Capture, named: list[str]) -> str:
    """Say why no ids name the inputs of these layers in a release."""
    if not named:
        return (
            f"which layers the auxiliary ids {ids} mean: the target's class (not named) is not known, and "
            "SGLang adds one to them for most targets."
        )
    if since("sglang", "eagle_config", capture.version) is False:
        first = border("sglang", "eagle_config")[1]
        return (
            f"the auxiliary ids {ids}: read from SGLang {first} on; older versions always take "
            "[2, n/2, n-3]."
        )
    if capture.row is None:
        return (
            f"which layers the auxiliary ids {ids} mean: SGLang {capture.version} has no rule for the "
            f"target's class {named[0]}."
        )
    if capture.rule is None:
        return (
            f"which layers the auxiliary ids {ids} mean: the rule of SGLang {capture.version} for "
            f"{capture.target} was not understood ({capture.place})."
        )
    if min(ids) == 0:
        return (
            f"auxiliary layer 0 (the embeddings): SGLang {capture.version} adds one to each id of this "
            "target."
        )
    if ids[0] == 1:
        return (
            f"auxiliary layers that begin with 1: SGLang {capture.version} reads such ids of this target as "
            "outputs of layers (it adds one to all), and cannot express the inputs that were meant."
        )
    return (
        f"which layers the auxiliary ids {ids} mean: SGLang {capture.version} decides that by the number of "
        f"layers of {capture.target}, which the config does not give."
    )


def _target_classes(raw: Mapping[str, Any]) -> list[str]:
    named = _verifier(raw).get("architectures")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def _target_layers(raw: Mapping[str, Any]) -> int | None:
    count = _verifier(raw).get("num_hidden_layers")
    return count if type(count) is int else None


def _verifier(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    config = raw.get("speculators_config")
    verifier = config.get("verifier") if isinstance(config, dict) else None
    return verifier if isinstance(verifier, dict) else {}


def _norms(raw: Mapping[str, Any], lost: list[str], version: str) -> None:
    if raw.get("norm_before_residual", True):
        said = "true" if "norm_before_residual" in raw else "not given, and true by default"
        lost.append(
            f"norm_before_residual ({said}): the class always adds the residual before the norm, so "
            "the hidden states differ from those in training."
        )
    for name, then in (
        ("norm_output", "ignore it silently"),
        ("norm_before_fc", "lose input_norm.weight"),
    ):
        if raw.get(name) and not since("sglang", name, version):
            first = border("sglang", name)[1]
            lost.append(f"{name}: read from SGLang {first} on; older versions {then}.")
