"""Launch arguments under one name: renames, deprecated switches, defaults, old releases."""

from __future__ import annotations

import pytest

from workbench.facts import flags


def test_one_launch_in_many_spellings() -> None:
    said = [
        {"tp": "8", "disable-cuda-graph": True},
        {"--tp-size": "8", "--disable-cuda-graph": "True"},
        {
            "tensor_parallel_size": "8",
            "disable_decode_cuda_graph": True,
            "disable_prefill_cuda_graph": True,
        },
        {
            "tp_size": "8",
            "cuda_graph_backend_decode": "'disabled'",
            "cuda-graph-backend-prefill": "disabled",
        },
        {
            "tp-size": "8",
            "cuda-graph-config": '{"decode": {"backend": "disabled"}, "prefill": {"backend": "disabled"}}',
        },
    ]
    first, *others = [flags.normalise(one, "0.5.14") for one in said]
    assert first["tp-size"] == "8"
    assert first["cuda-graph-backend-decode"] == "disabled"
    assert all(other == first for other in others)


def test_defaults_are_resolved_by_release() -> None:
    assert flags.normalise({}, "0.5.8")["hicache-mem-layout"] == "layer_first"
    assert flags.normalise({}, "0.5.23")["hicache-mem-layout"] == "page_first"
    assert flags.normalise({}, "0.5.14")["soft-watchdog-timeout"] == flags.UNSET
    given = flags.normalise({"hicache-mem-layout": "page_first"}, "0.5.23")
    assert given == flags.normalise({}, "0.5.23")
    assert flags.normalise(
        {"skip-server-warmup": False, "tp-size": None}, "0.5.14"
    ) == flags.normalise({}, "0.5.14")


@pytest.mark.parametrize(
    ("version", "flag", "name"),
    [
        ("0.5.8", "--cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
        ("0.5.14", "--cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
        ("0.5.8", "--nsa-decode-backend", "dsa-decode-backend"),
        ("0.5.8", "--dp", "dp-size"),
        ("0.5.23", "context_bucket", "cuda-graph-prefill-max-context"),
        ("0.5.14", "no-such-flag", "no-such-flag"),
    ],
)
def test_a_renamed_flag_has_its_newest_name(version: str, flag: str, name: str) -> None:
    assert flags.canonical(flag, version) == name


def test_precedence_of_graph_settings() -> None:
    def backend(**said: str) -> str:
        given = {key.replace("_", "-"): value for key, value in said.items()}
        return flags.normalise(given, "0.5.14")["cuda-graph-backend-decode"]

    assert backend(disable_cuda_graph="true", cuda_graph_backend_decode="full") == "full"
    assert (
        backend(
            cuda_graph_backend_decode="full",
            cuda_graph_config='{"decode": {"backend": "disabled"}}',
        )
        == "disabled"
    )
    assert backend(disable_cuda_graph="False") == flags.UNSET
    assert (
        flags.normalise({"disable-piecewise-cuda-graph": True}, "0.5.14")[
            "cuda-graph-backend-prefill"
        ]
        == "disabled"
    )
    assert (
        flags.normalise({"disable-piecewise-cuda-graph": True}, "0.5.11")[
            "cuda-graph-backend-prefill"
        ]
        == "disabled"
    )
    # In 0.5.11 and 0.5.12 that flag is accepted and does nothing.
    assert (
        flags.normalise({"enable-piecewise-cuda-graph": True}, "0.5.11")[
            "cuda-graph-backend-prefill"
        ]
        == flags.UNSET
    )
    assert (
        flags.normalise({"enable-piecewise-cuda-graph": True}, "0.5.8")[
            "cuda-graph-backend-prefill"
        ]
        == "tc_piecewise"
    )


def test_a_command_line_is_read_as_arguments() -> None:
    line = "python -m sglang.launch_server --tp 2 --cuda-graph-bs 1 2 4 --trust-remote-code --dtype=bfloat16"
    read = flags.arguments_of(line.split(), "0.5.12")
    assert read == {
        "tp": "2",
        "cuda-graph-bs": "1 2 4",
        "trust-remote-code": True,
        "dtype": "bfloat16",
    }
    as_logged = flags.normalise({"cuda_graph_bs": "[1, 2, 4]"}, "0.5.12")
    assert (
        flags.normalise(read, "0.5.12")["cuda-graph-bs-decode"] == as_logged["cuda-graph-bs-decode"]
    )
    off = flags.arguments_of(["--no-enable-fused-qk-norm-rope"], "0.5.23")
    assert off == {"enable-fused-qk-norm-rope": "false"}


@pytest.mark.parametrize("version", ["0.5.13", "0.5.9.post1", "0.6.0", "", "main-4f2a", "0.4.6"])
def test_a_release_that_was_not_measured_gets_a_spelling_both_neighbours_take(version: str) -> None:
    chosen = flags.spelling(
        ["--cuda-graph-backend-decode=disabled", "--disable-cuda-graph"], version
    )
    assert chosen is not None
    assert all(flags.takes(chosen, near) for near in flags.neighbours(version))
    assert flags.normalise({}, version)["tp-size"] == "1"


def test_no_spelling_where_the_release_has_none() -> None:
    assert flags.spelling(["--disable-piecewise-cuda-graph"], "0.5.8") is None
    assert flags.spelling(["--cuda-graph-backend-decode=disabled"], "0.5.12") is None


@pytest.mark.parametrize(
    "value", ["[" * 5000, "{" * 5000, "x" * 100_000, "\x1b[2J", '{"decode": 3}']
)
def test_hostile_values_are_kept_as_text(value: str) -> None:
    told = flags.normalise({"cuda-graph-config": value, value[:50]: value}, "0.5.14")
    assert told["tp-size"] == "1"
