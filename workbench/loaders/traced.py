"""What a real loader was seen to do, as the same `LoadOutcome` that a profile gives."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.config import Config
from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.templates import group_names, numbered, parse
from workbench.checkpoint.values import TORCH_TYPES, storage_shape
from workbench.errors import EngineError, WorkbenchError
from workbench.facts.flat_config import flattened
from workbench.loaders import registry
from workbench.loaders.outcome import (
    KeyGroup,
    KeyStatus,
    LoadOutcome,
    ParameterGroup,
    ParameterStatus,
)
from workbench.loaders.profile import Model, NotCovered, Profile, Refused
from workbench.loaders.simulate import RAISES, Resolve, Tensors, simulate

if TYPE_CHECKING:
    import torch

    from workbench.checkpoint.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Hints:
    """What watching cannot tell, from the version's profile where there is one.

    A tracer sees that a key went nowhere, not that this was on purpose; and it does not run what fills
    parameters from the target after loading.
    """

    profile: Profile | None = None
    model: Model | None = None

    def ignored(self, key: str) -> tuple[str, str] | None:
        """Return reason and place where the engine skips the key on purpose."""
        if self.profile is None or self.model is None:
            return None
        route = self.profile.route(key, self.model)
        return (route.reason, route.place) if route.fate == "ignore" else None

    def source(self, parameter: str) -> str:
        """Return what fills a parameter after loading, "" for nothing."""
        return self._of(parameter, self.model.shared if self.model else {})

    def unused(self, parameter: str) -> str:
        """Return why no forward pass reads a parameter, "" where one does."""
        return self._of(parameter, self.model.unused if self.model else {})

    def optional(self, parameter: str) -> bool:
        """Tell whether the engine's own value of a parameter is right where nothing is loaded."""
        return numbered(parse(parameter)[0]) in self._optional

    @staticmethod
    def _of(parameter: str, said: Mapping[str, str]) -> str:
        return said.get(parameter, "") or said.get(numbered(parse(parameter)[0]), "")

    @cached_property
    def _optional(self) -> frozenset[str]:
        slots = self.model.slots if self.model else ()
        needed = {slot.parameter for slot in slots if not slot.optional}
        return frozenset({slot.parameter for slot in slots} - needed)


def trace_engine(
    checkpoint: Checkpoint,
    engine: registry.Engine,
    python: str | os.PathLike[str],
    target: Checkpoint | None,
) -> tuple[LoadOutcome, Resolve | None]:
    """Run an engine's real loader in its own interpreter.

    Returns
    -------
    LoadOutcome
        What was observed.
    resolve
        The profile's rules for this version, to find renames with; None where there is no profile.

    Raises
    ------
    WorkbenchError
        The checkpoint is not a folder on this machine, the interpreter or the engine in it does not
        run, or the engine there is another version than the one named.
    """
    from workbench.loaders.running import run_tracer

    job: dict[str, Any] = {
        "id": "as it is",
        "checkpoint": _folder(checkpoint),
        "target": _folder(target) if target is not None else None,
        "model_class": engine.model_class or None,
    }
    jobs = [job]
    if checkpoint.config.layout == "speculators":
        flat_config = dict(flattened(checkpoint.config, engine.version))
        jobs.append(job | {"id": "flattened", "config": flat_config})
    # A GPU package that is missing there is stood in for: a loader has no use for it, and a call fails.
    seen = run_tracer(python, jobs, engine=engine.name, stubs=True)
    _check(seen[0], engine, python)
    outcome, resolve = _answer(seen[0], engine, checkpoint, checkpoint.config)
    if outcome.outcome == "refused" and len(seen) > 1 and not seen[1].get("unsupported"):
        flat = Config(dict(flattened(checkpoint.config, engine.version)), checkpoint.config.source)
        shown, resolve = _answer(seen[1], engine, checkpoint, flat)
        outcome = dataclasses.replace(
            shown, outcome="refused", error=outcome.error, place=outcome.place
        )
    return outcome, resolve


