"""Each fault: how the shipped draft's file and config are written wrong, and what the cause then is.

No switch of the ablations writes a fault: a file is changed as an exporter, a converter or a person would.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from workbench.checkpoint.open import open_checkpoint
from workbench.facts.flat_config import flattened

INCIDENT = Path(__file__).resolve().parents[3] / "data" / "incident"
Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]
Change = Callable[[Tensors, Config], None]
LAYER = "layers.0."
OLD, NEW, NEWEST, TRAINER = "sglang==0.5.11", "sglang==0.5.14", "sglang==0.5.20", ""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One case.

    Attributes
    ----------
    changes
        What is written wrong, in turn.
    facts
        What the verdict must name; empty for a control, in which nothing may be accused.
    engine, algorithm
        How it is served.
    """

    name: str
    words: str
    changes: tuple[Change, ...]
    facts: frozenset[str]
    engine: str = NEW
    algorithm: str = "EAGLE3"


def write(changes: tuple[Change, ...], folder: Path) -> Path:
    """Write the healthy draft with changes, in the flat form that engines read."""
    source = INCIDENT / "drafts" / "speculators"
    tensors = load_file(source / "model.safetensors")
    config = dict(flattened(open_checkpoint(source).config))
    config["eagle_aux_hidden_state_layer_ids"] = [2, 6, 9]
    for change in changes:
        change(tensors, config)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def renamed(old: str, new: str) -> Change:
    """Rename keys that begin with `old`."""

    def change(tensors: Tensors, config: Config) -> None:
        for name in [n for n in tensors if n.startswith(old)]:
            tensors[new + name[len(old) :]] = tensors.pop(name)

    return change


def said(**fields: Any) -> Change:
    """Write fields into the config."""
    return lambda tensors, config: config.update(fields)


def blocks(order: tuple[int, ...]) -> Change:
    """Write fc with its blocks in another order."""

    def change(tensors: Tensors, config: Config) -> None:
        parts = tensors["fc.weight"].chunk(3, dim=1)
        tensors["fc.weight"] = torch.cat([parts[k] for k in order], dim=1)

    return change


def exchanged(one: str, other: str) -> Change:
    """Save two tensors under each other's name."""

    def change(tensors: Tensors, config: Config) -> None:
        a, b = LAYER + one + ".weight", LAYER + other + ".weight"
        tensors[a], tensors[b] = tensors[b], tensors[a]

    return change


def halves(tensors: Tensors, config: Config) -> None:
    """Write q, k and v for the feature before the embedding."""
    for part in ("q", "k", "v"):
        name = f"{LAYER}self_attn.{part}_proj.weight"
        tensors[name] = torch.cat(tensors[name].chunk(2, dim=1)[::-1], dim=1)


def neighbours(tensors: Tensors, config: Config) -> None:
    """Write q and k with rotary pairs side by side, as Meta's checkpoints have them."""
    for part, heads in (("q", 4), ("k", 2)):
        name = f"{LAYER}self_attn.{part}_proj.weight"
        rows = tensors[name].reshape(heads, 2, 32, -1)
        tensors[name] = rows.transpose(1, 2).reshape(heads * 64, -1)


def absolute(tensors: Tensors, config: Config) -> None:
    """Save target ids in d2t, not offsets."""
    tensors["d2t"] = tensors["d2t"] + torch.arange(len(tensors["d2t"]))


def zeros(tensors: Tensors, config: Config) -> None:
    """Save a d2t that was never filled."""
    tensors["d2t"].zero_()


def lost(name: str) -> Change:
    """Leave a tensor out."""

    def change(tensors: Tensors, config: Config) -> None:
        del tensors[name]

    return change


def listed(*layers: int) -> Change:
    """Name auxiliary layers where SGLang reads them."""
    return said(
        eagle_config={
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(layers),
        }
    )


def other_tokenizer(tensors: Tensors, config: Config) -> None:
    """Ship an embedding whose rows belong to a tokenizer with eight more special tokens."""
    table = load_file(INCIDENT / "target" / "model.safetensors")["model.embed_tokens.weight"]
    tensors["embed_tokens.weight"] = table.roll(8, dims=0)


def normed_features(tensors: Tensors, config: Config) -> None:
    """Ship a norm before fc that the draft was trained without."""
    config["norm_before_fc"] = True
    tensors["input_norm.weight"] = torch.ones(768, dtype=torch.bfloat16)


def noise(share: float) -> Change:
    """Take the weights part of the way back to an initialisation: a draft that was not trained long."""

    def change(tensors: Tensors, config: Config) -> None:
        generator = torch.Generator().manual_seed(5)
        for name, value in tensors.items():
            if value.dim() == 2:
                fresh = torch.empty(value.shape).normal_(
                    0, float(value.float().std()), generator=generator
                )
                mixed = (1 - share) * value.float() + share * fresh
                tensors[name] = mixed.to(value.dtype)

    return change


def fault(name: str, words: str, facts: str, *changes: Change, **how: str) -> Fault:
    return Fault(name, words, changes, frozenset(filter(None, facts.split("/"))), **how)


