"""How options are read: as the parser of a release reads them, on both sides of each border."""

from __future__ import annotations

import pytest

from workbench.launch.options import Option, option_of
from workbench.launch.read import read_launch

SERVER = "python -m sglang.launch_server --model-path m "


@pytest.mark.parametrize(
    ("name", "version", "key"),
    [
        ("tp", "0.5.14", "tp-size"),
        ("tp-size", "0.5.11", "tp-size"),
        ("tensor-parallel-size", "0.5.11", "tp-size"),
        ("speculative-al", "0.5.14", "speculative-algorithm"),
        ("speculative-a", "0.5.14", None),  # of three options
        ("speculative-algorithms", "0.5.14", None),
        ("model", "0.5.14", "model-path"),  # an alias outweighs the options that begin so
        ("cuda-graph-max-bs", "0.5.11", "cuda-graph-max-bs-decode"),
        ("cuda-graph-max-bs", "0.5.23", None),
        ("cuda-graph-max-bs", "", "cuda-graph-max-bs-decode"),
        ("enable-piecewise-cuda-graph", "0.5.11", "enable-piecewise-cuda-graph"),
        ("speculative-draft", "", None),
    ],
)
def test_an_option_is_the_one_that_its_release_takes(
    name: str, version: str, key: str | None
) -> None:
    found = option_of(name, version)
    assert (found.key if isinstance(found, Option) else None) == key


@pytest.mark.parametrize(
    ("words", "key", "value", "unread"),
    [
        ("--tp 4 --tp 8", "tp-size", "8", ""),
        ("--tp=8", "tp-size", "8", ""),
        ("--tp", "tp-size", None, "--tp: its value is missing"),
        ("--tp 8 9", "tp-size", "8", "9: it belongs to no option"),
        ("-tp 8", "tp-size", None, "-tp: SGLang's options begin with two dashes"),
        ("--cuda-graph-bs-decode 1 2 4", "cuda-graph-bs-decode", "1 2 4", ""),
        ("--random-seed -1", "random-seed", "-1", ""),
        ("--trust-remote-code", "trust-remote-code", "true", ""),
        ("--trust-remote-code=true", "trust-remote-code", None, "takes no value"),
        ("--trust-remote-code true", "trust-remote-code", "true", "true: it belongs to no option"),
        ("--served-model-name ''", "served-model-name", "", ""),
        ("--tp $N", "tp-size", None, "--tp: its value depends on $N"),
        ("--tp 8 $MORE", "tp-size", None, "$MORE: it is not known, and may hold further options"),
        ("$MORE --tp 8", "tp-size", "8", "$MORE"),
        ("--api-key not-a-real-key", "api-key", "<left out>", ""),
        ("--madeup 3", "madeup", "3", "--madeup: SGLang 0.5.23 has no such option"),
    ],
)
def test_what_an_option_says(words: str, key: str, value: str | None, unread: str) -> None:
    found = read_launch(SERVER + words, version="0.5.23")
    assert found.value(key) == value
    assert unread in " ".join(map(str, found.not_read))
    assert bool(unread) == bool(found.not_read)


def test_a_port_that_is_not_known_decides_nothing() -> None:
    found = read_launch(SERVER + "--port $PORT --tp 8")
    assert [str(one) for one in found.not_read] == ["--port: its value depends on $PORT"]
    assert found.doubts == ()
    assert read_launch(SERVER + "--port 1 --tp $TP").doubts != ()


def test_what_was_not_read_may_be_any_option() -> None:
    assert read_launch(SERVER).state("speculative-algorithm") == "absent"
    assert read_launch(SERVER + "$MORE").state("speculative-algorithm") == "unknown"
    assert read_launch(SERVER + "--config gone.yaml").state("speculative-algorithm") == "unknown"
    assert read_launch(SERVER + "--tp $TP").state("speculative-algorithm") == "absent"
