"""Ask SGLang's own parser and checks about launches. A script of its own: the engine's Python runs it.

It reads one JSON object from standard input and writes one a line to standard output, one for each launch::

    {"stubs": "/folder", "stand_in": true, "card": "H200", "folders": ["/model"],
     "launches": [{"id": "1", "options": ["--model-path", "/model"], "environment": {}, "checks": true}]}

``checks`` false: the parser only, because a model is not here. An answer holds ``id``, ``version`` and

- ``moment``: ``parser``, ``checks``, or "" if nothing is refused; ``why``: the engine's words;
- ``place``: the function that raised; ``sorts``: the class of what was raised, and those above it;
- ``caged``: what was out of reach; ``lacking``: whether a stand-in for a GPU package was called; ``missing``:
  the packages that others stand in for;
- ``filled``: the speculative arguments as the engine fills them in; ``notes``: its warnings.

Cards are pretended, so that the arguments take the way of a CUDA host. Nothing runs on them, nothing is
downloaded, and no code of a checkpoint is run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import json
import logging
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = "workbench_asking"
GIB = 1 << 30
# Name, compute capability, GiB and processors of what is pretended.
CARDS = {
    "H200": ("NVIDIA H200", (9, 0), 141, 132),
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 80, 108),
    "B200": ("NVIDIA B200", (10, 0), 180, 148),
}
NUMBER = 8
NOTED = (
    "adjusted",
    "disabled because",
    "is disabled",
    "deprecated",
    "overrid",
    "set to",
    "ignored",
)
FIELDS = ("algorithm", "draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens")
_MEMORY = ("get_device_memory_capacity", "get_nvgpu_memory_capacity")


# Lets an engine look at a launch; notes in the second argument how far it came, and raises what is refused.
Ask = Callable[[dict[str, Any], dict[str, Any]], None]
Ready = Callable[[dict[str, Any]], tuple[Ask, list[str]]]


class Parsed(Exception):
    """The parser took everything, and no more was asked."""


def module_of(folder: Path, name: str) -> Any:
    """Import a file of a folder that is kept off sys.path."""
    package = f"{PACKAGE}_{folder.name}"
    if package not in sys.modules:
        made = types.ModuleType(package)
        made.__path__ = [str(folder)]
        sys.modules[package] = made
    return importlib.import_module(f"{package}.{name}")


def pretend_cards(torch: Any, card: str) -> None:
    """Make torch report a host with eight cards."""
    name, capability, memory, processors = CARDS[card]

    class Card:
        major, minor = capability
        total_memory, multi_processor_count = memory * GIB, processors

    Card.name = name  # type: ignore[attr-defined]
    torch.version.cuda = "13.0"
    for attribute, value in (
        ("is_available", True),
        ("device_count", NUMBER),
        ("get_device_capability", capability),
        ("get_device_properties", Card()),
        ("get_device_name", name),
        ("current_device", 0),
    ):
        setattr(torch.cuda, attribute, _constant(value))


def _constant(value: Any) -> Any:
    return lambda *_, **__: value


def fill_gaps(torch: Any) -> None:
    """Give older releases what they ask of a torch that is newer, and of kernels without a CPU build."""
    if not hasattr(torch._C._cpu, "_is_amx_tile_supported"):
        torch._C._cpu._is_amx_tile_supported = lambda: False
    register = torch.library.register_fake

    def register_fake(operator: Any, *given: Any, **more: Any) -> Any:
        if isinstance(operator, str) and operator.startswith("sgl_kernel::"):
            return lambda function: function
        return register(operator, *given, **more)

    torch.library.register_fake = register_fake


def pretend_memory(card: str) -> None:
    """Give every module that asks for the memory of a card its size in MiB."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("sglang"):
            for name in _MEMORY:
                if name in vars(module):
                    setattr(module, name, _constant(CARDS[card][2] * 1024))


@contextlib.contextmanager
def watched_parser(seen: dict[str, str], only: bool) -> Iterator[None]:
    """Note when the parser is done; stop there if no more is asked."""
    original = argparse.ArgumentParser.parse_args

    def parse_args(self: Any, *given: Any, **more: Any) -> Any:
        found = original(self, *given, **more)
        seen["moment"] = "checks"
        if only:
            raise Parsed
        return found

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]


def filled(parsed: Any) -> dict[str, Any]:
    """Return the speculative arguments as the engine filled them in."""
    try:
        from sglang.srt.arg_groups.overrides import resolving_view

        parsed = resolving_view(parsed)
    except ImportError:  # the record holds them itself
        pass
    names = {name: getattr(parsed, "speculative_" + name, None) for name in FIELDS}
    return {k: v for k, v in names.items() if isinstance(v, (str, int, type(None)))}


