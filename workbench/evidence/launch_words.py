"""What of a launch is not the engine's own command: what runs it, its container, its configuration file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from workbench.evidence.redact import Redactor

_PYTHON = re.compile(r"(?:python[\d.]*t?|pypy[\d.]*)$")
_SERVERS = frozenset({"sglang", "vllm", "trtllm-serve", "torchrun"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
# Options of `docker run` that take no value; every other one takes the next word.
_SWITCHES = frozenset(
    {
        "--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only",
        "--no-healthcheck", "--oom-kill-disable", "--publish-all", "--quiet", "--sig-proxy",
        "--disable-content-trust",
    }
)  # fmt: skip
_SHORT_SWITCHES = re.compile(r"-[ditPq]+$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NAME = re.compile(r"[A-Za-z][\w-]{0,80}$")
_MOST_CONFIG = 1 << 20
_MOST_OPTIONS = 1000
# Values of `docker run`, numactl and their like that name no file, host or person.
_PLAIN = re.compile(r"--[a-z][a-z-]{0,30}|[\d,:-]{1,16}|\d{1,6}[kmgKMG]?[bB]?|all|host|none")
_TAG = re.compile(r"[\w.+-]{1,60}")


class Parts(NamedTuple):
    """A launch in its parts.

    Attributes
    ----------
    command
        The engine's own words.
    launcher
        What runs it: program (``numactl``, ``docker run``) to its options, in one text.
    environment
        Variables that a container or ``env`` sets.
    image
        The container's image, "" without one.
    """

    command: tuple[str, ...]
    launcher: Mapping[str, str]
    environment: Mapping[str, str]
    image: str


def split(words: Sequence[str]) -> Parts:
    """Return the parts of a launch; all words are the command where no server is found in them."""
    start = next((n for n, _ in enumerate(words) if _is_server(words, n)), 0)
    before, command = list(words[:start]), tuple(words[start:])
    launcher: dict[str, str] = {}
    environment: dict[str, str] = {}
    image = ""
    while before:
        word = before.pop(0)
        if _ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            environment[name] = value
        elif os.path.basename(word) in _CONTAINERS and "run" in before[:1]:
            before.pop(0)
            options, image = _container(before, environment)
            launcher[f"{os.path.basename(word)} run"] = options
        elif word not in ("env", "sudo", "exec", "nohup"):
            launcher[os.path.basename(word)] = " ".join(_own(before))
    return Parts(command, launcher, environment, image)


def is_server(words: Sequence[str]) -> bool:
    """Whether the words begin with a known server's program."""
    return bool(words) and _is_server(words, 0)


def _is_server(words: Sequence[str], number: int) -> bool:
    name = os.path.basename(words[number])
    if _PYTHON.match(name):
        return number + 1 < len(words)
    return name in _SERVERS and number + 1 < len(words)


def _own(before: list[str]) -> Iterator[str]:
    """Take the options of a program off the front, up to the next program or assignment."""
    after_option = True
    while before:
        word = before[0]
        program = os.path.basename(word) in (*_CONTAINERS, "env", "numactl", "taskset", "nsys")
        if program or (_ASSIGNMENT.match(word) and not after_option):
            return
        after_option = word.startswith("-")
        yield before.pop(0)


def _container(before: list[str], environment: dict[str, str]) -> tuple[str, str]:
    """Take the options and the image of ``docker run`` off the front; variables go where they belong."""
    options: list[str] = []
    while before:
        word = before.pop(0)
        if not word.startswith("-"):
            return " ".join(options), word
        name, equals, value = word.partition("=")
        if not equals and name not in _SWITCHES and not _SHORT_SWITCHES.match(name):
            value = before.pop(0) if before else ""
        if name in ("-e", "--env"):
            key, given, text = value.partition("=")
            environment[key] = text if given else os.environ.get(key, "")
        else:
            options.append(f"{name} {value}".strip())
    return " ".join(options), ""


def config_of(command: Sequence[str]) -> dict[str, str]:
    """Return what the file of ``--config`` sets, by option; empty where there is none or it cannot be read.

    The last of a doubled option counts, as on the command line. False and null are not given.
    """
    path = ""
    for number, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name == "--config":
            path = value if equals else (command[number + 1] if number + 1 < len(command) else "")
    return _options(_load(Path(path).expanduser())) if path else {}


def _load(path: Path) -> Any:
    import yaml

    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > _MOST_CONFIG:
            return None
        return yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, RecursionError, MemoryError, yaml.YAMLError):
        return None


def _options(content: Any) -> dict[str, str]:
    if not isinstance(content, dict):
        return {}
    pairs = [(name, _text(value)) for name, value in list(content.items())[:_MOST_OPTIONS]]
    return {
        name: text for name, text in pairs if isinstance(name, str) and _NAME.match(name) and text
    }


def _text(value: Any) -> str:
    """Return a value as the command line would have it."""
    if value is None or value is False:
        return ""
    if isinstance(value, list):
        return " ".join(map(_text, value[:_MOST_OPTIONS]))
    return str(value)[:4000]


def pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield option and value of words such as ``--a=b``."""
    for word in words:
        name, _, value = word.partition("=")
        yield name.lstrip("-"), value


def without_values(options: str, hide: Redactor) -> str:
    """Return a launcher's options without paths and names: the same word for the same value."""
    kept = []
    for word in options.split():
        name, equals, value = word.partition("=")
        parts = (name, value) if equals else (word,)
        shown = (one if _is_plain(one) else hide.token("value", one) for one in parts)
        kept.append("=".join(shown))
    return " ".join(kept)


def _is_plain(word: str) -> bool:
    short = re.fullmatch(r"-\w", word) or _SHORT_SWITCHES.match(word)
    return bool(short or _PLAIN.fullmatch(word))


def without_registry(image: str, hide: Redactor) -> str:
    """Return an image by its name and tag, its registry and its digest as pseudonyms."""
    if not image:
        return ""
    name, at, digest = image.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, ""
    shown = hide.model(repository)
    shown += f":{tag if _TAG.fullmatch(tag) else hide.token('value', tag)}" if tag else ""
    return shown + (f"@{hide.token('value', digest)}" if at else "")
