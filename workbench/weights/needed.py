"""What a model needs and its file does not hold: by the class that the config names, else by the file itself.

The class's own list is a loader's profile (`workbench.loaders`); a class without one is judged by the file's
own templates: the layers and experts that the config counts, and what all other layers have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.templates import fill
from workbench.weights.adapters import absent_magnitudes
from workbench.weights.own_templates import absent_by_templates
from workbench.weights.records import Measure

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config
    from workbench.loaders.profile import Profile

# Whose profiles list single projections first: an engine that fuses them names those that it fuses.
_ENGINES = ("transformers", "sglang", "vllm", "tensorrt-llm")
# A profile that does not know more than this share of the names describes another spelling of the model.
_STRANGE = 0.1
ABSENT = "it is not in the file"


@dataclasses.dataclass(frozen=True)
class Needed:
    """What is needed, and what of it is not there.

    Attributes
    ----------
    source
        In words, where the list is from.
    count
        How many parameters it has; 0 where only the file's own templates are known.
    absent
        Names of what is not in the file, each with the reason.
    mismatched
        Names of what has another shape than the class wants, each with both shapes.
    promised
        Names that the file's own config says are there and that are not: a fact, whatever reads the file.
    """

    source: str
    count: int = 0
    absent: tuple[tuple[str, str], ...] = ()
    mismatched: tuple[tuple[str, str], ...] = ()
    promised: tuple[tuple[str, str], ...] = ()


def needed(
    measures: Sequence[Measure], config: Config | None, adapter: Mapping[str, Any] | None = None
) -> Needed:
    """Return what the model needs that these tensors do not bring.

    Parameters
    ----------
    measures
        All weights of the checkpoint, of which names, shapes and types are used.
    config
        Its config.
    adapter
        The adapter_config.json next to it, if there is one.
    """
    promised = absent_magnitudes([one.name for one in measures], adapter or {})
    return dataclasses.replace(_by_model(measures, config), promised=promised)


def _by_model(measures: Sequence[Measure], config: Config | None) -> Needed:
    if config is not None and config.architectures:
        found = _by_class(measures, config)
        if found is not None:
            return found
    return Needed("the file's own templates", absent=absent_by_templates(measures, config))


def _by_class(measures: Sequence[Measure], config: Config) -> Needed | None:
    """Return what the class wants, by the newest profile that fits the names; None without one."""
    from workbench.loaders import registry

    plain = _unquantised(config)
    table = TensorTable.from_rows(
        [TensorInfo(one.name, one.dtype, one.shape, "", 0, 0) for one in measures]
    )
    readable = {one.name for one in measures if one.seen or not one.count}
    for engine in _ENGINES:
        wanted = [p for p in registry.profiles(engine) if p.model_class == config.architectures[0]]
        if wanted:
            newest = max(wanted, key=lambda profile: Version(profile.last))
            found = _by_profile(newest, plain, table, readable)
            if found is not None:
                return found
    return None


def _unquantised(config: Config) -> Config:
    """Return the config of the same model before it was quantised: logical weights have its shapes."""
    from workbench.checkpoint.config import Config

    dropped = ("quantization_config", "compression_config")

    def without(fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        return {k: without(v) for k, v in fields.items() if k not in dropped}

    return Config({k: without(v) for k, v in config.raw.items() if k not in dropped}, config.source)


def _by_profile(
    profile: Profile, config: Config, table: TensorTable, readable: set[str]
) -> Needed | None:
    from workbench.loaders.profile import NotCovered, Refused
    from workbench.loaders.simulate import simulate

    try:
        model = profile.build(config)
    except (NotCovered, Refused):
        return None
    outcome = simulate(profile, model, table, profile.last)
    strange = sum(len(keys) for keys in outcome.keys if keys.status == "dropped")
    if strange > _STRANGE * len(table):
        return None
    mismatched = {
        name: f"its shape is {list(keys.tensors.shape)}; {keys.reason}"
        for keys in outcome.keys
        if keys.status == "mismatched"
        for name in keys.names
        if name in readable
    }
    unread = {name for name in table.names if name not in readable}
    here = {name.removeprefix("model.") for name in (*mismatched, *unread)}
    absent = [
        name
        for gap in outcome.gaps
        if not gap.optional
        for name in fill(gap.template, gap.index)
        if name.removeprefix("model.") not in here
    ]
    count = sum(len(s.index) for s in model.slots if not (s.optional or s.alternative))
    return Needed(
        f"{profile.model_class} as {profile.engine} {profile.last} builds it",
        count,
        tuple((name, ABSENT) for name in absent),
        tuple(mismatched.items()),
    )
