"""``python -m tests.hang_unseen``: judge every unseen case, and print the table of what came out."""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterable, Sequence

from .case import SETS, SICK, read_cases
from .judge import OUTCOMES, Judged, judge

_GROUPS = ("hung", "dead", "stopped", "slow", "idle", "serving")
_COLUMNS = tuple(reversed(OUTCOMES))


def table(judged: Sequence[Judged]) -> str:
    """Return the counts by kind, by form and by engine, as Markdown."""
    rows = [("all", judged)]
    rows += [(kind, [one for one in judged if one.case.kind == kind]) for kind in _GROUPS]
    rows.append(("pasted text", [one for one in judged if one.case.form == "paste"]))
    rows.append(("other engines", [one for one in judged if one.case.engine != "sglang"]))
    lines = [
        "| " + " | ".join(["what is true", "cases", *_COLUMNS]) + " |",
        "|" + "---|" * (len(_COLUMNS) + 2),
    ]
    for name, ones in rows:
        counts = collections.Counter(one.outcome for one in ones)
        cells = [name, str(len(ones)), *(str(counts[column]) for column in _COLUMNS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(judged: Sequence[Judged]) -> str:
    """Return the figures that count, as one sentence."""
    counts = collections.Counter(one.outcome for one in judged)
    well = [one for one in judged if one.case.kind not in SICK | {"slow"}]
    unclear = sum(one.outcome != "right" for one in well)
    careful = sum(one.outcome == "right" and one.answer.startswith("cannot_tell") for one in judged)
    return (
        f"{counts['right']} of {len(judged)} right ({counts['right'] / len(judged):.0%}; {careful} of them"
        f" by a `cannot_tell` that the case allows),"
        f" {counts['abstained']} abstained, {counts['wrong accusation']} wrong accusations,"
        f" {counts['false all-clear']} false all-clears, {counts['error']} errors;"
        f" {unclear} of {len(well)} healthy servers without a right answer."
    )


def listed(judged: Iterable[Judged]) -> str:
    """Return a line for each case that is not right, the worst first."""
    faulty = [one for one in judged if one.outcome != "right"]
    faulty.sort(key=lambda one: (OUTCOMES.index(one.outcome), one.case.name))
    return "\n".join(
        f"{one.outcome:17} {one.case.name:42} {one.answer:34} {one.fault}".rstrip()
        for one in faulty
    )


def main() -> int:
    """Judge the cases; the exit status is 1 if any all-clear or accusation is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="judge only the cases with these words in their names"
    )
    parser.add_argument("--set", choices=sorted(SETS), default="first", help="the set of cases")
    asked = parser.parse_args()
    names = asked.names
    cases = [
        one for one in read_cases(asked.set) if not names or any(name in one.name for name in names)
    ]
    if not cases:
        parser.error(f"there is no case called {' or '.join(names)}")
    judged = [judge(case) for case in cases]
    print(table(judged), summary(judged), listed(judged), sep="\n\n")
    worst = {"wrong accusation", "false all-clear"}
    return int(any(one.outcome in worst for one in judged))


if __name__ == "__main__":
    sys.exit(main())
