"""The ledger of launches: what differs, what is concluded, and files that nobody should trust."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
from pathlib import Path

import pytest

import workbench
from tests.conftest import ROOT
from tests.forms import check_forms
from workbench.core.finding import Experiment
from workbench.evidence import launches as store
from workbench.evidence.launches import Launch
from workbench.hang.ledger.differences import differences
from workbench.hang.ledger.ledger import LaunchLedger, Ledger
from workbench.hang.ledger.rules import passes_needed

HANG = ROOT / "data" / "incident" / "hang"
SERVE = "python -m sglang.launch_server --model-path m --tp-size 8"


def launch(
    name: str, more: str = "", outcome: str = "unknown", version: str = "0.5.14", **known: object
) -> Launch:
    base = store.from_command(f"{SERVE} {more}", name, version=version)
    return dataclasses.replace(base, outcome=outcome, **known)  # type: ignore[arg-type]


def ledger(*launches: Launch) -> LaunchLedger:
    return LaunchLedger("launches.jsonl", launches)


def codes(story: LaunchLedger) -> list[str]:
    return [finding.code for finding in story.findings]


def changed(first: Launch, second: Launch) -> list[str]:
    return [change.text for change in differences(first, second).changed]


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The design's story: started, hung, relaunched without graphs; a new log each time."""
    book = Ledger(tmp_path_factory.mktemp("ledger") / "launches.jsonl")
    book.record(store.from_folder(HANG / "first-start"))
    book.record(store.from_folder(HANG / "capture-hang"), outcome="hung")
    book.record(
        store.from_folder(HANG / "relaunch-graphs-off"),
        hypothesis="the ranks part only while graphs are captured",
        experiment=Experiment("decode graphs off", "it serves", "it hangs again"),
    )
    return book


# The incident


def test_the_incident_changed_one_thing(incident: Ledger) -> None:
    first = incident.differences("first-start", "capture-hang")
    assert not first.changed
    assert {change.name for change in first.harmless} == {"port", "nccl-port", "random-seed"}
    second = incident.differences("capture-hang", "relaunch-graphs-off")
    assert [c.text for c in second.changed] == ["--cuda-graph-backend-decode: full → disabled"]
    assert "cuda-graph-max-bs-decode" in {change.name for change in second.harmless}
    assert second.warning == ""


def test_the_incident_proves_nothing_yet(incident: Ledger) -> None:
    story = incident.story()
    assert story.ok is None
    assert story.configurations == (0, 0, 1)
    assert codes(story) == ["launches.intermittent", "launches.consistent"]
    assert "never its proof" in story.findings[1].title
    assert "first-start served without the change" in story.findings[1].evidence_against
    plan = story.findings[0].experiment
    assert plan is not None
    assert "A-B-A" in plan.change


