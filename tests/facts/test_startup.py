"""How SGLang starts: titles, order of phases, texts and frames, held against the real sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.engines import environments
from workbench.evidence.redact import Redactor
from workbench.facts.rows import has
from workbench.facts.startup import (
    likely_order,
    phase_order,
    rank_of_prefix,
    rank_of_title,
    read_title,
    world_rank,
)
from workbench.facts.startup_frames import FRAMES, PARENT_WAITS, phase_of_frame, phase_of_stack
from workbench.facts.startup_markers import ERRORS, HINT, PHASES, Marker, read_marker
from workbench.hang.records import Phase, Role

INCIDENT = Path(__file__).resolve().parents[2] / "data" / "incident" / "hang"


@pytest.mark.parametrize(
    ("title", "parts"),
    [
        ("sglang::scheduler_TP0" + " " * 90, {"tp": 0}),
        ("sglang::scheduler_TP1 --port 1", {"tp": 1}),
        ("sglang::scheduler", {}),
        ("sglang::scheduler_None", {}),
        ("sglang::scheduler_3", {"dp": 3}),
        ("sglang::scheduler_DP1_PP0_TP7_EP7", {"dp": 1, "pp": 0, "tp": 7, "ep": 7}),
        (
            "sglang::scheduler_DP0_PP1_ATTN_CP2_MOE_DP3_TP4_EP5",
            {"dp": 0, "pp": 1, "cp": 2, "moe_dp": 3, "tp": 4, "ep": 5},
        ),
    ],
)
def test_every_part_of_a_title_is_read(title: str, parts: dict[str, int]) -> None:
    assert rank_of_title(title) == parts
    assert read_title(title).role == "scheduler"


@pytest.mark.parametrize(
    "title",
    [
        "sglang::schedulers_TP0",
        "sglang::scheduler_TP",
        "sglang::scheduler_TP0_DP1",
        "xsglang::scheduler_TP0",
        "sglang::scheduler_TP-1",
        "sglang::scheduler_TP99999999999",
        "grep sglang::scheduler_TP0",
        "",
    ],
)
def test_what_looks_like_a_title_is_none(title: str) -> None:
    assert rank_of_title(title) is None


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("sglang::detokenizer   ", "detokenizer"),
        ("sglang::detokenizer_router", "detokenizer"),
        ("sglang::tokenizer_worker:4711", "tokenizer"),
        ("sglang::data_parallel_controller", "controller"),
        ("python3 -m sglang.launch_server --model-path target", "parent"),
        ("/usr/bin/python3 /usr/local/bin/sglang serve --model-path target", "parent"),
        ("python -B -c from multiprocessing.resource_tracker import main;main(36)", "bystander"),
        ("python /x/torch/_inductor/compile_worker/__main__.py --kind", "bystander"),
        ("/usr/bin/ninja -v -j 8", "compiler"),
        ("/usr/local/cuda/bin/nvcc -c x.cu", "compiler"),
        (
            "python -c from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=1)",
            "other",
        ),
        ("python my_ninja.py", "other"),
        ("", "other"),
    ],
)
def test_roles_of_titles(title: str, role: Role) -> None:
    assert read_title(title).role == role


def test_a_log_prefix_has_the_same_parts() -> None:
    assert rank_of_prefix("DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5") == {
        "dp": 0,
        "pp": 1,
        "cp": 2,
        "moe_dp": 3,
        "tp": 4,
        "ep": 5,
    }
    assert rank_of_prefix("TP3") == {"tp": 3}
    assert rank_of_prefix("") == {}


def test_world_ranks_are_numbered_through_all_stages_and_replicas() -> None:
    assert world_rank({"pp": 1, "tp": 2}, tp_size=4, pp_size=2) == 6
    assert world_rank({"dp": 1, "tp": 2}, tp_size=4, replicas=True) == 6
    assert world_rank({"dp": 1, "tp": 2}, tp_size=4) == 2  # DP attention: one group
    assert world_rank({}) == 0


def test_the_order_changed_with_0_5_14() -> None:
    def place(version: str, phase: str, model: str) -> int:
        order = phase_order(version)
        assert order is not None
        return [(step.phase, step.model) for step in order].index((phase, model))

    for version in ("0.4.6", "0.5.8", "0.5.13.post1"):
        assert place(version, "graph_decode", "target") < place(version, "weights", "draft")
        assert place(version, "graph_decode", "target") < place(version, "graph_prefill", "target")
    for version in ("0.5.14", "0.5.23"):
        assert place(version, "weights", "draft") < place(version, "kv_pool", "target")
        assert place(version, "graph_prefill", "target") < place(version, "graph_decode", "target")
    assert phase_order("") is None
    assert phase_order("0.5.14+kimi") is None
    assert phase_order("0.5.15.dev3") is None
    assert phase_order("99.0") is None
    assert likely_order("0.5.14+kimi") == phase_order("0.5.14")
    assert likely_order("0.4.2") == phase_order("0.4.6")
    assert likely_order("") == phase_order("0.5.23")


def test_the_recorded_order_is_the_order_of_its_version() -> None:
    """Of each rank of a real 0.5.14: its phases begin in the order that is said for it."""
    order = phase_order("0.5.14")
    assert order is not None
    wanted = [step.phase for step in order]
    text = (INCIDENT / "first-start" / "server.log").read_text()
    for rank in ("TP0", "TP1"):
        begun: list[str] = []
        for line in text.splitlines():
            match = re.search(rf"^\[[-\d: ]+ {rank}\] (.*)", line)
            event = read_marker(match[1]) if match else None
            if event and event.marker.edge == "begin":
                begun.append(event.phase)
        places = []
        at = 0
        for phase in begun:
            # The draft's own `Init torch distributed` comes a second time and takes no time.
            if phase == "dist_init" and at:
                continue
            at = wanted.index(phase, at)
            places.append(at)
        assert places == sorted(places)
        assert {"dist_init", "weights", "graph_decode"} <= set(begun)


def facts(text: str) -> dict[str, str]:
    event = read_marker(text)
    assert event is not None, text
    return {"code": event.code, "phase": event.phase, **event.facts}


def test_facts_of_lines() -> None:
    assert facts(
        "Load weight end. elapsed=0.12 s, type=LlamaForCausalLM, avail mem=138.27 GB, "
        "mem usage=0.01 GB."
    ) == {
        "code": "weights_end", "phase": "weights", "elapsed": "0.12", "type": "LlamaForCausalLM",
        "avail_gb": "138.27", "used_gb": "0.01",
    }  # fmt: skip
    assert facts(
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=5, bs=[1, 2], "
        "avail mem=138.12 GB"
    ) == {
        "code": "decode_begin",
        "phase": "graph_decode",
        "role": "target",
        "backend": "full",
        "sizes": "1, 2",
        "avail_gb": "138.12",
    }
    shown = (
        "Capturing batches (bs=16 avail_mem=3.10 GB):  40%|████      | 2/5 [00:01<00:02,  1.2it/s]"
    )
    assert facts(shown) == {
        "code": "capturing",
        "phase": "graph_decode",
        "bs": "16",
        "avail_gb": "3.10",
        "done": "2",
        "of": "5",
    }
    shown = "Multi-thread loading shards: 100% Completed | 1/4 [00:00<00:00, 129.70it/s]"
    assert facts(shown)["done"] == "1"
    shown = "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<00:00, 2.7it/s]"
    assert facts(shown)["percent"] == "25"
    died = "RuntimeError: Rank 3 scheduler died during initialization (exit code: -9). If exit code is -9"
    assert facts(died) == {"code": "rank_died", "phase": "", "rank": "3", "exit_code": "-9"}
    assert facts("Capture draft verify CUDA graph begin. x")["phase"] == "graph_draft"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "[rank3]:[E1129 18:30:59 ProcessGroupNCCL.cpp:1] Heartbeat monitor timed out! x",
            "heartbeat",
        ),
        (
            "[PG ID 0] First PG on this rank that detected no heartbeat of its watchdog.",
            "heartbeat",
        ),
        (
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress",
            "heartbeat",
        ),
        (
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, x",
            "collective_timeout",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out_of_memory"),
        ("Fatal Python error: Aborted", "fatal"),
        ("NCCL WARN Call to connect returned Connection refused", "nccl_error"),
        ("Traceback (most recent call last):", "traceback"),
        ("Subprocess scheduler_0 (pid=17) crashed with exit code -6. Triggering", "child_crashed"),
        ("kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "xid"),
    ],
)
def test_errors_are_recognised(text: str, code: str) -> None:
    assert facts(text)["code"] == code


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("Custom allreduce is disabled because this process group spans across nodes.", "0.4.4", "0.5.9"),
        ("Custom allreduce is disabled due to an unsupported world size: 3. Supported", "0.4.4", "0.5.9"),
        ("CustomAllreduce is disabled because your platform lacks GPU P2P capability", "0.5.10", "0.5.23"),
        ("CustomAllReduceV2 is disabled because it's not supported on more", "0.5.10", "0.5.23"),
    ],
)  # fmt: skip
def test_a_missing_custom_allreduce_is_a_step_of_dist_init(
    text: str, first: str, last: str
) -> None:
    event = read_marker(text)
    in_a_case = read_marker(Redactor("salt").log(text))
    assert event is not None
    assert in_a_case is not None
    assert in_a_case.marker is event.marker
    assert (event.code, event.phase, event.marker.edge) == (
        "custom_allreduce_off",
        "dist_init",
        "at",
    )
    assert not event.marker.error
    assert event.facts["why"] == re.split(r" (?:because|due to) ", text)[1]
    for version in ("0.4.4", "0.5.9", "0.5.10", "0.5.23"):
        there = Version(first) <= Version(version) <= Version(last)
        assert has("sglang", "text", event.marker.fact, version) is there


@pytest.mark.parametrize(
    "text",
    [
        "prompt: why is it that Custom allreduce is disabled because of PCIe?",
        "QuickAllreduce is disabled because it's not supported on more",
        "Custom allreduce is disabled",
    ],
)
def test_other_words_on_allreduce_are_no_step(text: str) -> None:
    assert read_marker(text) is None


def test_what_a_user_writes_is_no_phase() -> None:
    assert read_marker("prompt: please say 'Load weight begin.'") is None
    assert read_marker("I say Init torch distributed begin.") is None
    assert read_marker("x" * 100_000) is None


def test_phases_are_those_of_the_records() -> None:
    phases = set(Phase.__args__)  # type: ignore[attr-defined]
    assert {marker.phase for marker in (*PHASES, *ERRORS)} <= phases | {""}
    assert {frame.phase for frame in FRAMES} <= phases


def test_frames_of_the_recorded_hang() -> None:
    def names(*functions: str) -> list[tuple[str, str]]:
        return [
            (name, f"/x/sglang/srt/{file}")
            for name, _, file in (f.partition("@") for f in functions)
        ]

    waiting = names(
        "GroupCoordinator.barrier@distributed/parallel_state.py",
        "FullCudaGraphBackend.capture_one@model_executor/runner_backend/full_cuda_graph_backend.py",
        "DecodeCudaGraphRunner.capture_one_shape@model_executor/runner/decode_cuda_graph_runner.py",
        "Scheduler.init_model_worker@managers/scheduler.py",
        "run_scheduler_process@managers/scheduler.py",
    )
    assert phase_of_stack(waiting, "0.5.14") == "graph_decode"
    assert phase_of_stack(waiting) == "graph_decode"
    assert phase_of_stack(waiting[3:], "0.5.14") == ""  # between two phases
    assert phase_of_stack(waiting[4:], "0.5.14") == "spawn"
    assert phase_of_stack([]) == ""
    draft = names(
        "DecodeCudaGraphRunner._capture_one_stream@model_executor/runner/decode_cuda_graph_runner.py",
        "EAGLEDraftCudaGraphRunner.__init__@speculative/eagle_draft_cuda_graph_runner.py",
    )
    assert phase_of_stack(draft, "0.5.14") == "graph_draft"
    # The same name in a file that is not SGLang's says nothing.
    assert phase_of_frame("load_model", "/home/me/my.py", "0.5.14") == ""
    assert phase_of_frame("load_model", "", "0.5.14") == ""


# -- against the sources of the engines ------------------------------------------------------------

VERSIONS = environments.sglang_versions()


@cache
def sources(version: str) -> dict[str, str]:
    environments.ensure(f"sglang-{version}")
    folder = environments.cache() / f"packages-{environments.PYTHON_TAG}" / f"sglang=={version}"
    root = folder / "sglang" / "srt"
    return {
        path.relative_to(root).as_posix(): path.read_text(errors="replace")
        for path in root.rglob("*.py")
        if "multimodal_gen" not in path.parts
    }


@cache
def literals(source: str) -> tuple[tuple[str, str], ...]:
    """The texts of a source: as they are written, and their values filled in as a run would."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            found.append((ast.unparse(node), "".join(filled(part) for part in node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.replace("%.2f", "1.5").replace("%s", "7").replace("%d", "7")
            found.append((node.value, text))
    return tuple(found)


