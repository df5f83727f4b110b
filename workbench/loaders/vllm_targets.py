"""vLLM's Llama, Qwen2 and Qwen3 targets, and what its profiles share."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from workbench.loaders.config_checks import ANY, check
from workbench.loaders.families import Blueprint, Sizes, decoder_layer
from workbench.loaders.profile import Model, NotCovered, Profile, Reaction, Refused, Route

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

_FILES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
_ROTARY = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)|rotary_pos_emb\.inv_freq")
_FUSED = re.compile(r"(qkv|gate_up)_proj")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
# Which projection vLLM cuts to its share of the rows (or columns), so that a longer tensor passes.
_CUTS = {
    "q_proj": 0, "k_proj": 0, "v_proj": 0, "qkv_proj": 0,
    "gate_proj": 0, "up_proj": 0, "gate_up_proj": 0, "o_proj": 1, "down_proj": 1,
}  # fmt: skip


def tolerant(out: Blueprint) -> Blueprint:
    """Mark the projections that vLLM cuts to their share: a longer tensor loads silently."""
    slots = []
    for slot in out.slots:
        module, _, suffix = slot.template.rpartition(".")
        cut = _CUTS.get(module.rpartition(".")[2], -1)
        if suffix == "bias" and cut == 1:
            cut = -1
        slots.append(dataclasses.replace(slot, cut=cut))
    out.slots[:] = slots
    return out


def known_bias(name: str, model: Model) -> bool:
    """Tell whether a key is the bias of a layer that the model has.

    AutoWeightsLoader silently skips such a bias where the layer has none.
    """
    if not name.endswith(".bias"):
        return False
    weight = _NUMBER.sub("{}", name[: -len("bias")] + "weight")
    return any(slot.template == weight for slot in model.slots)


@dataclasses.dataclass(frozen=True)
class Target:
    """A dense target class over one range of releases.

    Attributes
    ----------
    strict
        Whether a linear layer or embedding that no key filled stops the loader. Newer releases exempt
        every module with a quantisation method, plain linear layers included; norms have none.
    refills
        Whether the inner model loads through AutoWeightsLoader too.
    """

    model_class: str
    first: str
    last: str
    strict: bool = False
    refills: bool = True
    verified: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The place in the source, with the release that was read."""
        return (
            f"vllm/model_executor/models/{_FILES[self.model_class]}.py load_weights ({self.last})"
        )

    def build(self, config: Config) -> Model:
        """Return what the class builds from a config."""
        if config.layout == "speculators":
            raise Refused("a speculators config is that of a draft", self.place)
        check(config, ANY)
        if config.get("quantization_config", None):
            raise NotCovered("a quantised target: its packed parameters are not described")
        if config.get("hidden_act", "silu") != "silu":
            said = f"Unsupported activation: {config.get('hidden_act')}. Only silu is supported."
            raise Refused(said, self.place)
        size, out = Sizes.of(config), Blueprint()
        plain = self.model_class == "LlamaForCausalLM"
        bias = bool(config.get("attention_bias", False))
        if plain:
            bias = bias or bool(config.get("bias", False))
        out.add("model.embed_tokens.weight", (size.vocab, size.hidden))
        decoder_layer(
            out, "model.layers.{}", range(size.layers), size,
            bias=bool(config.get("qkv_bias", bias)) if plain else bias or "Qwen2" in self.model_class,
            out_bias=plain and bias,
            mlp_bias=plain and bool(config.get("mlp_bias", False)),
            qk_norm="Qwen3" in self.model_class,
        )  # fmt: skip
        out.add("model.norm.weight", (size.hidden,))
        tied = bool(config.get("tie_word_embeddings", False))
        if not tied:
            out.add("lm_head.weight", (size.vocab, size.hidden))
        facts = {"tied": tied, "vocab_size": size.vocab, "num_layers": size.layers}
        return self._demanding(tolerant(out)).model(facts=facts)

    def _demanding(self, out: Blueprint) -> Blueprint:
        """Mark the norms: the one kind of module that newer releases still insist on."""
        if not self.strict:
            out.slots[:] = [
                dataclasses.replace(slot, demanded="norm" in slot.template) for slot in out.slots
            ]
        return out

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        if _ROTARY.search(key):
            return Route("ignore", reason="a table that vLLM computes itself", place=self.place)
        if key.startswith("lm_head.") and model.facts["tied"]:
            return Route("ignore", reason="tied to the embedding", place=self.place)
        if not self.refills and self.model_class != "LlamaForCausalLM" and _FUSED.search(key):
            said = "it looks for v_proj and up_proj anywhere in the name: KeyError"
            return Route("raise", "", said, self.place)
        forgiven = known_bias(key, model) or (
            not self.refills and key.startswith("model.") and key.endswith(".bias")
        )
        return Route("load", key, unknown="silent" if forgiven else None)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        missing: Reaction = "raises" if self.strict else "silent"
        said = "ValueError: weights were not initialized from checkpoint"
        if not self.strict:
            said += (
                ", for norms only: linear layers and embeddings are exempt, and stay as they were"
            )
        return Profile(
            "vllm",
            self.model_class,
            self.first,
            self.last,
            self.place,
            self.build,
            self.route,
            verified=self.verified,
            unknown="raises",
            missing=missing,
            mismatch="raises",
            notes={
                "unknown": f"AutoWeightsLoader: ValueError; inner model: KeyError before 0.25 ({self.last})",
                "missing": f"model_loader/default_loader.py: {said} ({self.last})",
            },
        )


TARGETS: tuple[Target, ...] = tuple(
    Target(name, first, last, strict=strict, refills=refills, verified=verified)
    for name in _FILES
    for first, last, strict, refills, verified in (
        ("0.11.1", "0.20.2", True, False, ()),
        ("0.21.0", "0.24.0", False, False, ()),
        ("0.25.0", "0.32.0", False, True, ("0.32.0",)),
    )
)
