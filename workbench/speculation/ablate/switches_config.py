"""Switches of flags, positions, layers and driving, of the target and of the text itself."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.speculation.ablate.switches_weights import by_names, reads_last, with_tensors
from workbench.speculation.evidence.driving import default_layers, read_ids
from workbench.speculation.judge.measuring import State
from workbench.speculation.judge.texts import Texts
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.features import Target, TargetTrace
from workbench.speculation.model.layers import Rope
from workbench.speculation.model.rope import rope_of
from workbench.speculation.model.shapes import further_shapes, wanted_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.speculation.model.eagle3 import LaterNorm

Entry = tuple[str, str, str, Callable[[State], State], str]

# Norms that a flag turns on, and their tensors.
_NORMS = {"fc_norm": r"^fc_norm\.\d+\.weight$", "norm_before_fc": r"^input_norm\.weight$"}
_MATRICES = {"eagle3": "q, k and v", "eagle": "fc", "mtp": "eh_proj"}  # that read both side by side
_THETAS = (1e4, 1e5, 5e5, 1e6)  # bases that models are trained with


def switches(trial: Trial, texts: Texts) -> Iterator[Entry]:
    """Yield the switches about everything but the draft's weights."""
    yield from _layers(trial)
    yield from _flags(trial)
    yield from _rotary(trial)
    yield from _driving(trial)
    yield from _targets(trial)
    yield from _greedy(trial, texts)


def _layers(trial: Trial) -> Iterator[Entry]:
    """Read other layers of the target."""
    if reads_last(trial):
        yield from _last_features(trial)
        return
    layers = trial.target.layers if trial.target is not None else max(trial.trace.inputs) + 1
    count = trial.draft.settings.aux
    sets: dict[str, tuple[str, tuple[int, ...] | Callable[[tuple[int, ...]], tuple[int, ...]]]] = {}
    trained = read_ids(trial.checkpoint.config.text, trainer=True)
    if trained:
        sets["layers of the config"] = (
            f"the inputs of layers {_list(trained)}, as the config lists them", trained
        )  # fmt: skip
    if count == 3 and layers > 4:
        usual = default_layers(layers)
        sets["usual layers"] = f"the inputs of layers {_list(usual)}, the usual ones", usual
    for shift in (-2, -1, 1, 2):
        sets[f"layers {shift:+d}"] = (
            f"layers {abs(shift)} {'earlier' if shift < 0 else 'later'}",
            partial(_shifted, shift),
        )
    last = tuple(range(layers - count, layers))
    sets["last layers"] = f"the inputs of the last layers, {_list(last)}", last
    for name, (words, chosen) in sets.items():

        def apply(state: State, chosen: Any = chosen) -> State:
            now = state.driving.aux
            if now is None:
                return state
            aux = chosen(now) if callable(chosen) else tuple(chosen)
            known = all(k in state.trace.inputs for k in aux)
            if aux == now or len(aux) != len(now) or not known:
                return state
            return dataclasses.replace(state, driving=state.driving.replaced(aux=aux))

        yield (
            name, "auxiliary layers", words, apply,
            "Name the layers in eagle_config as this engine counts them for this target.",
        )  # fmt: skip


def _last_features(trial: Trial) -> Iterator[Entry]:
    """Read the last features before the target's final norm, or those that go into its last layer."""
    layers = trial.target.layers if trial.target is not None else max(trial.trace.inputs, default=0)
    for name, words, aux in (
        ("features after the final norm", "the target's last features after its final norm", None),
        ("features before the final norm", "the target's last features before its final norm", (layers,)),
        ("features one layer early", "what goes into the target's last layer", (layers - 1,)),
    ):  # fmt: skip

        def apply(state: State, aux: tuple[int, ...] | None = aux) -> State:
            held = state.trace.final is not None if aux is None else aux[0] in state.trace.inputs
            if aux == state.driving.aux or not held:
                return state
            return dataclasses.replace(state, driving=state.driving.replaced(aux=aux))

        yield (
            name, "features", words, apply,
            "Give the draft the features that it was trained on: an engine gives those after the final norm.",
        )  # fmt: skip


