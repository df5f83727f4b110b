"""How an engine drives a draft, by version: which features, which positions, what an extend sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal

from workbench.errors import WorkbenchError, shown
from workbench.facts.capture_rules import auxiliary_off, capture_of
from workbench.facts.features import newest, since
from workbench.facts.rows import known, nearest
from workbench.loaders.registry import parse

Extend = Literal["prefix", "block", "accepted"]
MOST = 64
"""Levels and branches of a tree: several times what anyone serves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Driving:
    """How a draft is driven. Each field is a switch that an ablation may turn.

    Attributes
    ----------
    steps, topk, draft_tokens
        Depth of the tree, its width, and its nodes with the root.
    aux
        The target's layers whose *input* the draft reads, in order; None: the target's last features after
        its final norm (an EAGLE-3 draft launched as EAGLE).
    ahead
        How many positions too far on later steps are drafted: 1 in older SGLang.
    frozen
        Later steps keep the root's position.
    extend
        What the root sees when the draft is extended after a verification. ``prefix``: all that was
        verified, once. ``block``: also the rejected slots of the last round, and its accepted ones twice
        (SGLang's newer worker, in CUDA graphs). ``accepted``: the accepted ones of the last round twice (its
        older worker). Both with its older Triton backend.
    moved
        Whether a branch that is drafted on brings its own keys and values along. SGLang leaves them where
        they are: a branch that hangs on another one's node sees the keys of whoever had its place before.
    refreshed
        Whether verified tokens are entered again with the target's features, as every engine does. If not,
        the keys that were made while drafting stay, and `extend` has no meaning.
    lagging
        Each slot is given the token of its own features, not the one after it: wrong for every EAGLE-3
        trainer and engine.
    """

    steps: int = 3
    topk: int = 1
    draft_tokens: int = 4
    aux: tuple[int, ...] | None = None
    ahead: int = 0
    frozen: bool = False
    extend: Extend = "prefix"
    moved: bool = True
    refreshed: bool = True
    lagging: bool = False

    def replaced(self, **changes: Any) -> Driving:
        """Return the same with other fields."""
        return dataclasses.replace(self, **changes)


