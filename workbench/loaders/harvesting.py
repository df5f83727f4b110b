"""Harvest the maps of one release: ``python -m workbench.loaders.harvesting PYTHON [CLASS ...]``.

PYTHON is that of an environment with the engine, its transformers and a CPU torch; no GPU is used and no
weights are read. What was seen is appended to ``harvest-RELEASE.jsonl`` as soon as a class is done; the
maps are packed from that file at the end, or by giving it in place of PYTHON.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from workbench.loaders.harvest.expressions import credible
from workbench.loaders.maps.records import ClassMap, Maps
from workbench.loaders.running import FOREIGN

SCRIPT = Path(__file__).resolve().parent / "harvest" / "run.py"
# By release: classes with which the engine does otherwise with files that transformers wrote
# (`tests.engines.map_agreement`), and why. They answer "cannot tell" as a whole.
WITHHELD = {
    "0.5.23": {
        "PixtralVisionModel": "SGLang does not serve it alone: its config has no vocab_size",
    },
}
DATA = Path(__file__).resolve().parent / "maps" / "data"


def seen(python: str, classes: Sequence[str], jobs: int = 1) -> Iterator[dict[str, Any]]:
    """Yield what the engine's Python says: the release, then each class, some at a time."""
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment["HARVEST_JOBS"] = str(jobs)
    command = [python, str(SCRIPT), *classes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)


def why_not(record: dict[str, Any]) -> str:
    """Return why a map is not complete, "" where it is."""
    if record.get("why") or not record.get("slots"):
        why = record.get("why", "nothing loads")
        why = "it took too long" if why.startswith("stopped") else why
        tried = (record.get("tries") or [""])[0].partition(": ")[
            2
        ]  # where the config is from says little
        return f"{why}: {' '.join(tried.split())}"[:200] if tried else why[:200]
    for field, said in (
        ("lacks", "a key was not found for"),
        ("unfit", "the sizes or numbers of these do not follow from config.json:"),
        ("disproved", "at other sizes the loader did otherwise:"),
    ):
        if record.get(field):
            return f"{said} {', '.join(record[field][:2])}"[:200]
    odd = [s[0] for s in record["slots"] if s[5] and not all(map(credible, s[2] or ()))]
    if odd:
        return f"how the sizes of these are computed was not found: {', '.join(odd[:2])}"[:200]
    return "" if record.get("complete") else "it could not be built at other sizes"


def class_map(record: dict[str, Any]) -> ClassMap:
    """Return what a record says, as it is kept."""
    why = why_not(record)
    if why:
        return ClassMap(record.get("module", ""), False, why)
    kept = {
        "module": record["module"],
        "complete": True,
        "model_type": record["model_type"] or "",
        "slots": [_slot(slot) for slot in record["slots"]],
        "variants": [
            [p, v, gone, [_slot(s) for s in come]]
            for p, v, gone, come in record["variants"]
            if all(credible(terms) for slot in come for terms in slot[2] or ())
        ],
    }
    names = (
        "fields", "defaults", "aliases", "unknown", "shared", "unread", "bounds", "families", "beyond",
        "words", "flat",
    )  # fmt: skip
    more = {name: record[name] for name in names if name in record}
    return msgspec.convert(kept | more, ClassMap)


def _slot(slot: Sequence[Any]) -> list[Any]:
    name, parameter, shape, rows, _, wanted = slot
    return [name, parameter, shape, rows, wanted]


def pack(lines: Sequence[dict[str, Any]], folder: Path, keep: bool = False) -> Path:
    """Write the maps of a release; return their file.

    Parameters
    ----------
    lines
        What was seen.
    folder
        Where the file goes.
    keep
        Whether the classes that were not harvested this time keep the maps that the folder has.
    """
    head = next(line for line in lines if "modules" in line)
    file = folder / f"{head['engine']}-{head['version']}.json.xz"
    classes = {line["class"]: class_map(line) for line in lines if "class" in line}
    if keep:
        before = msgspec.json.decode(lzma.decompress(file.read_bytes()), type=Maps)
        classes = before.classes | classes
    for name, why in WITHHELD.get(head["version"], {}).items():
        if name in classes:
            classes[name] = ClassMap(classes[name].module, False, why)
    for name in head["classes"]:
        if not name.startswith("Transformers"):
            classes.setdefault(name, ClassMap("", False, "it was not harvested"))
    maps = Maps(
        head["engine"], head["version"], head["transformers"], dict(sorted(classes.items()))
    )
    file.write_bytes(lzma.compress(msgspec.json.encode(maps), preset=9 | lzma.PRESET_EXTREME))
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the harvester and pack what it saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="the engine's Python; or a .jsonl file, to pack it only")
    parser.add_argument("classes", nargs="*", help="classes to harvest; all by default")
    parser.add_argument("--out", type=Path, default=DATA, help="where the packed maps go")
    parser.add_argument("--log", type=Path, default=Path.cwd(), help="where what was seen is kept")
    parser.add_argument(
        "--keep", action="store_true", help="keep the maps of classes that are not harvested now"
    )
    parser.add_argument("--jobs", type=int, default=2, help="classes at a time; 2 by default")
    options = parser.parse_args(arguments)
    if options.python.endswith(".jsonl"):
        file = Path(options.python)
    else:
        file = _harvest(options.python, options.classes, options.log, options.jobs)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    done = pack(lines, options.out, options.keep)
    print(f"{done}: {done.stat().st_size:,} bytes")
    return 0


def _harvest(python: str, classes: Sequence[str], folder: Path, jobs: int) -> Path:
    made = seen(python, classes, jobs)
    head = next(made)
    file = folder / f"harvest-{head['version']}.jsonl"
    with file.open("a", encoding="utf-8") as out:
        print(json.dumps(head), file=out)
        for record in made:
            print(json.dumps(record), file=out, flush=True)
            state = "complete" if record.get("complete") else why_not(record)
            print(f"{record['class']}: {record['seconds']} s, {state}", file=sys.stderr)
    return file


if __name__ == "__main__":
    sys.exit(main())
