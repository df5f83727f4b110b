"""Whatever a public function is given, nothing but a `WorkbenchError` leaves it."""

from __future__ import annotations

import contextlib
import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench
from tests.conftest import ROOT
from workbench.errors import WorkbenchError


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


VALUES: list[Any] = [
    5, -1, 0, 3.5, float("nan"), float("inf"), True, "", "x", "\0", "a\0b", "x" * 5000, "\ud800", "~nobody/x",
    b"", b"x", b"\xff", [], ["x"], [1], (), {}, {"a": 1}, set(), object(), Unshowable(), Unshowable,
    len, 1j, np.zeros(3), range(3), Path("nothing"), 10**30, iter([]), ...,
]  # fmt: skip
DRAFT = str(ROOT / "data" / "drafts" / "specforge")
# The arguments that are right while another is wrong. A pid of nobody's ends `attach` before it waits.
RIGHT: dict[str, dict[str, Any]] = {
    "open_checkpoint": {"path": DRAFT},
    "diff_keys": {"ckpt": DRAFT, "model": "transformers:NoSuchClass"},
    "fix_checkpoint": {"ckpt": DRAFT, "model": "transformers:NoSuchClass", "out": "out"},
    "scan_weights": {"ckpt": "nothing"},
    "check": {"launch": "nothing"},
    "doctor": {},
    "gate": {"draft": DRAFT, "target": DRAFT, "engines": "sglang==0.5.14"},
    "load": {"path": "nothing.json"},
    "open_evidence": {"path": "nothing"},
    "report": {"case_or_notebook": "nothing.ipynb", "out": "out.html"},
    "attach": {"pid": 2**22 - 3},
    "watch": {"pid": 2**22 - 3, "out": "out"},
    "replay": {"target": "nothing", "draft": DRAFT},
    "panel": {},
}


def test_all_public_functions_are_tried() -> None:
    functions = {name for name in workbench.__all__ if inspect.isfunction(getattr(workbench, name))}
    assert functions - {"load_ipython_extension"} == set(RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_a_wrong_argument_is_a_message(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function = getattr(workbench, name)
    right = dict(zip(inspect.signature(function).parameters, RIGHT[name].values(), strict=False))
    for parameter, kind in inspect.signature(function).parameters.items():
        for number, value in enumerate(VALUES):
            try:
                with contextlib.suppress(WorkbenchError):
                    if kind.kind is inspect.Parameter.VAR_POSITIONAL:
                        function(value, **right)
                    else:
                        function(**{**right, parameter: value})
            except Exception as error:
                pytest.fail(f"{name}({parameter}=VALUES[{number}]) raises {error!r}")
    # What was not refused wrote only where it was told to.
    assert set(os.listdir(tmp_path)) <= {"out", "out.html", "x"}
