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
    eagle3 = launch.algorithm in ("", "EAGLE3")
    engine = launch.engine or None
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
