"""Tables of pages that a command writes: each lies between two comments that name the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def marks(command: str) -> tuple[str, str]:
    """Return the comments around a table."""
    return f"<!-- {command} -->", "<!-- end -->"


def put(page: Path, command: str, lines: Sequence[str]) -> None:
    """Write a table between its comments."""
    begin, end = marks(command)
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    if not rest:
        raise ValueError(f"{page.name} has no place for {command}")
    after = rest.partition(end)[2]
    text = "\n".join(lines)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def taken(page: Path, command: str) -> list[str]:
    """Return the lines of a table as the page has them."""
    begin, end = marks(command)
    return (
        page.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip().splitlines()
    )
