"""A Llama-like target in plain PyTorch, with an engine's rounding: Llama, Mistral, Qwen2 and Qwen3."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.core import progress
from workbench.errors import WorkbenchError, shown
from workbench.speculation.model.config_fields import ModelConfig
from workbench.speculation.model.features import (
    Branches,
    Choices,
    TargetTrace,
    Tokens,
    begins_of,
    choices_of,
    join_choices,
    pad,
)
from workbench.speculation.model.layers import (
    EXTEND_TILE,
    AttentionContext,
    Numerics,
    add_norm,
    attend,
    below,
    bias_of,
    causal_bias,
    extend_tiles,
    gated,
    heads_of,
    joined,
    linear,
    rms_norm,
    rows_of,
)
from workbench.speculation.model.rope import attention_scale, rope_of
from workbench.speculation.model.target_weights import QUANTISED, read_weights
from workbench.speculation.model.threads import on_few_threads
from workbench.speculation.model.windows import window_of

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.checkpoint import Checkpoint

KINDS = ("llama", "mistral", "qwen2", "qwen3")
_ROWS = 32  # requests at a time
Attention = Any


class LlamaTarget:
    """A dense decoder of Llama's kind.

    Parameters
    ----------
    weights
        By Hugging Face's names, any float type; kept as float32.
    config
        The flat config.json.
    numerics
        Where results are rounded: ``bfloat16`` computes as an engine does that serves in it.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        config: Mapping[str, Any],
        numerics: Numerics | None = None,
        device: str = "cpu",
    ) -> None:
        self.weights = {name: value.to(device).float() for name, value in weights.items()}
        self.numerics = numerics or Numerics()
        self.device = device
        fields = ModelConfig(config, "the target's")
        self.layers = fields.whole("num_hidden_layers")
        self.hidden = fields.hidden
        self.vocabulary = fields.whole("vocab_size")
        self.model_type = str(config.get("model_type", "llama"))
        self.head_dim = fields.head_dim
        self.epsilon = fields.epsilon
        self.rope = rope_of(config, self.head_dim)
        self.scale = attention_scale(config, self.head_dim)
        self.tied = fields.flag("tie_word_embeddings")
        self.notes: tuple[str, ...] = ()
        self.window = window_of(config)

    @classmethod
    def read(
        cls, checkpoint: Checkpoint, numerics: Numerics | None = None, device: str = "cpu"
    ) -> LlamaTarget:
        """Read a checkpoint.

        Raises
        ------
        WorkbenchError
            Its model type is not one of `KINDS`, which `HuggingFaceTarget` runs; or a tensor does not fit.
        """
        config = checkpoint.config
        if config.model_type not in KINDS:
            raise WorkbenchError(
                f"a target of type {shown(config.model_type)} is not run here",
                why=f"plain PyTorch covers {', '.join(KINDS)}",
                next_step="Load it with transformers and give the model.",
            )
        weights = read_weights(checkpoint, ModelConfig(config.text, "the target's"))
        target = cls(weights, config.text, numerics, device)
        if checkpoint.quantization.groups:
            target.notes = (QUANTISED,)
        return target

    @property
    def embedding(self) -> Tensor:
        """Embeddings [vocabulary, hidden]."""
        return self.weights["model.embed_tokens.weight"]

    @property
    def head(self) -> Tensor:
        """Output weights [vocabulary, hidden]."""
        return self.embedding if self.tied else self.weights["lm_head.weight"]

    def logits(self, final: Tensor) -> Tensor:
        """Return logits of features after the final norm."""
        return linear(final, self.head, None, self.numerics)

    def forward(
        self, tokens: Tensor, positions: Tensor, attention: Attention
    ) -> tuple[list[Tensor], Tensor]:
        """Return the input of every layer, and the last features after the final norm.

        Parameters
        ----------
        tokens, positions
            [batch, slots].
        attention
            (layer, queries, keys, values) → outputs, all [batch, slots, heads, head_dim].
        """
        inputs, x, residual = self._run(self.layers, tokens, positions, attention)
        norm = self.weights["model.norm.weight"]
        final, residual = add_norm(x, residual, norm, self.epsilon, self.numerics)
        return [*inputs, residual], final

    def inputs(
        self, last: int, tokens: Tensor, positions: Tensor, attention: Attention
    ) -> list[Tensor]:
        """Return the input of every layer up to `last`; what lies behind is not run."""
        inputs, x, residual = self._run(max(last, 1), tokens, positions, attention)
        return [*inputs, self.numerics.round(x + residual)]

    def _run(
        self, count: int, tokens: Tensor, positions: Tensor, attention: Attention
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Run some layers: their inputs, the output of the last one and what is added to it."""
        n, w, e = self.numerics, self.weights, self.epsilon
        x: Tensor | None = None
        residual, inputs = self.embedding[tokens], []
        for layer in range(count):
            name = f"model.layers.{layer}."
            norm = w[f"{name}input_layernorm.weight"]
            if x is None:
                y = rms_norm(residual, norm, e, n)
            else:
                y, residual = add_norm(x, residual, norm, e, n)
            inputs.append(residual)
            out = attention(layer, *self._heads(name, y, positions)).flatten(2)
            x = linear(
                out,
                w[f"{name}self_attn.o_proj.weight"],
                w.get(f"{name}self_attn.o_proj.bias"),
                n,
            )
            norm = w[f"{name}post_attention_layernorm.weight"]
            y, residual = add_norm(x, residual, norm, e, n)
            parts = (w[f"{name}mlp.gate_proj.weight"], w[f"{name}mlp.up_proj.weight"])
            x = gated(y, (*parts, w[f"{name}mlp.down_proj.weight"]), n)
        assert x is not None
        return inputs, x, residual

    def _heads(self, name: str, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w, n = self.weights, self.numerics
        q, k, v = (
            heads_of(
                linear(
                    x,
                    w[f"{name}self_attn.{p}_proj.weight"],
                    w.get(f"{name}self_attn.{p}_proj.bias"),
                    n,
                ),
                self.head_dim,
            )
            for p in ("q", "k", "v")
        )
        if f"{name}self_attn.q_norm.weight" in w:
            q = rms_norm(q, w[f"{name}self_attn.q_norm.weight"], self.epsilon, n)
            k = rms_norm(k, w[f"{name}self_attn.k_norm.weight"], self.epsilon, n)
        places = positions[..., None]
        return self.rope.turn(q, places, n), self.rope.turn(k, places, n), v

    @on_few_threads
    def trace(
        self,
        sequences: Sequence[Tokens],
        prompts: Sequence[int],
        keep: Sequence[int] | None = None,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> TargetTrace:
        """Run once over all sequences.

        Parameters
        ----------
        sequences
            Prompt and answer of each request, as token ids.
        prompts
            How many of them are the prompt's.
        keep
            Layers whose input is kept; None: all of them.
        starts
            Where an engine's rounds began, if the text is one's: it rounds block by block.
        """
        import torch

        tokens, lengths = pad(sequences, self.device)
        begins = begins_of(tokens, starts)
        wanted = range(self.layers + 1) if keep is None else keep
        kept: dict[int, list[Tensor]] = {k: [] for k in wanted}
        finals, choices, caches = [], [], []
        progress.say("running the target over the texts")
        for start in range(0, len(tokens), _ROWS):
            progress.step(start, len(tokens), " texts")
            rows = slice(start, start + _ROWS)
            inputs, final, kv = self._pass(tokens[rows], lengths[rows], begins[rows])
            for k, parts in kept.items():
                parts.append(inputs[k])
            finals.append(final)
            choices.append(choices_of(self.logits(final)))
            caches.append(kv)
        cache = tuple(below([kv[layer] for kv in caches]) for layer in range(self.layers))
        return TargetTrace(
            tokens,
            lengths,
            torch.tensor(list(prompts), device=self.device),
            {k: torch.cat(parts) for k, parts in kept.items()},
            torch.cat(finals),
            join_choices(choices),
            begins,
            self,
            cache,
        )

    def _pass(
        self, tokens: Tensor, lengths: Tensor, begins: Tensor
    ) -> tuple[list[Tensor], Tensor, list[tuple[Tensor, Tensor]]]:
        import torch

        bias = causal_bias(tokens.shape[1], lengths)
        places = torch.arange(tokens.shape[1], device=self.device)
        tiles = extend_tiles(begins, places)
        cache: list[tuple[Tensor, Tensor]] = []

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.append((k, v))
            return attend(q, AttentionContext(k, v, bias, tiles), None, self.scale, self.numerics)

        positions = torch.arange(tokens.shape[1], device=self.device).expand_as(tokens)
        inputs, final = self.forward(tokens, positions, attention)
        return inputs, final, cache

    @on_few_threads
    def grown(
        self,
        trace: TargetTrace,
        sequences: Sequence[Tokens],
        starts: Sequence[Sequence[int]] | None = None,
    ) -> TargetTrace:
        """Return the trace of sequences that go on where those of `trace` end; only what is new is run."""
        import torch

        tokens, lengths = pad(sequences, self.device)
        begins, size = begins_of(tokens, starts), tokens.shape[1]
        places = torch.arange(size, device=self.device)
        slots = trace.lengths[:, None] + places[None, : int((lengths - trace.lengths).max())]
        inside = slots < lengths[:, None]
        slots = slots.clamp(max=size - 1)
        at = (
            torch.arange(len(tokens), device=self.device)[:, None].expand_as(slots)[inside],
            slots[inside],
        )
        bias = bias_of(places <= slots[..., None])
        tiles = extend_tiles(begins.gather(1, slots), places)

        def put(old: Tensor, new: Tensor) -> Tensor:
            out = old.new_zeros(len(old), size, *old.shape[2:])
            out[:, : old.shape[1]] = old[:, :size]
            out[at] = new[inside]
            return out

        cache: list[tuple[Tensor, Tensor]] = []

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = (put(*pair) for pair in zip(trace.cache[layer], (k, v), strict=True))
            cache.append((keys, values))
            return attend(
                q, AttentionContext(keys, values, bias, tiles), None, self.scale, self.numerics
            )

        inputs, final = self.forward(tokens.gather(1, slots), slots, attention)
        assert trace.final is not None
        assert trace.choices is not None
        new = choices_of(self.logits(final))
        names = [field.name for field in dataclasses.fields(Choices)]
        return TargetTrace(
            tokens, lengths, trace.prompts, {k: put(v, inputs[k]) for k, v in trace.inputs.items()},
            put(trace.final, final),
            Choices(*(put(getattr(trace.choices, name), getattr(new, name)) for name in names)),
            begins, self, tuple(cache),
        )  # fmt: skip

    @on_few_threads
    def branches(
        self,
        trace: TargetTrace,
        requests: Tensor,
        known: Tensor,
        tokens: Tensor,
        parents: Tensor,
        keep: Sequence[int] | None,
    ) -> Branches:
        """Run over drafted tokens; see `Target.branches`."""
        import torch

        seen, depth = ancestry(parents)
        places = torch.arange(trace.tokens.shape[1], device=self.device)
        positions = known[:, None] + depth - 1
        features, choices = [], []
        for start in range(0, len(tokens), 16 * _ROWS):
            rows = slice(start, start + 16 * _ROWS)
            at = requests[rows]
            before = (places[None, :] < known[rows, None])[:, None].expand(-1, tokens.shape[1], -1)
            past, own = bias_of(before), bias_of(seen[rows])
            begin = (known[rows, None] - 1).expand(-1, tokens.shape[1])
            behind = (begin[:, :1] // EXTEND_TILE + 1)[..., None].expand_as(own)
            tiles = torch.cat([extend_tiles(begin, places), behind], dim=-1)

            def attention(
                layer: int, q: Tensor, k: Tensor, v: Tensor, at: Tensor = at,
                past: Tensor = past, own: Tensor = own, tiles: Tensor = tiles,
            ) -> Tensor:  # fmt: skip
                both = joined([rows_of(trace.cache[layer], at), (k, v)])
                bias = torch.cat([past, own], -1)
                return attend(
                    q, AttentionContext(*both, bias, tiles), None, self.scale, self.numerics
                )

            given = tokens[rows], positions[rows], attention
            if keep is not None:
                inputs = self.inputs(max(keep), *given)
                features.append(torch.cat([inputs[k] for k in keep], dim=-1))
            else:
                features.append(self.forward(*given)[1])
                choices.append(choices_of(self.logits(features[-1])))
        return Branches(torch.cat(features), join_choices(choices) if choices else None)

    @on_few_threads
    def greedy(self, prompts: Sequence[Tokens], new_tokens: int) -> list[list[int]]:
        """Return greedy continuations of `prompts`, each `new_tokens` long."""
        import torch

        out: list[list[int]] = []
        with torch.no_grad():
            for start in range(0, len(prompts), _ROWS):
                out += self._greedy(prompts[start : start + _ROWS], new_tokens)
        return out

    def _greedy(self, prompts: Sequence[Tokens], new_tokens: int) -> list[list[int]]:
        """Continue some prompts, a token at a time; answers' keys and values are kept beside the trace."""
        import torch

        trace = self.trace(prompts, [len(p) for p in prompts], keep=())
        assert trace.choices is not None
        rows = torch.arange(len(prompts), device=self.device)
        found = [trace.choices.best[rows, trace.lengths - 1]]
        places = torch.arange(trace.tokens.shape[1], device=self.device)
        past = bias_of(places[None, :] < trace.lengths[:, None])[:, None]
        own: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(self.layers)]

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            own[layer].append((k, v))
            pairs = [trace.cache[layer], *own[layer]]
            bias = torch.cat([past, torch.zeros(len(q), 1, len(own[layer]), device=q.device)], -1)
            return attend(
                q, AttentionContext(*joined(pairs), bias), None, self.scale, self.numerics
            )

        while len(found) < new_tokens:
            positions = (trace.lengths + len(found) - 1)[:, None]
            _, final = self.forward(found[-1][:, None], positions, attention)
            found.append(self.logits(final[:, 0]).argmax(-1))
        return torch.stack(found, dim=1)[:, :new_tokens].tolist()


def ancestry(parents: Tensor) -> tuple[Tensor, Tensor]:
    """Return which nodes each node sees, [n, m, m], and their depths [n, m], 1 for a child of the root."""
    import torch

    count = parents.shape[1]
    seen = torch.eye(count, dtype=torch.bool, device=parents.device).repeat(len(parents), 1, 1)
    depth = torch.ones_like(parents)
    rows = torch.arange(len(parents), device=parents.device)
    for node in range(count):
        parent = parents[:, node].clamp(min=0)
        has = parents[:, node] >= 0
        seen[:, node] |= seen[rows, parent] & has[:, None]
        depth[:, node] = torch.where(has, depth[rows, parent] + 1, 1)
    return seen, depth
