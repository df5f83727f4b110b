"""Evidence of every form: built here as its writers do, or recorded from an engine; and what is hostile."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.reading import MOST_SAMPLES, read_facts
from workbench.speculation.model.recorded import find_checkpoint

torch = pytest.importorskip("torch")
INCIDENT = ROOT / "data" / "incident"
RUNS = INCIDENT / "runs"


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


# Counts


def answer(number: int, histogram: Any, name: str = "spec_accept_histogram") -> dict[str, Any]:
    return {"text": "x", "meta_info": {"id": f"a{number}", name: histogram}}


def test_histograms_of_answers_are_added_up(tmp_path: Path) -> None:
    lines = [
        answer(1, [3, 2, 1]),
        answer(2, [4, 0, 0, 5], "spec_correct_drafts_histogram"),
        {"wrapped": {"answer": answer(3, [1])}},
        {"text": "no speculation", "meta_info": {"id": "a4"}},
    ]
    facts = read_facts(write_lines(tmp_path / "answers.jsonl", lines))
    assert facts.kind == "counts"
    assert facts.tally is not None
    assert facts.tally.histogram == (8, 2, 1, 5)


def test_the_chunks_of_one_answer_count_once(tmp_path: Path) -> None:
    lines = [answer(1, [1]), answer(1, [1, 1]), answer(1, [2, 1])]
    facts = read_facts(write_lines(tmp_path / "chunks.jsonl.gz", lines))
    assert facts.tally is not None
    assert facts.tally.histogram == (2, 1)


@pytest.mark.parametrize(
    "bad", [[-1, 2], [1.5], ["1"], [[1]], {"0": 3}, [1 << 41], [0] * 5000, True]
)
def test_a_histogram_that_is_none_is_left_out_and_told(bad: Any, tmp_path: Path) -> None:
    facts = read_facts(write_lines(tmp_path / "a.jsonl", [answer(1, bad), answer(2, [5, 1])]))
    assert facts.tally is not None
    assert facts.tally.histogram == (5, 1)
    assert facts.notes == ("1 answers have an invalid histogram",)


def test_real_streamed_chunks_give_the_engines_rounds(tmp_path: Path) -> None:
    """Without its histogram each chunk is a round, but for the last ones, which the length cut."""
    folder = RUNS / "sglang-0.5.14" / "speculators-tree"
    lines = [
        json.loads(x)
        for x in gzip.decompress((folder / "chunks.jsonl.gz").read_bytes()).splitlines()
    ]
    told = read_facts(write_lines(tmp_path / "told.jsonl", lines)).tally
    for line in lines:
        for name in ("spec_accept_histogram", "spec_correct_drafts_histogram"):
            line["meta_info"].pop(name, None)
    facts = read_facts(write_lines(tmp_path / "chunks.jsonl", lines))
    assert facts.form == "streamed chunks"
    assert facts.tally is not None
    assert told is not None
    assert facts.tally.rounds == told.rounds
    assert (
        0 <= told.accepted - facts.tally.accepted <= 4 * len({x["meta_info"]["id"] for x in lines})
    )


def test_vllms_steps_are_counted(tmp_path: Path) -> None:
    steps = {"per_step_accepted": [0, 2, 3, 0], "per_step_drafted": [3, 3, 3, 3]}
    file = tmp_path / "vllm.json"
    file.write_text(json.dumps([{"id": 1, "metrics": {"spec_decode": steps}}, {"id": 2}]))
    facts = read_facts(file)
    assert facts.form == "per-request metrics of vLLM"
    assert facts.tally is not None
    assert facts.tally.histogram == (2, 0, 1, 1)


def test_a_real_log_is_read_with_its_launch() -> None:
    facts = read_facts(RUNS / "sglang-0.5.10" / "incident" / "server.log")
    assert facts.kind == "counts"
    assert facts.tally is None
    assert facts.logged is not None
    assert facts.logged.accept_length == 1.0
    assert facts.logged.accept_rate == pytest.approx(0.2)
    assert facts.launch is not None
    assert (facts.launch.algorithm, facts.launch.steps, facts.launch.draft_tokens) == (
        "EAGLE3",
        4,
        5,
    )


def test_a_log_without_acceptance_is_no_evidence(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text("Decode batch, #running-req: 1\naccept len: many, accept rate: 0.2\n")
    with pytest.raises(WorkbenchError, match="holds no known evidence"):
        read_facts(file)


# Features


def test_speculators_samples(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    hidden = torch.randn(6, 4, 8)
    tensors = {
        "token_ids": torch.arange(6),
        "hidden_states": hidden.bfloat16(),
        "loss_mask": torch.tensor([0, 0, 1, 1, 1, 1]),
    }
    (tmp_path / "hidden_states").mkdir()
    save_file(tensors, tmp_path / "hidden_states" / "hs_0.safetensors")
    facts = read_facts(tmp_path)
    (one,) = facts.recorded
    assert facts.kind == "features"
    assert (one.tokens, one.prompt) == ((0, 1, 2, 3, 4, 5), 2)
    assert torch.equal(one.rows, hidden[:, :3].bfloat16().float().flatten(1))
    assert one.last is not None
    assert torch.equal(one.last, hidden[:, 3].bfloat16().float())


def test_specforge_samples(tmp_path: Path) -> None:
    aux, last = torch.randn(1, 5, 24), torch.randn(1, 5, 8)
    sample = {
        "input_ids": torch.arange(5),
        "loss_mask": torch.tensor([0, 1, 1, 1, 1]),
        "hidden_state": last,
        "aux_hidden_state": aux,
    }
    torch.save(sample, tmp_path / "data_0.ckpt")
    (one,) = read_facts(tmp_path).recorded
    assert torch.equal(one.rows, aux[0])
    assert one.last is not None
    assert torch.equal(one.last, last[0])
    assert one.prompt == 1
    assert read_facts(tmp_path / "data_0.ckpt").recorded[0].tokens == (0, 1, 2, 3, 4)


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


def test_a_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"input_ids": Bomb()}, "bomb.ckpt")
    (tmp_path / "plain.ckpt").write_bytes(pickle.dumps(Bomb(), protocol=2))
    for name in ("bomb.ckpt", "plain.ckpt"):
        with pytest.raises(WorkbenchError, match="is not a sample of hidden states"):
            read_facts(name)
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    "sample",
    [
        [1, 2],
        {"input_ids": torch.arange(5)},
        {"input_ids": torch.arange(5), "aux_hidden_state": torch.zeros(4, 6)},
        {"input_ids": torch.arange(5), "aux_hidden_state": torch.arange(5)},
        {"input_ids": torch.full((5,), -1), "aux_hidden_state": torch.zeros(5, 6)},
        {"input_ids": torch.zeros(5), "aux_hidden_state": torch.zeros(5, 6)},
        {"input_ids": "text", "aux_hidden_state": torch.zeros(5, 6)},
    ],
)
def test_a_sample_that_does_not_fit_is_refused(sample: Any, tmp_path: Path) -> None:
    torch.save(sample, tmp_path / "odd.ckpt")
    with pytest.raises(WorkbenchError, match="is not a sample of hidden states"):
        read_facts(tmp_path / "odd.ckpt")


def test_a_torn_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hs_0.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(WorkbenchError, match="is not a sample of hidden states"):
        read_facts(tmp_path)


def test_only_so_many_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.speculation.evidence.reading.MOST_SAMPLES", 2)
    sample = {"input_ids": torch.arange(3), "aux_hidden_state": torch.zeros(3, 6)}
    for number in range(3):
        torch.save(sample, tmp_path / f"data_{number}.ckpt")
    facts = read_facts(tmp_path)
    assert len(facts.recorded) == 2
    assert facts.notes == ("1 more samples were not read",)
    assert MOST_SAMPLES > 2


def test_real_hidden_states_come_with_their_rounds() -> None:
    facts = read_facts(RUNS / "sglang-0.5.14" / "speculators-hooks")
    assert facts.kind == "run"
    assert len(facts.recorded) == 3
    for one in facts.recorded:
        assert one.rows.shape == (len(one.tokens) - 1, 3 * 256)
        assert one.starts
        assert one.emitted
        assert one.starts[0] == one.prompt + 1
        assert one.starts[-1] + one.emitted[-1] == len(one.tokens)


# A tensor dump


def dump(
    folder: Path, number: int, tokens: list[int], first: int, layers: int = 3, **more: Any
) -> None:
    """One pass as SGLang's TensorDumper writes it."""
    places = torch.arange(first, first + len(tokens))
    found: dict[str, Any] = {
        "model.forward_batch_info.input_ids": torch.tensor(tokens),
        "model.forward_batch_info.positions": places,
        "model.forward_batch_info.seq_lens": torch.tensor([first or len(tokens)]),
        "model.layers.0.input_layernorm": torch.zeros(len(tokens), 4),
        "logits_processor": torch.zeros(1, 9),
        **more,
    }
    for layer in range(1, layers):
        residual = (places[:, None] * 10 + layer).expand(-1, 4).float()
        found[f"model.layers.{layer}.input_layernorm"] = [torch.zeros_like(residual), residual]
    rank = folder / "TP0_PP0_Rank0_pid7"
    rank.mkdir(parents=True, exist_ok=True)
    torch.save(found, rank / f"Pass{number:05d}.pt")


