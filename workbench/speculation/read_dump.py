"""SGLang's ``--debug-tensor-dump-output-folder``: every forward pass of target and draft as one file.

Each pass is ``TP0_PP0_Rank0_pidN/Pass00000.pt``: module name to output, and the pass's ``input_ids``,
``seq_lens`` and ``positions``. Newer versions write the target below ``target``, the draft below ``draft``,
older ones both below one folder, where a pass with ``model.fc`` or ``model.midlayer`` is the draft's. What is
read here is the text with the inputs of the target's layers, and where each round began.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.speculation.facts import Recorded
from workbench.speculation.read_features import load_pickle

if TYPE_CHECKING:
    from torch import Tensor

_PASS = re.compile(r"Pass\d{1,9}\.pt$")
_MOST_PASSES = 20_000
_INPUT = ".forward_batch_info."


def passes_of(folder: Path) -> list[Path]:
    """Return the files of all passes of the first rank, in order; none where the folder is no dump."""
    found = sorted(
        path
        for path in folder.rglob("Pass*.pt")
        if _PASS.search(path.name) and "TP0_" in path.parent.name
    )
    return found[:_MOST_PASSES]


def read_dump(folder: Path) -> tuple[Recorded, ...]:
    """Return the texts of a dump with the target's features, one a request.

    Passes of several requests at once are not taken apart: record one request at a time.
    """
    texts: list[_Text] = []
    passes = [path for path in passes_of(folder) if "/draft/" not in path.as_posix()]
    for path in passes:
        found = load_pickle(path)
        one = _Pass.of(found)
        if one is None or not one.layers:  # the draft's own steps have no layer behind the first
            continue
        if one.positions[0] == 0:
            texts.append(_Text())
        if texts:
            texts[-1].add(one)
    return tuple(r for number, text in enumerate(texts) if (r := text.recorded(str(number))))


class _Pass:
    """One pass of the target: tokens, positions, and the inputs of its layers."""

    def __init__(
        self, tokens: list[int], positions: list[int], layers: Mapping[int, Tensor]
    ) -> None:
        self.tokens, self.positions, self.layers = tokens, positions, layers

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> _Pass | None:
        """Return a pass of one request by the target, None for another."""
        import torch

        given = {
            name.rpartition(_INPUT)[2]: value.flatten().tolist()
            for name, value in found.items()
            if _INPUT in name and isinstance(value, torch.Tensor)
        }
        tokens, positions = given.get("input_ids"), given.get("positions")
        seen = given.get("seq_lens", [])
        drafts = any(name.startswith(("model.fc", "model.midlayer")) for name in found)
        if not tokens or not positions or len(seen) != 1 or drafts:
            return None
        if len(tokens) != len(positions) or not all(type(t) is int for t in tokens):
            return None
        return cls(tokens, positions, _inputs(found, len(tokens)))


class _Text:
    """A request as its passes tell it: what a later pass says of a place counts."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}
        self.rows: dict[int, dict[int, Tensor]] = {}
        self.roots: list[int] = []
        self.prompt = 0

    def add(self, one: _Pass) -> None:
        """Put in one pass; the places behind its first are not known to be accepted until the next comes."""
        first = one.positions[0]
        if not self.prompt:
            self.prompt = len(one.tokens)
        else:
            self.roots.append(first)
        # The pass begins with the last verified token: whatever was guessed from there on is void.
        for place in [p for p in self.tokens if p > first]:
            del self.tokens[place]
        for row, (place, token) in enumerate(zip(one.positions, one.tokens, strict=True)):
            if place in self.tokens and place != first:
                continue  # a tree: the first branch stands, later ones are siblings
            self.tokens[place] = token
            self.rows[place] = {layer: values[row] for layer, values in one.layers.items()}

    def recorded(self, name: str) -> Recorded | None:
        """Return the text with all layers that every place has, None where there are none."""
        import torch

        if not self.roots:
            return None
        # What follows the last root was drafted, and nobody says whether it was accepted.
        places = range(self.roots[-1] + 1)
        if not set(places) <= set(self.tokens):
            return None
        layers = set.intersection(*(set(self.rows[p]) for p in places))
        if not layers:
            return None
        kept = sorted(layers)
        rows = torch.stack([torch.cat([self.rows[p][k] for k in kept]) for p in places])
        known = tuple(root + 1 for root in self.roots)
        emitted = tuple(b - a for a, b in pairwise(known))
        tokens = tuple(self.tokens[p] for p in places)
        return Recorded(
            name, tokens, self.prompt, rows.float(), None, tuple(kept), known[:-1], emitted
        )


def _inputs(found: Mapping[str, Any], tokens: int) -> dict[int, Tensor]:
    """Return the input of each layer: the residual that its first norm hands on."""
    import torch

    layers = {}
    for name, value in found.items():
        match = re.fullmatch(r"model\.layers\.(\d{1,4})\.input_layernorm", name)
        if not match or not isinstance(value, list | tuple) or len(value) != 2:
            continue
        residual = value[1]
        if isinstance(residual, torch.Tensor) and residual.ndim == 2 and len(residual) == tokens:
            layers[int(match[1])] = residual
    return layers
