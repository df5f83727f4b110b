"""The one next change, in the spelling of the release, with what each outcome would mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.core.finding import Experiment
from workbench.facts import flags
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.judge.steps import OTHERS, Step

# Functions that read a checkpoint.
_READING = (
    "get_tensor", "safetensors_weights_iterator", "load_file", "pt_weights_iterator", "safe_open",
)  # fmt: skip
# Steps that follow from where a rank waits: they come before those of its phase.
BY_PLACE = (
    "symm_mem_off", "hicache_prefetch_off", "hicache_off", "grammar_backend",
)  # fmt: skip
_UNCHANGED = "everything else as it was, and a new log file"
_LONG = "One pass proves nothing where the hang comes and goes: flip back, and count at least ten passes."

STEPS: Mapping[str, Step] = {
    "soft_watchdog": Step(
        spellings=("--soft-watchdog-timeout 120",),
        sets=("soft-watchdog-timeout", "*"),
        right="120 s after the last progress the log holds the stacks of every rank: the rank that is not "
        "in the others' frame is the one to look at",
        wrong="there is no dump and the start goes through: the hang comes and goes. " + _LONG,
    ),
    "decode_graphs_off": Step(
        spellings=("--cuda-graph-backend-decode=disabled", "--disable-cuda-graph"),
        sets=("cuda-graph-backend-decode", "disabled"),
        right="the server starts: the hang is specific to the capture of decode graphs (consistent with it, "
        "no proof). " + _LONG,
        wrong="it hangs at the same operation outside a capture: graphs are not the cause; look at that "
        "operation",
        cost="one start; decoding is slower while it is off",
    ),
    "prefill_graphs_off": Step(
        spellings=("--cuda-graph-backend-prefill=disabled", "--disable-piecewise-cuda-graph"),
        sets=("cuda-graph-backend-prefill", "disabled"),
        right="the server gets past this phase: the hang is specific to prefill graphs. " + _LONG,
        wrong="it hangs at the same operation: graphs are not the cause",
    ),
    "custom_all_reduce_off": Step(
        spellings=("--disable-custom-all-reduce",),
        sets=("disable-custom-all-reduce", "true"),
        right="the server starts: the custom all-reduce (its registration of graph buffers, or P2P) is "
        "involved; or it ends with an exception in the log, which the registration had hidden: read that. "
        + _LONG,
        wrong="it hangs in the same place: look at NCCL itself, or at one rank's own work",
        cost="one start; all-reduce of small batches is slower",
    ),
    "autotune_off": Step(
        spellings=("--disable-flashinfer-autotune",),
        sets=("disable-flashinfer-autotune", "true"),
        right="the server starts: the ranks had not tuned the same tactics (caches that differ). " + _LONG,
        wrong="it hangs in the next collective: the autotuner is only where it became visible",
        cost="one start; some kernels are slower",
    ),
    "symm_mem_off": Step(
        without="--enable-symm-mem",
        sets=("enable-symm-mem", "true"),
        where=(
            "ncclCommWindowRegister", "ncclMemAlloc", "symm_mem", "SymmetricMemory", "pynccl_allocator",
            "nccl_symm",
        ),
        proved=True,
        right="the server starts: the ranks allocate symmetric memory out of step",
        wrong="it hangs in the same place",
    ),
    "hicache_prefetch_off": Step(
        without="--hicache-storage-backend",
        sets=("hicache-storage-backend", "*"),
        where=("HiRadixCache", "hiradix_cache", "HiCache", "hicache", "prefetch"),
        right="requests are answered: prefetching from HiCache's storage is involved. " + _LONG,
        wrong="it hangs at the same place: the storage is not involved; then without "
        "--enable-hierarchical-cache",
        cost="one start; prefixes are read from host memory only",
    ),
    "hicache_off": Step(
        without="--enable-hierarchical-cache",
        sets=("enable-hierarchical-cache", "true"),
        where=("HiRadixCache", "hiradix_cache", "HiCache", "hicache", "prefetch"),
        proved=True,
        right="requests are answered: HiCache is involved. " + _LONG,
        wrong="it hangs at the same place: HiCache is not involved",
        cost="one start; prefixes are kept in GPU memory only",
    ),
    "dp_attention_off": Step(
        without="--enable-dp-attention",
        sets=("enable-dp-attention", "true"),
        where=("prepare_mlp_sync_batch", "dp_attn"),
        right="requests are answered: the synchronisation of data-parallel attention is involved. " + _LONG,
        wrong="it hangs in another place: look at that operation",
        cost="one start; the KV cache holds fewer tokens",
    ),
    "grammar_backend": Step(
        spellings=("--grammar-backend llguidance",),
        sets=("grammar-backend", "llguidance"),
        where=("grammar", "Grammar"),
        right="requests with a grammar are answered: compiling the grammar did not end in the other backend",
        wrong="it waits at the same place: the grammar's worker is not the cause; see its own stack",
        cost="one start",
    ),
    "file_system": Step(
        act="change nothing; on {host}: stat the path that it reads, then dmesg -T | tail -50",
        where=_READING,
        right="stat does not return, or the kernel names the file system: the storage does not answer",
        wrong="stat returns at once: the rank waits for something else; take native frames",
        cost="seconds",
    ),
    "look_at_disk": Step(
        act="change nothing; on {host}: read /proc/diskstats (or nfsiostat) twice, a minute apart, then "
        "dmesg -T | tail -50",
        right="sectors are read in between: the storage is slow, and the start-up goes on",
        wrong="nothing is read, or the kernel names the disk or the file system: the storage does not answer",
        cost="a minute",
    ),
    "ask_trainer": Step(
        act="change nothing; look at the process that should join the group (the trainer): its log, and the "
        "address, port and world size that it was given",
        right="it is not there, or joins another address or with another world size: correct that",
        wrong="it waits in the same rendezvous with the same address, port and world size: look at the "
        "network between the two",
        cost="minutes",
    ),
    "overlap_off": Step(
        spellings=("--disable-overlap-schedule",),
        sets=("disable-overlap-schedule", "true"),
        right="the warm-up request is answered: the overlap of scheduling and forward is involved. " + _LONG,
        wrong="the main thread is then in the forward itself: its frame names the operation",
        cost="one start; throughput is lower",
    ),
    "no_hooks": Step(
        without="--forward-hooks",
        sets=("forward-hooks", "*"),
        right="requests are answered: a forward hook of the launch does not return on one rank",
        wrong="the same rank does not move without the hooks: they only showed where",
    ),
    "skip_warmup": Step(
        spellings=("--skip-server-warmup",),
        sets=("skip-server-warmup", "true"),
        right="the port opens, and the first request of your own shows what hangs",
        wrong="the port stays closed: the hang is before the warm-up request",
    ),
    "no_speculation": Step(
        without="--speculative-algorithm",
        sets=("speculative-algorithm", "*"),
        right="the server starts without the draft: its graphs, or its model, are involved",
        wrong="the target alone hangs in its capture: look there",
        cost="one start; no speculation while it is off",
    ),
    "nccl_debug": Step(
        variable="NCCL_DEBUG=INFO",
        right="the last NCCL line of each rank names the step (socket, P2P, topology) at which it waits, and "
        "the interface it chose",
        wrong="NCCL prints nothing: the ranks do not reach NCCL, and they wait for torch's store",
    ),
    "p2p_off": Step(
        variable="NCCL_P2P_DISABLE=1",
        right="the process groups come up: P2P between two GPUs does not work (IOMMU, ACS, topology)",
        wrong="they still do not: the network interface is next (NCCL_SOCKET_IFNAME)",
        cost="one start; slower transfers while it is off",
    ),
    "eager_modules": Step(
        variable="CUDA_MODULE_LOADING=EAGER",
        right="the capture goes through: kernels were loaded lazily inside it, under the driver's lock",
        wrong="it hangs in the same native frame",
        cost="one start; more GPU memory and a slower start",
    ),
    "fresh_cache": Step(
        variable="{cache}=/tmp/fresh-cache",
        right="the kernels are built anew and the start goes on: a lock file without a holder stayed behind",
        wrong="it waits for the lock in the new folder too: a live process holds it",
        cost="one start, and the kernels are compiled again (minutes)",
    ),
    "local_weights": Step(
        spellings=("--model-path /local/copy/of/the/model",),
        right="all ranks end loading within seconds of each other: the storage was slow or stuck",
        wrong="the same rank is late again: look at its host, its GPU, its part of the checkpoint",
        cost="one copy of the weights, one start",
    ),
    "other_gpu": Step(
        variable="CUDA_VISIBLE_DEVICES={permuted}",
        right="another rank hangs, on the same GPU as before: that GPU (or its link) is at fault; see Xid in "
        "dmesg",
        wrong="the same rank hangs on another GPU: its own work is at fault, not the GPU",
    ),
    "dist_debug": Step(
        variable="TORCH_DISTRIBUTED_DEBUG=DETAIL",
        right="torch names the rank and the collective that do not match, instead of waiting",
        wrong="torch reports no mismatch: the rank never reaches the collective; look at its own frame",
        cost="one run, slower collectives",
    ),
    "no_injection": Step(
        engine="sglang",
        act="unset {stuck}, everything else as it was",
        right="the server starts: it slept because the switch asked for it",
        wrong="it still does not move: take snapshots again without the switch",
    ),
    "precompile": Step(
        engine="sglang",
        act="run `python3 -m sglang.compile_deep_gemm` with the arguments of this launch, then launch it "
        "unchanged",
        right="all ranks find the kernels and reach the capture together",
        wrong="a rank compiles again: the ranks do not share the cache folder",
        cost="minutes of compilation, once",
    ),
    "continue_rank": Step(
        act="kill -CONT {pids}",
        right="{odd} goes on and the others with it: it had been stopped from outside (SIGSTOP, a debugger, "
        "a frozen container); find out by whom",
        wrong="it stops again, or is in the same frame in state S: then relaunch with {next}, nothing "
        "else changed",
        cost="seconds; nothing is restarted",
    ),
    "detach": Step(
        act="detach what traces {odd}: TracerPid in /proc/{traced}/status names it (a debugger, a py-spy)",
        right="{odd} goes on and the others with it: the tracer had stopped it",
        wrong="it is in the same frame in state S: then relaunch with {next}, nothing else changed",
        cost="seconds; nothing is restarted",
    ),
    "wait": Step(
        act="change nothing; wait, then take two snapshots: workbench.attach({main_pid}snapshots=2, "
        "interval=60)",
        right="the working rank has made progress, and the phase with it: slow, not hung",
        wrong="its stack, CPU time and I/O are the same in both snapshots: then it is hung, and that rank is "
        "the one to look at",
        cost="a minute or two",
    ),
    "second_snapshot": Step(
        act="change nothing; take two snapshots: workbench.attach({main_pid}snapshots=2, interval=30)",
        right="the same frames and no CPU time in both: hung, and an odd rank can be named",
        wrong="frames, CPU time or I/O move: it is slow, and waiting is right",
        cost="half a minute; each process pauses for a fraction of a second",
    ),
    "more_snapshots": Step(
        act="change nothing; take five snapshots: workbench.attach({main_pid}snapshots=5, interval=7)",
        right="the log gets a line of a batch, or a stack moves: it serves",
        wrong="all snapshots are the same and the log stays silent: it hangs in that batch",
        cost="half a minute; each process pauses for a fraction of a second",
    ),
    "gpu_power": Step(
        act="change nothing; read the GPUs for half a minute: nvidia-smi "
        "--query-gpu=index,utilization.gpu,power.draw,enforced.power.limit --format=csv -l 5",
        right="the GPU of the rank that waits for it is at 100 % and draws about half its limit or more: it "
        "computes, and the others wait for it",
        wrong="it is at 0 %, or at 100 % with less than a third of its limit: nothing is computed, and that "
        "rank is the one to look at",
        cost="half a minute",
    ),
    "read_again": Step(
        act="change nothing in the launch; copy the evidence to another disk, or collect it again, and open "
        "it there (dmesg -T shows whether the disk fails)",
        right="all files can be read, and the verdict rests on all of them",
        wrong="the same files cannot be read: go without them, or take new snapshots",
        cost="a minute",
    ),
    "read_exception": Step(
        act="change nothing; read the exception in the log, line {exception}",
        right="it names the file, the tensor or the setting that {raised} could not work with: that is the "
        "thing to change",
        wrong="it is a consequence (a closed connection, a peer that is gone): the earliest one in the log "
        "counts",
        cost="seconds",
    ),
    "see_all": Step(
        act="change nothing; take snapshots where every stack can be read: as root on the host, or with "
        "--cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add: [SYS_PTRACE])",
        right="every rank shows its stack, and an odd rank can be named",
        wrong="a stack still cannot be read: its refusal says why",
        cost="seconds on the host; one start where the container has to be changed",
    ),
    "collect_rest": Step(
        act="run `workbench collect -o NODE.zip` on the nodes that were not collected, and open the zips "
        "together",
        right="all ranks are in the evidence, and an odd rank can be named",
        wrong="all ranks are in the same frame: the stacks point at none of them",
        cost="a minute a node",
    ),
    "native": Step(
        act="change nothing; take snapshots with native frames: workbench.attach({main_pid}native=True)",
        right="the leaf names what it waits in (gloo, NCCL, the driver, a lock)",
        wrong="the native leaf is Python itself: the wait is in Python code",
        cost="each process pauses for about a second",
    ),
    "why_dead": Step(
        act="change nothing; ask the kernel on {host}: dmesg -T | grep -iE 'killed process|oom|xid|segfault'",
        right="it names the process or the GPU: memory (lower --mem-fraction-static or the host's load) or "
        "hardware",
        wrong="nothing there: its last log lines and the core file are next; then relaunch with {next}, "
        "nothing else changed",
        cost="seconds",
    ),
    "free_port": Step(
        act="change nothing in the launch; see which process has the port: ss -ltnp",
        right="a process is listed at the port: end it, or launch with another --port",
        wrong="none is listed: the port is in another network namespace, or was free again; launch once more",
        cost="seconds",
    ),
    "ask_health": Step(
        engine="sglang",
        act="send one request with a time limit: curl -m 20 http://HOST:PORT/health_generate",
        right="it answers 200: the server is healthy; the fault is in the client, the address or a proxy",
        wrong="it does not answer: take snapshots while the request is pending",
        cost="one token",
    ),
    "activate": Step(
        engine="sglang",
        act="activate the gated launch (it waits for that on purpose), or start it without its gate",
        right="the log says `Gated launch activated.`",
        wrong="the ranks stay in _wait_until_activated: the activation reaches another port",
        cost="seconds",
    ),
    "device_coredump": Step(
        variable="CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1",
        right="a core dump asked for at the hang names the kernel that spins on each GPU",
        wrong="the GPUs run no kernel: the wait is on the host",
        cost="one start; set CUDA_COREDUMP_PIPE's file to ask for the dump",
    ),
    "read_log": Step(
        act="give the server's log as well: workbench.attach({main_pid}log='server.log')",
        right="the last line of each rank shows the phase, and which rank is behind",
        wrong="the log is silent since the same line on all ranks: by the log, none is behind",
        cost="seconds",
    ),
}  # fmt: skip


def plan(ladder: Iterable[str], group: RankGroup, words: Mapping[str, str]) -> Experiment:
    """Return the first step of a ladder that the launch has not taken yet.

    Parameters
    ----------
    ladder
        Names of STEPS. ``second_snapshot`` closes every ladder: it is always possible.
    words
        What the texts name: ``odd``, ``pids``, ``host``, ``cache``, ….
    """
    known = dict(words)
    known.setdefault("next", _next_text(ladder, group, known))
    for name in (*ladder, "second_snapshot"):
        step = _step(name, group)
        change = _change(step, group, known) if step is not None else ""
        if step is not None and change:
            return _experiment(step, change, group, known)
    raise AssertionError("the last step of a ladder is always possible")


def _next_text(ladder: Iterable[str], group: RankGroup, words: Mapping[str, str]) -> str:
    steps = (_step(name, group) for name in ladder)
    found = (_change(step, group, words) for step in steps if step is not None and not step.act)
    last = "--soft-watchdog-timeout 120" if group.engine == "sglang" else "NCCL_DEBUG=INFO"
    return next((change for change in found if change), last)


def _step(name: str, group: RankGroup) -> Step | None:
    """Return the step of a name for the group's engine; None where it is for another engine."""
    step = OTHERS.get(group.engine, {}).get(name) or STEPS[name]
    return step if step.fits(group.engine) else None


