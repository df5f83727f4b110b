"""SGLang logs: clocks, ranks, shared lines, arguments, several launches, any size."""

from __future__ import annotations

import calendar
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from workbench.facts.startup_markers import read_marker
from workbench.hang.read import log as module
from workbench.hang.read.log import LONGEST_LINE, MOST_LINES, ReadLog, is_log, read_log
from workbench.launch.logs import fields_of

INCIDENT = Path(__file__).resolve().parents[3] / "data" / "incident" / "hang"
ARGS = "server_args=ServerArgs(model_path='m', tp_size=2, nnodes=1, node_rank=0, random_seed=5)"


def read(text: str | bytes) -> ReadLog:
    raw = text.encode() if isinstance(text, str) else text
    return read_log(io.BytesIO(raw), "server.log")


def at(text: str) -> float:
    date, clock = text.split()
    return calendar.timegm((*map(int, date.split("-")), *map(int, clock.split(":")), 0, 0, 0))


def test_a_recorded_hang() -> None:
    path = INCIDENT / "capture-hang" / "server.log"
    found = read(path.read_bytes())
    assert found.log.total_lines == len(path.read_bytes().rstrip(b"\n").split(b"\n"))
    assert found.log.last_at == at("2026-11-29 18:30:59")
    assert found.launches == 1
    assert found.arguments["tp-size"] == "2"
    assert found.arguments["model-path"] == "target"
    assert found.arguments["speculative-algorithm"] == "EAGLE3"
    assert found.exits == {}
    assert found.dumps == ()
    assert Counter(line.rank for line in found.log.lines).keys() == {"", "TP0", "TP1"}
    last = {line.rank: line.text for line in found.log.lines if line.rank}
    assert all(text.startswith("Capture target verify CUDA graph begin.") for text in last.values())
    # The texts leave few releases, and this is one of them.
    assert all(SpecifierSet(text).contains("0.5.14") for text in found.texts)
    assert not all(SpecifierSet(text).contains("0.5.13") for text in found.texts)


def test_a_bar_without_line_breaks() -> None:
    """tqdm writes no line break: of its states the last counts, and a message may follow on its line."""
    found = read(
        "[2026-11-29 18:30:59 TP0] Capture target verify CUDA graph begin. backend=full, bs=[1, 2]\n"
        "  0%|    | 0/2 [00:00<?, ?it/s]Capturing batches (bs=2 avail_mem=9.00 GB):   0%|    | 0/2 "
        "[00:00<?, ?it/s]Capturing batches (bs=1 avail_mem=8.00 GB):  50%|██  | 1/2 [00:01<00:01,  1.2s/it]"
        "[2026-11-29 18:31:02 TP1] Registering 12 cuda graph addresses\n"
    )
    events = [read_marker(line.text) for line in found.log.lines]
    bar = next(event for event in events if event and event.code == "capturing")
    assert (bar.facts["bs"], bar.facts["done"], bar.facts["of"]) == ("1", "1", "2")
    assert found.log.lines[-1].rank == "TP1"
    assert found.log.lines[-1].at == at("2026-11-29 18:31:02")
    assert found.log.lines[-1].number == 2


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("whole", [True, False], ids=["ended", "unended"])
def test_line_endings_colours_and_prefixes(ending: str, whole: bool) -> None:
    lines = [
        "\x1b[32m[2026-11-29 18:30:00 DP0 TP1 EP1]\x1b[0m Load weight begin. avail mem=1.00 GB",
        "2026-11-29T18:30:01.5Z stdout F [2026-11-29 18:30:01.250 DP0 TP1 EP1] Load weight end. x",
        "(SchedulerActor pid=17) [2026-11-29 18:30:02] The server is fired up and ready to roll!",
        "3: [2026-11-29 18:30:03 TP3] Memory pool end. avail mem=1.00 GB",
    ]
    text = ending.join(lines) + (ending if whole else "")
    stamped = [line for line in read(text).log.lines if line.at is not None]
    assert [(line.rank, line.text.split(".")[0]) for line in stamped] == [
        ("DP0 TP1 EP1", "Load weight begin"),
        ("DP0 TP1 EP1", "Load weight end"),
        ("", "The server is fired up and ready to roll!"),
        ("TP3", "Memory pool end"),
    ]
    assert stamped[1].at == at("2026-11-29 18:30:01") + 0.25


