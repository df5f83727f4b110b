"""Which kind of draft a checkpoint is, where it is not EAGLE-3: the replay drafts as EAGLE-3 does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.errors import shown

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint

_MOST = 4096  # no draft has as many tensors, and the search reads every name


@dataclasses.dataclass(frozen=True, slots=True)
class DraftKind:
    """A kind of draft that is not replayed.

    Attributes
    ----------
    name
        What it is called: ``P-EAGLE``.
    how
        How it drafts.
    mark
        What shows it in this checkpoint.
    """

    name: str
    how: str
    mark: str


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
    return DraftKind(name, _HOW[name], mark)


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


def _of_tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    names = checkpoint.names[:_MOST]

    def having(*parts: str) -> str:
        return next((n for n in names for p in parts if n == p or n.endswith(f".{p}")), "")

    if found := having("mask_hidden"):
        yield "P-EAGLE", f"it has {shown(found, 60)}"
    if found := next((n for n in names if "medusa_head" in n), ""):
        yield "Medusa", f"it has {shown(found, 60)}"
    if (found := having("eh_proj.weight")) and having("enorm.weight", "hnorm.weight"):
        yield "MTP (NextN)", f"it has {shown(found, 60)}"
    fc = having("fc.weight")
    other = having("hidden_norm.weight", "d2t", "t2d", "input_norm.weight", "fc_norm.0.weight")
    hidden = checkpoint.config.text.get("hidden_size")
    queries = having("layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_a_proj.weight")
    if fc and queries and not other and type(hidden) is int:
        shape = tuple(checkpoint[fc].shape)
        if shape[1:] == (2 * hidden,) and tuple(checkpoint[queries].shape[1:]) == (hidden,):
            yield "EAGLE-1 or EAGLE-2", f"{fc} is {list(shape)}, and its layer has no hidden_norm"
