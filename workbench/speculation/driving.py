"""How an engine drives a draft, by version: which features, which positions, what an extend sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from packaging.version import Version

from workbench.engines.registry import parse
from workbench.errors import WorkbenchError

Extend = Literal["prefix", "block", "accepted"]


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
        How many positions too far on later steps are drafted: 1 in SGLang before 0.5.12.
    frozen
        Later steps keep the root's position.
    extend
        What the root sees when the draft is extended after a verification. ``prefix``: all that was
        verified, once. ``block``: also the rejected slots of the last round, and its accepted ones twice
        (chains in CUDA graphs of SGLang's Triton backend before 0.5.13). ``accepted``: the accepted ones of
        the last round twice (its older worker, which drives trees).
    moved
        Whether a branch that is drafted on brings its own keys and values along. SGLang leaves them where
        they are: a branch that hangs on another one's node sees the keys of whoever had its place before.
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
    lagging: bool = False

    def replaced(self, **changes: Any) -> Driving:
        """Return the same with other fields."""
        return dataclasses.replace(self, **changes)


def default_layers(layers: int) -> tuple[int, ...]:
    """Return the auxiliary layers that every trainer and engine takes unless told otherwise."""
    return (2, layers // 2, layers - 3)


def captured_layers(
    engine: str | None,
    named: Sequence[int] | None,
    model_type: str,
    layers: int,
) -> tuple[int, ...]:
    """Return the layers whose input an engine captures.

    Parameters
    ----------
    engine
        ``"sglang==0.5.14"``; None: the trainer's own ids, which name inputs.
    named
        The ids of the config where this engine reads them; None: it falls back to the default.
    model_type
        The target's, which decides whether SGLang adds one.
    layers
        Number of layers of the target.
    """
    if not named:
        return default_layers(layers)
    ids = tuple(named)
    if engine is None or parse(engine).name != "sglang":
        return ids
    kind = model_type.lower()
    if kind in ("gpt_oss",):
        version = parse(engine).version
        if max(ids) == layers and version and Version(version) >= Version("0.5.15"):
            return ids
        return tuple(k + 1 for k in ids)
    if kind in ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite"):
        version = parse(engine).version
        always = bool(version) and Version(version) < Version("0.5.14")
        return tuple(k + 1 for k in ids) if always or ids[0] == 1 else ids
    return tuple(k + 1 for k in ids)


def driving_of(
    engine: str | None,
    *,
    steps: int = 3,
    topk: int = 1,
    draft_tokens: int | None = None,
    aux: tuple[int, ...] | None = None,
    graphs: bool = True,
    backend: str = "triton",
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
    """
    if topk < 1 or steps < 1:
        raise WorkbenchError(
            f"steps {steps} and topk {topk} draft nothing", next_step="Give 1 or more of each."
        )
    if topk == 1 or draft_tokens is None:
        draft_tokens = steps + 1
    base = Driving(steps, topk, draft_tokens, aux)
    chosen = parse(engine) if engine else None
    if chosen is None or chosen.name != "sglang":
        return base
    if not chosen.version:
        return base.replaced(moved=False)
    # Read in 0.5.8, 0.5.11, 0.5.12, 0.5.14 and 0.5.23: of the releases between, the change may lie in either.
    version = Version(Version(chosen.version).public)
    extend: Extend = "prefix"
    if backend == "triton" and version < Version("0.5.13"):
        if topk > 1:
            extend = "accepted"
        elif graphs:
            extend = "block"
    ahead = 1 if version < Version("0.5.12") else 0
    return base.replaced(ahead=ahead, extend=extend, moved=False)


def read_ids(config: Mapping[str, Any], *, trainer: bool) -> tuple[int, ...] | None:
    """Return the auxiliary layers that a draft's config names, where it is read for them.

    With `trainer` the top-level list of speculators counts; SGLang reads ``eagle_config`` alone.
    """
    eagle = config.get("eagle_config")
    ids = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, Mapping) else None
    if trainer and config.get("eagle_aux_hidden_state_layer_ids"):
        ids = config["eagle_aux_hidden_state_layer_ids"]
    if not isinstance(ids, list | tuple) or not ids:
        return None
    if not all(isinstance(k, int) and not isinstance(k, bool) and 0 <= k < 10_000 for k in ids):
        raise WorkbenchError(
            "eagle_aux_hidden_state_layer_ids is no list of layer numbers",
            next_step="Write the layers of the training run, as in [2, 18, 33].",
        )
    return tuple(ids)
