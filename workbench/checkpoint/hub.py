"""Hub ids and the Hugging Face cache on disk: what is here is used, the network only where it is not."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from workbench.errors import CheckpointError

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_ID = re.compile(rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[A-Za-z0-9._/-]+))?")
_TRUE = {"1", "true", "yes", "on"}


@dataclasses.dataclass(frozen=True)
class HubId:
    """A model on the Hub, and optionally its revision."""

    repo: str
    revision: str = ""

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}" if self.revision else self.repo


def parse_id(text: str) -> HubId | None:
    """Return the Hub id in ``org/name`` or ``org/name@revision``, or None."""
    match = _ID.fullmatch(text)
    if match is None or ".." in text:
        return None
    return HubId(match["repo"], match["revision"] or "")


def cache_root() -> Path:
    """Return the folder of the Hugging Face cache, from the variables that huggingface_hub reads."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(value).expanduser()
    home = os.environ.get("HF_HOME")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home or Path(base) / "huggingface").expanduser() / "hub"


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").lower() in _TRUE for name in names)


def is_cache_folder(folder: Path) -> bool:
    """Whether this is a ``models--org--name`` folder of the cache."""
    return folder.name.startswith("models--") and (folder / "snapshots").is_dir()


def snapshot(repo_folder: Path, revision: str = "") -> Path | None:
    """Return the snapshot folder of a revision (``main`` where none is named), or None.

    Without a ``main`` reference, a single snapshot is taken as meant.
    """
    snapshots = repo_folder / "snapshots"
    name = revision or "main"
    if (snapshots / name).is_dir() and ".." not in name:
        return snapshots / name
    reference = repo_folder / "refs" / name
    try:
        commit = reference.read_text().strip() if ".." not in name else ""
    except (OSError, UnicodeDecodeError):
        commit = ""
    if commit and re.fullmatch(r"[0-9a-f]{6,64}", commit) and (snapshots / commit).is_dir():
        return snapshots / commit
    if revision and re.fullmatch(r"[0-9a-f]{6,40}", revision):  # a shortened commit
        found = [path for path in _folders(snapshots) if path.name.startswith(revision)]
        return found[0] if len(found) == 1 else None
    if not revision:
        found = _folders(snapshots)
        return found[0] if len(found) == 1 else None
    return None


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []


def cached(model: HubId) -> Path | None:
    """Return the snapshot folder of a model in the local cache, or None."""
    folder = cache_root() / ("models--" + model.repo.replace("/", "--"))
    return snapshot(folder, model.revision) if folder.is_dir() else None


def filesystem(model: HubId) -> tuple[Any, str]:
    """Return the Hub as an fsspec filesystem, and the model's path on it.

    Raises
    ------
    CheckpointError
        The network is switched off, or huggingface_hub is not installed.
    """
    where = f"{model} is not in the local cache ({cache_root()})"
    if is_offline():
        raise CheckpointError(
            where,
            why="HF_HUB_OFFLINE is set, so the Hub is not asked",
            next_step=f"Unset it, or run `hf download {model.repo}` on a machine with the network.",
        )
    try:
        from huggingface_hub import HfFileSystem
    except ImportError:
        raise CheckpointError(
            where,
            why="huggingface_hub, which reads the Hub, is not installed",
            next_step="pip install huggingface_hub, or give the path of a downloaded checkpoint.",
        ) from None
    return HfFileSystem(), str(model)
