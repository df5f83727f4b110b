"""What the parser refuses, as a ruling: its sort, and the line that it takes instead."""

from __future__ import annotations

import dataclasses

import pytest

from tests.launch.rules.asking import answer, ask, found, repaired
from workbench.launch.rules.arguments import NAME

ROUTER = "python -m sglang_router.launch_server --model-path t"
SERVER = "python -m sglang.launch_server --model-path t"


@pytest.mark.parametrize(
    ("words", "version", "right", "fixed"),
    [
        ("--tp 8", "0.5.14", "ok", "--tp 8"),
        # Unknown: misspelt, of another release, of another server, or nothing that is known
        ("--tp_size 4", "0.5.14", "unknown", "--tp-size 4"),
        ("--mem-fraction-statik=0.8", "0.5.14", "unknown", "--mem-fraction-static 0.8"),
        ("--madeup 3", "0.5.14", "unknown", ""),
        ("--madeup=3", "0.5.14", "unknown", ""),
        ("--enable-cuda-graph", "0.5.14", "unknown", ""),
        ("--enable-ep-moe", "0.5.14", "unknown", "--enable-ep-moe"),  # with which size is not known
        ("--enable-deepep-moe", "0.5.14", "unknown", "--moe-a2a-backend deepep"),
        ("--enable-flashmla", "0.5.14", "unknown", "--attention-backend flashmla"),
        ("--enable-piecewise-cuda-graph", "0.5.14", "unknown", "--cuda-graph-backend-prefill tc_piecewise"),
        ("--cuda-graph-backend-decode full", "0.5.11", "unknown", "--cuda-graph-backend-decode full"),
        ("--stream-output", "0.5.23", "unknown", "--incremental-streaming-output"),
        ("--speculative-dflash-draft-window-size 8", "0.5.23", "unknown",
         "--speculative-draft-window-size 8"),
        ("--speculative-draft-window-size 8", "0.5.11", "unknown", ""),
        ("--speculative-dflash-draft-window-size 8", "0.5.10.post1", "unknown", ""),
        ("--kv-cache-type x", "0.5.14", "unknown", "--kv-cache-dtype x"),
        ("--max-model-len 8", "0.5.14", "unknown", "--max-model-len 8"),
        ("-context-length 8", "0.5.14", "unknown", "--context-length 8"),
        ("-madeup 8", "0.5.14", "unknown", ""),
        # A beginning of several
        ("--speculative-draft x", "0.5.14", "ambiguous", "--speculative-draft-model-path x"),
        ("--speculative-algo EAGLE3", "0.5.14", "ok", "--speculative-algo EAGLE3"),
        ("--speculative-num 3", "0.5.14", "ambiguous", "--speculative-num 3"),
        # A value
        ("--dtype Float16", "0.5.14", "value", "--dtype float16"),
        ("--dtype floaat16", "0.5.14", "value", "--dtype float16"),
        ("--dtype fp16", "0.5.14", "value", "--dtype fp16"),
        ("--schedule-policy routing-key", "0.5.14", "ok", "--schedule-policy routing-key"),
        ("--schedule-policy ROUTING_KEY", "0.5.14", "value", "--schedule-policy routing-key"),
        ("--tp 4 --tp eight", "0.5.14", "value", "--tp 4 --tp eight"),
        ("--enable-flashmla", "0.4.6", "value", ""),  # retired there: it stops the launch
        ("--tp", "0.5.14", "missing", "--tp"),
        # A switch
        ("--trust-remote-code=false", "0.5.14", "switch", ""),
        ("--trust-remote-code=0", "0.5.14", "switch", ""),
        ("--trust-remote-code=yes", "0.5.14", "switch", "--trust-remote-code"),
        ("--trust-remote-code false", "0.5.14", "stray", "--trust-remote-code"),
    ],
)  # fmt: skip
def test_what_is_refused_and_what_is_taken(
    words: str, version: str, right: str, fixed: str
) -> None:
    asked = ask(words, version)
    assert answer(NAME, asked) == (right if right == "ok" else f"wrong argument_{right}")
    assert repaired(NAME, asked) == fixed


