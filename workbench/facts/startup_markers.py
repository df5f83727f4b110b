"""The lines of an SGLang log that tell a phase or an error, as each version writes them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

from workbench.facts.rows import span

Edge = Literal["begin", "end", "at"]
Who = Literal["rank", "rank0", "parent"]

_SECONDS = r"(?P<elapsed>\d+(?:\.\d+)?) ?s"
_MEMORY = r"(?:.*?avail mem=(?P<avail_gb>\d+(?:\.\d+)?) GB)?"
_USAGE = r"(?:.*?mem usage=(?P<used_gb>-?\d+(?:\.\d+)?) GB)?"


@dataclasses.dataclass(frozen=True, slots=True)
class Marker:
    """One text of the log.

    Attributes
    ----------
    code
        Its name; several texts of several versions may share one.
    phase, edge
        What it says: a phase begins, ends, or is under way (``at``). An error has no phase of its
        own where it may come in any.
    pattern
        Searched for in a line without its clock and rank; its groups are facts.
    needle
        Words of it as the source has them: `workbench.facts` looks them up in every release. "" for a text
        that is not SGLang's own.
    who
        Every rank, rank 0 alone, or the parent: a line of rank 0 alone does not put it ahead.
    model
        ``draft`` for what only the draft's runner does, else "".
    """

    code: str
    phase: str
    edge: Edge
    pattern: re.Pattern[str]
    needle: str = ""
    who: Who = "rank"
    model: str = ""
    error: bool = False

    @property
    def fact(self) -> str:
        """The name of its text among the facts of a release."""
        return f"{self.code}: {self.needle}"

    @property
    def versions(self) -> str:
        """The releases that write it, as a specifier; "" where all do, or none is known to."""
        return span("sglang", "text", self.fact) if self.needle else ""


def _mark(
    code: str,
    phase: str,
    edge: Edge,
    pattern: str,
    needle: str,
    **more: str,
) -> Marker:
    return Marker(code, phase, edge, re.compile(pattern), needle, **more)  # type: ignore[arg-type]


def _error(code: str, pattern: str, needle: str, phase: str = "") -> Marker:
    return Marker(code, phase, "at", re.compile(pattern), needle, error=True)


_GRAPH = r"(?:CUDA|cuda|CPU|cpu|NPU|npu|XPU) graph"

PHASES: tuple[Marker, ...] = (
    _mark("server_args", "spawn", "begin", r"\bserver_args=", "server_args=", who="parent"),
    _mark(
        "dist_begin", "dist_init", "begin",
        r"^Init torch distributed begin\.", "Init torch distributed begin.",
    ),
    _mark(
        "dist_begin", "dist_init", "begin", r"^Init parallel begin\.", "Init parallel begin."
    ),
    _mark(
        "nccl_version", "dist_init", "at", r"^sglang is using nccl==(?P<nccl>[\d.]+)",
        "sglang is using nccl==", who="rank0",
    ),
    # A fall-back, not an error: the ranks go on with NCCL. Since 0.5.10 the line has the name of the class.
    _mark(
        "custom_allreduce_off", "dist_init", "at",
        r"^Custom allreduce is disabled (?:because|due to) (?P<why>.{1,100})",
        "Custom allreduce is disabled because",
    ),
    _mark(
        "custom_allreduce_off", "dist_init", "at",
        r"^CustomAll[Rr]educe(?:V\d)? is disabled (?:because|due to) (?P<why>.{1,100})",
        "is disabled because",
    ),
    _mark(
        "dist_end", "dist_init", "end",
        rf"^Init torch distributed ends\.(?: elapsed={_SECONDS},)?{_USAGE}",
        "Init torch distributed ends.",
    ),
    _mark(
        "dist_end", "dist_init", "end", rf"^Init parallel ends\. elapsed={_SECONDS}",
        "Init parallel ends.",
    ),
    _mark(
        "memory_baseline", "dist_init", "at", rf"^Memory baseline taken\.{_USAGE}",
        "Memory baseline taken.",
    ),
    # A launch that waits on purpose until somebody activates it: never a hang.
    _mark(
        "gate_begin", "dist_init", "at",
        r"^Gated launch waiting for activation\. rank=(?P<gate_rank>\d+)",
        "Gated launch waiting for activation.",
    ),
    _mark(
        "gate_waiting", "dist_init", "at", r"^Gated launch still waiting for activation\.",
        "Gated launch still waiting for activation.",
    ),
    _mark(
        "gate_end", "dist_init", "at", rf"^Gated launch activated\. elapsed={_SECONDS}",
        "Gated launch activated.",
    ),
    _mark("weights_begin", "weights", "begin", rf"^Load weight begin\.{_MEMORY}", "Load weight begin."),
    _mark(
        "weights_late", "graph_decode", "at",
        rf"^Load weight end\. Committed real weights after CUDA graph capture in {_SECONDS}",
        "Load weight end. Committed real weights after CUDA graph capture in",
    ),
    _mark(
        "weights_end", "weights", "end",
        rf"^Load weight end\.(?: elapsed={_SECONDS},)?"
        rf"(?: ?type=(?P<type>[\w.]{{1,200}}))?{_MEMORY}{_USAGE}",
        "Load weight end. ",
    ),
    _mark(
        "kv_allocated", "kv_pool", "at",
        r"^KV Cache is allocated\. #tokens: (?P<tokens>\d+)",
        "KV Cache is allocated. #tokens:",
    ),
    _mark(
        "kv_allocated", "kv_pool", "at",
        r"^KV Cache is allocated\. dtype: (?P<dtype>[\w.]+), #tokens: (?P<tokens>\d+)",
        "KV Cache is allocated. dtype:",
    ),
    _mark(
        "kv_allocated", "kv_pool", "at",
        r"(?:is allocated|VA upper bound)\. dtype: (?P<dtype>[\w.]+), #tokens: (?P<tokens>\d+)",
        "VA upper bound' if",
    ),
    _mark("kv_end", "kv_pool", "end", rf"^Memory pool end\.{_MEMORY}", "Memory pool end."),
    _mark(
        "autotune_begin", "warmup", "begin", r"^Running FlashInfer autotune",
        "Running FlashInfer autotune",
    ),
    _mark(
        "autotune_end", "warmup", "end", r"^FlashInfer autotune completed\.",
        "FlashInfer autotune completed.",
    ),
    # FlashInfer's own lines: their beginning is `… [AutoTuner]`, or `[Autotuner]` in older releases.
    _mark(
        "autotuner", "warmup", "at",
        r"\[Auto[Tt]uner\]:? ?(?P<autotune>Autotuning process \w+|Tuning .{0,80})", "",
    ),
    _mark(
        "deep_gemm", "warmup", "at", r"^Entering DeepGEMM JIT Pre-Compile session",
        "Entering DeepGEMM JIT Pre-Compile session",
    ),
    _mark(
        "deep_gemm", "warmup", "at", r"^Try DeepGEMM JIT Compiling for ",
        "Try DeepGEMM JIT Compiling for",
    ),
    _mark(
        "prefill_begin", "graph_prefill", "begin", rf"^Capture piecewise CUDA graph begin\.{_MEMORY}",
        "Capture piecewise CUDA graph begin.",
    ),
    _mark(
        "prefill_end", "graph_prefill", "end",
        rf"^Capture piecewise CUDA graph end\. Time elapsed: {_SECONDS}{_USAGE}",
        "Capture piecewise CUDA graph end.",
    ),
    _mark(
        "prefill_begin", "graph_prefill", "begin",
        rf"^Capture (?P<role>target|draft) prefill {_GRAPH} begin\.(?: backend=(?P<backend>\w+),)?{_MEMORY}",
        "CUDA graph begin. ",
    ),
    _mark(
        "prefill_end", "graph_prefill", "end",
        rf"^Capture (?P<role>target|draft) prefill {_GRAPH} end\. elapsed={_SECONDS}{_USAGE}",
        "CUDA graph end. ",
    ),
    _mark(
        "decode_begin", "graph_decode", "begin", rf"^Capture {_GRAPH} begin\.{_MEMORY}",
        "begin. This can take up to several minutes.",
    ),
    _mark(
        "decode_end", "graph_decode", "end", rf"^Capture {_GRAPH} end\. Time elapsed: {_SECONDS}{_USAGE}",
        "end. Time elapsed:",
    ),
    _mark(
        "decode_begin", "graph_decode", "begin",
        rf"^Capture (?P<role>target|draft(?= verify)) (?:decode|verify) {_GRAPH} begin\."
        rf"(?: backend=(?P<backend>\w+),)?(?:.*?\bbs=\[(?P<sizes>[\d, ]{{0,2000}})\])?{_MEMORY}",
        " begin. ",
    ),
    _mark(
        "decode_end", "graph_decode", "end",
        rf"^Capture (?P<role>target|draft(?= verify)) (?:decode|verify) {_GRAPH} end\."
        rf".*?elapsed={_SECONDS}{_USAGE}",
        " end. ",
    ),
    # tqdm, of rank 0 alone: which batch size is being captured, of how many.
    _mark(
        "capturing", "graph_decode", "at",
        r"Capturing batches \((?:bs=(?P<bs>\d+) )?avail_mem=(?P<avail_gb>\d+(?:\.\d+)?) GB\)"
        r"(?::\s*\d+%\|.{0,200}?\| (?P<done>\d+)/(?P<of>\d+))?",
        "Capturing batches (", who="rank0",
    ),
    _mark(
        "registering", "graph_decode", "at", r"^Registering (?P<addresses>\d+) cuda graph addresses",
        "cuda graph addresses", who="rank0",
    ),
    _mark(
        "draft_extend_begin", "graph_draft", "begin",
        r"^Capture (?:single-CG )?draft extend (?:cuda graph |CUDA graph )?begin",
        "apture draft extend", who="rank0", model="draft",
    ),
    _mark(
        "draft_extend_end", "graph_draft", "end",
        r"^Capture (?:single-CG )?draft extend (?:cuda graph |CUDA graph )?end\."
        rf"(?:.*?elapsed[=:] ?{_SECONDS})?",
        "apture draft extend", who="rank0", model="draft",
    ),
    _mark(
        "draft_decode_begin", "graph_draft", "begin",
        r"^Capture (?:Frozen-KV MTP draft|UNO tree draft|draft decode|draft) (?:cuda|CUDA) graph begin\.",
        "apture draft", who="rank0", model="draft",
    ),
    _mark(
        "draft_decode_end", "graph_draft", "end",
        r"^Capture (?:Frozen-KV MTP draft|UNO tree draft|draft decode|draft) (?:cuda|CUDA) graph end\."
        rf"(?:.*?elapsed[=:] ?{_SECONDS})?",
        "apture draft", who="rank0", model="draft",
    ),
    _mark(
        "init_done", "init_done", "at", r"^max_total_num_tokens=(?P<tokens>\d+), ",
        "max_total_num_tokens=", who="rank0",
    ),
    _mark(
        "ready", "ready", "at", r"^The server is fired up and ready to roll!",
        "The server is fired up and ready to roll!", who="parent",
    ),
    _mark(
        "serving", "ready", "at", r"^(?:Prefill|Decode) batch\b", "Prefill batch", who="rank0",
    ),
    _mark(
        "loading", "weights", "at",
        r"(?:Loading (?:safetensors|pt|np_cache)|Multi-thread loading)[^|\n]{0,60}?:\s*(?P<percent>\d+)%"
        r" ?[^|\n]{0,200}\| (?P<done>\d+)/(?P<of>\d+)",
        "Loading safetensors checkpoint shards", who="rank0",
    ),
)  # fmt: skip

ERRORS: tuple[Marker, ...] = (
    _error(
        "load_barrier",
        r"TP rank (?P<rank>\d+) could finish the model loading, but there are other ranks",
        "could finish the model loading, but there are other ranks that didn't finish loading.",
        "load_barrier",
    ),
    _error(
        "rank_died",
        r"^(?:\w+: )?Rank (?P<rank>\d+) scheduler died during initialization "
        r"\(exit code: (?P<exit_code>-?\d+)\)",
        "scheduler died during initialization",
    ),
    _error(
        "rank_died", r"^(?:\w+: )?Rank (?P<rank>\d+) scheduler is dead\.", "scheduler is dead.",
    ),
    _error(
        "child_crashed",
        r"^(?:\w+: )?Subprocess (?P<name>\S{1,100}) \(pid=(?P<pid>\d+)\) crashed with "
        r"exit code (?P<exit_code>-?\d+)",
        "crashed ",
    ),
    _error(
        "child_failed",
        r"^(?:\w+: )?Child process unexpectedly failed with an exit ?code[ =](?P<exit_code>-?\d+)\. "
        r"pid=(?P<pid>\d+)",
        "Child process unexpectedly failed",
    ),
    _error(
        "child_signal", r"Received sigquit from a child process", "Received sigquit from a child"
    ),
    _error("child_signal", r"SIGQUIT received\. signum=", "SIGQUIT received."),
    _error(
        "watchdog",
        r"(?P<name>\w{1,60}) watchdog timeout "
        r"\((?:self\.)?watchdog_timeout=(?P<after>[\d.]+), (?:self\.)?soft=(?P<soft>\w+)\)",
        "watchdog timeout ",
    ),
    _error(
        "watchdog",
        r"Watchdog timeout \((?:self\.)?watchdog_timeout=(?P<after>[\d.]+)\)",
        "Watchdog timeout (",
    ),
    _error(
        "stuck_test", r"Watchdog (?P<name>\w{1,60}) start deliberately stuck for (?P<after>[\d.]+)s",
        "start deliberately stuck for",
    ),
    _error(
        "warmup_failed", r"Initialization failed\. warmup error:", "Initialization failed. warmup error:"
    ),
    _error(
        "capture_failed", r"Capture (?:[\w-]+ ){0,4}(?:cuda|CUDA|cpu|CPU) graph failed:(?P<why>.{0,300})",
        "graph failed: {e}",
    ),
    _error("exception", r"(?<!\w)Scheduler hit an exception:", "Scheduler hit an exception:"),
    _error("exception", r"^(?P<who>\w{1,60}) hit an exception:", ""),
    _error(
        "port_taken",
        r"attempting to bind on address \([^)\n]{0,80}?(?P<port>\d{1,5})\): address already in use"
        r"|\[Errno (?:98|48)\][^\n]{0,80}[Aa]ddress already in use",
        "",
    ),
    _error("health_failed", r"^Health check failed\.", "Health check failed."),
    _error(
        "work_status",
        r"\[(?P<group>PG [^\]\n]{0,120}?) ?Rank \d+\].{0,80}detected by watchdog at work: \d+, "
        r"last enqueued NCCL work: (?P<enqueued>\d+), last completed NCCL work: (?P<completed>-?\d+)",
        "",
    ),
    _error("deepep_timeout", r"DeepEP (?:error|timeout)[^\n]{0,20}timeout|DeepEP timeout", ""),
    # Below: texts of torch, NCCL, CPython and launchers, not of SGLang.
    _error(
        "rank_died",
        r"mpi(?:run|exec) noticed that process rank (?P<rank>\d{1,6}) with PID (?P<pid>\d+) on node \S+ "
        r"exited on signal (?P<signal>\d{1,2})",
        "",
    ),
    # torchrun's numbers here are of this node; its report names the ranks of the job (`reported_exits`).
    _error(
        "child_failed",
        r"failed \(exitcode: (?P<exit_code>-?\d+)\) local_rank: \d+ \(pid: (?P<pid>\d+)\) of binary",
        "",
    ),
    _error(
        "rank_died",
        r"\[RANK (?P<rank>\d{1,6})\] Executor loop crashed on this rank", "",
    ),
    _error(
        "heartbeat",
        r"(?:Heartbeat monitor timed out!|First PG on this rank that detected no heartbeat"
        r"|watchdog got stuck for (?P<after>\d+) ?seconds|ProcessGroupNCCL's watchdog got stuck)",
        "",
    ),
    _error(
        "collective_timeout",
        r"(?:\[(?P<group>PG [^\]\n]{0,120}?) ?Rank \d+\].{0,80}?)?"
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d+)"
        r"(?:, OpType=(?P<operation>\w{1,40}))?",
        "",
    ),
    _error(
        "nccl_error",
        r"(?P<why>ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclInvalidUsage"
        r"|ncclRemoteError|ncclCommInitRank\w* failed|NCCL WARN .{0,200}|NCCL error[^\n]{0,200})",
        "",
    ),
    _error(
        "gloo_error",
        r"(?P<why>\[[^\]\n]{0,200}gloo/transport[^\]\n]{0,200}\][^\n]{0,200}"
        r"|Connection closed by peer \[[^\]]{0,80}\])",
        "",
    ),
    _error(
        "out_of_memory",
        r"(?P<why>torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|Not enough memory\. Please try"
        r"|Not enough GPU memory for|oom-kill|Out of memory: Killed process)",
        "",
    ),
    _error("xid", r"NVRM: Xid \((?P<device>[^)]{1,80})\): (?P<xid>\d+)", ""),
    _error("cuda_error", r"(?P<why>CUDA error: [^\n]{0,200}|CUDA_ERROR_\w{1,60})", ""),
    _error("fatal", r"Fatal Python error: (?P<why>[^\n]{1,120})", ""),
    _error("traceback", r"^Traceback \(most recent call last\):", ""),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A line that a marker recognised, and what it says."""

    marker: Marker
    facts: Mapping[str, str]

    @property
    def code(self) -> str:
        """The marker's code."""
        return self.marker.code

    @property
    def phase(self) -> str:
        """The phase it tells; a target-named line of a draft runner is of the draft's graphs."""
        if self.facts.get("role") == "draft" and self.marker.phase.startswith("graph_"):
            return "graph_draft"
        return self.marker.phase