def _shifted(shift: int, aux: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(k + shift for k in aux)


def _list(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))


def _flags(trial: Trial) -> Iterator[Entry]:
    """Turn the flags of the forward pass, those whose weights are there."""
    s = trial.draft.settings
    file = by_names(trial)
    norms = {name: _fitting(trial, file, pattern) for name, pattern in _NORMS.items()}
    flags: tuple[str, ...] = ("norm_before_residual", "norm_output", *_NORMS)
    if reads_last(trial):
        flags = ("norm_output",) if s.joining == "mtp" else ()
    for name in flags:
        value, held = not getattr(s, name), norms.get(name, {})
        if name in _NORMS and value and not held:
            continue

        def apply(state: State, name: str = name, held: Mapping[str, Tensor] = held) -> State:
            on = not getattr(state.draft.settings, name)
            return _set(with_tensors(state, held) if on else state, **{name: on})

        turned = "on" if value else "off"
        words = f"{name} turned {turned}" + (" and its norm read" if held and value else "")
        yield (
            f"{name} {turned}", name, words,
            apply, f"Set {name} as in the training run, and serve with a version that reads it.",
        )  # fmt: skip
    yield from _query_norms(trial, file)
    yield from _further_layers(trial, file)
    one, other = ("embedding", "hidden") if s.hidden_first else ("hidden", "embedding")
    yield (
        f"{one} before {other}", "input order",
        f"the {one.replace('hidden', 'feature')} before the {other.replace('hidden', 'feature')}",
        lambda state: _set(state, hidden_first=not state.draft.settings.hidden_first),
        f"Exchange the halves of {_MATRICES[s.joining]}: this class of the engine takes them in that order.",
    )  # fmt: skip
    if s.layers > 1:
        other = "input_layernorm" if s.later_norm == "hidden_norm" else "hidden_norm"
        if f"layers.1.{other}.weight" in trial.draft.tensors:
            yield (
                f"later layers by {other}", "later norms", f"later layers normed by {other}",
                lambda state: _set(state, later_norm=other),
                "Serve with the engine that the draft was trained for.",
            )  # fmt: skip


def _fitting(trial: Trial, file: Mapping[str, Tensor], pattern: str) -> dict[str, Tensor]:
    """Return the file's tensors of a pattern, if each has the shape that the draft can compute with."""
    shapes = further_shapes(trial.draft.settings)
    found = {name: value for name, value in file.items() if re.search(pattern, name)}
    fits = all(tuple(value.shape) == shapes.get(name) for name, value in found.items())
    return found if fits else {}


def _query_norms(trial: Trial, file: Mapping[str, Tensor]) -> Iterator[Entry]:
    """Norm queries and keys by weights that the file holds and the engine's class does not read."""
    held = _fitting(trial, file, r"\.self_attn\.[qk]_norm\.weight$")
    held = {n: v for n, v in held.items() if int(n.split(".")[1]) < trial.draft.settings.layers}
    if len(held) % 2 or not held.keys() - trial.draft.tensors.keys():
        return
    yield (
        "q_norm and k_norm", "q_norm and k_norm", "q_norm and k_norm read and applied",
        partial(_given, held),
        "Serve with an engine whose draft class has them: vLLM's Eagle3Qwen3ForCausalLM.",
    )  # fmt: skip


def _given(tensors: Mapping[str, Tensor], state: State) -> State:
    return with_tensors(state, tensors)