def _change(step: Step, group: RankGroup, words: Mapping[str, str]) -> str:
    """Return the change as a command line or an environment spells it; "" where it is done or impossible."""
    if step.where and not _stands_in(group, step.where):
        return ""
    flag, value = step.sets
    has = group.arguments.get(flag, flags.UNSET) if flag else flags.UNSET
    wanted = has not in (flags.UNSET, "false") if value == "*" else has == value
    set_already = bool(flag) and wanted
    if step.without:
        return f"without {step.without}" if set_already or step.proved else ""
    if set_already:
        return ""
    if step.spellings:
        own = step.engine not in ("", "sglang")
        chosen = step.spellings[0] if own else flags.spelling(step.spellings, group.version)
        return _filled(chosen, words) if chosen else ""
    if step.variable:
        text = _filled(step.variable, words)
        name, _, setting = text.partition("=")
        return "" if group.environment.get(name) == setting else text
    return _filled(step.act, words)


def _stands_in(group: RankGroup, words: tuple[str, ...]) -> bool:
    """Whether a frame of a living rank has one of the words in its function or file."""
    return any(
        word in frame.function or word in frame.file
        for rank in group.alive
        for frame in rank.frames
        for word in words
    )


def _filled(text: str, words: Mapping[str, str]) -> str:
    """Return a text with its words, "" where one of them is not known."""
    try:
        return text.format_map(words)
    except KeyError:
        return ""


def _experiment(step: Step, change: str, group: RankGroup, words: Mapping[str, str]) -> Experiment:
    acts = bool(step.act)
    if step.without:
        undo = f"put {step.without} back"
        change += (
            " and the flags that belong to it" if step.without == "--speculative-algorithm" else ""
        )
    elif acts:
        undo = "nothing is changed" if "change nothing" in step.act else ""
    else:
        name = change.split(maxsplit=1)[0].partition("=")[0]
        before = group.environment.get(name)
        undo = f"set {name}={before} again" if before else f"leave {name} out again"
    return Experiment(
        change=change if acts else f"{change} ({_UNCHANGED})",
        if_right=_filled(step.right, words) or step.right,
        if_wrong=_filled(step.wrong, words) or step.wrong,
        cost=step.cost,
        undo=undo,
    )
