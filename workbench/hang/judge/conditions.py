"""The conditions of which the rules of the table are made: each is one question about a group of ranks."""

from __future__ import annotations

from workbench.hang.judge import votes, waits
from workbench.hang.judge.gpu_load import load
from workbench.hang.judge.rank_group import BUSY_GPU, EMPTY_GPU_MIB, GroupRank, RankGroup
from workbench.hang.records import Phase, WaitClass

GRAPHS: frozenset[str] = frozenset({"graph_prefill", "graph_decode", "graph_draft"})
_HOST: frozenset[WaitClass] = frozenset({"HOST_COLL", "STORE", "NCCL_INIT"})
_COLLECTIVE = _HOST | waits.ON_DEVICE
JOINING: tuple[WaitClass, ...] = ("NCCL_INIT", "STORE", "HOST_COLL")
# Exit codes of a server that was asked to end: it ends its ranks by SIGTERM or SIGQUIT.
ASKED_EXITS = frozenset({0, -15, -3, 143, 131})
# CPU seconds a second of a rank that launches no kernels; a utilisation that no load has; and the power below
# which a GPU of the size of an A100 or more spins (measured on H200: idle 118 W, spinning 122 to 150 W).
_RESTS = 0.1
_UNUSED_GPU = 20.0
# CPU seconds a second of a rank whose event loop turns (measured 0.5 to 0.9; threads next to a loop that
# waits use up to 0.11).
_TURNS = 0.3
# Seconds after which a disk that has given nothing is one that does not answer.
_DISK_ANSWERS = 60.0
# Collectives of the event loop itself: a healthy server of several ranks is there for most of an idle turn.
_LOOP_SYNC = ("prepare_mlp_sync_batch",)
OUTSIDE = (
    "init_weights_update_group", "init_custom_process_group", "init_weights_send_group",
    "update_weights_from_distributed",
)  # fmt: skip
REGISTRATION = ("register_graph_buffers", "_register_graph_inputs", "register_graph_inputs")
AUTOTUNE = ("autotune", "tactic", "_profile_single_kernel", "choose_one", "AutoTuner")


def all_in(group: RankGroup, *classes: WaitClass) -> bool:
    """Whether there are ranks, and all of them wait in one of these classes."""
    return bool(group.alive) and len(group.of(*classes)) == len(group.alive)


def some_in(group: RankGroup, *classes: WaitClass) -> bool:
    """Whether a rank waits in one of these classes."""
    return bool(group.of(*classes))


def any_inside(group: RankGroup, words: tuple[str, ...]) -> bool:
    """Whether a rank is inside a function with one of these words in its name."""
    return any(word in name for rank in group.alive for name in rank.place for word in words)