def _further_layers(trial: Trial, file: Mapping[str, Tensor]) -> Iterator[Entry]:
    """Run the decoder layers that the file holds behind those that the engine runs."""
    s = trial.draft.settings
    count = 1 + max((int(n.split(".")[1]) for n in file if n.startswith("layers.")), default=0)
    if count <= s.layers:
        return
    norms: dict[str, LaterNorm] = {
        "input_layernorm": "input_layernorm",
        "hidden_norm": "hidden_norm",
    }
    later = next(
        (n for k, n in norms.items() if f"layers.{count - 1}.{k}.weight" in file), s.later_norm
    )
    whole = dataclasses.replace(s, layers=count, later_norm=later)
    gated = trial.draft.tensors["layers.0.mlp.gate_proj.weight"].shape[0]
    shapes = wanted_shapes(whole, trial.draft.vocabulary, gated)
    wanted = {n: shape for n, shape in shapes.items() if n not in wanted_shapes(s, 0)}
    held = {
        n: file[n] for n, shape in wanted.items() if n in file and tuple(file[n].shape) == shape
    }
    if len(held) != len(wanted):
        return

    def apply(state: State) -> State:
        return _set(with_tensors(state, held), layers=count, later_norm=later)

    yield (
        f"all {count} layers", "number of layers", f"all {count} decoder layers that the file holds",
        apply, f'Set "num_hidden_layers": {count} in config.json, for an engine that runs as many.',
    )  # fmt: skip


def _set(state: State, **changes: Any) -> State:
    return dataclasses.replace(state, draft=state.draft.replaced(**changes))


def _rotary(trial: Trial) -> Iterator[Entry]:
    """Turn by other rotary positions."""
    s, config = trial.draft.settings, trial.checkpoint.config.text
    width = 2 * len(s.rope.inverse)
    whole = s.latent.turned if s.latent else s.head_dim
    found: dict[str, tuple[str, Rope]] = {}
    target = getattr(trial.target, "rope", None)
    if isinstance(target, Rope) and len(target.inverse) == len(s.rope.inverse):
        found["target's rotary positions"] = (
            "the target's rotary positions",
            dataclasses.replace(target, interleaved=s.rope.interleaved),
        )
    table = _table(config)
    for theta in _THETAS:
        made = _rope({**table, "rope_theta": theta}, config, whole, s.rope.interleaved)
        if made is not None:
            found[f"theta {theta:g}"] = f"a rotary base of {theta:g}", made
    plain: dict[str, Any] = {
        k: table[k] for k in ("rope_theta", "partial_rotary_factor") if k in table
    }
    made = _rope(plain, config, whole, s.rope.interleaved)
    if made is not None:
        found["no rotary scaling"] = "rotary positions without scaling", made
    if width != whole:
        made = _rope({**table, "partial_rotary_factor": 1.0}, config, whole, s.rope.interleaved)
        if made is not None:
            found["whole heads turned"] = "rotary positions over whole heads", made
    for name, (words, rope) in found.items():
        yield (
            name, "rotary positions", words,
            partial(_turned_by, rope),
            "Write the training run's rope_theta, scaling and partial_rotary_factor into config.json.",
        )  # fmt: skip
    yield (
        "other rotary pairs", "rotary pairs",
        f"rotary pairs {'of two halves' if s.rope.interleaved else 'of neighbours'}",
        lambda state: _set(
            state,
            rope=dataclasses.replace(
                state.draft.settings.rope, interleaved=not state.draft.settings.rope.interleaved
            ),
        ),
        "Permute the rows of q and k: the engine turns other pairs than the training run did.",
    )  # fmt: skip


def _turned_by(rope: Rope, state: State) -> State:
    return state if state.draft.settings.rope == rope else _set(state, rope=rope)


