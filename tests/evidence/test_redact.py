"""What leaves a host: no planted secret of any kind, and all that the rules read."""

from __future__ import annotations

import ast
import json
import re
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import planted
from workbench.evidence import redact
from workbench.evidence.harmless import is_harmless
from workbench.evidence.redact import LEFT_OUT, Redactor, fields, known_secrets
from workbench.facts import flags
from workbench.facts.startup_markers import ERRORS, PHASES, Marker, read_marker
from workbench.hang.collect.pack_collector import CARRIED, PACKAGE

ROOT = Path(__file__).resolve().parents[2]
RECORDED = sorted((ROOT / "data" / "incident").glob("**/server.log"))


@pytest.mark.parametrize("kind", planted.LINES)
def test_no_planted_secret_stays_in_a_line(kind: str) -> None:
    line = planted.log(kind)
    assert planted.found_in(line) == [kind]
    hide = Redactor(numbered=True)
    shown = hide.log(line)
    assert planted.found_in(shown) == []
    assert hide.log(shown) == shown
    assert shown.count("\n") == line.count("\n")


def test_none_stays_in_a_log_of_all_of_them() -> None:
    shown = Redactor("salt").log(planted.log())
    assert planted.found_in(shown) == []
    assert "Load weight begin. avail mem=1 GB" in shown


def test_none_stays_in_arguments_and_variables() -> None:
    hide = Redactor("salt")
    shown = hide.arguments(["python3", "-m", "sglang.launch_server", *planted.ARGUMENTS])
    assert planted.found_in("\n".join(shown)) == []
    assert shown[:4] == ["python3", "-m", "sglang.launch_server", "--api-key"]
    assert planted.found_in(json.dumps(hide.environment(planted.VARIABLES))) == []
    line = "[x] server_args=ServerArgs(model_path='m', api_key='argkey_1a', chat_template='argval_8h', x=[1])"
    assert planted.found_in(hide.log(line)) == []


def test_all_that_is_secret_by_its_name_is_known() -> None:
    known = known_secrets(planted.VARIABLES, planted.ARGUMENTS)
    assert {"envkey_5f1c", "envkey_7a2d", "envtok_9e3b", "envproxy_4c"} <= known
    assert {"argkey_1a", "argkey_2b", "argkey_3c", "argkey_4d", "argsig_6f", "argred_9i"} <= known
    assert (
        known_secrets({"TOKENIZERS_PARALLELISM": "false", "API_KEY": "short"}, ["--tp", "8"])
        == set()
    )


@pytest.mark.parametrize(
    "flag",
    [
        "--api-key",
        "--api_key",
        "--api-k",
        "--api",
        "--admin-api-key",
        "--admin-a",
        "--hf-token",
        "--hf-tok",
        "--password",
        "--ssl-keyfile-password",
        "--ssl-keyfile-p",
        "--aws-secret-access-key",
        "--auth-token",
        "--secret",
        "--my-passwd",
        "--db-credentials",
        "--webhook-url",
        "--bearer-token",
        "-p",
        "-u",
    ],
)
def test_a_flag_of_a_secret_keeps_no_value_however_it_is_spelt(flag: str) -> None:
    # A number and a harmless word are kept of any other flag.
    for value in ("12345678", "server", "x y z", "sesame_77"):
        for words in ([flag, value], [f"{flag}={value}"]):
            if len(flag) == 2 and "=" in words[0]:
                continue
            shown = Redactor("s").arguments(["sglang", "serve", *words, "--tp", "2"])
            assert value not in " ".join(shown), (words, shown)
            assert shown[-2:] == ["--tp", "2"]


def test_settings_stay_and_other_values_become_tokens() -> None:
    words = [
        "sglang",
        "serve",
        "--model-path",
        "/data/alice/Kimi-K2.5",
        "--tp",
        "8",
        "--mem-fraction-static",
        "0.85",
        "--kv-cache-dtype",
        "fp8_e4m3",
        "--speculative-algorithm",
        "EAGLE3",
        "--speculative-draft-model-path",
        "lmsys/Kimi-draft",
        "--cuda-graph-bs",
        "1",
        "2",
        "4",
        "--chat-template",
        "alices.jinja",
        "--unheard-of",
        "17",
        "--random-seed",
        "609285312345",
        "--host",
        "10.1.2.3",
        "--served-model-name",
        "zeus",
    ]
    hide = Redactor(numbered=True)
    shown = " ".join(hide.arguments(words))
    for kept in (
        "/Kimi-K2.5",
        "--tp 8",
        "--mem-fraction-static 0.85",
        "--kv-cache-dtype fp8_e4m3",
        "--speculative-algorithm EAGLE3",
        "lmsys/Kimi-draft",
        "--cuda-graph-bs 1 2 4",
        "--random-seed 609285312345",
        "--unheard-of value-",
        "--host addr-",
    ):
        assert kept in shown
    for left in ("alice", "17", "10.1.2.3", "zeus", "/data"):
        assert left not in shown
    # The same value is the same token, so that two launches can be compared; another is another.
    again = hide.arguments([*words[:-1], "hera"])
    assert again[:-1] == hide.arguments(words)[:-1]
    assert again[-1] != hide.arguments(words)[-1]


