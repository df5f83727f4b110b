"""Logs of vLLM: whose a line is, its clock, the version and the size; and what only looks like them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from workbench.hang.read.log import is_log, read_log
from workbench.hang.read.scene import read_scene
from workbench.hang.read.vllm_lines import read_vllm_line

LOG = """\
(APIServer pid=1) INFO 10-22 09:40:01 [api_server.py:1839] vLLM API server version 0.11.0
(EngineCore_DP0 pid=2) INFO 10-22 09:40:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='m', tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1
(Worker_TP0 pid=3) INFO 10-22 09:41:30 [gpu_model_runner.py:2653] Model loading took 9.0 GiB and 20.1 seconds
(Worker_TP1 pid=4) [rank1]:[E1022 09:41:31.123456789 ProcessGroupNCCL.cpp:607] Watchdog caught collective
"""


@pytest.mark.parametrize(
    ("line", "rank", "level", "message"),
    [
        ("(Worker_DP1_TP3_EP3 pid=7) INFO 10-22 09:41:30 [a.py:1] x", "DP1 TP3 EP3", "info", "x"),
        ("(VllmWorker rank=3 pid=7) WARNING 04-28 09:41:30 [a.py:1] x", "rank3", "warning", "x"),
        ("INFO 04-28 09:41:30 [a.py:1] x", "", "info", "x"),
        ("INFO 12-03 09:41:30 config.py:350] x", "", "info", "x"),
        ("(EngineCore_DP0 pid=2) ERROR 10-22 09:41:30 [v1/engine/core.py:1] x", "", "error", "x"),
        ("(EngineCore_DP0 pid=2) (Worker_TP1 pid=9) INFO 10-22 09:41:30 [a.py:1] x", "TP1", "info", "x"),
        ("(Worker_TP0 pid=7) Traceback (most", "TP0", "", "Traceback (most"),
    ],
)  # fmt: skip
def test_a_line_has_a_rank_a_level_and_a_message(
    line: str, rank: str, level: str, message: str
) -> None:
    found = read_vllm_line(line)
    assert found is not None
    assert (found.rank, found.level, found.message) == (rank, level, message)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 18:30:49 TP1] Load weight begin.",
        "INFO:     Started server process [4021]",
        "(APIServer) INFO",
        "INFO 10-22 later",
    ],
)
def test_other_lines_are_none_of_vllm(line: str) -> None:
    assert read_vllm_line(line) is None


@pytest.mark.parametrize(
    "prefix", ["", "vllm-1  | ", "2026-11-29T18:30:49.123456789Z stdout F ", "\x1b[1;36m"]
)
def test_a_log_names_the_engine_its_version_and_its_size(prefix: str) -> None:
    text = "".join(prefix + line + "\n" for line in LOG.splitlines())
    assert is_log(LOG.encode())
    read = read_log(io.BytesIO(text.encode()), "server.log")
    assert (read.engine, read.version) == ("vllm", "0.11.0")
    assert read.arguments == {"tp-size": "2", "pp-size": "1", "dp-size": "1"}
    assert [line.rank for line in read.log.lines] == ["", "", "TP0", "TP1"]


def test_a_clock_without_a_year_takes_the_year_of_the_collection() -> None:
    first = read_log(io.BytesIO(LOG.encode()), "a", year=2026).log.lines[0].at
    second = read_log(io.BytesIO(LOG.encode()), "a").log.lines
    assert first == 1792662001.0  # 2026-10-22 09:40:01
    assert second[1].at - second[0].at == 19.0  # type: ignore[operator]


def test_a_line_of_the_vllm_logger_in_a_log_of_sglang_changes_nothing(tmp_path: Path) -> None:
    text = "INFO 12-03 09:41:30 __init__.py:207] Automatically detected platform cuda.\n"
    text += "[2026-11-29 18:30:49 TP0] Load weight begin. avail mem=138.27 GB\n"
    (tmp_path / "server.log").write_text(text)
    assert read_scene(tmp_path).engine == "sglang"


def test_nothing_names_an_engine_in_a_bare_log(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("[rank0]:[E1129 18:30:59.1 ProcessGroupNCCL.cpp:1] x\n")
    assert read_scene(tmp_path).engine == ""


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("[11/29/2026-13:40:00] [TRT-LLM] [RANK 3] [I] PyTorchConfig(...)", "tensorrt_llm"),
        ("[11/29/2026-13:40:00] [TRT-LLM] [W] Hang detected", "tensorrt_llm"),
        ("[TensorRT-LLM][INFO] MPI size: 8", "tensorrt_llm"),
        ("2026-11-29 13:40:00 backend: [TRT-LLM] [I] chosen", ""),  # another's line about it
        ("[11/29/2026-13:40:00] [TRT] [I] building", ""),
    ],
)
def test_the_loggers_of_tensorrt_llm_name_their_engine(line: str, engine: str) -> None:
    data = f"{line}\n".encode()
    assert is_log(data) is bool(engine)
    assert read_log(io.BytesIO(data), "server.log").engine == engine


def test_sglang_outranks_an_engine_whose_logger_it_calls() -> None:
    lines = (
        "[2026-11-29 13:40:00 TP0] Load weight begin. avail mem=138.28 GB",
        "[TensorRT-LLM][INFO] a kernel was loaded",
    )
    assert read_log(io.BytesIO("\n".join(lines).encode()), "server.log").engine == "sglang"