@pytest.mark.parametrize(
    ("line", "words", "right"),
    [
        ("sglang serve", "--tp 8", "wrong argument_required"),
        ("--tp 8", "", "open"),  # arguments alone
        ("--tp x --model-path t", "", "wrong argument_value"),
        (ROUTER, "--madeup 8", "open"),
        (ROUTER, "--tp x", "wrong argument_value"),
        (SERVER, "--madeup 8", "wrong argument_unknown"),
        ("python -m sglang.bench_one_batch --model-path t", "--madeup 8", "open"),
        # sglang serve takes this one away before the parser sees the rest
        ("sglang serve --model-path t", "--model-type llm", "ok"),
        ("sglang serve --model-path t", "--model-type=llm", "ok"),
        (SERVER, "--model-type llm", "wrong argument_unknown"),
        (SERVER, "--model-type=llm", "wrong argument_unknown"),
        (SERVER, "--config c.yaml", "ok"),
        (SERVER, "--config c.yaml --madeup 3", "wrong argument_unknown"),
        (SERVER, "--config", "wrong argument_missing"),
        (SERVER, "--tp $TP", "ok"),
        (SERVER, "$MORE", "ok"),
        (SERVER, "--served-model-name $MORE --tp x", "wrong argument_value"),
    ],
)
def test_by_the_program(line: str, words: str, right: str) -> None:
    assert answer(NAME, ask(words, line=line)) == right


def test_a_server_that_printed_its_arguments_has_taken_them() -> None:
    asked = ask("--madeup 3")
    printed = dataclasses.replace(asked, launch=dataclasses.replace(asked.launch, form="log"))
    assert answer(NAME, printed) == "ok"
    without = dataclasses.replace(asked, launch=dataclasses.replace(asked.launch, options=()))
    assert answer(NAME, without) == "ok"


@pytest.mark.parametrize(
    ("words", "version", "says"),
    [
        ("--tp eight", "0.5.14", "Give --tp a whole number."),
        ("--mem-fraction-static x", "0.5.14", "Give --mem-fraction-static a number."),
        ("--max-model-len 8", "0.5.14", "Use --context-length, whose values may mean something else."),
        ("--enable-ep-moe", "0.5.14", "Use --ep-size=N."),
        ("--madeup", "0.5.14", "Remove --madeup, or use a release that has it."),
        ("--trust-remote-code=false", "0.5.14", "Remove --trust-remote-code."),
        ("--trust-remote-code=yes", "0.5.14", "Write --trust-remote-code without a value."),
        ("--cuda-graph-backend-decode=disabled", "0.5.11",
         "Write --disable-cuda-graph instead of --cuda-graph-backend-decode."),
        ("--dtype ''", "0.5.14", "Give --dtype one of these."),
    ],
)  # fmt: skip
def test_what_to_do(words: str, version: str, says: str) -> None:
    one = found(NAME, ask(words, version))[0]
    assert one.moment == "parser"
    assert one.finding is not None
    assert one.finding.next_step == says


@pytest.mark.parametrize(
    ("words", "version", "says"),
    [
        ("--enable-ep-moe", "0.5.14", "SGLang 0.4.4 to 0.5.4 have it."),
        ("--speculative-draft-window-size 8", "0.5.11", "SGLang 0.5.12 to 0.5.23 have it."),
        ("--madeup", "0.5.14", "No release from 0.4.4 on has it."),
        ("--tp_size 4", "0.5.14", "It looks misspelt."),
        ("-context-length 4", "0.5.14", "SGLang's options begin with two dashes."),
        ("-madeup 4", "0.5.14", ""),
    ],
)
def test_where_an_option_is_known(words: str, version: str, says: str) -> None:
    finding = found(NAME, ask(words, version))[0].finding
    assert finding is not None
    assert finding.detail == says
