"""The classification of hangs, as a table: the first rule that holds is the verdict.

The rules that may not be broken stand in `apart`: the majority is the scene and not the culprit, an absent
rank outranks an odd one, nobody is accused where all ranks stand in one place, where a stack of the group
was not seen, or where there is only one look.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

from workbench.core.finding import Confidence
from workbench.hang import waits
from workbench.hang.look import BUSY_GPU, EMPTY_GPU_MIB, Look, RankLook
from workbench.hang.records import Phase, State, WaitClass

GRAPHS: frozenset[str] = frozenset({"graph_prefill", "graph_decode", "graph_draft"})
# Waits from which nothing follows about the rank itself: its partner is another thread or process.
_ELSEWHERE: frozenset[WaitClass] = frozenset({"QUEUE", "IPC", "UNKNOWN"})
_JOINING: tuple[WaitClass, ...] = ("NCCL_INIT", "STORE", "HOST_COLL")
# Exit codes of a server that was asked to end: it ends its ranks by SIGTERM or SIGQUIT.
_ASKED = frozenset({0, -15, -3, 143, 131})
# CPU seconds a second of a rank that launches no kernels; a utilisation that no load has; and the power below
# which a GPU of the size of an A100 or more spins (measured on H200: idle 118 W, spinning 122 to 150 W).
_RESTS = 0.1
_UNUSED_GPU = 20.0
_BIG_GPU_MIB = 60_000.0
_SPINNING_WATTS = 200.0
_REGISTRATION = ("register_graph_buffers", "_register_graph_inputs", "register_graph_inputs")
_AUTOTUNE = ("autotune", "tactic", "_profile_single_kernel", "choose_one", "AutoTuner")


def apart(look: Look) -> tuple[RankLook, ...]:
    """Return the ranks that the others wait for, or none where the rules forbid an accusation."""
    ranks = look.alive
    if not (look.complete and look.frozen) or len(ranks) < 2:
        return ()
    stopped = tuple(rank for rank in ranks if rank.stopped)
    if stopped:
        return stopped if len(stopped) < len(ranks) else ()
    if len({(rank.wait, rank.place) for rank in ranks}) == 1:
        return ()
    waiting = look.of(*waits.FOR_OTHERS)
    device = look.of(*waits.ON_DEVICE)
    busy = tuple(rank for rank in ranks if rank not in waiting and rank not in device)
    if busy:
        return _behind_the_rest(look, busy, waiting + device)
    if waiting and device:
        fewer = len(device) < len(waiting) or len(ranks) == 2
        return device if fewer and len(device) == 1 else ()
    if device:
        return (
            tuple(rank for rank in ranks if rank.number in look.behind) if _minority(look) else ()
        )
    return _one_elsewhere(ranks)


def _behind_the_rest(
    look: Look, busy: tuple[RankLook, ...], waiting: tuple[RankLook, ...]
) -> tuple[RankLook, ...]:
    """Return the ranks that have not come to where the others wait."""
    locked = tuple(rank for rank in busy if rank.wait == "LOCK")
    free = tuple(rank for rank in busy if rank.wait != "LOCK")
    if len(locked) > 1 and len(free) == 1 and not waiting:
        return free if free[0].wait not in _ELSEWHERE else ()  # who holds what the others want
    if not waiting or len(busy) > len(waiting) or any(rank.wait in _ELSEWHERE for rank in busy):
        return ()
    holders = {n for numbers in look.lock_holders.values() for n in numbers}
    if locked and holders & {rank.number for rank in waiting}:
        return ()  # the holder of a lock waits in a collective: neither of them is alone at fault
    return busy


def _one_elsewhere(ranks: tuple[RankLook, ...]) -> tuple[RankLook, ...]:
    """Return the one rank of at least three that waits in another collective than all others."""
    places = Counter(rank.place for rank in ranks)
    common, count = places.most_common(1)[0]
    if len(ranks) < 3 or count != len(ranks) - 1:
        return ()
    return tuple(rank for rank in ranks if rank.place != common)


def _minority(look: Look) -> bool:
    return 0 < len(look.behind) < max(len(look.alive) / 2, 1.5)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes
    ----------
    code
        As docs/hang.md names it.
    state
        The verdict's state.
    cause
        What the evidence means, in words that end a sentence.
    ladder
        The experiments to try, the first one that the launch has not taken.
    accuses
        Whether ranks that stand apart are named.
    unknown
        What the rule leaves open.
    """

    code: str
    state: State
    when: Callable[[Look, Phase], bool]
    evidence: str
    cause: str
    ladder: tuple[str, ...]
    accuses: bool = False
    unknown: str = ""


