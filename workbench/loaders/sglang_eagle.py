"""SGLang's classes for drafts of the first EAGLE generation, on Llama and on Qwen2.

Read in models/llama_eagle.py and models/qwen2_eagle.py of every release from 0.4.4 to 0.5.23: what they
build and load is the same in all. They hand each key but those of a head to the loader of the target's
class, under ``model.`` + key; the worker then puts the target's embedding and head into the draft.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from workbench.loaders.families import Blueprint, decoder_layer
from workbench.loaders.profile import Model, NotCovered, Profile, Route, indices
from workbench.loaders.sglang_eagle3 import EMBED, HEAD
from workbench.loaders.sglang_parts import (
    cut_to_share,
    flag,
    last_alike,
    mismatch_place,
    place_in,
    readable,
    release,
    sizes,
    verified_in,
    vocabulary,
    worker_place,
)
from workbench.loaders.sglang_targets import DENSE_RANGES, Dense

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

_NO_HEAD = "the loader skips every key with lm_head in it: the target's head is taken"


def _draft_file(base: Dense) -> str:
    return base.file.replace(".py", "_eagle.py")


@dataclasses.dataclass(frozen=True)
class Eagle:
    """One range of releases of a class; `base` is what the target's class does in it."""

    base: Dense
    seen: str = ""

    @property
    def model_class(self) -> str:
        """The draft's class."""
        return f"{self.base.model_class}Eagle"

    def place(self, what: str) -> str:
        """Return where a claim stands."""
        return place_in(_draft_file(self.base), self.seen or self.base.last, what)

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.seen or self.base.last)
        if config.get("quantization_config", None):
            raise NotCovered("a quantised EAGLE draft: its packed parameters are not described")
        activation = config.get("hidden_act", "silu")
        if activation != "silu":
            raise NotCovered(f"hidden_act {activation!r}")
        size = sizes(config)
        out = Blueprint()
        vocabulary(out, "model.embed_tokens", size.vocab, size.hidden)
        out.add("model.fc.weight", (size.hidden, 2 * size.hidden))
        out.add("model.fc.bias", (size.hidden,))
        own = flag(config, "attention_bias") or flag(config, "bias")
        bias, out_bias = (own, own) if self.base.is_llama else (True, False)
        # The first layer has no input_layernorm.
        norms = ("post_attention_layernorm",)
        decoder_layer(
            out, "model.layers.{}", range(size.layers), size, norms=norms, bias=bias, out_bias=out_bias
        )  # fmt: skip
        if size.layers > 1:
            later = indices(range(1, size.layers))
            out.add("model.layers.{}.input_layernorm.weight", (size.hidden,), later)
        shared = {"model.embed_tokens.weight": EMBED}
        if not flag(config, "tie_word_embeddings"):
            vocabulary(out, "lm_head", size.vocab, size.hidden)
            shared["lm_head.weight"] = HEAD
        cut_to_share(out, self.base.first)
        if not self.base.is_llama:
            out.slots[:] = [slot for slot in out.slots if not slot.alternative]
        facts = {
            "hidden_size": size.hidden,
            "vocab_size": size.vocab,
            "num_layers": size.layers,
            "head_dim": size.head_dim,
            "embed_from_target": True,
            "lm_head_from_target": True,
        }
        return out.model(shared=shared, facts=facts)

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        if "lm_head" in key:
            return Route("ignore", reason=_NO_HEAD, place=self.place("load_weights"))
        return self.base.route(f"model.{key}", model)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        version = self.seen or self.base.last
        base = self.base.profile()
        return Profile(
            "sglang",
            self.model_class,
            self.base.first,
            self.base.last,
            self.place("load_weights"),
            self.build,
            self.route,
            verified=verified_in(self.base.first, self.base.last),
            unknown=base.unknown,
            missing="silent",
            mismatch="raises",
            notes={
                "unknown": base.notes["unknown"],
                "missing": f"{self.place('load_weights')}: it never checks for parameters that were "
                "not written",
                "mismatch": mismatch_place(version),
                "embed": worker_place("set_embed_and_head", version),
                "lm_head": worker_place("set_embed_and_head", version),
                "fc_bias": f"{self.place('fc')}: torch.nn.Linear without bias=False",
            },
        )


def _of(base: Dense) -> Eagle:
    # The draft's own list of layers says nothing of pipeline stages: no layer is passed over.
    last = min(base.last, last_alike(_draft_file(base)), key=release)
    return Eagle(dataclasses.replace(base, last=last, skips_layers=False))


EAGLE_RANGES: tuple[Eagle, ...] = tuple(
    _of(base)
    for base in DENSE_RANGES
    if base.model_class in ("LlamaForCausalLM", "Qwen2ForCausalLM")
)