def test_the_incident_in_every_form(incident: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forms(incident.story(), "launches-incident", monkeypatch)


def test_a_ledger_is_saved_and_loaded(incident: Ledger, tmp_path: Path) -> None:
    story = incident.story()
    again = workbench.load(story.save(tmp_path / "story.json"))
    assert again == story
    assert again.to_text(80) == story.to_text(80)
    assert len(list(again.rows())) == 3


# What differs


@pytest.mark.parametrize(
    ("one", "other", "version"),
    [
        (
            "--disable-cuda-graph",
            "--cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill disabled",
            "0.5.14",
        ),
        ("--cuda-graph-max-bs 8", "--cuda-graph-max-bs-decode 8", "0.5.14"),
        ("--tp 8", "--tensor-parallel-size=8", "0.5.8"),
        ("", "--host 0.0.0.0 --port 1234", "0.5.14"),
        ("", "--schedule-policy fcfs", "0.5.14"),
    ],
)  # fmt: skip
def test_spellings_and_defaults_count_as_the_same(one: str, other: str, version: str) -> None:
    assert changed(launch("a", one, version=version), launch("b", other, version=version)) == []


def test_a_value_that_is_not_the_default_differs() -> None:
    assert changed(launch("a"), launch("b", "--schedule-policy lpm")) == [
        "--schedule-policy: fcfs → lpm"
    ]


def test_one_switch_for_both_kinds_of_graphs_is_one_change() -> None:
    told = differences(launch("a"), launch("b", "--disable-cuda-graph"))
    assert [change.name for change in told.changed] == ["disable-cuda-graph"]
    assert told.warning == ""
    back = differences(launch("b", "--disable-cuda-graph"), launch("a"))
    assert [change.text for change in back.changed] == ["--disable-cuda-graph: true → not given"]


def test_environment_gpus_and_versions_are_part_of_a_launch() -> None:
    one = launch("a", environment={"NCCL_PROTO": "LL"}, gpus=("H200",), versions={"torch": "2.11"})
    other = launch("b", environment={"NCCL_ALGO": "Ring"}, gpus=("H100",), versions={})
    assert changed(one, other) == [
        "NCCL_ALGO: not given → Ring",
        "NCCL_PROTO: LL → not given",
        "GPUs: H200 → H100",
    ]
    assert "3 things changed" in differences(one, other).warning


def test_an_upgrade_is_one_change_with_its_defaults() -> None:
    told = differences(launch("a", version="0.5.8"), launch("b", version="0.5.14"))
    assert [change.name for change in told.changed] == ["sglang"]
    assert "defaults differ" in told.changed[0].why


def test_a_seed_counts_where_somebody_chose_it() -> None:
    one = launch("a", resolved={"random_seed": "1"})
    other = launch("b", resolved={"random_seed": "2"})
    assert changed(one, other) == []
    assert changed(one, launch("c", "--random-seed 3")) == ["--random-seed: 1 → 3"]


def test_logs_alone_are_compared_with_logs() -> None:
    one = store.from_log(HANG / "capture-hang" / "server.log", "hung")
    whole = store.from_folder(HANG / "relaunch-graphs-off")
    one = dataclasses.replace(one, version="0.5.14")
    told = differences(one, whole)
    assert [c.text for c in told.changed] == ["--cuda-graph-backend-decode: full → disabled"]
    assert {change.kind for change in told.unsure} == {"environment"}


def test_what_the_engine_chose_is_unsure_without_its_log() -> None:
    typed = dataclasses.replace(store.from_folder(HANG / "capture-hang"), resolved={})
    logged = dataclasses.replace(store.from_folder(HANG / "capture-hang"), command=())
    told = differences(typed, logged)
    assert not told.changed
    assert "page-size" in {change.name for change in told.unsure}
    assert "not known" in told.warning


# What is concluded


@pytest.mark.parametrize(
    ("hung", "starts", "needed"), [(3, 10, 10), (1, 2, 6), (1, 1, 6), (1, 10, 34), (9, 9, 2)]
)
def test_how_many_clean_starts_it_takes(hung: int, starts: int, needed: int) -> None:
    assert passes_needed(hung, starts) == needed


def test_a_crash_is_not_called_a_hang() -> None:
    story = ledger(launch("a", outcome="crashed"), launch("b", outcome="served"))
    assert "failed 1 of 2 times" in story.findings[0].title
    assert "hung" not in story.findings[0].title


def test_one_success_is_never_a_proof() -> None:
    story = ledger(launch("a", outcome="hung"), launch("b", "--disable-cuda-graph", "served"))
    assert story.ok is None
    assert codes(story) == ["launches.consistent"]
    assert story.findings[0].confidence == "possible"


def test_many_successes_without_flipping_back_are_none_either() -> None:
    good = [launch(f"b{n}", "--disable-cuda-graph", "served") for n in range(30)]
    story = ledger(launch("a", outcome="hung"), *good)
    assert story.ok is None
    assert codes(story) == ["launches.consistent"]


def test_flipping_back_supports_the_change() -> None:
    good = [launch(f"b{n}", "--disable-cuda-graph", "served") for n in range(6)]
    story = ledger(launch("a", outcome="hung"), *good, launch("c", outcome="hung"))
    assert codes(story) == ["launches.supported"]
    assert story.findings[0].confidence == "likely"
    assert story.ok is False  # the last launch hangs: it is understood, not repaired
    assert ledger(*story.launches, launch("d", "--disable-cuda-graph", "served")).ok is True


def test_too_few_clean_starts_before_flipping_back() -> None:
    good = [launch(f"b{n}", "--disable-cuda-graph", "served") for n in range(2)]
    story = ledger(launch("a", outcome="hung"), *good, launch("c", outcome="hung"))
    assert codes(story) == ["launches.consistent"]


def test_a_hang_with_the_change_speaks_against_it() -> None:
    story = ledger(launch("a", outcome="hung"), launch("b", "--disable-cuda-graph", "hung"))
    assert codes(story) == ["launches.refuted"]
    assert story.ok is False


def test_two_changes_are_warned_of_and_not_judged() -> None:
    story = ledger(
        launch("a", outcome="hung"),
        launch("b", "--disable-cuda-graph --disable-custom-all-reduce", "served"),
    )
    assert codes(story) == ["launches.several"]
    assert len(story.findings[0].evidence_for) == 2


def test_a_launch_may_be_compared_with_an_earlier_one() -> None:
    story = ledger(
        launch("a", outcome="hung"),
        launch("b", "--disable-cuda-graph", "hung"),
        launch("c", "--disable-custom-all-reduce", "served", against="a"),
    )
    assert story.steps[2] is not None
    assert [c.name for c in story.steps[2].changed] == ["disable-custom-all-reduce"]


def test_an_empty_ledger_says_so(tmp_path: Path) -> None:
    story = Ledger(tmp_path / "none.jsonl").story()
    assert story.ok is None
    assert "There are no launches" in story.to_text(80)
    assert story.payload()["launches"] == []


# Reading and writing


def test_a_command_line_is_read_as_it_was_typed() -> None:
    read = store.from_command(
        "NCCL_DEBUG=INFO nohup python -m sglang.launch_server --tp 8 --model-path 'a b' > run7.log 2>&1 &"
    )
    assert read.environment == {"NCCL_DEBUG": "INFO"}
    assert read.command[-1] == "a b"
    assert read.log == "run7.log"
    with pytest.raises(workbench.WorkbenchError, match="quotation"):
        store.from_command("python 'open")


def test_arguments_are_read_from_a_log() -> None:
    line = "[x] server_args=ServerArgs(a='1, (2', b=[3, {'c': 4}], d=P(e='f)'), g=None)\nnext\n"
    assert store.logged_arguments(line) == {
        "a": "'1, (2'", "b": "[3, {'c': 4}]", "d": "P(e='f)')", "g": "None",
    }  # fmt: skip
    assert store.logged_arguments("no such line") == {}
    assert store.logged_arguments("server_args=ServerArgs(a='never closed") == {
        "a": "'never closed"
    }


def test_secrets_are_not_written(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    book.record(
        "HF_TOKEN=hf_0123456789abcdefghij NCCL_DEBUG=INFO sglang serve --api-key sesame --tp 8",
        resolved={"api_key": "'sesame'", "tp_size": "8"},
    )
    text = book.path.read_text()
    assert "sesame" not in text
    assert "hf_" not in text
    assert book.launches[0].environment == {"NCCL_DEBUG": "INFO"}
    assert book.launches[0].resolved["tp_size"] == "8"


def test_the_same_host_is_the_same_word_in_every_launch(tmp_path: Path) -> None:
    for port in (1, 2):
        book = Ledger(tmp_path / "launches.jsonl")
        book.record(f"sglang serve --dist-init-addr node7.cluster:50{port} --tp 8")
    story = book.story()
    words = [one.command[3].partition(":")[0] for one in story.launches]
    assert words[0] == words[1] != "node7.cluster"


def test_damaged_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    book.record(SERVE, name="good")
    good = json.loads(book.path.read_text())
    wrong: list[dict[str, object]] = [
        {"outcome": "splendid"}, {"name": 7}, {"command": "rm"}, {"environment": []}, {"started": "now"},
        {"started": True}, {"ready_after": 1e300}, {"format": "x/9"},
    ]  # fmt: skip
    with book.path.open("a") as file:
        file.writelines(json.dumps(good | one) + "\n" for one in wrong)
        file.write("[" * 100_000 + "\n" + "\x00\n" + "x" * 1_100_000 + "\n" + '{"torn": ')
    book.record(SERVE, name="after the torn line")
    story = book.story()
    assert [one.name for one in story.launches] == ["good", "after the torn line"]
    assert story.notes == ("12 damaged or foreign lines were skipped",)


def test_a_very_long_ledger_is_told_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "launches.jsonl"
    lines = [{"format": store.FORMAT, "name": str(n)} for n in range(store.MOST_LAUNCHES + 7)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found, notes, unread = store.read(path)
    assert unread == ()
    assert (found[0].name, found[-1].name) == ("7", str(store.MOST_LAUNCHES + 6))
    assert notes == ("only the last 500 of 507 launches are listed",)


def test_hostile_texts_are_shown_escaped(tmp_path: Path) -> None:
    bad = "\x1b[2J<script>\u202e"
    one = launch("a", outcome="hung")
    other = dataclasses.replace(one, name=bad, environment={bad: bad}, note=bad, outcome="served")
    story = ledger(one, other)
    assert all(line.isprintable() for line in story.to_text(80).splitlines())
    page = story.to_html(tmp_path / "page.html").read_text()
    assert "<script>\u202e" not in page


def _record(path: str, number: int) -> None:
    for at in range(20):
        Ledger(path).record(SERVE, name=f"{number}-{at}", note="x" * 2000)


def test_several_shells_write_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "launches.jsonl")
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=_record, args=(path, number)) for number in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    found, notes, unread = store.read(path)
    assert unread == ()
    assert len(found) == len({one.name for one in found}) == 60
    assert notes == ()


def test_unknown_launches_and_folders_are_told(incident: Ledger, tmp_path: Path) -> None:
    with pytest.raises(workbench.WorkbenchError, match="no launch 'nine'") as caught:
        incident.differences("nine", 1)
    assert "capture-hang" in caught.value.why
    with pytest.raises(workbench.WorkbenchError, match="cannot read"):
        store.from_folder(tmp_path)
    (tmp_path / "launch.json").write_text("[]")
    with pytest.raises(workbench.WorkbenchError, match="cannot read"):
        store.from_folder(tmp_path)
    with pytest.raises(workbench.WorkbenchError, match="cannot write"):
        Ledger(tmp_path / "no" / "folder.jsonl").record(SERVE)


def test_a_saved_view_holds_the_last_launches_only() -> None:
    story = ledger(*(launch(f"n{n}", outcome="served") for n in range(30)))
    data = story.payload(limit=20_000)
    assert data["left_out"] == 20
    assert [one["number"] for one in data["launches"]] == list(range(21, 31))
    assert story.payload()["left_out"] == 0


def test_a_state_of_a_diagnosis_is_an_outcome(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    states = ("hung", "dead_rank", "idle", "slow", "cannot_tell")
    found = [book.record(SERVE, outcome=state).outcome for state in states]
    assert found == ["hung", "crashed", "served", "unknown", "unknown"]
    assert [one.name for one in book.launches] == [f"launch {n}" for n in range(1, 6)]
    with pytest.raises(workbench.WorkbenchError, match="cannot be recorded"):
        book.record(SERVE, outcome="splendid")
    with pytest.raises(TypeError):
        book.record(SERVE, outcom="served")
    assert len(book.launches) == 5


@pytest.mark.parametrize(
    "command", [None, 3, b"x", "", "   ", [], ["python", None], "a" * 1_000_000, {"a": 1}]
)
def test_what_is_no_command(command: object, tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    with pytest.raises(workbench.WorkbenchError, match="is not a command") as told:
        book.record(command)  # type: ignore[arg-type]
    assert told.value.why
    assert not book.path.exists()


@pytest.mark.parametrize("path", [None, 3, ""])
def test_what_is_no_path_of_a_ledger(path: object) -> None:
    with pytest.raises(workbench.WorkbenchError, match="not the path of a ledger"):
        Ledger(path)  # type: ignore[arg-type]


def test_a_pipe_is_no_ledger(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        for use in (lambda book: book.story(), lambda book: book.record(SERVE)):
            with pytest.raises(workbench.WorkbenchError) as told:
                use(Ledger(path))
            assert told.value.why