def _check(
    seen: Mapping[str, Any], engine: registry.Engine, python: str | os.PathLike[str]
) -> None:
    """Raise where the answer would be one to another question."""
    version = str(seen["version"])
    if engine.version and engine.version != version:
        raise EngineError(
            f"{python} has {engine.name} {version}, not {engine.version}",
            why="the real loader of another version would answer another question",
            next_step=f'Name "{engine.name}=={version}", or give the interpreter of {engine.version}.',
        )
    if seen.get("unsupported"):
        raise EngineError(
            f"{engine.name} {version} could not be traced on this checkpoint",
            why=str(seen["unsupported"]),
            next_step="Ask the profile instead: leave out --python, or run it on a GPU host.",
        )


def _answer(
    seen: Mapping[str, Any], engine: registry.Engine, checkpoint: Checkpoint, config: Config
) -> tuple[LoadOutcome, Resolve | None]:
    """Return one run's outcome, with what the version's profile adds."""
    version = str(seen["version"])
    model_class = str(seen.get("model_class") or "").rpartition(".")[2]
    hints = _hints(dataclasses.replace(engine, version=version), model_class, config)
    return from_trace(seen, checkpoint.table, hints), _resolver(hints, version)


def _folder(checkpoint: Checkpoint) -> str:
    folder = Path(str(checkpoint.source))
    folder = folder if folder.is_dir() else folder.parent
    if not (folder / "config.json").is_file():
        raise WorkbenchError(
            f"{checkpoint.source} is not a folder with a config.json on this machine",
            why="an engine's real loader reads only folders",
            next_step="Give the checkpoint's folder, or leave out --python to ask the profile.",
        )
    return str(folder.resolve())


def _hints(engine: registry.Engine, model_class: str, config: Config) -> Hints:
    try:
        named = dataclasses.replace(engine, model_class=model_class or engine.model_class)
        profile = registry.select(named, config).profiles[0][1]
        return Hints(profile, profile.build(config))
    except (WorkbenchError, Refused, NotCovered):
        return Hints()


def _resolver(hints: Hints, version: str) -> Resolve | None:
    profile, model = hints.profile, hints.model
    if profile is None or model is None:
        return None

    def resolve(tensors: Tensors) -> LoadOutcome:
        return simulate(profile, model, tensors, version)

    return resolve


def trace_module(module: Any, checkpoint: Checkpoint) -> LoadOutcome:
    """Run a module's own ``load_weights`` on a meta copy of it, and watch what it writes."""
    from workbench.loaders.tracer.watch import trace_load_weights

    seen = trace_load_weights(module, _stand_ins(checkpoint))
    seen |= {"engine": "torch", "version": "", "model_class": type(module).__name__}
    return from_trace(seen, checkpoint.table, Hints())


SMALL = 1 << 20  # elements of an integer tensor that a loader may look into (d2t)


