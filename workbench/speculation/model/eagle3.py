"""A draft in plain PyTorch: one forward pass for all variants, keys and values kept outside.

Slot i of a draft pairs the embedding of token i + 1 with the target's features at i; its logits speak of
token i + 2. Who attends to whom, and from which positions, is the caller's business (`run`). Most variants
are EAGLE-3's; how EAGLE-1, EAGLE-2 and MTP join the two is in `joining`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from workbench.speculation.model.experts import Routing, mixed
from workbench.speculation.model.joining import Joining, join
from workbench.speculation.model.layers import (
    Numerics,
    Rope,
    add_norm,
    gated,
    heads_of,
    linear,
    rms_norm,
)
from workbench.speculation.model.mla import Latent, latent_heads

if TYPE_CHECKING:
    from torch import Tensor

Attention = Callable[[int, "Tensor", "Tensor", "Tensor"], "Tensor"]
"""(layer, queries, keys, values) → outputs, each [batch, slots, heads, width]."""

LaterNorm = Literal["hidden_norm", "input_layernorm"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a draft computes, apart from its weights. Each field is a switch that an ablation may turn.

    Attributes
    ----------
    hidden, heads, key_heads, head_dim, layers
        Sizes of the decoder.
    joining
        How embedding and features enter the first layer: side by side as its attention's input (``eagle3``),
        or joined by a matrix before it, ``fc`` of EAGLE-1 and EAGLE-2 (``eagle``) or ``eh_proj`` of a
        prediction layer (``mtp``).
    aux, aux_width
        How many layers of the target `fc` joins, and the width of each.
    epsilon
        Of all norms.
    rope, scale
        Rotary positions and the factor of attention scores.
    norm_before_fc, fc_norm
        One norm over all features, or one for each auxiliary layer, before `fc`.
    norm_before_residual
        The residual is the normed feature, not what came out of `fc`.
    norm_output
        The next step is fed the normed output; else the output before the last norm.
    passed_by
        Features as wide as the draft enter it without `fc`, as in SGLang.
    later_norm
        Which norm a layer after the first takes: SGLang `hidden_norm`, vLLM `input_layernorm`.
    hidden_first
        Feature before embedding where the two are put side by side. MiMo's prediction layer does so, and no
        engine does with an EAGLE draft.
    blank_first
        The slot at position 0 has no embedding, as in MiMo's prediction layer.
    latent
        Sizes of multi-head latent attention, None for grouped-query attention.
    routing
        How the tokens are sent to experts, None where the feed-forward part has none.
    centred
        Gains of norms are saved less one, as Gemma's and Qwen3-Next's are.
    output_gate
        Queries bring a gate along, by whose sigmoid the heads' outputs are multiplied (Qwen3-Next).
    numerics
        Where results are rounded.
    """

    hidden: int
    heads: int
    key_heads: int
    head_dim: int
    layers: int
    aux: int
    aux_width: int
    epsilon: float
    rope: Rope
    scale: float
    joining: Joining = "eagle3"
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    passed_by: bool = True
    later_norm: LaterNorm = "hidden_norm"
    hidden_first: bool = False
    blank_first: bool = False
    latent: Latent | None = None
    routing: Routing | None = None
    centred: bool = False
    output_gate: bool = False
    numerics: Numerics = dataclasses.field(default_factory=Numerics)


