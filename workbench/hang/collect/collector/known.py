"""What is known to be secret or personal of a server's processes before anything of them is written."""

from __future__ import annotations

import os
import re

from workbench.evidence.harmless import is_harmless
from workbench.evidence.redact import known_secrets
from workbench.hang.collect.collector import proc


def secrets_of(pid: int) -> set[str]:
    """Return the secrets in a process's variables and arguments; no path of a file that is there."""
    found = known_secrets(proc.environment(pid), proc.arguments(pid))
    return {value for value in found if not os.path.exists(value)}


def is_searched(value: str) -> bool:
    """Whether a secret is looked for in what is written: a number may stand there by chance."""
    return not value.isdigit()


def people(pids: tuple[int, ...]) -> set[str]:
    """Return the names of those who run these processes, or who collect."""
    found = set()
    for pid in (*pids, os.getpid()):
        variables = proc.environment(pid)
        found |= {variables.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")}
        home = variables.get("HOME", "")
        found.add(os.path.basename(home) if home not in ("/", "/root") else "")
    return {
        name for name in found if re.fullmatch(r"[\w.@-]{3,64}", name) and not is_harmless(name)
    }