_SERVING = next(marker for marker in PHASES if marker.code == "serving")
# One cheap look before the patterns are tried: every phase's text has one of these words, and so
# has every error's. Most lines of a long log are batches, which have none.
HINT = re.compile(
    r"server_args=|begin|end[s.]|allocated|VA upper|nccl==|taken\.|activat|utotun|\[AutoTuner|DeepGEMM"
    r"|Capturing|Registering|is disabled|max_total|fired up|batch|shards|finish the"
    r"|scheduler (?:died|is dead)|crashed with|Child process|sigquit|SIGQUIT|atchdog|warmup error"
    r"|graph failed|hit an exc|already in use|noticed that|exitcode|loop crashed"
    r"|eartbeat|DeepEP|Health check|nccl[A-Z]|NCCL|gloo/|closed by peer|emory"
    r"|oom-kill|Xid|CUDA[ _]|Fatal P|Traceback"
)


def read_marker(text: str) -> Event | None:
    """Return what a line says (without its clock and rank), or None for one that says nothing.

    An error outranks a phase: a line has at most one event.
    """
    text = text[:4000]
    if text.startswith(("Prefill batch", "Decode batch")):  # nearly every line of a long log
        return Event(_SERVING, {})
    if HINT.search(text) is None:
        return None
    for marker in (*ERRORS, *PHASES):
        match = marker.pattern.search(text)
        if match is not None:
            facts = {name: value for name, value in match.groupdict().items() if value is not None}
            return Event(marker, facts)
    return None
