"""Containers of compose files and Kubernetes manifests: image, environment and command of each."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.errors import WorkbenchError
from workbench.launch import holes
from workbench.launch.records import Form

_MOST_NODES = 100_000
_MOST_CONTAINERS = 200
_DEEPEST = 100
_COMPOSE = re.compile(
    r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\{[^{}]*\})*))?\})"
)
_KUBERNETES = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]*)\)")


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """One container of a manifest.

    Attributes
    ----------
    entrypoint, command
        In words; they may have holes.
    foreign
        Whether it has variables whose values are elsewhere.
    """

    name: str
    image: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: dict[str, str]
    foreign: bool
    form: Form


def load_yaml(text: str, what: str) -> list[Any]:
    """Return the documents of a YAML text, without building any object that it asks for.

    Raises
    ------
    WorkbenchError
        It is no YAML.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(yaml.parse(text, loader))
        return list(yaml.load_all(text, loader))
    except (yaml.YAMLError, RecursionError, ValueError, MemoryError) as error:
        first = str(error).splitlines()
        raise WorkbenchError(
            f"{what or 'the text'} cannot be read as YAML",
            why=" ".join(first[:1] + first[-1:]),
            next_step="Correct it, or give the launch command itself.",
        ) from None


def mapping(text: str) -> bool:
    """Whether a text is a YAML mapping."""
    try:
        documents = load_yaml(text, "")
    except WorkbenchError:
        return False
    return bool(documents) and isinstance(documents[0], Mapping)


def _check_depth(events: Iterator[Any]) -> None:
    """Refuse what is nested deeper than a manifest: libyaml builds it recursively, on the C stack."""
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def containers(documents: list[Any]) -> list[Container]:
    """Return the containers that YAML documents describe, [] where they are neither of the two kinds."""
    found: list[Container] = []
    for document in documents:
        services = document.get("services") if isinstance(document, Mapping) else None
        if isinstance(services, Mapping) and "kind" not in document:
            found += (_service(str(n), s) for n, s in services.items() if isinstance(s, Mapping))
        else:
            found += (_of_pod(one) for one in _walk(document))
    return found[:_MOST_CONTAINERS]


def _walk(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what looks like a container of a pod, in the order of the text."""
    todo, left = [document], _MOST_NODES
    while todo and left:
        left -= 1
        one = todo.pop()
        if isinstance(one, Mapping):
            if "image" in one and ("command" in one or "args" in one):
                yield one
            else:
                todo += reversed(list(one.values()))
        elif isinstance(one, list):
            todo += reversed(one)


def _service(name: str, service: Mapping[str, Any]) -> Container:
    """Return a service of a compose file; its `$NAME` are replaced before a shell sees them."""
    environment: dict[str, str] = {}
    given = service.get("environment")
    pairs = (
        given.items()
        if isinstance(given, Mapping)
        else (
            str(one).partition("=")[::2] if "=" in str(one) else (str(one), None)
            for one in _list(given)
        )
    )
    for key, value in pairs:
        text = holes.hole(str(key)) if value is None else _interpolated(_text(value))
        environment[str(key)] = holes.quoted(text)
    return Container(
        name,
        _interpolated(_text(service.get("image", ""))),
        _compose_words(service.get("entrypoint")),
        _compose_words(service.get("command")),
        environment,
        "env_file" in service,
        "compose file",
    )


def _compose_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(holes.quoted(_interpolated(_text(one))) for one in value)
    return _split(_interpolated(_text(value))) if value is not None else ()


def _interpolated(text: str) -> str:
    """Return a text as compose makes it: defaults hold for variables that are not known to be set."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        name, operator, other = found[2] or found[3], found[4] or "", found[5] or ""
        if operator.endswith("-"):
            return _interpolated(other)
        return "" if operator.endswith("+") else holes.hole(name, many=True)

    return _COMPOSE.sub(value, holes.without_holes(text) if not holes.has_hole(text) else text)


def _of_pod(container: Mapping[str, Any]) -> Container:
    environment: dict[str, str] = {}
    for one in _list(container.get("env")):
        if isinstance(one, Mapping) and isinstance(one.get("name"), str):
            value = one.get("value")
            known = _text(value) if value is not None else None
            name = one["name"]
            environment[name] = holes.hole(name) if known is None else _pod_text(known, environment)
    return Container(
        str(container.get("name", "")),
        _image(container.get("image", "")),
        _pod_words(container.get("command"), environment),
        _pod_words(container.get("args"), environment),
        environment,
        "envFrom" in container,
        "kubernetes manifest",
    )


def _image(value: Any) -> str:
    """Return the image of a container; the values of a Helm chart have it in parts."""
    if not isinstance(value, Mapping):
        return _text(value)
    parts = [
        _text(value.get("registry", "")),
        _text(value.get("repository") or value.get("name", "")),
    ]
    name, tag = "/".join(filter(None, parts)), _text(value.get("tag", ""))
    return f"{name}:{tag}" if name and tag else name


def _pod_words(value: Any, environment: Mapping[str, str]) -> tuple[str, ...]:
    words = _list(value) if isinstance(value, list) else [] if value is None else [value]
    return tuple(_pod_text(_text(one), environment) for one in words)


def _pod_text(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with its ``$(NAME)`` replaced as Kubernetes does it."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return f"$({found[2]})"
        return environment.get(found[2]) or holes.hole(found[2])

    return _KUBERNETES.sub(value, text)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return holes.without_holes(str(value)) if isinstance(value, str | int | float) else ""