def texts(source: str, needle: str) -> Iterator[str]:
    """The texts of a source that hold the words."""
    return (text for written, text in literals(source) if needle in written or needle in text)


def filled(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    name = ast.unparse(part.value)
    if "capture_name" in name:
        return "target prefill"
    if "graph_backend" in name or "'cuda graph'" in name:
        return "CUDA graph"
    if "VA upper" in name:
        return "is allocated"
    if name == "cache_name":
        return "KV Cache"
    if name == "cls_name":
        return "CustomAllreduce"
    if part.format_spec is not None:
        return "1.50"
    # `{x=}` keeps its name as text in the tree; nothing is to be added.
    return "torch.x" if "dtype" in name else "7"


SOURCED = [
    m for m in (*PHASES, *ERRORS) if m.needle and m.code not in ("serving", "capturing", "loading")
]


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_text_is_in_the_source_and_is_recognised(version: str) -> None:
    missing = []
    for marker in SOURCED:
        written = has("sglang", "text", marker.fact, version)
        # Two texts of one code may come from one line of the source, whose values decide between them.
        same = [one for one in SOURCED if one.code == marker.code] if written else [marker]
        if written is not any(recognised(one, version) for one in same):
            missing.append((marker.code, marker.needle))
    assert not missing


def recognised(marker: Marker, version: str) -> bool:
    for source in sources(version).values():
        if marker.needle not in source and marker.needle.split("{")[0] not in source:
            continue
        for text in texts(source, marker.needle):
            decode = text.replace("target prefill", "target verify")
            for line in (text, decode):
                if HINT.search(line) and marker.pattern.search(line):
                    # A case holds the line as the redactor leaves it.
                    events = (read_marker(line), read_marker(Redactor("salt").log(line)))
                    if [event and event.code for event in events] == [marker.code] * 2:
                        return True
    return False


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_texts_of_other_versions_are_not_in_the_source(version: str) -> None:
    """A range that is too short would leave a version without its text; one too long is seen above."""
    for code, needle, versions in (
        ("dist_begin", "Init torch distributed begin.", "<0.5.21"),
        ("dist_begin", "Init parallel begin.", ">=0.5.21"),
        ("prefill_begin", "Capture piecewise CUDA graph begin.", ">=0.5.6,<0.5.14"),
        ("gate_begin", "Gated launch waiting for activation.", ">=0.5.20"),
        ("rank_died", "scheduler is dead.", "<0.5.10"),
    ):
        there = any(needle in source for source in sources(version).values())
        assert there == SpecifierSet(versions).contains(version), (code, version)
        assert there == has("sglang", "text", f"{code}: {needle}", version), (code, version)


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_is_in_the_source(version: str) -> None:
    missing = []
    for frame in FRAMES:
        if frame.file.startswith("torch/"):
            continue
        files = [
            source
            for name, source in sources(version).items()
            if not frame.file or in_path(f"/sglang/srt/{name}", frame.file)
        ]
        word = re.compile(rf"^\s*(?:async )?def {re.escape(frame.function)}\(", re.MULTILINE)
        if any(word.search(source) for source in files) is not frame.may_be_in(version):
            missing.append((frame.phase, frame.function, frame.file))
    assert not missing
    everything = "\n".join(sources(version).values())
    assert [name for name in PARENT_WAITS if f"def {name}(" not in everything] == []


def in_path(path: str, wanted: str) -> bool:
    return wanted in path if wanted.endswith("/") else path.endswith(wanted)


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_titles_are_those_of_the_source(version: str) -> None:
    found = {
        match
        for source in sources(version).values()
        for match in re.findall(r"setproctitle\.setproctitle\(f?\"([^\"]+)\"\)", source)
    }
    assert found
    for text in found:
        title = text.replace("{os.getpid()}", "4711")
        if "{prefix" in title:
            title = "sglang::scheduler_DP0_PP0_TP0_EP0"
        assert read_title(title).role not in ("other", "parent"), title
    scheduler = sources(version)["managers/scheduler.py"]
    parts = re.findall(r'prefix \+= f" ([A-Z_]+)\{', scheduler)
    known = ["DP", "PP", "ATTN_CP", "MOE_DP", "TP", "EP"]
    assert parts
    assert parts == [part for part in known if part in parts], parts


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_order_is_that_of_the_source(version: str) -> None:
    scheduler = sources(version)["managers/scheduler.py"]
    together = "self.init_all_cuda_graphs()" in scheduler
    assert together == (Version(version) >= Version("0.5.14"))
    if together:
        body = scheduler[scheduler.index("def init_model_worker") :]
        calls = ("init_tp_model_worker()", "maybe_init_draft_worker()", "init_memory_pools()")
        places = [body.index(f"self.{call}") for call in (*calls, "init_all_cuda_graphs()")]
        assert places == sorted(places)
    else:
        runner = sources(version)["model_executor/model_runner.py"]
        body = runner[runner.index("def initialize(") :]
        calls = ("load_model()", "init_memory_pool(", "kernel_warmup()", "init_device_graphs()")
        places = [body.index(f"self.{call}") for call in (*calls, "init_piecewise_cuda_graphs()")]
        assert places == sorted(places)
