"""GPU readings, flight recordings, NCCL RAS and lists of processes, from files nobody vouches for."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import WorkbenchError
from workbench.hang.read.flight import (
    is_flight_json,
    is_flight_pickle,
    rank_of_name,
    read_flight,
    read_flight_pickle,
)
from workbench.hang.read.gpu import is_nvidia_smi, read_gpus_json, read_nvidia_smi
from workbench.hang.read.processes import is_process_list, read_processes
from workbench.hang.read.ras import is_ras_json, read_ras
from workbench.hang.records import Gpu, Rank

INCIDENT = Path(__file__).resolve().parents[3] / "data" / "incident" / "hang"

# -- GPUs ------------------------------------------------------------------------------------------

TABLE = """\
Sun Nov 29 18:31:09 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:0F:00.0 Off |                    0 |
| N/A   30C    P0            118W /  700W |   77926MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H200                    On  |   00000000:10:00.0 Off |                    0 |
| N/A   29C    P0             N/A /  N/A  |   77920MiB / 143771MiB |    100%      Default |
+-----------------------------------------+------------------------+----------------------+
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|    0   N/A  N/A            2185      C   sglang::scheduler_TP0                 77916MiB |
|    1   N/A  N/A            2186      C   sglang::scheduler_TP1                 77910MiB |
+-----------------------------------------------------------------------------------------+
"""


def test_the_recorded_query() -> None:
    data = (INCIDENT / "capture-hang" / "snapshot-1" / "nvidia-smi.csv").read_bytes()
    assert is_nvidia_smi(data)
    (reading,) = read_nvidia_smi(data, "h")
    assert reading.gpus == (
        Gpu(0, "h", "", "", 1726.0, 143771.0, 0.0, 124.33),
        Gpu(1, "h", "", "", 1724.0, 143771.0, 0.0, 116.83),
    )  # which process is on which GPU this query does not say


def test_a_query_that_names_the_gpus_tells_whose_memory_it_is() -> None:
    (reading,) = read_nvidia_smi(
        b"timestamp, uuid, index, name, utilization.gpu [%], power.draw [W]\n"
        b"2026/11/29 18:31:09.123, GPU-a, 0, NVIDIA H200, 0 %, [N/A]\n"
        b"2026/11/29 18:31:10.123, GPU-b, 1, NVIDIA H200, 99 %, 15.10 W\n"
        b"2026/11/29 18:31:11.123, GPU-b, 1, NVIDIA H200, 100 %, 15.20 W\n"
        b"gpu_uuid, pid, used_gpu_memory [MiB]\nGPU-b, 77, 10 MiB\nGPU-x, 78, 10 MiB\nGPU-a, x, 10 MiB\n"
    )
    first, second = reading.gpus
    assert (first.power_watts, first.processes) == (None, {})
    assert (second.utilisation, second.power_watts, second.processes) == (100.0, 15.2, {77: 10.0})
    assert reading.at == 1795977071.0


def test_the_plain_table() -> None:
    assert is_nvidia_smi(TABLE.encode())
    first, again = read_nvidia_smi((TABLE + TABLE).encode())
    assert first == again
    assert first.at == 1795977069.0
    one, two = first.gpus
    assert one == Gpu(
        0, "", "", "NVIDIA H200", 77926.0, 143771.0, 0.0, 118.0, {2185: 77916.0}, 700.0
    )
    assert (two.power_watts, two.utilisation, two.processes) == (None, 100.0, {2186: 77910.0})


def test_the_real_nvidia_smi_where_there_is_one() -> None:
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("there is no GPU here")
    (reading,) = read_nvidia_smi(done.stdout)
    assert all(gpu.memory_total_mib for gpu in reading.gpus)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([*TABLE.splitlines(), "index, pid", "0, 1", '"']) | st.text(max_size=20)
    )
)
def test_any_lines_of_a_reading(lines: list[str]) -> None:
    for reading in read_nvidia_smi("\n".join(lines).encode()):
        assert len({gpu.index for gpu in reading.gpus}) <= len(reading.gpus)


def test_gpus_of_a_case() -> None:
    gpu = {
        "index": 0,
        "uuid": "GPU-a",
        "utilisation": 0,
        "memory_used_mib": 5,
        "processes": {"7": 5},
    }
    wrong = {"index": "1", "uuid": 3}
    odd = {"index": 2, "utilisation": float("nan"), "processes": {"x": 1, "8": "y"}, "name": "\x1b"}
    reading = read_gpus_json({"taken_at": 5, "gpus": [gpu, wrong, 4, odd]}, "h")
    assert reading.at == 5.0
    assert [g.index for g in reading.gpus] == [0, 2]
    assert reading.gpus[0].processes == {7: 5.0}
    assert (reading.gpus[1].utilisation, reading.gpus[1].processes) == (None, {})
    assert read_gpus_json([]).gpus == ()


# -- flight recorder -------------------------------------------------------------------------------


RECORD = """
import os, sys
os.environ.update(TORCH_FR_BUFFER_SIZE="64")
import torch, torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
def forward():
    dist.all_reduce(torch.ones(4, 2))
    dist.barrier()
