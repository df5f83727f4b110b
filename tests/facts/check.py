"""Every row against the two wheels at its border, which are fetched: ``python -m tests.facts.check``.

``--sample N`` takes N borders, drawn by ``--seed``. A border is checked twice: the reader is run again on the
newer wheel and must find what the data say, and the rows of the border are looked up in both wheels by plain
search (`tests.facts.borders`). Wheels are kept in ``${XDG_CACHE_HOME:-~/.cache}/forensic-workbench/wheels``.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.engines import environments
from workbench.facts import read_wheel, rows
from workbench.facts.harvest.wheel import Wheel

from .borders import Source, wrong


def wheel_of(release: str) -> Path:
    """A release's wheel, fetched once."""
    folder = environments.cache().parent / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    found = list(folder.glob(f"sglang-{release}-*.whl"))
    if not found:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(folder),
        ]
        subprocess.run([*pip, f"sglang=={release}"], check=True)
        found = list(folder.glob(f"sglang-{release}-*.whl"))
    return found[0]


def check(release: str) -> list[str]:
    """What is wrong with the rows of a release."""
    path = wheel_of(release)
    said, found = read_wheel.state_of("sglang", release), read_wheel.facts_of(Wheel(path))
    problems = [
        f"{kind} {name}: only in the data" for kind, name in said if (kind, name) not in found
    ]
    for feature, one in found.items():
        if feature not in said:
            problems.append(f"{one.kind} {one.name}: only in the wheel ({one.file}:{one.line})")
        elif not read_wheel.same(said[feature].value, one.value):
            problems.append(
                f"{one.kind} {one.name}: {said[feature].value} in the data, {one.value} in the wheel"
            )
    names = rows.releases("sglang")
    at = names.index(release)
    before = Source(wheel_of(names[at - 1])) if at else None
    return problems + wrong(release, before, Source(path))


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all borders, or a sample of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.facts.check", description=__doc__)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)
    chosen = list(rows.releases("sglang"))
    if given.sample:
        chosen = sorted(random.Random(given.seed).sample(chosen, given.sample), key=chosen.index)
    bad = 0
    for release in chosen:
        start = time.monotonic()
        problems = check(release)
        bad += bool(problems)
        print(f"{release}: {len(problems)} problems ({time.monotonic() - start:.0f} s)", flush=True)
        for text in problems:
            print(f"  {text}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
