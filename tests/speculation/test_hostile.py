"""Evidence that is damaged, hostile or of something else: refused in one sentence, or left out and told."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.conftest import ROOT
from tests.speculation.evidence.test_evidence import dump, write_lines
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.arguments import read_expected
from workbench.speculation.evidence.observed import hidden_of, read_launch, read_run, read_tensors
from workbench.speculation.evidence.reading import read_facts
from workbench.speculation.evidence.tally import MOST_DRAFTS
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.recorded import RecordedTarget

torch = pytest.importorskip("torch")
INCIDENT = ROOT / "data" / "incident"
RUNS = INCIDENT / "runs"
TARGET, DRAFT = INCIDENT / "target", INCIDENT / "drafts" / "speculators"
GOOD = {
    "prompt": "good",
    "input_ids": [300, 301],
    "chunks": [[1, 0], [3, 0], [4, 0]],
    "last": {"output_ids": [5, 6, 7, 8], "meta_info": {}},
}


def run_of(folder: Path, *lines: dict[str, Any], command: list[str] | None = None) -> Path:
    write_lines(folder / "requests.jsonl", list(lines))
    if command is not None:
        (folder / "launch.json").write_text(json.dumps({"command": command}))
    return folder


# Requests


NO_IDS: list[Any] = ["x", 0, {}, [-1], [1.0], [[1]], [True], [1 << 31]]
LONG = {"chunks": [[1, 0], [600, 0]], "last": {"output_ids": [1] * 600}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"input_ids": None}, "without input_ids"),
        ({"input_ids": []}, "without input_ids"),
        *[({"input_ids": bad}, "instead of token ids") for bad in NO_IDS],
        *[({"last": {"output_ids": bad}}, "instead of token ids") for bad in NO_IDS],
        (LONG, f"more than {MOST_DRAFTS} tokens"),
    ],
)
def test_a_request_that_cannot_be_replayed_is_left_out_and_told(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    odd = GOOD | {"prompt": "odd"} | change
    run = read_run(run_of(tmp_path, GOOD, odd))
    assert [request.name for request in run.requests] == ["good"]
    assert run.notes[0].startswith("requests left out: odd: ")
    assert why in run.notes[0]
    with pytest.raises(WorkbenchError, match=why) as caught:
        read_run(run_of(tmp_path, odd))
    assert caught.value.next_step


@pytest.mark.parametrize("chunks", [5, "abc", {"a": 1}, None, [True, 5], [1.0, 2.0], [[None]]])
def test_chunks_that_are_none_are_no_rounds(chunks: Any, tmp_path: Path) -> None:
    run = read_run(run_of(tmp_path, GOOD, GOOD | {"chunks": chunks}))
    assert len(run.requests) == 1
    assert run.notes == ("1 requests have no rounds: answered with one token, or not at all",)


@pytest.mark.parametrize("bad", [[-5, 3], ["a"], [10**18], [1] * 10**4, [math.nan], [True], 7, {}])
def test_a_histogram_of_a_request_that_is_none_is_told(bad: Any, tmp_path: Path) -> None:
    last = {"output_ids": [5, 6, 7, 8], "meta_info": {"spec_accept_histogram": bad}}
    run = read_run(run_of(tmp_path, GOOD | {"last": last}))
    assert run.requests[0].histogram == ()
    assert run.notes == ("1 requests have an invalid histogram",)


def test_meta_info_and_last_of_another_type_hold_nothing(tmp_path: Path) -> None:
    last = {"output_ids": [5, 6, 7, 8], "meta_info": []}
    assert len(read_run(run_of(tmp_path, GOOD | {"last": last})).requests) == 1
    assert len(read_run(run_of(tmp_path, GOOD, GOOD | {"last": []})).requests) == 1


# The launch

FULL = ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "4", "--dtype", "bfloat16"]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        (
            ["--speculative-num-steps", "many"],
            "--speculative-num-steps 'many' is not a number: 3 is taken",
        ),
        (["--speculative-num-steps", "٤"], "is not a number"),
        (["--speculative-num-steps", "²"], "is not a number"),
        (["--speculative-algorithm", "NEXTN"], "launched as NEXTN, which SGLang runs as EAGLE"),
        (["--dtype", "int4"], "--dtype 'int4' is not known: computed in float32"),
    ],
)
def test_what_a_launch_says_and_nobody_understands_is_told(
    more: list[str], note: str, tmp_path: Path
) -> None:
    launch = read_launch(run_of(tmp_path, command=[*FULL, *more]))
    assert len(launch.notes) == 1
    assert note in launch.notes[0]
    assert read_launch(run_of(tmp_path, command=FULL)).notes == ()


def test_a_launch_that_says_nothing_is_told(tmp_path: Path) -> None:
    notes = read_launch(run_of(tmp_path, command=[])).notes
    assert notes == (
        "the launch names no --speculative-num-steps: 3 are taken",
        "the launch names no --speculative-algorithm: EAGLE3 is taken",
    )


@pytest.mark.parametrize("version", [5, ["0.5.14"], {"a": 1}, "", None])
def test_a_version_that_is_none_is_not_known(version: Any, tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_text(
        json.dumps({"command": FULL, "versions": {"sglang": version}})
    )
    assert read_launch(tmp_path).engine == ""


@pytest.mark.parametrize(
    "more",
    [
        ["--speculative-num-steps", "0"],
        ["--speculative-num-steps", "9" * 5000],
        ["--speculative-eagle-topk=0"],
        ["--speculative-eagle-topk", "9000"],
        ["--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "1"],
    ],
)
def test_a_launch_of_no_draft_tree_is_refused(more: list[str], tmp_path: Path) -> None:
    folder = run_of(tmp_path, GOOD, command=[*FULL, *more])
    with pytest.raises(WorkbenchError, match="launches no draft tree"):
        workbench.replay(TARGET, DRAFT, evidence=folder)


@pytest.mark.parametrize("text", ["{", "\xff\xfe", ""])
def test_a_launch_that_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(WorkbenchError, match="is not JSON"):
        read_launch(tmp_path)


def test_the_rounds_of_another_drafter_are_not_replayed(tmp_path: Path) -> None:
    folder = run_of(tmp_path, GOOD, command=["--speculative-algorithm", "NGRAM"])
    with pytest.raises(WorkbenchError, match="--speculative-algorithm 'NGRAM'"):
        workbench.replay(TARGET, DRAFT, evidence=folder)
    with pytest.raises(WorkbenchError, match="--speculative-algorithm 'NGRAM'"):
        read_expected(tmp_path, 3)
    (tmp_path / "requests.jsonl").unlink()
    log = "server_args=ServerArgs(speculative_algorithm='STANDALONE')\naccept len: 1.00, accept rate: 0.00\n"
    (tmp_path / "server.log").write_text(log)
    with pytest.raises(WorkbenchError, match="--speculative-algorithm 'STANDALONE'"):
        workbench.replay(TARGET, DRAFT, evidence=tmp_path / "server.log")


def test_a_launch_leaves_the_dtype_to_the_target(tmp_path: Path) -> None:
    replays = [
        workbench.replay(
            TARGET, DRAFT, evidence=run_of(tmp_path, GOOD, command=[*FULL, "--dtype", dtype])
        )
        for dtype in ("bfloat16", "auto")
    ]
    assert replays[0].trial is not None
    assert replays[1].trial is not None
    assert replays[1].trial.launch.dtype == replays[0].trial.launch.dtype == "bfloat16"


# Hidden states


def hidden(rows: Any, **changes: Any) -> dict[str, Any]:
    answer = {"output_ids": [500, 501, 502], "meta_info": {"hidden_states": rows}}
    return {"prompt": "one", "input_ids": [300, 301, 400], "answer": answer} | changes


@pytest.mark.parametrize(
    "line",
    [
        *map(
            hidden,
            (
                [],
                [[1.0, 2.0], [1.0]],
                ["a"],
                [None],
                [[[[1.0]]]],
                [5],
                {"a": 1},
                [[int("9" * 400)]],
            ),
        ),
        hidden([[1.0]] * 5, answer="text"),
        hidden([[1.0]] * 5, answer=[]),
        hidden([[1.0]] * 5, answer={"meta_info": []}),
        hidden([[1.0]] * 5, input_ids=[]),
        hidden([[1.0]] * 5, input_ids=None),
    ],
)
def test_an_answer_without_features_is_left_out_and_told(
    line: dict[str, Any], tmp_path: Path
) -> None:
    good = hidden([[0.5, 1.5]] * 5, prompt="good")
    write_lines(tmp_path / "hidden_states.jsonl", [good, line])
    found, notes = hidden_of(tmp_path)
    assert [one.name for one in found] == ["good"]
    assert len(notes) == 1
    assert notes[0].startswith("answers with hidden states left out: ")
    write_lines(tmp_path / "hidden_states.jsonl", [line])
    with pytest.raises(WorkbenchError, match="left out"):
        read_facts(tmp_path)


def test_rows_of_a_prompt_come_as_a_list_and_others_one_by_one(tmp_path: Path) -> None:
    write_lines(tmp_path / "hidden_states.jsonl", [hidden([[[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]])])
    (one,) = read_facts(tmp_path).recorded
    assert one.rows.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("width", [700, 512])
def test_features_that_cannot_be_the_targets_are_told(width: int, tmp_path: Path) -> None:
    write_lines(tmp_path / "hidden_states.jsonl", [hidden([[0.1] * width] * 5)])
    replay = workbench.replay(TARGET, DRAFT, evidence=tmp_path)
    (found,) = (f for f in replay.findings if f.code == "features_of_another")
    assert f"one is {width} wide, layers 2, 6, 9 of this target are 768" in found.evidence_for[0]


def test_features_that_are_not_the_targets_are_told(tmp_path: Path) -> None:
    write_lines(tmp_path / "hidden_states.jsonl", [hidden([[0.1] * 768] * 5)])
    codes = {f.code for f in workbench.replay(TARGET, DRAFT, evidence=tmp_path).findings}
    assert "numbers_part" in codes
    write_lines(tmp_path / "hidden_states.jsonl", [hidden([[math.nan] * 768] * 5)])
    codes = {f.code for f in workbench.replay(TARGET, DRAFT, evidence=tmp_path).findings}
    assert "no_numbers" in codes


def test_features_that_are_not_compared_are_told(tmp_path: Path) -> None:
    write_lines(tmp_path / "hidden_states.jsonl", [hidden([[0.1] * 768] * 5)])
    run_of(tmp_path, GOOD, command=FULL)
    replay = workbench.replay(TARGET, DRAFT, evidence=tmp_path)
    (found,) = (f for f in replay.findings if f.code == "recorded_unused")
    assert found.detail == "Their texts are not among those that were replayed."
    run_of(tmp_path, GOOD, command=[*FULL, "--speculative-algorithm", "EAGLE"])
    replay = workbench.replay(TARGET, DRAFT, evidence=tmp_path)
    (found,) = (f for f in replay.findings if f.code == "recorded_unused")
    assert "as eagle the draft reads" in found.detail.lower()


# Tensors


def test_tensors_of_junk_are_refused(tmp_path: Path) -> None:
    (tmp_path / "memory.safetensors").write_bytes(b"junkjunkjunk")
    with pytest.raises(WorkbenchError, match="holds no tensors"):
        read_tensors(tmp_path, "memory")
    (tmp_path / "hooks.safetensors.xz").write_bytes(b"junk")
    with pytest.raises(WorkbenchError, match="cannot read"):
        read_tensors(tmp_path, "hooks")


def sample(**changes: Any) -> dict[str, Any]:
    return {"input_ids": torch.arange(9), "aux_hidden_state": torch.zeros(9, 6)} | changes


ODD = {
    "a last layer that is a number": sample(hidden_state=5),
    "a last layer without rows": sample(hidden_state=torch.tensor(1.0)),
    "a last layer of fewer rows": sample(hidden_state=torch.zeros(8, 2)),
    "features on no device": sample(aux_hidden_state=torch.zeros(9, 6, device="meta")),
    "sparse features": sample(aux_hidden_state=torch.zeros(9, 6).to_sparse()),
    "one number for all features": sample(aux_hidden_state=torch.zeros(1).expand(9, 6)),
    "one number for all ids": sample(input_ids=torch.zeros(1, dtype=torch.long).expand(9)),
    "features of no width": sample(aux_hidden_state=torch.zeros(9, 0)),
    "whole features": sample(aux_hidden_state=torch.zeros(9, 6, dtype=torch.int8)),
    "ids that are truths": sample(input_ids=torch.ones(9, dtype=torch.bool)),
    "one id": sample(input_ids=torch.tensor(3)),
    "a mask of another length": sample(loss_mask=torch.ones(5)),
    "a mask on no device": sample(loss_mask=torch.ones(9, device="meta")),
}


@pytest.mark.parametrize("name", ODD)
def test_a_sample_that_is_none_is_left_out_and_told(name: str, tmp_path: Path) -> None:
    torch.save(ODD[name], tmp_path / "odd.ckpt")
    with pytest.raises(WorkbenchError, match="is not a sample of hidden states") as caught:
        read_facts(tmp_path)
    assert caught.value.next_step
    torch.save(sample(), tmp_path / "good.ckpt")
    facts = read_facts(tmp_path)
    assert [one.name for one in facts.recorded] == ["good"]
    assert facts.notes[0].startswith("samples left out: odd.ckpt: ")


def test_a_sample_of_another_width_is_left_out_and_told(tmp_path: Path) -> None:
    for number, width in enumerate((6, 9, 6)):
        torch.save(sample(aux_hidden_state=torch.zeros(9, width)), tmp_path / f"{number}.ckpt")
    facts = read_facts(tmp_path)
    assert [one.name for one in facts.recorded] == ["0", "2"]
    assert facts.notes == ("samples left out: 1: its rows are 9 wide, those of most are 6",)


def test_so_many_bytes_of_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        torch.save(sample(), tmp_path / f"data_{number}.ckpt")
    monkeypatch.setattr("workbench.speculation.evidence.reading._MOST_SAMPLED", 1)
    facts = read_facts(tmp_path)
    assert (len(facts.recorded), facts.notes) == (1, ("2 more samples were not read",))


# A dump


@pytest.mark.parametrize(
    "more",
    [
        {"model.forward_batch_info.positions": torch.tensor([2, 1 << 60])},
        {"model.forward_batch_info.positions": torch.tensor([2, -1])},
        {"model.forward_batch_info.positions": torch.tensor([2.0, 3.0])},
        {"model.forward_batch_info.positions": torch.tensor([2])},
        {"model.forward_batch_info.input_ids": torch.tensor([5.0, 6.0])},
        {"model.forward_batch_info.input_ids": torch.tensor([5, 6]).to_sparse()},
        {"model.forward_batch_info.input_ids": torch.tensor([5, 1 << 40])},
    ],
)
def test_a_text_ends_where_a_pass_of_its_dump_is_none(more: dict[str, Any], tmp_path: Path) -> None:
    dump(tmp_path, 0, [9, 8], 0)
    dump(tmp_path, 1, [5, 6], 2)
    dump(tmp_path, 2, [5, 6], 3)
    dump(tmp_path, 3, [5, 6], 4, **more)
    dump(tmp_path, 4, [5, 6], 5)
    facts = read_facts(tmp_path)
    assert [one.tokens for one in facts.recorded] == [(9, 8, 5, 5)]
    assert facts.notes[0].startswith("passes left out: Pass00003.pt: ")


def test_layers_of_different_widths_are_no_text(tmp_path: Path) -> None:
    odd = [torch.zeros(2, 7), torch.zeros(2, 7)]
    dump(tmp_path, 0, [9, 8], 0)
    dump(tmp_path, 1, [5, 6], 2, layers=2, **{"model.layers.2.input_layernorm": odd})
    dump(tmp_path, 2, [5, 6], 3)
    with pytest.raises(WorkbenchError, match="1 texts of the dump have no round"):
        read_facts(tmp_path)


# Counts


def test_numbers_of_other_scripts_and_out_of_reach_are_none(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("accept len: ٣.٠٠, accept rate: ٠.٢\n")
    with pytest.raises(WorkbenchError, match="holds no known evidence"):
        read_facts(log)
    log.write_text("accept len: 9000.00, accept rate: 0.20\naccept len: 2.00, accept rate: 0.20\n")
    facts = read_facts(log)
    assert facts.logged is not None
    assert (facts.logged.lines, facts.logged.accept_length) == (1, 2.0)
    assert facts.notes == ("1 lines of the log have an accept len that a round cannot reach",)


def test_steps_and_chunks_that_are_none_are_told(tmp_path: Path) -> None:
    steps = [{"per_step_accepted": bad} for bad in ([-1, "a"], [4095], 5, [0, 2])]
    facts = read_facts(write_lines(tmp_path / "vllm.jsonl", steps))
    assert facts.tally is not None
    assert facts.tally.histogram == (1, 0, 1)
    assert facts.notes == ("3 answers have invalid steps",)
    chunks = [{"meta_info": {"id": 1, "completion_tokens": n}} for n in (1, 3, 9000, True, 1.5)]
    chunks += [{"meta_info": {"completion_tokens": n}} for n in (2, 5)]
    facts = read_facts(write_lines(tmp_path / "chunks.jsonl", chunks))
    assert facts.tally is not None
    assert facts.tally.histogram == (0, 1)
    assert facts.notes == ("1 chunks have more tokens than a round, and are left out",)


# Pipes and devices


@pytest.mark.parametrize(
    "name",
    [
        "hs_0.safetensors", "x.ckpt", "requests.jsonl", "launch.json", "server.log", "memory.safetensors",
        "hidden_states.jsonl", "TP0_PP0_Rank0_pid1/Pass00000.pt",
    ],
)  # fmt: skip
def test_a_pipe_is_no_evidence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(WorkbenchError, match="holds no known evidence"):
        read_facts(tmp_path)
    with pytest.raises(WorkbenchError):
        read_facts(tmp_path / name)


# A target of which three tensors are read


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.embed_tokens.weight", torch.zeros(8)),
        ("model.embed_tokens.weight", torch.zeros(0, 8)),
        ("model.embed_tokens.weight", torch.zeros(8, 8, dtype=torch.int8)),
        ("model.norm.weight", torch.zeros(8, 1)),
        ("model.norm.weight", torch.zeros(7)),
        ("lm_head.weight", torch.zeros(9, 7)),
        ("num_hidden_layers", "x"),
        ("rms_norm_eps", "abc"),
        ("tie_word_embeddings", "no"),
    ],
)
def test_a_target_of_odd_parts_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    config: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8}
    tensors = {
        "model.embed_tokens.weight": torch.zeros(8, 8),
        "model.norm.weight": torch.ones(8),
        "lm_head.weight": torch.zeros(8, 8),
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    good = RecordedTarget(open_checkpoint(tmp_path), Numerics("float32"))
    assert (good.layers, good.vocabulary, good.hidden) == (2, 8, 8)
    if "weight" in name:
        save_file(tensors | {name: value}, tmp_path / "model.safetensors")
    else:
        (tmp_path / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(WorkbenchError) as caught:
        RecordedTarget(open_checkpoint(tmp_path), Numerics("float32"))
    assert caught.value.next_step
