"""Acceptance as vLLM, SGLang and TensorRT-LLM print it: counts, profile, and what each cannot tell."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest

import workbench
from tests.conftest import ROOT
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.facts import Facts
from workbench.speculation.evidence.reading import read_facts

TARGET, DRAFT = ROOT / "data/incident/target", ROOT / "data/incident/drafts/specforge"
LINE = (
    "(EngineCore pid=7) INFO 11-30 02:11:04 [metrics.py:120] SpecDecoding metrics: "
    "Mean acceptance length: {:.2f}, Accepted throughput: 3.80 tokens/s, Drafted throughput: 379.60 "
    "tokens/s, Accepted: {} tokens, Drafted: {} tokens, Per-position acceptance rate: {}, Avg Draft "
    "acceptance rate: 1.0%\n"
)  # fmt: skip


def vllm(rounds: int, *reaching: int) -> str:
    """One interval of vLLM's log: so many rounds, and how many of them reach each position."""
    rates = ", ".join(f"{n / rounds:.3f}" for n in reaching)
    return LINE.format(1 + sum(reaching) / rounds, sum(reaching), rounds * len(reaching), rates)


def of(text: str, folder: Path, name: str = "server.log") -> Facts:
    (folder / name).write_text(text)
    return read_facts(folder / name)


def test_intervals_of_vllm_are_summed_before_they_are_divided(tmp_path: Path) -> None:
    """The mean of the two lines would be 2.00; the rounds of the longer interval count more."""
    text = "vLLM API server version 0.32.0\n" + vllm(100, 100, 60, 40, 0) + vllm(900, 0, 0, 0, 0)
    facts = of(text, tmp_path)
    assert facts.kind == "counts"
    assert facts.tally is not None
    assert (facts.tally.rounds, facts.tally.accepted) == (1000, 200)
    assert facts.tally.per_position(4) == (0.1, 0.06, 0.04, 0.0)
    assert facts.launch is not None
    assert (facts.launch.engine, facts.launch.steps) == ("vllm==0.32.0", 4)
    assert any("sampled requests" in note for note in facts.notes)


def test_rates_with_three_digits_add_up_to_what_was_accepted(tmp_path: Path) -> None:
    facts = of(vllm(1853, 731, 404, 211, 97), tmp_path)
    assert facts.tally is not None
    assert facts.tally.accepted == 731 + 404 + 211 + 97
    assert facts.tally.rounds == 1853


def test_a_line_whose_counts_do_not_go_together_is_left_out(tmp_path: Path) -> None:
    odd = LINE.format(1.0, 5, 13, "0.100, 0.000, 0.000, 0.000")  # 13 drafted are no rounds of four
    facts = of(vllm(100, 50, 0, 0, 0) + odd, tmp_path)
    assert facts.tally is not None
    assert facts.tally.rounds == 100
    assert any("1 of 2 lines" in note for note in facts.notes)
    with pytest.raises(WorkbenchError, match="holds no known evidence"):
        of(odd, tmp_path)


@pytest.mark.parametrize("method", ["ngram", "medusa"])
def test_a_server_that_drafts_without_eagle_is_refused_by_name(method: str, tmp_path: Path) -> None:
    log = tmp_path / "v.log"
    log.write_text(
        f"non-default args: {{'speculative_config': {{'method': '{method}'}}}}\n"
        + vllm(99, 5, 0, 0, 0)
    )
    with pytest.raises(WorkbenchError, match=method.upper()):
        workbench.replay(TARGET, DRAFT, evidence=log, expected=2.39)


def test_counters_of_vllm_are_rounds_of_every_engine(tmp_path: Path) -> None:
    lines = []
    for engine in ("0", "1"):
        labels = f'engine="{engine}",model_name="t"'
        lines += [
            f"vllm:spec_decode_num_drafts_total{{{labels}}} 500.0",
            f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.79e+09",
            f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} 300.0",
        ]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{k}"}} {n}.0'
            for k, n in enumerate((200, 100))
        ]
    facts = of("\n".join(lines) + "\n", tmp_path, "metrics.prom")
    assert facts.tally is not None
    assert (facts.tally.rounds, facts.tally.accepted) == (1000, 600)
    assert facts.tally.per_position(2) == (0.4, 0.2)
    assert any("difference of two readings" in note for note in facts.notes)


