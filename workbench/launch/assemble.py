"""From the commands of a text to launches: the server, its arguments, its configuration file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.evidence.redact import LEFT_OUT, is_secret
from workbench.launch import holes, manifests, options, other_engines, processes
from workbench.launch.files import MOST_TEXT
from workbench.launch.images import Image, read_image
from workbench.launch.options import Arguments
from workbench.launch.programs import Nested, Program, find, in_container
from workbench.launch.records import Argument, Form, Launch, Place, Unread
from workbench.launch.script import Command, Script, read_script
from workbench.launch.several import one_of

_DEEPEST = 5
_MOST_LAUNCHES = 50
# `pip install "sglang[all]==0.5.11"`.
_INSTALLED = re.compile(r"(sglang|vllm|tensorrt[-_]llm)(?:\[[\w,-]*\])?==(\d[\w.+!-]*)")
_CONFIG_OPTIONS = {"vllm": "config", "tensorrt-llm": "extra-llm-api-options"}


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """A server that a text starts, with what is known around it."""

    program: Program
    line: int = 0
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: str = ""
    words: tuple[str, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """What is known of a launch besides its text.

    Attributes
    ----------
    engine, version
        Given by the caller.
    folder
        Where configuration files may be, behind the current folder.
    versions
        Releases that a record names, or that a script installs.
    interpreter
        The Python of a running process.
    """

    engine: str = ""
    version: str = ""
    folder: Path | None = None
    source: str = ""
    form: Form = "command line"
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    basis: str = ""
    interpreter: str = ""

    def at(self, source: str, folder: Path | None) -> Context:
        """Return the context of a file."""
        return dataclasses.replace(self, source=source, folder=self.folder or folder)

    def as_form(self, form: Form) -> Context:
        """Return the context with the form that was recognised."""
        return dataclasses.replace(self, form=form)

    def with_versions(self, versions: Mapping[str, str]) -> Context:
        """Return the context with the releases that a record names."""
        return dataclasses.replace(self, versions=versions, basis="the record")

    def with_interpreter(self, interpreter: str) -> Context:
        """Return the context of a running process."""
        return dataclasses.replace(self, interpreter=interpreter)

    def contained(
        self,
        image: str,
        entrypoint: Sequence[str],
        command: Sequence[str],
        environment: dict[str, str],
        foreign: bool,
        line: int = 0,
    ) -> list[Start]:
        """Return the servers that a container or a unit starts."""
        read = read_image(image) if image else Image()
        found = in_container(read, entrypoint, command, environment)
        if found is not None and not image:
            found = dataclasses.replace(found, container=False)
        return _followed(found, line, foreign, 0)

    def configured(self, values: Mapping[Any, Any]) -> Launch:
        """Return the launch that a configuration file of SGLang describes by itself."""
        words = options.from_config({str(key): value for key, value in values.items()})
        return _assembled(Start(Program("sglang", "sglang", tuple(words))), self)


def nothing(context: Context, what: str, why: str) -> Launch:
    """Return a launch of which no server is known."""
    unread = Unread(what, why, options=True)
    return Launch("", context.form, not_read=(unread,), source=context.source)


def of_script(text: str, context: Context) -> Launch:
    """Return the launch that a script or a command line holds."""
    script = read_script(text)
    context = _with_installed(script, context)
    starts: list[Start] = []
    for command in script.commands:
        starts += _of_command(command, False, 0)
    if starts:
        return _with_broken(one_of(launch_of_program(starts, context)), script)
    bare = _bare_arguments(script, context)
    if bare is not None:
        return _with_broken(bare, script)
    if script.evaluated:
        return nothing(context, "eval", f"what it runs is not known: {script.evaluated[0]}")
    named = _mentioned(script)
    if named:
        return nothing(context, named, "it is no launch of a known server")
    return nothing(context, "the text", "no launch of a known server was found in it")


def _with_broken(launch: Launch, script: Script) -> Launch:
    """Add the lines of a script that are not a shell's: what they do is not known."""
    if not script.broken:
        return launch
    lines = ", ".join(map(str, script.broken[:5]))
    what = f"line {lines}" if len(script.broken) == 1 else f"lines {lines}"
    unread = Unread(what, "this cannot be read as a shell's command (an open quote, for instance)")
    return dataclasses.replace(launch, not_read=(*launch.not_read, unread))


