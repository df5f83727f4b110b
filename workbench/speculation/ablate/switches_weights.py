"""Switches that give a draft other weights: what was lost, what was exchanged, what the target lends."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import captured_layers, read_ids
from workbench.speculation.judge.measuring import State
from workbench.speculation.judge.texts import Texts
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.experts import computed_in, gates_and_ups
from workbench.speculation.model.loading import load_draft, served_config
from workbench.speculation.model.names import canonical, naming
from workbench.speculation.model.shapes import further_shapes, held_layers, wanted_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.speculation.model.features import Target

Entry = tuple[str, str, str, Callable[[State], State], str]
"""Name, fact, words, how to apply, remedy."""

# Switch → what it is about, in words, and the names of the tensors it loads.
_PARTS = {
    "reload decoder layer": ("decoder layer", "the decoder layer", r"^layers\."),
    "reload attention": ("decoder layer", "the attention", r"\.self_attn\."),
    "reload feed-forward": ("decoder layer", "the feed-forward part", r"\.mlp\."),
    "reload fc": ("fc", "fc", r"^(fc|fc_norm|input_norm)\."),
    "reload last norm": ("last norm", "the last norm", r"^norm\.weight$"),
    "reload lm_head": ("lm_head", "lm_head", r"^lm_head\.weight$"),
}
# The same of a prediction layer, which has another matrix and norms in the place of fc.
_PREDICTING = {
    **{name: part for name, part in _PARTS.items() if name != "reload fc"},
    "reload eh_proj": ("eh_proj", "eh_proj and its norms", r"^(eh_proj|enorm|hnorm)\."),
}
_MOST_LAYERS = 64  # of a draft
_MOST_AUX = 4  # orders of more blocks than this are too many to try


def switches(trial: Trial, texts: Texts) -> Iterator[Entry]:
    """Yield the switches about weights."""
    yield from _launched(trial)
    yield from _captured(trial)
    yield from _reloaded(trial)
    yield from _blocks(trial)
    yield from _exchanged(trial)
    yield from _vocabulary(trial)
    yield from _lent(trial)


def equal(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors hold the same values, NaN equal to NaN."""
    if one.shape != other.shape:
        return False
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def with_tensors(state: State, tensors: Mapping[str, Tensor]) -> State:
    """Return the state with these tensors, itself where it has them already."""
    held = state.draft.tensors
    if all(name in held and equal(held[name], value) for name, value in tensors.items()):
        return state
    return dataclasses.replace(state, draft=state.draft.replaced(tensors=tensors))


def by_names(trial: Trial) -> dict[str, Tensor]:
    """Return the file's tensors by speculators' names, under whatever prefix they were saved."""
    draft, found = trial.draft, dict[str, str]()
    # The file may hold more layers than the config says.
    layers = max(draft.settings.layers, min(held_layers(trial.checkpoint.names), _MOST_LAYERS))
    whole = dataclasses.replace(draft.settings, layers=layers)
    wanted = {
        *wanted_shapes(whole, draft.vocabulary),
        *further_shapes(whole),
        "embed_tokens.weight",
    }
    for layer in range(1, layers):
        wanted |= {f"layers.{layer}.{norm}.weight" for norm in ("hidden_norm", "input_layernorm")}
    named = naming(trial.checkpoint.names)
    for key in trial.checkpoint.names:
        parts = key.split(".")
        tails = (named(".".join(parts[n:])) for n in range(len(parts)))
        name = next((tail for tail in tails if tail in wanted), None)
        if name is not None and (name not in found or len(key) < len(found[name])):
            found[name] = key
    device = draft.to_target.device
    return {n: computed_in(n, trial.checkpoint.tensor(k).to(device)) for n, k in found.items()}


def _trained(trial: Trial) -> dict[str, Tensor]:
    """Return the file's tensors where they fit what the draft computes with."""
    held, wanted = trial.draft.tensors, wanted_shapes(trial.draft.settings, 0)
    out = {}
    for name, value in by_names(trial).items():
        fits = name not in held or held[name].shape == value.shape
        if fits and (name in wanted or name in held):
            out[name] = value
    return out


