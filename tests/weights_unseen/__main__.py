"""``python -m tests.weights_unseen``: build every case, ask, and print the table of what came out.

The exit status is 1 if an accusation or an all-clear is wrong.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Sequence

from .judge import OUTCOMES, Judged, judge, read_cases

_COLUMNS = tuple(reversed(OUTCOMES))


def listed(judged: Sequence[Judged]) -> str:
    """Return a row for each case, as Markdown."""
    lines = ["| case | kind | wanted | got | outcome | |", "|---|---|---|---|---|---|"]
    for one in judged:
        wanted = "/".join(str(answer) for answer in one.case.ok)
        note = one.fault or (one.answer if one.outcome == "error" else "")
        note = f"{note} (changed after the run: {one.case.changed})" if one.case.changed else note
        note = note.replace("|", "\\|")
        lines.append(
            f"| {one.case.name} | {one.case.kind} | {wanted} | {one.got} | {one.outcome} | {note} |"
        )
    return "\n".join(lines)


def table(judged: Sequence[Judged]) -> str:
    """Return the counts, of healthy and sick files and by kind, as Markdown."""
    rows = [("all", list(judged))]
    rows += [
        (name, [one for one in judged if one.case.healthy is well])
        for name, well in (("healthy", True), ("sick", False))
    ]
    for kind in sorted({one.case.kind for one in judged}):
        rows.append((kind, [one for one in judged if one.case.kind == kind]))
    lines = [
        "| files | number | " + " | ".join(_COLUMNS) + " | ✓ |",
        "|---|---|" + "---|" * (len(_COLUMNS) + 1),
    ]
    for name, ones in rows:
        counts = collections.Counter(one.outcome for one in ones)
        clear = sum(one.got == "True" for one in ones)
        lines.append(
            f"| {name} | {len(ones)} | "
            + " | ".join(str(counts[one]) for one in _COLUMNS)
            + f" | {clear} |"
        )
    return "\n".join(lines)


def summary(judged: Sequence[Judged]) -> str:
    """Return the figures that count, as one sentence."""
    counts = collections.Counter(one.outcome for one in judged)
    well = [one for one in judged if one.case.healthy]
    clear = sum(one.got == "True" for one in well)
    return (
        f"{counts['right']} of {len(judged)} right, {counts['abstained']} abstained,"
        f" {counts['unnamed']} unnamed,"
        f" {counts['wrong accusation']} wrong accusations, {counts['false all-clear']} false all-clears,"
        f" {counts['error']} errors; {clear} of {len(well)} healthy files get ✓."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="only the cases with these words in their names")
    asked = parser.parse_args(arguments)
    cases = read_cases(asked.names)
    if not cases:
        parser.error(f"there is no case called {' or '.join(asked.names)}")
    judged = []
    for case in cases:
        judged.append(judge(case))
        print(
            f"{judged[-1].outcome:17} {case.name}: {judged[-1].answer}", file=sys.stderr, flush=True
        )
    print(listed(judged), table(judged), summary(judged), sep="\n\n")
    worst = {"wrong accusation", "false all-clear"}
    return int(any(one.outcome in worst for one in judged))


if __name__ == "__main__":
    sys.exit(main())
