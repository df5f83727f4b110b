"""Read a release's facts from its wheel: ``python -m workbench.facts.read_wheel sglang-0.5.23-….whl``.

Writes one file for each release, and prints what is new in it. Nothing of the wheel is imported. The file
of the release after it is written again if that one is there, because it holds differences.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from workbench.errors import WorkbenchError
from workbench.facts import rows
from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel
from workbench.facts.watched import harvest

DATA = Path(__file__).resolve().parent / "data"
_All = dict[rows.Feature, Found]


def facts_of(wheel: Wheel) -> _All:
    """Return every fact of a wheel by kind and name; of two with one name the first counts."""
    found: _All = {}
    for one in harvest(wheel):
        found.setdefault((one.kind, one.name), one)
    return found


def state_of(engine: str, release: str) -> _All:
    """Return every fact of a release as the files have it."""
    found: _All = {}
    for name in rows.releases(engine):
        if name == "" or Version(name) > Version(release):
            break
        one = rows.read_release(engine, name)
        for kind, gone in one.gone:
            found.pop((kind, gone), None)
        for row in one.rows:
            found[row.kind, row.name] = Found(row.kind, row.name, row.value, row.file, row.line)
    return found


def differences(engine: str, release: str, before: str, old: _All, new: _All) -> rows.Release:
    """Return a release's file: what it has otherwise than the one before."""
    changed = [
        rows.Changed(*new[feature])
        for feature in sorted(new)
        if feature not in old or not same(old[feature].value, new[feature].value)
    ]
    gone = sorted(feature for feature in old if feature not in new)
    return rows.Release(engine, release, before, changed, gone)


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same once written."""
    return bool(msgspec.json.encode(one) == msgspec.json.encode(two))


def text_of(release: rows.Release) -> str:
    """Return a file as text, one row a line, so that a difference can be read."""

    def line(value: Any) -> str:
        return msgspec.json.encode(value).decode()

    head = f'{{"engine": {line(release.engine)}, "release": {line(release.release)}, '
    head += f'"before": {line(release.before)},\n"rows": [\n'
    body = ",\n".join(line(row) for row in release.rows)
    gone = ",\n".join(line(feature) for feature in release.gone)
    return f'{head}{body}\n],\n"gone": [\n{gone}\n]}}\n'


def write(wheel: Wheel) -> list[rows.Release]:
    """Read one wheel and write its file, and again that of the release after it; return them."""
    engine, release = wheel.engine, wheel.release
    others = [name for name in rows.releases(engine) if name != release]
    before = next((name for name in reversed(others) if Version(name) < Version(release)), "")
    after = next((name for name in others if Version(name) > Version(release)), "")
    follows = state_of(engine, after) if after else {}
    old = state_of(engine, before) if before else {}
    new = facts_of(wheel)
    written = [differences(engine, release, before, old, new)]
    if after:
        written.append(differences(engine, after, release, new, follows))
    for one in written:
        _save(one)
    return written


def _save(release: rows.Release) -> None:
    folder = DATA / release.engine
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{release.release}.json").write_text(text_of(release), encoding="utf-8")
    rows.forget()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files of the wheels named on the command line, and say what changed."""
    parser = argparse.ArgumentParser(
        prog="python -m workbench.facts.read_wheel", description=__doc__
    )
    parser.add_argument(
        "wheel", nargs="+", type=Path, help="wheels, or folders in which one was unpacked"
    )
    paths: list[Path] = parser.parse_args(arguments).wheel
    try:
        wheels = sorted(map(Wheel, paths), key=lambda wheel: Version(wheel.release))
    except WorkbenchError as error:
        print(error, file=sys.stderr)
        return 2
    for wheel in wheels:
        start = time.monotonic()
        releases = write(wheel)
        for release in releases:
            print(
                f"{release.engine} {release.release}: {len(release.rows)} new or changed, "
                f"{len(release.gone)} gone since {release.before or 'nothing'} "
                f"({time.monotonic() - start:.1f} s)"
            )
            for row in release.rows if release.before else ():
                print(f"  {row.kind} {row.name}: {row.file}:{row.line}")
            for kind, name in release.gone:
                print(f"  gone: {kind} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
