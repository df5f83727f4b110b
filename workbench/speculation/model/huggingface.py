"""Any causal language model of transformers as the target.

Its hidden states are those that transformers hands out: entry k is the input of layer k, and the last one
comes after the final norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.speculation.model.features import (
    Branches,
    TargetTrace,
    Tokens,
    begins_of,
    choices_of,
    join_choices,
    pad,
)
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.target import ancestry
from workbench.speculation.model.threads import on_few_threads

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 8  # requests at a time


class HuggingFaceTarget:
    """A loaded model of transformers.

    Parameters
    ----------
    model
        A causal language model, in whatever dtype and wherever it lies; it is put into evaluation mode.
    numerics
        How the *draft* beside it rounds; the target computes in its own dtype.
    """

    def __init__(self, model: Any, numerics: Numerics | None = None) -> None:
        self.model = model.eval()
        config = getattr(model.config, "text_config", None) or model.config
        self.layers = int(config.num_hidden_layers)
        self.hidden = int(config.hidden_size)
        self.vocabulary = int(config.vocab_size)
        self.model_type = str(config.model_type)
        self.numerics = numerics or Numerics()
        self.device = str(next(model.parameters()).device)

    @property
    def embedding(self) -> Tensor:
        """Embeddings [vocabulary, hidden]."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.detach().float()

    @property
    def head(self) -> Tensor:
        """Output weights [vocabulary, hidden]."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight.detach().float()

    def logits(self, final: Tensor) -> Tensor:
        """Return logits of features after the final norm, as the head alone makes them."""
        import torch

        head = self.model.get_output_embeddings()
        with torch.no_grad():
            found: Tensor = head(final.to(head.weight.dtype))
        return found.float()

    @on_few_threads
    def trace(
        self,
        sequences: Sequence[Tokens],
        prompts: Sequence[int],
        keep: Sequence[int] | None = None,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> TargetTrace:
        """Run once over all sequences; see `LlamaTarget.trace`. Layer n, the last output, is not known."""
        import torch

        tokens, lengths = pad(sequences, self.device)
        wanted = range(self.layers) if keep is None else keep
        self._check(wanted)
        kept: dict[int, list[Tensor]] = {k: [] for k in wanted}
        finals, choices = [], []
        with torch.no_grad():
            for start in range(0, len(tokens), _ROWS):
                rows = slice(start, start + _ROWS)
                places = torch.arange(tokens.shape[1], device=self.device)
                mask = (places[None, :] < lengths[rows, None]).long()
                found = self.model(
                    input_ids=tokens[rows],
                    attention_mask=mask,
                    output_hidden_states=True,
                    use_cache=False,
                )
                for k, parts in kept.items():
                    parts.append(found.hidden_states[k].float())
                finals.append(found.hidden_states[-1].float())
                choices.append(choices_of(found.logits.float()))
        return TargetTrace(
            tokens,
            lengths,
            torch.tensor(list(prompts), device=self.device),
            {k: torch.cat(parts) for k, parts in kept.items()},
            torch.cat(finals),
            join_choices(choices),
            begins_of(tokens, starts),
            self,
        )

    def grown(
        self,
        trace: TargetTrace,
        sequences: Sequence[Tokens],
        starts: Sequence[Sequence[int]] | None = None,
    ) -> TargetTrace:
        """Return the trace of sequences that go on where those of `trace` end, all run again."""
        return self.trace(sequences, trace.prompts.tolist(), sorted(trace.inputs), starts)

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
        """Run over drafted tokens; see `Target.branches`. Text and branch go through together."""
        import torch

        self._check(keep or ())
        seen, depth = ancestry(parents)
        features, choices = [], []
        with torch.no_grad():
            for start in range(0, len(tokens), _ROWS):
                rows = slice(start, start + _ROWS)
                longest = int(known[rows].max())
                ids = torch.cat([trace.tokens[requests[rows], :longest], tokens[rows]], dim=1)
                places = torch.arange(longest, device=self.device)
                positions = torch.cat(
                    [places.expand(len(ids), -1), known[rows, None] + depth[rows] - 1], dim=1
                )
                found = self.model(
                    input_ids=ids,
                    attention_mask=self._mask(known[rows], longest, seen[rows]),
                    position_ids=positions,
                    output_hidden_states=True,
                    use_cache=False,
                )
                states = [found.hidden_states[k] for k in (keep if keep is not None else (-1,))]
                features.append(torch.cat([state[:, longest:] for state in states], -1).float())
                if keep is None:
                    choices.append(choices_of(found.logits[:, longest:].float()))
        return Branches(torch.cat(features), join_choices(choices) if choices else None)

    @on_few_threads
    def greedy(self, prompts: Sequence[Tokens], new_tokens: int) -> list[list[int]]:
        """Return greedy continuations of `prompts`, by transformers' own generation."""
        import torch

        out = []
        for prompt in prompts:
            ids = torch.tensor([list(prompt)], device=self.device)
            with torch.no_grad():
                found = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=new_tokens,
                    min_new_tokens=new_tokens,
                    do_sample=False,
                )
            out.append(found[0, len(prompt) :].tolist())
        return out

    def _mask(self, known: Tensor, longest: int, seen: Tensor) -> Tensor:
        """Return the additive mask [rows, 1, places, places] of texts with a branch behind each."""
        import torch

        rows, count = len(known), seen.shape[1]
        places = torch.arange(longest, device=known.device)
        allowed = torch.zeros(rows, longest + count, longest + count, dtype=torch.bool)
        allowed = allowed.to(known.device)
        allowed[:, :longest, :longest] = places[:, None] >= places[None, :]
        allowed[:, longest:, :longest] = (places[None, :] < known[:, None])[:, None]
        allowed[:, longest:, longest:] = seen
        kind = next(self.model.parameters()).dtype
        mask = torch.zeros(allowed.shape, dtype=kind, device=known.device)
        return mask.masked_fill(~allowed, -math.inf)[:, None]

    def _check(self, layers: Sequence[int] | range) -> None:
        if any(k >= self.layers for k in layers):
            raise WorkbenchError(
                f"the input of layer {max(layers)} is not known",
                why=f"the model has layers 0 to {self.layers - 1}; transformers norms its last output",
                next_step="Give layers below that number.",
            )
