"""Where a server is by its log: who is behind, which lines count, by which release's order."""

from __future__ import annotations

import pytest

from tests.hang.cases.build import IDLE_0, IDLE_N, R, scene, started, written
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.phases import Story, numbered, read_story


def story(lines: list[str], version: str = "0.5.14", ranks: int = 2, **arguments: str) -> Story:
    given = {"tp-size": str(ranks)} | {name.replace("_", "-"): v for name, v in arguments.items()}
    return read_story([written(lines)], version, given, ranks=ranks)


def test_lines_of_rank_0_alone_do_not_put_it_ahead() -> None:
    alone = [
        "80 TP0| Capture draft decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1]",
        "85 TP0| Capture draft decode CUDA graph end. elapsed=4.85 s, mem usage=0.04 GB",
        "86 TP0| max_total_num_tokens=16384, chunked_prefill_size=8192",
    ]
    told = story([*started(2, "captured"), *alone], speculative_algorithm="EAGLE3")
    assert told.reached == {0: "graph_draft", 1: "graph_draft"}
    assert told.after[0] == told.after[1]
    # Where nobody is behind they say how far the whole is.
    assert told.phase == "init_done"


def test_the_rank_furthest_behind_is_the_phase() -> None:
    late = [
        line for line in started(4, "pool") if "TP2| " not in line or "Load weight begin" in line
    ]
    told = story(late, ranks=4)
    assert told.reached == {0: "warmup", 1: "warmup", 2: "weights", 3: "warmup"}
    assert told.phase == "weights"


def test_what_follows_depends_on_the_release_and_on_the_draft() -> None:
    after_weights = {
        version: story(started(2, "weights", version), version).phase
        for version in ("0.5.8", "0.5.14")
    }
    assert set(after_weights.values()) == {"load_barrier"}
    captured = started(2, "captured", "0.5.8")
    assert story(captured, "0.5.8", speculative_algorithm="EAGLE3").phase == "weights"
    assert story(captured, "0.5.8").phase == "init_done"
    assert story(started(2, "captured"), speculative_algorithm="EAGLE3").phase == "graph_draft"


BATCH = "90 TP0| Decode batch. #running-req: 1, #token: 100, token usage: 0.01, cuda graph: True"


@pytest.mark.parametrize(
    ("lines", "port", "phase"),
    [
        (started(2, "captured"), None, "init_done"),
        (started(2, "captured"), False, "init_done"),
        # What only a server that has started does or says
        (started(2, "captured"), True, "ready"),
        ([*started(2, "captured"), BATCH], None, "ready"),
        (started(2, "ready"), None, "ready"),
        ([], None, "ready"),
    ],
)
def test_ranks_in_their_event_loops_are_ready_unless_the_log_is_of_the_start(
    lines: list[str], port: bool | None, phase: str
) -> None:
    ranks = [R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.6)]
    assert diagnose(scene(ranks, log=lines, port_open=port)).phase == phase


def test_spans_have_both_ends_or_stay_open() -> None:
    told = story(started(2, "decode"))
    of_rank_1 = {span.phase: span for span in told.spans if span.rank == 1}
    assert of_rank_1["weights"].seconds == 5.0
    assert of_rank_1["graph_decode"].end is None
    parent = next(span for span in told.spans if span.rank is None)
    assert (parent.phase, parent.end) == ("spawn", of_rank_1["dist_init"].begin)


def test_a_single_rank_has_no_prefix() -> None:
    assert story(started(1, "pool"), ranks=1).reached == {0: "warmup"}
    assert story(started(1, "pool"), ranks=2).reached == {}


def test_prefixes_are_world_ranks() -> None:
    sizes = {"tp-size": "4", "pp-size": "2"}
    assert numbered("PP1 TP2", sizes, replicas=False, ranks=8) == 6
    assert numbered("DP1 TP1", {"tp-size": "4"}, replicas=True, ranks=8) == 5
    assert numbered("DP1 TP1 EP1", {"tp-size": "4"}, replicas=False, ranks=4) == 1
    assert numbered("", sizes, replicas=False, ranks=8) is None


NOISE = "90 TP1| [2026] NCCL WARN Call to ibv_modify_qp failed"
DEATH = "95 Rank 1 scheduler died during initialization (exit code: -9). If exit code is negative"


@pytest.mark.parametrize("repeats", [10, 199, 200, 201, 5000])
def test_a_rank_dies_after_however_many_warnings(repeats: int) -> None:
    told = story([*started(2, "pool"), *[NOISE] * repeats, DEATH])
    assert told.fatal
    assert [one.event.code for one in told.errors][-1] == "rank_died"


def test_an_error_that_repeats_is_kept_two_hundred_times_and_its_end() -> None:
    """Both sides: what many ranks write is whole, and what one writes without end is no memory."""
    lines = [f"90 TP1| NCCL WARN Call {number} failed" for number in range(200)]
    assert len(story([*started(2, "pool"), *lines]).errors) == 200
    more = story([*started(2, "pool"), *lines, *[NOISE] * 50, "99 TP1| NCCL WARN the last"])
    assert len(more.errors) == 201
    assert more.errors[-1].line.text.endswith("the last")
    both = [line.replace("TP1", rank) for line in lines for rank in ("TP0", "TP1")]
    assert len(story([*started(2, "pool"), *both]).errors) == 400
