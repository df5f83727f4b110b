"""Public questions, and the tracebacks in them: the phase is that of the frames, the cause a known one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import workbench
from tests.tables import taken
from tests.triage import cast, questions, unseen
from tests.triage.questions import Question
from workbench.facts.known_causes import CAUSES
from workbench.triage import tracebacks
from workbench.triage.things import recognise

QUESTIONS = questions.read()
# A cause that the text shows by a comparison, a port that one class fixes, nonsense without an error.
OPEN = {"sglang-33858", "sglang-2430", "trtllm-11125"}
TRACE = """[2026-01-01 00:00:00 TP0] Load weight end. elapsed=1.00 s
[2026-01-01 00:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process
  File "/sgl/sglang/srt/{file}", line 2, in {function}
{error}
"""


@pytest.mark.parametrize("question", QUESTIONS, ids=[one.id for one in QUESTIONS])
def test_a_public_question_is_answered_or_handed_on(question: Question) -> None:
    assert questions.played(question)[0] == question.kind


def test_the_page_has_what_doctor_says() -> None:
    assert taken(questions.PAGE, "python -m tests.triage.questions --write") == list(
        questions.table()
    )


@pytest.mark.parametrize("question", unseen.read(), ids=[one.id for one in unseen.read()])
def test_a_question_by_another_hand_gets_no_wrong_answer(question: unseen.Question) -> None:
    assert unseen.played(question)[0] == ("open" if question.id in OPEN else "right")


def test_the_page_has_what_doctor_says_to_the_questions_by_another_hand() -> None:
    assert taken(questions.PAGE, unseen.COMMAND) == list(unseen.table())


def test_the_questions_are_ten_of_both_kinds() -> None:
    assert len(QUESTIONS) == 10
    assert {one.kind for one in QUESTIONS} == {"answered", "handed on"}
    assert all(one.url.startswith("https://") for one in QUESTIONS)


@pytest.mark.parametrize(
    ("file", "function", "when"),
    [
        ("model_executor/model_runner.py", "load_model", "the models are loaded"),
        ("model_executor/cuda_graph_runner.py", "capture", "CUDA graphs are captured"),
        ("managers/scheduler.py", "event_loop_normal", "a request is served"),
        ("utils.py", "some_helper", ""),
    ],
)
def test_the_phase_is_that_of_the_frames_not_of_the_last_line(
    file: str, function: str, when: str
) -> None:
    text = TRACE.format(file=file, function=function, error="ValueError: no")
    trace = tracebacks.first(tracebacks.read(text, "0.5.8"))
    assert trace is not None
    assert (trace.engine, trace.when, trace.error) == ("sglang", when, "ValueError: no")


# A cause and its twin: nearly the same words, of something else.
@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("AttributeError: 'X' object has no attribute 'set_eagle3_layers_to_capture'", ["no_capture_hooks"]),
        ("AttributeError: 'X' object has no attribute 'set_layers'", []),
        ("ValueError: too many values to unpack (expected 2)", []),  # no auxiliary layers in its frames
        ("hidden_states, aux_hidden_states = x\nValueError: too many values to unpack (expected 2)",
         ["aux_not_returned"]),
        ("RuntimeError: selected index k out of range", ["tree_too_small"]),
        ("IndexError: list index out of range", []),
        ("KeyError: 'model.layers.0.fc.weight'", []),  # not while weights are loaded
        ("in load_weights\nKeyError: 'model.layers.0.fc.weight'", ["key_unknown"]),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", ["memory"]),
        ("ValueError: output_partition_size = 576 is not divisible by weight quantization block_n = 128.",
         ["block_n"]),
        ("ValueError: 576 is not divisible by 128", []),
        ('File "/x/sglang/srt/speculative/eagle_info.py", line 8, in merge_batch\n'
         "RuntimeError: Sizes of tensors must match except in dimension 0.", ["draft_width"]),
        ('File "/x/sglang/srt/layers/linear.py", line 8, in forward\n'
         "RuntimeError: Sizes of tensors must match except in dimension 0.", []),
        ('File "/x/sglang/srt/models/qwen3.py", line 493, in load_weights\n'
         "KeyError: 'midlayer.self_attn.qkv_proj.weight'", ["base_architecture", "key_unknown"]),
        ('File "/x/sglang/srt/models/llama_eagle3.py", line 9, in load_weights\n'
         "KeyError: 'midlayer.self_attn.qkv_proj.weight'", ["key_unknown"]),
        ("head.data[self.hot_token_id]\nRuntimeError: CUDA error: device-side assert triggered",
         ["token_map", "device_assert"]),
        ("Exit code: -9", ["killed"]),
        ("Exit code: 0\nexit code: -90", []),
        ("AssertionError: res=<Response [502]>, res.text=''", ["proxy"]),
        ("AssertionError: res=<Response [500]>, res.text=''", []),
        ('File "/x/vllm/y.py", line 1, in z\nAttributeError: \'Proposer\' object has no attribute \'p\'',
         ["engine_fault"]),
        ('File "/mine/y.py", line 1, in z\nAttributeError: \'Proposer\' object has no attribute \'p\'', []),
        ('File "/x/vllm/y.py", line 1, in z\nAttributeError: \'NoneType\' object has no attribute \'p\'', []),
        ("AttributeError: 'LlamaConfig' object has no attribute 'rope_theta'", ["config_field"]),
        ("[gloo/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:31022", ["peer_ended"]),
        ("[x.cc:133] Timed out waiting 1800000ms for send operation to complete", ["collective_timeout"]),
        ("all is well", []),
    ],
)  # fmt: skip
def test_known_causes_and_their_twins(text: str, codes: list[str]) -> None:
    assert [one.code for one in tracebacks.known(text, None, None)] == codes


def test_a_cause_of_a_draft_is_not_that_of_a_launch_without_one() -> None:
    text = "Assertion `srcIndex < srcSelectDimSize` failed."
    assert [one.code for one in tracebacks.known(text, None, True)] == ["device_assert"]
    assert tracebacks.known(text, None, False) == ()


def test_every_row_of_the_causes_can_be_found_and_says_what_to_do() -> None:
    assert all(one.next_step.endswith(".") and not one.title.endswith(".") for one in CAUSES)
    assert all(one.seen == "" or one.seen.startswith("https://") for one in CAUSES)


def test_a_log_alone_with_good_acceptance_is_no_all_clear(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    line = "[2026-01-01 00:00:0{} TP0] Decode batch. #running-req: 1, accept len: 2.50, accept rate: 0.50\n"
    log.write_text("".join(line.format(n) for n in range(5)))
    found = workbench.doctor(log)
    assert found.ok is None
    assert "accept len 2.50" in str([one.text for one in found.answers])


def test_a_port_of_this_machine_is_the_process_that_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for text in (f":{port}", f"localhost:{port}", f"http://127.0.0.1:{port}/"):
            (thing,) = recognise(text)
            assert (thing.kind, thing.pid) == ("process", os.getpid())
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()  # nothing was sent to it


def test_the_picture_is_what_doctor_prints(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    made = cast.picture()
    assert cast.FILE.read_text(encoding="utf-8") == made, "python -m tests.triage.cast"
    assert made.count("http") == 1  # the name of SVG itself: nothing is loaded
    for word in ("10&#160;of&#160;16&#160;keys", "EAGLE3", "workbench&#160;fix"):
        assert word in made
