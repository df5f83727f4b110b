"""The draft of a trial as its trainer means it: what these files accept, whatever an engine does."""

from __future__ import annotations

from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import captured_layers, driving_of, read_ids
from workbench.speculation.judge.measuring import State
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.loading import load_draft


def as_trained(trial: Trial) -> State | None:
    """Return the state by the trainer's names, flags and layers; None where that cannot be loaded or run."""
    target, driving = trial.target, trial.driving
    if target is None:
        return None
    try:
        draft = load_draft(
            trial.checkpoint, target, numerics=trial.draft.settings.numerics,
            device=str(trial.draft.to_target.device),
        )  # fmt: skip
        named = read_ids(trial.checkpoint.config.text, trainer=True)
    except WorkbenchError:
        return None
    if draft.settings.joining != "eagle3":
        made = driving_of(
            None, steps=driving.steps, topk=driving.topk, draft_tokens=driving.draft_tokens
        )
        return State(draft, made, trial.trace)
    aux = captured_layers(None, named, target.model_type, target.layers)
    known = all(layer in trial.trace.inputs for layer in aux)
    if len(aux) * target.hidden != draft.settings.aux * draft.settings.aux_width or not known:
        return None
    made = driving_of(
        None, steps=driving.steps, topk=driving.topk, draft_tokens=driving.draft_tokens, aux=aux
    )
    return State(draft, made, trial.trace)
