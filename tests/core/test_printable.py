"""JSON that is printed or written holds nothing that a terminal obeys, and has the same value."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.replay_samples import chain
from workbench.core.saving import printable

OBEYED = (
    "\x1b[2J \x7f \x85 \x9b2J \u202e \u2066 \u2028 \u200f \U000e0041 \U0001f600 é 你 ✗ \ttab\nline"
)


@pytest.mark.parametrize("indent", [None, 1])
def test_what_a_terminal_obeys_is_escaped(indent: int | None) -> None:
    text = OBEYED
    result = chain()
    result = dataclasses.replace(
        result, verdict=type(result.verdict)(
            result.verdict.state, text, result.verdict.confidence, result.verdict.coverage,
            result.verdict.overturned_by,
        ),
    )  # fmt: skip
    written = result.to_json(indent=indent)
    assert all(c.isprintable() or c == "\n" for c in written)
    assert json.loads(written)["summary"] == text


def test_what_can_be_printed_stays() -> None:
    text = json.dumps({"é": "你 ✗ \U0001f600"}, ensure_ascii=False, indent=1)
    assert printable(text) == text
