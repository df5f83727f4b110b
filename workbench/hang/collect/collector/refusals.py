"""Why py-spy gave no stacks, and what to do about it, in words that are true of this machine."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from workbench.hang.collect.collector import proc

SYS_PTRACE = 1 << 19


class Place(NamedTuple):
    """Where the collector runs, as far as it decides who may trace whom."""

    root: bool
    sys_ptrace: bool
    container: str  # "", "docker", "kubernetes" or "container"
    ptrace_scope: int | None


def here() -> Place:
    """Look at this machine and this process."""
    capabilities = proc.status_field(os.getpid(), "CapEff") or "0"
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = None
    return Place(
        root=os.geteuid() == 0,
        sys_ptrace=bool(int(capabilities, 16) & SYS_PTRACE),
        container=_container(),
        ptrace_scope=scope,
    )


def translate(error: str, place: Place, *, state: str = "", tracer: int = 0) -> tuple[str, str]:
    """Return what py-spy's error means and what to do: two texts, the second may be empty.

    Parameters
    ----------
    error
        What py-spy wrote on standard error.
    place
        Where it ran.
    state
        The process's state afterwards, a letter of /proc/PID/stat; nothing where it is gone.
    tracer
        The process that traces it, 0 for none.
    """
    if not state:
        return "the process ended while it was looked at", ""
    if state in "ZX":
        return "the process has ended and waits to be collected by its parent (zombie)", ""
    if tracer or re.search(r"Failed to suspend process.*EPERM|Operation not permitted", error):
        if tracer:
            return (
                f"the process is being traced by another program (pid {tracer})",
                f"End the debugger or profiler with pid {tracer}, and take the dump again.",
            )
        return "this process may not be traced", _remedy(place)
    if re.search(r"Permission [Dd]enied|os error 13", error):
        return "no permission to read the process", _remedy(place)
    if "Failed to find python version" in error:
        return "not a Python program", ""
    if re.search(r"[Uu]nsupported version of Python|unsupported python version", error):
        return "py-spy does not know this version of Python", "Install a newer py-spy."
    if "unexpected waitpid result" in error or state in "Tt":
        return (
            "the process is stopped and could not be paused",
            "Dump it with py-spy dump --nonblocking.",
        )
    if "Failed to merge native and python frames" in error:
        return "py-spy could not match native and Python frames", "Leave out native frames."
    if "os error 2" in error or "No such file or directory" in error:
        return "the process ended while it was looked at", ""
    last = [line.strip() for line in error.splitlines() if line.strip()]
    return f"py-spy failed: {last[0][:200] if last else 'it wrote nothing'}", ""


def _remedy(place: Place) -> str:
    """Return the one thing that gives the right to trace here."""
    if place.container == "kubernetes":
        return (
            "Give the container the capability (securityContext: capabilities: add: [SYS_PTRACE]), or run "
            "the collector on the node as root."
        )
    if place.container and not place.sys_ptrace:
        return "Start the container with --cap-add SYS_PTRACE, or run the collector on the host as root."
    if not place.root:
        if place.ptrace_scope in (0, 1):
            return (
                "Run it with sudo, or as the server's user after `sudo sysctl "
                "kernel.yama.ptrace_scope=0`."
            )
        return "Run it with sudo."
    if not place.sys_ptrace:
        return "This root lacks the capability SYS_PTRACE: run it as the host's root."
    if place.ptrace_scope == 3:
        return "kernel.yama.ptrace_scope is 3: tracing is off until the machine is restarted."
    return "A security policy (seccomp, AppArmor, SELinux) forbids it: run it as root on the host."


def _container() -> str:
    if os.environ.get("KUBERNETES_SERVICE_HOST") or os.path.exists(
        "/var/run/secrets/kubernetes.io"
    ):
        return "kubernetes"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "container"
    first = proc.read(1, "environ")
    return "container" if "\0container=" in "\0" + first else ""
