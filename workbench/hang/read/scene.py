"""Files of one or several hosts joined into one scene, by process and rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from workbench.errors import WorkbenchError, shorten, shown
from workbench.evidence.casefile import MANIFEST
from workbench.evidence.folder import Folder, open_folder, open_inner, read_manifest
from workbench.hang.read.host import Host, host_names, read_host
from workbench.hang.read.joined import Joined
from workbench.hang.read.pasted import LOOKED_FOR
from workbench.hang.read.redacted_scene import redacted
from workbench.hang.records import Scene

MOST_HOSTS = 1024
_NEXT = "Give a folder or zip of dumps, logs and GPU readings of one launch, as `workbench collect` makes it."


def read_scene(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Scene:
    """Read evidence from files.

    Parameters
    ----------
    path
        A case (zip or folder) that `workbench collect` wrote, a folder or zip of several hosts' cases, any
        folder of py-spy dumps, logs and GPU readings, one such file, or a list of these.

    Raises
    ------
    WorkbenchError
        There is nothing to read, it is damaged or a trap, or it is of several launches.
    """
    paths = _paths(path)
    hosts: list[Host] = []
    notes: list[str] = []
    with ExitStack() as open_ones:
        todo = [open_ones.enter_context(open_folder(one)) for one in paths]
        outer = set(map(id, todo))
        while todo:
            folder = todo.pop(0)
            for host in _hosts_of(folder):
                # A zip in a zip in a zip is no case of ours.
                for name in host.inner if id(folder) in outer else ():
                    todo.append(open_ones.enter_context(open_inner(folder, name)))
                if host.has_evidence or host.manifest:
                    hosts.append(host)
                else:
                    notes += host.notes
            notes += folder.notes
            if len(hosts) + len(todo) > MOST_HOSTS:
                raise WorkbenchError(
                    f"{shorten(str(paths[0]))} is not read",
                    why=f"it holds more than {MOST_HOSTS} hosts",
                )
    source = ", ".join(str(one) for one in paths[:4])
    if not hosts:
        raise WorkbenchError(
            f"{shorten(source)} holds no evidence of a hang",
            why=notes[0] if notes else f"no file in it is one of: {LOOKED_FOR}",
            next_step=_NEXT,
        )
    return redacted(Joined(source, hosts, notes).scene())


def _paths(path: object) -> list[str | os.PathLike[str]]:
    """Return the paths of what was given; an empty one would be the folder that this runs in."""
    given = path if isinstance(path, list | tuple | set | frozenset) else [path]
    for one in given:
        if not isinstance(one, str | os.PathLike) or not os.fspath(one):
            raise WorkbenchError(f"{shown(one)} is no path", next_step=_NEXT)
    if not given:
        raise WorkbenchError("a path is missing", next_step=_NEXT)
    return list(given)


def _hosts_of(folder: Folder) -> list[Host]:
    """Return the hosts of one folder: one for each manifest, or one where there is none."""
    prefixes = [
        name[: -len(MANIFEST)] for name in folder.sizes if ("/" + name).endswith("/" + MANIFEST)
    ]
    cases = {prefix: manifest for prefix in prefixes if (manifest := read_manifest(folder, prefix))}
    names = host_names(folder.sizes, [*cases, ""])
    found = [
        read_host(folder, names.get(prefix, []), prefix, manifest, manifest.host)
        for prefix, manifest in cases.items()
    ]
    # What no case takes: a pile without a manifest, or zips and a log beside unpacked cases.
    if "" not in cases and (names.get("") or not found):
        found.append(read_host(folder, names.get("", []), "", None, ""))
    return found