def working_ranks(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that get on, other than in circles in an event loop."""
    return tuple(
        r for r in group.alive if r.moving and not waits.in_receive(r.frames) and not _turns(r)
    )


def _turns(rank: GroupRank) -> bool:
    """Whether a rank's event loop got on outside of a batch, and one snapshot has it in the receive."""
    receives = waits.in_receive(rank.frames) or waits.in_receive(rank.before)
    return rank.turns and receives and not waits.in_batch(rank.frames)


def server_died(group: RankGroup) -> bool:
    """Whether the server is gone, by a fault that the log or an exit code shows."""
    codes = [*group.exits.values()]
    return group.over and (group.story.fatal or any(code not in ASKED_EXITS for code in codes))


def stopped_ranks(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that a signal stopped."""
    return tuple(rank for rank in group.alive if rank.by_signal)


def held_ranks(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that a debugger holds in both snapshots."""
    return tuple(rank for rank in group.alive if rank.held)


def holds_others(group: RankGroup) -> bool:
    """Say whether all others wait for the stopped and held ranks, in two snapshots.

    In the receive of its event loop a rank waits for others if it uses no CPU time there (measured: 0.02 of a
    core for the process; a loop that turns, 0.5 to 0.9) and does not sleep on purpose.
    """
    rest = [rank for rank in group.alive if not rank.stopped]
    held = (waits.FOR_OTHERS | waits.ON_DEVICE) - {"IDLE"}
    in_wait = bool(rest) and all(rank.wait in held or _waits_in_receive(rank) for rank in rest)
    return in_wait and group.complete and group.frozen


def _waits_in_receive(rank: GroupRank) -> bool:
    rests = rank.cpu is not None and rank.cpu <= _RESTS
    on_purpose = any("maybe_sleep" in frame.function for frame in rank.frames)
    return rank.wait == "IDLE" and bool(rank.same_stack) and rests and not on_purpose


def hard_end(group: RankGroup) -> bool:
    """Whether something else than a watchdog ended the server, by its log."""
    codes = ("exception", "out_of_memory", "fatal", "cuda_error", "rank_died", "heartbeat")
    return any(group.story.errors_of(code) for code in codes)


def reports(group: RankGroup, code: str) -> bool:
    """Whether the log has an error of this kind."""
    return bool(group.story.errors_of(code))


def timed_out(group: RankGroup) -> bool:
    """Whether torch's watchdog gave up a collective, and no rank is alive."""
    return not group.alive and reports(group, "collective_timeout")


def health_failed(group: RankGroup) -> bool:
    """Whether the server's health check failed, and no batch ended after it."""
    failed = group.story.errors_of("health_failed")
    last = max((one.line.number for one in failed), default=0)
    return bool(failed) and not any(one.line.number > last for one in group.story.batches)


def ends_by_log(group: RankGroup) -> bool:
    """Whether the log said before the last snapshot that a process failed and the server ends for it.

    Not where a batch ended after that line, or where the log's clock cannot be compared.
    """
    kinds = ("child_crashed", "child_failed", "child_signal")
    told = [one for code in kinds for one in group.story.errors_of(code)]
    last = max((one.line.number for one in group.story.batches), default=0)
    return any(
        one.zoned and one.utc is not None and not group.later(one) and one.line.number > last
        for one in told
    )


def past_start(phase: Phase) -> bool:
    """Whether the start-up is done."""
    return phase in ("ready", "init_done")


def log_alone(group: RankGroup) -> bool:
    """Whether the log is the only evidence."""
    return not (group.alive or group.loose) and bool(group.story.last_line or group.story.last_at)


def gated(group: RankGroup, phase: Phase) -> bool:
    """Whether the ranks wait for the activation of a gated launch."""
    inside = any_inside(group, ("_wait_until_activated",))
    return inside or (group.story.gated and phase in ("dist_init", "unknown") and not group.missing)


def serving(group: RankGroup, phase: Phase) -> bool:
    """Whether all ranks are in their event loops and work at batches that end."""
    in_loop = [rank for rank in group.alive if waits.in_event_loop(rank.frames)]
    if phase != "ready" or len(in_loop) < len(group.alive) or not group.complete:
        return False
    batch = [
        rank for rank in group.alive if waits.in_batch(rank.frames) or waits.in_batch(rank.before)
    ]
    if not group.twice or any(rank.compilers for rank in group.alive):
        return False
    if (
        not batch
    ):  # between two batches: the log has one from between the looks, and every loop turns
        return group.progressed and all(rank.turns for rank in group.alive)
    # A batch of these ranks ended, or every rank that works at one is elsewhere in it.
    return group.progressed or all(rank.turns for rank in batch)


def as_under_load(group: RankGroup, phase: Phase) -> bool:
    """Whether two equal snapshots may be chance: under load a server waits for its GPUs most of the time.

    Not where a GPU does nothing, where the big ones spin without power, where a rank's CPU rests, or where
    the log fell silent.
    """
    in_batch = all(waits.in_batch(rank.frames) for rank in group.alive)
    if not (phase == "ready" and frozen(group) and in_batch and all_in(group, *waits.ON_DEVICE)):
        return False
    gpus = [rank.gpu for rank in group.alive if rank.gpu is not None] or list(group.gpus)
    rests = any(rank.cpu is not None and rank.cpu <= _RESTS for rank in group.alive)
    unused = any(gpu.utilisation is not None and gpu.utilisation < _UNUSED_GPU for gpu in gpus)
    spins = any(load(gpu) == "spins" for gpu in gpus)
    return not (rests or unused or spins or group.silent or group.behind)


def computing_ranks(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that wait for a GPU that computes: utilisation and power say so together."""
    device = group.of(*waits.ON_DEVICE)
    return tuple(r for r in device if r.gpu is not None and load(r.gpu) == "computes")


def kernel_waits(group: RankGroup) -> bool:
    """Whether a thread of a rank waits in the kernel, as for a disk or file system, and not yet for long.

    A slow disk and one that does not answer look alike at first: the counter of bytes grows when a read is
    asked for, not when it is answered (measured: 100 KB/s, and no byte counted in 28 s).
    """
    waiting = [
        r for r in group.alive if r.process is not None and r.process.threads_by_state.get("D")
    ]
    return bool(waiting) and group.interval < _DISK_ANSWERS


def unread_waits(group: RankGroup) -> bool:
    """Whether ranks wait for their GPUs, and nothing shows whether those compute or stand still.

    A long kernel looks like one that never ends: the same stack, the CPU at rest or in a spin. Evidence of a
    stop is a GPU that rests or spins, a rank that stands in a wait of its own on the host, a count of
    collectives that is behind, a log that fell silent, or a watchdog that gave up.
    """
    device = group.of(*waits.ON_DEVICE)
    elsewhere = len(device) + len(group.of(*waits.FOR_OTHERS)) < len(group.alive)
    told = group.behind or group.behind_by_flight or group.silent or votes.given_up(group)
    return _on_unread_gpus(group) and not (elsewhere or told)


def _on_unread_gpus(group: RankGroup) -> bool:
    """Whether ranks wait for their GPUs, and it is known of none of these what it does."""
    device = group.of(*waits.ON_DEVICE)
    known = any(rank.gpu is not None and load(rank.gpu) is not None for rank in device)
    return bool(device) and not known


def all_compute(group: RankGroup) -> bool:
    """Whether the GPU of every rank computes, by utilisation and power."""
    return all(r.gpu is not None and load(r.gpu) == "computes" for r in group.alive)


def alike(group: RankGroup) -> bool:
    """Whether all ranks are at one place."""
    return len({(rank.wait, rank.place) for rank in group.alive}) == 1


def in_loop_collective(group: RankGroup) -> bool:
    """Whether all ranks wait for each other below their event loops, outside of a batch."""
    return all(
        rank.in_loop and not waits.in_batch(rank.frames) and rank.wait in _COLLECTIVE
        for rank in group.alive
    )


def may_turn(group: RankGroup) -> bool:
    """Whether ranks that are alike in a collective of every turn may be turning: CPU time, or none known."""
    cpu = [rank.cpu for rank in group.alive]
    return any_inside(group, _LOOP_SYNC) and any(one is None or one >= _TURNS for one in cpu)


def polls(group: RankGroup) -> bool:
    """Whether a rank uses CPU time at one place of its event loop, and nothing shows that it gets on."""
    still = (r for r in group.alive if r.in_loop and r.same_stack and r.moving is None)
    return group.complete and group.twice and any(still)


def orphaned(group: RankGroup) -> bool:
    """Whether what launched the ranks is gone: process 1 is their parent, and no main process is there."""
    parents = {rank.process.parent if rank.process else None for rank in group.alive}
    return group.mute and parents == {1}


def idle(group: RankGroup, phase: Phase) -> bool:
    """All ranks in the receive of their event loops, and something says that each loop turns."""
    if not (group.complete and group.twice and group.alive):
        return False
    if not all(waits.in_receive(rank.frames) or _turns(rank) for rank in group.alive):
        return False
    sleeping = any_inside(group, ("maybe_sleep",))
    return sleeping or all(rank.turns or (rank.cpu or 0.0) >= _TURNS for rank in group.alive)


def one_gpu_busy(group: RankGroup) -> bool:
    """Whether the one rank that waits for its GPU has the only busy one: else all are in one kernel."""
    odd = group.of("CUDA_SYNC")
    busy = [r for r in group.alive if r.gpu is not None and (r.gpu.utilisation or 0.0) >= BUSY_GPU]
    return len(odd) == 1 and busy == list(odd)


def asleep(group: RankGroup, phase: Phase) -> bool:
    """Every rank asleep in two snapshots, by /proc alone, in a phase of the start-up."""
    starting = phase not in ("ready", "unknown", "init_done")
    whole = len(group.alive) == group.expected and not group.unnamed
    sleeps = all(rank.cpu is not None and rank.cpu <= _RESTS for rank in group.alive)
    return starting and whole and group.frozen and sleeps and not _on_unread_gpus(group)


def frozen(group: RankGroup) -> bool:
    """Whether all ranks have stacks in two snapshots and none of them moves."""
    return group.complete and group.frozen


def in_bootstrap(group: RankGroup, phase: Phase) -> bool:
    """Whether the ranks join their process groups, and the weights are not loaded."""
    small = all((gpu.memory_used_mib or 0.0) < EMPTY_GPU_MIB for gpu in group.gpus)
    joining = (
        len(group.of("NCCL_INIT", "STORE")) > 0 and len(group.of("RUNNING", "LOCK", "JIT")) == 0
    )
    return frozen(group) and phase in ("dist_init", "spawn", "unknown") and joining and small


def injected(group: RankGroup) -> str:
    """Return the variable of SGLang's own fault injection that is set, or ""."""
    found = [name for name in group.environment if name.startswith("SGLANG_TEST_STUCK_")]
    return found[0] if found else ""


def differing_buffers(group: RankGroup) -> bool:
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


def by_signal(group: RankGroup) -> bool:
    """Whether a rank is stopped for good, by a signal: it was seen at more than one moment."""
    return any(rank.halted == "stopped" for rank in group.alive)


def once_stopped(group: RankGroup) -> bool:
    """Whether no rank was seen stopped by a signal at more than one moment."""
    return not by_signal(group)


def helpers_seen_once(group: RankGroup) -> bool:
    """Whether each stopped process next to the ranks was seen stopped at one moment only."""
    return all(one.once for one in group.helpers if one.stopped)