@dataclasses.dataclass(frozen=True, eq=False)
class Draft:
    """A draft with its weights, as an engine (or the trainer) has it in memory.

    Attributes
    ----------
    settings
        What it computes.
    tensors
        Weights in float32 by speculators' names: ``fc.weight``, ``layers.0.self_attn.q_proj.weight``,
        ``norm.weight``, ``lm_head.weight``, ``embed_tokens.weight`` …
    to_target
        Target id of each draft id, [draft vocabulary].
    origins
        Where each tensor came from: ``file``, ``target``, ``memory`` (captured in a running server),
        ``ones``, ``zero``, ``random``, ``nan`` (a fill).
    notes
        What a reader should know of how it was loaded.
    """

    settings: Settings
    tensors: Mapping[str, Tensor]
    to_target: Tensor
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def replaced(self, tensors: Mapping[str, Tensor] | None = None, **changes: Any) -> Draft:
        """Return a draft with other settings or other tensors, sharing all the rest.

        Parameters
        ----------
        tensors
            Tensors that take the place of those of the same name.
        changes
            Fields of `Settings`, or ``to_target``.
        """
        mapped = changes.pop("to_target", self.to_target)
        return dataclasses.replace(
            self,
            settings=dataclasses.replace(self.settings, **changes),
            tensors={**self.tensors, **(tensors or {})},
            to_target=mapped,
        )

    @property
    def vocabulary(self) -> int:
        """Size of the draft's own vocabulary."""
        return int(self.to_target.shape[0])

    @property
    def filled(self) -> tuple[str, ...]:
        """Names of the tensors that neither file nor target nor evidence gave."""
        return tuple(n for n, o in self.origins.items() if o in ("zero", "random", "nan"))

    @cached_property
    def computed(self) -> Mapping[str, Tensor]:
        """The weights as the forward pass takes them: of centred norms the whole gain."""
        if not self.settings.centred:
            return self.tensors
        norms = {n: v + 1 for n, v in self.tensors.items() if n.endswith("norm.weight")}
        return {**self.tensors, **norms}

    def features(self, hidden: Tensor) -> Tensor:
        """Return what enters the decoder, [..., hidden], for the target's features [..., width]."""
        s, weights = self.settings, self.tensors
        if s.passed_by and hidden.shape[-1] == s.hidden:
            return hidden
        if s.norm_before_fc and "input_norm.weight" in weights:
            hidden = rms_norm(hidden, weights["input_norm.weight"], s.epsilon, s.numerics)
        elif s.fc_norm:
            import torch

            parts = torch.split(hidden, s.aux_width, dim=-1)
            names = [f"fc_norm.{number}.weight" for number in range(len(parts))]
            ones = torch.ones(s.aux_width, device=hidden.device)
            hidden = torch.cat(
                [
                    rms_norm(part, weights.get(name, ones), s.epsilon, s.numerics)
                    for part, name in zip(parts, names, strict=True)
                ],
                dim=-1,
            )
        return linear(hidden, weights["fc.weight"], weights.get("fc.bias"), s.numerics)

    def forward(
        self, tokens: Tensor, hidden: Tensor, positions: Tensor, attention: Attention
    ) -> tuple[Tensor, Tensor]:
        """Run all layers.

        Parameters
        ----------
        tokens
            Target ids [batch, slots].
        hidden
            [batch, slots, hidden]: `features` at first, this function's own second result later.
        positions
            [batch, slots].
        attention
            Is given each layer's queries, keys and values, and keeps what it needs.

        Returns
        -------
        tuple
            What the head reads, and what the next step is fed; both [batch, slots, hidden].
        """
        s, weights = self.settings, self.computed
        residual = None
        table = weights["embed_tokens.weight"]
        # An id past the table ends a real engine; here it is drafted on, and never accepted.
        embedded = table[tokens.clamp(0, len(table) - 1)]
        for layer in range(s.layers):
            if layer:
                assert residual is not None
                norm = weights[f"layers.{layer}.{s.later_norm}.weight"]
                x, residual = add_norm(hidden, residual, norm, s.epsilon, s.numerics)
            elif s.joining == "eagle3":
                x, residual = self._entry(embedded, hidden)
            else:
                x, residual = join(s, weights, embedded, hidden, positions)
            q, k, v, gate = self._heads(layer, x, positions)
            out = attention(layer, q, k, v).flatten(2)
            if gate is not None:
                out = s.numerics.round(out * gate.sigmoid())
            name = f"layers.{layer}."
            x = linear(
                out,
                weights[f"{name}self_attn.o_proj.weight"],
                weights.get(f"{name}self_attn.o_proj.bias"),
                s.numerics,
            )
            norm = weights[f"{name}post_attention_layernorm.weight"]
            x, residual = add_norm(x, residual, norm, s.epsilon, s.numerics)
            hidden = self._feed_forward(name, x)
        assert residual is not None
        if (
            s.joining == "eagle"
        ):  # there is no last norm: what comes out stands for the next feature
            made = s.numerics.round(hidden + residual)
            return made, made
        normed, fed = add_norm(hidden, residual, weights["norm.weight"], s.epsilon, s.numerics)
        return normed, normed if s.norm_output else fed

    def logits(self, normed: Tensor) -> Tensor:
        """Return logits [..., draft vocabulary]."""
        return linear(normed, self.tensors["lm_head.weight"], None, self.settings.numerics)

    def _entry(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of an EAGLE-3 draft's first attention, and the residual."""
        import torch

        s, weights = self.settings, self.tensors
        normed = rms_norm(hidden, weights["layers.0.hidden_norm.weight"], s.epsilon, s.numerics)
        embedded = rms_norm(
            embedded, weights["layers.0.input_layernorm.weight"], s.epsilon, s.numerics
        )
        pair = (normed, embedded) if s.hidden_first else (embedded, normed)
        return torch.cat(pair, dim=-1), normed if s.norm_before_residual else hidden

    def _feed_forward(self, layer: str, x: Tensor) -> Tensor:
        """Return what the feed-forward part of a layer makes of its normed input."""
        s, weights = self.settings, self.tensors
        if s.routing is not None:
            return mixed(x, weights, layer, s.routing, s.numerics)
        gate, up, down = (weights[f"{layer}mlp.{p}_proj.weight"] for p in ("gate", "up", "down"))
        return gated(x, (gate, up, down), s.numerics)

    def _heads(
        self, layer: int, x: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return turned queries, turned keys and values [batch, slots, heads, …], and the outputs' gate."""
        s, weights, name = self.settings, self.computed, f"layers.{layer}.self_attn."
        if s.latent is not None:
            found = latent_heads(
                x, positions, weights, name, s.latent, s.rope, s.epsilon, s.numerics
            )
            return *found, None
        q, k, v = (
            heads_of(
                linear(
                    x,
                    weights[f"{name}{part}_proj.weight"],
                    weights.get(f"{name}{part}_proj.bias"),
                    s.numerics,
                ),
                s.head_dim * (1 + (s.output_gate and part == "q")),
            )
            for part in ("q", "k", "v")
        )
        gate = None
        if s.output_gate:
            q, gate = q.chunk(2, dim=-1)
            gate = gate.flatten(-2)
        if f"{name}q_norm.weight" in weights:
            q = rms_norm(q, weights[f"{name}q_norm.weight"], s.epsilon, s.numerics)
            k = rms_norm(k, weights[f"{name}k_norm.weight"], s.epsilon, s.numerics)
        places = positions[..., None]  # one position for all heads
        return s.rope.turn(q, places, s.numerics), s.rope.turn(k, places, s.numerics), v, gate
