"""Messages as people paste them: a launch in a sentence, the last line of a traceback, words alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from workbench.launch import prose
from workbench.launch.read import read_launch
from workbench.triage import tracebacks

LAUNCH = "python -m sglang.launch_server --model-path /m --tp 8 --reasoning_parser kimi_k2"
GOOD = LAUNCH.replace("reasoning_parser", "reasoning-parser")
REFUSED = "launch_server.py: error: unrecognized arguments: --reasoning_parser kimi_k2"


def said(tmp_path: Path, text: str) -> workbench.Case:
    place = tmp_path / "issue.txt"
    place.write_text(text)
    return workbench.doctor(place)


@pytest.mark.parametrize(
    "text",
    [
        f"launch server on v0.5.5   ` {GOOD}`",
        f"I run `{GOOD}` and then it ends.",
        f"Our command: {GOOD}",
        f"We use two nodes with eight cards each.\n{GOOD}\nThen this error came up (see below).",
        f"We use two nodes, it isn't quick.\n- {GOOD}\n",
        "Cmd is:\n\n" + GOOD.replace(" --", " \\\n  --") + "\n\nIt's bad, and we don't know why.",
    ],
)
def test_a_launch_is_found_between_the_words_of_a_message(text: str) -> None:
    launch = read_launch(text)
    assert launch.engine == "sglang"
    assert {one.key: one.value for one in launch.arguments} == {
        "model-path": "/m", "tp-size": "8", "reasoning-parser": "kimi_k2",
    }  # fmt: skip
    assert not [one for one in launch.not_read if one.essential]


def test_a_command_within_a_sentence_without_backticks_ends_nowhere_that_is_known() -> None:
    assert prose.commands(f"When I run {LAUNCH} it ends") == ""


def test_a_script_with_a_broken_line_is_no_message() -> None:
    broken = f"export NCCL_DEBUG='INFO\n{LAUNCH}\n"
    assert [one for one in read_launch(broken).not_read if one.essential]
    start = GOOD.replace("/m", "$MODEL")
    assigned = f"We set the model first, then start.\nMODEL=/other\n{start}\nisn't it"
    values = {one.key: one.value for one in read_launch(assigned).arguments}
    assert values["model-path"] == "/other"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("launch server on v0.5.5: `{}`", "0.5.5"),
        ("flashinfer v0.5.3: `{}`", ""),
        ("on v0.5.5, before on v0.5.4: `{}`", ""),
        ("on v0.77.1: `{}`", ""),
    ],
)
def test_a_version_in_a_sentence_is_sglangs_if_no_other_package_is_named(
    tmp_path: Path, text: str, version: str
) -> None:
    found = said(tmp_path, text.format("python -m sglang.launch_server --model-path /m"))
    assert (f"SGLang {version}," in str(found.things[0].text)) is bool(version)


def test_what_the_parser_itself_refused_is_certain_and_named(tmp_path: Path) -> None:
    found = said(tmp_path, f"{LAUNCH}\n{REFUSED}\n")
    assert found.ok is False
    assert found.causes[0].certain
    assert found.causes[0].title == "the parser refuses --reasoning_parser"
    assert found.causes[0].next_step == "Write --reasoning-parser instead."
    unknown = said(tmp_path, "launch_server.py: error: unrecognized arguments: --enable-reasoning")
    assert unknown.causes[0].next_step.startswith("Remove it: no release of SGLang")
    known = said(tmp_path, "launch_server.py: error: unrecognized arguments: --tp-size 8")
    assert "SGLang 0.4.4 to" in known.causes[0].next_step
    foreign = said(
        tmp_path, "vllm: error: unrecognized arguments: --tp-size 8\nvllm serve m --tp-size 8"
    )
    assert "SGLang" not in foreign.causes[0].next_step


def test_of_a_release_that_is_known_the_check_names_it_once(tmp_path: Path) -> None:
    found = said(tmp_path, f"sglang 0.5.5\n\n{LAUNCH}\n{REFUSED}\n")
    assert [cause.code for cause in found.causes] == ["argument_unknown"]
    assert found.causes[0].certain


def test_the_last_line_of_a_traceback_alone_names_its_cause_but_proves_no_stop(
    tmp_path: Path,
) -> None:
    gloo = "Exception: Capture failed: [x/y.cc:133] Timed out waiting 1800000ms for send operation"
    found = said(tmp_path, f"Then this came up.\n{gloo}\n")
    assert found.ok is None
    assert found.causes[0].code == "collective_timeout"
    (trace,) = tracebacks.read(gloo)
    assert (trace.frames, trace.error[:9]) == ((), "Exception")
    assert not tracebacks.read("Errors are possible: this is normal\nException handling is on\n")


def test_a_connection_that_was_cut_is_the_consequence_of_another_ranks_end(tmp_path: Path) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/model_executor/cuda_graph_runner.py", line 239, in __init__\n'
        "    raise Exception(\n"
        "Exception: Capture failed: [gloo/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:31\n"
    )
    found = said(tmp_path, trace)
    assert found.ok is False
    assert [cause.code for cause in found.causes] == ["peer_ended"]
    assert "other ranks" in found.to_text(200)


def test_an_error_without_words_is_told_with_its_place(tmp_path: Path) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/mem_cache/hiradix_cache.py", line 300, in write_backup\n'
        "AssertionError\n"
    )
    found = said(tmp_path, "\n".join(f"sglang-1  | {line}" for line in trace.splitlines()))
    assert "AssertionError in write_backup (hiradix_cache.py)" in found.summary
    assert "next: Look for this line" in found.to_text(200)


@pytest.mark.parametrize("words", ["It hangs at 4%", "the server is stuck", "no response at all"])
def test_words_alone_get_a_step_and_no_cause(tmp_path: Path, words: str) -> None:
    found = said(tmp_path, f"{words}, without any error.")
    assert found.ok is None
    assert not found.causes
    assert "workbench hang" in found.to_text(200)


def test_words_do_not_outrank_what_was_found(tmp_path: Path) -> None:
    found = said(tmp_path, f"It hangs.\n{LAUNCH}\n{REFUSED}\n")
    assert found.causes
    assert not [one for one in found.answers if one.job == "words"]


@pytest.mark.parametrize(("algorithm", "draft", "named"), [
    ("EAGLE", "org/kimi-k2.5-eagle3", True), ("EAGLE", "org/EAGLE-3-llama", True),
    ("EAGLE3", "org/kimi-k2.5-eagle3", False), ("EAGLE", "org/EAGLE-llama3", False),
])  # fmt: skip
def test_a_draft_that_is_called_eagle3_under_eagle_is_likely(
    algorithm: str, draft: str, named: bool
) -> None:
    line = (
        f"python3 -m sglang.launch_server --model-path org/target --speculative-algorithm {algorithm} "
        f"--speculative-draft-model-path {draft} --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4"
    )
    found = workbench.check(line, engine="sglang==0.5.14")
    assert ("launched_as_eagle" in [one.code for one in found.faults]) is named
    assert not [one for one in found.faults if one.certain]
