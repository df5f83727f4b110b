"""Read a release's facts from its wheel: ``python -m workbench.facts.read_wheel sglang-0.5.23-….whl``.

Writes one file for each release, and prints what is new in it. Nothing of the wheel is imported. The file
of the release after it is written again if that one is there, because it holds differences.

Some features are looked for by name (`watched.looked_for`). One that the releases on file were not asked for
would seem to come with the wheel that is read first: it is left out until one call reads every release.
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
from workbench.facts.watched import KINDS, harvest, looked_for

DATA = Path(__file__).resolve().parent / "data"
_All = dict[rows.Feature, Found]


def facts_of(wheel: Wheel, kinds: frozenset[str] = KINDS) -> _All:
    """Return every fact of a wheel by kind and name; of two with one name the first counts."""
    found: _All = {}
    for one in harvest(wheel, kinds):
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


def comparable(engine: str, before: _All, new: _All) -> tuple[_All, list[rows.Feature]]:
    """Return what of a release's facts can be compared with the releases on file, and what is left out.

    What is looked for only since now is left out; what is no longer looked for stays as it was.
    """
    asked = rows.looked_for(engine)
    known = looked_for()
    left_out = sorted((known - asked) & set(new))
    kept = {feature: one for feature, one in new.items() if feature not in left_out}
    return kept | {f: one for f, one in before.items() if f in asked - known}, left_out


def write(
    engine: str, release: str, found: _All, kinds: frozenset[str] = KINDS, every: bool = False
) -> tuple[list[rows.Release], list[rows.Feature]]:
    """Write a release's file, and again that of the release after it.

    Parameters
    ----------
    found
        Its facts; those of other kinds than `kinds` stay as its file has them.
    every
        Whether every release on file is written in this call.

    Returns
    -------
    What was written, and the features that were left out (`comparable`).
    """
    others = [name for name in rows.releases(engine) if name != release]
    before = next((name for name in reversed(others) if Version(name) < Version(release)), "")
    after = next((name for name in others if Version(name) > Version(release)), "")
    follows = state_of(engine, after) if after else {}
    old = state_of(engine, before) if before else {}
    own = state_of(engine, release)
    new = {feature: one for feature, one in own.items() if feature[0] not in kinds} | found
    new, left_out = (new, []) if every else comparable(engine, old, new)
    written = [differences(engine, release, before, old, new)]
    if after:
        written.append(differences(engine, after, release, new, follows))
    for one in written:
        _save(one)
    return written, left_out


def _save_looked_for(engine: str, kinds: frozenset[str]) -> None:
    folder = DATA / "looked_for"
    folder.mkdir(parents=True, exist_ok=True)
    names = {one for one in looked_for() if one[0] in kinds}
    names |= {one for one in rows.looked_for(engine) if one[0] not in kinds}
    lines = ",\n".join(msgspec.json.encode(one).decode() for one in sorted(names))
    (folder / f"{engine}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    rows.forget()


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
    parser.add_argument(
        "--kinds",
        default="",
        help="read only these kinds (text,line), and leave the others as the file has them: "
        + ", ".join(sorted(KINDS)),
    )
    given = parser.parse_args(arguments)
    kinds = frozenset(filter(None, given.kinds.split(","))) or KINDS
    try:
        wheels = sorted(map(Wheel, given.wheel), key=lambda wheel: Version(wheel.release))
        _check(wheels, kinds)
    except WorkbenchError as error:
        print(error, file=sys.stderr)
        return 2
    engines = {wheel.engine for wheel in wheels}
    read = {(wheel.engine, wheel.release) for wheel in wheels}
    every = {e: all((e, name) in read for name in rows.releases(e)) for e in engines}
    # All are read before one is written: what ends early leaves the files as they were.
    found = []
    for wheel in wheels:
        start = time.monotonic()
        found.append((wheel.engine, wheel.release, facts_of(wheel, kinds)))
        print(
            f"{wheel.engine} {wheel.release} is read ({time.monotonic() - start:.1f} s)",
            file=sys.stderr,
        )
        wheel.close()
    for engine, release, facts in found:
        written, left_out = write(engine, release, facts, kinds, every[engine])
        for one in written:
            print(_changes(one))
        for kind, name in left_out:
            print(f"  left out: {kind} {name}: the other releases were not asked for it;")
            print("    give the wheels of all releases in one call")
    for engine in engines:
        if every[engine] and engine == "sglang":  # of vLLM nothing is looked for by name
            _save_looked_for(engine, kinds)
    return 0


def _check(wheels: Sequence[Wheel], kinds: frozenset[str]) -> None:
    """Refuse kinds that do not exist, and a part of a release that was not read whole."""
    unknown = sorted(kinds - KINDS)
    if unknown:
        raise WorkbenchError(
            f"{', '.join(unknown)}: there are no such facts",
            why=f"the kinds are {', '.join(sorted(KINDS))}",
            next_step="Name some of them, with commas and without spaces after them.",
        )
    for wheel in wheels:
        if kinds != KINDS and wheel.release not in rows.releases(wheel.engine):
            raise WorkbenchError(
                f"{wheel.engine} {wheel.release} has no file yet",
                why="without the other kinds its file would say that they are all gone",
                next_step="Read it whole first: leave out --kinds.",
            )


def _changes(release: rows.Release) -> str:
    """Return what a release has otherwise than the one before it, one line each."""
    lines = [
        f"{release.engine} {release.release}: {len(release.rows)} new or changed, "
        f"{len(release.gone)} gone since {release.before or 'nothing'}"
    ]
    lines += [
        f"  {row.kind} {row.name}: {row.file}:{row.line}"
        for row in (release.rows if release.before else ())
    ]
    lines += [f"  gone: {kind} {name}" for kind, name in release.gone]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