def gauges(length: float, rate: float, **more: float) -> str:
    values = {"spec_accept_length": length, "spec_accept_rate": rate, **more}
    return "".join(f'sglang:{name}{{tp_rank="0"}} {value}\n' for name, value in values.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            gauges(1.0, 0.0, spec_num_steps=4, spec_num_draft_tokens=5),
            "accepted of proposed drafts",
        ),
        (
            gauges(2.4, 0.35, spec_num_steps=4, spec_num_draft_tokens=5),
            "accepted of proposed drafts",
        ),
        (
            gauges(1.0, 0.2),
            "over 5 draft tokens (SGLang 0.5.5 to 0.5.10): none of the drafts is accepted",
        ),
        (gauges(2.0, 0.4), "over 5 draft tokens (SGLang 0.5.5 to 0.5.10)"),
        (gauges(2.4, 0.35), "depends on the release"),
    ],
)
def test_sglangs_rate_is_read_by_its_release(text: str, said: str, tmp_path: Path) -> None:
    facts = of(text, tmp_path, "metrics")
    assert facts.logged is not None
    assert any(said in note for note in facts.notes)
    assert any("last interval alone" in note for note in facts.notes)
    found = workbench.replay(TARGET, DRAFT, evidence=tmp_path / "metrics", expected=2.39)
    assert found.ok is None  # one interval, of unknown length


@pytest.mark.parametrize(("block", "older"), [("AL", False), ("AR", True)])
def test_trtllms_averages_are_over_requests(block: str, older: bool, tmp_path: Path) -> None:
    text = "".join(
        f"[{block}] {name}: {value:.2f}\n"
        for name, value in (
            ("MINIMUM", 1.0),
            ("MAXIMUM", 1.3),
            ("AVERAGE", 1.04),
            ("P50    ", 1.02),
        )
    )
    facts = of(text + "" if older else text + "[DAR] AVERAGE: 0.01\n", tmp_path)
    assert facts.logged is not None
    assert (facts.logged.accept_length, facts.logged.highest) == (1.04, 1.3)
    assert any("not how many requests" in note for note in facts.notes)
    assert any("holds acceptance lengths" in note for note in facts.notes) is older


PREFIXES = {
    "docker": "sglang-1  | {}", "ray": "(RayServe pid=9, ip=10.0.0.2) {}",
    "kubernetes": "2026-11-30T02:11:04.1Z stdout F {}",
    "docker json": '{{"log":"{}\\n","stream":"stderr","time":"2026-11-30T02:11:04Z"}}',
}  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
def test_sglangs_log_is_read_behind_any_prefix_and_packed(
    prefix: str, packed: str, tmp_path: Path
) -> None:
    line = "[2026-11-30 02:11:04 TP0] Decode batch, #running-req: 1, accept len: 1.50, accept rate: 0.12"
    text = "".join(f"{PREFIXES[prefix].format(line)}\n" for _ in range(6))
    file = tmp_path / f"server.log{packed}"
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed]
    file.write_bytes(pack(text.encode()))
    facts = read_facts(file)
    assert facts.logged is not None
    assert (facts.logged.lines, facts.logged.accept_length, facts.logged.accept_rate) == (
        6,
        1.5,
        0.12,
    )


def test_the_servers_own_answer_has_its_mean_and_its_launch(tmp_path: Path) -> None:
    info = {
        "model_path": "t", "speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "d",
        "speculative_num_steps": 4, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 5,
        "version": "0.5.14", "internal_states": [{"avg_spec_accept_length": 1.25}],
    }  # fmt: skip
    (tmp_path / "info.json").write_text(json.dumps(info))
    facts = read_facts(tmp_path / "info.json")
    assert facts.logged is not None
    assert facts.logged.accept_length == 1.25
    assert facts.launch is not None
    assert (facts.launch.engine, facts.launch.steps, facts.launch.algorithm) == (
        "sglang==0.5.14",
        4,
        "EAGLE3",
    )
    assert any("since the server began" in note for note in facts.notes)


def test_a_text_without_acceptance_is_no_evidence(tmp_path: Path) -> None:
    for text in (
        "",
        "vllm:num_requests_running 4\n",
        "[DT] AVERAGE: 182.40\n",
        "sglang:spec_accept_length NaN\n",
    ):
        with pytest.raises(WorkbenchError, match="holds no known evidence"):
            of(text, tmp_path)
