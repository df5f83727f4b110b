"""The models that a launch names, as far as they are on this machine; the network is not asked."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoint import hub
from workbench.checkpoint.config import Config, parse_config
from workbench.checkpoint.records import DTYPE_BITS
from workbench.errors import WorkbenchError, shown
from workbench.launch.records import Launch
from workbench.launch.rules.records import Model

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Opened:
    """A model of a launch, its checkpoint where there are weights, and where it is on this machine."""

    model: Model
    checkpoint: Checkpoint | None = None
    place: Path | None = None


def is_of_here(name: str) -> bool:
    """Whether a path that is not there would be on this machine: the folder around it is."""
    if not name.startswith(("/", "./", "../", "~")) and name.count("/") < 2:
        return False  # an id of the Hub has one slash
    try:
        parent = Path(name).expanduser().parent
        return parent != Path("/") and parent.is_dir()
    except (OSError, ValueError, RuntimeError):
        return False


def place_of(name: str, folder: Path | None) -> Path | None:
    """Return the folder or file of a model on this machine, None where there is none.

    A relative name is looked for in the current folder, then in `folder` and those above it; an id of the
    Hub in the local cache.
    """
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # the home of somebody who is not known here
        return None
    bases = [Path()] if not path.is_absolute() else []
    if folder is not None and not path.is_absolute():
        bases += [folder, *list(folder.absolute().parents)[:4]]
    for base in bases or [Path("/")]:
        try:
            if (base / path).exists():
                return _short(base / path)
        except (OSError, ValueError):
            return None
    wanted = hub.parse_id(name)
    return hub.cached(wanted) if wanted is not None else None


def _short(place: Path) -> Path:
    """Return a path as one types it here: relative, where it lies below the current folder."""
    here = Path.cwd()
    return place.relative_to(here) if place.is_absolute() and place.is_relative_to(here) else place


def open_model(name: str, folder: Path | None) -> Opened:
    """Open a model as far as it is here: config and headers, or the config alone."""
    place = place_of(name, folder)
    if place is None:
        absent = is_of_here(name)
        why = "it is neither here nor in the local cache of the Hub"
        return Opened(Model(name, problem=why, absent=absent))
    from workbench.checkpoint.open import open_checkpoint

    try:
        checkpoint = open_checkpoint(place)
    except WorkbenchError as error:
        config = _config(place)
        problem = "" if config else error.brief
        return Opened(Model(name, config, problem), place=place)
    try:
        config = checkpoint.config
    except WorkbenchError as error:
        return Opened(Model(name, problem=error.brief), checkpoint, place)
    return Opened(Model(name, config, bytes=_size(checkpoint)), checkpoint, place)


def _size(checkpoint: Checkpoint) -> int:
    """Return the bytes that all tensors take."""
    return sum(
        len(group) * (math.prod(group.shape) * DTYPE_BITS.get(group.dtype, 0) + 7) // 8
        for group in checkpoint.table.groups
    )


def _config(place: Path) -> Config:
    """Return the config of a folder without weights that can be read."""
    file = place / "config.json"
    try:
        return parse_config(file.read_bytes()[: 8 << 20], str(file)) if file.is_file() else Config()
    except (OSError, WorkbenchError):
        return Config()


def of_object(thing: Any, name: str, folder: Path | None) -> Opened:
    """Return a model that was given: a checkpoint, a config, or where one is."""
    from workbench.checkpoint.checkpoint import Checkpoint

    if isinstance(thing, Checkpoint):
        model = Model(name or str(thing.source), thing.config, bytes=_size(thing))
        source = Path(str(thing.source))
        return Opened(model, thing, source if source.exists() else None)
    if isinstance(thing, Config):
        return Opened(Model(name or thing.source, thing))
    if isinstance(thing, dict):
        return Opened(Model(name or "the given config", Config(thing)))
    if not isinstance(thing, str | os.PathLike) or not os.fspath(thing):
        raise WorkbenchError(
            f"{shown(thing, 60)} is no model",
            why="it is neither a path nor a checkpoint",
            next_step="Give the path of the model.",
        )
    opened = open_model(os.fsdecode(thing), folder)
    # A model that was given takes the place of the name that the launch has for it.
    model = dataclasses.replace(opened.model, name=name or opened.model.name)
    return dataclasses.replace(opened, model=model)


def folder_of(launch: Launch) -> Path | None:
    """Return the folder of the file that a launch was read from."""
    if not launch.source or launch.source.startswith("process "):
        return None
    place = Path(launch.source)
    return place if place.is_dir() else place.parent
