"""Write docs/harvested.md: which classes a map answers for, why not, and how maps and real loaders agree.

``python -m tests.engines.maps_page [COUNTS.json]``; COUNTS is what `map_agreement` printed for the newest
release. Without it the counts that the page has are kept.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.loaders.maps import records
from workbench.loaders.maps.records import ClassMap
from workbench.loaders.registered import kind_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "harvested.md"
Counts = Mapping[str, Sequence[int]]  # class -> checkpoints, same, open, differ
# Beginning of a reason -> its kind, as the page calls it.
KINDS = (
    ("a config", "a config that the class can be built of was not found"),
    ("a key", "the name of a tensor was not found for a parameter"),
    ("the sizes", "sizes or numbers of layers do not follow from config.json"),
    ("how the sizes", "sizes or numbers of layers do not follow from config.json"),
    ("at other sizes", "at other sizes the loader did something else than the map says"),
    ("SGLang does not serve", "a part of models that SGLang does not serve alone"),
    ("it could not be built", "it could not be built at other sizes"),
    ("it took too long", "the harvest of the class was stopped after 240 s of processor time"),
    ("it was not harvested", "it was not tried"),
)
_HEAD = """# Classes harvested by machine

Made by `python -m tests.engines.maps_page`; do not edit. `python -m workbench.loaders.harvesting` runs the
real loader of each registered class on synthetic keys, in the environment of one release, without weights
or a GPU. A class has a **complete** map if every key and parameter is explained, at other sizes than those
that it was found with. Only complete maps say that a checkpoint loads or does not load. Classes with a
profile written by hand do not need one ([conformance.md](conformance.md)).

Not covered: more than one rank, and what a class does after it has loaded. A config with a value that the
harvest did not try is "cannot tell", and so is a name that it has not met. Quantised weights have a page of
their own ([quantised.md](quantised.md)).
"""
_AGREEMENT = """
## Agreement with the real loader

transformers' own classes wrote a small checkpoint of other sizes for each class that it has, and each was
damaged in three ways: a tensor removed, renamed, made longer. The real loader of SGLang {release} shows what
happens to each (`python -m tests.engines.map_agreement {release}`). `open`: the map says "cannot tell".

{said}
"""


def kind(why: str) -> str:
    """Return the kind of a reason."""
    return next((said for start, said in KINDS if why.startswith(start)), "another reason")


def bound(found: ClassMap) -> bool:
    """Tell whether a complete map holds for one number of layers only, which real files rarely have."""
    return found.complete and any(
        path.endswith("num_hidden_layers")
        and kind[0] == "fixed"
        and kind[1] != 1
        and not re.search("vision|audio", path)
        for path, kind in found.fields.items()
    )


def states(release: str) -> list[str]:
    """Return the lines about the classes of a release that do not change with the agreement."""
    maps = records.maps_of("sglang", release)
    classes = maps.classes
    complete = [name for name, found in classes.items() if found.complete]
    drafts = [name for name in classes if kind_of(name)]
    done = [name for name in drafts if classes[name].complete]
    few = sum(map(bound, classes.values()))
    size = (records._data() / f"sglang-{release}.json.xz").stat().st_size
    lines = [
        f"\n## SGLang {release}, transformers {maps.transformers}\n",
        f"{len(complete)} of {len(classes)} classes have a complete map, among them {len(done)} of "
        f"{len(drafts)} draft classes. {few} complete maps hold for one number of layers only. The maps take "
        f"{size:,} bytes.\n",
        "| why there is no complete map | classes |",
        "|---|---|",
    ]
    reasons = Counter(kind(found.why) for found in classes.values() if not found.complete)
    return [*lines, *(f"| {said} | {count} |" for said, count in reasons.most_common())]


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z = 1.96
    middle = (part + z * z / 2) / (whole + z * z)
    half = z * (part * (whole - part) / whole + z * z / 4) ** 0.5 / (whole + z * z)
    return max(0.0, middle - half), min(1.0, middle + half)


def agreement(release: str, counts: Counts) -> str:
    """Return the section about the agreement."""
    answered = sum(row[0] - row[2] for row in counts.values())
    differ = sum(row[3] for row in counts.values())
    total = sum(row[0] for row in counts.values())
    if not answered:
        return ""
    low, high = wilson(differ, answered)
    said = (
        f"{len(counts)} classes, {total:,} checkpoints: {answered - differ:,} agree, {differ} differ, "
        f"{total - answered:,} open. Share that differs, of those answered: {differ / answered:.1%} "
        f"(95 % interval {low:.1%} to {high:.1%})."
    )
    return _AGREEMENT.format(release=release, said=said)


def row(name: str, found: ClassMap, counts: Counts) -> str:
    """Return the row of a class."""
    seen = counts.get(name)
    agreed = f"{seen[1]} same, {seen[2]} open, {seen[3]} differ" if seen else "–"
    why = re.sub(r"[|`]", "'", found.why)
    state = (
        "complete, one number of layers" if bound(found) else "complete" if found.complete else "no"
    )
    return f"| {name} | {state} | {why or '–'} | {agreed} |"


def kept() -> dict[str, list[int]]:
    """Return the counts that the page has."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = {}
    for match in re.finditer(
        r"^\| (\w+) \|.*\| (\d+) same, (\d+) open, (\d+) differ \|$", text, re.M
    ):
        parts = [int(n) for n in match.groups()[1:]]
        found[match[1]] = [sum(parts), *parts]
    return found


def page(counts: Counts) -> str:
    """Return the whole page."""
    releases = records.harvested("sglang")
    newest = records.maps_of("sglang", releases[-1]).classes
    counts = {name: row for name, row in counts.items() if name in newest and newest[name].complete}
    text = _HEAD
    for release in reversed(releases):
        text += "\n".join(states(release)) + "\n"
    text += agreement(releases[-1], counts)
    lines = [f"\n## Each class of SGLang {releases[-1]}\n", "| class | map | why not | agreement |"]
    lines += ["|---|---|---|---|", *(row(name, found, counts) for name, found in newest.items())]
    return text + "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page."""
    counts = kept() | (json.loads(Path(arguments[0]).read_text()) if arguments else {})
    PAGE.write_text(page(counts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
