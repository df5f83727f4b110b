"""Which kind of draft a checkpoint is: EAGLE-3, another kind that is replayed, or one that is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.errors import shown
from workbench.speculation.model.joining import Joining
from workbench.speculation.model.names import naming, prediction_layer

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint

_CENTRED = ("qwen3_next", "qwen3_5")  # types of models with Gemma's norms and gated attention
_MOST = 4096  # no draft has as many tensors, and the search reads every name


@dataclasses.dataclass(frozen=True, slots=True)
class Replayed:
    """How a draft that is replayed joins embedding and features, and what its layer is.

    Attributes
    ----------
    joining
        How embedding and features enter it.
    hidden_first
        MiMo's layout: the feature before the embedding.
    routed, shared
        Whether its layer has experts, and a part beside them that every token passes.
    centred
        Whether it is of Qwen3-Next's kind: norms that are saved less one, a gate of the attention.
    """

    joining: Joining
    hidden_first: bool = False
    routed: bool = False
    shared: bool = False
    centred: bool = False


EAGLE3 = Replayed("eagle3")


@dataclasses.dataclass(frozen=True, slots=True)
class DraftKind:
    """A kind of draft that is not EAGLE-3's.

    Attributes
    ----------
    name
        What it is called: ``P-EAGLE``.
    how
        How it drafts, and why this one is not replayed where others of its kind are.
    mark
        What shows it in this checkpoint.
    replayed
        How it is computed; None where it is not.
    """

    name: str
    how: str
    mark: str
    replayed: Replayed | None = None


_HOW = {
    "P-EAGLE": "it drafts all positions at once, from a hidden state in the place of what is not known yet",
    "DFlash": "it fills a block of masked positions at once",
    "DSpark": "it drafts a block of positions at once",
    "Medusa": "each of its heads guesses one position from the target's last features alone",
    "EAGLE-1 or EAGLE-2": "it reads the target's last features, and joins them with the embedding in fc",
    "MTP (NextN)": "it is a layer of its target, and reads the target's last features",
}
# Names as speculators and the model classes have them, and the kind.
_SPECULATORS = {
    "peagle": "P-EAGLE", "dflash": "DFlash", "dspark": "DSpark", "eagle": "EAGLE-1 or EAGLE-2",
    "mtp": "MTP (NextN)", "medusa": "Medusa",
}  # fmt: skip
_EAGLE, _MTP = "EAGLE-1 or EAGLE-2", "MTP (NextN)"
_CLASSES = {
    "dflash": "DFlash", "dspark": "DSpark", "medusa": "Medusa", "nextn": "MTP (NextN)", "mtp": "MTP (NextN)",
    "peagle": "P-EAGLE",
}  # fmt: skip


def other_kind(checkpoint: Checkpoint) -> DraftKind | None:
    """Return the kind of a draft that is not EAGLE-3's, None where nothing says that it is another."""
    found = next(_marks(checkpoint), None)
    if found is None:
        return None
    name, mark = found
    if name not in (_EAGLE, _MTP):
        return DraftKind(name, _HOW[name], mark)
    why, replayed = _computed(checkpoint, name)
    how = f"{_HOW[name]}; {why}" if why else _HOW[name]
    return DraftKind(name, how, mark, replayed)


def replayed_as(checkpoint: Checkpoint) -> Replayed:
    """Return how a draft is computed; one of a kind that is not replayed is taken for EAGLE-3's."""
    found = other_kind(checkpoint)
    return EAGLE3 if found is None or found.replayed is None else found.replayed