def _reloaded(trial: Trial) -> Iterator[Entry]:
    """Load what the file holds under the trainer's names, part by part."""
    file = _trained(trial)
    predicting = trial.draft.settings.joining == "mtp"
    for name, (fact, what, pattern) in (_PREDICTING if predicting else _PARTS).items():
        chosen = {key: value for key, value in file.items() if re.search(pattern, key)}

        def apply(state: State, chosen: dict[str, Tensor] = chosen, fact: str = fact) -> State:
            # Under EAGLE the head is the target's by the launch, whatever the file holds.
            lent = fact == "lm_head" and state.driving.aux is None
            return state if lent else with_tensors(state, chosen)

        yield (
            name, fact, f"{what} as the file holds it, by the trainer's names", apply,
            "Rename the keys for this engine (workbench fix), or serve with a version that reads them.",
        )  # fmt: skip


def _launched(trial: Trial) -> Iterator[Entry]:
    """Launch an EAGLE-3 draft as EAGLE3: auxiliary features, its own head, its own vocabulary."""
    if trial.driving.aux is not None or trial.target is None or _as_eagle3(trial):
        return
    if reads_last(trial):
        return
    engine = trial.launch.engine or None
    try:
        whole = load_draft(
            trial.checkpoint, trial.target, engine=engine, memory=trial.memory,
            numerics=trial.draft.settings.numerics,
        )  # fmt: skip
    except WorkbenchError:
        return
    aux = _usual_layers(trial, trial.target)
    # Under EAGLE head, embedding and map are others; the layers may have been changed by another switch.
    lent = {n: whole.tensors[n] for n in ("lm_head.weight", "embed_tokens.weight")}

    def apply(state: State) -> State:
        draft = state.draft.replaced(tensors=lent, to_target=whole.to_target)
        return State(draft, state.driving.replaced(aux=aux), state.trace)

    yield (
        "launch as EAGLE3", "launch", "launched as EAGLE3, not EAGLE", apply,
        "Launch with --speculative-algorithm EAGLE3.",
    )  # fmt: skip


def _as_eagle3(trial: Trial) -> bool:
    return trial.launch.algorithm in ("", "EAGLE3")


def reads_last(trial: Trial) -> bool:
    """Tell whether a draft is one that reads the target's last features, however it is launched."""
    return trial.draft.settings.joining != "eagle3"


def _usual_layers(trial: Trial, target: Target) -> tuple[int, ...]:
    """Return the layers that the engine captures for this draft where nothing keeps it from that."""
    engine = trial.launch.engine or None
    read = served_config(trial.checkpoint.config, engine).text
    named = read_ids(read, trainer=not (engine or "").startswith("sglang"))
    return captured_layers(engine, named, target.model_type, target.layers)


def _captured(trial: Trial) -> Iterator[Entry]:
    """Capture the auxiliary layers that the draft's config switches off."""
    if trial.driving.aux is not None or trial.target is None or not _as_eagle3(trial):
        return
    if reads_last(trial):
        return
    aux = _usual_layers(trial, trial.target)
    file = {k: v for k, v in by_names(trial).items() if k == "fc.weight"}

    def apply(state: State) -> State:
        changed = with_tensors(state, file)
        return dataclasses.replace(changed, driving=state.driving.replaced(aux=aux))

    yield (
        "auxiliary layers captured", "use_aux_hidden_state", "use_aux_hidden_state turned on", apply,
        'Set "use_aux_hidden_state": true in eagle_config of the draft\'s config.json.',
    )  # fmt: skip


def _blocks(trial: Trial) -> Iterator[Entry]:
    """Join the auxiliary layers in another order."""
    count, width = trial.draft.settings.aux, trial.draft.settings.aux_width
    if not 1 < count <= _MOST_AUX or "fc.weight" not in trial.draft.tensors:
        return
    for order in permutations(range(count)):
        if order == tuple(range(count)):
            continue

        def apply(state: State, order: tuple[int, ...] = order) -> State:
            fc = state.draft.tensors["fc.weight"]
            if fc.shape[1] != count * width:
                return state
            import torch

            parts = torch.split(fc, width, dim=1)
            return with_tensors(state, {"fc.weight": torch.cat([parts[k] for k in order], dim=1)})

        spelt = " ".join(str(k + 1) for k in order)
        yield (
            f"fc order {spelt}", "fc order", f"fc's blocks in the order {spelt}", apply,
            "Give fc its blocks in the order of the training run's auxiliary layers.",
        )  # fmt: skip


