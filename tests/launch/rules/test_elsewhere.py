"""Launches of vLLM and TensorRT-LLM: each refusal with a twin on the other side of its border."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench
from workbench.facts import rows
from workbench.launch.rules.other_options import options_of, read

V = "0.14.0"
TARGET, DRAFT = "data/incident/target", "data/incident/drafts/specforge"
CONFIG = {"method": "eagle3", "model": DRAFT, "num_speculative_tokens": 3}


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def line(options: str = "", **config: object) -> str:
    chosen = {name: one for name, one in (CONFIG | config).items() if one is not None}
    return f"vllm serve {TARGET} --speculative-config '{json.dumps(chosen)}' {options}".strip()


@pytest.mark.parametrize("version", ["0.11.2", "0.14.0", "0.20.0", "0.32.0"])
def test_a_good_line_of_a_release_is_cleared(version: str) -> None:
    found = workbench.check(line("--tensor-parallel-size 2"), engine=f"vllm=={version}")
    assert found.ok is True, found.summary
    kinds = {item.kind for item in found.verdict.coverage.items}
    assert {"parser", "sum", "key", "parameter", "argument"} <= kinds


# Accused, and the same line one step to the other side.
@pytest.mark.parametrize(
    ("bad", "code", "moment", "good"),
    [
        (line("--tensor-paralel-size 2"), "argument_unknown", "parser", line("--tensor-parallel-size 2")),
        (line("--tensor-parallel-size two"), "argument_value", "parser", line("--tensor-parallel 2")),
        (line("--kv-cache-dtype fp5"), "argument_value", "parser", line("--kv_cache_dtype fp8")),
        (line("--enforce-eager=1"), "argument_switch", "parser", line("--enforce-eager")),
        (line("--tensor-parallel-size"), "argument_missing", "parser", line("-tp 2")),
        (line("--tensor-parallel-size 3"), "heads_and_ranks", "checks", line("--tensor-parallel-size 4")),
        (line("--max-model-len 513"), "context_too_long", "checks", line("--max-model-len 512")),
        (line(num_speculative_tokens=None), "tokens_missing", "checks", line(num_speculative_tokens=1)),
        (line(model=None), "model_missing", "checks", line()),
        (line("-tp 4", draft_tensor_parallel_size=2), "draft_tp", "checks",
         line("-tp 4", draft_tensor_parallel_size=1)),
        (line(max_model_len=2049), "draft_longer", "checks", line(max_model_len=512)),
    ],
)  # fmt: skip
def test_what_is_refused_and_its_twin(bad: str, code: str, moment: str, good: str) -> None:
    accused = workbench.check(bad, engine=f"vllm=={V}")
    assert accused.ok is False
    assert (accused.faults[0].code, accused.faults[0].moment) == (code, moment)
    twin = workbench.check(good, engine=f"vllm=={V}")
    assert twin.ok is True, twin.summary


def test_json_that_is_none_is_refused_by_the_parser() -> None:
    broken = line().replace('"method": "eagle3",', '"method": "eagle3"')
    found = workbench.check(broken, engine=f"vllm=={V}")
    assert found.first is not None
    assert (found.first.moment, found.first.code) == ("parser", "argument_value")


def test_keys_of_the_json_may_be_given_one_by_one() -> None:
    given = (
        f"vllm serve {TARGET} --speculative-config.method eagle3 --speculative-config.model {DRAFT}"
    )
    assert workbench.check(
        f"{given} --speculative-config.num_speculative_tokens 3", engine=f"vllm=={V}"
    ).ok
    assert workbench.check(given, engine=f"vllm=={V}").ok is False


def test_ngram_needs_no_draft_and_no_crossed_bounds() -> None:
    for low, ok in ((4, True), (5, False)):
        given = line(method="ngram", model=None, prompt_lookup_min=low, prompt_lookup_max=4)
        assert workbench.check(given, engine=f"vllm=={V}").ok is ok


def test_an_ordinary_draft_is_refused_by_old_releases_only() -> None:
    given = line(method=None, model=TARGET)
    assert workbench.check(given, engine="vllm==0.14.0").faults[0].code == "plain_draft"
    newer = workbench.check(given, engine="vllm==0.15.0")
    assert "plain_draft" not in {fault.code for fault in newer.faults}


@pytest.mark.parametrize("engine", ["vllm==0.14.1", "vllm==0.99.0", "vllm"])
def test_of_a_release_that_was_not_read_nothing_is_certain(engine: str) -> None:
    for given in (line(), line("--tensor-parallel-size 3"), line("--nope")):
        found = workbench.check(given, engine=engine)
        assert found.ok is None
        assert not [fault for fault in found.faults if fault.certain]


def test_what_is_not_known_of_a_line_is_open() -> None:
    for given in (
        line("--tensor-parallel-size $TP"),
        line("--max-model-len auto"),
        line(field_of_mine=1),
    ):
        assert workbench.check(given, engine=f"vllm=={V}").ok is None


def test_of_tensorrt_llm_only_sums_are_judged() -> None:
    bad = workbench.check(f"trtllm-serve {TARGET} --tp_size 3", engine="tensorrt-llm==1.1.0")
    assert bad.ok is False
    assert (bad.faults[0].code, bad.faults[0].moment) == ("heads_and_ranks", "load")
    assert bad.corrected.endswith("--tp_size 2")
    good = workbench.check(f"trtllm-serve {TARGET} --tp_size 2", engine="tensorrt-llm==1.1.0")
    assert good.ok is None
    assert not good.faults
    foreign = workbench.check(
        f"trtllm-serve {TARGET} --speculative-algorithm EAGLE3", engine="tensorrt-llm==1.1.0"
    )
    assert foreign.ok is None
    assert "--speculative-algorithm" in str([item.how for item in foreign.verdict.coverage.items])


def test_options_are_on_file_for_every_release_that_was_read() -> None:
    for release in rows.releases("vllm"):
        known = options_of(release)
        for name in ("--tensor-parallel-size", "-tp", "--max-model-len", "--no-enable-prefix-caching",
                     "--speculative-config", "--host", "--served-model-name", "--config"):  # fmt: skip
            assert name in known, (release, name)
        assert not read(
            ["model", "-tp", "2", "--host=0.0.0.0", "--no-enable-prefix-caching"], release
        ).refusals


@pytest.mark.parametrize(
    ("words", "sorts"),
    [
        (["m", "--served-model-name", "a", "b", "--seed", "1"], []),
        (["m", "-O3"], []),
        (["m", "--hf-token"], []),
        (["m", "other"], ["stray"]),
        (["m", "--enable"], ["ambiguous"]),
        (["m", "--download-dir", "None"], []),
        (["m", "--seed", "x"], ["value"]),
        (["m", "--dtype", "half"], []),
    ],
)
def test_words_are_read_as_vllm_reads_them(words: list[str], sorts: list[str]) -> None:
    assert [one.sort for one in read(words, V).refusals] == sorts