def test_a_clock_that_is_quoted_begins_no_message() -> None:
    quoted = "he said '[2026-11-29 18:30:00 TP7] Load weight begin.'"
    found = read(f"[2026-11-29 18:00:00 TP0] {quoted}\n{quoted}\n")
    assert {line.rank for line in found.log.lines} == {"TP0", ""}
    assert [line.at for line in found.log.lines] == [at("2026-11-29 18:00:00"), None]


def test_torchs_own_lines_have_a_rank_and_a_clock() -> None:
    found = read(
        "[2026-11-29 18:00:00 TP0] x\n"
        "[rank3]:[E1129 18:30:59.125000000 ProcessGroupNCCL.cpp:1] [PG ID 0] Heartbeat monitor timed out!\n"
        "[rank3]: Traceback (most recent call last):\n"
    )
    _, second, third = found.log.lines
    assert (second.rank, second.level, second.at) == (
        *("rank3", "error"),
        at("2026-11-29 18:30:59") + 0.125,
    )
    assert third.rank == "rank3"
    event = read_marker(second.text)
    assert event is not None
    assert event.code == "heartbeat"


def test_of_several_launches_the_last_is_judged() -> None:
    launch = f"[2026-11-29 18:00:00] {ARGS}\n[2026-11-29 18:00:01 TP0] Load weight begin. avail mem=1 GB\n"
    other = launch.replace("tp_size=2", "tp_size=4").replace("18:00", "19:00")
    found = read(launch + "[2026-11-29 18:00:02 TP0] Scheduler hit an exception: x\n" + other)
    assert found.launches == 2
    assert found.arguments["tp-size"] == "4"
    assert any("2 launches: the last one is judged" in note for note in found.notes)
    assert all(line.at is None or line.at >= at("2026-11-29 19:00:00") for line in found.log.lines)
    assert found.log.lines[0].number == 4


def test_nodes_that_share_a_file_are_one_launch() -> None:
    first = ARGS.replace("nnodes=1", "nnodes=2")
    second = first.replace("node_rank=0", "node_rank=1")
    found = read(f"[2026-11-29 18:00:00] {first}\n[2026-11-29 18:00:01] {second}\n")
    assert found.launches == 1
    assert found.arguments["node-rank"] == "0"
    again = read(
        f"[2026-11-29 18:00:00] {first}\n[2026-11-29 18:00:01] {second}\n[2026-11-29 18:00:09] {first}\n"
    )
    assert again.launches == 2


def test_a_prompt_cannot_begin_a_launch() -> None:
    text = f"[2026-11-29 18:00:00] {ARGS}\n[2026-11-29 18:00:01] got 'x {ARGS}'\n{ARGS}\n"
    found = read(text + f"[2026-11-29 18:00:02 TP0] {ARGS}\n")
    assert found.launches == 1
    assert found.log.lines[0].number == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "server_args=ServerArgs(a='x, y)', b=None, c=[1, 2], d={'k': (1, 2)}, e=G(f=1), h='it\\'s') t=1",
            {
                "a": "x, y)",
                "b": "None",
                "c": "[1, 2]",
                "d": "{'k': (1, 2)}",
                "e": "G(f=1)",
                "h": "it's",
            },
        ),
        (
            "server_args={'model_path': 'm:1', 'tp_size': 2, 'cfg': {'a': 1}, 'api_key': 'k'}",
            {"model-path": "m:1", "tp-size": "2", "cfg": "{'a': 1}", "api-key": "<left out>"},
        ),
        ("server_args=ServerArgs(", {}),
        ("server_args=ServerArgs(a='unended", {}),
        ("server_args=", {}),
        ("nothing", {}),
    ],
)
def test_arguments(text: str, wanted: dict[str, str]) -> None:
    assert fields_of(text)[0] == wanted


