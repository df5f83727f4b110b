"""What each job answers, and which faults follow: each border from both sides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from workbench.core.finding import Confidence, Finding, Severity
from workbench.core.verdict import Coverage, Item, State, Verdict
from workbench.launch.read import read_launch
from workbench.launch.rules.records import Moment
from workbench.preflight.records import Fault, LaunchCheck
from workbench.speculation.evidence.tally import Logged
from workbench.triage import jobs
from workbench.triage.evidence import Found, Served
from workbench.triage.records import Cause, Job
from workbench.triage.things import Thing

RUN = Thing("run", "run", "run")
LAUNCH = read_launch(
    "sglang serve --model-path t --speculative-draft-model-path d", version="0.5.14"
)


def logged(mean: float, lines: int = 9) -> Logged:
    return Logged(lines, mean, None, mean, mean)


@pytest.mark.parametrize(
    ("mean", "lines", "right"),
    [
        (1.0, 9, False),
        (1.05, 9, False),
        (1.06, 9, None),
        (1.19, 9, None),
        (1.2, 9, True),
        (1.0, 1, None),  # one line is one moment
        (1.0, 2, False),
    ],
)
def test_what_the_log_says_of_acceptance(mean: float, lines: int, right: bool | None) -> None:
    found = jobs.acceptance(Served(RUN, logged=logged(mean, lines)))
    assert found is not None
    assert found.answer.ok is right
    assert ("not accepted" in found.answer.text) == (right is False)
    assert jobs.acceptance(Served(RUN)) is None


def finding(code: str, severity: Severity = "error", confidence: Confidence = "certain") -> Finding:
    return Finding(code, severity, f"{code} is so", confidence=confidence, changes_output=True)


def checked(
    code: str = "keys_lost", moment: Moment = "serving", *, certain: bool = True,
    severity: Severity = "error", state: State = "wrong", fault: bool = True, name: str = "a of the draft",
) -> LaunchCheck:  # fmt: skip
    coverage = Coverage(
        (Item("key", name, state, "how", 3), Item("key", f"b {name}", "ok", "how", 4))
    )
    return LaunchCheck(
        Verdict("fails", "It fails.", "certain", coverage), source="run", form="log", engine="sglang",
        version="0.5.14", faults=(Fault(moment, "text", code, certain),) if fault else (),
        findings=(finding(code, severity),),
    )  # fmt: skip


def causes(found: LaunchCheck, one: Served) -> list[tuple[str, bool]]:
    stands_in = one.draft is not None and one.draft.stands_in
    return [(cause.code, cause.certain) for cause in jobs._of_check(found, one, stands_in)]


PLAIN = Served(RUN, LAUNCH, draft=Found("draft"))
READY = dataclasses.replace(PLAIN, ready=True)
COPY = dataclasses.replace(PLAIN, draft=Found("draft", stands_in=True))
CHANGED = dataclasses.replace(PLAIN, draft=Found("draft", stands_in=True, changed=True))
HEALTHY = logged(1.2)


@pytest.mark.parametrize(
    ("found", "one", "right"),
    [
        (checked(), PLAIN, [("keys_lost", True)]),
        (checked(), dataclasses.replace(PLAIN, draft=None), [("keys_lost", True)]),
        (checked(certain=False), PLAIN, [("keys_lost", False)]),
        (checked(fault=False), PLAIN, [("keys_lost", False)]),
        (checked(severity="warning"), PLAIN, []),
        # A server that became ready has not stopped before
        (checked("shapes_differ", "load"), PLAIN, [("shapes_differ", True)]),
        (checked("shapes_differ", "load"), READY, []),
        (checked("shapes_differ", "load"), COPY, []),
        (checked("shapes_differ", "serving"), READY, []),
        (checked("keys_lost", "load"), PLAIN, [("keys_lost", True)]),
        (checked("keys_lost", "load"), READY, []),
        (checked("keys_lost", "serving"), READY, [("keys_lost", True)]),
        (checked("keys_lost", "first request"), READY, [("keys_lost", True)]),
        (checked("keys_lost", "unknown"), READY, [("keys_lost", True)]),
        (checked("keys_lost", fault=False), READY, [("keys_lost", False)]),
        # Another folder in the place of the draft
        (checked(), COPY, [("keys_lost", False)]),
        (checked("launched_as_eagle"), COPY, [("launched_as_eagle", True)]),
        (checked("argument_unknown", "parser"), COPY, [("argument_unknown", True)]),
        (checked(), dataclasses.replace(COPY, logged=HEALTHY), []),
        (checked(), dataclasses.replace(COPY, logged=logged(1.19)), [("keys_lost", False)]),
        (checked("launched_as_eagle"), dataclasses.replace(COPY, logged=HEALTHY),
         [("launched_as_eagle", True)]),
        (checked(), dataclasses.replace(PLAIN, logged=HEALTHY), [("keys_lost", True)]),
        # A copy that was changed: its keys are others, its kind is the same
        (checked(), CHANGED, []),
        (checked("launched_as_eagle"), CHANGED, [("launched_as_eagle", True)]),
    ],
)  # fmt: skip
def test_the_faults_of_a_launch(
    found: LaunchCheck, one: Served, right: list[tuple[str, bool]]
) -> None:
    assert causes(found, one) == right


@pytest.mark.parametrize(
    ("found", "one", "title", "subject"),
    [
        (checked(), PLAIN, "SGLang 0.5.14 silently ignores 3 of 7 keys of the draft", "run"),
        (
            checked(),
            COPY,
            "SGLang 0.5.14 silently ignores 3 of 7 keys of the draft",
            "draft, in the place of d",
        ),
        (checked(state="open"), PLAIN, "keys_lost is so", "run"),
        (checked(name="a of the target"), PLAIN, "keys_lost is so", "run"),
        (checked("launched_as_eagle"), COPY, "launched_as_eagle is so", "run"),
        (checked("fc_bias"), COPY, "fc_bias is so", "draft"),
    ],
)
def test_how_a_fault_is_named(found: LaunchCheck, one: Served, title: str, subject: str) -> None:
    stands_in = one.draft is not None and one.draft.stands_in
    assert [(c.title, c.subject) for c in jobs._of_check(found, one, stands_in)] == [
        (title, subject)
    ]


def test_a_cause_is_certain_where_its_finding_is() -> None:
    likely = dataclasses.replace(checked(), findings=(finding("keys_lost", confidence="likely"),))
    assert causes(likely, PLAIN) == [("keys_lost", False)]


GOOD = "docker run lmsysorg/sglang:v0.5.14 sglang serve --model-path no/target"
SERVED = (
    "docker run lmsysorg/sglang:v0.5.14 sglang serve --model-path data/incident/target --tp 2 "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path data/incident/drafts/specforge"
)
BAD = f"{GOOD} --mem-fraction-static 85"


@pytest.mark.parametrize(
    ("line", "ready", "draft", "right", "text"),
    [
        (BAD, False, None, False, "--mem-fraction-static 85 is no share"),
        (
            BAD,
            True,
            None,
            None,
            "the models that were served are not here",
        ),  # it became ready all the same
        (GOOD, False, None, None, "Cannot tell"),
        (GOOD, True, None, None, "Cannot tell"),
        (BAD, False, Found("no/draft"), False, "--mem-fraction-static 85 is no share"),
        (
            BAD,
            False,
            Found("no/draft", stands_in=True),
            None,
            "--mem-fraction-static 85 is no share",
        ),
        (BAD, False, Found("no/draft", changed=True), False, "This launch fails"),
        (SERVED, True, None, True, "takes this launch"),
        (SERVED.replace("EAGLE3", "EAGLE"), True, None, False, "--speculative-algorithm EAGLE"),
    ],
)
def test_a_launch_that_its_own_log_contradicts(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    ready: bool,
    draft: Found | None,
    right: bool | None,
    text: str,
) -> None:
    monkeypatch.chdir(root)
    launch = read_launch(line)
    found = jobs.check(Served(RUN, launch, ready=ready, draft=draft))
    assert found.answer.ok is right
    assert text in found.answer.text


def test_what_cannot_be_opened_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    place = str(tmp_path / "empty")
    for found in (
        jobs.hang(Thing("run", "run", place)), jobs.diff(place, "", ""), jobs.weights(place, ""),
    ):  # fmt: skip
        assert (found.answer.ok, found.causes, found.result) == (None, (), None)
        assert found.answer.text


def test_a_checkpoint_that_loads_and_one_whose_keys_are_lost(root: Path) -> None:
    drafts = root / "data/incident/drafts"
    lost = jobs.diff(str(drafts / "speculators"), "", "sglang==0.5.11")
    assert lost.answer.ok is False
    assert ("keys_lost", True) in [(cause.code, cause.certain) for cause in lost.causes]
    assert jobs.diff(str(drafts / "specforge"), "", "sglang==0.5.11").causes == ()


def test_weights_at_initialisation_are_a_cause(root: Path, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(0, 0.02, (256, 256)).astype(np.float32)
    save_file({"layers.0.mlp.up_proj.weight": values}, tmp_path / "model.safetensors")
    found = jobs.weights(str(tmp_path), "")
    assert found.answer.ok is False
    assert [(cause.code, cause.certain) for cause in found.causes] == [("weights.at_init", False)]
    values[3] = np.nan
    save_file({"layers.0.mlp.up_proj.weight": values}, tmp_path / "model.safetensors")
    broken = jobs.weights(str(tmp_path), "")
    assert [(cause.job, cause.certain) for cause in broken.causes] == [("weights", True)]
    healthy = jobs.weights(str(root / "data/incident/drafts/speculators"), "")
    assert (healthy.answer.ok is False, healthy.causes) == (False, ())


def cause(code: str, job: Job = "check", certain: bool = True, title: str = "") -> Cause:
    return Cause(code, title or code, "", job, "run", certain)


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ([cause("other"), cause("keys_lost")], ["keys_lost", "other"]),
        ([cause("launched_as_eagle"), cause("keys_lost")], ["keys_lost", "launched_as_eagle"]),
        ([cause("keys_lost"), cause("hang_hung", "hang")], ["hang_hung", "keys_lost"]),
        ([cause("hang_crashed", "hang"), cause("other")], ["other", "hang_crashed"]),
        ([cause("a", certain=False), cause("b")], ["b", "a"]),
        ([cause("keys_lost", certain=False), cause("b")], ["keys_lost", "b"]),
        ([cause("a"), cause("a")], ["a"]),
        ([cause("a"), cause("a", title="twice")], ["a", "a"]),
    ],
)
def test_the_most_damaging_comes_first(given: list[Cause], right: list[str]) -> None:
    assert [one.code for one in jobs.first(given)] == right


def test_of_two_that_are_alike_the_certain_one_is_kept() -> None:
    for given in ([cause("a", certain=False), cause("a")], [cause("a"), cause("a", certain=False)]):
        assert [one.certain for one in jobs.first(given)] == [True]


def test_of_the_known_causes_of_one_text_the_first_two_are_named() -> None:
    three = "\n".join(
        (
            "RuntimeError: selected index k out of range",
            "RuntimeError: size mismatch for fc.weight",
            "torch.OutOfMemoryError: CUDA out of memory.",
        )
    )
    found = jobs.traceback(Served(RUN, LAUNCH, text=three), [])
    assert found is not None
    assert [cause.code for cause in found.causes] == ["tree_too_small", "shapes_differ"]


TWO = "RuntimeError: selected index k out of range\nRuntimeError: size mismatch for fc.weight"


@pytest.mark.parametrize(("certain", "named"), [(True, ["tree_too_small"]), (False, None)])
def test_a_known_cause_that_was_proved_is_not_named_again(
    certain: bool, named: list[str] | None
) -> None:
    before = [cause("shapes_differ", certain=certain)]
    found = jobs.traceback(Served(RUN, LAUNCH, text=TWO), before)
    assert found is not None
    assert [one.code for one in found.causes] == (named or ["tree_too_small", "shapes_differ"])
    assert {one.certain for one in found.causes} == {False}
