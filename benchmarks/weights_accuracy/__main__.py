"""``python -m benchmarks.weights_accuracy --write docs/weights.md``: the tables of accuracy and power."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.weights_accuracy import confusion, power
from benchmarks.weights_accuracy.schemes import FORMATS


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, or write them between the markers of a page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.weights_accuracy", description=__doc__
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page whose tables are replaced")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("confusion", "power"), help="leave the other out")
    parser.add_argument(
        "--formats", nargs="*", choices=FORMATS, help="judge in these alone; nothing is written"
    )
    chosen = parser.parse_args(arguments)
    if chosen.formats and chosen.write:
        parser.error("a part of the formats is printed, not written")
    start, tables = time.monotonic(), dict[str, str]()
    if chosen.only != "power":
        tables |= _confusion(chosen.workers, chosen.formats or tuple(FORMATS))
    if chosen.only != "confusion":
        tables["power"] = _joined(power.coherent())
        tables["light-training"] = _joined(power.light_training())
        tables["edges"] = _joined(power.edges())
    for name, text in tables.items():
        print(f"\n## {name}\n\n{text}")
        if chosen.write:
            replace(chosen.write, name, text)
    print(f"\n{time.monotonic() - start:.0f} s", file=sys.stderr)


def _confusion(workers: int, formats: Sequence[str]) -> dict[str, str]:
    usable, small = confusion.corpus()
    cases = confusion.run([*usable, *small], workers, formats)
    little = [case for case in cases if not confusion.is_promised(case)]
    cases = [case for case in cases if confusion.is_promised(case)]
    stages = Counter(case.stage for case in cases if case.source == confusion.TRAINED)
    trained = sum(stages.values())
    return {
        "corpus": _joined(confusion.contents(usable, small)),
        "confusion": _joined(confusion.table(cases)),
        "formats": _joined(confusion.by_format(cases)),
        "odd": _joined(confusion.odd_ones(cases)),
        "small": _joined(confusion.small_ones(little)),
        "stages": f"Of {trained:,} trained ones the measure alone decided "
        f"{100 * stages[1] / trained:.0f} %, the spectrum {100 * stages[2] / trained:.0f} %.",
    }


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def replace(page: Path, name: str, text: str) -> None:
    """Put a table between its markers, ``<!-- accuracy:NAME -->`` and ``<!-- end -->``."""
    begin, end = f"<!-- accuracy:{name} -->\n", "<!-- end -->"
    before, found, after = page.read_text().partition(begin)
    if not found or end not in after:
        raise SystemExit(f"{page} has no place for {name!r}")
    page.write_text(before + begin + text + "\n" + after[after.index(end) :])


if __name__ == "__main__":
    main()