def _all(look: Look, *classes: WaitClass) -> bool:
    return bool(look.alive) and len(look.of(*classes)) == len(look.alive)


def _some(look: Look, *classes: WaitClass) -> bool:
    return bool(look.of(*classes))


def _has(look: Look, words: tuple[str, ...]) -> bool:
    return any(word in name for rank in look.alive for name in rank.place for word in words)


def _working(look: Look) -> tuple[RankLook, ...]:
    """Return the ranks that get on, other than in circles in an event loop."""
    return tuple(rank for rank in look.alive if rank.moving and rank.wait != "IDLE")


def _dead_server(look: Look) -> bool:
    codes = [*look.exits.values()]
    return look.over and (look.story.fatal or any(code not in _ASKED for code in codes))


def _stopped(look: Look) -> tuple[RankLook, ...]:
    return tuple(rank for rank in look.alive if rank.stopped)


def _holds_others(look: Look, _: Phase) -> bool:
    """Say whether all others wait for a stopped rank, over two looks."""
    rest = [rank for rank in look.alive if not rank.stopped]
    held = waits.FOR_OTHERS | waits.ON_DEVICE
    in_wait = bool(rest) and all(rank.wait in held - {"IDLE"} for rank in rest)
    return bool(_stopped(look)) and in_wait and look.complete and look.frozen


def _past_start(phase: Phase) -> bool:
    return phase in ("ready", "init_done")


def _log_alone(look: Look) -> bool:
    return not (look.alive or look.loose) and bool(look.story.last_line or look.story.last_at)


def _gated(look: Look, phase: Phase) -> bool:
    inside = _has(look, ("_wait_until_activated",))
    return inside or (look.story.gated and phase in ("dist_init", "unknown") and not look.missing)


def _serving(look: Look, phase: Phase) -> bool:
    in_loop = [rank for rank in look.alive if waits.in_event_loop(rank.frames)]
    if phase != "ready" or len(in_loop) < len(look.alive) or not look.complete:
        return False
    batch = [rank for rank in look.alive if waits.in_batch(rank.frames)]
    if batch and look.twice and look.progressed:
        return True
    if len(batch) < len(look.alive) and all(rank.same_stack for rank in batch):
        return False  # some stay in a batch for which the others do not work
    turning = [r for r in look.alive if (r.moving or r.wait == "IDLE") and not r.compilers]
    return bool(batch) and look.twice and len(turning) == len(look.alive)


def _as_under_load(look: Look, phase: Phase) -> bool:
    """Whether two looks alike may be chance: under load a server waits for its GPUs most of the time.

    Not where a GPU does nothing, where the big ones spin without power, where a rank's CPU rests, or where
    the log fell silent.
    """
    in_batch = all(waits.in_batch(rank.frames) for rank in look.alive)
    if not (phase == "ready" and _frozen(look) and in_batch and _all(look, *waits.ON_DEVICE)):
        return False
    gpus = [rank.gpu for rank in look.alive if rank.gpu is not None] or list(look.gpus)
    rests = any(rank.cpu is not None and rank.cpu <= _RESTS for rank in look.alive)
    unused = any(gpu.utilisation is not None and gpu.utilisation < _UNUSED_GPU for gpu in gpus)
    spins = any(
        (gpu.memory_total_mib or 0.0) > _BIG_GPU_MIB
        and gpu.power_watts is not None
        and gpu.power_watts < _SPINNING_WATTS
        for gpu in gpus
    )
    return not (rests or unused or spins or look.silent or look.behind)


def _idle(look: Look, phase: Phase) -> bool:
    """All ranks in their event loops, and something says that the loops turn."""
    if not (look.complete and look.twice and _all(look, "IDLE")):
        return False
    sleeping = _has(look, ("maybe_sleep",))
    turning = [rank for rank in look.alive if rank.same_stack is False or (rank.cpu or 0.0) > 0.05]
    return sleeping or len(turning) == len(look.alive)


def _gpu(look: Look, low: float, high: float) -> bool:
    """Whether every GPU of the group has a utilisation in a range."""
    used = [rank.gpu.utilisation for rank in look.alive if rank.gpu is not None]
    used = used or [gpu.utilisation for gpu in look.gpus]
    return bool(used) and all(value is not None and low <= value <= high for value in used)


def _one_gpu_busy(look: Look) -> bool:
    odd = look.of("CUDA_SYNC")
    return len(odd) == 1 and odd[0].gpu is not None and (odd[0].gpu.utilisation or 0.0) >= BUSY_GPU


