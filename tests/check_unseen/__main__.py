"""``python -m tests.check_unseen``: ask `workbench check` about every launch, and print what came out.

The exit status is 1 if a good launch is accused, 3 if this tree has no `workbench check`.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.tables import put

from .cases import read_lines
from .judge import OUTCOMES, Judged, as_rows, is_there, judge
from .models import build

COMMAND = "python -m tests.check_unseen --write"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"


def table(judged: Sequence[Judged]) -> str:
    """Return the counts by kind, by engine and by moment, as Markdown."""
    rows = [("all", list(judged))]
    rows += [
        (name, [one for one in judged if one.line.good is good])
        for name, good in (("good", True), ("bad", False))
    ]
    for kind in sorted({one.line.kind for one in judged}):
        rows.append((kind, [one for one in judged if one.line.kind == kind]))
    for engine in sorted({one.line.engine.partition("==")[0] for one in judged}):
        rows.append((engine, [one for one in judged if one.line.engine.startswith(engine + "==")]))
    for moment in sorted({one.line.moment for one in judged if not one.line.good}):
        rows.append((f"stops at: {moment}", [one for one in judged if one.line.moment == moment]))
    lines = [
        "| " + " | ".join(["launches", "number", *OUTCOMES]) + " |",
        "|" + "---|" * (len(OUTCOMES) + 2),
    ]
    for name, ones in rows:
        counts = collections.Counter(one.outcome for one in ones)
        cells = [name, str(len(ones)), *(str(counts[column]) for column in OUTCOMES)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figures(judged: Sequence[Judged]) -> list[str]:
    """Return the figures by kind, for docs/check.md."""
    lines = [
        "| kind | refused, caught | later, caught | good with ✓ | good accused |",
        "|---|---|---|---|---|",
    ]
    kinds = sorted({one.line.kind for one in judged})
    for name in ("all", *kinds):
        ones = [one for one in judged if name in ("all", one.line.kind)]
        refused = [one for one in ones if one.line.moment in ("parser", "check")]
        good = [one for one in ones if one.line.good]
        later = [one for one in ones if not one.line.good and one not in refused]
        cells = [_share(refused, "caught"), _share(later, "caught"), _share(good, "✓")]
        cells.append(_share(good, "wrongly accused"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _share(ones: Sequence[Judged], wanted: str) -> str:
    return f"{sum(one.outcome == wanted for one in ones)} of {len(ones)}" if ones else "–"


def summary(judged: Sequence[Judged]) -> str:
    """Return the figures that count, as one sentence."""
    parser = [one for one in judged if one.line.moment in ("parser", "check")]
    later = [one for one in judged if not one.line.good and one not in parser]
    good = [one for one in judged if one.line.good]
    shares = [
        (f"{sum(one.outcome == wanted for one in ones)} of {len(ones)}")
        for wanted, ones in (
            ("caught", parser),
            ("caught", later),
            ("✓", good),
            ("wrongly accused", good),
        )
    ]
    return (
        f"{shares[0]} launches that the parser or the checks refuse are caught, {shares[1]} that fail later;"
        f" {shares[2]} good launches get ✓, {shares[3]} are wrongly accused."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the launches."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--id", action="append", default=[], help="only these launches")
    parser.add_argument(
        "--rows", type=Path, help="write one JSON object a launch to this file, too"
    )
    parser.add_argument("--write", action="store_true", help="put the figures into docs/check.md")
    given = parser.parse_args(arguments)
    if not is_there():
        print("This tree has no `workbench check`: nothing was judged.", file=sys.stderr)
        return 3
    lines = [line for line in read_lines() if line.name in (given.id or [line.name])]
    with tempfile.TemporaryDirectory(prefix="launches-") as folder:
        places = build(Path(folder), sorted({name for line in lines for name in line.models}))
        judged = list(judge(lines, places))
    if given.write:
        put(PAGE, COMMAND, figures(judged))
    print(table(judged))
    print()
    print(summary(judged))
    for one in sorted(judged, key=lambda one: (-OUTCOMES.index(one.outcome), one.line.name)):
        if one.outcome not in ("caught", "✓"):
            print(
                f"{one.outcome:16} {one.line.name:36} {one.line.moment or 'good':8} {one.answer}".rstrip()
            )
    if given.rows:
        given.rows.write_text(as_rows(judged) + "\n", encoding="utf-8")
    return int(any(one.outcome == "wrongly accused" for one in judged))


if __name__ == "__main__":
    sys.exit(main())
