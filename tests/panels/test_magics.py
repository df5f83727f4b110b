"""``%workbench``: the words of a line, the call they stand for, and the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench.errors import WorkbenchError
from workbench.magics import call_of
from workbench.panels.opening import Panel

from ..conftest import ROOT

CASE = str(ROOT / "data/incident/hang/capture-hang")
DRAFT = str(ROOT / "data/drafts/speculators")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("hang", "workbench.attach()"),
        ("hang --snapshots 3 --native", "workbench.attach(snapshots=3, native=True)"),
        ("hang 4711 --interval=5", "workbench.attach(4711, interval=5.0)"),
        ("hang case.zip", "workbench.open_evidence('case.zip')"),
        (
            "diff CK sglang==0.5.11 --target T",
            "workbench.diff_keys('CK', 'sglang==0.5.11', target='T')",
        ),
        ("fix CK vllm OUT", "workbench.fix_checkpoint('CK', 'vllm', 'OUT')"),
        ("weights CK --sample 0.1", "workbench.scan_weights('CK', sample=0.1)"),
        ("replay T D --draft-tokens 8", "workbench.replay('T', 'D', draft_tokens=8)"),
    ],
)
def test_a_line_is_the_call_that_the_panel_would_make(line: str, code: str) -> None:
    assert call_of(line.split()).code() == code


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("dif CK sglang", "Did you mean diff"),
        ("diff CK sglang more", "'more' is one word too many"),
        ("diff CK", "the engine is missing"),
        ("fix CK vllm", "the folder of the copy is missing"),
        ("hang --snapshot 3", "there is no option --snapshot"),
        ("hang --snapshots", "needs a value"),
        ("hang --snapshots many", "not a number"),
    ],
)
def test_a_mistake_in_a_line_is_named(line: str, says: str) -> None:
    with pytest.raises(WorkbenchError) as caught:
        call_of(line.split())
    assert says in str(caught.value)


@pytest.fixture
def shell() -> Iterator[Any]:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_the_extension_returns_result_objects(shell: Any) -> None:
    shell.run_line_magic("load_ext", "workbench")
    found = shell.run_line_magic("workbench", f"hang {CASE}")
    assert found.state == "hung"
    assert shell.run_line_magic("workbench", f"diff {DRAFT} sglang==0.5.8").ok is False
    assert isinstance(shell.run_line_magic("workbench", ""), Panel)
    with pytest.raises(UsageError, match="next:"):
        shell.run_line_magic("workbench", "hang /nowhere/at/all.zip")
