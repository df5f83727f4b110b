"""`python=`: the engine's own loader answers, and it accepts what `fix_checkpoint` wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench

from ..keys.test_repair import in_two_files
from . import environments

pytestmark = pytest.mark.engine


def python(version: str) -> Path:
    if not environments.is_ready(f"sglang-{version}"):
        pytest.skip(f"no SGLang {version} here: make engines")
    return environments.interpreter(f"sglang-{version}")


@pytest.mark.parametrize("version", ["0.5.11", "0.5.14"])
def test_the_real_loader_accepts_the_repaired_copy(
    version: str, root: Path, tmp_path: Path
) -> None:
    draft, engine = root / "data/drafts/speculators", f"sglang=={version}"
    before = workbench.diff_keys(draft, engine, python=python(version))
    assert before.basis == "traced"
    assert before.outcome == "refused"
    assert before.ok is False
    assert before.dropped == workbench.diff_keys(draft, engine).dropped
    assert len(before.dropped) == (10 if version == "0.5.11" else 0)
    workbench.fix_checkpoint(draft, engine, tmp_path / "fixed")
    after = workbench.diff_keys(tmp_path / "fixed", engine, python=python(version))
    assert after.basis == "traced"
    assert after.ok is True
    assert after.ignored == ("t2d",)
    assert after.shared == ("model.embed_tokens.weight",)
    assert not after.missing


def test_the_real_loader_accepts_an_overlay(tmp_path: Path) -> None:
    source, engine = in_two_files(tmp_path / "source"), "sglang==0.5.11"
    workbench.fix_checkpoint(source, engine, tmp_path / "over", overlay=True)
    after = workbench.diff_keys(tmp_path / "over", engine, python=python("0.5.11"))
    assert after.basis == "traced"
    assert after.ok is True
    assert not after.missing


def test_another_version_than_the_named_one_is_no_answer(root: Path) -> None:
    with pytest.raises(workbench.WorkbenchError, match=r"has sglang 0\.5\.14, not 0\.5\.8"):
        workbench.diff_keys(
            root / "data/drafts/specforge", "sglang==0.5.8", python=python("0.5.14")
        )
