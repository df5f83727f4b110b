"""Rows against the sources of both releases at a border that is at hand; the others: `make facts-check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import environments
from workbench.facts import rows

from .borders import Source, wrong

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def source(version: str) -> Source:
    environments.ensure(f"sglang-{version}")
    packages = environments.cache() / f"packages-{environments.PYTHON_TAG}"
    return Source(Path(packages / f"sglang=={version}"))


def test_what_came_and_went_with_0_5_12() -> None:
    names = rows.releases("sglang")
    assert (
        names[names.index("0.5.12") - 1] == "0.5.11"
    )  # so that this border has nothing in between
    assert wrong("0.5.12", source("0.5.11"), source("0.5.12")) == []


def test_a_row_at_the_wrong_border_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sources the wrong way round: what is said to have come is there already."""
    found = wrong("0.5.12", source("0.5.12"), source("0.5.11"))
    assert len(found) > 20
