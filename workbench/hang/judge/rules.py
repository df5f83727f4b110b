"""The classification of hangs, as a table: the first rule that holds is the verdict.

The rules that may not be broken are in `apart`: the majority is the scene and not the culprit, an absent
rank outranks an odd one, no rank is accused where all are at one place, where the stack of a rank is
missing, or where there is only one snapshot.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

from workbench.core.finding import Confidence
from workbench.hang.judge import votes, waits
from workbench.hang.judge.gpu_load import load
from workbench.hang.judge.rank_group import BUSY_GPU, EMPTY_GPU_MIB, GroupRank, RankGroup
from workbench.hang.records import Phase, State, WaitClass

GRAPHS: frozenset[str] = frozenset({"graph_prefill", "graph_decode", "graph_draft"})
_HOST: frozenset[WaitClass] = frozenset({"HOST_COLL", "STORE", "NCCL_INIT"})
_COLLECTIVE = _HOST | waits.ON_DEVICE
_JOINING: tuple[WaitClass, ...] = ("NCCL_INIT", "STORE", "HOST_COLL")
# Exit codes of a server that was asked to end: it ends its ranks by SIGTERM or SIGQUIT.
ASKED_EXITS = frozenset({0, -15, -3, 143, 131})
# CPU seconds a second of a rank that launches no kernels; a utilisation that no load has; and the power below
# which a GPU of the size of an A100 or more spins (measured on H200: idle 118 W, spinning 122 to 150 W).
_RESTS = 0.1
_UNUSED_GPU = 20.0
# CPU seconds a second of a rank whose event loop turns (measured 0.5 to 0.9; threads next to a loop that
# waits use up to 0.11).
_TURNS = 0.3
# Collectives of the event loop itself: a healthy server of several ranks is there for most of an idle turn.
_LOOP_SYNC = ("prepare_mlp_sync_batch",)
_OUTSIDE = (
    "init_weights_update_group", "init_custom_process_group", "init_weights_send_group",
    "update_weights_from_distributed",
)  # fmt: skip
_REGISTRATION = ("register_graph_buffers", "_register_graph_inputs", "register_graph_inputs")
_AUTOTUNE = ("autotune", "tactic", "_profile_single_kernel", "choose_one", "AutoTuner")


def apart(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that the others wait for, or none where the rules forbid an accusation."""
    ranks = group.alive
    still = group.frozen or (bool(votes.given_up(group)) and not group.twice)
    if not (group.complete and still) or len(ranks) < 2:
        return ()
    stopped = tuple(rank for rank in ranks if rank.stopped)
    if stopped:
        return stopped if len(stopped) < len(ranks) else ()
    if len({(rank.wait, rank.place) for rank in ranks}) == 1:
        # Where all stacks are alike, NCCL's own counts decide.
        return tuple(r for r in ranks if r.number in group.behind) if _minority(group) else ()
    receiving = group.of("IDLE")
    if receiving and len(receiving) < len(ranks) and all(rank.in_loop for rank in ranks):
        return _behind_the_receive(ranks, receiving)
    waiting = group.of(*waits.FOR_OTHERS)
    device = group.of(*waits.ON_DEVICE)
    busy = tuple(rank for rank in ranks if rank not in waiting and rank not in device)
    if busy:
        return _behind_the_rest(group, busy, waiting + device)
    if waiting and device:
        fewer = len(device) < len(waiting) or len(ranks) == 2
        return device if fewer and len(device) == 1 else ()
    if device:
        return (
            tuple(rank for rank in ranks if rank.number in group.behind) if _minority(group) else ()
        )
    return _one_elsewhere(ranks)


