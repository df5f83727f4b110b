"""The classification of hangs, as a table: the first rule that holds is the verdict.

A row holds all that is said about its rule. The questions that it asks are in `conditions`, whom it may name
is in `apart`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from workbench.core.finding import Confidence
from workbench.hang.judge import conditions as c
from workbench.hang.judge import votes
from workbench.hang.judge.apart import (
    apart,
    apart_at_rest,
    behind_by_number,
    died_by_log,
    in_another_collective,
    silent_to_ras,
    stopped_alone,
)
from workbench.hang.judge.rank_group import GroupRank, RankGroup
from workbench.hang.records import Phase, State


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes
    ----------
    code
        Its name, in words: no two rows share one.
    state
        The verdict's state.
    when
        Whether it holds of a group of ranks in a phase.
    cause
        What the evidence means, in words that end a sentence.
    ladder
        The experiments to try, the first one that the launch has not taken.
    names
        Which ranks it names, or None where it accuses no rank.
    unknown
        What the rule leaves open.
    of
        Whether it is about the ranks or about the server's other processes.
    at_most
        The confidence of a verdict that does not rest on stacks in two snapshots.
    doubt
        What makes the verdict of this rule less sure, next to what makes every verdict so.
    explained
        Whether the evidence alone says what happened: an exception in the log is not read first.
    """

    code: str
    state: State
    when: Callable[[RankGroup, Phase], bool]
    evidence: str
    cause: str
    ladder: tuple[str, ...]
    names: Callable[[RankGroup], tuple[GroupRank, ...]] | None = None
    unknown: str = ""
    of: Literal["ranks", "helpers"] = "ranks"
    at_most: Confidence | None = None
    doubt: Callable[[RankGroup], bool] | None = None
    explained: bool = False