def ask_sglang(server_args: Any, launch: dict[str, Any], seen: dict[str, Any]) -> None:
    """Let SGLang parse a launch and check it; what it refuses is raised."""
    options = list(launch["options"])
    if not any(one.partition("=")[0] == "--device" for one in options):
        options += ["--device", "cuda"]
    with watched_parser(seen, not launch["checks"]):
        parsed = server_args.prepare_server_args(options)
    if hasattr(
        parsed, "resolve_once"
    ):  # from 0.5.16 or so, what follows from the words is filled in later
        parsed.resolve_once()
    seen["filled"] = filled(parsed)
    if hasattr(parsed, "check_server_args"):
        parsed.check_server_args()


def refusal(ask: Ask, launch: dict[str, Any], said: io.StringIO, package: str) -> dict[str, Any]:
    """Return when and in which words a launch is refused, and the arguments as they were filled in."""
    seen: dict[str, Any] = {
        "moment": "parser",
        "why": "",
        "place": "",
        "filled": {},
        "lacking": False,
        "sorts": [],
    }
    try:
        ask(launch, seen)
    except Parsed:
        pass
    except SystemExit as end:
        lines = [line for line in said.getvalue().splitlines() if "error:" in line]
        seen["why"] = lines[-1].partition("error: ")[2] if lines else f"exit {end.code}"
        return seen
    except Exception as error:  # the engine's own words are the answer
        seen["why"] = f"{type(error).__name__}: {words_of(error)[:300]}".rstrip(": ")
        frames = traceback.extract_tb(error.__traceback__)
        own = [one for one in frames if f"{os.sep}{package}{os.sep}" in one.filename] or frames
        seen["place"] = f"{own[-1].name}, {Path(own[-1].filename).name}:{own[-1].lineno}"
        chain = [error, error.__cause__, error.__context__]
        seen["sorts"] = [one.__name__ for one in type(error).__mro__]
        seen["lacking"] = any(type(one).__name__ == "StubCalled" for one in chain if one)
        return seen
    seen["moment"] = ""
    return seen


def words_of(error: Exception) -> str:
    """Return the first line of what an error says; of pydantic's, what the check itself says."""
    lines = str(error).strip().splitlines()
    inner = [line.strip() for line in lines[1:] if line.strip().startswith("Value error, ")]
    if inner:
        return inner[0].removeprefix("Value error, ").partition(" [type=")[0]
    if len(lines) > 2 and " [type=" in lines[2]:  # a field, and what is wrong with it
        return f"{lines[1].strip()}: {lines[2].strip().partition(' [type=')[0]}"
    return lines[0] if lines else ""


def answer(ask: Ask, launch: dict[str, Any], cage: Any, package: str) -> dict[str, Any]:
    """Answer one launch, in the surroundings that it sets."""
    said = io.StringIO()
    logging.getLogger().handlers = [logging.StreamHandler(said)]
    before = dict(os.environ)
    os.environ.update(launch["environment"])
    cage.asking, cage.stopped = True, []
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            seen = refusal(ask, launch, said, package)
    finally:
        cage.asking = False
        os.environ.clear()
        os.environ.update(before)
    lines = said.getvalue().splitlines()
    notes = [line[:240] for line in lines if any(word in line for word in NOTED)]
    return seen | {"id": launch["id"], "caged": cage.stopped[:3], "notes": notes[:6]}


def sglang_of(request: dict[str, Any]) -> tuple[Ask, list[str]]:
    """Make SGLang ready to be asked; return how, and the packages that others stand in for."""
    missing = module_of(Path(request["stubs"]), "stubs").install() if request["stand_in"] else []
    import torch

    pretend_cards(torch, request["card"])
    fill_gaps(torch)
    from sglang.srt import server_args

    pretend_memory(request["card"])
    return functools.partial(ask_sglang, server_args), missing


def main(package: str, ready: Ready, distribution: str = "", trusted: tuple[str, ...] = ()) -> None:
    """Answer the request on standard input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
    request = json.load(sys.stdin)
    module_of(Path(request["stubs"]), "parent").die_with_parent()
    cage = module_of(HERE, "cage").Cage(request["folders"], trusted)
    cage.close()
    ask, missing = ready(request)
    release = metadata.version(distribution or package)
    for launch in request["launches"]:
        found = answer(ask, launch, cage, package) | {"version": release, "missing": missing}
        print(json.dumps(found, default=str), file=out, flush=True)
    out.close()
    os._exit(0)  # threads of libraries need no tidy end


if __name__ == "__main__":
    main("sglang", sglang_of)
