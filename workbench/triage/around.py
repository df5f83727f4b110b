"""What runs or lies here: the list that `doctor` shows where nothing was handed over."""

from __future__ import annotations

import os
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.triage.things import recognise

_MOST = 20


def around(folder: Path) -> tuple[str, ...]:
    """Return the servers that run here and the things that lie in a folder, a line each."""
    return (*_servers(), *_files(folder))


def _servers() -> list[str]:
    from workbench.hang.collect.collector import proc, servers

    return [
        f"workbench doctor {one.root}  ({servers.describe(one)})"
        for one in servers.find_servers(proc.everyone())[:_MOST]
    ]


def _files(folder: Path) -> list[str]:
    found = []
    for name in sorted(os.listdir(folder))[:400]:
        place = folder / name
        plain = place.is_file() and not name.endswith(
            (".log", ".zip", ".safetensors", ".xz", ".gz")
        )
        if name.startswith(".") or plain:
            continue
        try:
            kinds = sorted({thing.kind for thing in recognise(str(place))})
        except (WorkbenchError, OSError):
            continue
        found.append(f"workbench doctor {name}  ({', '.join(kinds)})")
        if len(found) >= _MOST:
            break
    return found
