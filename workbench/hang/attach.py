"""Attaching to a running server: snapshots are taken, written as a case, and read as one.

So a diagnosis of a live server and one of a collected case are the same by construction.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core import progress
from workbench.core.bars import bar as progress_bar
from workbench.core.outputs import prepared, writing
from workbench.errors import WorkbenchError, shown
from workbench.hang.collect.collector import collect as collector
from workbench.hang.collect.collector.__main__ import own
from workbench.hang.collect.collector.servers import CollectError
from workbench.hang.collect.collector.stopping import stopping
from workbench.hang.collect.gpu import read_gpus

if TYPE_CHECKING:
    from distributed import Client

    from workbench.hang.judge.diagnosis import HangDiagnosis

_MOST_PAUSES = 8  # processes whose pause is reported


def attach(
    pid: int | None = None,
    *,
    snapshots: int = 2,
    interval: float = 30.0,
    native: bool = False,
    log: str | os.PathLike[str] | None = None,
    client: Client | None = None,
    hosts: Sequence[str] | None = None,
) -> HangDiagnosis:
    """Look at a running server (SGLang or vLLM): what does it wait for, for which rank, what to change next.

    Nothing is changed in the server: py-spy pauses each process for a fraction of a second, one dump
    a snapshot; no request is sent. Interrupted, it tells what it has: with one snapshot nothing is
    called hung.

    Parameters
    ----------
    pid
        Any process of the server: its parent, a rank, a child of theirs, the shell it was started in.
        None where one server runs on this host.
    snapshots, interval
        How many, and the seconds between two. "Hung" needs two, best 30 s apart or more.
    native
        Whether to take native frames, too, after the last snapshot (about a second a rank).
    log
        The server's log. By default it is found among the server's open files.
    client
        A dask client: every host of its workers is looked at, at the same time.
    hosts
        Hosts of one server, as ssh knows them: each is collected over ssh, at the same time. A host that
        does not answer is not seen, and there is no all-clear without it.

    Raises
    ------
    WorkbenchError
        There is no such server, or there are several and none is named.

    Examples
    --------
    >>> workbench.attach()  # doctest: +SKIP
    >>> workbench.attach(4711, interval=60, native=True)  # doctest: +SKIP
    """
    from workbench.hang.judge.diagnose import diagnose
    from workbench.hang.read.scene import read_scene

    _check(pid, snapshots, interval)
    notes: list[str] = []
    unseen: list[tuple[str, str]] = []
    if client is not None and hosts is not None:
        raise WorkbenchError(
            "client and hosts cannot both be collected", next_step="Leave one of them out."
        )
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        plan = _plan(pid, snapshots, interval, native, log)
        if client is not None:
            from workbench.hang.collect.cluster import collect_hosts

            source, notes = collect_hosts(client, plan, Path(folder))
        elif hosts is not None:
            from workbench.hang.collect.remote import collect_hosts as collect_over_ssh

            with _progress(plan):
                source, unseen = collect_over_ssh(hosts, plan, Path(folder))
        else:
            with (
                stopping(),
                _progress(plan),
                writing(Path(folder) / "case.zip", "case") as file,
                collector_errors(),
            ):
                found = collector.collect(file, plan)
            source = f"pid {found.root}"
            _report_pauses(Path(folder) / "case.zip")
        scene = read_scene(sorted(Path(folder).glob("*.zip")))
    notes += [f"not seen: {host} ({why})" for host, why in unseen]
    scene = dataclasses.replace(
        scene, source=source, notes=(*scene.notes, *notes), unseen=tuple(unseen)
    )
    return diagnose(scene)


def collect(
    out: str | os.PathLike[str],
    pid: int | None = None,
    *,
    snapshots: int = 2,
    interval: float = 30.0,
    native: bool = False,
    log: str | os.PathLike[str] | None = None,
    salt: str | None = None,
    force: bool = False,
) -> Path:
    """Write what `attach` would look at into one zip, for `workbench.open_evidence` elsewhere.

    Parameters
    ----------
    out
        The zip to write; an older case of that name is replaced.
    pid, snapshots, interval, native, log
        As for `attach`.
    salt
        A word that the hosts of one job share, such as the job's id, so that a host has the same
        pseudonym in every host's log.
    force
        Whether `out` may replace a file that the workbench did not write.

    Raises
    ------
    WorkbenchError
        There is no such server, or `out` cannot be written.
    """
    collect_case(
        out, pid, snapshots=snapshots, interval=interval, native=native, log=log, salt=salt,
        force=force,
    )  # fmt: skip
    return Path(out)


def collect_case(
    out: str | os.PathLike[str],
    pid: int | None = None,
    *,
    snapshots: int = 2,
    interval: float = 30.0,
    native: bool = False,
    log: str | os.PathLike[str] | None = None,
    salt: str | None = None,
    force: bool = False,
) -> collector.Collected:
    """Do what `collect` does, and return what was collected, in figures."""
    _check(pid, snapshots, interval)
    zipped = prepared(out, "case", examined=(log,), force=force)
    plan = _plan(pid, snapshots, interval, native, log)
    plan.salt, plan.target = salt, os.path.realpath(zipped)
    with stopping(), _progress(plan):
        with writing(zipped, "case", mode=0o600) as file, collector_errors():
            found = collector.collect(file, plan)
        own(os.path.realpath(zipped))
    return found


def is_whole(found: collector.Collected, snapshots: int) -> bool:
    """Whether a case holds all that was to be collected: each snapshot, and stacks of each process."""
    complete = found.snapshots >= snapshots and not found.interrupted
    return complete and found.stacks > 0 and not found.refused


def preview(
    pid: int | None = None,
    *,
    native: bool = False,
    log: str | os.PathLike[str] | None = None,
    salt: str | None = None,
) -> str:
    """Return as text what `collect` would write, without writing anything.

    One snapshot is taken into memory: py-spy pauses each process once.

    Raises
    ------
    WorkbenchError
        There is no such server.
    """
    from workbench.hang.collect.collector.preview import preview as text

    _check(pid, 1, 0)
    plan = _plan(pid, 1, 0.0, native, log)
    plan.salt = salt
    with _progress(plan), collector_errors():
        return text(plan)


def _check(pid: object, snapshots: object, interval: object) -> None:
    if pid is not None and (not isinstance(pid, int) or isinstance(pid, bool) or pid < 1):
        raise WorkbenchError(f"{shown(pid)} is no pid", next_step="Give the pid of a process.")
    if not isinstance(snapshots, int) or isinstance(snapshots, bool) or not 1 <= snapshots <= 100:
        raise WorkbenchError(
            f"snapshots={shown(snapshots)} cannot be taken",
            next_step="Give a number from 1 to 100.",
        )
    if not isinstance(interval, int | float) or not 0 <= interval <= 86400:
        raise WorkbenchError(
            f"interval={shown(interval)} cannot be waited",
            next_step="Give the seconds between two snapshots, 30 or more to call a server hung.",
        )


def _plan(
    pid: int | None,
    snapshots: int,
    interval: float,
    native: bool,
    log: str | os.PathLike[str] | None,
) -> collector.Plan:
    from workbench import __version__

    return collector.Plan(
        pid=pid,
        snapshots=snapshots,
        interval=interval,
        native=native,
        log=log_named(log),
        read_gpus=read_gpus,
        tool=f"workbench {__version__}",
    )


def log_named(log: str | os.PathLike[str] | None) -> str | None:
    """Return the path of a log that the user names, which must be a file."""
    if log is None:
        return None
    if not isinstance(log, str | os.PathLike):
        raise WorkbenchError(
            f"{shown(log)} is no path of a log", next_step="Give the path of a file."
        )
    with contextlib.suppress(RuntimeError, ValueError):  # ~somebody who does not exist; a NUL
        path = os.path.expanduser(os.fsdecode(log))
        if os.path.isfile(path):
            return path
    raise WorkbenchError(
        f"there is no log {shown(os.fsdecode(log))}",
        next_step="Give the file that the server's output goes to, or leave it out.",
    )


@contextlib.contextmanager
def collector_errors() -> Iterator[None]:
    """Turn the collector's error into the workbench's."""
    try:
        yield
    except CollectError as error:
        raise WorkbenchError(error.what, why=error.why, next_step=error.next_step) from None


@contextlib.contextmanager
def _progress(plan: collector.Plan) -> Iterator[None]:
    """Show what is done, and the seconds of waiting as they pass."""
    waiting = (plan.snapshots - 1) * plan.interval
    form = "{desc} {bar} {n:.0f}/{total:.0f} s"
    with progress_bar(total=waiting, bar_format=form) as bar:

        def wait(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                step = min(0.5, left)
                time.sleep(step)
                bar.update(step)

        def say(text: Any) -> None:
            bar.set_description_str(str(text))

        plan.say, plan.wait = say, wait
        yield


def _report_pauses(case: Path) -> None:
    """Report to who watches how long py-spy held each process."""
    if not progress.is_watched():
        return
    held: dict[str, float] = {}
    with zipfile.ZipFile(case) as archive:
        for name in archive.namelist():
            if not name.endswith("/processes.json"):
                continue
            for one in json.loads(archive.read(name))["processes"]:
                longest = max(
                    (one[kind].get("seconds") or 0.0 for kind in ("py", "native") if kind in one),
                    default=0.0,
                )
                who = f"{one['role']} {one['pid']}"
                held[who] = max(held.get(who, 0.0), longest)
    longest_first = sorted(held.items(), key=lambda item: -item[1])
    named = [f"{who} {seconds:.2f} s" for who, seconds in longest_first if seconds]
    more = f" and {len(named) - _MOST_PAUSES} more" if len(named) > _MOST_PAUSES else ""
    if named:
        paused = f"Paused for at most: {', '.join(named[:_MOST_PAUSES])}{more}"
        progress.say("reading the snapshots", paused)