def _behind_the_receive(
    ranks: tuple[GroupRank, ...], receiving: tuple[GroupRank, ...]
) -> tuple[GroupRank, ...]:
    """Return the ranks that have not come back to the receive of the event loop, where the others are.

    Most ranks in a collective of the loop's work and few in the receive: those few may have left it out.
    """
    rest = tuple(rank for rank in ranks if rank not in receiving)
    own_work = all(rank.wait not in waits.FOR_OTHERS | waits.ON_DEVICE for rank in rest)
    known = all(rank.wait != "UNKNOWN" for rank in rest)
    fewer = len(rest) < len(receiving) or len(ranks) == 2
    return rest if known and (own_work or fewer) else ()


def _behind_the_rest(
    group: RankGroup, busy: tuple[GroupRank, ...], waiting: tuple[GroupRank, ...]
) -> tuple[GroupRank, ...]:
    """Return the ranks that have not come to where the others wait."""
    locked = tuple(rank for rank in busy if rank.wait == "LOCK")
    free = tuple(rank for rank in busy if rank.wait != "LOCK")
    if len(locked) > 1 and len(free) == 1 and not waiting:
        return free if free[0].wait not in ("QUEUE", "IPC", "UNKNOWN") else ()  # who holds it
    if not waiting or len(busy) > len(waiting) or any(rank.wait == "UNKNOWN" for rank in busy):
        return ()
    holders = {n for numbers in group.lock_holders.values() for n in numbers}
    if locked and holders & {rank.number for rank in waiting}:
        return ()  # the holder of a lock waits in a collective: neither of them is alone at fault
    return busy


def _one_elsewhere(ranks: tuple[GroupRank, ...]) -> tuple[GroupRank, ...]:
    """Return the one rank of at least three that waits in another collective than all others."""
    places = Counter(rank.place for rank in ranks)
    common, count = places.most_common(1)[0]
    if len(ranks) < 3 or count != len(ranks) - 1:
        return ()
    return tuple(rank for rank in ranks if rank.place != common)


def _minority(group: RankGroup) -> bool:
    return 0 < len(group.behind) < max(len(group.alive) / 2, 1.5)


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
        Whether ranks that are apart from the others are named.
    unknown
        What the rule leaves open.
    """

    code: str
    state: State
    when: Callable[[RankGroup, Phase], bool]
    evidence: str
    cause: str
    ladder: tuple[str, ...]
    accuses: bool = False
    unknown: str = ""


def _all(group: RankGroup, *classes: WaitClass) -> bool:
    return bool(group.alive) and len(group.of(*classes)) == len(group.alive)


def _some(group: RankGroup, *classes: WaitClass) -> bool:
    return bool(group.of(*classes))


def _has(group: RankGroup, words: tuple[str, ...]) -> bool:
    return any(word in name for rank in group.alive for name in rank.place for word in words)


def _working(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that get on, other than in circles in an event loop."""
    return tuple(
        r for r in group.alive if r.moving and not waits.in_receive(r.frames) and not _turns(r)
    )


def _turns(rank: GroupRank) -> bool:
    """Whether a rank's event loop got on outside of a batch, and one snapshot has it in the receive."""
    receives = waits.in_receive(rank.frames) or waits.in_receive(rank.before)
    return rank.turns and receives and not waits.in_batch(rank.frames)


def _dead_server(group: RankGroup) -> bool:
    codes = [*group.exits.values()]
    return group.over and (group.story.fatal or any(code not in ASKED_EXITS for code in codes))


def _stopped(group: RankGroup) -> tuple[GroupRank, ...]:
    return tuple(rank for rank in group.alive if rank.by_signal)


def _held(group: RankGroup) -> tuple[GroupRank, ...]:
    return tuple(rank for rank in group.alive if rank.held)


def _holds_others(group: RankGroup) -> bool:
    """Say whether all others wait for the stopped and held ranks, in two snapshots."""
    rest = [rank for rank in group.alive if not rank.stopped]
    held = waits.FOR_OTHERS | waits.ON_DEVICE
    in_wait = bool(rest) and all(rank.wait in held - {"IDLE"} for rank in rest)
    return in_wait and group.complete and group.frozen