def test_tokens_are_no_function_of_what_they_stand_for() -> None:
    # A salt that hosts share may be guessed, and a value may be short: nothing can be tried out.
    one, other = Redactor("job 7"), Redactor("job 7")
    assert one.value("--x-y", "first") == other.value("--x-y", "second")
    assert one.host("gpunode1") == other.host("gpunode1") != other.host("gpunode2")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_of_a_recorded_log_every_line_says_the_same(path: Path) -> None:
    text = path.read_text(errors="replace")
    shown = Redactor("salt").log(text)
    for before, after in zip(text.split("\n"), shown.split("\n"), strict=True):
        one, two = read_marker(before), read_marker(after)
        assert (one and (one.code, one.phase, dict(one.facts))) == (
            two and (two.code, two.phase, dict(two.facts))
        ), before
    whole = sum(a == b for a, b in zip(text.split("\n"), shown.split("\n"), strict=True))
    assert whole > 0.7 * text.count("\n")


def test_every_flag_of_every_release_is_known() -> None:
    names = flags.flags_of("")
    assert [name for name in names if not is_harmless(name) and not redact.is_secret(name)] == []


TRACEBACK = """[2026-11-29 18:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/home/jdoe/v/site-packages/sglang/srt/managers/scheduler.py", line 2709, in run_scheduler_process
    scheduler = Scheduler(jdoe_secret_argument)
  File "/usr/lib/python3.12/threading.py", line 3, in Thread.<locals>.run
  File "/home/jdoe/acme/serve.py", line 4, in main
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.11 GiB
acme.errors.AcmeError: tenant jdoe has no quota
"""


def test_a_traceback_keeps_places_and_classes() -> None:
    shown = Redactor("s").log(TRACEBACK)
    for kept in (
        "[2026-11-29 18:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        'File "sglang/srt/managers/scheduler.py", line 2709, in run_scheduler_process',
        'File "python3.12/threading.py", line 3, in Thread.<locals>.run',
        '/serve.py", line 4, in main',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.11 GiB",
        "acme.errors.AcmeError: ",
    ):
        assert kept in shown
    for left in ("jdoe", "tenant", "quota"):
        assert left not in shown


DUMP = """[2026-11-29 18:00:07 TP0] Pyspy dump for PID 4711:
Process 4711: python3 -m sglang.launch_server --api-key argkey_1a --tp 2
Python v3.12.3 (/home/jdoe/venv/bin/python3.12)

Thread 0x7F1 (active): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:4700)
        Arguments:
            prompt: "appendicitis"
    std::vector<c10::Tensor>::at(unsigned long) const (libtorch_cpu.so)
Thread 4712 (idle): "jdoe's thread"
    wait (/usr/lib/python3.12/threading.py:355)

[2026-11-29 18:00:09 TP0] Load weight begin. avail mem=1 GB
"""


def test_stacks_in_a_log_keep_functions_and_no_values() -> None:
    shown = Redactor("s").log(DUMP)
    for kept in (
        "Process 4711: python3 -m sglang.launch_server --api-key <left out> --tp 2",
        "Python v3.12.3 (python3.12)",
        'Thread 0x7F1 (active): "MainThread"',
        "    barrier (torch/distributed/distributed_c10d.py:4700)",
        "    std::vector<c10::Tensor>::at(unsigned long) const (libtorch_cpu.so)",
        "    wait (python3.12/threading.py:355)",
    ):
        assert kept in shown.split("\n")
    assert planted.found_in(shown) == []
    assert "jdoe" not in shown


