"""Files that the system cannot read any more: named with its error, and no all-clear without them.

(A file that is gone after the folder was listed stands for a failing disk: both are an error of the system.)
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workbench.evidence.folder import open_folder
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.read.host import read_host, unreadable
from workbench.hang.read.joined import Joined

SHIPPED = Path(__file__).parents[3] / "data" / "incident" / "hang"
GONE = "could not be read: No such file or directory"


def judged(case: str, lost: str, folder: Path) -> HangDiagnosis:
    """Judge a shipped case of which files are lost after the folder was listed."""
    shutil.copytree(SHIPPED / case, folder)
    with open_folder(folder) as opened:
        for path in folder.glob(lost):
            path.unlink()
        host = read_host(opened, list(opened.sizes), "", None, "")
    return diagnose(Joined("case", [host], []).scene())


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("*/pyspy-*.json", "snapshot-1/pyspy-2062.json and 13 more"),
        ("snapshot-2/nvidia-smi.csv", "snapshot-2/nvidia-smi.csv"),
        ("no-such-file", ""),
    ],
)
def test_what_cannot_be_read_is_named_with_the_systems_error(
    lost: str, named: str, tmp_path: Path
) -> None:
    got = judged("capture-hang", lost, tmp_path / "case")
    items = [(item.name, item.how) for item in got.verdict.coverage.items if item.kind == "file"]
    assert items == ([(named, GONE)] if named else [])
    assert not any("not recognised" in note for note in got.notes)
    again = "copy the evidence" in got.experiment.change
    assert again is (got.state == "cannot_tell" and bool(named))


@pytest.mark.parametrize(("lost", "ok"), [("", True), ("snapshot-1/nvidia-smi.csv", None)])
def test_no_all_clear_rests_on_what_was_left_out(
    lost: str, ok: bool | None, tmp_path: Path
) -> None:
    got = judged("relaunch-graphs-off", lost or "no-such-file", tmp_path / "case")
    assert got.state == "idle"
    assert got.ok is ok


def test_files_are_told_together_by_their_error() -> None:
    failed = {"a": "Input/output error", "b": "Permission denied", "c": "Input/output error"}
    assert unreadable(failed) == [
        "a and 1 more could not be read: Input/output error",
        "b could not be read: Permission denied",
    ]