def test_a_dump_gives_text_features_and_rounds(tmp_path: Path) -> None:
    dump(tmp_path, 0, [1, 2, 3], 0)
    dump(tmp_path, 1, [2, 3, 4], 0, layers=1, **{"model.fc": torch.zeros(3, 4)})  # the draft's own
    dump(tmp_path, 2, [4, 50, 60], 3)  # two drafts are verified: 50 is accepted, 60 is not
    dump(tmp_path, 3, [6, 70, 80], 5)  # nothing
    dump(tmp_path, 4, [7, 90, 91], 6)
    (one,) = read_facts(tmp_path).recorded
    assert one.tokens == (1, 2, 3, 4, 50, 6, 7)
    assert one.prompt == 3
    assert one.starts == (4, 6)
    assert one.emitted == (2, 1)
    assert one.layers == (1, 2)
    assert one.rows[4].tolist() == [41.0] * 4 + [42.0] * 4


def test_a_new_prompt_in_a_dump_is_another_text(tmp_path: Path) -> None:
    for number, first in enumerate((0, 2, 3)):
        dump(tmp_path, number, [9, 8] if not first else [5, 6], first)
    for number, first in enumerate((0, 2, 3), 3):
        dump(tmp_path, number, [3, 3] if not first else [4, 4], first)
    texts = [one.tokens for one in read_facts(tmp_path).recorded]
    assert texts == [(9, 8, 5, 5), (3, 3, 4, 4)]