def test_a_dump_keeps_stacks_alone() -> None:
    frame = {
        "name": "f",
        "filename": "/home/jdoe/x.py",
        "line": 3,
        "module": None,
        "locals": [{"repr": "'illness'"}],
    }
    thread = {
        "pid": 7,
        "thread_id": 9,
        "thread_name": "jdoe",
        "os_thread_id": 7,
        "active": True,
        "owns_gil": False,
        "frames": [frame],
        "process_info": {"command_line": "--api-key argkey_1a"},
    }
    shown = Redactor("s").dump([thread])
    assert planted.found_in(json.dumps(shown)) == []
    assert shown[0]["active"] is True
    assert (shown[0]["frames"][0]["name"], shown[0]["frames"][0]["line"]) == ("f", 3)


def test_a_secret_that_is_known_is_left_out_wherever_it_stands() -> None:
    hide = Redactor("s")
    hide.secret("server")  # a harmless word, and somebody's password
    hide.user("batch")
    shown = hide.log("the server is a server\nDecode batch")
    assert "server" not in shown
    assert "batch" not in shown


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=string.printable, max_size=400))
def test_any_log_keeps_its_number_of_lines_and_is_redacted_once(text: str) -> None:
    hide = Redactor(numbered=True)
    once = hide.log(text)
    assert once.count("\n") == text.count("\n")
    assert Redactor(numbered=True).log(once) == once


TOKENS = st.text(alphabet=string.ascii_letters + string.digits, min_size=20, max_size=60).filter(
    lambda text: any(char.isdigit() for char in text) and any(char.isalpha() for char in text)
)


@settings(max_examples=300, deadline=None)
@given(
    TOKENS,
    st.sampled_from(
        [
            "[2026-11-29 18:00:00 TP0] server started with {}",
            "error: {}",
            "x={}",
            "'{}'",
            "a/{}/b",
            "{}:80",
            '{{"k": "{}"}}',
            "RuntimeError: {} not found",
            "+ python -m sglang.launch_server --unheard {}",
            "loading {}.safetensors",
            "({})",
        ]
    ),
)
def test_no_random_key_survives(token: str, line: str) -> None:
    assert token not in Redactor("s").log(line.format(token))


@pytest.mark.parametrize(
    "unit",
    [
        "a.",
        "token=",
        "'",
        "1.",
        "/home/",
        "key='",
        "\\",
        "x" * 9 + " ",
        "a:",
        "--a ",
        "://",
        "a/",
        'File "',
        "node-",
    ],
)
def test_long_lines_cost_no_more_than_their_length(unit: str) -> None:
    hide = Redactor("salt")
    line = unit * 40_000
    assert len(hide.log(line)) <= 2 * len(line)
    hide.arguments([line])


def test_fields_are_split_as_python_nests_them() -> None:
    text = "A(a='x, (y', b=[1, {'c': 2}], d=P(e='f)'), g=None) rest"
    assert [item.strip() for item in fields(text, 2)] == [
        "a='x, (y'",
        "b=[1, {'c': 2}]",
        "d=P(e='f)')",
        "g=None",
    ]
    assert list(fields("A(a=1, b=12", 2)) == ["a=1"]
    assert list(fields("A(a=1, b=12", 2, unclosed=True)) == ["a=1", " b=12"]


@pytest.mark.parametrize("name", CARRIED)
def test_what_the_collector_carries_is_python_3_9_and_needs_nothing_else(name: str) -> None:
    tree = ast.parse((PACKAGE / name).read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in names:
            carried = f"{module.removeprefix('workbench.').replace('.', '/')}.py" in CARRIED
            assert carried or module.partition(".")[0] in sys.stdlib_module_names, module


def test_a_secret_of_its_shape_is_never_made_a_token() -> None:
    shown = Redactor("s").environment(
        {"SGLANG_NOTE": "hf_" + "Ab3" * 8, "SGLANG_URL": "http://u:pw12@h/x"}
    )
    assert shown["SGLANG_NOTE"] == LEFT_OUT
    assert "pw12" not in shown["SGLANG_URL"]


@pytest.mark.parametrize(
    "marker", [m for m in (*PHASES, *ERRORS) if m.needle], ids=lambda m: f"{m.code}-{m.needle}"
)
def test_every_text_that_the_rules_know_stays(marker: Marker) -> None:
    words = re.findall(r"[A-Za-z0-9_=.-]+", marker.needle.replace("n't", ""))
    assert [word for word in words if not is_harmless(word.rstrip("="))] == []