def _asleep(look: Look, phase: Phase) -> bool:
    """Every rank asleep over two looks, by /proc alone, in a phase of the start-up."""
    starting = phase not in ("ready", "unknown", "init_done")
    whole = len(look.alive) == look.expected and not look.unnamed
    return starting and whole and look.frozen and all(rank.cpu is not None for rank in look.alive)


def _frozen(look: Look) -> bool:
    return look.complete and look.frozen


def _bootstrap(look: Look, phase: Phase) -> bool:
    small = all((gpu.memory_used_mib or 0.0) < EMPTY_GPU_MIB for gpu in look.gpus)
    joining = len(look.of("NCCL_INIT", "STORE")) > 0 and len(look.of("RUNNING", "LOCK", "JIT")) == 0
    return _frozen(look) and phase in ("dist_init", "spawn", "unknown") and joining and small


RULES: tuple[Rule, ...] = (
    # What is gone, stopped, or waits on purpose is told first: it needs no comparison of stacks.
    Rule("RE", "cannot_tell", lambda k, p: k.over and _on_purpose(k),
         "the log ends with a shutdown that was asked for (SIGTERM, SIGINT), and no process is left",
         "it was ended from outside; whether it had hung before, the log alone does not tell",
         ("soft_watchdog",), unknown="what the ranks did before they were ended"),
    Rule("R12", "crashed", lambda k, p: k.over and bool(k.story.said("heartbeat")),
         "NCCL's heartbeat monitor aborted the ranks, and no process is left",
         "a rank's watchdog thread could not finish a CUDA or NCCL call, or could not get the GIL; that is "
         "the end of a hang, not its cause, and the first to print it is not necessarily the culprit",
         ("soft_watchdog",), unknown="which rank was behind: no stack was taken before the abort"),
    Rule("R0", "crashed", lambda k, p: _dead_server(k) or (k.over and bool(k.dead)),
         "no rank is left, and the log or an exit code says why",
         "the server has died", ("why_dead", "soft_watchdog")),
    Rule("R0", "dead_rank", lambda k, p: bool(k.missing and k.alive),
         "a rank of the group is dead or absent, and others live",
         "the others wait for a rank that is not there; whatever they stand in is a consequence",
         ("why_dead", "soft_watchdog")),
    Rule("RT", "hung", _holds_others, "a rank is stopped (state T) and all others wait for it",
         "a stopped rank never reaches the collective in which the others wait",
         ("continue_rank", "detach", "decode_graphs_off", "soft_watchdog"), accuses=True,
         unknown="who stopped it: SIGSTOP, a debugger and a frozen container look the same"),
    Rule("RT", "stopped", lambda k, p: bool(_stopped(k)), "a rank is stopped (state T)",
         "it was stopped from outside: by SIGSTOP, a debugger or a frozen container",
         ("continue_rank", "detach", "soft_watchdog"), accuses=True),
    Rule("RH", "stopped", lambda k, p: _past_start(p) and any(h.stopped for h in k.helpers),
         "a process of the server that is no rank is stopped (state T)",
         "its ranks may be well, and no request gets through", ("continue_rank",)),
    Rule("RH", "crashed", lambda k, p: _past_start(p) and bool(k.helpers),
         "a process of the server that is no rank has ended, and its ranks live",
         "its ranks may be well, and no request gets through", ("why_dead", "soft_watchdog")),
    Rule("RG", "slow", _gated, "the ranks wait for the activation of a gated launch",
         "it waits on purpose", ("activate",)),
    Rule("R2", "slow", lambda k, p: bool(_working(k)) and not _serving(k, p),
         "a rank gets on: its stack, CPU time or I/O moves, or a compiler of its own runs",
         "it works, and the others wait for it: slow, not hung",
         ("wait",), unknown="whether it will arrive"),
    Rule("R15", "serving", _serving, "all ranks are in their event loops and work at batches",
         "it serves", ("ask_health",)),
    Rule("R15", "idle", _idle, "all ranks are in their event loops and wait for requests",
         "it is well and has nothing to do; the broadcast of an empty list of requests is no hang",
         ("ask_health",)),
    # Not enough was seen to compare the ranks.
    Rule("R1", "hung", lambda k, p: not k.complete and _asleep(k, p),
         "every rank sleeps over two looks, without CPU time, I/O or a compiler, amid its start-up",
         "a wait on the host that nobody ends; without stacks no rank can be told from another",
         ("soft_watchdog", "see_all"), unknown="which rank is behind, and in what the ranks wait"),
    Rule("R1", "cannot_tell", lambda k, p: bool(k.not_collected) and bool(k.alive),
         "not all ranks were collected",
         "the rank that all wait for may be one of those", ("collect_rest",),
         unknown="what the ranks that were not collected do"),
    Rule("R1", "cannot_tell", lambda k, p: bool(k.alive) and not k.complete,
         "not every rank's stack was seen", "the rank that all wait for may be the one that was not seen",
         ("see_all", "soft_watchdog"), unknown="what the ranks without a stack do"),
    Rule("R1", "cannot_tell", lambda k, p: bool(k.alive) and not k.twice,
         "there is only one look", "what stands still cannot be told from what is slow", ("second_look",),
         unknown="whether anything moves"),
    # All were seen twice and stand still: what they stand in tells the cause.
    Rule("RF", "hung", lambda k, p: _frozen(k) and bool(_injected(k)),
         "all ranks stand still, and a test switch of SGLang that makes it sleep is set",
         "the sleep is asked for", ("no_injection",)),
    Rule("R3", "hung", lambda k, p: _frozen(k) and _all(k, "LOCK"),
         "all ranks wait for a file lock, and no compiler runs",
         "the lock's owner is gone or outside this server: a build was killed, and its lock file stayed",
         ("fresh_cache",), unknown="who holds the lock: look for a live holder before deleting the file"),
    Rule("R3", "hung", lambda k, p: _frozen(k) and _some(k, "LOCK"),
         "some ranks wait for a file lock, the others for them, and no compiler runs",
         "a lock whose holder is gone, or is one of the ranks", ("fresh_cache", "soft_watchdog"),
         accuses=True, unknown="who holds the lock"),
    Rule("R4", "hung", _bootstrap,
         "the ranks stand in NCCL's bootstrap or torch's store, and no weights are loaded",
         "the process groups do not come up: P2P, the network interface, or a rank that joined late",
         ("nccl_debug", "p2p_off"),
         unknown="which rank's link fails: they stand in different steps of one handshake"),
    Rule("R4", "hung", lambda k, p: _frozen(k) and p in ("dist_init", "spawn") and _some(k, *_JOINING),
         "ranks wait to join their process groups, and one has not come there",
         "the rank that did not come is held up by its own work",
         ("nccl_debug", "soft_watchdog"), accuses=True),
    Rule("R5", "hung", lambda k, p: _frozen(k) and p == "load_barrier",
         "the ranks wait in the barrier after loading, and a rank still loads without getting on",
         "the storage or the loader of one rank is stuck; the barrier gives up after 480 s",
         ("local_weights", "soft_watchdog"), accuses=True),
    Rule("R5", "hung", lambda k, p: _frozen(k) and p == "weights" and _some(k, "IO"),
         "a rank reads weights, and no byte comes",
         "the storage does not answer: a network file system, a disk",
         ("local_weights", "soft_watchdog"), accuses=True),
    Rule("R8", "hung", lambda k, p: _frozen(k) and (_has(k, _REGISTRATION) or _differing(k)),
         "the ranks stand in the registration of graph buffers for the custom all-reduce",
         "a rank left its capture by an exception that the registration hides, or the ranks captured "
         "different numbers of buffers", ("custom_all_reduce_off", "decode_graphs_off"), accuses=True),
    Rule("R7", "hung", lambda k, p: _frozen(k) and _has(k, _AUTOTUNE),
         "the ranks stand in different steps of the kernel autotuner",
         "they do not tune the same tactics (tuning caches that only some ranks have), and the collectives "
         "do not match", ("autotune_off", "symm_mem_off", "soft_watchdog"), accuses=True),
    Rule("R11", "hung", lambda k, p: _frozen(k) and _some(k, "CAPTURE", "MODULE_LOAD"),
         "a rank stands in the driver, in a capture or loading a kernel",
         "a lock of the driver: a kernel is loaded lazily inside a capture",
         ("eager_modules", "decode_graphs_off"), accuses=True),
    Rule("RL", "cannot_tell", _as_under_load,
         "all ranks wait for their GPUs in a batch, as they do most of the time under load",
         "two looks alike do not tell a hang from a busy server", ("more_looks",),
         unknown="whether batches end: the log's lines of them, or more looks, would tell"),
    Rule("R9", "hung", lambda k, p: _frozen(k) and _all(k, "CUDA_SYNC", "NCCL_LAUNCH"),
         "all ranks wait for their GPU",
         "a collective's kernel is resident on each GPU and spins: one rank never launched its part, or a "
         "link fails", ("custom_all_reduce_off", "device_coredump"), accuses=True,
         unknown="which rank did not launch: NCCL's own counts (RAS) would tell"),
    Rule("R10", "hung", lambda k, p: _frozen(k) and _one_gpu_busy(k) and _some(k, "HOST_COLL"),
         "one rank waits for its GPU, which is busy; the others wait for that rank",
         "a kernel of that rank does not end: its GPU, or what it computes", ("other_gpu", "soft_watchdog"),
         accuses=True, unknown="which kernel: a CUDA core dump names it"),
    Rule("R14", "hung", lambda k, p: _frozen(k) and p == "graph_draft",
         "the ranks stand in the capture of the draft's graphs", "the ranks left lock-step in the draft",
         ("no_speculation", "decode_graphs_off"), accuses=True),
    Rule("R6", "hung", lambda k, p: _frozen(k) and p in GRAPHS and _some(k, "JIT"),
         "ranks wait at a shape of the capture, and one compiles without a live compiler",
         "a kernel's compilation on one rank does not end", ("precompile", "decode_graphs_off"),
         accuses=True),
    Rule("R6", "hung", lambda k, p: _frozen(k) and p == "graph_prefill",
         "the ranks stand in the capture of prefill graphs", "the ranks diverged before the collective",
         ("prefill_graphs_off", "soft_watchdog"), accuses=True),
    Rule("R6", "hung", lambda k, p: _frozen(k) and p == "graph_decode",
         "the ranks stand in the capture of decode graphs", "the ranks diverged before the collective",
         ("decode_graphs_off", "custom_all_reduce_off", "soft_watchdog"), accuses=True),
    Rule("R13", "hung", lambda k, p: _frozen(k) and p in ("init_done", "ready") and not _all(k, "IDLE")
         and all(rank.phase == "ready" for rank in k.alive),
         "the start-up is done, and a batch does not end",
         "a rank does not come out of its forward, or of the scheduling around it",
         ("no_hooks", "overlap_off", "custom_all_reduce_off", "skip_warmup"), accuses=True),
    Rule("R17", "hung", lambda k, p: _frozen(k) and p == "unknown" and len(k.alive) > 1
         and _some(k, "HOST_COLL", "STORE"),
         "ranks wait in a collective outside any phase of SGLang that is known",
         "the ranks do not run the same collectives", ("dist_debug",), accuses=True),
    Rule("R19", "hung", lambda k, p: _frozen(k) and _some(k, "HOST_COLL", "STORE") and bool(apart(k)),
         "ranks wait in a collective, and one has not come there",
         "the rank that did not come is held up by its own work, its GPU or its host",
         ("other_gpu", "soft_watchdog"), accuses=True,
         unknown="whether it is the rank or its GPU"),
    Rule("R18", "hung", lambda k, p: _frozen(k) and not _all(k, "IDLE"),
         "every rank stands still over two looks", "what it waits for is not in its Python frames",
         ("native", "soft_watchdog"), accuses=True),
    Rule("R1", "cannot_tell", lambda k, p: _log_alone(k),
         "there is the log alone, and it tells no end", "a log tells the phase, and not which rank is behind",
         ("soft_watchdog",), unknown="what the ranks do: their stacks, twice"),
    Rule("R16", "cannot_tell", lambda k, p: True, "no rule applies", "the evidence does not decide",
         ("soft_watchdog", "second_look"), unknown="the stacks of all ranks, twice"),
)  # fmt: skip


