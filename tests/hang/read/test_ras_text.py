"""NCCL RAS's text, which lists only the ranks that differ from most."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import workbench
from tests.hang.cases.build import R
from tests.hang.cases.rule_scenes import counted
from workbench.evidence.redact import Redactor
from workbench.hang.collect.collector import ras
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.records import Scene

HEAD = """NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1         4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4        4   RUNNING  MISMATCH

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
"""
ONE_BEHIND = """  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 41
  Rank 2 has launched up to operation 40 -- GPU 2 managed by process 1002 on node gpu-1.example.com
"""
TWO_AHEAD = """  Communicator ranks have different AllGather operation counts
  2 ranks have not launched any operations
  2 ranks have launched up to operation 7
  Rank 0 -- GPU 0 managed by process 1000 on node gpu-1.example.com
  Rank 3 -- GPU 3 managed by process 1003 on node gpu-1.example.com
"""


def counts(text: str) -> list[dict[int, dict[str, int]]]:
    answer = ras.of_text((HEAD + text).encode())
    return [
        {one["rank"]: one["collective_counts"] for one in each["ranks"]}
        for each in answer["communicators"]
    ]


def test_most_ranks_are_those_in_no_list() -> None:
    assert counts(ONE_BEHIND) == [
        {0: {"AllReduce": 41}, 1: {"AllReduce": 41}, 2: {"AllReduce": 40}, 3: {"AllReduce": 41}}
    ]


def test_two_operations_of_one_communicator_are_joined() -> None:
    (found,) = counts(ONE_BEHIND + TWO_AHEAD)
    assert found[0] == {"AllReduce": 41, "AllGather": 7}
    assert found[2] == {"AllReduce": 40, "AllGather": 0}


@pytest.mark.parametrize(
    "text",
    [
        ONE_BEHIND.replace("Rank 2 has", "Rank 9 has"),
        TWO_AHEAD.replace(
            "  Rank 3 -- GPU 3 managed by process 1003 on node gpu-1.example.com\n", ""
        ),
        ONE_BEHIND + "  2 ranks have launched up to operation 39\n",
    ],
    ids=["a rank beyond the communicator", "a list cut short", "two groups without a list"],
)
def test_numbers_that_do_not_add_up_are_left_out(text: str) -> None:
    assert counts(text) in ([], [{}])


def test_the_collector_keeps_the_counts_and_no_host() -> None:
    answer = (HEAD + ONE_BEHIND).encode()
    assert ras.is_text(answer)
    kept = ras.kept(answer, Redactor("salt").host)
    assert "example" not in str(kept)
    assert kept["communicators"][0]["ranks"][2]["collective_counts"] == {"AllReduce": 40}


def test_the_text_votes_as_the_json_does(tmp_path: Path) -> None:
    same = [R("synchronize@torch/cuda/streams.py CudaGraphRunner.capture", cpu=1.0)] * 4
    told = counted(same, {0: 41, 1: 41, 2: 40, 3: 41})
    text = dataclasses.replace(told, records={"ras": [ras.of_text((HEAD + ONE_BEHIND).encode())]})
    assert diagnose(text).odd_ranks == diagnose(told).odd_ranks == (2,)


def test_counts_alone_name_nobody_and_say_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "ncclras.out"
    file.write_text(HEAD + ONE_BEHIND)
    found = workbench.open_evidence(file)
    assert (found.state, found.rule, found.odd_ranks, found.ok) == (
        "cannot_tell", "launch_counts", (), None,
    )  # fmt: skip
    titles = " ".join(one.title for one in found.findings)
    assert "AllReduce: 40 on ranks 2, 41 on ranks 0-1,3" in titles


def test_equal_counts_are_no_launch_counts(tmp_path: Path) -> None:
    file = tmp_path / "ncclras.out"
    file.write_text(HEAD.replace("MISMATCH", "OK"))
    assert workbench.open_evidence(file).rule != "launch_counts"
    assert diagnose(Scene("x", snapshots=())).rule != "launch_counts"