def _table(config: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(config.get(name), Mapping):
            return dict(config[name])
    return {}


def _rope(
    table: Mapping[str, Any], config: Mapping[str, Any], width: int, interleaved: bool
) -> Rope | None:
    """Return the rotary positions of a changed config, None where it makes none."""
    changed = {k: v for k, v in config.items() if k not in ("rope_parameters", "rope_scaling")}
    changed["rope_parameters"] = dict(table)
    try:
        return rope_of(changed, width, interleaved=interleaved)
    except (WorkbenchError, ArithmeticError):
        return None


def _driving(trial: Trial) -> Iterator[Entry]:
    """Drive the same draft in another way."""
    ahead = 0 if trial.driving.ahead else 1
    changes: dict[str, tuple[str, str, dict[str, Any]]] = {
        f"positions ahead {ahead}": (
            "positions", f"later steps drafted {ahead} positions further on", {"ahead": ahead}
        ),
        "positions frozen": (
            "positions", "later steps at the root's position", {"frozen": not trial.driving.frozen}
        ),
        "token of the slot itself": (
            "alignment", "each slot given the token of its own features", {"lagging": True}
        ),
        "clean draft cache": (
            "draft cache", "the draft's cache without rejected and doubled slots",
            {"extend": "prefix", "refreshed": True},
        ),
    }  # fmt: skip
    if trial.expected is None or trial.expected.counted == "rounds":
        # Drafting from every place has no round before, and nothing that could be kept of it.
        changes["drafted keys kept"] = (
            "draft cache", "the keys of accepted drafts kept, not made anew from the target's features",
            {"refreshed": False},
        )  # fmt: skip
    for name, (fact, words, fields) in changes.items():

        def apply(state: State, fields: dict[str, Any] = fields) -> State:
            driving = state.driving.replaced(**fields)
            if driving == state.driving:
                return state
            return dataclasses.replace(state, driving=driving)

        yield (
            name, fact, words, apply,
            "Serve with a version of the engine that drives the draft in this way.",
        )  # fmt: skip
    yield (
        "features one place late", "alignment", "each slot given the features one place before",
        _late, "Shift the features by one place, as in the training run.",
    )  # fmt: skip


def _late(state: State) -> State:
    """Return the state with features of the place before; later ones would tell the future."""
    trace = state.trace
    inputs = {k: value.roll(1, dims=1) for k, value in trace.inputs.items()}
    final = None if trace.final is None else trace.final.roll(1, dims=1)
    return dataclasses.replace(state, trace=dataclasses.replace(trace, inputs=inputs, final=final))


def _targets(trial: Trial) -> Iterator[Entry]:
    """Read the features of another target along the same text."""
    for name, target in trial.others.items():
        made: list[TargetTrace] = []
        yield (
            f"target {name}", "target", f"the features of the target {name}",
            partial(_of_target, trial, target, made),
            "Serve the draft with the target that it was trained with.",
        )  # fmt: skip


def _of_target(trial: Trial, target: Target, made: list[TargetTrace], state: State) -> State:
    if not made:
        spans = zip(trial.trace.tokens.tolist(), trial.trace.lengths.tolist(), strict=True)
        texts = [row[:length] for row, length in spans]
        made.append(target.trace(texts, trial.trace.prompts.tolist(), keep=None))
    changed = dataclasses.replace(state, trace=made[0])
    if trial.draft.origins.get("embed_tokens.weight") == "target":
        changed = with_tensors(changed, {"embed_tokens.weight": target.embedding})
    return changed


def _greedy(trial: Trial, texts: Texts) -> Iterator[Entry]:
    """Replay along the target's own greedy answers, where the text is not those."""
    if not texts.sampled or trial.target is None:
        return
    target, made = trial.target, list[TargetTrace]()

    def apply(state: State) -> State:
        if not made:
            prompts = trial.trace.prompts.tolist()
            rows = trial.trace.tokens.tolist()
            new = int((trial.trace.lengths - trial.trace.prompts).max())
            asked = [row[:n] for row, n in zip(rows, prompts, strict=True)]
            answers = target.greedy(asked, new)
            whole = [[*a, *b] for a, b in zip(asked, answers, strict=True)]
            made.append(target.trace(whole, prompts, keep=None))
        return dataclasses.replace(state, trace=made[0])

    yield (
        "temperature 0", "sampling", "the target's greedy answers to the same prompts", apply,
        "Measure greedily, or compare with an acceptance that was measured under the same sampling.",
    )  # fmt: skip
