"""24 public questions by another hand, played with `doctor`: ``python -m tests.triage.unseen``.

They were written before the rules that read messages. Judged are doctor's own sentences, not what it quotes:

* answered: its causes and steps hold the words of a right answer;
* handed on: it accuses nothing for certain, and holds the words of a right step;
* fine: it names no cause at all.

``wrong`` is a certain cause where there is none, or a word of a wrong accusation; ``open`` is anything else
that falls short. ``--write`` puts the table into docs/check.md.
"""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import workbench
from tests.triage.questions import show

FOLDER = Path(__file__).with_name("unseen")
COMMAND = "python -m tests.triage.unseen --write"


@dataclasses.dataclass(frozen=True)
class Question:
    """One question; `names` and `never` hold lower-case words, with "|" between alternatives."""

    id: str
    url: str
    asks: str
    answer: str
    kind: str
    ok: bool | None = None
    names: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def read() -> tuple[Question, ...]:
    """Return the questions in the order of the file."""
    rows = tomllib.loads(FOLDER.with_suffix(".toml").read_text(encoding="utf-8"))["question"]
    lists = ("names", "never")
    return tuple(
        Question(**(row | {name: tuple(row.get(name, ())) for name in lists})) for row in rows
    )


def played(question: Question) -> tuple[str, str]:
    """Return ``right``, ``open`` or ``wrong``, and doctor's headline."""
    found = workbench.doctor(FOLDER / f"{question.id}.txt")
    own = " ".join((found.summary, *(f"{one.title} {one.next_step}" for one in found.causes)))
    said = " ".join((own, *found.to_text(200).split("next: ", 1)[1:2])).lower()
    accused = any(cause.certain for cause in found.causes)
    named = all(any(word in said for word in names.split("|")) for names in question.names)
    never = any(word in own.lower() for words in question.never for word in words.split("|"))
    headline = found.summary.replace(f"{FOLDER}/", "")
    if question.kind == "fine":
        return (
            "wrong" if accused or found.ok is False else "open" if found.causes else "right",
            headline,
        )
    if never or (question.kind == "handed on" and accused):
        return "wrong", headline
    fits = question.kind == "handed on" or found.ok is question.ok or bool(found.causes)
    return "right" if named and fits else "open", headline


def table() -> Iterator[str]:
    """Yield the lines of the table, and the counts."""
    yield "| question | what it came to | doctor |"
    yield "|---|---|---|"
    counts: Counter[tuple[str, str]] = Counter()
    for one in read():
        how, says = played(one)
        counts[one.kind, how] += 1
        answer = " ".join(one.answer.split())
        yield f"| [{one.asks}]({one.url}) ({one.kind}) | {answer} | **{how}**: {says} |"
    yield ""
    for kind in ("answered", "handed on", "fine"):
        told = ", ".join(f"{counts[kind, how]} {how}" for how in ("right", "open", "wrong"))
        yield f"- {kind}: {told}"


if __name__ == "__main__":
    sys.exit(show(sys.argv[1:], list(table()), COMMAND))