def test_a_dump_of_a_batch_is_not_taken_apart(tmp_path: Path) -> None:
    dump(tmp_path, 0, [1, 2], 0, **{"model.forward_batch_info.seq_lens": torch.tensor([1, 1])})
    with pytest.raises(WorkbenchError, match="holds no known evidence"):
        read_facts(tmp_path)


# Places


def test_a_place_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="there is no evidence at"):
        read_facts(tmp_path / "nothing")
    with pytest.raises(WorkbenchError, match="holds no known evidence"):
        read_facts(tmp_path)
    (tmp_path / "odd.json").write_text("{not json")
    with pytest.raises(WorkbenchError, match="is not JSON"):
        read_facts(tmp_path)


def test_the_target_is_found_near_the_evidence_and_nowhere_else(tmp_path: Path) -> None:
    facts = read_facts(RUNS / "sglang-0.5.14" / "speculators-hooks")
    assert find_checkpoint(facts, "target") == INCIDENT / "target"
    assert find_checkpoint(facts, "../../target") is None
    assert find_checkpoint(facts, "no-such") is None
    assert find_checkpoint(facts, "a\0b") is None
    assert find_checkpoint(facts, "") is None
    assert find_checkpoint(facts, str(INCIDENT / "target")) == INCIDENT / "target"
