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

from workbench.errors import WorkbenchError
from workbench.speculation.evidence.facts import Recorded
from workbench.speculation.evidence.files import left_out
from workbench.speculation.evidence.read_features import (
    MOST_TOKENS,
    load_pickle,
    no_sample,
    numbers,
    whole,
)

if TYPE_CHECKING:
    from torch import Tensor

_PASS = re.compile(r"Pass\d{1,9}\.pt$", re.ASCII)
_MOST_PASSES = 20_000
_MOST_BYTES = 8 << 30  # of all of them
_INPUT = ".forward_batch_info."


def passes_of(folder: Path) -> list[Path]:
    """Return the files of the target's passes in order, of the first rank; none where this is no dump."""
    return sorted(
        path
        for path in folder.rglob("Pass*.pt")
        if _PASS.search(path.name) and "TP0_" in path.parent.name and path.is_file()
        if "/draft/" not in path.as_posix()
    )


def read_dump(folder: Path) -> tuple[tuple[Recorded, ...], list[str]]:
    """Return the texts of a dump with the target's features, one a request, and what is left out.

    Passes of several requests at once are not taken apart: record one request at a time. A text ends where a
    pass is damaged: what came next is not known.
    """
    texts: list[_Text] = []
    odd: list[tuple[str, WorkbenchError]] = []
    open_text: _Text | None = None
    passes, size, many = passes_of(folder), 0, 0
    for path in passes[:_MOST_PASSES]:
        size += path.stat().st_size
        if size > _MOST_BYTES:
            break
        many += 1
        try:
            one = _Pass.of(load_pickle(path), path)
        except WorkbenchError as error:
            odd.append((path.name, error))
            open_text = None
            continue
        if one is None or not one.layers:  # the draft's own steps have no layer behind the first
            continue
        if one.positions[0] == 0:
            open_text = _Text()
            texts.append(open_text)
        if open_text is not None:
            open_text.add(one)
    found = [text.recorded(str(number)) for number, text in enumerate(texts)]
    notes = left_out("passes", odd)
    if many < len(passes):
        notes.append(f"{len(passes) - many} more passes were not read")
    if lost := found.count(None):
        notes.append(f"{lost} texts of the dump have no rounds, or not all of their places")
    return tuple(one for one in found if one is not None), notes


class _Pass:
    """One pass of the target: tokens, positions, and the inputs of its layers."""

    def __init__(
        self, tokens: list[int], positions: list[int], layers: Mapping[int, Tensor]
    ) -> None:
        self.tokens, self.positions, self.layers = tokens, positions, layers

    @classmethod
    def of(cls, found: Mapping[str, Any], path: Path) -> _Pass | None:
        """Return a pass of one request by the target, None for another.

        Raises
        ------
        WorkbenchError
            Tokens, positions and layers do not fit together.
        """
        import torch

        given = {
            name.rpartition(_INPUT)[2]: whole(value, path, name)
            for name, value in found.items()
            if _INPUT in name and isinstance(value, torch.Tensor)
        }
        seen = given.get("seq_lens")
        drafts = any(name.startswith(("model.fc", "model.midlayer")) for name in found)
        if (
            drafts
            or seen is None
            or seen.numel() != 1
            or not {"input_ids", "positions"} <= {*given}
        ):
            return None
        tokens, positions = (given[name].flatten().tolist() for name in ("input_ids", "positions"))
        if not tokens or len(tokens) != len(positions):
            raise no_sample(path, f"{len(tokens)} tokens do not fit {len(positions)} positions")
        for values, most in ((tokens, 1 << 31), (positions, MOST_TOKENS)):
            if not all(type(n) is int and 0 <= n < most for n in values):
                raise no_sample(path, "its tokens or positions are not whole numbers, or too large")
        return cls(tokens, positions, _inputs(found, len(tokens), path))


class _Text:
    """A request as its passes tell it: what a later pass says of a place counts."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}
        self.rows: dict[int, dict[int, Tensor]] = {}
        self.roots: list[int] = []
        self.prompt = self.end = 0

    def add(self, one: _Pass) -> None:
        """Put in one pass; the places behind its first are not known to be accepted until the next comes."""
        first = one.positions[0]
        if not self.prompt:
            self.prompt = len(one.tokens)
        else:
            self.roots.append(first)
        # The pass begins with the last verified token: whatever was guessed from there on is void.
        for place in range(first + 1, self.end):
            self.tokens.pop(place, None)
        self.end = max(first, *one.positions) + 1
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
        if len(places) > len(self.tokens) or not all(place in self.tokens for place in places):
            return None
        kept = sorted(set.intersection(*(set(self.rows[p]) for p in places)))
        if not kept or len({len(self.rows[p][k]) for p in places for k in kept}) > 1:
            return None
        rows = torch.stack([torch.cat([self.rows[p][k] for k in kept]) for p in places])
        known = tuple(root + 1 for root in self.roots)
        emitted = tuple(b - a for a, b in pairwise(known))
        tokens = tuple(self.tokens[p] for p in places)
        return Recorded(
            name, tokens, self.prompt, rows.float(), None, tuple(kept), known[:-1], emitted
        )


def _inputs(found: Mapping[str, Any], tokens: int, path: Path) -> dict[int, Tensor]:
    """Return the input of each layer: the residual that its first norm hands on."""
    import torch

    layers = {}
    for name, value in found.items():
        match = re.fullmatch(r"model\.layers\.(\d{1,4})\.input_layernorm", name, re.ASCII)
        if not match or not isinstance(value, list | tuple) or len(value) != 2:
            continue
        residual = value[1]
        if isinstance(residual, torch.Tensor) and residual.ndim == 2 and len(residual) == tokens:
            layers[int(match[1])] = numbers(residual, path, name)
    return layers
