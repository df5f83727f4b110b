"""Ask the real SGLang what it makes of the launches, and compare it with what the table says.

Usage::

    python -m tests.check_unseen.truth                     # every release that an environment holds
    python -m tests.check_unseen.truth 0.5.8 --id NAME     # one release, one launch
    python -m tests.check_unseen.truth 0.5.2 --wheels DIR  # a release without an environment, from its wheel

The parser and the checks of ServerArgs run on a CPU with pretended cards (`ask`). They settle the moments
``parser`` and ``check``; a launch that fails later, or not at all, must pass them. The exit status is 1 if
a launch is not as the table says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engines import environments
from workbench.loaders.running import SCRIPT as TRACER

from .cases import Line, of_engine, read_lines
from .models import build

SCRIPT = Path(__file__).with_name("ask.py")
ASKED = ("parser", "check")


def ask(
    python: Path, lines: Sequence[Line], first: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return the engine's answer to each launch, by name; `first` is searched for packages first."""
    with tempfile.TemporaryDirectory(prefix="launches-") as folder:
        names = sorted({name for line in lines for name in line.models})
        places = build(Path(folder), names)
        launches = []
        for line in lines:
            options, environment = line.words(places)
            launches.append({"id": line.name, "options": options, "environment": environment})
        surroundings = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        surroundings["PYTHONPATH"] = str(first or "")
        done = subprocess.run(
            [str(python), str(SCRIPT)],
            check=False,
            input=json.dumps({"stubs": str(TRACER.parent), "launches": launches}),
            capture_output=True,
            text=True,
            env=surroundings,
            cwd=folder,
        )
        answers = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]
        if len(answers) != len(lines):
            raise RuntimeError(done.stderr[-2000:])
        for answer in answers:
            answer["why"] = answer["why"].replace(folder + "/", "")
    return {answer["id"]: answer for answer in answers}


def differs(line: Line, answer: dict[str, Any]) -> str:
    """Return in what an answer is not as the table says, or "" if it agrees."""
    wanted = line.moment if line.moment in ASKED else ""
    if answer["moment"] != wanted:
        return f"{wanted or 'accepted'} expected, {answer['moment'] or 'accepted'} seen: {answer['why']}"
    if wanted and line.said not in answer["why"]:
        return f"other words: {answer['why']}"
    return ""


def _wheel(release: str, wheels: Path, folder: Path) -> Path:
    """Unpack the wheel of a release."""
    file = next(wheels.glob(f"sglang-{release}-*.whl"))
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / release)
    return folder / release


def _number(release: str) -> list[int]:
    return [int(part) for part in release.replace("post", "").split(".")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each answer; return 1 if one differs from the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("release", nargs="*")
    parser.add_argument("--id", action="append", default=[])
    parser.add_argument(
        "--wheels", type=Path, help="folder of wheels, for releases without an environment"
    )
    given = parser.parse_args(arguments)
    held = environments.sglang_versions()
    # A good line is read in the source where a stand-in for the kernels would make the checks answer wrongly.
    lines = [
        line
        for line in of_engine(read_lines(), "sglang")
        if line.truth == "parser" or not line.good
    ]
    wrong = 0
    for release in given.release or held:
        chosen = [line for line in lines if line.engine == f"sglang=={release}"]
        chosen = [line for line in chosen if line.name in (given.id or [line.name])]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
            first = None
            if release not in held:
                first = _wheel(release, given.wheels, Path(folder))
            near = min(held, key=lambda one: (_number(one) < _number(release), _number(one)))
            python = environments.ensure(f"sglang-{release if release in held else near}")
            answers = ask(python, chosen, first)
        for line in chosen:
            fault, answer = differs(line, answers[line.name]), answers[line.name]
            wrong += bool(fault)
            came = fault or answer["why"] or answer["filled"]
            state = "DIFFERS" if fault else "as said"
            print(f"{state} {release:12} {line.name:36} {came}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