forward()
from torch._C import _distributed_c10d as c10d
open("nccl_trace_rank_0", "wb").write(c10d._dump_fr_trace())
open("fr_0.json", "wb").write(c10d._dump_fr_trace_json())
sys.stdout.flush()
os._exit(0)
"""


def test_what_pytorch_really_records(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RECORD],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "has no attribute '_dump_fr_trace" in done.stderr:
        pytest.skip("this torch records NCCL only")
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "nccl_trace_rank_0").read_bytes()
    assert is_flight_pickle(data[:4096])
    found = read_flight_pickle(data)
    as_json = json.loads((tmp_path / "fr_0.json").read_bytes())
    assert is_flight_json(as_json)
    told = [(entry["sequence"], entry["operation"]) for entry in found["entries"]]
    assert told == [(1, "gloo:all_reduce"), (2, "gloo:barrier")]
    again = [(entry["sequence"], entry["operation"]) for entry in read_flight(as_json)["entries"]]
    assert again == told
    assert found["entries"][0]["sizes"] == [[4, 2]]
    assert any(frame["function"] == "forward" for frame in found["entries"][0]["frames"])
    assert found["status"]["0"]["enqueued"] == 2
    json.dumps(found)


class Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch pwned",)


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "data",
    [
        *(pickle.dumps({"entries": [Runs()]}, protocol) for protocol in range(6)),
        pickle.dumps({"entries": collections.OrderedDict()}),
        pickle.dumps({"entries": [print]}),
        pickle.dumps({"entries": [bytearray(5)]}, 5),
        pickle.dumps([1]),
        pickle.dumps({"entries": 3}),
        pickle.dumps({1 << 600: "long", "entries": []}),
        pickle.dumps({"entries": [1] * 300})[:-40],
        b"\x80\x02}r\xff\xff\xff\x3f.",  # a memo of a milliard places
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"cos\nsystem\n(S'touch pwned'\ntR.",
        b"\x80\x02P1\n.",
        b"\x80\x02.",
        b"",
    ],
)
def test_a_pickle_that_is_more_than_data_is_refused(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkbenchError):
        read_flight_pickle(data)
    assert os.listdir(tmp_path) == []


def test_the_unpickler_itself_refuses_what_the_check_would_let_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workbench.hang.read.flight._check", lambda data: None)
    with pytest.raises(WorkbenchError, match=r"import posix\.system|import nt\.system"):
        read_flight_pickle(pickle.dumps({"entries": [Runs()]}))


def test_a_recording_that_repeats_itself_stays_small() -> None:
    shared: list[object] = [1]
    for _ in range(60):
        shared = [shared, shared]
    entry = {
        "input_sizes": shared,
        "frames": shared,
        "process_group": shared,
        "profiling_name": shared,
    }
    loop: dict[str, object] = {"entries": [entry] * 9000, "pg_config": {"a": {"ranks": shared}}}
    loop["pg_status"] = {"self": loop}
    loop["version"] = nested(100)
    found = read_flight_pickle(pickle.dumps(loop))
    assert len(found["entries"]) == 4000
    assert found["left_out"] == 5000
    assert len(json.dumps(found)) < 4_000_000


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_recording_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    entry = {
        "collective_seq_id": 1,
        "profiling_name": "nccl:x",
        "frames": [{"name": "f", "line": 1}],
    }
    raw = bytearray(pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [entry] * 3}, 2))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WorkbenchError):
        json.dumps(read_flight_pickle(bytes(raw)))


def test_ranks_of_file_names() -> None:
    assert rank_of_name("nccl_trace_rank_3") == 3
    assert rank_of_name("/tmp/nccl_trace_rank_12") == 12
    assert rank_of_name("rank7.json") == 7
    assert rank_of_name("trace.pickle") is None


# -- RAS -------------------------------------------------------------------------------------------

RAS = {
    "nccl_version": "2.28.9",
    "timestamp": "2026-11-29 18:31:09",
    "communicators": [
        {
            "hash": "0xabc",
            "size": 2,
            "ranks_count": 1,
            "missing_ranks_count": 1,
            "ranks": [
                {
                    "rank": 0,
                    "host": "h",
                    "pid": 2185,
                    "cuda_dev": 0,
                    "status": {"init_state": 0, "async_error": 0, "finalize_called": False},
                    "collective_counts": {"AllReduce": 41, "Broadcast": 2},
                }
            ],
            "missing_ranks": [{"rank": 1, "pid": 2186, "status": {"unresponsive": True}}],
        }
    ],
}


def test_ras() -> None:
    assert is_ras_json(RAS)
    (one,) = read_ras(RAS)["communicators"]
    assert one["ranks"][0]["pid"] == 2185
    assert one["ranks"][0]["collective_counts"] == {"AllReduce": 41, "Broadcast": 2}
    assert one["missing_ranks"] == [
        {"rank": 1, "host": "", "pid": 2186, "unresponsive": True, "considered_dead": False}
    ]
    with pytest.raises(WorkbenchError):
        read_ras({"communicators": 5})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON, JSON, JSON)
def test_any_json_in_ras_and_flight(one: object, two: object, three: object) -> None:
    rank = {"rank": one, "status": two, "collective_counts": three, "pid": one}
    found = read_ras(
        {"communicators": [one, {"ranks": [rank, two], "missing_ranks": [rank], "hash": three}]}
    )
    json.dumps(found)
    entry = {
        "process_group": one,
        "frames": [{"name": two}],
        "input_sizes": three,
        "time_created_ns": one,
    }
    json.dumps(read_flight({"entries": [entry, two], "pg_config": one, "pg_status": {"x": two}}))


# -- processes -------------------------------------------------------------------------------------


def test_the_recorded_processes() -> None:
    value = json.loads((INCIDENT / "capture-hang" / "snapshot-1" / "processes.json").read_bytes())
    assert is_process_list(value)
    listed = read_processes(value, "h")
    by_pid = {process.pid: process for process in listed.processes}
    assert [by_pid[pid].role for pid in (2062, 2184, 2185, 2186, 2187)] == [
        *("parent", "bystander", "scheduler", "scheduler", "detokenizer")
    ]
    stopped = by_pid[2186]
    assert stopped.rank == Rank(1, tp=1)
    assert (stopped.state, stopped.threads, stopped.threads_by_state) == ("T", 136, {"T": 136})
    assert stopped.wait_channel == "do_signal_stop"
    assert stopped.cpu_seconds == pytest.approx(34.44)
    assert by_pid[2185].wait_channel is None  # of the main thread nothing is told
    assert listed.at == value["taken_at"]
    assert listed.refused == ()


def test_refusals_and_all_that_a_collector_writes() -> None:
    process = {
        "pid": 7,
        "ppid": 1,
        "cmd": "sglang::scheduler_TP3",
        "status": "S",
        "started": 5.5,
        "namespace_pid": 14,
        "exit_code": -9,
        "read_bytes": 10,
        "written_bytes": 11,
        "lock_files": ["/x/lock"],
        "compilers": ["ninja"],
        "wait_channel": "futex_do_wait",
        "environment": {"NCCL_DEBUG": "INFO", "SGLANG_API_KEY": "k"},
        "argv": ["python", "--api-key", "k"],
        "py": {
            "exit": None,
            "refusal": "no permission to read the process",
            "remedy": "Run it with sudo.",
        },
        "native": {
            "exit": 1,
            "stderr": "Error: Failed to merge native and python frames",
            "nonblocking": True,
        },
    }
    foreign = {
        "pid": 8,
        "cmd": "x",
        "py": {"exit": 1, "stderr": "Error: Permission denied (os error 13)"},
    }
    listed = read_processes({"processes": [process, foreign, process, 4, {}]}, "h")
    one, two = listed.processes
    assert (one.namespace_pid, one.exit_code, one.read_bytes, one.written_bytes) == (14, -9, 10, 11)
    assert (one.lock_files, one.compilers, one.started) == (("/x/lock",), ("ninja",), 5.5)
    # Secrets are learnt from all of it, and left out where the scene is made.
    assert one.environment == process["environment"]
    assert list(one.arguments) == process["argv"]
    assert two.role == "other"
    assert listed.nonblocking == {7}
    assert [(d.pid, d.native, d.refusal) for d in listed.refused] == [
        (7, False, "no permission to read the process"),
        (7, True, "py-spy could not match native and Python frames"),
        (8, False, "no permission to read the process"),
    ]
    assert listed.refused[0].remedy == "Run it with sudo."
    assert listed.refused[2].remedy


FIELDS = [
    "ppid",
    "cmd",
    "argv",
    "status",
    "threads",
    "thread_states",
    "cpu",
    "py",
    "role",
    "environment",
]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_json_in_a_process(entry: dict[str, object]) -> None:
    listed = read_processes({"processes": [{**entry, "pid": 7}]}, "h")
    assert [process.pid for process in listed.processes] == [7]


def test_no_pickle_is_loaded_elsewhere_in_the_room() -> None:
    """The one unpickler is the restricted one."""
    code = "import sys, workbench.hang.read.scene; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    room = Path(__file__).resolve().parents[3] / "workbench" / "hang"
    users = [path.name for path in sorted(room.rglob("*.py")) if "pickle.load" in path.read_text()]
    assert users == []
