"""How SGLang starts, by version: who its processes are, and in which order the phases come.

The texts of the log are in `startup_markers`, the frames of a stack in `startup_frames`; which release has
which of them is in the facts of each (`workbench.facts.rows`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from workbench.facts.features import since
from workbench.facts.rows import nearest

# Titles are padded with blanks to the length of the command line they overwrite. 0.4.3 wrote the
# data-parallel rank alone (`scheduler_0`, mostly `scheduler_None`); ATTN_CP and MOE_DP came with 0.5.9.
TITLE = re.compile(
    r"sglang::scheduler"
    r"(?:_DP(?P<dp>\d{1,6}))?(?:_PP(?P<pp>\d{1,6}))?(?:_ATTN_CP(?P<cp>\d{1,6}))?"
    r"(?:_MOE_DP(?P<moe_dp>\d{1,6}))?(?:_TP(?P<tp>\d{1,6}))?(?:_EP(?P<ep>\d{1,6}))?"
    r"(?:_(?P<old>None|\d{1,6}))?"
)
# The prefix of a rank's log lines: the same parts in the same order (0.4.6 to 0.5.6 may order them
# otherwise), each after a blank.
PREFIX = re.compile(r"(ATTN_CP|MOE_DP|DP|PP|TP|EP)(\d{1,6})")
_PARTS = {"ATTN_CP": "cp", "MOE_DP": "moe_dp", "DP": "dp", "PP": "pp", "TP": "tp", "EP": "ep"}

# What else runs in an SGLang tree, by the beginning of its title.
_ROLES = (
    ("sglang::detokenizer", "detokenizer"),
    ("sglang::tokenizer_worker:", "tokenizer"),
    ("sglang::http_server/", "tokenizer"),
    ("sglang::data_parallel_controller", "controller"),
)
# Programs that build kernels: one that runs is the sign that a rank compiles and is not stuck.
COMPILERS = frozenset(
    {"nvcc", "ninja", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink", "c++", "g++", "gcc"}
    | {"cc1plus", "hipcc", "clang", "clang++", "ld", "as"}
)
_PARENT = re.compile(
    r"sglang\.launch_server|(?:^|[/\s])sglang\s+serve\b|sglang/launch_server\.py|\bsglang\.srt\.server\b"
)
# Children that are there in every healthy server. torch starts as many compile workers as there are
# cores, and forks their titles from the interpreter's command line.
_BYSTANDER = re.compile(
    r"multiprocessing\.resource_tracker|compile_worker|_inductor/|multiprocessing\.forkserver"
    r"|multiprocessing\.semaphore_tracker|subprocess_handler"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Title:
    """What a process's title says: its role, and of a scheduler the parts of its rank.

    Attributes
    ----------
    role
        One of `workbench.hang.records.Role`.
    parts
        ``dp``, ``pp``, ``cp``, ``moe_dp``, ``tp``, ``ep``: those that the title has. A scheduler
        without parts is the only rank of its server.
    """

    role: str
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)


def read_title(title: str) -> Title:
    """Say who a process is, from its title or command line.

    The first word of a compiler's command line is its path; a child that still is called
    ``…spawn_main…`` has not said yet who it will be.
    """
    title = title.strip()
    parts = rank_of_title(title)
    if parts is not None:
        return Title("scheduler", parts)
    for beginning, role in _ROLES:
        if title.startswith(beginning):
            return Title(role)
    words = title.split(None, 1)
    program = words[0].rsplit("/", 1)[-1] if words else ""
    if program in COMPILERS:
        return Title("compiler")
    if _BYSTANDER.search(title):
        return Title("bystander")
    if _PARENT.search(title):
        return Title("parent")
    return Title("other")


def rank_of_title(title: str) -> dict[str, int] | None:
    """Return the parts of the rank in a scheduler's title, or None for any other process.

    The title is the first word of what the process shows; old arguments may show behind it.
    """
    words = title.split(None, 1)
    match = TITLE.fullmatch(words[0]) if words else None
    if match is None:
        return None
    parts = {
        name: int(value) for name, value in match.groupdict().items() if name != "old" and value
    }
    old = match["old"]
    if old is not None and old != "None":
        parts["dp"] = int(old)
    return parts


def rank_of_prefix(prefix: str) -> dict[str, int]:
    """Return the parts of the rank in a log line's prefix, such as ``DP0 TP3 EP3``."""
    return {_PARTS[name]: int(value) for name, value in PREFIX.findall(prefix)}


def world_rank(
    parts: Mapping[str, int], *, tp_size: int = 1, pp_size: int = 1, replicas: bool = False
) -> int:
    """Return the number of a rank among all schedulers of a launch.

    Parameters
    ----------
    parts
        As `rank_of_title` returns them.
    tp_size, pp_size
        Sizes of the launch.
    replicas
        Whether data parallelism means replicas, each with ranks of its own; with DP attention all
        ranks are of one group, and ``tp`` alone numbers them.
    """
    within = tp_size * parts.get("pp", 0) + parts.get("tp", 0)
    return (parts.get("dp", 0) * tp_size * pp_size if replicas else 0) + within


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One step of a start-up: a phase, of the target or of the draft model."""

    phase: str
    model: str = "target"


_BEFORE = (Step("spawn"), Step("dist_init"), Step("weights"), Step("load_barrier"))
_AFTER = (Step("init_done"), Step("ready"))
# At first each runner goes right through, so the target's graphs are captured before the
# draft's weights are read; the piecewise (prefill) graphs came after the decode graphs.
_EACH_IN_TURN = (
    *_BEFORE,
    Step("kv_pool"),
    Step("warmup"),
    Step("graph_decode"),
    Step("graph_prefill"),
    Step("weights", "draft"),
    Step("load_barrier", "draft"),
    Step("kv_pool", "draft"),
    Step("draft_embed", "draft"),
    Step("graph_draft", "draft"),
    *_AFTER,
)
# In newer releases both models are loaded, then both pools made, then all graphs captured.
_TOGETHER = (
    *_BEFORE,
    Step("weights", "draft"),
    Step("load_barrier", "draft"),
    Step("draft_embed", "draft"),
    Step("kv_pool"),
    Step("kv_pool", "draft"),
    Step("warmup"),
    Step("graph_prefill"),
    Step("graph_decode"),
    Step("graph_draft", "draft"),
    *_AFTER,
)


def phase_order(version: str) -> tuple[Step, ...] | None:
    """Return the steps of a start-up in their order, or None for a release that was not read.

    A step that a launch does not take (no draft, graphs disabled) is skipped.

    Parameters
    ----------
    version
        The release, "" where it is not known.
    """
    together = since("sglang", "both models before the pools", version)
    if together is None:
        return None
    return _TOGETHER if together else _EACH_IN_TURN


def likely_order(version: str) -> tuple[Step, ...]:
    """Return the order of a release, or of the nearest that was read: of a fork, the one it is named after.

    Good for a picture and a guess; what accuses asks `phase_order`.
    """
    return phase_order(version) or phase_order(nearest("sglang", version)) or _TOGETHER
