"""The line `server_args=…` of a log: the launch's arguments as SGLang resolved them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from workbench.errors import clean
from workbench.evidence.redact import LEFT_OUT, is_secret

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
    for item in _items(text, match.end()):
        name, separator, value = item.partition(":" if dictionary else "=")
        name, value = name.strip().strip("'\""), value.strip()
        if separator and re.fullmatch(r"\w{1,80}", name) and len(found) < 2000:
            shown = LEFT_OUT if is_secret(name) and value != "None" else _value(value)
            found[name.replace("_", "-")] = shown
    return found


def _items(text: str, start: int) -> Iterator[str]:
    """Split at the commas that are in no bracket and no quotes; in one pass, whatever the text is."""
    depth, quote, begin, at = 0, "", start, start
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" or (char == "," and depth == 0):
            if char != "," and depth:
                depth -= 1
            else:
                yield text[begin:at]
                begin = at + 1
                if char != ",":
                    return
        at += 1


def _value(text: str) -> str:
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0] and len(text) < _LONGEST:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = text[1:-1]
        text = value if isinstance(value, str) else text
    return clean(text[:_LONGEST])
