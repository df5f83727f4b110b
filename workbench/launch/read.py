"""`read_launch`: whatever a launch is handed over as, what it starts and what of it is not known.

Nothing that is read is executed. No file is opened but the one that is given, and the configuration file
that its command names.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.launch import holes, manifests, pasted, processes, prose, supervised, units
from workbench.launch.assemble import Context, launch_of_program, nothing, of_script, of_words
from workbench.launch.files import MOST_TEXT, Handed, is_path, is_text, read_file
from workbench.launch.images import read_image
from workbench.launch.logs import is_log, of_fields, read_log
from workbench.launch.options import INCIDENTAL
from workbench.launch.records import Launch, Place, Unread
from workbench.launch.several import one_of

_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)[^}]*\}|([A-Za-z_]\w*)|(\([^)]*\)))")
_MANIFEST = re.compile(r"(?m)^(?:apiVersion|kind|services)\s*:")
# The words of a container in the values of a Helm chart.
_VALUES = re.compile(r"(?m)^\s*(?:-\s+)?(?:args|command)\s*:\s*(?:\[|$)")
_CONFIG = re.compile(r"(?m)^\s*[\"']?(?:model[-_]path|model|speculative[-_]\w+)[\"']?\s*:\s*\S")


def read_launch(
    thing: Any, *, engine: str = "", version: str = "", folder: str | os.PathLike[str] | None = None
) -> Launch:
    """Read a launch from any form.

    Parameters
    ----------
    thing
        A command line or a script as text, a list of arguments, a path (script, log, YAML, manifest, unit,
        ``launch.json``, NUL-separated arguments, packed or not; a folder with one of the last two), or the
        PID of a running server.
    engine, version
        What is launched, where the launch itself does not say: the options of this release are read.
    folder
        Where a configuration file that the command names is looked for; the current folder comes first.

    Returns
    -------
    Launch
        Its `engine` is "" where no launch of a known server was found; `not_read` says why.

    Raises
    ------
    WorkbenchError
        There is no such file or process, it is too large, or it is nothing that holds a launch.
    """
    context = Context(engine, version, Path(folder) if folder is not None else None)
    if isinstance(thing, bool) or thing is None:
        raise _no_launch(thing, "it is neither text, nor words, nor a path, nor a PID")
    if isinstance(thing, int):
        if not 0 < thing < 1 << 31:
            raise _no_launch(thing, "a PID is a whole number above 0")
        return _of_process(thing, context)
    if isinstance(thing, os.PathLike):
        return _of_text(read_file(thing), context)
    if isinstance(thing, bytes | bytearray):
        return _of_text(Handed(bytes(thing[: MOST_TEXT + 1]).decode("utf-8", "replace")), context)
    if isinstance(thing, str):
        if re.fullmatch(r"\s*[0-9]{1,9}\s*", thing):
            return read_launch(int(thing), engine=engine, version=version, folder=folder)
        return _of_text(read_file(thing) if is_path(thing) else Handed(thing), context)
    if isinstance(thing, Sequence) and all(isinstance(word, str) for word in thing):
        return _of_list(list(thing), context)
    raise _no_launch(thing, "it is neither text, nor words, nor a path, nor a PID")


def read_record(record: Any, source: str = "", *, version: str = "") -> Launch:
    """Return the launch of a record: ``command`` in words, ``environment``, ``versions``."""
    return _of_record(record, Context(version=version).at(source, None))


def _no_launch(thing: object, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"{shown(thing, 60)} is not a launch",
        why=why,
        next_step="Give the command line, the script, the log, the manifest or the PID of a server.",
    )


def _of_text(handed: Handed, context: Context) -> Launch:
    text = holes.without_holes(handed.text).replace("\r\n", "\n").replace("\r", "\n")
    context = context.at(handed.source, handed.folder)
    if not text.strip():
        raise _no_launch(handed.source or text, "it is empty")
    if not is_text(text):
        why = "it is no text: a file of bytes, or in an encoding that is not UTF-8 or UTF-16"
        raise _no_launch(handed.source or "this", why)
    if "\0" in text:
        return of_words(text.rstrip("\0").split("\0"), context, "argument list")
    plain, changed = pasted.typed(text) if len(text) <= MOST_TEXT else (text, ())
    found = _of_plain(plain, handed, context)
    if changed and _differ(found.options, _options(text, handed, context)):
        return dataclasses.replace(found, pasted=changed)
    return found


def _differ(meant: Sequence[str], stands: Sequence[str]) -> bool:
    """Whether two readings of a text differ in more than a name, an address or the like."""
    if len(meant) != len(stands):
        return bool(meant)
    return any(
        one != other and previous.lstrip("-").replace("_", "-") not in INCIDENTAL
        for previous, one, other in zip(("", *meant), meant, stands, strict=False)
    )


def _options(text: str, handed: Handed, context: Context) -> tuple[str, ...]:
    """Return the options of a text as it stands, () where it cannot be read."""
    try:
        return _of_plain(text, handed, context).options
    except WorkbenchError:
        return ()


def _of_plain(text: str, handed: Handed, context: Context) -> Launch:
    if is_log(text) and not text.lstrip().startswith("#!"):
        return read_log(text, handed.source, context.version)
    if len(text) > MOST_TEXT:
        raise _no_launch(handed.source or "the text", f"it has more than {MOST_TEXT:,} characters")
    if text.lstrip()[:1] in "{[":
        record = _json(text)
        if record is not None:
            return _of_record(record, context)
    if units.is_unit(text):
        return _of_starts(units.read_unit(text), context, "systemd unit")
    if units.is_dockerfile(text):
        return _of_starts(units.read_dockerfile(text), context, "Dockerfile")
    if supervised.is_supervised(text):
        return _of_starts(supervised.read(text), context, "supervisord file")
    yaml = _MANIFEST.search(text) or (_CONFIG.search(text) and not _is_command(text))
    if yaml:
        return _of_yaml(text, context)
    values = _VALUES.search(text) and manifests.mapping(text)
    if values:
        return _of_yaml(text, context)
    return _of_shell(text, context)


def _is_command(text: str) -> bool:
    return bool(re.search(r"launch_server|\bserve\b|api_server|\\\n", text))


def _of_shell(text: str, context: Context) -> Launch:
    """Read a command line or a script; of a page with fences, what is in them."""
    whole, text = text, "\n".join(prose.fenced(text)) or text
    text, shells = pasted.joined(pasted.without_prompts(text))
    script = "\n" in text.strip().replace("\\\n", "")
    found = of_script(text, context.as_form("script" if script else "command line"))
    if not found.engine or any(one.essential for one in found.not_read):
        found = _in_prose(whole, found, context)
    unread = tuple(
        Unread(
            "line ends",
            f"continued as {shell} does; a shell of Linux needs a backslash",
            essential=False,
        )
        for shell in shells
    )
    return dataclasses.replace(found, not_read=(*found.not_read, *unread)) if unread else found


def _in_prose(text: str, found: Launch, context: Context) -> Launch:
    """Return the launch within a message, where the lines around it are no shell's.

    What a script sets for its launch is not lost: with other arguments the script counts.
    """
    script = text.lstrip().startswith("#!") or any(one.what == "eval" for one in found.not_read)
    alone = "" if script else prose.commands(text)
    if not alone:
        return found
    read = of_script(alone, context.as_form("command line"))
    same = [(one.key, one.value) for one in read.arguments] == [
        (one.key, one.value) for one in found.arguments
    ]
    return (
        read if read.engine and (not found.engine or (same and prose.has_sentence(text))) else found
    )


def _of_list(words: list[str], context: Context) -> Launch:
    if not any(word.strip() for word in words):
        raise _no_launch(words, "it is empty")
    if sum(map(len, words)) > MOST_TEXT:
        raise _no_launch("the list of arguments", f"it has more than {MOST_TEXT:,} characters")
    if len(words) == 1 and " " in words[0].strip():
        return _of_text(Handed(words[0]), context)
    # A list that somebody wrote may hold a variable that no shell has replaced.
    return of_words([_with_holes(word) for word in words], context, "argument list")


def _with_holes(word: str) -> str:
    return _VARIABLE.sub(
        lambda m: holes.hole(m[1] or m[2] or f"${m[3]}"), holes.without_holes(word)
    )


def _of_process(pid: int, context: Context) -> Launch:
    words, main = processes.words_of(pid)
    environment = processes.environment_of(main)
    words = [holes.without_holes(word) for word in words]
    found = of_words(
        words, context.with_interpreter(processes.interpreter_of(main, words[0])), "process"
    )
    return dataclasses.replace(
        found, environment=environment | dict(found.environment), source=f"process {main}"
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_record(record: Any, context: Context) -> Launch:
    """Read the record of a launch (``launch.json``, a line of a ledger), or a list of arguments."""
    if isinstance(record, list) and record and all(isinstance(word, str) for word in record):
        return _of_list(record, context)
    if not isinstance(record, dict):
        return nothing(context.as_form("launch record"), "the JSON", "it is no record of a launch")
    versions = record.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    command = record.get("command")
    known = {n: v for n, v in versions.items() if isinstance(v, str)}
    if isinstance(record.get("version"), str) and record["version"]:
        known.setdefault(str(record.get("engine") or "sglang"), record["version"])
    context = context.as_form("launch record").with_versions(known)
    given = record.get("environment")
    environment = given if isinstance(given, dict) else {}
    resolved = record.get("resolved")
    if isinstance(command, str) and command.strip():
        found = of_script(holes.without_holes(command), context)
    elif isinstance(command, list) and command and all(isinstance(w, str) for w in command):
        found = of_words([_with_holes(word) for word in command], context, "launch record")
    elif isinstance(resolved, dict) and resolved:
        found = _of_resolved(resolved, known.get("sglang", context.version), context)
    elif "services" in record or "kind" in record:
        return _of_containers(manifests.containers([record]), context)
    else:
        return nothing(context, "the JSON", "it has no `command` in words")
    texts = {str(n): v for n, v in environment.items() if isinstance(v, str)}
    return dataclasses.replace(found, environment=texts | dict(found.environment))


def _of_resolved(resolved: dict[Any, Any], version: str, context: Context) -> Launch:
    texts = {str(n).replace("_", "-"): str(v).strip("'\"") for n, v in resolved.items()}
    arguments = tuple(of_fields(texts, version, Place(context.source)))
    values = {one.key: one.value for one in arguments}
    return Launch(
        "sglang", "launch record", version, "the record" if version else "", arguments=arguments,
        target=values.get("model-path"), draft=values.get("speculative-draft-model-path"),
        source=context.source,
    )  # fmt: skip


def _of_yaml(text: str, context: Context) -> Launch:
    if _TEMPLATE.search(text):
        why = "it is a template; its values are elsewhere (`helm template` writes it out)"
        return nothing(context.as_form("kubernetes manifest"), "the template", why)
    documents = manifests.load_yaml(text, context.source)
    found = manifests.containers(documents)
    if found:
        return _of_containers(found, context)
    first = documents[0] if len(documents) == 1 else None
    named = {str(key).replace("_", "-") for key in first} if isinstance(first, dict) else set()
    flat = isinstance(first, dict) and not any(isinstance(value, dict) for value in first.values())
    sglang = "model-path" in named or (context.engine == "sglang" and "model" in named)
    if isinstance(first, dict) and flat and sglang:
        return context.as_form("configuration file").configured(first)
    why = "it describes no container with a command, and no arguments of SGLang"
    return nothing(context.as_form("configuration file"), "the YAML", why)


def _of_containers(found: Sequence[manifests.Container], context: Context) -> Launch:
    launches = []
    for one in found:
        inner = context.as_form(one.form)
        launches += launch_of_program(
            inner.contained(one.image, one.entrypoint, one.command, one.environment, one.foreign),
            inner,
        )
    if not launches:
        launches = [
            one for one in (_arguments_alone(one, context) for one in found) if one is not None
        ]
    if not launches:
        form = found[0].form
        why = f"none of its {len(found)} containers starts a known server"
        return nothing(context.as_form(form), f"the {form}", why)
    return one_of(launches)


def _arguments_alone(one: manifests.Container, context: Context) -> Launch | None:
    """Return the launch of a container that holds arguments alone: its command is elsewhere."""
    image = read_image(one.image)
    if one.entrypoint or not one.command or not one.command[0].startswith("--"):
        return None
    if (image.engine or context.engine) != "sglang":
        return None
    inner = dataclasses.replace(context, engine="sglang", version=image.version or context.version)
    found = of_words(one.command, inner, one.form)
    if image.version and not found.version:
        found = dataclasses.replace(found, version=image.version, version_basis="tag of the image")
    return dataclasses.replace(found, image=image.name, environment=one.environment)


def _of_starts(starts: Sequence[units.Start], context: Context, form: Any) -> Launch:
    launches: list[Launch] = []
    inner = context.as_form(form)
    for start in starts:
        words = start.words or (("sh", "-c", start.text) if start.text else ())
        found = inner.contained(
            start.image, start.entrypoint, words, start.environment, start.foreign, start.line
        )
        launches += launch_of_program(found, inner)
    if not launches:
        return nothing(inner, f"the {form}", "it starts no known server")
    return one_of(launches)
