"""The one exception: short, printable, and never a way for a name to speak to the terminal."""

from __future__ import annotations

import pytest

from workbench.errors import LONGEST, CheckpointError, WorkbenchError, clean, shorten, shown


def test_the_three_parts() -> None:
    error = WorkbenchError("it broke", why="a reason", next_step="Do this.")
    assert str(error) == "it broke\n  why:  a reason\n  next: Do this."
    assert (error.what, error.why, error.next_step) == ("it broke", "a reason", "Do this.")
    assert str(CheckpointError("only this")) == "only this"


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J\x1b[31mred",
        "\x1b]0;title\x07",
        "a\rb",
        "\u202egnp\u2066",
        "\x9b31m",
        "\u2028",
        "\ud800",
    ],
)
def test_no_control_character_is_printed(hostile: str) -> None:
    error = WorkbenchError(hostile, why=hostile, next_step=hostile)
    for part in (error.what, error.why, error.next_step, clean(hostile), shorten(hostile)):
        assert part.isprintable()
    assert str(error).replace("\n", "").isprintable()
    str(error).encode()


def test_a_part_loses_its_middle() -> None:
    error = WorkbenchError(
        "begin" + "x" * 10_000_000 + "end", why="\0" * 10_000, next_step="ä" * 501
    )
    assert len(error.what) == LONGEST
    assert error.what.startswith("begin")
    assert error.what.endswith("end")
    assert max(len(error.why), len(error.next_step)) <= LONGEST
    assert WorkbenchError("x" * LONGEST).what == "x" * LONGEST


def test_what_a_program_said_keeps_its_lines() -> None:
    error = WorkbenchError("it died", why="It said:\n" + "\n".join(f"line {n}" for n in range(100)))
    lines = error.why.split("\n")
    assert len(lines) == 12
    assert (lines[0], lines[-1]) == ("It said:", "line 99")
    forged = WorkbenchError("a\n  next: run this", next_step="Do that.")
    assert [line for line in str(forged).split("\n") if line.startswith("  next:")] == [
        "  next: Do that."
    ]


@pytest.mark.parametrize("length", [1, 2, 3, 10, 11])
def test_lengths(length: int) -> None:
    assert len(shorten("abcdefghijklmnop", length)) == length
    assert shorten("abc", 3) == "abc"


def test_shown() -> None:
    assert shown("a\x1b") == "'a\\x1b'"
    assert shown([1, 2]) == "[1, 2]"
    assert len(shown("n" * 10_000_000)) <= 160
    assert shown("n" * 1000, 20).startswith("'nnn")
    assert shown("n" * 1000, 20).endswith("nnn'")
    assert shown(10**5000) == "a very long int"
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) == "a very long list"