def test_keys_in_arguments_reach_nothing() -> None:
    secret = "sk-very-secret"
    found = read(f"[2026-11-29 18:00:00] server_args=ServerArgs(tp_size=2, api_key='{secret}')\n")
    assert found.arguments == {"tp-size": "2", "api-key": "<left out>"}
    assert secret not in repr(found)
    event = read_marker(found.log.lines[0].text)
    assert event is not None
    assert event.code == "server_args"


def test_exit_codes_and_ends_that_were_asked_for() -> None:
    died = "[2026-11-29 18:00:00] RuntimeError: Rank 3 scheduler died during initialization (exit code: -9)."
    crashed = "[2026-11-29 18:00:01] Subprocess scheduler_1 (pid=17) crashed with exit code -6. Triggering"
    other = "[2026-11-29 18:00:01] Subprocess detokenizer_0 (pid=18) crashed with exit code 1. Triggering"
    assert read(f"{died}\n{crashed}\n{other}\n").exits == {3: -9, 1: -6, -18: 1}
    assert read(f"[2026-11-29 17:59:00] SIGTERM received. x\n{crashed}\n").exits == {}
    assert read((INCIDENT / "first-start" / "server.log").read_bytes()).exits == {}


def test_dumps_inside_a_log_have_the_clock_of_their_line() -> None:
    found = read(
        "[2026-11-29 18:40:00 TP1] Pyspy dump for PID 42:\nProcess 42: sglang::scheduler_TP1\n"
        'Python v3.12.3 (/usr/bin/python3)\n\nThread 42 (idle): "MainThread"\n    barrier (x.py:3)\n\n'
        "[2026-11-29 18:40:01 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)\n"
        "Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/x.py", line 3 in f\n'
    )
    watchdog, fault = found.dumps
    assert (watchdog.dump.source, watchdog.prefix) == ("watchdog", "TP1")
    assert watchdog.dump.at == at("2026-11-29 18:40:00")
    assert (fault.dump.source, fault.dump.at) == ("faulthandler", at("2026-11-29 18:40:01"))
    assert fault.dump.threads[0].frames[0].function == "f"