SINGLE = (
    fault("layer-dropped", "the trainer's keys before 0.5.12", "decoder layer", engine=OLD),
    fault("layer-prefixed", "the layer saved under draft_model.", "decoder layer",
          renamed(LAYER, "draft_model." + LAYER)),
    fault("mlp-dropped", "only the feed-forward part keeps the trainer's keys", "decoder layer",
          renamed(LAYER, "midlayer."), renamed("midlayer.mlp.", LAYER + "mlp."), engine=OLD),
    fault("fc-prefixed", "fc saved under draft_model.", "fc", renamed("fc.", "draft_model.fc.")),
    fault("last-norm-prefixed", "the last norm saved under draft_model.", "last norm",
          renamed("norm.", "draft_model.norm.")),
    fault("lm-head-missing", "no lm_head in the file", "lm_head", lost("lm_head.weight")),
    fault("fc-reversed", "fc's blocks from high to low", "fc order", blocks((2, 1, 0))),
    fault("fc-rotated", "fc's blocks moved by one", "fc order", blocks((1, 2, 0))),
    fault("input-halves", "feature before embedding in q, k, v", "input order", halves),
    fault("gate-up", "gate and up saved under each other's name", "gate and up",
          exchanged("mlp.gate_proj", "mlp.up_proj")),
    fault("entry-norms", "hidden_norm and input_layernorm exchanged", "entry norms",
          exchanged("hidden_norm", "input_layernorm")),
    fault("d2t-absolute", "target ids in d2t", "draft vocabulary", absolute),
    fault("d2t-zeros", "d2t never filled", "draft vocabulary", zeros),
    fault("aux-plus-one", "the trainer's layer ids in eagle_config", "auxiliary layers",
          listed(2, 6, 9)),
    fault("aux-late", "layers 4, 8, 11 in eagle_config", "auxiliary layers", listed(3, 7, 10)),
    fault("norm-output", "norm_output claimed", "norm_output", said(norm_output=True)),
    fault("fc-norm", "fc_norm claimed, no weights", "fc_norm", said(fc_norm=True)),
    fault("norm-before-fc", "a norm before fc shipped", "norm_before_fc", normed_features,
          engine=NEWEST),
    fault("norm-before-residual", "norm_before_residual claimed", "norm_before_residual",
          said(norm_before_residual=True), engine=TRAINER),
    fault("theta", "rope_theta 100", "rotary positions",
          said(rope_theta=100.0, rope_parameters={"rope_theta": 100.0, "rope_type": "default"})),
    fault("rope-linear", "linear rotary scaling by 8", "rotary positions",
          said(rope_parameters={"rope_theta": 1e4, "rope_type": "linear", "factor": 8.0})),
    fault("rope-partial", "a quarter of each head turned", "rotary positions",
          said(partial_rotary_factor=0.25, rope_parameters={
               "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.25})),
    fault("rope-pairs", "q and k for rotary pairs of neighbours", "rotary pairs", neighbours),
    fault("embedding", "the embedding of another tokenizer shipped", "embedding",
          other_tokenizer, engine=TRAINER),
    fault("eagle", "launched as EAGLE", "launch", algorithm="EAGLE"),
)  # fmt: skip

PAIRS = (
    fault("eagle+layer-dropped", "the incident: EAGLE, and the trainer's keys",
          "launch/decoder layer", engine=OLD, algorithm="EAGLE"),
    fault("layer-dropped+aux", "the trainer's keys, and layers 4, 8, 11",
          "decoder layer/auxiliary layers", listed(3, 7, 10), engine=OLD),
    fault("fc-reversed+norm-output", "fc's blocks reversed, norm_output claimed",
          "fc order/norm_output", blocks((2, 1, 0)), said(norm_output=True)),
    fault("fc-reversed+d2t-zeros", "fc's blocks reversed, d2t never filled",
          "fc order/draft vocabulary", blocks((2, 1, 0)), zeros),
    fault("input-halves+d2t-absolute", "input halves exchanged, target ids in d2t",
          "input order/draft vocabulary", halves, absolute),
    fault("input-halves+gate-up", "input halves exchanged, gate and up exchanged",
          "input order/gate and up", halves, exchanged("mlp.gate_proj", "mlp.up_proj")),
    fault("rope-pairs+fc-norm", "rotary pairs of neighbours, fc_norm claimed",
          "rotary pairs/fc_norm", neighbours, said(fc_norm=True)),
    fault("gate-up+theta", "gate and up exchanged, rope_theta 100",
          "gate and up/rotary positions", exchanged("mlp.gate_proj", "mlp.up_proj"),
          said(rope_theta=100.0, rope_parameters={"rope_theta": 100.0, "rope_type": "default"})),
    fault("embedding+fc-rotated", "another tokenizer's embedding, fc's blocks moved",
          "embedding/fc order", other_tokenizer, blocks((1, 2, 0)), engine=TRAINER),
    fault("eagle+fc-reversed", "launched as EAGLE, fc's blocks reversed", "launch/fc order",
          blocks((2, 1, 0)), algorithm="EAGLE"),
)  # fmt: skip

CONTROLS = (
    fault("healthy", "nothing wrong", ""),
    fault("healthy-as-trained", "nothing wrong, by the trainer's semantics", "", engine=TRAINER),
    fault("undertrained-little", "weights a tenth of the way back to an initialisation", "",
          noise(0.1)),
    fault("undertrained", "weights a fifth of the way back", "", noise(0.2)),
    fault("barely-trained", "weights a third of the way back", "", noise(0.33)),
)  # fmt: skip