def _hard_end(group: RankGroup) -> bool:
    """Whether something else than a watchdog ended the server, by its log."""
    codes = ("exception", "out_of_memory", "fatal", "cuda_error", "rank_died", "heartbeat")
    return any(group.story.errors_of(code) for code in codes)


def _says(group: RankGroup, code: str) -> bool:
    """Whether the log has an error of this kind."""
    return bool(group.story.errors_of(code))


def _timed_out(group: RankGroup) -> bool:
    """Whether torch's watchdog gave up a collective, and no rank is alive."""
    return not group.alive and _says(group, "collective_timeout")


def _health_failed(group: RankGroup) -> bool:
    """Whether the server's health check failed, and no batch ended after it."""
    failed = group.story.errors_of("health_failed")
    last = max((one.line.number for one in failed), default=0)
    return bool(failed) and not any(one.line.number > last for one in group.story.batches)


def _past_start(phase: Phase) -> bool:
    return phase in ("ready", "init_done")


def _log_alone(group: RankGroup) -> bool:
    return not (group.alive or group.loose) and bool(group.story.last_line or group.story.last_at)


def _gated(group: RankGroup, phase: Phase) -> bool:
    inside = _has(group, ("_wait_until_activated",))
    return inside or (group.story.gated and phase in ("dist_init", "unknown") and not group.missing)


def _serving(group: RankGroup, phase: Phase) -> bool:
    in_loop = [rank for rank in group.alive if waits.in_event_loop(rank.frames)]
    if phase != "ready" or len(in_loop) < len(group.alive) or not group.complete:
        return False
    batch = [
        rank for rank in group.alive if waits.in_batch(rank.frames) or waits.in_batch(rank.before)
    ]
    if not (batch and group.twice) or any(rank.compilers for rank in group.alive):
        return False
    # A batch of these ranks ended, or every rank that works at one is elsewhere in it.
    return group.progressed or all(rank.turns for rank in batch)


def _as_under_load(group: RankGroup, phase: Phase) -> bool:
    """Whether two equal snapshots may be chance: under load a server waits for its GPUs most of the time.

    Not where a GPU does nothing, where the big ones spin without power, where a rank's CPU rests, or where
    the log fell silent.
    """
    in_batch = all(waits.in_batch(rank.frames) for rank in group.alive)
    if not (phase == "ready" and _frozen(group) and in_batch and _all(group, *waits.ON_DEVICE)):
        return False
    gpus = [rank.gpu for rank in group.alive if rank.gpu is not None] or list(group.gpus)
    rests = any(rank.cpu is not None and rank.cpu <= _RESTS for rank in group.alive)
    unused = any(gpu.utilisation is not None and gpu.utilisation < _UNUSED_GPU for gpu in gpus)
    spins = any(load(gpu) == "spins" for gpu in gpus)
    return not (rests or unused or spins or group.silent or group.behind)


