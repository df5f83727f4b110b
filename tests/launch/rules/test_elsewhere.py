"""Launches of vLLM and TensorRT-LLM: each refusal with a twin on the other side of its border."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench
from workbench.facts import rows
from workbench.launch import holes
from workbench.launch.rules import click_options
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


def ruling(name: str, given: str, engine: str = f"vllm=={V}") -> tuple[str, str]:
    """Return the state of an item, with the code of its fault or how it was settled."""
    found = workbench.check(given, engine=engine)
    item = next(item for item in found.verdict.coverage.items if item.name == name)
    return item.state, found.faults[0].code if item.state == "wrong" else item.how


NUMBER_NOT_KNOWN = (
    "there is no num_speculative_tokens, and whether the draft's config gives it is not known"
)


@pytest.mark.parametrize(
    ("config", "state", "says"),
    [
        # Of its own method each: SpeculativeConfig.__post_init__ and _validate_suffix_decoding
        ({"method": "ngram"}, "wrong", "tokens_missing"),
        ({"method": "suffix"}, "ok", "method suffix"),  # the depth of its tree
        ({"method": "mtp"}, "open", NUMBER_NOT_KNOWN),
        ({"method": "medusa", "model": DRAFT}, "open", NUMBER_NOT_KNOWN),
        ({"method": None, "model": "some/eagle3"}, "open", NUMBER_NOT_KNOWN),
        # By the draft's config: one that is here, one that is not, one of another form
        ({"model": DRAFT}, "wrong", "tokens_missing"),
        ({"method": "eagle", "model": DRAFT}, "wrong", "tokens_missing"),
        ({"model": "some/draft"}, "open", NUMBER_NOT_KNOWN),
        ({"model": "data/incident/drafts/speculators"}, "open", NUMBER_NOT_KNOWN),
        ({}, "open", NUMBER_NOT_KNOWN),
    ],
)
def test_a_number_of_tokens_that_is_not_given_may_come_from_elsewhere(
    config: dict[str, str], state: str, says: str
) -> None:
    given = line(**({"model": None, "num_speculative_tokens": None} | config))
    assert ruling("speculative configuration", given) == (state, says)


def test_a_number_of_tokens_in_the_draft_s_config(tmp_path: Path) -> None:
    config = json.loads(Path(DRAFT, "config.json").read_text())
    for number, state in ((3, "ok"), (None, "wrong")):
        (tmp_path / "config.json").write_text(json.dumps(config | {"n_predict": number}))
        given = line(model=str(tmp_path), num_speculative_tokens=None)
        assert ruling("speculative configuration", given)[0] == state


@pytest.mark.parametrize(
    ("method", "state"),
    [
        *((name, "ok") for name in ("ngram", "suffix", "mtp", "mimo_mtp")),
        *((name, "wrong") for name in ("eagle", "eagle3", "medusa", "draft_model")),
    ],
)
def test_a_number_of_tokens_without_a_model(method: str, state: str) -> None:
    found = ruling("speculative configuration", line(method=method, model=None))
    assert found == (state, "model_missing" if state == "wrong" else f"method {method}")


def test_methods_without_a_model_that_came_later() -> None:
    for method, engine in (("ngram_gpu", "0.18.0"), ("extract_hidden_states", "0.18.0")):
        given = line(method=method, model=None)
        assert ruling("speculative configuration", given, f"vllm=={engine}")[0] == "ok"
        assert ruling("speculative configuration", given)[0] == "open"  # 0.14.0 has no such method


@pytest.mark.parametrize("config", [{"method": "ngram_gpu"}, {"method": None, "model": "ngram"}])
def test_bounds_are_crossed_however_ngram_is_asked_for(config: dict[str, str | None]) -> None:
    for low, state in ((4, "ok"), (5, "wrong")):
        bounds = {"prompt_lookup_min": low, "prompt_lookup_max": 4}
        given = line(**({"model": None} | config | bounds))
        assert ruling("speculative configuration", given, "vllm==0.18.0")[0] == state


@pytest.mark.parametrize(
    ("name", "state"), [("eagle3-of-mine", "ok"), ("my-eagle-head", "ok"), ("my-llama", "wrong")]
)
def test_a_draft_is_of_its_kind_by_its_name_or_its_config(
    tmp_path: Path, name: str, state: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_bytes(Path(TARGET, "config.json").read_bytes())
    given = line(method=None, model=str(tmp_path / name))
    assert ruling("speculative configuration", given)[0] == state


@pytest.mark.parametrize(
    ("target", "options", "state", "how"),
    [
        (TARGET, "", "ok", "the checkpoint's own"),
        (TARGET, "--quantization $Q", "open", "it is not known"),
        ("some/target", "--quantization fp8", "open", "it is not known"),
        ("", "--quantization fp8", "open", "it is not known"),
        (
            TARGET,
            "--quantization fp8",
            "open",
            "fp8 is asked for, and the checkpoint is not quantised",
        ),
    ],
)
def test_a_quantisation_that_is_not_known(target: str, options: str, state: str, how: str) -> None:
    given = f"vllm serve {target} {options}"
    assert ruling("quantisation of the target", given) == (state, how)


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


@pytest.mark.parametrize("version", ["1.1.0", "1.3.0rc3"])
def test_heads_of_tensorrt_llm_are_sums_of_any_release(version: str) -> None:
    bad = workbench.check(f"trtllm-serve {TARGET} --tp_size 3", engine=f"tensorrt-llm=={version}")
    assert bad.ok is False
    assert (bad.faults[0].code, bad.faults[0].moment) == ("heads_and_ranks", "load")
    assert bad.corrected == f"trtllm-serve {TARGET} --tp_size 2"
    good = workbench.check(f"trtllm-serve {TARGET} --tp_size 2", engine=f"tensorrt-llm=={version}")
    assert good.ok is None  # its class and its file of further settings are not looked at
    assert not good.faults


# Refused by the release that was read, and the same one step to the other side.
@pytest.mark.parametrize(
    ("bad", "code", "good"),
    [
        ("--tp-size 2", "argument_unknown", "--tp_size 2"),
        ("--tp 2", "argument_unknown", "--tensor_parallel_size 2"),
        ("--speculative-algorithm EAGLE3", "argument_unknown", "--extra_llm_api_options s.yaml"),
        ("--backend vllm", "argument_value", "--backend trt"),
        ("--log_level INFO", "argument_value", "--log_level info"),
        ("--max_batch_size many", "argument_value", "--max_batch_size=8"),
        ("--max_batch_size", "argument_missing", "--max_batch_size -1"),
        ("--trust_remote_code=true", "argument_switch", "--trust_remote_code"),
        ("more", "argument_stray", ""),
    ],
)
def test_what_the_parser_of_tensorrt_llm_refuses_and_its_twin(
    bad: str, code: str, good: str
) -> None:
    accused = workbench.check(f"trtllm-serve {TARGET} {bad}", engine="tensorrt-llm==1.3.0rc3")
    assert accused.ok is False
    assert [(one.code, one.moment) for one in accused.faults] == [(code, "parser")]
    option = bad.partition(" ")[0].partition("=")[0]
    states = {item.name: item.state for item in accused.verdict.coverage.items}
    assert states.get(option, "wrong") == "wrong"
    twin = workbench.check(f"trtllm-serve {TARGET} {good}", engine="tensorrt-llm==1.3.0rc3")
    assert not twin.faults
    assert {i.state for i in twin.verdict.coverage.items if i.kind == "parser"} == {"ok"}


def test_between_two_releases_of_tensorrt_llm_an_option_that_neither_has_is_likely_refused() -> (
    None
):
    foreign = workbench.check(
        f"trtllm-serve {TARGET} --speculative-algorithm EAGLE3 --backend pytorch",
        engine="tensorrt-llm==1.1.0",
    )
    assert foreign.ok is None
    (fault,) = foreign.faults
    assert not fault.certain
    assert "likely has no option --speculative-algorithm" in fault.text
    assert "--extra_llm_api_options" in next(one.next_step for one in foreign.findings)
    # --backend came between the two: whether 1.1.0 has it is not known, and nobody is accused.
    assert not workbench.check(
        f"trtllm-serve {TARGET} --backend x", engine="tensorrt-llm==1.1.0"
    ).faults


def test_all_that_tensorrt_llm_refuses_is_named_and_what_is_not_known_is_taken() -> None:
    sorts = [one.sort for one in click_options.refusals(
        ["m", "--nope=1", "--port", "x", "--grpc=1", "--tp_size"], "1.3.0rc3")]  # fmt: skip
    assert sorted(sorts) == ["missing", "switch", "unknown", "value"]
    assert [one.sort for one in click_options.refusals([], "1.3.0rc3")] == ["required"]
    hole = holes.hole("N")
    assert not click_options.refusals(["m", "--tp_size", hole, "--help"], "1.3.0rc3")


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
        (["m", "-h"], []),
        (["m", "--help"], []),
        (["m", "--h"], ["ambiguous"]),
        (["m", "other"], ["stray"]),
        (["m", "--enable"], ["ambiguous"]),
        (["m", "--download-dir", "None"], []),
        (["m", "--seed", "x"], ["value"]),
        (["m", "--dtype", "half"], []),
    ],
)
def test_words_are_read_as_vllm_reads_them(words: list[str], sorts: list[str]) -> None:
    assert [one.sort for one in read(words, V).refusals] == sorts