def default_layers(layers: int) -> tuple[int, ...]:
    """Return the auxiliary layers that every trainer and engine takes unless set otherwise."""
    return (2, layers // 2, layers - 3)


def captured_layers(
    engine: str | None,
    named: Sequence[int] | None,
    model_type: str,
    layers: int,
    architectures: Sequence[str] = (),
) -> tuple[int, ...]:
    """Return the layers whose input an engine captures.

    Parameters
    ----------
    engine
        ``"sglang==0.5.14"``; None: the trainer's own ids, which name inputs.
    named
        The ids of the config where this engine reads them; None: it falls back to the default.
    model_type, architectures
        The target's: its class decides whether SGLang adds one.
    layers
        Number of layers of the target.
    """
    if not named:
        return default_layers(layers)
    ids = tuple(named)
    chosen = parse(engine) if engine else None
    if chosen is None or chosen.name != "sglang":
        return ids
    # Without a version the newest way counts, and for one that was not read that of the release before it.
    version = _read_release(chosen.version) if chosen.version else newest("sglang")
    capture = capture_of(version, architectures, model_type)
    found = capture.layers(ids, layers)
    # A target that is not known: most classes add one.
    return tuple(found) if found is not None else tuple(k + 1 for k in ids)


def captures_nothing(engine: str, config: Mapping[str, Any]) -> bool:
    """Tell whether the config that an engine reads keeps it from capturing auxiliary layers."""
    eagle, chosen = config.get("eagle_config"), parse(engine)
    return isinstance(eagle, Mapping) and auxiliary_off(eagle, chosen.name, chosen.version or "")


def _read_release(version: str) -> str:
    return known("sglang", version) or nearest("sglang", version)


def check_shape(steps: Any, topk: Any, draft_tokens: Any) -> None:
    """Raise where numbers describe no draft tree, or one that nobody serves.

    A tree of `steps` levels has ``topk + (steps - 1) * topk ** 2`` candidates, of which ``draft_tokens - 1``
    are taken (SGLang's `organize_draft_results`).
    """
    for name, value, most in (("steps", steps, MOST), ("topk", topk, MOST)):
        if not is_whole(value) or not 1 <= value <= most:
            raise WorkbenchError(
                f"{name} {shown(value)} drafts nothing",
                next_step=f"Give a whole number from 1 to {most}.",
            )
    if draft_tokens is None or topk == 1:
        return  # a chain's follow from its steps
    most = topk + (steps - 1) * topk * topk + 1
    if not is_whole(draft_tokens) or not 2 <= draft_tokens <= most:
        raise WorkbenchError(
            f"draft_tokens {shown(draft_tokens)} makes no tree of {steps} steps and topk {topk}",
            why=f"with the root it has 2 to {most:,} nodes",
            next_step="Give the number that the server was launched with "
            "(--speculative-num-draft-tokens).",
        )


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number, numpy's too."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def driving_of(
    engine: str | None,
    *,
    steps: int = 3,
    topk: int = 1,
    draft_tokens: int | None = None,
    aux: tuple[int, ...] | None = None,
    graphs: bool = True,
    backend: str = "triton",
    overlap: bool | None = None,
) -> Driving:
    """Return how an engine of this version drives a draft.

    Parameters
    ----------
    engine
        ``"sglang==0.5.11"``; None: as the trainer means it.
    draft_tokens
        With the root; forced to steps + 1 for chains, as every recent version does.
    graphs, backend
        Whether CUDA graphs are on, and the attention backend.
    overlap
        Whether drafting and scheduling overlap, which chooses SGLang's newer worker for chains; None: as the
        version has it by itself.
    """
    check_shape(steps, topk, draft_tokens)
    if topk == 1 or draft_tokens is None:
        draft_tokens = steps + 1
    base = Driving(steps, topk, draft_tokens, aux)
    chosen = parse(engine) if engine else None
    if chosen is None or chosen.name != "sglang":
        return base
    if not chosen.version:
        return base.replaced(moved=False)
    version = _read_release(chosen.version)
    extend: Extend = "prefix"
    # layers/attention/triton_backend.py, _update_draft_extend_buffers, leaves new slots out of the prefix.
    # Where it is there, the older worker, which counted them in, is gone, and the newer one drives trees too.
    alone = since("sglang", "overlapped worker alone", version)
    if backend == "triton" and not alone:
        by_default = since("sglang", "overlapped worker by default", version) is True
        newer = topk == 1 and (by_default if overlap is None else overlap)
        if not newer:
            extend = "accepted"
        elif graphs:
            extend = "block"
    ahead = 0 if since("sglang", "draft positions after the step", version) else 1
    return base.replaced(ahead=ahead, extend=extend, moved=False)


def read_ids(config: Mapping[str, Any], *, trainer: bool) -> tuple[int, ...] | None:
    """Return the auxiliary layers that a draft's config names, where it is read for them.

    With `trainer` the top-level list of speculators counts; SGLang reads ``eagle_config`` alone.
    """
    eagle = config.get("eagle_config")
    if eagle is not None and not isinstance(eagle, Mapping):
        raise _no_ids("eagle_config", eagle, "it must be an object")
    ids = eagle.get("eagle_aux_hidden_state_layer_ids") if eagle else None
    if trainer and config.get("eagle_aux_hidden_state_layer_ids"):
        ids = config["eagle_aux_hidden_state_layer_ids"]
    if ids is None or ids == []:
        return None
    if not isinstance(ids, list | tuple) or not all(
        isinstance(k, int) and not isinstance(k, bool) and 0 <= k < 10_000 for k in ids
    ):
        raise _no_ids("eagle_aux_hidden_state_layer_ids", ids, "it must be a list of layer numbers")
    return tuple(ids)


def _no_ids(name: str, value: object, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"the draft's config says {name} is {shown(value, 60)}",
        why=why,
        next_step="Write the layers of the training run, as in [2, 18, 33].",
    )