def _computing(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that wait for a GPU that computes: utilisation and power say so together."""
    device = group.of(*waits.ON_DEVICE)
    return tuple(r for r in device if r.gpu is not None and load(r.gpu) == "computes")


def _alike(group: RankGroup) -> bool:
    """Whether all ranks are at one place."""
    return len({(rank.wait, rank.place) for rank in group.alive}) == 1


def _in_loop_collective(group: RankGroup) -> bool:
    """Whether all ranks wait for each other below their event loops, outside of a batch."""
    return all(
        rank.in_loop and not waits.in_batch(rank.frames) and rank.wait in _COLLECTIVE
        for rank in group.alive
    )


def _may_turn(group: RankGroup) -> bool:
    """Whether ranks that are alike in a collective of every turn may be turning: CPU time, or none known."""
    cpu = [rank.cpu for rank in group.alive]
    return _has(group, _LOOP_SYNC) and any(one is None or one >= _TURNS for one in cpu)


def _polls(group: RankGroup) -> bool:
    """Whether a rank uses CPU time at one place of its event loop, and nothing shows that it gets on."""
    still = (r for r in group.alive if r.in_loop and r.same_stack and r.moving is None)
    return group.complete and group.twice and any(still)


def _idle(group: RankGroup, phase: Phase) -> bool:
    """All ranks in the receive of their event loops, and something says that each loop turns."""
    if not (group.complete and group.twice and group.alive):
        return False
    if not all(waits.in_receive(rank.frames) or _turns(rank) for rank in group.alive):
        return False
    sleeping = _has(group, ("maybe_sleep",))
    return sleeping or all(rank.turns or (rank.cpu or 0.0) >= _TURNS for rank in group.alive)


def _one_gpu_busy(group: RankGroup) -> bool:
    """Whether the one rank that waits for its GPU has the only busy one: else all are in one kernel."""
    odd = group.of("CUDA_SYNC")
    busy = [r for r in group.alive if r.gpu is not None and (r.gpu.utilisation or 0.0) >= BUSY_GPU]
    return len(odd) == 1 and busy == list(odd)


def _asleep(group: RankGroup, phase: Phase) -> bool:
    """Every rank asleep in two snapshots, by /proc alone, in a phase of the start-up."""
    starting = phase not in ("ready", "unknown", "init_done")
    whole = len(group.alive) == group.expected and not group.unnamed
    return starting and whole and group.frozen and all(rank.cpu is not None for rank in group.alive)


def _frozen(group: RankGroup) -> bool:
    return group.complete and group.frozen


def _bootstrap(group: RankGroup, phase: Phase) -> bool:
    small = all((gpu.memory_used_mib or 0.0) < EMPTY_GPU_MIB for gpu in group.gpus)
    joining = (
        len(group.of("NCCL_INIT", "STORE")) > 0 and len(group.of("RUNNING", "LOCK", "JIT")) == 0
    )
    return _frozen(group) and phase in ("dist_init", "spawn", "unknown") and joining and small


RULES: tuple[Rule, ...] = (
    # What is gone, stopped, or waits on purpose comes first: it needs no comparison of stacks.
    Rule("RE", "cannot_tell", lambda k, p: k.over and asked_to_end(k),
         "the log ends with a requested shutdown (SIGTERM, SIGINT), and the processes are gone",
         "it was ended from outside; the log alone does not show whether it hung before",
         ("soft_watchdog",), unknown="what the ranks did before they were ended: there are no stacks"),
    Rule("sequence_numbers", "hung", lambda k, p: not k.alive and bool(votes.behind(k)),
         "collectives timed out, and by NCCL's sequence numbers a rank had launched fewer than the others",
         "the others waited for that rank: it is behind, which does not say that it is at fault",
         ("dist_debug",), accuses=True,
         unknown="what held that rank up: there are no stacks from before the timeout"),
    Rule("collective_timeout", "hung", lambda k, p: _timed_out(k) and not _hard_end(k),
         "collectives timed out", "ranks waited in a collective until torch's watchdog gave up",
         ("dist_debug",), unknown="which rank was behind: the sequence numbers do not show it"),
    Rule("watchdog", "hung", lambda k, p: bool(votes.given_up(k)) and not k.twice and not _hard_end(k),
         "the engine's watchdog gave up: no batch ended for its whole time",
         "the ranks are, or were, in a batch that does not end",
         ("overlap_off", "custom_all_reduce_off", "soft_watchdog"), accuses=True,
         unknown="what the batch waited for: its stacks name the place, not the cause"),
    Rule("R12", "crashed", lambda k, p: k.over and bool(k.story.errors_of("heartbeat")),
         "NCCL's heartbeat monitor aborted the ranks, and the processes are gone",
         "a rank's watchdog thread could not finish a CUDA or NCCL call, or could not get the GIL; this is "
         "the end of a hang, not its cause, and the first rank to print it is not necessarily the culprit",
         ("soft_watchdog",), unknown="which rank was behind: there are no stacks from before the abort"),
    Rule("deepep_timeout", "crashed", lambda k, p: not k.alive and _says(k, "deepep_timeout"),
         "DeepEP gave up waiting for another rank",
         "the rank that reports it waited for one that did not come in time, for example because it still "
         "compiled a kernel", ("precompile", "why_dead", "soft_watchdog"),
         unknown="which rank was late: the one that reports the timeout is not the one at fault"),
    Rule("R0", "crashed", lambda k, p: _dead_server(k) or (k.over and bool(k.dead)),
         "all ranks have exited, and the log or an exit code says why",
         "the server has died", ("why_dead", "soft_watchdog")),
    Rule("R0", "dead_rank", lambda k, p: bool(k.missing and k.alive),
         "a rank of the group is dead or absent, and others are alive",
         "the others wait for a missing rank; where they wait is a consequence",
         ("why_dead", "soft_watchdog")),
    Rule("RT", "hung", lambda k, p: bool(_stopped(k)) and _holds_others(k),
         "a rank is stopped (state T) and all others wait for it",
         "a stopped rank never reaches the collective in which the others wait",
         ("continue_rank", "decode_graphs_off", "soft_watchdog"), accuses=True,
         unknown="who stopped it: SIGSTOP, a debugger and a frozen container look the same"),
    Rule("RT", "stopped", lambda k, p: bool(_stopped(k)), "a rank is stopped (state T)",
         "it was stopped from outside: by SIGSTOP, a debugger or a frozen container",
         ("continue_rank", "soft_watchdog"), accuses=True),
    Rule("RT", "hung", lambda k, p: bool(_held(k)) and _holds_others(k),
         "a debugger holds a rank in both snapshots, and all others wait for it",
         "a rank that is held never reaches the collective in which the others wait",
         ("detach", "decode_graphs_off", "soft_watchdog"), accuses=True,
         unknown="whether the rank was hung before the debugger came"),
    Rule("RT", "stopped", lambda k, p: bool(_held(k)), "a debugger holds a rank in both snapshots",
         "the rank does not run while it is held", ("detach", "soft_watchdog"), accuses=True),
    Rule("RH", "stopped", lambda k, p: _past_start(p) and any(h.stopped for h in k.helpers),
         "a process of the server, not a rank, is stopped (state T)",
         "its ranks may be healthy, but requests do not get through", ("continue_rank",)),
    Rule("RH", "crashed", lambda k, p: _past_start(p) and bool(k.helpers),
         "a process of the server, not a rank, has ended, and its ranks are alive",
         "its ranks may be healthy, but requests do not get through", ("why_dead", "soft_watchdog")),
    Rule("RG", "slow", _gated, "the ranks wait for the activation of a gated launch",
         "it waits on purpose", ("activate",)),
    Rule("R2", "slow", lambda k, p: bool(_working(k)) and not _serving(k, p),
         "a rank makes progress: its stack, CPU time or I/O moves, or a compiler of its own runs",
         "it works, and the others wait for it: slow, not hung",
         ("wait",), unknown="whether the working rank will arrive: a later snapshot would show it"),
    Rule("RP", "cannot_tell", lambda k, p: any(rank.paused for rank in k.alive),
         "a tracer (a profiler, a debugger) held a rank while it was read",
         "a rank that a tracer holds does not move, healthy or not", ("detach", "second_snapshot"),
         unknown="whether the rank moves by itself: take snapshots when no tracer holds it"),
    Rule("health_check", "cannot_tell", lambda k, p: _health_failed(k) and (_serving(k, p) or _idle(k, p)),
         "the ranks look healthy, and the server's own health check failed",
         "requests do not get through: the tokenizer manager, the detokenizer or the way between them",
         ("more_snapshots",),
         unknown="which process does not answer: the stacks of the ranks do not show it"),
    Rule("helper_stuck", "cannot_tell", lambda k, p: bool(k.held_up) and (_serving(k, p) or _idle(k, p)),
         "the ranks look healthy, and a process of the server, not a rank, is at one place of its own work "
         "in both snapshots", "requests do not get through while it is there", ("native", "more_snapshots"),
         unknown="whether that process comes out of it: a later snapshot would show it"),
    Rule("R15", "serving", _serving, "all ranks are in their event loops and work at batches",
         "it serves", ("ask_health",)),
    Rule("R15", "idle", _idle, "all ranks are in their event loops and wait for requests",
         "it is healthy and has nothing to do; the broadcast of an empty list of requests is not a hang",
         ("ask_health",)),
    # Not enough was seen to compare the ranks.
    Rule("R1", "hung", lambda k, p: not k.complete and _asleep(k, p),
         "every rank sleeps in both snapshots, without CPU time, I/O or a compiler, during its start-up",
         "a wait on the host that does not end; without stacks the ranks cannot be distinguished",
         ("soft_watchdog", "see_all"),
         unknown="which rank is behind, and in what the ranks wait: their stacks are missing"),
    Rule("R1", "cannot_tell", lambda k, p: bool(k.not_collected) and bool(k.alive),
         "not all ranks were collected",
         "the rank that all wait for may be one of those", ("collect_rest",),
         unknown="the ranks that were not collected may be the cause"),
    Rule("R1", "cannot_tell", lambda k, p: bool(k.alive) and not k.complete,
         "the stack of at least one rank is missing", "the rank that all wait for may be that one",
         ("see_all", "soft_watchdog"), unknown="a rank without a stack may be the cause"),
    Rule("R1", "cannot_tell", lambda k, p: bool(k.alive) and not k.twice,
         "there is only one snapshot", "one snapshot cannot distinguish a hung rank from a slow one",
         ("second_snapshot",), unknown="a second snapshot is missing"),
    # All are in two snapshots and do not move: where they are gives the cause.
    Rule("RF", "hung", lambda k, p: _frozen(k) and bool(_injected(k)),
         "the ranks do not move, and a test switch of SGLang that makes it sleep is set",
         "the launch asks for the sleep", ("no_injection",)),
    Rule("gpu_computes", "slow", lambda k, p: _frozen(k) and bool(_computing(k)) and not _as_under_load(k, p),
         "a rank waits for its GPU, and that GPU computes (utilisation and power)",
         "a kernel takes its time, and the others wait for that rank: slow, not hung", ("wait",),
         unknown="whether the kernel ends: a later snapshot would show it"),
    Rule("outside_group", "hung", lambda k, p: _frozen(k) and _alike(k) and _has(k, _OUTSIDE),
         "all ranks wait in a process group with a process outside this server",
         "the other side, a trainer for example, has not come, or the address, port or world size differs",
         ("ask_trainer",), unknown="what the process outside does: it is not in the evidence"),
    Rule("loop_sync", "cannot_tell", lambda k, p: _frozen(k) and _in_loop_collective(k) and _alike(k)
         and _may_turn(k),
         "all ranks are in the synchronisation that their event loops run in each turn, and use CPU time",
         "a server without requests is there for most of its time; a hung one stays there",
         ("more_snapshots",), unknown="whether the loops turn: more snapshots would show it"),
    Rule("loop_collective", "hung", lambda k, p: _frozen(k) and _in_loop_collective(k) and _alike(k),
         "all ranks wait in one collective below their event loops, outside of a batch",
         "the collective does not end: a rank of its group that is not here, or what it runs on",
         ("dp_attention_off", "native", "soft_watchdog"),
         unknown="why it does not end: all ranks are at one place"),
    Rule("loop_held", "hung", lambda k, p: _frozen(k) and all(r.in_loop for r in k.alive)
         and _some(k, "IDLE") and not _all(k, "IDLE"),
         "ranks wait in the receive of the event loop for one that has not come back to it",
         "that rank is held up by its own work in the loop",
         ("file_system", "overlap_off", "native"), accuses=True),
    Rule("loop_polls", "cannot_tell", lambda k, p: _polls(k),
         "a rank uses CPU time at one place of its event loop in both snapshots",
         "it may poll a device that does not answer, or compute for long: CPU time is no progress",
         ("native", "more_snapshots"), unknown="in what it is below Python: native frames would show it"),
    Rule("R3", "hung", lambda k, p: _frozen(k) and _all(k, "LOCK"),
         "all ranks wait for a file lock, and there is no compiler",
         "the lock's owner is gone or outside this server: a build was killed, and its lock file stayed",
         ("fresh_cache",), unknown="who holds the lock: look for a live holder before deleting the file"),
    Rule("R3", "hung", lambda k, p: _frozen(k) and _some(k, "LOCK"),
         "some ranks wait for a file lock, the others for them, and there is no compiler",
         "a lock whose holder is gone, or is one of the ranks", ("fresh_cache", "soft_watchdog"),
         accuses=True, unknown="who holds the lock: the evidence does not show it"),
    Rule("R4", "hung", _bootstrap,
         "the ranks are in NCCL's bootstrap or torch's store, and the weights are not loaded",
         "the process groups do not come up: P2P, the network interface, or a rank that joined late",
         ("nccl_debug", "p2p_off"),
         unknown="which rank's link fails: the ranks are in different steps of one handshake"),
    Rule("R4", "hung", lambda k, p: _frozen(k) and p in ("dist_init", "spawn") and _some(k, *_JOINING),
         "ranks wait to join their process groups, and one has not reached that point",
         "the rank that did not reach it is held up by its own work",
         ("nccl_debug", "soft_watchdog"), accuses=True),
    Rule("R5", "hung", lambda k, p: _frozen(k) and p == "load_barrier",
         "the ranks wait in the barrier after loading, and a rank still loads without getting on",
         "the storage or the loader of one rank is stuck; the barrier gives up after 480 s",
         ("local_weights", "soft_watchdog"), accuses=True),
    Rule("R5", "hung", lambda k, p: _frozen(k) and p == "weights" and _some(k, "IO"),
         "a rank reads weights, and receives no data",
         "the storage does not answer: a network file system, a disk",
         ("local_weights", "soft_watchdog"), accuses=True),
    Rule("R8", "hung", lambda k, p: _frozen(k) and (_has(k, _REGISTRATION) or _differing(k)),
         "the ranks are in the registration of graph buffers for the custom all-reduce",
         "a rank left its capture by an exception that the registration hides, or the ranks captured "
         "different numbers of buffers", ("custom_all_reduce_off", "decode_graphs_off"), accuses=True),
    Rule("R7", "hung", lambda k, p: _frozen(k) and _has(k, _AUTOTUNE),
         "the ranks are in different steps of the kernel autotuner",
         "they do not tune the same tactics (tuning caches that only some ranks have), and the collectives "
         "do not match", ("autotune_off", "symm_mem_off", "soft_watchdog"), accuses=True),
    Rule("R11", "hung", lambda k, p: _frozen(k) and _some(k, "CAPTURE", "MODULE_LOAD"),
         "a rank is in the driver, in a capture or loading a kernel",
         "a lock of the driver: a kernel is loaded lazily inside a capture",
         ("eager_modules", "decode_graphs_off"), accuses=True),
    Rule("RL", "cannot_tell", _as_under_load,
         "all ranks wait for their GPUs in a batch, as they do most of the time under load",
         "two equal snapshots do not distinguish a hang from a busy server", ("more_snapshots",),
         unknown="whether batches end: the log's lines of them, or more snapshots, would show it"),
    Rule("R9", "hung", lambda k, p: _frozen(k) and _all(k, "CUDA_SYNC", "NCCL_LAUNCH"),
         "all ranks wait for their GPU",
         "a collective's kernel is resident on each GPU and spins: one rank never launched its part, or a "
         "link fails", ("custom_all_reduce_off", "device_coredump"), accuses=True,
         unknown="which rank did not launch: NCCL's own counts (RAS) would show it"),
    Rule("R10", "hung", lambda k, p: _frozen(k) and _one_gpu_busy(k) and _some(k, "HOST_COLL"),
         "one rank waits for its GPU, which is busy; the others wait for that rank",
         "a kernel of that rank does not end: its GPU, or what it computes", ("other_gpu", "soft_watchdog"),
         accuses=True, unknown="which kernel: a CUDA core dump names it"),
    Rule("R14", "hung", lambda k, p: _frozen(k) and p == "graph_draft",
         "the ranks are in the capture of the draft's graphs", "the ranks left lock-step in the draft",
         ("no_speculation", "decode_graphs_off"), accuses=True),
    Rule("R6", "hung", lambda k, p: _frozen(k) and p in GRAPHS and _some(k, "JIT"),
         "ranks wait at a shape of the capture, and one compiles without a live compiler",
         "a kernel's compilation on one rank does not end", ("precompile", "decode_graphs_off"),
         accuses=True),
    Rule("R6", "hung", lambda k, p: _frozen(k) and p == "graph_prefill",
         "the ranks are in the capture of prefill graphs", "the ranks diverged before the collective",
         ("prefill_graphs_off", "soft_watchdog"), accuses=True),
    Rule("R6", "hung", lambda k, p: _frozen(k) and p == "graph_decode",
         "the ranks are in the capture of decode graphs", "the ranks diverged before the collective",
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
         "ranks wait in a collective, and one has not reached it",
         "the rank that did not reach it is held up by its own work, its GPU or its host",
         ("other_gpu", "native", "soft_watchdog"), accuses=True,
         unknown="whether it is the rank or its GPU: another GPU would show it"),
    Rule("R18", "hung", lambda k, p: _frozen(k) and not _all(k, "IDLE"),
         "every rank is at the same place in both snapshots",
         "what it waits for is not in its Python frames",
         ("native", "soft_watchdog"), accuses=True),
    Rule("R1", "cannot_tell", lambda k, p: _log_alone(k),
         "the log is the only evidence, and it reports no end",
         "a log shows the phase, not which rank is behind", ("soft_watchdog",),
         unknown="the stacks of all ranks in two snapshots are missing"),
    Rule("R16", "cannot_tell", lambda k, p: True, "no rule applies", "the evidence does not decide",
         ("soft_watchdog", "second_snapshot"),
         unknown="two more snapshots with the stacks of all ranks may decide it"),
)  # fmt: skip


def _injected(group: RankGroup) -> str:
    """Return the variable of SGLang's own fault injection that is set, or ""."""
    found = [name for name in group.environment if name.startswith("SGLANG_TEST_STUCK_")]
    return found[0] if found else ""


def _differing(group: RankGroup) -> bool:
    """Whether ranks that wait together registered different numbers of graph buffers."""
    return len(set(group.story.addresses.values())) > 1


def asked_to_end(group: RankGroup) -> bool:
    """Whether the server was asked to end, and nothing but that ended it."""
    crashes = group.story.errors_of("child_crashed") + group.story.errors_of("child_failed")
    codes = [*group.exits.values(), *(int(one.event.facts["exit_code"]) for one in crashes)]
    hard = ("heartbeat", "fatal", "out_of_memory", "exception", "rank_died", "collective_timeout")
    return (
        group.story.stopped
        and all(code in ASKED_EXITS for code in codes)
        and not any(group.story.errors_of(code) for code in hard)
    )


def rule_for(group: RankGroup, phase: Phase) -> Rule:
    """Return the first rule that holds."""
    return next(rule for rule in RULES if rule.when(group, phase))


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """What one group of ranks came to: the rule that holds, and whom it names."""

    group: RankGroup
    phase: Phase
    rule: Rule
    odd: tuple[GroupRank, ...]
    confidence: Confidence
