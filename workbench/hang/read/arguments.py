"""The line `server_args=…` of a log: the launch's arguments as SGLang resolved them."""

from __future__ import annotations

import re

from workbench.errors import clean
from workbench.evidence.redact import LEFT_OUT, fields, is_secret, plain

ARGUMENTS = re.compile(r"\bserver_args=(?:\w{1,40}\(|\{)")
_LONGEST = 4000


def read_arguments(text: str) -> dict[str, str]:
    """Read ``ServerArgs(tp_size=2, …)``, or the dict that 0.5.20 and newer print, without running it.

    Values are as Python writes them, plain strings without their quotes; keys and tokens are left out.
    By flag: ``tp-size``.
    """
    match = ARGUMENTS.search(text)
    if match is None:
        return {}
    dictionary = text[match.end() - 1] == "{"
    found: dict[str, str] = {}
    for item in fields(text, match.end()):
        name, separator, value = item.partition(":" if dictionary else "=")
        name, value = name.strip().strip("'\""), value.strip()
        if separator and re.fullmatch(r"\w{1,80}", name) and len(found) < 2000:
            shown = LEFT_OUT if is_secret(name) and value != "None" else _value(value)
            found[name.replace("_", "-")] = shown
    return found


def _value(text: str) -> str:
    inner = plain(text) if len(text) < _LONGEST else None
    return clean((text if inner is None else inner)[:_LONGEST])