class Endless(io.RawIOBase):
    """A log of any length that is never in memory; counts how often it is read."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.parts = parts

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return next(self.parts, b"")


def test_a_long_log_is_read_in_one_pass_and_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("HEAD_BYTES", 200_000), ("TAIL_BYTES", 300_000), ("MIDDLE_BYTES", 100_000)):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(module, "_AROUND", 2_000)
    batch = b"[2026-11-29 19:00:00 TP0] Decode batch, #running-req: 1, #token: 5\n" * 1000

    def parts() -> Iterator[bytes]:
        yield f"[2026-11-29 17:00:00] {ARGS}\n".encode() + batch
        yield b"[2026-11-29 17:30:00 TP0] Scheduler hit an exception: of the launch before\n"
        yield f"[2026-11-29 18:00:00] {ARGS}\n".encode()
        yield b"[2026-11-29 18:00:01 TP0] Load weight begin. avail mem=1.00 GB\n"
        yield from [batch] * 60
        yield b"[2026-11-29 20:00:00 TP1] Scheduler hit an exception: in the middle\n"
        yield from [batch] * 60
        yield b"[2026-11-29 21:00:00 TP0] the last line"

    found = read_log(Endless(parts()), "big.log")
    assert found.log.total_lines == 3 + 2 + 121 * 1000 + 1
    assert len(found.log.lines) <= MOST_LINES
    texts = [line.text for line in found.log.lines]
    assert found.launches == 2
    assert "Scheduler hit an exception: in the middle" in texts
    assert "Scheduler hit an exception: of the launch before" not in texts
    assert "Load weight begin. avail mem=1.00 GB" in texts
    last = found.log.lines[-1]
    assert (last.text, last.number) == ("the last line", found.log.total_lines)
    middle = next(line for line in found.log.lines if "in the middle" in line.text)
    assert middle.number == 1001 + 1 + 2 + 60_000 + 1
    assert any("searched for errors only" in note for note in found.notes)


def test_a_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 1000)
    found = read(b"[2026-11-29 18:00:00 TP0] " + b"x" * 300_000)
    assert all(len(line.text) <= LONGEST_LINE for line in found.log.lines)
    assert found.log.lines[0].rank == "TP0"


def test_a_damaged_stream_gives_what_came_before() -> None:
    def parts() -> Iterator[bytes]:
        yield b"[2026-11-29 18:00:00 TP0] Load weight begin. avail mem=1.00 GB\n"
        raise OSError("CRC check failed")

    found = read_log(Endless(parts()), "x")
    assert len(found.log.lines) == 1
    assert any("CRC" in note for note in found.notes)


def test_what_is_a_log() -> None:
    assert is_log(b"noise\n[2026-11-29 18:00:00] x")
    assert is_log(b"[rank0]: Traceback")
    assert not is_log(b"# a markdown file\n[link](x)")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                f"[2026-11-29 18:00:00] {ARGS}",
                "[2026-11-29 18:00:00 TP0] Load weight begin.",
                "[9999-99-99 99:99:99 TP0] x",
                "\r",
                "it/s]",
                "Capturing batches (bs=1 avail_mem=1.0 GB): 0%|",
                "\x1b[",
                "[rank1]:[E9999 99:99:99.1 x",
                "Process 7: x",
                "Fatal Python error: x",
            ]
        )
        | st.binary(max_size=30).map(lambda raw: raw.decode("latin-1")),
        max_size=40,
    )
)
def test_any_lines_are_read(lines: list[str]) -> None:
    for joint in ("\n", ""):
        found = read(joint.join(lines))
        assert found.log.total_lines <= joint.join(lines).count("\n") + 1
        for line in found.log.lines:
            assert line.text.isprintable()
            assert line.number <= max(found.log.total_lines, 1)


AWKWARD = (
    f"[2026-11-29 18:30:49 TP0] {ARGS}",
    f"[2026-11-29 18:30:49] {ARGS}",
    "[2026-11-29 18:30:49 TP1] ERROR: no [2026-11-29 18:30:50 TP0] two",
    "[2026-11-29 18:30:49 TP1] Capturing batches (bs=1): 0%|\rCapturing batches (bs=1): 9%|",
    "[2026-11-29 18:30:49.123 DP1 TP1]  WARNING: a tail  ",
    "[2026-11-29 18:30:49 TP1]",
    "[2026-11-29 99:30:49 TP1] no clock",
    "[2026-11-29 18:30:49 TP1] " + "x" * 5000,
    "[rank1]:[E1129 18:30:59.123456789 x",
    "[2026-11-29 18:30:49 TP1] a bell \x07, a word of RTL \u202e",
)


def test_the_short_way_of_ordinary_lines_reads_as_the_long_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearly every line of a long log is one message: it is read without the search for others."""
    lines = [*AWKWARD]
    for path in INCIDENT.parent.rglob("server.log"):
        lines += path.read_text(errors="replace").split("\n")
    short = [list(module._pieces(line, 1, 2026)) for line in lines]
    assert sum(line.startswith("[") and module._is_one(line) for line in lines) > 1000
    monkeypatch.setattr(module, "_is_one", lambda line: False)
    assert short == [list(module._pieces(line, 1, 2026)) for line in lines]


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 7, 5 << 20])
def test_a_line_is_put_together_over_blocks_of_a_file(size: int) -> None:
    """Blocks end inside of lines; a line of more than four blocks is cut."""
    whole = b"[2026-11-29 18:30:49 TP1] " + b"x" * size + b"\n[2026-11-29 18:30:50 TP0] end\n"
    found = read(whole).log
    assert (found.lines[-1].text, found.lines[-1].rank) == ("end", "TP0")
    assert found.lines[0].rank == "TP1"
    assert found.total_lines == (2 if size < 4 << 20 else 3)
