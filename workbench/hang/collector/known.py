"""What is known to be secret or personal of a server's processes before anything of them is written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from workbench.evidence.harmless import is_harmless
from workbench.evidence.shapes import is_secret, is_secret_flag
from workbench.hang.collector import proc

# Shorter ones stand in other words by chance; a longer one may stand in a log only as a whole.
SHORTEST = 6
_PASSWORD = re.compile(r"://[^/\s:@]{0,200}:([^/\s@]{4,200})@")
_QUERY = re.compile(
    r"[?&](?:[\w-]*(?:sig|signature|token|key|secret)[\w-]*)=([^&#\s]{6,4000})", re.I
)


def secrets_of(pid: int) -> set[str]:
    """Return the secrets in a process's variables and arguments."""
    variables = proc.environment(pid)
    found = {value for name, value in variables.items() if is_secret(name)}
    argv = proc.arguments(pid)
    found |= set(_of_flags(argv))
    for text in (*variables.values(), *argv):
        found |= {*_PASSWORD.findall(text), *_QUERY.findall(text)}
    return {value for value in found if is_telling(value)}


def is_telling(value: str) -> bool:
    """Whether a value is long and strange enough to be looked for in everything that is written."""
    return len(value) >= SHORTEST and not is_harmless(value) and not os.path.exists(value)


def _of_flags(argv: list[str]) -> Iterator[str]:
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if not name.startswith("--") or not is_secret_flag(name):
            continue
        if equals:
            yield value
        elif number + 1 < len(argv) and not argv[number + 1].startswith("--"):
            yield argv[number + 1]


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