def _computed(checkpoint: Checkpoint, name: str) -> tuple[str, Replayed | None]:
    """Return why a draft that reads the target's last features is not computed, else how it is."""
    config = checkpoint.config
    if config.layout == "speculators":
        return "speculators' form of it is not replayed", None
    odd = next((c for c in config.architectures if "eagle3" in c.lower()), "")
    if odd:
        return f"but its class is {shown(odd, 60)}", None
    if name == _EAGLE:
        return "", Replayed("eagle")
    begin, named = prediction_layer(checkpoint.names), naming(checkpoint.names)
    if not begin:
        return (
            "the names of its tensors are not those of DeepSeek's, GLM's, MiMo's or Qwen3's layer",
            None,
        )
    held = {named(key) for key in checkpoint.names}
    routed = any(key.startswith("layers.0.mlp.experts.") for key in held)
    if routed and "layers.0.mlp.experts.0.gate_proj.weight" not in held:
        return "its experts are not saved one by one, which is not read here", None
    if not any(key.startswith("layers.0.mlp.") for key in held):
        return "its layer has no feed-forward part that is known here", None
    shared = any(key.startswith("layers.0.mlp.shared_experts.") for key in held)
    if any(key.startswith("layers.1.") for key in held):
        return "it has more than one layer", None
    kind = str(config.text.get("model_type", config.get("model_type")))
    return "", Replayed(
        "mtp", begin.startswith("mtp_"), routed, routed and shared, kind.startswith(_CENTRED)
    )


def _marks(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Yield each kind that something names, and what does."""
    raw, text = checkpoint.config.raw, checkpoint.config.text
    said = str(raw.get("speculators_model_type", "")).lower()
    if said in _SPECULATORS:
        yield (
            _SPECULATORS[said],
            f"speculators_model_type is {shown(raw['speculators_model_type'])}",
        )
    for name in (*checkpoint.config.architectures, str(raw.get("model_type", ""))):
        kind = next((k for part, k in _CLASSES.items() if part in name.lower()), "")
        if kind and "eagle3" not in name.lower():
            yield kind, f"its class or type is {shown(name, 60)}"
    for name in ("parallel_drafting", "ptd_token_id"):
        value = text.get(name, raw.get(name))
        if value not in (None, False):
            yield "P-EAGLE", f"{name} is {shown(value, 20)} in config.json"
    if "dflash_config" in raw:
        yield "DFlash", "config.json has a dflash_config"
    if type(raw.get("medusa_num_heads")) is int:
        yield "Medusa", "config.json has medusa_num_heads"
    yield from _of_tensors(checkpoint)
    for name in checkpoint.config.architectures:
        if name.endswith("ForCausalLMEagle") and not _eagle3_tensors(checkpoint):
            yield _EAGLE, f"its class is {shown(name, 60)}"


def _eagle3_tensors(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint has what only an EAGLE-3 draft has."""
    ends = ("hidden_norm.weight", "d2t")
    names = checkpoint.names[:_MOST]
    return any(name == end or name.endswith(f".{end}") for name in names for end in ends)


def _of_tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    names = checkpoint.names[:_MOST]

    def having(*parts: str) -> str:
        return next((n for n in names for p in parts if n == p or n.endswith(f".{p}")), "")

    if found := having("mask_hidden"):
        yield "P-EAGLE", f"it has {shown(found, 60)}"
    if found := next((n for n in names if "medusa_head" in n), ""):
        yield "Medusa", f"it has {shown(found, 60)}"
    joins = having("eh_proj.weight"), having("input_proj.weight"), having("mtp.fc.weight")
    norms = (
        having("enorm.weight", "hnorm.weight"),
        having("hidden_layernorm.weight"),
        having("pre_fc_norm_hidden.weight"),
    )
    for found, norm in zip(joins, norms, strict=True):
        if found and norm:
            yield _MTP, f"it has {shown(found, 60)}"
    fc = having("fc.weight")
    other = having("hidden_norm.weight", "d2t", "t2d", "input_norm.weight", "fc_norm.0.weight")
    hidden = checkpoint.config.text.get("hidden_size")
    queries = having("layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_a_proj.weight")
    if fc and queries and not other and type(hidden) is int:
        shape = tuple(checkpoint[fc].shape)
        if shape[1:] == (2 * hidden,) and tuple(checkpoint[queries].shape[1:]) == (hidden,):
            yield "EAGLE-1 or EAGLE-2", f"{fc} is {list(shape)}, and its layer has no hidden_norm"
