"""Which processes belong to a server of SGLang or vLLM, and what each of them does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from workbench.hang.collect.collector import proc
from workbench.secret_shapes import without_secrets

_PYTHON = re.compile(r"^(python[\d.]*t?|pypy[\d.]*|sglang|vllm)$")
# The words that begin a launch, after the interpreter and its own options.
_MODULES = (
    "sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.cli.main",
    "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main",
)  # fmt: skip
_TITLES = (
    ("sglang::scheduler", "scheduler"),
    ("sgl_diffusion::scheduler", "scheduler"),
    ("sglang::detokenizer", "detokenizer"),
    ("sglang::data_parallel_controller", "controller"),
    ("sglang::tokenizer_worker", "tokenizer"),
    ("VLLM::Worker", "scheduler"),
    ("VLLM::EngineCore", "controller"),
    ("VLLM::APIServer", "tokenizer"),
)
_BYSTANDERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "compile_worker",
    "torch._inductor",
)
# Of these the stacks are worth a dump; a child that has no title yet may become any of them.
DUMPED = ("scheduler", "parent", "detokenizer", "controller", "tokenizer", "spawned", "other")


class CollectError(Exception):
    """What could not be collected: what happened, why, what to do next."""

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        what, why, next_step = map(without_secrets, (what, why, next_step))
        super().__init__(what, why, next_step)
        self.what, self.why, self.next_step = what, why, next_step

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  why:  {self.why}"] if self.why else []
        lines += [f"  next: {self.next_step}"] if self.next_step else []
        return "\n".join(lines)


class Server(NamedTuple):
    """One server on this host: its topmost processes (one, unless it lost its parent)."""

    roots: tuple[int, ...]

    @property
    def root(self) -> int:
        """The process that was launched."""
        return self.roots[0]


def role(pid: int, argv: list[str], roots: tuple[int, ...]) -> str:
    """Return what a process of a server does: a role of the records, or ``spawned``."""
    if not argv:
        return "compiler" if proc.read(pid, "comm").strip() in proc.COMPILERS else "other"
    for title, name in _TITLES:
        if argv[0].startswith(title):
            return name
    if pid in roots:
        return "parent"
    line = " ".join(argv)
    if any(word in line for word in _BYSTANDERS):
        return "bystander"
    if os.path.basename(argv[0]) in proc.COMPILERS:
        return "compiler"
    if "multiprocessing.spawn" in line and "spawn_main" in line:
        return "spawned"
    return "other"


def find_servers(processes: dict[int, proc.Stat]) -> list[Server]:
    """Return every server of SGLang or vLLM that can be seen on this host."""
    argvs = {pid: proc.arguments(pid) for pid in processes}
    ours = {pid for pid, argv in argvs.items() if proc.is_title(argv) or is_launch(argv)}
    roots: set[int] = set()
    orphans: dict[int, list[int]] = {}
    for pid in ours:
        top = _topmost(pid, ours, processes)
        if is_launch(argvs[top]):
            roots.add(top)
            continue
        parent = processes[top].parent
        if parent > 0 and parent in argvs and _is_python(argvs[parent]):
            roots.add(parent)  # a program of the user's that holds an Engine
        else:
            orphans.setdefault(processes[top].session, []).append(top)
    servers = [Server((root,)) for root in sorted(roots)]
    return servers + [Server(tuple(sorted(set(group)))) for group in orphans.values()]


def choose(pid: int | None, processes: dict[int, proc.Stat]) -> Server:
    """Return the server that a pid belongs to, or the only one on this host.

    Raises
    ------
    CollectError
        There is none, there are several, or the pid is gone or belongs to none.
    """
    servers = find_servers(processes)
    if pid is None:
        if len(servers) == 1:
            return servers[0]
        if not servers:
            raise CollectError(
                f"there is no {_ANY} server running here",
                _blind_spot(processes)
                or "there is no process named sglang::scheduler, sglang.launch_server, sglang serve, "
                "VLLM::Worker or vllm serve",
                "Give the pid of one of its processes, or open its log with workbench.open_evidence.",
            )
        raise CollectError(
            f"{len(servers)} {_names(servers)} servers are running here",
            "; ".join(describe(server) for server in servers[:6]),
            f"Give the pid of the one that is meant, such as {servers[0].root}.",
        )
    if pid not in processes:
        raise CollectError(
            f"there is no process {pid}",
            _blind_spot(processes) or "it has ended, or it lives in another container",
            "Give the pid of a process that runs, or open the log with workbench.open_evidence.",
        )
    holding = [s for s in servers if pid in proc.family(set(s.roots), processes)]
    below = set(proc.family({pid}, processes))
    holding = holding or [s for s in servers if below.intersection(s.roots)]
    if len(holding) == 1:
        return holding[0]
    if holding:
        raise CollectError(
            f"process {pid} started {len(holding)} {_names(holding)} servers",
            "; ".join(describe(server) for server in holding[:6]),
            f"Give the pid of the one that is meant, such as {holding[0].root}.",
        )
    known = "; ".join(describe(server) for server in servers[:6])
    if processes[pid].state in ("Z", "X"):
        raise CollectError(
            f"process {pid} has ended",
            "it is a zombie: its parent has not looked yet, and nothing can be read of it"
            + (f"; {_names(servers)} servers here: {known}" if known else ""),
            "Open the log that it wrote with workbench.open_evidence, or workbench hang LOG.",
        )
    raise CollectError(
        f"process {pid} belongs to no {_ANY} server",
        f"{_names(servers)} servers here: {known}"
        if known
        else f"there is no {_ANY} server running here",
        "Give the pid of one of a server's processes.",
    )


_ANY = "SGLang or vLLM"
_TELLING = (
    "--port", "--model-path", "--model", "--tp-size", "--tp", "--tensor-parallel-size", "-tp"
)  # fmt: skip


def engine(server: Server, argvs: Iterable[list[str]] = ()) -> str:
    """Return a server's engine by its launch and its processes' titles: ``sglang``, or ``vllm``."""
    for argv in (*(proc.arguments(root) for root in server.roots), *argvs):
        first = argv[0] if argv else ""
        if first.startswith("VLLM::") or (is_launch(argv) and _starts_vllm(argv)):
            return "vllm"
        if first.startswith("sglang::") or is_launch(argv):
            return "sglang"
    return ""


def _starts_vllm(argv: list[str]) -> bool:
    return any(os.path.basename(word) == "vllm" or word.startswith("vllm.") for word in argv[:8])


def _names(servers: list[Server]) -> str:
    """Return the engines of servers: ``SGLang``, ``vLLM``, or both."""
    found = {engine(server) for server in servers}
    return "vLLM" if found == {"vllm"} else "SGLang and vLLM" if "vllm" in found else "SGLang"


def describe(server: Server) -> str:
    """Return one server in a few words: its pid, its port, its model."""
    argv = proc.arguments(server.root)
    words = [f"{flag} {value}" for flag in _TELLING if (value := option(argv, flag))]
    return f"pid {server.root}" + (
        f" ({', '.join(words)})" if words else f" ({argv[0]})" * bool(argv)
    )


def option(argv: list[str], *flags: str) -> str | None:
    """Return the value of the last of these flags, written ``--flag value`` or ``--flag=value``."""
    found = None
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in flags:
            found = value if equals else (argv[number + 1] if number + 1 < len(argv) else None)
    return found


def is_launch(argv: list[str]) -> bool:
    """Whether a command line starts a server of SGLang or vLLM: a shell that names one does not."""
    if not _is_python(argv):
        return False
    for number, word in enumerate(argv[:8]):
        if word == "-m":
            return argv[number + 1 : number + 2] != [] and argv[number + 1] in _MODULES
        name = os.path.basename(word)
        if name in ("sglang", "vllm") and argv[number + 1 : number + 2] == ["serve"]:
            return True
        if name == "launch_server.py" and "sglang" in word:
            return True
    return False


def _is_python(argv: list[str]) -> bool:
    return bool(argv) and bool(_PYTHON.match(os.path.basename(argv[0])))


def _topmost(pid: int, ours: set[int], processes: dict[int, proc.Stat]) -> int:
    """Climb to the highest process of the same server."""
    top, seen = pid, {pid}
    while True:
        pid = processes[pid].parent
        if pid not in processes or pid in seen:
            return top
        seen.add(pid)
        if pid in ours:
            top = pid


def _blind_spot(processes: dict[int, proc.Stat]) -> str:
    """Say so where /proc hides the processes of others."""
    if os.geteuid() != 0 and 1 not in processes:
        return "/proc shows this user only its own processes (hidepid)"
    return ""
