"""The parser made of facts refuses what the engine's refuses: each border from both sides."""

from __future__ import annotations

import argparse
from typing import NoReturn

import pytest

from workbench.facts import flags
from workbench.launch import holes
from workbench.launch.rules.parser import meant, other_releases, parser_of, refusals

BASE = "--model-path m "


@pytest.mark.parametrize(
    ("words", "release", "sort"),
    [
        ("--tp 8", "0.5.14", ""),
        ("--tp eight", "0.5.14", "value"),
        ("--tp", "0.5.14", "missing"),
        ("--tp expected", "0.5.14", "value"),
        ("--tp -1", "0.5.14", ""),  # a number of its own, which a later check refuses
        ("--tpsize 8", "0.5.14", "unknown"),
        ("--speculative-alg EAGLE3", "0.5.14", ""),
        ("--speculative-a EAGLE3", "0.5.14", "ambiguous"),
        ("--speculative-algorithm eagle3", "0.5.14", ""),
        ("--speculative-algorithm eagle3", "0.5.11", "value"),
        ("--speculative-algorithm EAGEL3", "0.5.14", "value"),
        ("--speculative-attention-mode prefill", "0.5.14", ""),
        ("--speculative-attention-mode prefil", "0.5.14", "value"),
        ("--cuda-graph-backend-decode=disabled", "0.5.14", ""),
        ("--cuda-graph-backend-decode=disabled", "0.5.11", "unknown"),
        ("--enable-piecewise-cuda-graph", "0.5.11", ""),
        ("--enable-piecewise-cuda-graph", "0.5.14", "unknown"),
        ("--trust-remote-code", "0.5.14", ""),
        ("--trust-remote-code=true", "0.5.14", "switch"),
        ("--trust-remote-code true", "0.5.14", "stray"),
        ("--context-length 128k", "0.5.14", ""),
        ("--context-length 128k", "0.4.6", "value"),
        ("--mem-fraction 0.8", "0.5.14", ""),
        ("--enable-flashmla", "0.4.6", "value"),  # retired there: it stops the launch
        ("--enable-ep-moe", "0.5.4", "value"),
        ("--hybrid-kvcache-ratio", "0.5.8", ""),  # from here on it only warns
        ("--lora-strict-loading", "0.5.14", ""),
        ("--no-lora-strict-loading", "0.5.14", ""),
        ("--no-no-lora-strict-loading", "0.5.14", "unknown"),
        ("--help", "0.5.14", "unknown"),
        ("--disable-piecewise-cuda-graph", "0.5.14", ""),
        ("-1", "0.5.14", "stray"),
        ("-x", "0.5.14", "unknown"),
        ("--cuda-graph-bs", "0.5.11", "missing"),
        ("--json-model-override-args {", "0.5.14", ""),
        ("--cuda-graph-bs 1 2 4", "0.5.11", ""),
        ("--cuda-graph-bs 1 two", "0.5.11", "value"),
    ],
)
def test_what_a_release_refuses(words: str, release: str, sort: str) -> None:
    found = refusals((BASE + words).split(), release)
    assert [one.sort for one in found] == ([sort] if sort else [])


def test_several_faults_are_all_found() -> None:
    found = refusals(
        ["--model", "m", "--tp", "a", "--dtype", "fp16", "--nonsense", "3", "--tp", "8"], "0.5.14"
    )
    assert {(one.option, one.sort) for one in found} == {
        ("--tp", "value"), ("--dtype", "value"), ("--nonsense", "unknown"),
    }  # fmt: skip
    assert next(one for one in found if one.option == "--tp").value == "a"


def test_a_line_without_a_model_is_refused() -> None:
    assert [one.sort for one in refusals(["--tp", "8"], "0.5.14")] == ["required"]


def test_what_is_not_known_is_let_through() -> None:
    words = ["--model-path", holes.hole("M"), "--tp", holes.hole("TP"), "--dtype", holes.hole("D")]
    assert refusals([*words, holes.hole("MORE", many=True)], "0.5.14") == ()


def test_every_release_has_a_parser_that_takes_a_plain_line() -> None:
    for release in flags.measured()[::9]:
        assert (
            refusals(["--model-path", "m", "--tp-size", "8", "--trust-remote-code"], release) == ()
        )
    parser_of.cache_clear()


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("--speculative-num-step", "--speculative-num-steps"),
        ("--mem_fraction_static", "--mem-fraction-static"),
        ("--enable-piecewise-cuda-graph", ""),  # of another release, not misspelt
        ("--enable-cuda-graph", ""),  # never its opposite
        ("--madeup", ""),
    ],
)
def test_the_option_that_a_misspelt_one_means(option: str, near: str) -> None:
    assert meant(option, "0.5.14") == near


def test_the_releases_that_have_an_option() -> None:
    assert other_releases("--cuda-graph-backend-decode")[0] == "0.5.14"
    assert other_releases("--madeup") == ("", "")


def test_of_many_faults_the_first_are_listed() -> None:
    words = [f"--made-up-{number}" for number in range(40)]
    found = refusals(["--model-path", "m", *words], "0.5.14")
    assert [one.option for one in found] == words[:20]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--tp-size x --madeup", ["--tp-size", "--madeup"]),
        ("--tensor-parallel-size=x --madeup", ["--tensor-parallel-size", "--madeup"]),
        ("--served-model-name - --tp x", ["--tp"]),
        ("--log-requests --log-requests-level x", ["--log-requests-level"]),
        ("--speculative-num=3 --tp x", ["--speculative-num", "--tp"]),
        ("--trust-remote-code true --madeup", ["", "--madeup"]),
        ("--madeup 3 --other 4", ["--madeup", "--other"]),
        ("--speculative-num - --tp x", ["--speculative-num", "--tp"]),
    ],
)
def test_an_option_is_named_as_it_was_typed(words: str, options: list[str]) -> None:
    assert [one.option for one in refusals((BASE + words).split(), "0.5.14")] == options


def test_an_error_without_the_name_of_an_option_is_read_from_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says = "ambiguous option: --speculative-d could match --speculative-draft-model, --speculative-dflash"

    # Python 3.12 and later raise what 3.11 hands to `error`; only one of them is here.
    class Newer(argparse.ArgumentParser):
        def parse_known_args(self, *_: object) -> NoReturn:  # type: ignore[override]
            raise argparse.ArgumentError(None, says)

    monkeypatch.setattr("workbench.launch.rules.parser.parser_of", lambda release: Newer())
    found = refusals(["--speculative-d", "x"], "0.5.14")
    assert [(one.option, one.sort) for one in found][:1] == [("--speculative-d", "ambiguous")]
