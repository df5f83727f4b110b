"""A panel without widgets on real data: runs, results, stopping, errors, and what the notebook keeps."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.core import progress
from workbench.errors import WorkbenchError
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.keys.records import KeyDiff
from workbench.panels import record
from workbench.panels.calls import GIVEN, Call
from workbench.panels.running import Run, Status
from workbench.panels.session import FORMS, Session
from workbench.weights.results import WeightScan

from ..conftest import ROOT

CASE = str(ROOT / "data/incident/hang/capture-hang")
DRAFT = str(ROOT / "data/drafts/speculators")


def ran(session: Session, **options: Any) -> Status:
    run = session.start(**options)
    assert run.wait(120)
    return run.status


def test_a_case_is_opened_and_its_diagnosis_is_kept() -> None:
    session = Session(FORMS["hang"], {"path": CASE})
    status = ran(session)
    assert (status.stage, status.error) == ("done", None)
    (found,) = session.results
    assert isinstance(found, HangDiagnosis)
    # What was shown as code gives the same.
    assert found == eval(session.call().code(), {"workbench": workbench}) or (
        found.to_json() == eval(session.call().code(), {"workbench": workbench}).to_json()
    )


def test_keys_are_compared_and_a_repaired_copy_is_written(tmp_path: Path) -> None:
    session = Session(FORMS["keys"], {"ckpt": DRAFT, "model": "sglang==0.5.8"})
    assert session.follow_up() is None
    ran(session)
    follow = session.follow_up()
    assert follow is not None
    with pytest.raises(WorkbenchError, match="the folder of the copy is missing"):
        session.start(follow=True)
    session.follow_values["out"] = str(tmp_path / "copy")
    status = ran(session, follow=True)
    assert status.error is None
    before, after = session.results
    assert isinstance(before, KeyDiff)
    assert isinstance(after, KeyDiff)
    assert (before.ok, after.ok) == (False, True)
    assert (tmp_path / "copy" / "model.safetensors").is_file()
    # Both stay in view: what was wrong, and the copy.
    assert [one.result for one in session.ended["keys"]] == [before, after]
    text = record.bundle(session)["text/plain"]
    assert text.index("workbench.diff_keys(") < text.index("workbench.fix_checkpoint(")


def test_nothing_to_repair_offers_no_copy() -> None:
    healthy = str(ROOT / "data/drafts/specforge")
    session = Session(FORMS["keys"], {"ckpt": healthy, "model": "sglang==0.5.11"})
    ran(session)
    assert session.results
    assert session.results[0].ok is True  # type: ignore[attr-defined]
    assert session.follow_up() is None


def test_a_mistake_is_a_message_and_leaves_earlier_results(tmp_path: Path) -> None:
    session = Session(FORMS["hang"], {"path": CASE})
    ran(session)
    session.values["hang"]["path"] = str(tmp_path / "nothing.zip")
    status = ran(session)
    assert status.stage == "failed"
    assert status.error is not None
    assert status.error.next_step
    assert len(session.results) == 1
    html = record.bundle(session)["text/html"]
    assert "cannot read" in html
    assert "Traceback" not in html
    # The diagnosis of the first run does not stand under the second call.
    assert "graph_decode" not in html


def test_our_own_mistake_accuses_nobody() -> None:
    seen = threading.Event()
    run = Run(Call("load", (3.5, 4, 5)), None, changed=lambda: None, ended=lambda *_: seen.set())
    run.start()
    assert run.wait(60)
    assert seen.is_set()
    error = run.status.error
    assert error is not None
    assert "workbench itself failed" in error.what
    assert "TypeError" in error.why


def test_two_calls_at_once_are_refused() -> None:
    session = Session(FORMS["weights"], {"ckpt": DRAFT})
    started, go = threading.Event(), threading.Event()

    def listener() -> None:
        started.set()
        go.wait(60)

    session.listen(listener)
    run = session.start()
    assert started.wait(60)
    with pytest.raises(WorkbenchError, match="still running"):
        session.start()
    go.set()
    assert run.wait(120)


def test_a_scan_reports_tensors_and_bytes_and_keeps_what_it_has_when_stopped() -> None:
    session = Session(FORMS["weights"], {"ckpt": DRAFT})
    seen: list[progress.Progress] = []

    def listener() -> None:
        assert session.run is not None
        now = session.run.status.progress
        if now.unit == " tensors":
            seen.append(now)
            session.run.stop()

    session.listen(listener)
    status = ran(session)
    assert seen[0].done == 1
    assert seen[0].total
    assert seen[0].total > 1
    assert "GB" in seen[0].detail
    assert (status.stage, status.early) == ("done", True)
    (found,) = session.results
    assert isinstance(found, WeightScan)
    assert found.interrupted
    assert "Stopped early" in record.bundle(session)["text/html"]


def test_what_ended_before_it_could_be_stopped_is_whole() -> None:
    session = Session(FORMS["keys"], {"ckpt": DRAFT, "model": "sglang==0.5.8"})
    run = session.start()
    run.stop()  # a diff has no place where it could stop
    assert run.wait(120)
    assert (run.status.stage, run.status.early) == ("done", False)
    assert len(session.results) == 1


def test_a_call_that_is_stopped_without_a_result_says_so() -> None:
    values = {
        "target": str(ROOT / "data/incident/target"),
        "draft": str(ROOT / "data/incident/drafts/speculators"),
        "evidence": str(ROOT / "data/incident/runs/sglang-0.5.11/incident"),
        "requests": "2",
    }
    session = Session(FORMS["replay"], values)

    def listener() -> None:
        if session.run is not None and session.run.status.progress.unit == " texts":
            session.run.stop()

    session.listen(listener)
    status = ran(session)
    assert status.stage == "stopped"
    assert session.results == ()
    assert "There is no result" in record.bundle(session)["text/plain"]


def test_progress_without_a_watcher_is_nothing() -> None:
    progress.say("nobody hears this")
    progress.step(1, 2)
    assert not progress.is_watched()


def test_a_bar_that_is_watched_reports_instead_of_being_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from workbench.core.bars import bar

    heard: list[progress.Progress] = []
    with progress.watched(heard.append, lambda: len(heard) > 6):
        shown = bar(total=60.0, bar_format="{desc} {bar} {n:.0f}/{total:.0f} s")
        shown.set_description_str("waiting")
        shown.update(0.5)
        assert list(bar("ab", desc="changes")) == ["a", "b"]
        with pytest.raises(KeyboardInterrupt):
            for _ in bar(range(9), unit=" tensors"):
                pass
    assert heard[0].text == "waiting"
    assert (heard[1].done, heard[1].total, heard[1].unit) == (0.5, 60.0, " s")
    assert heard[2].text == "changes"
    assert [(one.done, one.total) for one in heard[3:5]] == [(0, 2), (1, 2)]
    assert heard[-1].unit == " tensors"
    assert capsys.readouterr().err == ""


def test_the_record_shows_form_code_and_result_of_every_job() -> None:
    session = Session(FORMS["hang"], {"path": CASE})
    ran(session)
    session.form = FORMS["keys"]
    session.values["keys"] |= {"ckpt": DRAFT, "model": "sglang==0.5.8"}
    ran(session)
    bundle = record.bundle(session)
    assert set(bundle) == {"text/html", "text/plain"}  # no widget: it would not be found later
    for name, form in (("hang", FORMS["hang"]), ("keys", FORMS["keys"])):
        assert f'data-job="{name}"' in bundle["text/html"]
        assert form.label in bundle["text/plain"]
    assert "TP1" in bundle["text/plain"]
    assert "layers.0.self_attn.q_proj.weight" in bundle["text/plain"]
    assert "workbench.open_evidence(" in bundle["text/plain"]
    assert "\x1b" not in bundle["text/plain"] + bundle["text/html"]
    json.dumps(bundle)


def test_a_form_that_was_not_run_says_so_and_shows_its_call() -> None:
    session = Session(FORMS["weights"], {"ckpt": "a<b>.safetensors", "sample": "0.05"})
    bundle = record.bundle(session)
    assert "not run yet" in bundle["text/html"]
    assert "a&lt;b&gt;.safetensors" in bundle["text/html"]
    assert "a<b>" not in bundle["text/html"]
    assert "workbench.scan_weights('a<b>.safetensors', sample=0.05)" in bundle["text/plain"]


def test_a_result_that_was_given_stands_without_a_call() -> None:
    found = workbench.open_evidence(CASE)
    session = Session(FORMS["hang"])
    session.show(GIVEN, found)
    bundle = record.bundle(session)
    assert "wb-record-form" not in bundle["text/html"].partition("</style>")[2]
    assert bundle["text/plain"].strip() == found.to_text().strip()


def test_a_notebook_keeps_no_secret_of_a_launch_line() -> None:
    launch = "python -m sglang.launch_server --model-path t --api-key 5f3c9a1b7d --tp 8"
    values = {"ckpt": DRAFT, "model": "sglang==0.5.8", "launch": launch}
    session = Session(FORMS["keys"], values)
    for _ in range(2):  # before it was run, and after
        kept = json.dumps(record.bundle(session))
        assert "5f3c9a1b7d" not in kept
        assert "--tp 8" in kept
        if not session.results:
            ran(session)
    assert "5f3c9a1b7d" in session.call().code()  # what runs is what was typed
