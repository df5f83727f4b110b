"""Configs as checked settings: every number has a type and bounds before anything is made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation.model.draft_kinds import EAGLE3, Replayed
from workbench.speculation.model.eagle3 import Settings
from workbench.speculation.model.experts import SCORINGS, Routing
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.mla import Latent
from workbench.speculation.model.rope import attention_scale, rope_of

# Several times the largest that anyone has trained: what is beyond is no size, and must not be allocated.
_MOST = {
    "hidden_size": 1 << 17,
    "target_hidden_size": 1 << 17,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 12,
    "num_hidden_layers": 1 << 10,
    "intermediate_size": 1 << 20,
    "draft_vocab_size": 1 << 24,
    "vocab_size": 1 << 24,
    "q_lora_rank": 1 << 16,
    "kv_lora_rank": 1 << 16,
    "qk_nope_head_dim": 1 << 12,
    "qk_rope_head_dim": 1 << 12,
    "v_head_dim": 1 << 12,
    "n_routed_experts": 1 << 12,
    "num_experts": 1 << 12,
    "num_experts_per_tok": 1 << 12,
    "n_shared_experts": 1 << 8,
    "moe_intermediate_size": 1 << 20,
    "shared_expert_intermediate_size": 1 << 20,
    "n_group": 1 << 12,
    "topk_group": 1 << 12,
}
_WIDER = (
    64  # times the hidden size: more than all heads together, or the feed-forward part, ever have
)
_NEXT = "Correct config.json: compare it with the training run's."
_EPSILON = 1e-6  # of Hugging Face's Llama, where a config says nothing


class ModelConfig:
    """The fields of a model's config, checked as they are read.

    Parameters
    ----------
    config
        The flat config.
    whose
        For messages: ``the target's``.
    """

    def __init__(self, config: Mapping[str, Any], whose: str) -> None:
        self.config, self.whose = config, whose

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a size, at least 1; null and absent are the default."""
        value = self.config.get(name)
        value = default if value is None else value
        most = _MOST[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise self.odd(name, f"it must be a whole number from 1 to {most:,}", value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a flag."""
        value = self.config.get(name)
        if value not in (None, True, False):  # 0 and 1 are equal to these
            raise self.odd(name, "it must be true or false")
        return default if value is None else bool(value)

    @property
    def epsilon(self) -> float:
        """Of the norms."""
        value = self.config.get("rms_norm_eps", _EPSILON)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise self.odd("rms_norm_eps", "it must be a number from 0 to less than 1", value)
        return float(value)

    @property
    def hidden(self) -> int:
        """The hidden size."""
        return self.whole("hidden_size")

    @property
    def heads(self) -> int:
        """How many heads there are; all together they are not wider than is credible."""
        found, wide = self.whole("num_attention_heads"), self.head_dim
        if found * wide > _WIDER * self.hidden:
            why = f"with heads of {wide} that is {found * wide:,} wide, hidden_size is {self.hidden:,}"
            raise self.odd("num_attention_heads", why)
        return found

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        heads = self.whole("num_attention_heads")
        if self.config.get("head_dim") is None and heads > self.hidden:
            why = f"hidden_size is {self.hidden} and head_dim is not given"
            raise self.odd("num_attention_heads", why)
        return self.whole("head_dim", self.hidden // heads)

    @property
    def key_heads(self) -> int:
        """How many heads of keys and values there are."""
        heads = self.whole("num_attention_heads")
        found = self.whole("num_key_value_heads", heads)
        if heads % found:
            raise self.odd(
                "num_key_value_heads", f"it must divide num_attention_heads, {heads}", found
            )
        return found

    @property
    def gated(self) -> int:
        """Width of the feed-forward part, 0 where the config does not say."""
        found = self.said("intermediate_size")
        if found > _WIDER * self.hidden:
            raise self.odd("intermediate_size", f"hidden_size is {self.hidden}")
        return found

    def said(self, name: str) -> int:
        """Return a size, 0 where the config does not say."""
        return 0 if self.config.get(name) is None else self.whole(name)

    def odd(self, name: str, why: str, value: object = None) -> WorkbenchError:
        """Return the error for a field that is wrong, or does not go with something else."""
        value = self.config.get(name) if value is None else value
        return WorkbenchError(
            f"{self.whose} config says {name} is {shown(value)}", why=why, next_step=_NEXT
        )


class DraftConfig(ModelConfig):
    """A draft's config; what an engine read of it goes first, with the engine's idea of true.

    Parameters
    ----------
    config
        The flat config.
    facts
        What the engine's own class read of it; empty for the trainer's reading.
    """

    def __init__(self, config: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(config, "the draft's")
        self.facts = facts or {}

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a flag, as the engine reads it or as it is written."""
        return bool(self.facts[name]) if name in self.facts else super().flag(name, default)

    @property
    def vocabulary(self) -> int:
        """Size of the draft's vocabulary, 0 where the config does not say."""
        if self.facts.get("draft_vocab_size"):
            return int(self.facts["draft_vocab_size"])
        return self.said("draft_vocab_size")

    @property
    def width(self) -> int:
        """Width of the target's features."""
        return self.whole("target_hidden_size", self.hidden)

    def settings(
        self, aux: int, engine: str, numerics: Numerics, replayed: Replayed = EAGLE3
    ) -> Settings:
        """Return what the draft computes.

        Parameters
        ----------
        aux
            How many layers of the target `fc` joins, where the engine does not say.
        engine
            Name of the engine, "" for the trainer.

        Raises
        ------
        WorkbenchError
            A field is of another type, out of bounds, or does not go with another one.
        """
        heads, head_dim = self.heads, self.head_dim
        latent, turned = self._latent(), head_dim
        if latent is not None:
            turned, head_dim = latent.turned, latent.plain + latent.turned
        interleaved = latent is not None and self.flag("rope_interleave", True)
        made = Settings(
            hidden=self.hidden,
            heads=heads,
            key_heads=heads if latent else self.key_heads,
            head_dim=head_dim,
            layers=self.whole("num_hidden_layers", 1),
            aux=int(self.facts.get("num_aux") or aux),
            aux_width=self.width,
            epsilon=self.epsilon,
            rope=rope_of(self.config, turned, interleaved=interleaved),
            scale=attention_scale(self.config, head_dim),
            norm_before_fc=self.flag("norm_before_fc"),
            fc_norm=self.flag("fc_norm") or self.flag("use_aux_norm"),
            norm_before_residual=self.flag("norm_before_residual"),
            norm_output=self.flag("norm_output"),
            passed_by=engine == "sglang",
            later_norm="hidden_norm" if engine == "sglang" else "input_layernorm",
            latent=latent,
            numerics=numerics,
        )
        if replayed.joining == "eagle3":
            return made
        # One layer's features enter as they are, none of EAGLE-3's flags is read, and what a prediction layer
        # gives to its next step is normed.
        return dataclasses.replace(
            made,
            joining=replayed.joining,
            hidden_first=replayed.hidden_first,
            blank_first=replayed.hidden_first,
            layers=1 if replayed.joining == "mtp" else made.layers,
            aux=1,
            aux_width=made.hidden,
            norm_before_fc=False,
            fc_norm=False,
            norm_before_residual=False,
            norm_output=replayed.joining == "mtp",
            passed_by=True,
            later_norm="input_layernorm",
            routing=self._routing(replayed.shared) if replayed.routed else None,
            centred=replayed.centred,
            output_gate=self.flag("attn_output_gate", replayed.centred),
        )

    def _routing(self, shared: bool) -> Routing:
        """Return how tokens are sent to experts; `shared`: the file holds a part that all of them pass."""
        named = "n_routed_experts" if self.said("n_routed_experts") else "num_experts"
        deepseek = named == "n_routed_experts"
        experts, width = self.whole(named), self.whole("moe_intermediate_size")
        groups = self.whole("n_group", 1) if deepseek else 1
        wide = width * self.whole("n_shared_experts", 1) if deepseek and shared else 0
        if shared and not deepseek:
            wide = self.whole("shared_expert_intermediate_size")
        scoring = self.config.get("scoring_func") or ("sigmoid" if deepseek else "softmax")
        if scoring not in SCORINGS:
            raise self.odd("scoring_func", f"known here are {' and '.join(SCORINGS)}")
        factor = self.config.get("routed_scaling_factor", 1.0)
        if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor < 1e6:
            raise self.odd("routed_scaling_factor", "it must be a number above 0")
        made = Routing(
            experts=experts,
            chosen=self.whole("num_experts_per_tok"),
            width=width,
            shared=wide,
            scoring=scoring,
            groups=groups,
            open_groups=self.whole("topk_group", groups) if deepseek else 1,
            normed=self.flag(
                "norm_topk_prob", deepseek or self.config.get("model_type") != "qwen3_moe"
            ),
            factor=float(factor),
        )
        if experts % groups or made.open_groups > groups:
            raise self.odd("n_group", f"{experts} experts, topk_group {made.open_groups}", groups)
        if made.chosen > experts // groups * made.open_groups:
            raise self.odd("num_experts_per_tok", f"{experts} experts in {groups} groups")
        return made

    def _latent(self) -> Latent | None:
        if self.config.get("kv_lora_rank") is None:
            return None
        return Latent(
            *map(
                self.whole,
                (
                    "q_lora_rank",
                    "kv_lora_rank",
                    "qk_nope_head_dim",
                    "qk_rope_head_dim",
                    "v_head_dim",
                ),
            )
        )