def _exchanged(trial: Trial) -> Iterator[Entry]:
    """Exchange what is easily mistaken for one another."""
    pairs = (
        ("exchange gate and up", "gate and up", "mlp.gate_proj", "mlp.up_proj"),
        ("exchange entry norms", "entry norms", "hidden_norm", "input_layernorm"),
        ("exchange joining norms", "joining norms", "enorm", "hnorm"),
    )
    predicting = trial.draft.settings.joining == "mtp"
    for name, fact, one, other in pairs:
        if (one == "enorm") > predicting or (one == "hidden_norm" and reads_last(trial)):
            continue

        def apply(state: State, one: str = one, other: str = other) -> State:
            held, turned = state.draft.tensors, dict[str, "Tensor"]()
            for a, b in _beside(state.draft, one, other):
                if a in held and b in held and not equal(held[a], held[b]):
                    turned |= {a: held[b], b: held[a]}
            return with_tensors(state, turned) if turned else state

        yield (
            name, fact, f"{one} and {other} exchanged", apply,
            f"Exchange {one} and {other} in the file.",
        )  # fmt: skip


def _beside(draft: Draft, one: str, other: str) -> Iterator[tuple[str, str]]:
    """Yield the names of two tensors in each layer, or in each of its experts."""
    if one == "mlp.gate_proj":
        yield from gates_and_ups(draft.tensors)
        return
    begins = [""] if one == "enorm" else [f"layers.{n}." for n in range(draft.settings.layers)]
    yield from ((f"{begin}{one}.weight", f"{begin}{other}.weight") for begin in begins)


def _vocabulary(trial: Trial) -> Iterator[Entry]:
    """Read the draft's vocabulary in other ways."""
    import torch

    if reads_last(trial):
        return  # its vocabulary is the target's
    file = {canonical(name).rpartition(".")[2]: name for name in trial.checkpoint.names}
    readings: dict[str, tuple[str, Tensor]] = {}
    device, size = trial.draft.to_target.device, trial.draft.vocabulary
    if "d2t" in file:
        values = trial.checkpoint.tensor(file["d2t"]).long().to(device)
        readings["d2t as offsets"] = (
            "d2t read as offsets",
            values + torch.arange(len(values), device=device),
        )
        readings["d2t as ids"] = "d2t read as target ids", values
    if "t2d" in file:
        mask = trial.checkpoint.tensor(file["t2d"]).bool().flatten().to(device)
        readings["map from t2d"] = "the map made anew from t2d", mask.nonzero()[:, 0]
    readings["no map"] = "draft ids taken for target ids", torch.arange(size, device=device)
    for name, (words, ids) in readings.items():
        if len(ids) != size or int(ids.min()) < 0:
            continue
        if int(ids.max()) >= len(trial.draft.tensors["embed_tokens.weight"]):
            continue

        def apply(state: State, ids: Tensor = ids) -> State:
            if state.driving.aux is None or torch.equal(state.draft.to_target, ids):
                return state
            return dataclasses.replace(state, draft=state.draft.replaced(to_target=ids))

        yield (
            name, "draft vocabulary", words, apply,
            "Write d2t as offsets, target id minus draft id, as the training run's t2d has them.",
        )  # fmt: skip


def _lent(trial: Trial) -> Iterator[Entry]:
    """Take embedding or head from the other side."""
    target, file = trial.target, by_names(trial)
    embed, head = "embed_tokens.weight", "lm_head.weight"
    if target is not None and target.embedding.shape[1] == trial.draft.settings.hidden:
        yield (
            "target's embedding", "embedding", "the target's embedding",
            lambda state: with_tensors(state, {embed: target.embedding}),
            "Leave embed_tokens out of the draft's file: engines then take the target's.",
        )  # fmt: skip
    if embed in file and file[embed].shape == trial.draft.tensors[embed].shape:
        yield (
            "draft's embedding", "embedding", "the draft's own embedding",
            lambda state: with_tensors(state, {embed: file[embed]}),
            "Serve with an engine that keeps a draft's own embedding.",
        )  # fmt: skip
    if target is None or target.head.shape[1] != trial.draft.settings.hidden:
        return

    def rows(draft: Draft) -> Tensor:
        return target.head[draft.to_target.clamp(0, len(target.head) - 1)]

    yield (
        "target's head", "lm_head", "the target's head, its rows by the draft's vocabulary",
        lambda state: with_tensors(state, {head: rows(state.draft)}),
        "Save lm_head with the draft.",
    )  # fmt: skip
