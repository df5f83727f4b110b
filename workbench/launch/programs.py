"""Which server a command starts, behind sudo, numactl, srun, docker, ``bash -c`` and their like."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import PurePath

from workbench.launch import holes
from workbench.launch.images import NO_IMAGE, Image, entrypoint_of, read_image

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "ash"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
# Python's options that take a value.
_PYTHON_VALUES = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_MODULES = {
    "sglang.launch_server": "sglang",
    "sglang.bench_one_batch": "sglang",
    "sglang.bench_offline_throughput": "sglang",
    "sglang_router.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "tensorrt_llm.commands.serve": "tensorrt-llm",
}
# Modules with a command line of their own: `python -m vllm.entrypoints.cli.main serve`.
_COMMAND_LINES = {
    "sglang": "sglang",
    "sglang.cli.main": "sglang",
    "vllm": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
_SCRIPTS = {"launch_server.py": "sglang", "api_server.py": "vllm"}
# Servers that are known and whose arguments are not read.
_OTHERS = re.compile(
    r"sgl_jax\.launch_server|dynamo\.(?:sglang|vllm|trtllm)|sglang_router(?:\.launch_router)?|sgl-router|smg"
    r"|sglang\.multimodal_gen.*|mlc_llm|lmdeploy|text-generation-launcher|llama-server|tritonserver"
)
# Commands that name a server and start none.
_NO_LAUNCH = frozenset({
    "echo", "printf", "grep", "egrep", "rg", "pgrep", "pkill", "kill", "killall", "ps", "cat",
    "less", "tail", "head", "which", "type", "man", "ls", "cd", "cp", "mv", "rm", "mkdir", "chmod",
    "chown", "pip", "pip3", "git", "curl", "wget", "sed", "awk", "test", "[", "[[", "export",
    "unset", "alias", "find", "hf", "huggingface-cli", "apt", "apt-get", "tee", "nc", "sleep",
    "wait", "trap", "return", "exit", "true", "false", "set", "source", ".", "local", "pushd",
    "popd", "touch", "ln", "tar", "rsync", "scp",
})  # fmt: skip
_MOST_BEFORE = 400
_MAY_SERVE = re.compile(rf"{_PYTHON.pattern}|sglang|vllm|trtllm-serve|{_OTHERS.pattern}")
# What stands before a command and runs it.
_BEFORE = frozenset({"sudo", "env", "nohup", "exec", "time", "command", "builtin"})
# Commands of which one word may be a shell's text.
_TAKE_TEXT = frozenset({
    "ssh", "tmux", "screen", "sbatch", "su", "script", "watch", "parallel", "kubectl", "oc",
    "pdsh", "clush", "wsl", "flox", "setsid", "xargs",
})  # fmt: skip
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXPORTS = re.compile(r"--export=(.*)", re.DOTALL)
# docker run's options without a value.
_SWITCHES = frozenset({
    "--rm", "--init", "--privileged", "--read-only", "--no-healthcheck", "--oom-kill-disable",
    "--publish-all", "--quiet", "--detach", "--interactive", "--tty", "--disable-content-trust",
    "--sig-proxy", "--replace", "--tls", "--rmi",
})  # fmt: skip
_SHORT_SWITCHES = re.compile(r"-[ditPq]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """What a command starts.

    Attributes
    ----------
    engine
        "" where the server is known by name and its arguments are not read.
    name
        As it is started: ``sglang.launch_server``.
    arguments
        What stands behind it.
    interpreter
        The path of the Python that runs it, "" where it is not named.
    environment
        Variables that stand before it.
    container
        Whether it runs in a container: paths are then the container's.
    before
        The words that stand before the server and run it: ``numactl -N 0``.
    """

    engine: str
    name: str
    arguments: tuple[str, ...]
    interpreter: str = ""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    image: Image = NO_IMAGE
    container: bool = False
    before: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Nested:
    """A text that another shell is given to run."""

    text: str
    environment: dict[str, str]
    image: Image = NO_IMAGE
    container: bool = False


def find(words: Sequence[str]) -> Program | Nested | None:
    """Return what a command starts: a server, a text for another shell, or nothing that is a server."""
    environment: dict[str, str] = {}
    at = 0
    command = True
    while at < min(len(words), _MOST_BEFORE):
        word = words[at]
        name = PurePath(word[:400]).name
        if command and name in _NO_LAUNCH:
            return None
        command = command and (name in _BEFORE or bool(_ASSIGNMENT.fullmatch(word)))
        if _PYTHON.fullmatch(name) and "-c" in words[at + 1 : at + 4]:
            return None  # what follows are arguments of that code
        found = recognise(words[at:]) if _MAY_SERVE.fullmatch(name) else None
        if found is not None:
            before = tuple(words[:at])
            return dataclasses.replace(found, environment=environment, before=before)
        if name in _CONTAINERS and _is_run(words[at + 1 :]):
            return _contained(words[at + 1 :], environment)
        if name in _SHELLS:
            text = _shell_text(words[at + 1 :])
            if text is not None:
                return Nested(text, environment)
        _note_environment(word, environment)
        at += 1
    return _text_of(words, environment)


def _note_environment(word: str, environment: dict[str, str]) -> None:
    """Keep a variable that ``env``, ``sudo``, ``mpirun -x`` or ``srun --export`` sets."""
    exported = _EXPORTS.fullmatch(word)
    for one in exported[1].split(",") if exported else (word,):
        found = _ASSIGNMENT.fullmatch(one)
        if found:
            environment[found[1]] = found[2]


def recognise(words: Sequence[str]) -> Program | None:
    """Return the server that the words start with, if it is one."""
    name = PurePath(words[0]).name
    if _PYTHON.fullmatch(name):
        return _python(words)
    rest = tuple(words[1:])
    if name in ("sglang", "vllm"):
        return _served(name, rest)
    if name == "trtllm-serve":
        # `trtllm-serve serve MODEL` and `trtllm-serve MODEL` are the same.
        return Program("tensorrt-llm", name, rest[1:] if rest[:1] == ("serve",) else rest)
    if _OTHERS.fullmatch(name):
        return Program("", name, rest)
    return None


def _served(engine: str, rest: tuple[str, ...]) -> Program | None:
    if rest[:1] == ("serve",):
        return Program(engine, f"{engine} serve", rest[1:])
    return None


def _python(words: Sequence[str]) -> Program | None:
    interpreter = words[0] if "/" in words[0] else ""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word in _PYTHON_VALUES:
            at += 2
        elif re.fullmatch(r"-[a-ln-zA-Z]*m.*", word) and not word.startswith("--"):
            inline = word.partition("m")[2]
            module = inline or (words[at + 1] if at + 1 < len(words) else "")
            return _module(module, tuple(words[at + (1 if inline else 2) :]), interpreter)
        elif word == "-c":
            return None
        else:
            at += 1
    if at < len(words):
        path = PurePath(words[at])
        engine = _SCRIPTS.get(path.name)
        if engine and (engine != "vllm" or "vllm" in words[at]):
            return Program(engine, path.name, tuple(words[at + 1 :]), interpreter)
    return None


def _module(module: str, rest: tuple[str, ...], interpreter: str) -> Program | None:
    engine = _MODULES.get(module)
    if engine:
        return Program(engine, module, rest, interpreter)
    if module in _COMMAND_LINES:
        found = _served(_COMMAND_LINES[module], rest)
        return found and dataclasses.replace(found, interpreter=interpreter)
    return Program("", module, rest, interpreter) if _OTHERS.fullmatch(module) else None


def _shell_text(words: Sequence[str]) -> str | None:
    """Return the text behind ``-c``, ``-lc`` and their like."""
    for at, word in enumerate(words):
        if not word.startswith(("-", "+")):
            return None
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) and at + 1 < len(words):
            return words[at + 1]
    return None


def _text_of(words: Sequence[str], environment: dict[str, str]) -> Nested | None:
    """Return the text that ``ssh``, ``tmux`` or ``sbatch --wrap`` hands to a shell."""
    if not words or PurePath(words[0]).name not in _TAKE_TEXT:
        return None
    for word in words[1:]:
        text = word.partition("=")[2] if word.startswith("--wrap=") else word
        if " " in text.strip() and re.search(
            r"launch_server|\bserve\b|trtllm-serve|api_server", text
        ):
            return Nested(text, environment)
    return None


def _is_run(words: Sequence[str]) -> bool:
    """Whether a container is started: ``run`` or ``create``, behind global options."""
    return any(word in ("run", "create") for word in words[:6]) and "exec" not in words[:2]


def _contained(words: Sequence[str], environment: dict[str, str]) -> Program | Nested | None:
    """Return what ``docker run`` starts in its container."""
    at = next(n for n, word in enumerate(words) if word in ("run", "create")) + 1
    inside: dict[str, str] = {}
    entrypoint = ""
    while at < len(words) and words[at].startswith(("-", "\ue001")):
        option, equals, value = words[at].partition("=")
        short = _SHORT_SWITCHES.fullmatch(option)
        if not (equals or short or option in _SWITCHES or holes.may_be_many(option)):
            if re.fullmatch(r"-[evpwuhlmcaf].+", option) and not option.startswith("--"):
                option, value = option[:2], words[at][2:]  # -eNAME=value
            else:
                at += 1
                value = words[at] if at < len(words) else ""
        if option in ("-e", "--env"):
            _note_environment(value, inside)
        elif option == "--entrypoint":
            entrypoint = value
        at += 1
    image = read_image(words[at]) if at < len(words) else NO_IMAGE
    return in_container(image, entrypoint.split(), words[at + 1 :], inside)


def in_container(
    image: Image, entrypoint: Sequence[str], command: Sequence[str], environment: dict[str, str]
) -> Program | Nested | None:
    """Return what a container starts: its entrypoint with its command, or the image's own server."""
    words = [*entrypoint, *command]
    found = find(words) if words else None
    own = entrypoint_of(image)
    if found is None and own and not entrypoint:
        found = recognise([*own, *command])
    if found is None:
        return None
    image = image if image.name else found.image
    return dataclasses.replace(
        found, environment=environment | found.environment, image=image, container=True
    )
