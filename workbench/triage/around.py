"""What runs or lies here: the list that `doctor` shows where nothing was handed over."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.triage.things import recognise

_MOST = 20


def around(folder: Path) -> tuple[str, ...]:
    """Return the servers that run here and the things that lie in a folder, a line each."""
    return (*_servers(), *_files(folder))


def _servers() -> list[str]:
    """Return the servers of this host, each with the ports that it listens on: nothing is sent to them."""
    from workbench.hang.collect.collector import proc, servers

    found = []
    for one in servers.find_servers(proc.everyone())[:_MOST]:
        ports = _listening(one.roots)
        text = f"; listens on {', '.join(map(str, ports))}" if ports else ""
        found.append(f"workbench doctor {one.root}  ({servers.describe(one)}{text})")
    return found


def _listening(roots: Iterable[int]) -> list[int]:
    """Return the ports that a server's processes listen on; those that may not be seen are left out."""
    import psutil

    pids: set[int] = set()
    with contextlib.suppress(psutil.Error):
        for root in roots:
            pids |= {root, *(child.pid for child in psutil.Process(root).children(recursive=True))}
    try:
        connections = psutil.net_connections("inet")
    except (psutil.AccessDenied, OSError):
        return []
    return sorted({
        one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN and one.pid in pids
    })  # fmt: skip


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
