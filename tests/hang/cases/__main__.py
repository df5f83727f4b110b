"""``python -m tests.hang.cases --write docs/hang.md``: judge every case and write the table into the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.hang.cases import CASES
from tests.hang.cases.case import Case
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.judge.experiments import STEPS
from workbench.hang.judge.rules import RULES

BEGIN = "<!-- {}: made by python -m tests.hang.cases --write docs/hang.md -->"
END = "<!-- end of {} -->"


def numbers(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) or "–"


def verdict(state: str, phase: str, odd: Sequence[int], missing: Sequence[int]) -> str:
    gone = f", missing {numbers(missing)}" if missing else ""
    return f"{state}, {phase}, odd {numbers(odd)}{gone}"


def agrees(case: Case, got: HangDiagnosis) -> bool:
    said = (got.state, got.phase, got.odd_ranks, got.missing_ranks, got.not_collected)
    return said == (case.state, case.phase, case.odd, case.missing, case.not_collected)


def cases_table() -> str:
    """Return the table of cases, expected and got, and how many agree."""
    lines = [
        "| Case | Why | Expected | Got | Confidence | Rule | Next experiment |",
        "|---|---|---|---|---|---|---|",
    ]
    right = accused = 0
    for case in CASES:
        got = diagnose(case.scene)
        right += agrees(case, got)
        accused += bool(set(got.odd_ranks) - set(case.odd))
        expected = verdict(case.state, case.phase, case.odd, case.missing)
        said = verdict(got.state, got.phase, got.odd_ranks, got.missing_ranks)
        source = f" ({case.source})" if case.source else ""
        change = got.experiment.change.partition(" (everything")[0].replace("|", "\\|")
        cells = [
            case.name,
            case.why + source,
            expected,
            said,
            got.confidence,
            got.rule,
            f"`{change}`",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    told = f"{right} of {len(CASES)} cases as expected; {accused} wrong accusations."
    return "\n".join([told, "", *lines])


def rules_table() -> str:
    """Return the table of rules, in the order in which they are tried."""
    lines = [
        "| Rule | State | Evidence | What it means | Accuses | Experiments, first to last |",
        "|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        steps = [step_text(name) for name in rule.ladder]
        cells = [
            rule.code,
            rule.state,
            rule.evidence,
            rule.cause,
            "yes" if rule.names else "no",
            "; ".join(steps),
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def step_text(name: str) -> str:
    step = STEPS[name]
    if step.spellings:
        return " or ".join(f"`{text}`" for text in step.spellings)
    if step.without:
        return f"without `{step.without}`"
    return f"`{step.variable}`" if step.variable else name.replace("_", " ")


TABLES = {"cases": cases_table, "rules": rules_table}


def document(page: str) -> str:
    """Return a page with its tables made anew."""
    for name, make in TABLES.items():
        before, begin, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        if not begin or not end:
            raise SystemExit(f"the page has no place for the table of {name}")
        page = f"{before}{begin}\n\n{make()}\n\n{end}{after}"
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    wanted = parser.parse_args()
    if wanted.write is None:
        print(cases_table())
        return 0
    wanted.write.write_text(document(wanted.write.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
