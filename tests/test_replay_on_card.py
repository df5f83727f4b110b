"""The benchmark's calls, in plain PyTorch here: they draft what the workbench's replay drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import fix_checkpoint, open_checkpoint
from workbench.speculation.evidence.observed import read_run
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import replay_rounds
from workbench.speculation.rounds.setup import as_launched

from .conftest import ROOT

pytest.importorskip("torch")
card = pytest.importorskip("benchmarks.replay_on_card")
INCIDENT = ROOT / "data" / "incident"


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "repaired"
    fix_checkpoint(INCIDENT / "drafts" / "speculators", "sglang==0.5.11", folder)
    return folder


@pytest.mark.parametrize(
    ("name", "extend"),
    [
        ("sglang-0.5.14/speculators", "prefix"),
        ("sglang-0.5.14/speculators-tree", "prefix"),
        ("sglang-0.5.11/repaired", "block"),
        ("sglang-0.5.11/repaired-tree", "accepted"),
    ],
)
def test_call_by_call_is_what_all_at_once_is(name: str, extend: str, repaired: Path) -> None:
    run = read_run(INCIDENT / "runs" / name).some(2)
    draft = repaired if "0.5.11" in name else INCIDENT / "drafts" / "speculators"
    target = LlamaTarget.read(open_checkpoint(INCIDENT / "target"))
    loaded, driving = as_launched(run.launch, open_checkpoint(draft), target)
    assert driving.extend == extend
    trace = target.trace(run.texts, run.prompts, keep=driving.aux, starts=run.starts)
    whole = replay_rounds(loaded, driving, trace, run.starts, run.emitted)
    found = [r for rounds in card.replay_run(run, draft, card.PlainOps()) for r in rounds]
    assert [r.emitted for r in found] == whole.emitted.tolist()
    assert [r.tokens for r in found] == whole.tokens.tolist()