def _injected(look: Look) -> str:
    """Return the variable of SGLang's own fault injection that is set, or ""."""
    found = [name for name in look.environment if name.startswith("SGLANG_TEST_STUCK_")]
    return found[0] if found else ""


def _differing(look: Look) -> bool:
    """Whether ranks that wait together registered different numbers of graph buffers."""
    return len(look.story.addresses) > 1 and len(set(look.story.addresses.values())) > 1


def _on_purpose(look: Look) -> bool:
    """Whether the server was asked to end, and nothing but that ended it."""
    crashes = look.story.said("child_crashed") + look.story.said("child_failed")
    codes = [*look.exits.values(), *(int(one.event.facts["exit_code"]) for one in crashes)]
    hard = ("heartbeat", "fatal", "out_of_memory", "exception", "rank_died", "collective_timeout")
    return (
        look.story.stopped
        and all(code in _ASKED for code in codes)
        and not any(look.story.said(code) for code in hard)
    )


def rule_for(look: Look, phase: Phase) -> Rule:
    """Return the first rule that holds."""
    return next(rule for rule in RULES if rule.when(look, phase))


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What one group of ranks came to: the rule that holds, and whom it names."""

    look: Look
    phase: Phase
    rule: Rule
    odd: tuple[RankLook, ...]
    confidence: Confidence
