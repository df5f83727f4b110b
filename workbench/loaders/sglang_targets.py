"""SGLang's dense target classes: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM.

Their loaders are siblings: a list of stacked projections, a few kinds of keys skipped on purpose, and a
warning (older: a KeyError) for the rest. Since 0.5.17 the first two can be switched to another loader
by SGLANG_ENABLE_WEIGHT_LOADER_V2, which is off by default and not described here.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from workbench.loaders.families import PLAIN, Blueprint, decoder_layer, layout_of
from workbench.loaders.profile import Model, NotCovered, Profile, Reaction, Route
from workbench.loaders.sglang_parts import (
    BEYOND,
    cut_to_share,
    flag,
    last_alike,
    mismatch_place,
    place_in,
    readable,
    sizes,
    verified_in,
    vocabulary,
)

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

_LAYER = re.compile(r"layers\.(\d+)\.")
# Substrings of a key that the loaders skip on purpose.
_SKIPPED = {
    "rotary_emb.inv_freq": "a table that SGLang computes itself",
    "rotary_emb.cos_cached": "a table that SGLang computes itself",
    "rotary_emb.sin_cached": "a table that SGLang computes itself",
    "projector": "SGLang skips every key with projector in it",
}
# Lists of layers that are not quantised: a class keeps q, k and v, or gate and up, in one.
_LISTS = ("ignore", "modules_to_not_convert", "ignored_layers")
_STACKED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_FUSED = ("qkv_proj", "gate_up_proj")
_KV_SCALES = (".k_scale", ".v_scale", ".kv_scale")


@dataclasses.dataclass(frozen=True)
class Dense:
    """One range of releases of a dense target class.

    Attributes
    ----------
    file
        Where load_weights stands: the end of the module's path.
    stacked, plain
        The reaction to a q/k/v/gate/up key without a parameter, and to any other.
    skips_layers
        Keys of layers past num_hidden_layers are skipped as if another pipeline stage had them.
    adds_model
        Keys that start with layers., embed_tokens. or norm. get the prefix ``model.``.
    """

    model_class: str
    first: str
    last: str
    file: str
    stacked: Reaction
    plain: Reaction = "warning"
    skips_layers: bool = True
    adds_model: bool = False
    seen: str = ""

    @property
    def place(self) -> str:
        """Where load_weights stands."""
        return place_in(self.file, self.seen or self.last, "load_weights")

    @property
    def is_llama(self) -> bool:
        """Whether this is the Llama class."""
        return self.model_class.startswith("Llama")

    @property
    def is_qwen3(self) -> bool:
        """Whether this is the Qwen3 class, which alone normalises queries and keys."""
        return self.model_class.startswith("Qwen3")

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.seen or self.last)
        size = sizes(config)
        layout = layout_of(config, "model.layers.0.mlp.up_proj")
        if layout != PLAIN and not (self.is_qwen3 and layout.name == "fp8-block"):
            raise NotCovered(f"{self.model_class} with weights stored as {layout.name}")
        left_out = {entry for name in _LISTS for entry in config.quantization.get(name) or ()}
        if left_out - {"lm_head"}:
            raise NotCovered(f"{self.model_class} with some layers quantised and others not")
        out = Blueprint()
        vocabulary(out, "model.embed_tokens", size.vocab, size.hidden)
        bias = flag(config, "attention_bias") or (self.is_llama and flag(config, "bias"))
        decoder_layer(
            out,
            "model.layers.{}",
            range(size.layers),
            size,
            bias=self.model_class.startswith("Qwen2") or bias,
            out_bias=not self.model_class.startswith("Qwen2") and bias,
            qk_norm=self.is_qwen3,
            layout=layout,
        )
        out.add("model.norm.weight", (size.hidden,))
        tied = flag(config, "tie_word_embeddings")
        if not tied:
            vocabulary(out, "lm_head", size.vocab, size.hidden)
        cut_to_share(out, self.first)
        if not self.is_llama:
            # "v_proj" is found inside "qkv_proj", "up_proj" inside "gate_up_proj": what is fused
            # already gets a name that no parameter has.
            out.slots[:] = [slot for slot in out.slots if not slot.alternative]
        beyond = range(size.layers, size.layers + BEYOND) if self.skips_layers else range(0)
        facts = {
            "hidden_size": size.hidden,
            "vocab_size": size.vocab,
            "num_layers": size.layers,
            "tied": tied,
            "head_dim": size.head_dim,
        }
        return out.model(special=frozenset(beyond), facts=facts)

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        name, place = key, self.place
        if self.adds_model and name.startswith(("layers.", "embed_tokens.", "norm.")):
            name = f"model.{name}"
        layer = _LAYER.search(name)
        if layer and int(layer[1]) in model.special:
            said = (
                f"the model has {model.facts['num_layers']} layers, later ones are silently skipped"
            )
            return Route("drop", reason=said, place=place)
        for part, reason in _SKIPPED.items():
            if part in name:
                return Route("ignore", reason=reason, place=place)
        if name.startswith("model.vision_tower"):
            return Route("ignore", reason="this class has no vision tower", place=place)
        if "lm_head.weight" in name and model.facts["tied"]:
            return Route("ignore", reason="tied to the embedding", place=place)
        if name.endswith(_KV_SCALES):
            said = "scales of a quantised cache, which the model does not keep"
            return Route("ignore", reason=said, place=place)
        reaction = self.plain
        if any(part in name for part in (_STACKED if self.is_llama else (*_STACKED, *_FUSED))):
            reaction = self.stacked
        if name.endswith(".bias"):
            # "Extra" biases of GPTQ files are passed over; past the stacked ones nobody warns.
            reaction = "silent"
        return Route("load", name, place=place, unknown=reaction)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        return Profile(
            "sglang",
            self.model_class,
            self.first,
            self.last,
            self.place,
            self.build,
            self.route,
            verified=verified_in(self.first, self.last),
            unknown=self.plain,
            missing="silent",
            mismatch="raises",
            notes={
                "unknown": f"{self.place}: Parameter … not found in params_dict"
                if self.plain == "warning"
                else f"{self.place}: KeyError",
                "missing": f"{self.place}: it never checks for parameters that were not written",
                "mismatch": mismatch_place(self.seen or self.last),
            },
        )


_LLAMA, _QWEN2, _QWEN3 = (f"models/{name}.py" for name in ("llama", "qwen2", "qwen3"))


def _llama(first: str, last: str, stacked: Reaction, **more: Any) -> Dense:
    return Dense("LlamaForCausalLM", first, last, _LLAMA, stacked, **more)


DENSE_RANGES: tuple[Dense, ...] = (
    _llama("0.4.4", "0.4.6.post1", "raises", skips_layers=False),
    _llama("0.4.6.post2", "0.4.9.post1", "raises"),
    _llama("0.4.9.post2", "0.5.6", "warning"),
    _llama("0.5.6.post1", "0.5.16", "warning"),
    _llama("0.5.17", last_alike(_LLAMA), "warning"),
    Dense(
        "Qwen2ForCausalLM",
        "0.4.4",
        "0.4.6.post4",
        _QWEN2,
        "raises",
        plain="raises",
        skips_layers=False,
    ),
    Dense("Qwen2ForCausalLM", "0.4.6.post5", "0.4.9.post1", _QWEN2, "raises"),
    Dense("Qwen2ForCausalLM", "0.4.9.post2", "0.5.8.post1", _QWEN2, "warning"),
    Dense("Qwen2ForCausalLM", "0.5.9", last_alike(_QWEN2), _QWEN2, "warning"),
    Dense(
        "Qwen3ForCausalLM",
        "0.4.5.post2",
        "0.4.6.post4",
        _QWEN3,
        "raises",
        plain="raises",
        skips_layers=False,
    ),
    Dense("Qwen3ForCausalLM", "0.4.6.post5", "0.5.8.post1", _QWEN3, "raises"),
    Dense(
        "Qwen3ForCausalLM",
        "0.5.9",
        last_alike(_QWEN3),
        _QWEN3,
        "raises",
        adds_model=True,
    ),
)