def _mentioned(script: Script) -> str:
    """Return the first command that says something of a server, without starting a known one."""
    for command in script.commands:
        text = holes.shown(" ".join(command.words))
        if command.words[:1] != ("File",) and re.search(r"launch_server|sglang|vllm|--model", text):
            return text
    return ""


def of_words(words: Sequence[str], context: Context, form: Form) -> Launch:
    """Return the launch of a command in words, which no shell reads any more."""
    context = context.as_form(form)
    found = _followed(find(words), 0, False, 0)
    starts = [dataclasses.replace(start, words=tuple(words)) for start in found]
    if starts:
        return one_of(launch_of_program(starts, context))
    if words and words[0].startswith("--") and context.engine in ("", "sglang"):
        return _assembled(Start(Program("sglang", "", tuple(words))), context)
    named = holes.shown(" ".join(words))
    return nothing(context, named, "it is no launch of a known server")


def launch_of_program(starts: Sequence[Start], context: Context) -> list[Launch]:
    """Return the launches of the servers that were found."""
    return [_assembled(start, context) for start in starts[:_MOST_LAUNCHES]]


def _with_installed(script: Script, context: Context) -> Context:
    """Add the releases that a script installs."""
    found: dict[str, str] = {}
    for command in script.commands:
        if "install" in command.words:
            for word in command.words:
                named = _INSTALLED.search(word)
                if named:
                    found[named[1].replace("_", "-")] = named[2]
    if not found or context.versions:
        return context
    return dataclasses.replace(context, versions=found, basis="installed by the script")


def _bare_arguments(script: Script, context: Context) -> Launch | None:
    """Return the launch of a text that holds arguments alone: ``--model-path … --tp 8``."""
    if len(script.commands) != 1 or context.engine not in ("", "sglang"):
        return None
    words = script.commands[0].words
    if not words[0].startswith("--"):
        return None
    return _assembled(Start(Program("sglang", "", words)), context)


def _of_command(command: Command, foreign: bool, depth: int) -> list[Start]:
    found = find(command.words)
    if found is None and command.input and find([*command.words, "-c", command.input]):
        found = find([*command.words, "-c", command.input])  # `bash <<EOF`
    return [
        dataclasses.replace(
            start,
            line=start.line or command.line,
            environment=dict(command.environment) | dict(start.environment),
            log=start.log or holes.shown(command.log),
            words=command.words,
            files=command.files,
        )
        for start in _followed(found, command.line, foreign, depth)
    ]


def _followed(found: Program | Nested | None, line: int, foreign: bool, depth: int) -> list[Start]:
    """Return the servers behind what a command starts: a text for another shell is read as a script."""
    if found is None or depth > _DEEPEST:
        return []
    if isinstance(found, Program):
        return [Start(found, line, found.environment)]
    starts: list[Start] = []
    script = read_script(found.text, found.environment, foreign=foreign)
    for command in script.commands:
        for start in _of_command(command, foreign, depth + 1):
            image = found.image if found.image.name else start.program.image
            inside = found.container or start.program.container
            program = dataclasses.replace(start.program, image=image, container=inside)
            starts.append(dataclasses.replace(start, program=program, line=line))
    return starts


def _assembled(start: Start, context: Context) -> Launch:
    program = start.program
    environment = {
        name: LEFT_OUT if is_secret(name) else value
        for name, value in (dict(start.environment) | program.environment).items()
        if not holes.has_hole(value)
    }
    version, basis = _version(program, context)
    launch = Launch(
        program.engine,
        context.form,
        version,
        basis,
        program.name,
        environment=environment,
        image=program.image.name,
        source=context.source,
        log=start.log,
        words=tuple(map(holes.shown, start.words or program.arguments)),
        before=tuple(map(holes.shown, program.before)),
    )
    if not program.engine:
        unread = Unread(program.name, "its arguments are not read", options=True)
        return dataclasses.replace(launch, not_read=(unread,))
    where = Place(context.source, start.line)
    words: Sequence[str] = program.arguments
    if program.engine == "sglang":
        read, words = _sglang(start, version or context.version, where, context)
    else:
        read = _other(start, where, context)
    last = {one.key: one.value for one in read.arguments}
    return dataclasses.replace(
        launch,
        arguments=read.arguments,
        not_read=read.not_read,
        target=last.get("model-path"),
        draft=last.get("speculative-draft-model-path"),
        options=tuple(words),
    )


