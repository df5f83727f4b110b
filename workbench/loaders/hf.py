"""What transformers' ``from_pretrained`` does with Llama-, Qwen- and Mistral-like models.

It is lenient: a key that no parameter answers to is left out, a parameter that no key fills is initialised
anew, and both are said in a report that is only a warning. A wrong shape stops it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.loaders.config_checks import Rules, check
from workbench.loaders.families import Blueprint, Sizes, decoder_layer
from workbench.loaders.profile import Model, NotCovered, Profile, Refused, Route

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

__all__ = ["PROFILES", "class_for"]

KINDS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
# What the config classes assume where config.json says nothing (models/*/configuration_*.py, 5.24.0).
_SHARED = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": _SHARED | {"intermediate_size": 11008, "vocab_size": 32000},
    "mistral": _SHARED
    | {"intermediate_size": 14336, "vocab_size": 32000, "num_key_value_heads": 8},
    "qwen2": _SHARED
    | {"intermediate_size": 22016, "vocab_size": 151936, "num_key_value_heads": 32},
    "qwen3": _SHARED
    | {
        "intermediate_size": 22016,
        "vocab_size": 151936,
        "num_key_value_heads": 32,
        "head_dim": 128,
    },
}
# What AutoConfig makes of the values: 5.x checks types. An odd rotary embedding is left to the classes.
LOOSE = Rules("4.57.1", sure=False)
STRICT = Rules("5.8.1", strict=True, base=None, rope=False)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def class_for(config: Config) -> str:
    """Return the class that a config.json asks for, "" where it names none."""
    return config.architectures[0] if config.architectures else ""


@dataclasses.dataclass(frozen=True)
class Dense:
    """A class over one range of releases.

    Attributes
    ----------
    symmetric
        Whether tying works both ways: a tied model whose file holds only lm_head.weight takes that one
        (5.x). Before, the embedding always wins.
    """

    model_class: str
    first: str
    last: str
    symmetric: bool
    verified: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The model type."""
        return KINDS[self.model_class]

    def build(self, config: Config) -> Model:
        """Return what the class builds from a config."""
        check(config, STRICT if self.symmetric else LOOSE)
        if config.layout in ("speculators", "none"):
            said = "there is no config.json"
            if config.layout == "speculators":
                said = "Unrecognized model: config.json has no model_type at the top"
            raise Refused(said, "transformers/models/auto/configuration_auto.py")
        if config.layout == "multimodal":
            raise NotCovered("a multimodal model: only its language model is described")
        if config.get("quantization_config", None):
            raise NotCovered("a quantised model: its packed parameters are not described")
        size = self._sizes(config)
        bias = config.get("attention_bias", False) is True and self.kind in ("llama", "qwen3")
        out = Blueprint(fused=False)
        out.add("model.embed_tokens.weight", (size.vocab, size.hidden))
        decoder_layer(
            out, "model.layers.{}", range(size.layers), size,
            bias=bias or self.kind == "qwen2",
            out_bias=bias,
            mlp_bias=self.kind == "llama" and config.get("mlp_bias", False) is True,
            qk_norm=self.kind == "qwen3",
        )  # fmt: skip
        out.add("model.norm.weight", (size.hidden,))
        tied = bool(config.get("tie_word_embeddings", False))
        head = (size.vocab, size.hidden)
        if not tied:
            out.add("lm_head.weight", head)
        elif self.symmetric:
            out.add("lm_head.weight", head, parameter="model.embed_tokens.weight", alternative=True)
        facts = {"tied": tied, "vocab_size": size.vocab, "num_layers": size.layers}
        return out.model(facts=facts)

    def _sizes(self, config: Config) -> Sizes:
        from workbench.checkpoint.config import Config

        return Sizes.of(Config({**DEFAULTS[self.kind], **config.text}, config.source))

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes.

        A file that was saved from the model without its head lacks the ``model.`` of every name. 5.x
        decides that name by name; 4.x only where no key has the prefix, and stops at a head beside such
        names ("corrupted"), which one name cannot show.
        """
        place = f"transformers/modeling_utils.py ({self.last})"
        if "rotary_emb.inv_freq" in key:
            return Route("ignore", reason="a table that transformers computes itself", place=place)
        bare = re.sub("^model.", "", key, count=1)
        if self.symmetric and key.startswith("model") and _has(bare, model):
            name = bare
        elif _has(f"model.{key}", model):
            name = f"model.{key}"
        else:
            name = key
        if name == "lm_head.weight" and model.facts["tied"] and not self.symmetric:
            return Route("ignore", reason="tied: the embedding is used instead", place=place)
        return Route("load", name)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        five = self.symmetric
        report = "utils/loading_report.py log_state_dict_report" if five else "modeling_utils.py"
        return Profile(
            "transformers",
            self.model_class,
            self.first,
            self.last,
            f"transformers/modeling_utils.py from_pretrained ({self.last})",
            self.build,
            self.route,
            verified=self.verified,
            unknown="warning",
            missing="warning",
            mismatch="raises",
            notes={
                "unknown": f"transformers/{report}: UNEXPECTED, a warning ({self.last})",
                "missing": f"transformers/{report}: MISSING, initialised anew ({self.last})",
                "mismatch": f"transformers/{report}: RuntimeError unless ignore_mismatched_sizes "
                f"({self.last})",
                "tied": f"transformers/modeling_utils.py tie_weights ({self.last})",
            },
        )


def _has(name: str, model: Model) -> bool:
    template = _NUMBER.sub("{}", name)
    return any(slot.template == template for slot in model.slots)


# Verified: tests/engines/test_transformers.py, in the environments that hold these releases.
PROFILES: tuple[Profile, ...] = tuple(
    Dense(name, first, last, symmetric, verified).profile()
    for name in KINDS
    for first, last, symmetric, verified in (
        ("4.57.1", "4.57.6", False, ("4.57.1",)),
        ("5.8.1", "5.24.0", True, ("5.8.1", "5.19.0")),
    )
)
