"""`workbench collect`: 0 only for a case that holds all that was to be collected."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.hang.attach import is_whole
from workbench.hang.collect.collector.collect import Collected

WHOLE = Collected("host-1", 1, snapshots=2, processes=3, stacks=4, py_spy="0.4.3")


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        ({}, True),
        ({"snapshots": 1}, False),
        ({"stacks": 0}, False),
        ({"refused": 1}, False),
        ({"interrupted": True}, False),
    ],
)
def test_what_is_missing_makes_it_unsure(change: dict[str, object], whole: bool) -> None:
    assert is_whole(dataclasses.replace(WHOLE, **change), 2) is whole  # type: ignore[arg-type]