RULES: tuple[Rule, ...] = (
    # What is gone, stopped, or waits on purpose comes first: it needs no comparison of stacks.
    Rule("requested_shutdown", "cannot_tell", lambda k, p: k.over and c.asked_to_end(k),
         "the log ends with a requested shutdown (SIGTERM, SIGINT), and the processes are gone",
         "it was ended from outside; the log alone does not show whether it hung before",
         ("soft_watchdog",), unknown="what the ranks did before they were ended: there are no stacks"),
    Rule("sequence_numbers", "hung", lambda k, p: not k.alive and bool(votes.behind(k)),
         "collectives timed out, and by NCCL's sequence numbers a rank had launched fewer than the others",
         "the others waited for that rank: it is behind, which does not say that it is at fault",
         ("dist_debug",), names=behind_by_number,
         unknown="what held that rank up: there are no stacks from before the timeout", at_most="likely"),
    Rule("collective_timeout", "hung", lambda k, p: c.timed_out(k) and not c.hard_end(k),
         "collectives timed out", "ranks waited in a collective until torch's watchdog gave up",
         ("dist_debug",), unknown="which rank was behind: the sequence numbers do not show it"),
    Rule("watchdog", "hung", lambda k, p: bool(votes.given_up(k)) and not k.twice and not c.hard_end(k),
         "the engine's watchdog gave up: no batch ended for its whole time",
         "the ranks are, or were, in a batch that does not end",
         ("overlap_off", "custom_all_reduce_off", "soft_watchdog"), names=apart_at_rest,
         unknown="what the batch waited for: its stacks name the place, not the cause", at_most="likely"),
    Rule("heartbeat_abort", "crashed", lambda k, p: k.over and bool(k.story.errors_of("heartbeat")),
         "NCCL's heartbeat monitor aborted the ranks, and the processes are gone",
         "a rank's watchdog thread could not finish a CUDA or NCCL call, or could not get the GIL; this is "
         "the end of a hang, not its cause, and the first rank to print it is not necessarily the culprit",
         ("soft_watchdog",), unknown="which rank was behind: there are no stacks from before the abort"),
    Rule("deepep_timeout", "crashed", lambda k, p: not k.alive and c.reports(k, "deepep_timeout"),
         "DeepEP gave up waiting for another rank",
         "the rank that reports it waited for one that did not come in time, for example because it still "
         "compiled a kernel", ("precompile", "why_dead", "soft_watchdog"),
         unknown="which rank was late: the one that reports the timeout is not the one at fault",
         explained=True),
    Rule("port_taken", "crashed", lambda k, p: not k.alive and c.reports(k, "port_taken"),
         "the HTTP server could not bind its port: the address is already in use",
         "another process has the port, an earlier launch of this server for example", ("free_port",),
         explained=True),
    Rule("server_died", "crashed", lambda k, p: c.server_died(k) or (k.over and bool(k.dead)),
         "all ranks have exited, and the log or an exit code says why",
         "the server has died", ("why_dead", "soft_watchdog"), names=died_by_log),
    Rule("dead_rank", "dead_rank", lambda k, p: bool(k.missing and k.alive),
         "a rank of the group is dead or absent, and others are alive",
         "the others wait for a missing rank; where they wait is a consequence",
         ("why_dead", "soft_watchdog")),
    Rule("awaited_stopped_rank", "hung", lambda k, p: bool(c.stopped_ranks(k)) and c.holds_others(k),
         "a rank is stopped (state T) and all others wait for it",
         "a stopped rank never reaches the collective in which the others wait",
         ("continue_rank", "decode_graphs_off", "soft_watchdog"), names=apart,
         unknown="who stopped it: SIGSTOP, a debugger and a frozen container look the same", explained=True),
    Rule("stopped_rank", "stopped", lambda k, p: bool(c.stopped_ranks(k)), "a rank is stopped (state T)",
         "it was stopped from outside: by SIGSTOP, a debugger or a frozen container",
         ("continue_rank", "soft_watchdog"), names=stopped_alone, doubt=c.once_stopped),
    Rule("awaited_held_rank", "hung", lambda k, p: bool(c.held_ranks(k)) and c.holds_others(k),
         "a debugger holds a rank in both snapshots, and all others wait for it",
         "a rank that is held never reaches the collective in which the others wait",
         ("detach", "decode_graphs_off", "soft_watchdog"), names=apart,
         unknown="whether the rank was hung before the debugger came", explained=True),
    Rule("held_rank", "stopped", lambda k, p: bool(c.held_ranks(k)),
         "a debugger holds a rank in both snapshots", "the rank does not run while it is held",
         ("detach", "soft_watchdog"), names=stopped_alone, doubt=c.once_stopped),
    Rule("stopped_helper", "stopped", lambda k, p: c.past_start(p) and any(h.stopped for h in k.helpers),
         "a process of the server, not a rank, is stopped (state T)",
         "its ranks may be healthy, but requests do not get through", ("continue_rank",),
         of="helpers", doubt=c.helpers_seen_once),
    Rule("ended_helper", "crashed", lambda k, p: c.past_start(p) and bool(k.helpers),
         "a process of the server, not a rank, has ended, and its ranks are alive",
         "its ranks may be healthy, but requests do not get through", ("why_dead", "soft_watchdog"),
         of="helpers"),
    Rule("server_ends", "crashed",
         lambda k, p: bool(k.alive) and c.past_start(p) and c.ends_by_log(k),
         "a process of the server failed, and the server ends for that, by its log",
         "its ranks are alive for a few seconds more, and requests do not get through",
         ("why_dead", "soft_watchdog")),
    Rule("gated_launch", "slow", c.gated, "the ranks wait for the activation of a gated launch",
         "it waits on purpose", ("activate",)),
    Rule("working_rank", "slow", lambda k, p: bool(c.working_ranks(k)) and not c.serving(k, p),
         "a rank makes progress: its stack, CPU time or I/O moves, or a compiler of its own runs",
         "it works, and the others wait for it: slow, not hung",
         ("wait",), unknown="whether the working rank will arrive: a later snapshot would show it"),
    Rule("traced_rank", "cannot_tell", lambda k, p: any(rank.paused for rank in k.alive),
         "a tracer (a profiler, a debugger) held a rank while it was read",
         "a rank that a tracer holds does not move, healthy or not", ("detach", "second_snapshot"),
         unknown="whether the rank moves by itself: take snapshots when no tracer holds it"),
    Rule("late_health", "slow", lambda k, p: c.health_failed(k) and c.serving(k, p) and c.all_compute(k),
         "all GPUs compute at batches, and the server's own health check failed meanwhile",
         "a batch takes longer than the health check waits, a long prefill for example: slow, not hung",
         ("wait",), unknown="whether answers get through: the health check did not see one in its time"),
    Rule("health_check", "cannot_tell", lambda k, p: c.health_failed(k) and (c.serving(k, p) or c.idle(k, p)),
         "the ranks look healthy, and the server's own health check failed",
         "requests do not get through: the tokenizer manager, the detokenizer or the way between them",
         ("more_snapshots",),
         unknown="which process does not answer: the stacks of the ranks do not show it"),
    Rule("orphans", "cannot_tell", lambda k, p: c.orphaned(k) and (c.serving(k, p) or c.idle(k, p)),
         "the ranks look healthy, and their parent is process 1: the server's main process is not there",
         "the main process has ended, and nothing answers requests", ("why_dead",),
         unknown="whether the main process is process 1 itself, as in a container"),
    Rule("stuck_helper", "cannot_tell", lambda k, p: bool(k.held_up) and (c.serving(k, p) or c.idle(k, p)),
         "the ranks look healthy, and a process of the server, not a rank, is at one place of its own work "
         "in both snapshots", "requests do not get through while it is there", ("native", "more_snapshots"),
         unknown="whether that process comes out of it: a later snapshot would show it"),
    Rule("serving", "serving", c.serving, "all ranks are in their event loops and work at batches",
         "it serves", ("ask_health",)),
    Rule("idle", "idle", c.idle, "all ranks are in their event loops and wait for requests",
         "it is healthy and has nothing to do; the broadcast of an empty list of requests is not a hang",
         ("ask_health",)),
    # Not enough was seen to compare the ranks.
    Rule("kernel_wait", "cannot_tell",
         lambda k, p: c.kernel_waits(k) and (not k.complete or c.some_in(k, "IO")),
         "a thread of a rank waits in the kernel and cannot be interrupted (state D)",
         "storage that is slow, and storage that does not answer, look alike for a minute",
         ("look_at_disk", "wait"),
         unknown="whether the storage gives anything: the counters of the disk would show it"),
    Rule("asleep_at_start", "hung", lambda k, p: not k.complete and c.asleep(k, p),
         "every rank sleeps in both snapshots, without CPU time, I/O or a compiler, during its start-up",
         "a wait on the host that does not end; without stacks the ranks cannot be distinguished",
         ("soft_watchdog", "see_all"),
         unknown="which rank is behind, and in what the ranks wait: their stacks are missing"),
    Rule("ranks_not_collected", "cannot_tell", lambda k, p: bool(k.not_collected) and bool(k.alive),
         "not all ranks were collected",
         "the rank that all wait for may be one of those", ("collect_rest",),
         unknown="the ranks that were not collected may be the cause"),
    Rule("missing_stack", "cannot_tell", lambda k, p: bool(k.alive) and not k.complete,
         "the stack of at least one rank is missing", "the rank that all wait for may be that one",
         ("see_all", "soft_watchdog"), unknown="a rank without a stack may be the cause"),
    Rule("one_snapshot", "cannot_tell", lambda k, p: bool(k.alive) and not k.twice,
         "there is only one snapshot", "one snapshot cannot distinguish a hung rank from a slow one",
         ("second_snapshot",), unknown="a second snapshot is missing"),
    # All are in two snapshots and do not move: where they are gives the cause.
    Rule("test_switch", "hung", lambda k, p: c.frozen(k) and bool(c.injected(k)),
         "the ranks do not move, and a test switch of SGLang that makes it sleep is set",
         "the launch asks for the sleep", ("no_injection",), explained=True),
    Rule("gpu_computes", "slow",
         lambda k, p: c.frozen(k) and bool(c.computing_ranks(k)) and not c.as_under_load(k, p),
         "a rank waits for its GPU, and that GPU computes (utilisation and power)",
         "a kernel takes its time, and the others wait for that rank: slow, not hung", ("wait",),
         unknown="whether the kernel ends: a later snapshot would show it"),
    Rule("unread_gpu", "cannot_tell",
         lambda k, p: c.frozen(k) and c.unread_waits(k) and not c.as_under_load(k, p),
         "a rank waits for its GPU, and what that GPU does is not known (utilisation and power together)",
         "a long kernel and one that never ends look alike without both", ("gpu_power", "more_snapshots"),
         unknown="whether that GPU computes: its utilisation and power would show it"),
    Rule("outside_group", "hung", lambda k, p: c.frozen(k) and c.alike(k) and c.any_inside(k, c.OUTSIDE),
         "all ranks wait in a process group with a process outside this server",
         "the other side, a trainer for example, has not come, or the address, port or world size differs",
         ("ask_trainer",), unknown="what the process outside does: it is not in the evidence"),
    Rule("loop_sync", "cannot_tell", lambda k, p: c.frozen(k) and c.in_loop_collective(k) and c.alike(k)
         and c.may_turn(k),
         "all ranks are in the synchronisation that their event loops run in each turn, and use CPU time",
         "a server without requests is there for most of its time; a hung one stays there",
         ("more_snapshots",), unknown="whether the loops turn: more snapshots would show it"),
    Rule("loop_collective", "hung", lambda k, p: c.frozen(k) and c.in_loop_collective(k) and c.alike(k),
         "all ranks wait in one collective below their event loops, outside of a batch",
         "the collective does not end: a rank of its group that is not here, or what it runs on",
         ("dp_attention_off", "native", "soft_watchdog"),
         unknown="why it does not end: all ranks are at one place"),
    Rule("loop_held", "hung", lambda k, p: c.frozen(k) and all(r.in_loop for r in k.alive)
         and c.some_in(k, "IDLE") and not c.all_in(k, "IDLE"),
         "ranks wait in the receive of the event loop for one that has not come back to it",
         "that rank is held up by its own work in the loop",
         ("no_hooks", "file_system", "overlap_off", "native"), names=apart),
    Rule("loop_polls", "cannot_tell", lambda k, p: c.polls(k),
         "a rank uses CPU time at one place of its event loop in both snapshots",
         "it may poll a device that does not answer, or compute for long: CPU time is no progress",
         ("native", "more_snapshots"), unknown="in what it is below Python: native frames would show it"),
    Rule("stale_lock", "hung", lambda k, p: c.frozen(k) and c.all_in(k, "LOCK"),
         "all ranks wait for a file lock, and there is no compiler",
         "the lock's owner is gone or outside this server: a build was killed, and its lock file stayed",
         ("fresh_cache",), unknown="who holds the lock: look for a live holder before deleting the file"),
    Rule("lock_wait", "hung", lambda k, p: c.frozen(k) and c.some_in(k, "LOCK"),
         "some ranks wait for a file lock, the others for them, and there is no compiler",
         "a lock whose holder is gone, or is one of the ranks", ("fresh_cache", "soft_watchdog"),
         names=apart, unknown="who holds the lock: the evidence does not show it"),
    Rule("bootstrap", "hung", c.in_bootstrap,
         "the ranks are in NCCL's bootstrap or torch's store, and the weights are not loaded",
         "the process groups do not come up: P2P, the network interface, or a rank that joined late",
         ("nccl_debug", "p2p_off"),
         unknown="which rank's link fails: the ranks are in different steps of one handshake"),
    Rule("late_joiner", "hung",
         lambda k, p: c.frozen(k) and p in ("dist_init", "spawn") and c.some_in(k, *c.JOINING),
         "ranks wait to join their process groups, and one has not reached that point",
         "the rank that did not reach it is held up by its own work",
         ("nccl_debug", "soft_watchdog"), names=apart),
    Rule("load_barrier", "hung", lambda k, p: c.frozen(k) and p == "load_barrier",
         "the ranks wait in the barrier after loading, and a rank still loads without getting on",
         "the storage or the loader of one rank is stuck; the barrier gives up after 480 s",
         ("local_weights", "soft_watchdog"), names=apart),
    Rule("silent_storage", "hung", lambda k, p: c.frozen(k) and p == "weights" and c.some_in(k, "IO"),
         "a rank reads weights, and receives no data",
         "the storage does not answer: a network file system, a disk",
         ("local_weights", "soft_watchdog"), names=apart),
    Rule("buffer_registration", "hung",
         lambda k, p: c.frozen(k) and (c.any_inside(k, c.REGISTRATION) or c.differing_buffers(k)),
         "a rank is in the registration of graph buffers for the custom all-reduce",
         "a rank left its capture by an exception that the registration hides, or the ranks captured "
         "different numbers of buffers", ("custom_all_reduce_off", "decode_graphs_off"), names=apart),
    Rule("autotuner", "hung", lambda k, p: c.frozen(k) and c.any_inside(k, c.AUTOTUNE),
         "the ranks are in different steps of the kernel autotuner",
         "they do not tune the same tactics (tuning caches that only some ranks have), and the collectives "
         "do not match", ("autotune_off", "symm_mem_off", "soft_watchdog"), names=apart),
    Rule("driver_lock", "hung", lambda k, p: c.frozen(k) and c.some_in(k, "CAPTURE", "MODULE_LOAD"),
         "a rank is in the driver, in a capture or loading a kernel",
         "a lock of the driver: a kernel is loaded lazily inside a capture",
         ("eager_modules", "decode_graphs_off"), names=apart),
    Rule("load_or_hang", "cannot_tell", c.as_under_load,
         "all ranks wait for their GPUs in a batch, as they do most of the time under load",
         "two equal snapshots do not distinguish a hang from a busy server", ("more_snapshots",),
         unknown="whether batches end: the log's lines of them, or more snapshots, would show it"),
    Rule("all_on_gpu", "hung", lambda k, p: c.frozen(k) and c.all_in(k, "CUDA_SYNC", "NCCL_LAUNCH"),
         "all ranks wait for their GPU",
         "a collective's kernel is resident on each GPU and spins: one rank never launched its part, or a "
         "link fails", ("custom_all_reduce_off", "device_coredump"), names=apart,
         unknown="which rank did not launch: NCCL's own counts (RAS) would show it"),
    Rule("endless_kernel", "hung",
         lambda k, p: c.frozen(k) and c.one_gpu_busy(k) and c.some_in(k, "HOST_COLL"),
         "one rank waits for its GPU, which is busy; the others wait for that rank",
         "a kernel of that rank does not end: its GPU, or what it computes", ("other_gpu", "soft_watchdog"),
         names=apart, unknown="which kernel: a CUDA core dump names it"),
    Rule("draft_capture", "hung", lambda k, p: c.frozen(k) and p == "graph_draft",
         "the ranks are in the capture of the draft's graphs", "the ranks left lock-step in the draft",
         ("no_speculation", "decode_graphs_off"), names=apart),
    Rule("capture_build", "hung", lambda k, p: c.frozen(k) and p in c.GRAPHS and c.some_in(k, "JIT"),
         "ranks wait at a shape of the capture, and one compiles without a live compiler",
         "a kernel's compilation on one rank does not end", ("precompile", "decode_graphs_off"),
         names=apart),
    Rule("prefill_capture", "hung", lambda k, p: c.frozen(k) and p == "graph_prefill",
         "the ranks are in the capture of prefill graphs", "the ranks diverged before the collective",
         ("prefill_graphs_off", "soft_watchdog"), names=apart),
    Rule("decode_capture", "hung", lambda k, p: c.frozen(k) and p == "graph_decode",
         "the ranks are in the capture of decode graphs", "the ranks diverged before the collective",
         ("decode_graphs_off", "custom_all_reduce_off", "soft_watchdog"), names=apart),
    Rule("endless_batch", "hung",
         lambda k, p: c.frozen(k) and p in ("init_done", "ready") and not c.all_in(k, "IDLE")
         and all(rank.phase == "ready" for rank in k.alive),
         "the start-up is done, and a batch does not end",
         "a rank does not come out of its forward, or of the scheduling around it",
         ("no_hooks", "overlap_off", "custom_all_reduce_off", "skip_warmup"), names=apart),
    Rule("foreign_collective", "hung", lambda k, p: c.frozen(k) and p == "unknown" and len(k.alive) > 1
         and c.some_in(k, "HOST_COLL", "STORE"),
         "ranks wait in a collective outside any phase of SGLang that is known",
         "the ranks do not run the same collectives", ("dist_debug",), names=apart),
    Rule("late_rank", "hung",
         lambda k, p: c.frozen(k) and c.some_in(k, "HOST_COLL", "STORE") and bool(apart(k)),
         "ranks wait in a collective, and one has not reached it",
         "the rank that did not reach it is held up by its own work, its GPU or its host",
         ("other_gpu", "native", "soft_watchdog"), names=apart,
         unknown="whether it is the rank or its GPU: another GPU would show it"),
    Rule("same_place", "hung", lambda k, p: c.frozen(k) and not c.all_in(k, "IDLE"),
         "every rank is at the same place in both snapshots",
         "what it waits for is not in its Python frames",
         ("native", "soft_watchdog"), names=apart),
    Rule("other_operations", "hung", lambda k, p: not k.alive and bool(k.other_operations),
         "by torch's flight recorder, ranks wait at one number in different collectives",
         "the ranks do not run the same program: each waits for peers that are in another collective",
         ("dist_debug",), names=in_another_collective, at_most="likely",
         unknown="where the ranks parted: there are no stacks"),
    Rule("ras_missing", "hung", lambda k, p: not k.alive and bool(k.missing_by_ras),
         "NCCL RAS has no answer from a rank", "that rank is stopped, dead or cut off from the network",
         ("why_dead",), names=silent_to_ras, at_most="possible",
         unknown="whether that rank lives: its process is not in the evidence"),
    Rule("launch_counts", "cannot_tell", lambda k, p: not k.alive and bool(k.behind),
         "by NCCL's own counts (RAS), ranks have launched different numbers of collectives",
         "on a server that works one query can show the same: ask again, and see whether the counts move",
         ("second_snapshot",), unknown="whether the counts move, and the stacks of all ranks"),
    Rule("log_alone", "cannot_tell", lambda k, p: c.log_alone(k),
         "the log is the only evidence, and it reports no end",
         "a log shows the phase, not which rank is behind", ("soft_watchdog",),
         unknown="the stacks of all ranks in two snapshots are missing"),
    Rule("no_rule", "cannot_tell", lambda k, p: True, "no rule applies", "the evidence does not decide",
         ("soft_watchdog", "second_snapshot"),
         unknown="two more snapshots with the stacks of all ranks may decide it"),
)  # fmt: skip


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
