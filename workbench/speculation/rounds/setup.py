"""Draft and driving as a launch had them; a launch without an engine is what the trainer means."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError, shown
from workbench.speculation.evidence.driving import (
    Driving,
    captured_layers,
    captures_nothing,
    driving_of,
    read_ids,
)
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.model.draft_kinds import replayed_as
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.layers import Kind, Numerics
from workbench.speculation.model.loading import Fill, load_draft, served_config

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.speculation.model.features import Target

_KINDS: Mapping[str, Kind] = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16"}


def numerics_of(launch: DraftLaunch) -> Numerics:
    """Return the rounding of the dtype that a launch names; none named is taken for float32."""
    return Numerics(_KINDS.get(launch.dtype, "float32"))


def as_launched(
    launch: DraftLaunch,
    checkpoint: Checkpoint,
    target: Target,
    *,
    memory: Mapping[str, Tensor] | None = None,
    fill: Fill = "zero",
    device: str = "cpu",
) -> tuple[Draft, Driving]:
    """Return the draft as this engine had it in memory, and how it drove it.

    Parameters
    ----------
    launch
        Of a recorded run, or made by hand: version, algorithm, tree, graphs.
    checkpoint, target
        The draft's file, and what it was served with.
    memory
        Tensors captured in the running engine (``memory.safetensors`` of a run).
    fill
        For what nothing is known of.
    """
    replayed, engine = replayed_as(checkpoint), launch.engine or None
    eagle3 = replayed.joining == "eagle3" and launch.algorithm in ("", "EAGLE3")
    if replayed.joining != "eagle3":
        _check_served(checkpoint, launch)
    draft = load_draft(
        checkpoint,
        target,
        engine=engine,
        algorithm="EAGLE3" if eagle3 else "EAGLE",
        memory=memory,
        fill=fill,
        numerics=target.numerics,
        device=device,
    )
    if not eagle3:  # a launch that only SGLang has, whatever version it was
        settings = dataclasses.replace(draft.settings, passed_by=True)
        draft = dataclasses.replace(draft, settings=settings)
    read = served_config(checkpoint.config, engine).text
    named = read_ids(read, trainer=engine is None or not engine.startswith("sglang"))
    aux = captured_layers(engine, named, target.model_type, target.layers) if eagle3 else None
    if engine is not None and captures_nothing(engine, read):
        aux = None
        settings = dataclasses.replace(draft.settings, passed_by=True)
        draft = dataclasses.replace(draft, settings=settings)
    driving = driving_of(
        engine,
        steps=launch.steps,
        topk=launch.topk,
        draft_tokens=launch.draft_tokens,
        aux=aux,
        graphs=launch.graphs,
        backend=launch.backend,
        overlap=launch.overlap,
    )
    return _fitting(draft, driving, target)


def _check_served(checkpoint: Checkpoint, launch: DraftLaunch) -> None:
    """Raise where a draft that reads the last features is served by a launch that is not modelled."""
    if not launch.engine:
        return
    if not launch.engine.startswith("sglang"):
        raise WorkbenchError(
            f"{launch.engine} is not modelled with a draft that reads the target's last features",
            why="what it gives to the draft's next step is not SGLang's",
            next_step='Replay it as SGLang serves it (engine="sglang==…"), or with engine=None.',
        )
    if launch.algorithm == "EAGLE3":
        raise WorkbenchError(
            f"{checkpoint.source} is not an EAGLE-3 draft, and is launched as EAGLE3",
            why="it reads the target's last features; under EAGLE3 SGLang asks its class for a map of the "
            "draft's vocabulary, which it does not have, and the server ends as it starts",
            next_step="Launch it with --speculative-algorithm EAGLE.",
        )


def _fitting(draft: Draft, driving: Driving, target: Target) -> tuple[Draft, Driving]:
    """Return both, once there is a token for each branch of the tree, and a block of `fc` for each layer."""
    if driving.topk > draft.vocabulary:
        raise WorkbenchError(
            f"topk {driving.topk} is more than the draft's vocabulary of {draft.vocabulary}",
            next_step="Give the topk that the server was launched with (--speculative-eagle-topk).",
        )
    s, aux = draft.settings, driving.aux
    count = 1 if aux is None else len(aux)
    passes = s.passed_by and count * target.hidden == s.hidden
    if count * target.hidden != s.aux * s.aux_width and not passes:
        read = (
            "the target's last features"
            if aux is None
            else f"the inputs of layers {shown(aux, 60)}"
        )
        raise WorkbenchError(
            f"fc.weight joins {s.aux} layers of the target, and {count} are read",
            why=f"read are {read}",
            next_step="Name as many layers in eagle_aux_hidden_state_layer_ids as the training run had.",
        )
    return draft, driving
