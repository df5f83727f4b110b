"""A wait for a GPU of which nobody knows what it does; and whose GPU rests while those of all others work."""

from __future__ import annotations

import dataclasses

import pytest

from tests.hang.cases.build import BARRIER, CAPTURE, R, scene, started
from tests.hang.cases.rule_scenes import KERNEL, WAITS
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.records import Scene

LOCKED = f"BaseFileLock.acquire LlamaForCausalLM.forward {CAPTURE}"


def waiting(
    gpu: tuple[float, float, float] | None, stack: str = KERNEL, other: str = WAITS, **more: object
) -> Scene:
    """Rank 2 waits for its GPU in both snapshots, the other three for rank 2."""
    ranks = [R(WAITS), R(other), R(stack, cpu=1.0, gpu=gpu), R(WAITS)]
    return scene(ranks, gpu=None, log=started(4, "decode"), **more)  # type: ignore[arg-type]


def told(got: HangDiagnosis) -> tuple[str, str, tuple[int, ...]]:
    return got.state, got.rule, got.odd_ranks


@pytest.mark.parametrize(
    ("gpu", "answer"),
    [
        (None, ("cannot_tell", "unread_gpu", ())),
        ((76000, 100, 300), ("cannot_tell", "unread_gpu", ())),  # neither a spin nor work
        ((76000, 50, 150), ("cannot_tell", "unread_gpu", ())),
        ((76000, 100, 199), ("hung", "endless_kernel", (2,))),
        ((76000, 0, 120), ("hung", "decode_capture", (2,))),
        ((76000, 100, 600), ("slow", "gpu_computes", ())),
    ],
)
def test_utilisation_and_power_together_say_whether_a_kernel_ends(
    gpu: tuple[float, float, float] | None, answer: tuple[str, str, tuple[int, ...]]
) -> None:
    got = diagnose(waiting(gpu))
    assert told(got) == answer
    assert got.ok is (False if answer[0] == "hung" else None)
    assert ("nvidia-smi" in got.experiment.change) is (answer[1] == "unread_gpu")


@pytest.mark.parametrize(
    ("stack", "other", "answer"),
    [
        # A wait of its own on the host says by itself who is behind; a GPU's says nothing then.
        (KERNEL, LOCKED, ("hung", "lock_wait", (1,))),
        (WAITS, LOCKED, ("hung", "lock_wait", (1,))),
        (KERNEL, KERNEL, ("cannot_tell", "unread_gpu", ())),
        (WAITS, KERNEL, ("cannot_tell", "unread_gpu", ())),
    ],
)
def test_a_rank_in_a_wait_of_its_own_is_behind_whatever_the_gpus_do(
    stack: str, other: str, answer: tuple[str, str, tuple[int, ...]]
) -> None:
    assert told(diagnose(waiting(None, stack, other))) == answer


@pytest.mark.parametrize(("counts", "state"), [((50, 50), "cannot_tell"), ((50, 49), "hung")])
def test_counts_of_nccl_are_evidence_of_a_stop(counts: tuple[int, int], state: str) -> None:
    first, second = counts
    told_of = [
        {"rank": rank, "collective_counts": {"AllReduce": second if rank == 2 else first}}
        for rank in range(4)
    ]
    made = waiting(None)
    got = diagnose(
        dataclasses.replace(made, records={"ras": [{"communicators": [{"ranks": told_of}]}]})
    )
    assert got.state == state


def test_all_ranks_at_their_gpus_without_readings_are_no_hang_for_certain() -> None:
    ranks = [R(KERNEL, cpu=1.0) for _ in range(4)]
    unread = diagnose(scene(ranks, gpu=None, log=started(4, "decode")))
    spins = diagnose(scene(ranks, gpu=(76000, 100, 130), log=started(4, "decode")))
    assert (unread.state, unread.rule, unread.ok) == ("cannot_tell", "unread_gpu", None)
    assert (spins.state, spins.rule, spins.ok) == ("hung", "all_on_gpu", False)


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ((0, 100, 100, 100), "the GPU of TP0 is at 0 %, those of all others are busy"),
        ((0, 15, 100, 100), "the GPU of TP0-1 is at 15 %, those of all others are busy"),
        ((0, 0, 0, 100), ""),  # most rest
        ((100, 100, 100, 100), ""),  # none rests
        ((0, 0, 0, 0), ""),  # none is busy
        ((0, 50, 100, 100), ""),  # one does neither
    ],
)
def test_whose_gpu_rests_is_said_where_all_others_are_busy(
    used: tuple[int, ...], said: str
) -> None:
    ranks = [
        R(f"{BARRIER} LlamaForCausalLM.forward {CAPTURE}", gpu=(76000.0, float(one), 130.0))
        for one in used
    ]
    got = diagnose(scene(ranks, log=started(4, "decode")))
    titles = [one.title for one in got.findings if one.code == "gpu_at_rest"]
    assert titles == ([said] if said else [])


@pytest.mark.parametrize(
    ("gpu", "cpu", "rule"),
    [
        (None, 0.05, "missing_stack"),
        ((76000.0, 100.0, 130.0), 0.05, "asleep_at_start"),  # it spins: nothing is computed
        ((76000.0, 0.0, 120.0), 0.1, "asleep_at_start"),
        ((76000.0, 0.0, 120.0), 0.11, "missing_stack"),  # who uses CPU time does not sleep
    ],
)
def test_a_rank_at_its_gpu_sleeps_only_where_its_gpu_is_known(
    gpu: tuple[float, float, float] | None, cpu: float, rule: str
) -> None:
    ranks = [R(KERNEL, cpu=cpu, gpu=gpu), R(refusal="no permission", cpu=0.01), R(WAITS)]
    got = diagnose(scene(ranks, gpu=None, log=started(3, "decode")))
    assert (got.rule, got.odd_ranks) == (rule, ())