def _stand_ins(checkpoint: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each tensor of the checkpoint without values, small integer ones with them."""
    import torch

    for info in checkpoint.table:
        if info.dtype[:1] in "IUB" and info.dtype != "BF16" and info.numel <= SMALL:
            yield info.name, checkpoint.tensor(info.name)
            continue
        shape = storage_shape(info.dtype, info.shape)
        kind = getattr(torch, TORCH_TYPES.get(info.dtype, ""), torch.uint8)
        yield info.name, torch.empty(shape, dtype=kind, device="meta")


def from_trace(seen: Mapping[str, Any], table: TensorTable, hints: Hints) -> LoadOutcome:
    """Turn what a tracer reported into a `LoadOutcome`.

    Parameters
    ----------
    seen
        One line of the tracer's output, as ``tracer/trace_load.py`` documents it.
    table
        The checkpoint's tensors.
    hints
        What the profile adds.
    """
    error = seen.get("error") or {}
    refused = str(seen.get("refused") or "")
    said = f"{error['key']}: {error['message']}" if error.get("key") else error.get("message", "")
    return LoadOutcome(
        engine=str(seen["engine"]),
        version=str(seen["version"]),
        model_class=str(seen.get("model_class") or "").rpartition(".")[2],
        basis="traced",
        outcome="refused" if refused else "raises" if error else "loads",
        keys=_keys(seen, table, hints, refused),
        parameters=_parameters(seen, hints),
        error=refused or said,
        place=str(error.get("place", "")),
        log=tuple(seen.get("log", ())),
        facts=hints.model.facts if hints.model else {},
        gaps=_gaps(hints, table, str(seen["version"])),
    )


def _gaps(hints: Hints, table: TensorTable, version: str) -> tuple[Any, ...]:
    resolve = _resolver(hints, version)
    return resolve(table).gaps if resolve else ()


def _keys(
    seen: Mapping[str, Any], table: TensorTable, hints: Hints, refused: str
) -> tuple[KeyGroup, ...]:
    """Group the keys by what was seen of them, and by template, shape and dtype."""
    writes: Mapping[str, Sequence[str]] = seen.get("writes", {})
    attributes = set(seen.get("attributes", ()))
    # Tensors that were cut or padded went in silently, and are of a wrong shape all the same.
    resized = {key: f"{text}; silently cut or padded" for key, text in _resized(seen)}
    mismatched = resized | {k: RAISES + v for k, v in seen.get("mismatched", {}).items()}
    labels: dict[tuple[KeyStatus, str, str, str], list[int]] = defaultdict(list)
    for at, name in enumerate(table.names):
        labels[_fate(name, writes, attributes, mismatched, hints, refused)].append(at)
    groups: list[KeyGroup] = []
    for (status, lands, reason, place), rows in labels.items():
        places = np.array(rows)
        groups += [
            KeyGroup(status, dataclasses.replace(part, at=places[part.at]), lands, reason, place)
            for part in table.select(rows).groups
        ]
    return tuple(groups)


def _resized(seen: Mapping[str, Any]) -> list[tuple[str, str]]:
    return list(seen.get("resized", {}).items())


def _fate(
    name: str,
    writes: Mapping[str, Sequence[str]],
    attributes: set[str],
    mismatched: Mapping[str, str],
    hints: Hints,
    refused: str,
) -> tuple[KeyStatus, str, str, str]:
    """Return status, where it lands, reason and place of one key."""
    if name in mismatched:
        return "mismatched", "", mismatched[name], ""
    if name in writes:
        return "loaded", _template(name, writes[name]), "", ""
    if name in attributes:
        return "loaded", "", "kept outside the parameters", ""
    if refused:
        return "dropped", "", "the engine refuses the config", ""
    skipped = hints.ignored(name)
    if skipped is not None:
        return "ignored", "", *skipped
    return "dropped", "", "the loader received it and did not write it anywhere", ""


def _template(key: str, parameters: Sequence[str]) -> str:
    """Return where a key landed, with the key's own indices as fields where they can be told apart."""
    _, index = parse(key)
    columns = {value: c for c, value in enumerate(index) if index.count(value) == 1}
    texts = []
    for parameter in parameters:
        parts = [
            f"{{{columns[int(p)]}}}" if p.isdecimal() and int(p) in columns else p
            for p in parameter.split(".")
        ]
        texts.append(".".join(parts))
    return " + ".join(texts)


def _parameters(seen: Mapping[str, Any], hints: Hints) -> tuple[ParameterGroup, ...]:
    """Group the parameters by state, and by template and shape."""
    shapes = {name: tuple(info["shape"]) for name, info in seen.get("parameters", {}).items()}
    written = seen.get("written", {})
    misfit = set(seen.get("misfit_parameters", ()))
    cut = {p for key, _ in _resized(seen) for p in seen.get("writes", {}).get(key, ())}
    by_state: dict[tuple[ParameterStatus, float], list[str]] = defaultdict(list)
    for name in shapes:
        part = float(written.get(name, 0.0))
        status: ParameterStatus = (
            "shared"
            if hints.source(name)
            else "mismatched"
            if name in cut or (name in misfit and part < 1)
            else "written"
            if part >= 1 or (not part and hints.optional(name))
            else "partial"
            if part > 0
            else "missing"
        )
        by_state[status, part].append(name)
    groups: list[ParameterGroup] = []
    for (status, part), names in by_state.items():
        codes = {shape: i for i, shape in enumerate(dict.fromkeys(shapes[n] for n in names))}
        label = np.array([codes[shapes[n]] for n in names])
        for group in group_names(names, label):
            first = names[int(group.at[0])]
            groups.append(
                ParameterGroup(
                    status, group.template, group.index, shapes[first], part,
                    source=hints.source(first), unused=hints.unused(first),
                )
            )  # fmt: skip
    return tuple(groups)
