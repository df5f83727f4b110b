"""What was said of each case, as the tables of docs/replay.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

MARKS = "<!-- causes: made by tests.speculation.faults -->", "<!-- end of causes -->"
UNTUNED_MARKS = (
    "<!-- untuned: made by tests.speculation.faults --untuned -->", "<!-- end of untuned -->"
)  # fmt: skip
KINDS = {
    "single": "One fault, written into the draft's files",
    "pair": "Two faults together",
    "control": "Controls: nothing may be accused",
    "recorded": "Recorded runs of real engines, from the evidence alone",
}
UNTUNED = {
    "untuned-single": "One fault, written into the draft's files",
    "untuned-several": "Two or three faults together",
    "untuned-control": "Controls: nothing may be accused",
    "untuned-recorded": "Recorded runs of real SGLang 0.5.14, from the evidence alone",
}
WORTH = 0.05  # a smaller loss need not be explained


def page(rows: Sequence[Row], requests: int) -> str:
    """Return the tables as Markdown."""
    lines = [
        f"Made by `python -m tests.speculation.faults`: {requests} requests of 48 tokens a case. The broken "
        "files are served by the replay, and the ablations do not know which fault was planted; the recorded "
        "runs are a real engine's. Expected is the healthy recorded run on the same prompts; for recorded "
        "runs and made texts, the trainer's metrics.",
        "",
        *_counts(rows, KINDS),
    ]
    for kind, title in KINDS.items():
        lines += ["", f"### {title}", "", *_table([row for row in rows if row["kind"] == kind])]
    return "\n".join((*lines, "", "### Named against true", "", *_confusion(rows)))


def untuned_page(rows: Sequence[Row], requests: int) -> str:
    """Return the tables of the pair that no rule was made for."""
    lines = [
        f"Made by `python -m tests.speculation.faults --untuned --requests {requests}`, in the same way, "
        "on the pair of `data/experts` (latent attention, a target with experts). Faults and answers were "
        "written down before the pair was trained, and the rules are as they were then.",
        "",
        *_counts(rows, UNTUNED),
    ]
    for kind, title in UNTUNED.items():
        lines += ["", f"#### {title}", "", *_table([row for row in rows if row["kind"] == kind])]
    return "\n".join(lines)


def write(path: Path, text: str, marks: tuple[str, str] = MARKS) -> None:
    """Put the tables between their marks; a file without marks gets them at its end."""
    begin, end = marks
    old = path.read_text() if path.exists() else "# The replay\n"
    block = f"{begin}\n{text}\n{end}"
    if begin in old and end in old:
        head, _, rest = old.partition(begin)
        new = head + block + rest.partition(end)[2]
    else:
        new = f"{old.rstrip()}\n\n## How right its causes are\n\n{block}\n"
    path.write_text(new)


def _counts(rows: Sequence[Row], kinds: Mapping[str, str]) -> list[str]:
    """Return a table: of each kind how many are right, not found and wrong."""
    lines = ["| kind | cases | right | not found | wrong |", "|---|---|---|---|---|"]
    for kind, title in kinds.items():
        for words, chosen in _split(kind, rows):
            found = Counter(row["outcome"] for row in chosen)
            lines.append(
                f"| {title}{words} | {len(chosen)} | {found['right']} | {found['not found']} "
                f"| {found['wrong']} |"
            )
    return lines


def _split(kind: str, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    chosen = [row for row in rows if row["kind"] == kind]
    if not kind.endswith("single"):
        return [("", chosen)]
    large = [row for row in chosen if row["lost"] > WORTH]
    return [
        (f", losing more than {WORTH:.0%}", large),
        (", losing less", [row for row in chosen if row["lost"] <= WORTH]),
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| case | what is wrong | served | expected | named | how sure | outcome |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        near = f", nearest {row['nearest']}" if row["nearest"] else ""
        named = " and ".join(row["named"]) or row["state"].replace("_", " ") + near
        sure = row["confidence"] if row["named"] else ""
        name = row["name"].rpartition("/")[2] if row["kind"] in UNTUNED else row["name"]
        lines.append(
            f"| {name} | {row['words']} | {row['served']:.2f} | {row['expected']:.2f} | {named} "
            f"| {sure} | {row['outcome']} |"
        )
    return lines


def _confusion(rows: Sequence[Row]) -> list[str]:
    """Return which facts were named for which truth; only what occurs."""
    found = Counter(
        (" and ".join(row["truth"]) or "nothing", " and ".join(row["named"]) or "nothing")
        for row in rows
    )
    lines = ["| true | named | cases |", "|---|---|---|"]
    for (true, named), count in sorted(found.items()):
        lines.append(f"| {true} | {named} | {count} |")
    return lines
