"""Run the cases, and write what was said of each into docs/replay.md."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.speculation.faults.cases import CASES, Case
from tests.speculation.faults.tables import UNTUNED_MARKS, page, untuned_page, write
from workbench.speculation.ablate.single_changes import ablate

# Less than this is within chance of 100 requests.
LOST = 0.03
DOCS = Path(__file__).resolve().parents[3] / "docs" / "replay.md"


def run(case: Case, requests: int, first_pass: int) -> dict[str, Any]:
    """Return one row of the table."""
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        result = ablate(case.make(Path(name) / "draft", requests), requests=first_pass)
    cause, expected = result.cause, result.expected
    assert expected is not None
    lost = (expected.accept_length - result.served.accept_length) / expected.accept_length
    best = result.lifts[0] if result.lifts else None
    return {
        "kind": case.kind,
        "name": case.name,
        "words": case.words,
        "truth": sorted(case.facts),
        "served": result.served.accept_length,
        "expected": expected.accept_length,
        "lost": lost,
        "state": cause.state,
        "named": sorted(cause.facts) if result.ok is False else [],
        "confidence": cause.confidence,
        "switches": list(cause.switches),
        "nearest": cause.nearest,
        "best": [best.name, best.accept_length, best.restored] if best else None,
        "sentence": cause.sentence,
        "outcome": outcome(case, cause.state, sorted(cause.facts), result.ok, lost),
        "seconds": time.process_time() - begin,
    }


def outcome(case: Case, state: str, facts: list[str], ok: bool | None, lost: float) -> str:
    """Return ``right``, ``wrong`` (something else accused, or all said to be well), or ``not found``.

    A certain loss without a cause accuses nobody: it is right where something is lost and the truth names
    no cause of serving (a draft with too little training), and a cause not found where there is one.
    """
    if ok is False and state in ("lost", "draft_itself"):
        return "not found" if case.facts else "right" if lost > LOST else "wrong"
    if ok is False:
        return "right" if set(facts) == case.facts else "wrong"
    if not case.facts:
        return "right"
    return "wrong" if ok is True and state != "healthy" else "not found"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="cases to run; none: all, and write the tables")
    parser.add_argument(
        "--untuned", action="store_true", help="the cases of the other pair, and their tables"
    )
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--first-pass", type=int, default=24)
    parser.add_argument(
        "--keep", type=Path, help="a JSON-lines file: cases in it are not run again"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    held: dict[str, dict[str, Any]] = {}
    if arguments.keep and arguments.keep.exists():
        rows = map(json.loads, arguments.keep.read_text().splitlines())
        held = {row["name"]: row for row in rows}
    cases = [c for c in CASES if c.kind.startswith("untuned") == arguments.untuned]
    chosen = [c for c in CASES if c.name in arguments.names] or cases
    for case in chosen:
        if case.name in held:
            continue
        row = held[case.name] = run(case, arguments.requests, arguments.first_pass)
        print(
            f"{row['outcome']:9}{case.kind:9}{case.name:28}{row['served']:6.2f} of "
            f"{row['expected']:.2f}  {row['state']}: {', '.join(row['named']) or row['nearest']} "
            f"[{row['confidence']}] {row['seconds']:.0f} s",
            flush=True,
        )
        if arguments.keep:
            with arguments.keep.open("a") as out:
                out.write(json.dumps(row) + "\n")
    rows = [] if arguments.names else [held[case.name] for case in cases]
    if rows and arguments.untuned:
        write(DOCS, untuned_page(rows, arguments.requests), UNTUNED_MARKS)
    elif rows:
        write(DOCS, page(rows, arguments.requests))


if __name__ == "__main__":
    main()
