"""Systemd units and Dockerfiles: the commands that they start, with their environment."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator

from workbench.launch import holes

_SECTION = re.compile(r"(?m)^\s*\[Service\]\s*$")
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")
_SPECIFIER = re.compile(r"%(%|[a-zA-Z])")
_FROM = re.compile(r"(?mi)^\s*FROM\s+(?:--\S+\s+)*(\S+)")
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """One command that a file starts: in words, or as a text for a shell."""

    words: tuple[str, ...]
    text: str
    environment: dict[str, str]
    line: int
    image: str = ""
    entrypoint: tuple[str, ...] = ()
    foreign: bool = False


def is_unit(text: str) -> bool:
    """Whether a text is a unit of systemd."""
    return bool(_SECTION.search(text)) and "ExecStart" in text


def read_unit(text: str) -> list[Start]:
    """Return what a unit of systemd starts."""
    environment: dict[str, str] = {}
    foreign = False
    starts: list[tuple[int, str]] = []
    for line, entry in _joined(text, comments="#;"):
        key, _, value = entry.partition("=")
        key, value = key.strip(), value.strip()
        if key == "Environment":
            for one in split(value):
                name, equals, known = one.partition("=")
                if equals:
                    environment[name] = _specified(known)
        elif key in ("EnvironmentFile", "PassEnvironment"):
            foreign = True
        elif key == "ExecStart" and value:
            starts.append((line, value.lstrip("@-:+!|")))
    return [
        Start(tuple(_unit_words(value, environment)), "", environment, line, foreign=foreign)
        for line, value in starts
    ]


def _unit_words(text: str, environment: dict[str, str]) -> Iterator[str]:
    """Yield the words of ``ExecStart``: ``$NAME`` alone may be several, ``${NAME}`` is part of one."""
    for word in split(text):
        alone = re.fullmatch(r"\$(\w+)", word)
        if alone:
            known = environment.get(alone[1])
            yield from [holes.hole(alone[1], many=True)] if known is None else known.split()
            continue

        def value(found: re.Match[str]) -> str:
            name = found[2] or found[3]
            return "$" if found[1] else environment.get(name) or holes.hole(name)

        yield _VARIABLE.sub(value, _specified(word))


def _specified(text: str) -> str:
    return _SPECIFIER.sub(lambda m: "%" if m[1] == "%" else holes.hole(m[0]), text)


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile that starts something."""
    lines = [line.strip() for line in text.splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    starts = re.search(r"(?mi)^\s*(?:CMD|ENTRYPOINT)\s", text)
    return bool(re.match(r"(?i)(?:FROM|ARG)\s", first) and _FROM.search(text) and starts)


def read_dockerfile(text: str) -> list[Start]:
    """Return what the last stage of a Dockerfile starts."""
    image, environment = "", dict[str, str]()
    entry: tuple[int, str] = (0, "")
    command: tuple[int, str] = (0, "")
    for line, instruction in _joined(text, comments="#"):
        found = _INSTRUCTION.match(instruction)
        if found is None:
            continue
        name, value = found[1].upper(), found[2].strip()
        if name == "FROM":
            source = _FROM.match(instruction)
            image, environment, entry, command = source[1] if source else "", {}, (0, ""), (0, "")
        elif name == "ENV":
            environment.update(_environment(value))
        elif name == "ENTRYPOINT":
            entry = (line, value)
        elif name == "CMD":
            command = (line, value)
    line = entry[0] or command[0]
    first, second = _exec_form(entry[1]), _exec_form(command[1])
    if entry[1] and first is None:
        return [Start((), entry[1], environment, line, image)]
    if command[1] and second is None:
        return [Start((), command[1], environment, line, image, tuple(first or ()))]
    return [Start(tuple(second or ()), "", environment, line, image, tuple(first or ()))]


def _environment(value: str) -> Iterator[tuple[str, str]]:
    words = split(value)
    if words and "=" not in words[0]:
        yield words[0], " ".join(words[1:])
        return
    for word in words:
        name, equals, known = word.partition("=")
        if equals:
            yield name, known


def _exec_form(value: str) -> list[str] | None:
    """Return the words of ``["a", "b"]``; None for a text that a shell reads."""
    if not value.startswith("["):
        return None
    try:
        words = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return [str(word) for word in words] if isinstance(words, list) else None


def _joined(text: str, *, comments: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that a backslash continues, and the number of the first of them."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not whole:
            first = number
        if bare[:1] and bare[0] in comments:
            continue
        if bare.endswith("\\"):
            whole += bare[:-1] + " "
            continue
        whole += bare
        if whole:
            yield first, whole
        whole = ""
    if whole:
        yield first, whole


def split(text: str) -> list[str]:
    """Return the words of a command that no shell reads."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
