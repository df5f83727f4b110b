"""Logs as containers, orchestrators and launchers carry them: the prefix is taken off, and nothing else."""

from __future__ import annotations

import io

import pytest

from workbench.hang.read.log import read_log
from workbench.hang.read.prefixes import without_prefix

LOG = (
    "[2026-11-29 13:26:40] server_args=ServerArgs(model_path='m', tp_size=2)",
    "[2026-11-29 13:27:00 TP0] Init torch distributed begin.",
    "[2026-11-29 13:27:00 TP1] Init torch distributed begin.",
    "  File \"scheduler.py\", line 3, in run",
    "[rank1]:[E1129 13:40:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught",
)  # fmt: skip
FORMS = {
    "docker compose": "sglang-1  | {}",
    "CRI": "2026-11-29T13:27:00.123456789Z stdout F {}",
    "kubectl --timestamps": "2026-11-29T13:27:00.123456789Z {}",
    "kubectl --prefix": "[pod/sglang-0/server] {}",
    "Ray": "(SGLangEngine pid=4021, ip=10.0.0.4) {}",
    "Ray in colour": "\x1b[36m(SGLangEngine pid=4021)\x1b[0m {}",
    "journald": "Nov 29 13:27:00 node7 sglang[4711]: {}",
    "journald, ISO": "2026-11-29T13:27:00+01:00 node7 sglang[4711]: {}",
    "srun --label": "3: {}",
    "mpirun --tag-output": "[1,3]<stdout>: {}",
    "a quotation": "> {}",
    "compose in journald": "Nov 29 13:27:00 node7 docker[9]: sglang-1  | {}",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_prefix_is_taken_off(form: str) -> None:
    assert without_prefix([form.format(line) for line in LOG]) == list(LOG)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_log_reads_as_it_does_without_the_prefix(form: str) -> None:
    text = "\n".join(form.format(line) for line in LOG)
    plain = read_log(io.BytesIO("\n".join(LOG).encode()), "a.log")
    carried = read_log(io.BytesIO(text.encode()), "a.log")
    assert carried.log.lines == plain.log.lines
    assert carried.arguments == plain.arguments


def test_a_log_without_a_prefix_is_left_as_it_is() -> None:
    assert without_prefix(LOG) == list(LOG)
    table = ["a | b", *LOG, *LOG]  # a few lines that look like compose
    assert without_prefix(table) == table
    assert without_prefix([]) == []
