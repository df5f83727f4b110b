"""The table of rules, and the rules that may not be broken, on random groups of ranks."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest

from tests.hang.cases.build import BARRIER, CAPTURE, IDLE_N, R, scene, started
from tests.hang.cases.rule_scenes import BUILDS, ENDS, KERNEL, REGISTERS
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.experiments import STEPS
from workbench.hang.judge.rules import RULES
from workbench.hang.records import Gpu, Log, LogLine, Scene

WAITS = f"{BARRIER} {CAPTURE}"
STACKS = {
    "barrier": WAITS,
    "reduce": f"all_reduce GroupCoordinator.all_reduce {CAPTURE}",
    "forward": f"LlamaForCausalLM.forward {CAPTURE}",
    "kernel": KERNEL,
    "build": BUILDS,
    "lock": f"BaseFileLock.acquire LlamaForCausalLM.forward {CAPTURE}",
    "driver": ENDS,
    "registers": REGISTERS,
    "idle": IDLE_N,
    "queue": f"Queue.get {CAPTURE}",
}
WAITING = {"barrier", "reduce", "registers", "idle"}


@pytest.mark.parametrize("seed", range(300))
def test_random_groups_are_never_accused_against_the_rules(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice([2, 3, 4, 8])
    common = dice.choice(list(STACKS))
    kinds = [common if dice.random() < 0.7 else dice.choice(list(STACKS)) for _ in range(count)]
    broken = dice.choice(["", "", "", "unseen", "one look", "elsewhere", "dead"])
    victim = dice.randrange(count)
    ranks = [R(STACKS[kind]) for kind in kinds]
    if broken == "unseen":
        ranks[victim] = R(refusal="no permission")
    if broken == "dead":
        ranks[victim] = R(state="Z")
    arguments = (
        {"tp-size": str(count)}
        if broken != "elsewhere"
        else {"tp-size": str(2 * count), "nnodes": "2"}
    )
    looks = 1 if broken == "one look" else 2
    got = diagnose(scene(ranks, looks=looks, arguments=arguments, log=started(count, "decode")))
    if broken:
        assert got.odd_ranks == ()
    if broken == "dead":
        assert (got.state, got.missing_ranks) == ("dead_rank", (victim,))
    elif broken:
        assert got.state != "hung" or broken == "unseen"
        assert got.missing_ranks == ()
    if len(set(kinds)) == 1:
        assert got.odd_ranks == ()
    if got.odd_ranks:
        assert len(got.odd_ranks) <= count / 2
        odd = {kinds[rank] for rank in got.odd_ranks}
        rest = {kinds[rank] for rank in range(count)} - odd
        assert odd.isdisjoint(rest)
        # Whoever is named either is in no collective, or is alone in another one than all the rest.
        assert not odd & WAITING or (len(got.odd_ranks) == 1 and count >= 3)


def test_the_table_is_consistent() -> None:
    for rule in RULES:
        assert rule.evidence
        assert rule.cause
        assert rule.ladder
        assert set(rule.ladder) <= set(STEPS), rule.code
        assert rule.names is None or rule.state in ("hung", "stopped", "crashed")
        if rule.state == "cannot_tell":
            assert rule.unknown
    assert RULES[-1].code == "no_rule"


def test_each_rule_has_a_code_of_its_own_in_words() -> None:
    codes = [rule.code for rule in RULES]
    assert sorted(set(codes)) == sorted(codes)
    assert [code for code in codes if not re.fullmatch("[a-z]+(_[a-z]+)*", code)] == []


def test_every_step_changes_exactly_one_thing() -> None:
    for name, step in STEPS.items():
        ways = [bool(step.spellings), bool(step.variable), bool(step.without), bool(step.act)]
        assert sum(ways) == 1, name
        assert step.right
        assert step.wrong
        assert step.cost
        if step.variable:
            assert " " not in step.variable


def test_the_ladder_goes_on_where_a_step_is_taken() -> None:
    ranks = [R(WAITS), R(WAITS), R(STACKS["forward"]), R(WAITS)]
    taken: dict[str, str] = {"tp-size": "4"}
    proposed = []
    for flag, value in (
        ("cuda-graph-backend-decode", "disabled"),
        ("disable-custom-all-reduce", "True"),
        ("soft-watchdog-timeout", "120"),
    ):
        got = diagnose(scene(ranks, arguments=taken, log=started(4, "decode")))
        proposed.append(got.experiment.change.split()[0])
        taken = taken | {flag: value}
    last = diagnose(scene(ranks, arguments=taken, log=started(4, "decode")))
    assert proposed == [
        "--cuda-graph-backend-decode=disabled",
        "--disable-custom-all-reduce",
        "--soft-watchdog-timeout",
    ]
    assert "snapshots=2" in last.experiment.change


def test_a_deprecated_flag_counts_as_taken() -> None:
    ranks = [R(WAITS), R(STACKS["forward"]), R(WAITS)]
    arguments = {"tp-size": "3", "disable-cuda-graph": "True"}
    got = diagnose(scene(ranks, arguments=arguments, log=started(3, "decode")))
    assert got.experiment.change.startswith("--disable-custom-all-reduce")


def test_a_variable_that_is_set_counts_as_taken() -> None:
    ranks = [R(WAITS), R(ENDS), R(WAITS)]
    got = diagnose(
        scene(ranks, log=started(3, "decode"), environment={"CUDA_MODULE_LOADING": "EAGER"})
    )
    assert got.experiment.change.startswith("--cuda-graph-backend-decode=disabled")


def test_visible_devices_are_swapped_as_they_were_given() -> None:
    ranks = [R(WAITS), R(WAITS), R(KERNEL, cpu=1.0, gpu=(76000.0, 100.0, 150.0)), R(WAITS)]
    got = diagnose(
        scene(ranks, log=started(4, "decode"), environment={"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    )
    assert got.experiment.change.startswith("CUDA_VISIBLE_DEVICES=4,5,7,6")
    assert got.experiment.undo == "set CUDA_VISIBLE_DEVICES=4,5,6,7 again"


def test_an_empty_scene_is_not_told() -> None:
    got = diagnose(Scene("nothing"))
    assert (got.state, got.phase, got.odd_ranks, got.missing_ranks) == (
        "cannot_tell",
        "unknown",
        (),
        (),
    )
    assert got.to_text(80)


def test_hostile_evidence_is_judged_too() -> None:
    lines = tuple(
        LogLine(i, "\x1b[2J Load weight begin. " + "x" * 5000, float("nan"), "TP999999")
        for i in range(50)
    )
    odd = Scene(
        "\x1b]0;x",
        logs=(Log("l", lines, last_at=float("inf")),),
        arguments={"tp-size": "-3", "dp-size": "x", "nnodes": "9" * 50},
        exits={-5: 10**9, 3: -9},
        records={"ras": [{"communicators": [{"ranks": [None, {"rank": "x"}]}]}]},
        expected_ranks=4,
    )
    got = diagnose(odd)
    assert "\x1b" not in got.to_text(80)
    got.payload()
    assert diagnose(Scene("gpu", snapshots=(), records={"ras": "text"})).state == "cannot_tell"
    assert Gpu(0).processes == {}


def test_a_rank_that_waits_for_another_lock_than_before_got_on() -> None:
    def at(first: str, then: str) -> Scene:
        made = scene(
            [R(WAITS), R(STACKS["lock"], locks=(then,)), R(WAITS)], log=started(3, "decode")
        )
        before = made.snapshots[0]
        processes = tuple(
            dataclasses.replace(one, lock_files=(first,)) if one.lock_files else one
            for one in before.processes
        )
        earlier = dataclasses.replace(before, processes=processes)
        return dataclasses.replace(made, snapshots=(earlier, *made.snapshots[1:]))

    assert diagnose(at("/cache/a.lock", "/cache/a.lock")).state == "hung"
    moved = diagnose(at("/cache/a.lock", "/cache/b.lock"))
    assert (moved.state, moved.odd_ranks) == ("slow", ())
