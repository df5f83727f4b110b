"""A draft's config as checked settings: every number has a type and bounds before anything is made of it.

What an engine read of the config (`facts`) goes before the config itself, with the engine's idea of true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation.eagle3 import Settings
from workbench.speculation.layers import Numerics
from workbench.speculation.mla import Latent
from workbench.speculation.rope import attention_scale, rope_of

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
    "q_lora_rank": 1 << 16,
    "kv_lora_rank": 1 << 16,
    "qk_nope_head_dim": 1 << 12,
    "qk_rope_head_dim": 1 << 12,
    "v_head_dim": 1 << 12,
}
_WIDER = (
    64  # times the hidden size: more than all heads together, or the feed-forward part, ever have
)
_NEXT = "Correct config.json: compare it with the training run's."
_EPSILON = 1e-6  # of Hugging Face's Llama, where a config says nothing


class DraftConfig:
    """The fields of a draft's config, checked as they are read.

    Parameters
    ----------
    config
        The flat config.
    facts
        What the engine's own class read of it; empty for the trainer's reading.
    """

    def __init__(self, config: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> None:
        self.config, self.facts = config, facts or {}

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a size, at least 1; null and absent are the default."""
        value = self.config.get(name)
        value = default if value is None else value
        most = _MOST[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise _odd(name, value, f"a whole number from 1 to {most:,} is wanted")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a flag, as the engine reads it or as it is written."""
        if name in self.facts:
            return bool(self.facts[name])
        value = self.config.get(name)
        if value not in (None, True, False):  # 0 and 1 are equal to these
            raise _odd(name, value, "true or false is wanted")
        return default if value is None else bool(value)

    @property
    def epsilon(self) -> float:
        """Of the norms."""
        value = self.config.get("rms_norm_eps", _EPSILON)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise _odd("rms_norm_eps", value, "a number from 0 to less than 1 is wanted, as 1e-5")
        return float(value)

    @property
    def vocabulary(self) -> int:
        """Size of the draft's vocabulary, 0 where the config does not say."""
        if self.facts.get("draft_vocab_size"):
            return int(self.facts["draft_vocab_size"])
        return self._said("draft_vocab_size")

    @property
    def gated(self) -> int:
        """Width of the feed-forward part, 0 where the config does not say."""
        found = self._said("intermediate_size")
        if found > _WIDER * self.whole("hidden_size"):
            raise _odd("intermediate_size", found, f"hidden_size is {self.whole('hidden_size')}")
        return found

    @property
    def width(self) -> int:
        """Width of the target's features."""
        return self.whole("target_hidden_size", self.whole("hidden_size"))

    def settings(self, aux: int, engine: str, numerics: Numerics) -> Settings:
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
        hidden, heads = self.whole("hidden_size"), self.whole("num_attention_heads")
        latent = self._latent()
        head_dim = self._head_dim(hidden, heads)
        turned = head_dim
        if latent is not None:
            turned, head_dim = latent.turned, latent.plain + latent.turned
        if heads * head_dim > _WIDER * hidden:
            raise _odd(
                "num_attention_heads", heads,
                f"with heads of {head_dim} that is {heads * head_dim:,} wide, hidden_size is {hidden:,}",
            )  # fmt: skip
        interleaved = latent is not None and self.flag("rope_interleave", True)
        return Settings(
            hidden=hidden,
            heads=heads,
            key_heads=heads if latent else self._key_heads(heads),
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
            later_norm="hidden_norm" if engine == "sglang" else "input_layernorm",
            latent=latent,
            numerics=numerics,
        )

    def odd(self, name: str, why: str) -> WorkbenchError:
        """Return the error for a field that does not go with something else."""
        return _odd(name, self.config.get(name), why)

    def _said(self, name: str) -> int:
        return 0 if self.config.get(name) is None else self.whole(name)

    def _head_dim(self, hidden: int, heads: int) -> int:
        if self.config.get("head_dim") is None and heads > hidden:
            raise _odd(
                "num_attention_heads", heads, f"hidden_size is {hidden} and no head_dim is said"
            )
        return self.whole("head_dim", hidden // heads)

    def _key_heads(self, heads: int) -> int:
        found = self.whole("num_key_value_heads", heads)
        if heads % found:
            raise _odd("num_key_value_heads", found, f"it must divide num_attention_heads, {heads}")
        return found

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


def _odd(name: str, value: object, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"the draft's config says {name} is {shown(value)}", why=why, next_step=_NEXT
    )
