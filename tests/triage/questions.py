"""Ten public questions, played with `doctor`: ``python -m tests.triage.questions`` prints their table.

The texts are shortened to what decides: the launch, and the lines of the engine. ``--write`` puts the table
into docs/check.md.
"""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import workbench
from tests.tables import put

FOLDER = Path(__file__).with_name("questions")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes
    ----------
    asks, answer
        What is asked, and what the thread came to.
    kind
        ``answered`` or ``handed on``: what doctor should make of it.
    ok, codes, names
        Of its answer: the verdict, the first causes, and words that its text holds.
    """

    id: str
    url: str
    asks: str
    answer: str
    kind: str
    ok: bool | None = None
    codes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def read() -> tuple[Question, ...]:
    """Return the questions in the order of the file."""
    rows = tomllib.loads(FOLDER.with_suffix(".toml").read_text(encoding="utf-8"))["question"]
    return tuple(
        Question(**(row | {name: tuple(row.get(name, ())) for name in ("codes", "names")}))
        for row in rows
    )


def played(question: Question) -> tuple[str, str]:
    """Return how doctor did: the kind, ``wrong`` if it says otherwise; and its headline."""
    found = workbench.doctor(FOLDER / f"{question.id}.txt")
    text = " ".join(found.to_text(100).split()).lower()
    codes = tuple(cause.code for cause in found.causes)
    right = (
        found.ok is question.ok
        and codes[: len(question.codes)] == question.codes
        and all(word.lower() in text for word in question.names)
    )
    return (question.kind if right else "wrong"), found.summary.replace(f"{FOLDER}/", "")


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| question | what it came to | doctor |"
    yield "|---|---|---|"
    for one in read():
        kind, says = played(one)
        yield f"| [{one.asks}]({one.url}) | {one.answer} | **{kind}**: {says} |"


def show(arguments: Sequence[str], lines: Sequence[str], command: str) -> int:
    """Print a table, or put it into the page; the exit status is 1 if an answer is wrong."""
    if "--write" in arguments:
        put(PAGE, command, lines)
    else:
        print("\n".join(lines))
    return int(any("**wrong**" in line for line in lines))


if __name__ == "__main__":
    sys.exit(show(sys.argv[1:], list(table()), "python -m tests.triage.questions --write"))
