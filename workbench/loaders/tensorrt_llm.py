"""What TensorRT-LLM's PyTorch backend does with an EAGLE-3 draft.

It walks over its modules and asks the checkpoint for each one's tensors, so a key that no module asks for is
never noticed, and a module for which there is nothing is left as it was created.

Read from the development branch of 2026 (commit 00679c6), which goes towards 1.3; no release wheel could be
read, and 1.2.0rc2 does otherwise: it renames no key, and stops at a module without tensors.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from workbench.loaders.config_checks import ANY, check
from workbench.loaders.families import Blueprint, Sizes, decoder_layer, whole, whole_or
from workbench.loaders.profile import Model, NotCovered, Profile, Refused, Route, indices

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

__all__ = ["PROFILES", "class_for"]

FILE = "tensorrt_llm/_torch/models/modeling_speculative.py"
PLACE = f"{FILE} Eagle3ForCausalLM.load_weights (main, 2026)"
CLASSES = ("LlamaForCausalLMEagle3", "EAGLE3LlamaForCausalLM")
# What the launch's eagle3_layers_to_capture decides; three where it says nothing.
CAPTURED = 3

_LAYER = re.compile(r"^layers\.(\d+)\.")
_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


def class_for(config: Config) -> str:
    """Return the class that a config.json asks for, "" where it names none."""
    return config.architectures[0] if config.architectures else ""


def build(config: Config) -> Model:
    """Return what the class builds from a config."""
    if config.layout in ("speculators", "none"):
        raise Refused("config.json has no model_type at the top", "transformers AutoConfig")
    check(config, ANY)
    if config.get("quantization_config", None):
        raise NotCovered("a quantised draft: its packed parameters are not described")
    if config.get("tie_word_embeddings", False):
        raise NotCovered("a draft with tied embeddings is not described")
    if "target_hidden_size" in config.text and config.get("target_hidden_size") is None:
        raise Refused("target_hidden_size is null: TypeError; leave the field out", FILE)
    size = Sizes.of(config)
    eagle = config.get("eagle_config", None) or {}
    if not isinstance(eagle, dict):
        raise NotCovered(f"eagle_config is {eagle!r:.60}, not an object")
    if eagle.get("eh_proj_before_attn") or eagle.get("next_layer_regular") is False:
        raise NotCovered("eh_proj_before_attn and next_layer_regular are not described")
    inside = whole(config, "target_hidden_size", size.hidden)
    vocab = whole_or(config, "draft_vocab_size", size.vocab)
    out = Blueprint()
    out.add("model.embed_tokens.weight", (size.vocab, size.hidden))
    out.linear("model.fc", size.hidden, CAPTURED * inside, bias=config.get("bias", False) is True)
    if eagle.get("norm_before_fc", False):
        out.add("model.input_norm.weight", (CAPTURED * inside,))
    if config.get("fc_norm", False):
        out.add("model.fc_norm.{}.weight", (inside,), indices(range(CAPTURED)))
    _layers(out, config, size)
    out.add("model.norm.weight", (size.hidden,))
    if vocab != size.vocab:
        out.add("model.d2t", (vocab,))
    out.add("lm_head.weight", (vocab, size.hidden))
    own = inside != size.hidden
    return out.model(
        shared={} if own else {"model.embed_tokens.weight": "the target's embed_tokens"},
        fallback={"lm_head.weight": "the target's lm_head"},
        special=frozenset({0}),  # the one number that a single layer's names are renamed for
        facts={
            "aux_layers": CAPTURED,
            "draft_vocab_size": vocab,
            "vocab_size": size.vocab,
            "one_layer": size.layers == 1,
            "own_embedding": own,
        },
    )


def _layers(out: Blueprint, config: Config, size: Sizes) -> None:
    """Add the decoder layers: only the first takes the embedding beside the hidden state."""
    bias = bool(config.get("attention_bias", False))
    mlp_bias = bool(config.get("mlp_bias", False))
    name = "model.midlayer" if size.layers == 1 else "model.midlayer.{}"
    decoder_layer(
        out, name, range(1), size,
        columns=2 * size.hidden, norms=_NORMS, bias=bias, out_bias=bias, mlp_bias=mlp_bias,
    )  # fmt: skip
    if size.layers > 1:
        decoder_layer(
            out, name, range(1, size.layers), size,
            norms=_NORMS[1:], bias=bias, out_bias=bias, mlp_bias=mlp_bias,
        )  # fmt: skip
    # The loader asks for q, k, v, gate and up one by one; a ready-fused tensor is never looked at.
    out.slots[:] = [slot for slot in out.slots if not slot.alternative]


def route(key: str, model: Model) -> Route:
    """Return where a key goes."""
    if key == "t2d":
        return Route("ignore", reason="no module asks for it; d2t is enough", place=PLACE)
    if key == "embed_tokens.weight" and not model.facts["own_embedding"]:
        return Route("ignore", reason="the target's embedding is taken", place=FILE)
    if "lm_head" in key:
        return Route("load", key)
    if model.facts["one_layer"]:
        name = re.sub(r"^layers\.0\.", "midlayer.", key)
    else:
        name = _LAYER.sub(r"midlayer.\1.", key)
    return Route("load", f"model.{name}")


_PROFILE = Profile(
    "tensorrt-llm",
    CLASSES[0],
    "1.3.0rc0",
    "1.3.0rc0",
    PLACE,
    build,
    route,
    unknown="silent",
    missing="silent",
    mismatch="raises",
    notes={
        "unknown": "tensorrt_llm/_torch/models/modeling_utils.py _load_weights_impl_v2: it asks "
        "module by module (main, 2026)",
        "missing": "the same: a module without any tensor is skipped; one with only some of them "
        "stops at an assert (main, 2026)",
        "renames": PLACE,
        "embed": f"{FILE} load_weights_from_target_model (main, 2026)",
        "lm_head": f"{FILE} load_weights_from_target_model (main, 2026)",
    },
)

PROFILES: tuple[Profile, ...] = tuple(
    dataclasses.replace(_PROFILE, model_class=name) for name in CLASSES
)
