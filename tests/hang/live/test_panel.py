"""A panel that attaches to a job: it is listed, progress is live, and stopping keeps one snapshot."""

from __future__ import annotations

import workbench
from tests.hang.live.conftest import Job
from workbench.hang.judge.diagnosis import HangDiagnosis


def test_a_server_is_listed_attached_to_and_stopped_early(job: Job) -> None:
    root = job("sleep", 2, 1)
    panel = workbench.panel(root)
    controls = panel.controls()
    session = controls.session
    assert session.values["hang"]["server"] == root
    assert any(str(root) in label for label, _ in controls.rows["server"].input.options)
    # The second snapshot is an hour away: only stopping ends this.
    controls.rows["interval"].input.value = 3600
    assert panel.code == f"workbench.attach({root}, interval=3600.0)"
    seen: list[str] = []

    def listener() -> None:
        now = session.run.status.progress if session.run else None
        if now is not None:
            seen.append(f"{now.text} {now.detail}")
            if now.unit == " s":
                panel.stop()

    session.listen(listener)
    controls._call.button.click()
    assert panel.wait(300)
    found = panel.result
    assert isinstance(found, HangDiagnosis)
    assert found.state == "cannot_tell"  # one snapshot never says hung
    assert any(text.startswith("snapshot 1: ") for text in seen)
    assert any("waiting 3600 s for snapshot 2" in text for text in seen)
    assert "Stopped early" in controls._call.status.value
    # How long py-spy held each rank.
    assert "Paused for at most: " in controls._call.status.value
    assert controls._call.status.value.count("scheduler") == 2
