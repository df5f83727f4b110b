"""SGLang's EAGLE-3 draft class with multi-head latent attention, `Eagle3DeepseekV2ForCausalLM`.

Kimi K2.5 and K2.6 drafts ("3" and "3.1") are of this class; it appeared in 0.5.12.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from workbench.loaders.families import ONCE, Blueprint, mla, mlp, whole
from workbench.loaders.profile import Model, NotCovered, Profile, Refused, Route, indices
from workbench.loaders.sglang_eagle3 import DRAFT_IDS, EMBED, HEAD, TRAINING, UNNORMED
from workbench.loaders.sglang_parts import (
    cut_to_share,
    draft_number,
    eagle_table,
    flag,
    last_alike,
    mismatch_place,
    offsets,
    place_in,
    readable,
    verified_in,
    vocabulary,
)

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

_FILE = "models/kimi_k25_eagle3.py"


@dataclasses.dataclass(frozen=True)
class Mla:
    """One range of releases of Eagle3DeepseekV2ForCausalLM (Kimi K2.5 and K2.6 drafts with MLA)."""

    first: str
    last: str
    fc_norm: bool = True
    column_fc: bool = False
    seen: str = ""

    def place(self, what: str) -> str:
        """Return where a claim stands."""
        return place_in(_FILE, self.seen or self.last, what)

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.seen or self.last)
        layers = whole(config, "num_hidden_layers")
        if layers != 1:
            raise Refused(
                f"num_hidden_layers is {layers}: ValueError, EAGLE3 currently only supports 1 layer",
                self.place("layers"),
            )
        if config.get("q_lora_rank", None) is None:
            raise Refused(
                "no q_lora_rank: ValueError, Eagle3 MLA layer requires q_lora_rank in the draft config",
                self.place("q_lora_rank"),
            )
        self._check(config)
        hidden, vocab = whole(config, "hidden_size"), whole(config, "vocab_size")
        inside = config.get("target_hidden_size", None) or hidden
        eagle = eagle_table(config)
        ids = eagle.get("eagle_aux_hidden_state_layer_ids")
        if ids is None:
            ids = config.get("eagle_aux_hidden_state_layer_ids", None)
        if ids is not None and not isinstance(ids, list | dict | str):
            said = f"eagle_aux_hidden_state_layer_ids is {ids!r:.60}, not a list: TypeError"
            raise Refused(said, self.place("aux"))
        aux = 3 if ids is None else len(ids)
        tied = flag(config, "tie_word_embeddings")
        draft_vocab = config.get("draft_vocab_size", None)
        use_norm = self.fc_norm and (flag(config, "fc_norm") or flag(config, "use_aux_norm"))
        out = Blueprint()
        vocabulary(out, "model.embed_tokens", vocab, hidden)
        out.add("model.fc.weight", (hidden, inside * aux))
        if flag(config, "bias"):
            out.add("model.fc.bias", (hidden,))
        if use_norm:
            out.add("model.fc_norm.{}.weight", (inside,), indices(range(aux)))
        mla(out, "model.midlayer.self_attn", ONCE, config, columns=2 * hidden)
        mlp(out, "model.midlayer.mlp", ONCE, hidden, whole(config, "intermediate_size"))
        for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            out.add(f"model.midlayer.{norm}.weight", (hidden,))
        out.add("model.norm.weight", (hidden,))
        borrows = draft_vocab is None and not tied
        shared = {}
        if inside == hidden or borrows:
            shared["model.embed_tokens.weight"] = EMBED
        if not tied:
            vocabulary(out, "lm_head", draft_vocab or vocab, hidden)
        if borrows:
            shared["lm_head.weight"] = HEAD
        cut_to_share(out, self.first)
        if self.column_fc:
            out.slots[:] = [
                dataclasses.replace(s, cut=0) if s.template == "model.fc.weight" else s
                for s in out.slots
            ]
        not_read = {}
        if "norm_before_residual" in config.text:
            not_read["norm_before_residual"] = UNNORMED
        if flag(config, "norm_before_fc"):
            not_read["norm_before_fc"] = "this class has no input_norm"
        facts = {
            "hidden_size": hidden,
            "target_hidden_size": inside,
            "vocab_size": vocab,
            "draft_vocab_size": draft_vocab or vocab,
            "num_layers": 1,
            "num_aux": aux,
            "aux_ids": ids,
            "tied": tied,
            "norm_before_fc": False,
            "fc_norm": use_norm,
            "norm_output": self.fc_norm and flag(config, "norm_output"),
            "norm_before_residual": False,
            "qk_norm": False,
            "lm_head_from_target": borrows,
            "embed_from_target": "model.embed_tokens.weight" in shared,
            "not_read": not_read,
        }
        # The loader renames layer 0 only, so its number must reach the route as it is.
        return out.model(shared=shared, special=frozenset({0}), facts=facts)

    def _check(self, config: Config) -> None:
        if config.get("quantization_config", None):
            raise NotCovered("a quantised EAGLE-3 draft: its packed parameters are not described")
        for name in ("draft_vocab_size", "target_hidden_size"):
            draft_number(config, name, self.place("draft_vocab"))
        if (config.get("dtype") or config.get("torch_dtype")) in ("float64", "double"):
            raise NotCovered("kv_b_proj in float64: post_load_weights takes no such type")

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        if key == "d2t" or key.endswith(".d2t"):
            return offsets(DRAFT_IDS, self.place("d2t"))
        if key == "t2d" or key.endswith(".t2d"):
            return Route("ignore", reason=TRAINING, place=self.place("t2d"))
        name = re.sub(r"^layers\.0\.", "midlayer.", key)
        if not name.startswith("lm_head."):
            name = f"model.{name}"
        place = self.place("name")
        if "q_a_proj" in name or "kv_a_proj_with_mqa" in name:
            # Kept aside until its partner comes; whatever finds none is forgotten silently.
            return Route(
                "load", name, "held until its partner arrives", self.place("joint"), "silent"
            )
        return Route("load", name, place=place)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        return Profile(
            "sglang",
            "Eagle3DeepseekV2ForCausalLM",
            self.first,
            self.last,
            self.place("load_weights"),
            self.build,
            self.route,
            verified=verified_in(self.first, self.last),
            unknown="warning",
            missing="silent",
            mismatch="raises",
            notes={
                "unknown": f"{self.place('warning')}: Eagle3 MLA: skipping unexpected weight",
                "missing": f"{self.place('load_weights')}: it never checks for parameters that "
                "were not written",
                "mismatch": mismatch_place(self.seen or self.last),
                "joint": self.place("joint"),
                "renames": self.place("rename"),
                "embed": f"{self.place('set_embed')}",
                "lm_head": self.place("draft_vocab"),
                "after": "kv_b_proj is split into w_kc and w_vc after loading",
            },
        )


MLA_RANGES: tuple[Mla, ...] = (
    Mla(
        "0.5.12",
        "0.5.12.post1",
        fc_norm=False,
    ),
    Mla(
        "0.5.13",
        "0.5.14",
    ),
    Mla(
        "0.5.15",
        last_alike(_FILE),
        column_fc=True,
    ),
)
