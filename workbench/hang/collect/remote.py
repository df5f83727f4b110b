"""Collecting on several hosts over ssh: one connection a host, at the same time.

The one-file collector travels over the connection, and the case comes back over it. What ssh is allowed to
do is left to its configuration; nothing here switches the check of host keys off, and ssh asks nothing.
"""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workbench.core.outputs import kind_of
from workbench.errors import WorkbenchError, clean, shorten, shown
from workbench.hang.collect.collector import collect as collector
from workbench.hang.collect.pack_collector import packed

# A name or an address, with a user before it or not: nothing that ssh could take for an option.
_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]{0,63}@)?[A-Za-z0-9_\[:][\w.:%\]-]{0,253}")
_MOST_HOSTS = 256
_AT_ONCE = 32
_CONNECT = 20  # seconds
_SLACK = 300.0  # seconds for a collection besides its waiting
_OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT}",
    "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4",
)  # fmt: skip
# Run by `sh` whatever the login shell is. The folder is removed on every way out; the case is written before
# anything is sent back, so that a connection that breaks leaves nothing but that.
_SCRIPT = (
    'umask 077; d=$(mktemp -d) || exit 90; trap "rm -rf \\"$d\\"" EXIT; trap "exit 91" HUP INT TERM; '
    'cat > "$d/collect.pyz" || exit 92; s=""; '
    'if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then s="sudo -n"; fi; '
    '$s python3 "$d/collect.pyz" -o "$d/case.zip" {options} >&2 || exit 93; '
    'cat "$d/case.zip"'
)


def collect_hosts(
    hosts: Sequence[str], plan: collector.Plan, folder: Path
) -> tuple[str, list[tuple[str, str]]]:
    """Write one case a host into a folder; return where they come from, and the hosts that were not seen.

    Returns
    -------
    tuple
        The source in words, and for each host that was not seen its name and why.

    Raises
    ------
    WorkbenchError
        A host's name cannot be one, ssh is not installed, or nothing was collected on any host.
    """
    names = checked(hosts)
    if plan.pid is not None or plan.log is not None:
        raise WorkbenchError(
            "a pid or a log says nothing on several hosts",
            next_step="Leave it out: on each host the one server and its log are found.",
        )
    if shutil.which("ssh") is None:
        raise WorkbenchError(
            "there is no ssh here", next_step="Install an ssh client, or collect on each host."
        )
    plan.say(f"collecting on {len(names)} hosts over ssh")
    running: list[subprocess.Popen[bytes]] = []
    command = _command(plan)
    tool = packed()

    def one(number: int) -> str:
        return _collect(names[number], command, tool, folder / f"host-{number}.zip", plan, running)

    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        reasons = list(pool.map(one, range(len(names))))
    except BaseException:
        for process in running:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    unseen = [(name, why) for name, why in zip(names, reasons, strict=True) if why]
    if len(unseen) == len(names):
        raise WorkbenchError(
            f"nothing was collected on {len(names)} hosts",
            why="\n".join(f"{name}: {why}" for name, why in unseen[:6]),
            next_step="Try `ssh -o BatchMode=yes HOST true`; the server must run on the host, and its user "
            "or root must collect.",
        )
    return f"{len(names) - len(unseen)} of {len(names)} hosts over ssh", unseen


def checked(hosts: Sequence[str]) -> list[str]:
    """Return the names of hosts, each once.

    Raises
    ------
    WorkbenchError
        One of them is not the name of a host, such as one that begins with a dash.
    """
    if isinstance(hosts, str) or not isinstance(hosts, Sequence) or not hosts:
        raise WorkbenchError(
            f"{shown(hosts)} is not a list of hosts", next_step='Give hosts=["node1", "node2"].'
        )
    for host in hosts:
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            raise WorkbenchError(
                f"{shown(host)} is not the name of a host",
                next_step="Give a name of your ssh configuration, or USER@HOST.",
            )
    names = list(dict.fromkeys(hosts))
    if len(names) > _MOST_HOSTS:
        raise WorkbenchError(
            f"{len(names)} hosts are too many at once",
            next_step=f"Give at most {_MOST_HOSTS}, or collect with srun and open the folder.",
        )
    return names


def _command(plan: collector.Plan) -> str:
    """Return what the remote shell runs: it holds no single quote, so that every shell passes it on."""
    options = ["--snapshots", str(plan.snapshots), "--interval", f"{plan.interval:g}"]
    options += ["--salt", secrets.token_hex(16)] + (["--native"] if plan.native else [])
    return f"sh -c {shlex.quote(_SCRIPT.replace('{options}', ' '.join(options)))}"


def _collect(
    host: str,
    command: str,
    tool: bytes,
    out: Path,
    plan: collector.Plan,
    running: list[subprocess.Popen[bytes]],
) -> str:
    """Collect on one host into a file; return "", or why there is no case."""
    limit = _SLACK + plan.snapshots * plan.interval
    with out.open("wb") as file:
        process = subprocess.Popen(
            ["ssh", *_OPTIONS, "--", host, command],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        watch = threading.Timer(limit, process.kill)
        watch.start()
        try:
            _, said = process.communicate(tool)
        finally:
            watch.cancel()
    if process.returncode == 0 and kind_of(out) == "case":
        return ""
    out.unlink(missing_ok=True)
    if process.returncode < 0:
        return f"no answer within {limit:.0f} s"
    lines = [clean(line.strip()) for line in said.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if line]
    wanted = next((line for line in told if line.startswith("workbench-collect:")), "")
    return shorten(wanted or (told[-1] if told else f"ssh ended with {process.returncode}"), 200)