def _version(program: Program, context: Context) -> tuple[str, str]:
    """Return the release that a launch proves, and how it is known."""
    if program.image.engine == program.engine and program.image.version:
        return program.image.version, "tag of the image"
    named = context.versions.get(program.engine)
    if named:
        return named, context.basis
    if not program.container:
        package = program.engine.replace("-", "_")
        for path in (program.interpreter, context.interpreter):
            found = processes.installed(path, package) if path else ""
            if found:
                return found, f"installed with {path}"
    return "", ""


def _sglang(
    start: Start, version: str, where: Place, context: Context
) -> tuple[Arguments, Sequence[str]]:
    """Return the arguments, and the words that the parser gets: those of a configuration file first."""
    words: Sequence[str] = start.program.arguments
    if start.program.name.startswith("sglang_router"):
        words = _without_router(words)
    read = options.read_arguments(words, version, where)
    named = next((one for one in reversed(read.arguments) if one.key == "config"), None)
    if named is None or named.value is None:
        return read, words
    values, why = _config(named.value, start, context)
    if values is None:
        unread = Unread(f"--config {named.value}", why, options=True)
        # What the line itself says outweighs the file.
        return Arguments(read.arguments, (*read.not_read, unread)), words
    text = options.from_config(values)
    from_file = options.read_arguments(text, version, Place(named.value))
    both = Arguments((*from_file.arguments, *read.arguments), (*from_file.not_read, *read.not_read))
    return both, [*text, *words]


def _without_router(words: Sequence[str]) -> list[str]:
    """Return the server's part of the arguments of a router that launches servers."""
    kept: list[str] = []
    router = False
    for word in words:
        if word.startswith("--"):
            router = word.startswith("--router-")
        if not router:
            kept.append(word)
    return kept


def _other(start: Start, where: Place, context: Context) -> Arguments:
    """Read the arguments of vLLM or TensorRT-LLM, with the file that they name."""
    read = other_engines.read_arguments(start.program.arguments, where)
    option = _CONFIG_OPTIONS[start.program.engine]
    named = next((one for one in reversed(read.arguments) if one.name in (option, "config")), None)
    if named is None or named.value is None:
        return read
    values, why = _config(named.value, start, context)
    if values is None:
        unread = Unread(f"{named.raw} {named.value}", why, options=True)
        return Arguments(read.arguments, (*read.not_read, unread))
    found: list[Argument] = []
    place = Place(named.value)
    nested = values.get("speculative_config") or values.get("speculative-config")
    if isinstance(nested, Mapping):
        found += other_engines.speculation(nested, named.raw, place)
    if start.program.engine == "vllm":
        text = options.from_config({k: v for k, v in values.items() if not isinstance(v, Mapping)})
        found += other_engines.read_arguments(text, place).arguments
    return Arguments((*found, *read.arguments), read.not_read)


def _config(name: str, start: Start, context: Context) -> tuple[dict[str, Any] | None, str]:
    """Return the values of a configuration file, or why they are not known."""
    text = start.files.get(name)
    if text is None:
        if start.program.container:
            return None, "the file is in the container"
        text = _text_of(name, context)
        if text is None:
            return None, "there is no such file here"
    try:
        documents = manifests.load_yaml(text, name)
    except WorkbenchError as error:
        return None, error.why or error.what
    first = documents[0] if documents else None
    if not isinstance(first, dict):
        return None, "it holds no names with values"
    return {str(key): value for key, value in first.items()}, ""


def _text_of(name: str, context: Context) -> str | None:
    path = Path(name).expanduser()
    folders = [Path()] + ([context.folder] if context.folder is not None else [])
    for folder in [Path("/")] if path.is_absolute() else folders:
        place = folder / path
        try:
            if place.is_file() and place.stat().st_size <= MOST_TEXT:
                return place.read_text("utf-8", "replace")
        except OSError:
            continue
    return None
