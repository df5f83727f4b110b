"""The line in which a log prints the server's arguments: ``server_args=``, or vLLM's ``non-default args``."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping

from workbench.errors import clean
from workbench.evidence.redact import LEFT_OUT, fields, is_secret, plain
from workbench.facts import flags
from workbench.launch.other_engines import speculation
from workbench.launch.records import Argument, Launch, Place, Unread

ARGUMENTS = re.compile(r"\bserver_args=(?:\w{1,40}\(|\{)")
_STAMP = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<rank>(?:[.,]\d+)?(?: [A-Z_]{2,8}\d{1,6})+)?"
)
_BEGINS = re.compile(r"\s*(?:[^\s#]\S* +){0,6}\[\d{4}-\d\d-\d\d ")
_VLLM = re.compile(r"non-default args: \{")
_VLLM_VERSION = re.compile(r"vLLM (?:API server )?version (\d[\w.+-]{1,30})")
_LONGEST = 4000
_MOST_LINE = 256 << 10


def is_log(text: str) -> bool:
    """Whether a text is a server's log, or a line of one."""
    head = text[:65536]
    if ARGUMENTS.search(text) or _VLLM.search(text):
        return True
    return _BEGINS.match(head) is not None and _STAMP.search(head) is not None


def fields_of(text: str) -> tuple[dict[str, str], bool]:
    """Read ``ServerArgs(tp_size=2, …)``, or the dict that 0.5.20 and newer print, without running it.

    Returns
    -------
    fields
        Name with dashes to value as Python writes it, plain texts without their quotes; keys and tokens
        are left out.
    whole
        Whether the line ends with its bracket; what follows the last comma of a cut line is left out.
    """
    match = ARGUMENTS.search(text) or _VLLM.search(text)
    if match is None:
        return {}, True
    dictionary = text[match.end() - 1] == "{"
    text = text[: match.end() + _MOST_LINE]
    parts = list(fields(text, match.end()))
    whole = len(list(fields(text, match.end(), unclosed=True))) == len(parts)
    found: dict[str, str] = {}
    for item in parts:
        name, separator, value = item.partition(":" if dictionary else "=")
        name, value = name.strip().strip("'\""), value.strip()
        if separator and re.fullmatch(r"\w{1,80}", name) and len(found) < 2000:
            shown = LEFT_OUT if is_secret(name) and value != "None" else _value(value)
            found[name.replace("_", "-")] = shown
    return found, whole


def _value(text: str) -> str:
    inner = plain(text) if len(text) < _LONGEST else None
    return clean((text if inner is None else inner)[:_LONGEST])


def read_log(text: str, source: str, version: str) -> Launch:
    """Return the last launch that a log prints; earlier ones are noted where they differ."""
    starts = list(_starts(text))
    if not starts:
        why = "the log has no line with the server's arguments (`server_args=`)"
        return Launch("", "log", not_read=(Unread("server_args", why),), source=source)
    line, printed = starts[-1]
    if not ARGUMENTS.search(printed):
        return _of_vllm(text, printed, Place(source, line))
    found, whole = fields_of(printed)
    where = Place(source, line)
    arguments = tuple(of_fields(found, version, where))
    not_read = (
        []
        if whole
        else [Unread("the line `server_args=`", "it ends before its closing bracket", options=True)]
    )
    values = {one.key: one.value for one in arguments}
    return Launch(
        "sglang",
        "log",
        arguments=arguments,
        target=values.get("model-path"),
        draft=values.get("speculative-draft-model-path"),
        not_read=tuple(not_read),
        source=source,
    )


def of_fields(found: Mapping[str, str], version: str, where: Place) -> Iterator[Argument]:
    """Yield the arguments of logged fields; what is None was not given."""
    for name, text in found.items():
        if text == "None":
            continue
        value = text.lower() if text in ("True", "False") else text
        yield Argument(name, flags.canonical(name, version), name.replace("-", "_"), value, where)


def _starts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines in which a main process prints its arguments."""
    for number, line in enumerate(text.split("\n"), 1):
        if "server_args=" not in line and "non-default args: " not in line:
            continue
        plain_line = _unpacked(line)
        found = ARGUMENTS.search(plain_line) or _VLLM.search(plain_line)
        if found is None:
            continue
        stamps = list(_STAMP.finditer(plain_line[: found.start()]))
        rank = stamps[-1]["rank"] if stamps else None
        if not re.search("[A-Z]", rank or ""):
            yield number, plain_line


def _unpacked(line: str) -> str:
    """Return the message of a line that a log driver wrote as JSON."""
    if line.lstrip().startswith("{") and '"' in line:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            return line
        if isinstance(data, dict):
            for key in ("log", "message", "msg", "MESSAGE"):
                if isinstance(data.get(key), str):
                    return str(data[key])
    return line


def _of_vllm(text: str, printed: str, where: Place) -> Launch:
    """Return what vLLM logs of its launch: the arguments that are not defaults."""
    found, whole = fields_of(printed)
    named = _VLLM_VERSION.search(text)
    arguments: list[Argument] = []
    for name, value in found.items():
        if name == "speculative-config":
            try:
                config = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                config = None
            if isinstance(config, dict):
                arguments += speculation(config, name, where)
        key = {"model": "model-path", "model-tag": "model-path", "tensor-parallel-size": "tp-size"}
        arguments.append(Argument(name, key.get(name, name), name, value, where))
    values = {one.key: one.value for one in arguments}
    cut = Unread("the line `non-default args`", "it ends before its closing bracket", options=True)
    return Launch(
        "vllm",
        "log",
        version=named[1] if named else "",
        version_basis="the log" if named else "",
        arguments=tuple(arguments),
        target=values.get("model-path"),
        draft=values.get("speculative-draft-model-path"),
        not_read=() if whole else (cut,),
        source=where.file,
    )
