"""SGLang's EAGLE-3 draft class for Llama-like drafts, `LlamaForCausalLMEagle3`.

Anchors name the file, the line and the release they were read in. A range of releases means that the lines
that matter are the same in each of its wheels.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from workbench.loaders.families import Blueprint, Sizes, decoder_layer, whole
from workbench.loaders.profile import Model, NotCovered, Profile, Reaction, Refused, Route, indices
from workbench.loaders.sglang_parts import (
    cut_to_share,
    draft_number,
    eagle_table,
    flag,
    last_alike,
    merge,
    mismatch_place,
    offsets,
    place_in,
    read_since,
    readable,
    sizes,
    verified_in,
    vocabulary,
    worker_place,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.checkpoint.config import Config

_FILE = "models/llama_eagle3.py"
BASE = "sglang/srt/models/llama.py"
EMBED = "the target's embed_tokens"
HEAD = "the target's lm_head"

# Old name -> new one, replaced wherever it occurs in a key (0.5.12 and newer), in this order.
LEGACY = (
    ("midlayer", "layers.0"),
    ("aux_norm_low", "fc_norm.0"),
    ("aux_norm_mid", "fc_norm.1"),
    ("aux_norm_high", "fc_norm.2"),
)
STACKED = (".q_proj", ".k_proj", ".v_proj", ".gate_proj", ".up_proj")
DRAFT_IDS = (
    "kept outside the parameters as hot_token_id = d2t + arange, the target id of each draft id"
)
# Config field -> the feature that tells since when it is read.
_FEATURES = {"num_aux_hidden_states": "num_aux", "use_aux_norm": "fc_norm"}
TRAINING = "a mask for training; SGLang skips every key with t2d in it"
UNNORMED = "the residual is always the fc output before hidden_norm"
_BUFFER = "a table that SGLang computes itself"


@dataclasses.dataclass(frozen=True)
class Llama:
    """One range of releases of LlamaForCausalLMEagle3.

    Attributes
    ----------
    delegates
        The loader hands each key to LlamaForCausalLM.load_weights under "model." + key.
    many_layers
        The layer list `layers` with the map of legacy names; before, one layer `midlayer`.
    input_norm
        norm_before_fc is read.
    borrows_head
        draft_vocab_size null means: take the target's head.
    own_vocab
        draft_vocab_size is read even when the head is tied.
    fc_bias
        fc has a bias that no EAGLE-3 draft carries.
    seen
        The release whose lines are cited; "" for the last of the range.
    """

    first: str
    last: str
    delegates: bool = False
    many_layers: bool = False
    input_norm: bool = False
    borrows_head: bool = True
    own_vocab: bool = True
    fc_bias: bool = False
    seen: str = ""

    def place(self, what: str) -> str:
        """Return where a claim stands, ``sglang/srt/models/llama_eagle3.py:344 (0.5.14)``."""
        return place_in(_FILE, self.seen or self.last, what)

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.seen or self.last)
        self._check(config)
        size = sizes(config)
        if config.model_type == "llama4_text":
            size = dataclasses.replace(size, intermediate=whole(config, "intermediate_size_mlp"))
        eagle = eagle_table(config)
        inside, aux = config.get("target_hidden_size", size.hidden), self._aux(config, eagle)
        width, tied = inside * aux, flag(config, "tie_word_embeddings")
        draft_vocab = config.get("draft_vocab_size", None)
        out = Blueprint()
        vocabulary(out, "model.embed_tokens", size.vocab, size.hidden)
        out.add("model.fc.weight", (size.hidden, width))
        if flag(config, "bias") or self.fc_bias:
            out.add("model.fc.bias", (size.hidden,))
        if self._norm_before_fc(config, eagle):
            out.add("model.input_norm.weight", (width,))
        if self._fc_norm(config):
            out.add("model.fc_norm.{}.weight", (inside,), indices(range(aux)))
        unused = self._layers(out, config, size)
        out.add("model.norm.weight", (size.hidden,))
        # Without a head of its own, head and embedding are taken over together, whatever the widths.
        borrows = draft_vocab is None and not tied
        shared = {}
        if inside == size.hidden or borrows:
            shared["model.embed_tokens.weight"] = EMBED
        if not tied:
            rows = size.vocab if draft_vocab is None else draft_vocab
            vocabulary(out, "lm_head", rows, size.hidden)
        if borrows:
            shared["lm_head.weight"] = HEAD
        cut_to_share(out, self.first)
        facts = {
            "hidden_size": size.hidden,
            "target_hidden_size": inside,
            "vocab_size": size.vocab,
            "draft_vocab_size": size.vocab if draft_vocab is None else draft_vocab,
            "num_layers": size.layers,
            "num_aux": aux,
            "aux_ids": eagle.get("eagle_aux_hidden_state_layer_ids"),
            "tied": tied,
            "head_dim": size.head_dim,
            "norm_before_fc": self._norm_before_fc(config, eagle),
            "fc_norm": self._fc_norm(config),
            "norm_output": self.many_layers and flag(config, "norm_output"),
            "norm_before_residual": False,
            "qk_norm": False,
            "lm_head_from_target": borrows,
            "embed_from_target": "model.embed_tokens.weight" in shared,
            "not_read": self._not_read(config, eagle),
        }
        return out.model(shared=shared, unused=unused, facts=facts)

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        name = key
        if self.many_layers:
            for old, new in LEGACY:
                name = name.replace(old, new)
        if "d2t" in name:
            return offsets(DRAFT_IDS, self.place("d2t"))
        if "t2d" in name:
            return Route("ignore", reason=TRAINING, place=self.place("t2d"))
        if "rotary_emb.inv_freq" in name:
            return Route("ignore", reason=_BUFFER, place=self.place("load_weights"))
        if self.delegates:
            return self._delegated(name, model)
        place = self.place("name")
        plain = name.startswith("model.") or (
            name == "lm_head.weight" and not model.facts.get("tied")
        )
        if plain:
            return Route("load", name, place=place)
        return Route("load", f"model.{name}", place=place)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        return Profile(
            "sglang",
            "LlamaForCausalLMEagle3",
            self.first,
            self.last,
            self.place("load_weights"),
            self.build,
            self.route,
            verified=verified_in(self.first, self.last),
            unknown="warning" if self.delegates else "silent",
            missing="silent",
            mismatch="raises",
            notes=self._notes(),
        )

    def _check(self, config: Config) -> None:
        layers = sizes(config).layers
        if layers != 1 and not self.many_layers:
            raise Refused(
                f"num_hidden_layers is {layers}: ValueError, EAGLE3 currently only supports 1 layer",
                self.place("layers"),
            )
        text, tied = config.text, flag(config, "tie_word_embeddings")
        if "draft_vocab_size" not in text and (self.own_vocab or not tied):
            hint = " (null would be accepted)" if self.borrows_head else ""
            raise Refused(
                f"config.json has no draft_vocab_size: AttributeError{hint}",
                self.place("draft_vocab"),
            )
        if text.get("draft_vocab_size") is None and not self.borrows_head and not tied:
            raise Refused("draft_vocab_size is null: TypeError", self.place("draft_vocab"))
        self._numbers(config)
        if "target_hidden_size" in text and text["target_hidden_size"] is None:
            raise Refused(
                "target_hidden_size is null: TypeError; leave the field out",
                self.place("target_hidden_size"),
            )
        activation = config.get("hidden_act", "silu")
        if activation != "silu":
            raise Refused(
                f"hidden_act is {activation!r}: ValueError, only silu is supported",
                f"{BASE} LlamaMLP",
            )
        if config.get("quantization_config", None):
            raise NotCovered("a quantised EAGLE-3 draft: its packed parameters are not described")

    def _numbers(self, config: Config) -> None:
        """Refuse numbers and tables of the draft's own that the class cannot compute with."""
        draft_number(config, "draft_vocab_size", self.place("draft_vocab"))
        draft_number(config, "target_hidden_size", self.place("target_hidden_size"))
        eagle = config.get("eagle_config", None)
        if eagle and not isinstance(eagle, dict):
            said = f"eagle_config is {eagle!r:.60}, not an object"
            if self.many_layers:
                raise Refused(f"{said}: AttributeError", self.place("aux"))
            raise NotCovered(said)
        if not self.many_layers:
            return
        draft_number(config, "num_aux_hidden_states", self.place("aux"))
        ids = eagle_table(config).get("eagle_aux_hidden_state_layer_ids")
        if ids and not isinstance(ids, list | dict | str):
            said = f"eagle_aux_hidden_state_layer_ids is {ids!r:.60}, not a list: TypeError"
            raise Refused(said, self.place("aux"))

    def _aux(self, config: Config, eagle: Mapping[str, Any]) -> int:
        if not self.many_layers:
            return 3
        count = config.get("num_aux_hidden_states", None)
        if count is not None:
            return int(count)
        ids = eagle.get("eagle_aux_hidden_state_layer_ids")
        return len(ids) if ids else 3

    def _norm_before_fc(self, config: Config, eagle: Mapping[str, Any]) -> bool:
        asked = eagle.get("norm_before_fc", config.get("norm_before_fc", False))
        return self.input_norm and bool(asked)

    def _fc_norm(self, config: Config) -> bool:
        asked = config.get("fc_norm", None) or config.get("use_aux_norm", False)
        return self.many_layers and bool(asked)

    def _layers(self, out: Blueprint, config: Config, size: Sizes) -> dict[str, str]:
        """Add the decoder layers; return the parameters that no forward pass reads."""
        norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        # qkv_proj is replaced by one without a bias; o_proj keeps the base layer's.
        bias = flag(config, "attention_bias") or flag(config, "bias")
        wide = 2 * size.hidden
        if not self.many_layers:
            decoder_layer(
                out, "model.midlayer", range(1), size, columns=wide, norms=norms, out_bias=bias
            )
            return {}
        # Layer 0 reads embedding and hidden state side by side, every later one the hidden state alone.
        first = Blueprint()
        decoder_layer(
            first, "model.layers.{}", range(1), size, columns=wide, norms=norms, out_bias=bias
        )
        merge(out, first, lambda name: name.replace("{0}", "0"))
        if size.layers > 1:
            later = range(1, size.layers)
            decoder_layer(out, "model.layers.{}", later, size, norms=norms, out_bias=bias)
        else:
            return {}
        if size.layers == 1:
            return {}
        dead = f"a layer after the first normalises with hidden_norm alone ({self.place('later_layer')})"
        # By number too: whoever has only a parameter's name must not take layer 0 for one of these.
        name = "model.layers.{}.input_layernorm.weight"
        return {name.format(n): dead for n in ("{0}", *range(1, size.layers))}

    def _delegated(self, name: str, model: Model) -> Route:
        """Route the way of the old loader: "model." + key through LlamaForCausalLM.load_weights."""
        place = f"{self.place('name')}, {BASE} LlamaForCausalLM.load_weights"
        if "lm_head" not in name:
            name = f"model.{name}"
        elif model.facts.get("tied") and "lm_head.weight" in name:
            return Route("ignore", reason="tied to the embedding", place=place)
        if "projector" in name:
            return Route(
                "ignore", reason="SGLang skips every key with projector in it", place=place
            )
        if any(shard in name for shard in STACKED):
            missing: Reaction = "silent" if name.endswith(".bias") else "raises"
            return Route(
                "load", name, "a KeyError where there is no such parameter", place, missing
            )
        return Route("load", name, place=place)

    def _not_read(self, config: Config, eagle: Mapping[str, Any]) -> dict[str, str]:
        """Return the config fields that change what the draft was trained for and that SGLang ignores."""
        found = {}
        if "norm_before_residual" in config.text:
            found["norm_before_residual"] = UNNORMED
        if "eagle_aux_hidden_state_layer_ids" in config.text:
            found["eagle_aux_hidden_state_layer_ids"] = "only the one inside eagle_config is read"
        if not self.input_norm and (
            eagle.get("norm_before_fc") or config.get("norm_before_fc", False)
        ):
            found["norm_before_fc"] = read_since("norm_before_fc")
        for field in ("fc_norm", "use_aux_norm", "norm_output", "num_aux_hidden_states"):
            if not self.many_layers and config.get(field, None):
                found[field] = read_since(_FEATURES.get(field, field))
        return found

    def _notes(self) -> dict[str, str]:
        version = self.seen or self.last
        notes = {
            "unknown": self.place("name"),
            "missing": f"{self.place('load_weights')}: it never checks for parameters that were "
            "not written",
            "mismatch": mismatch_place(version),
            "d2t": self.place("d2t"),
            "t2d": self.place("t2d"),
            "embed": f"{BASE} set_embed; {worker_place('set_embed', version)}",
            "lm_head": self.place("draft_vocab"),
            "tied": self.place("tied"),
            "fc": self.place("fc"),
        }
        if self.many_layers:
            notes["renames"] = self.place("legacy")
            notes["fc_norm"] = self.place("fc_norm")
            notes["unused"] = self.place("later_layer")
        if self.input_norm:
            notes["input_norm"] = self.place("input_norm")
        if self.fc_bias:
            notes["fc_bias"] = f"{self.place('fc')}: torch.nn.Linear without bias=False"
        return notes


# 0.4.4 and 0.4.4.post1 have no EAGLE-3 class.
LLAMA_RANGES: tuple[Llama, ...] = (
    Llama(
        "0.4.4.post2",
        "0.4.8.post1",
        delegates=True,
        borrows_head=False,
        own_vocab=False,
        fc_bias=True,
    ),
    Llama(
        "0.4.9",
        "0.5.1.post3",
        borrows_head=False,
        own_vocab=False,
    ),
    Llama(
        "0.5.2",
        "0.5.4.post1",
        own_vocab=False,
    ),
    Llama(
        "0.5.4.post2",
        "0.5.11",
    ),
    Llama(
        "0.5.12",
        "0.5.16",
        many_layers=True,
    ),
    Llama(
        "0.5.17",
        last_alike(_FILE),
        many_layers=True,
        input_norm=True,
    ),
)
