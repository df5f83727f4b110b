"""What /proc says of processes; where it says nothing, None."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import time
from typing import Any, NamedTuple

PROC = "/proc"
TICKS = os.sysconf("SC_CLK_TCK")
# Programs that a compilation at run time starts: ninja drives, the others work.
COMPILERS = (
    "ninja", "nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink", "gcc", "g++", "cc", "c++",
    "cc1", "cc1plus", "as", "ld", "clang", "clang++", "hipcc", "make", "cmake",
)  # fmt: skip
_TITLE = re.compile(r"^(sglang|sgl_diffusion|VLLM)::[\w:]+\s*$")
_LOCK = re.compile(r"(\.lock|\.lck|/lock)$")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class Stat(NamedTuple):
    """Fields of /proc/PID/stat; times in clock ticks."""

    state: str
    parent: int
    session: int
    user: int
    system: int
    threads: int
    started: int
    exit_code: int


def read(pid: int, name: str) -> str:
    """Return a file of /proc/PID, or nothing where it is gone or not ours to read."""
    return _read(f"{PROC}/{pid}/{name}")


def _read(path: str, folder: int | None = None) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""
    parts = []
    with contextlib.suppress(OSError):  # it ended meanwhile
        # Two files a thread are read, and a file object would cost as much as the kernel's answer.
        while part := os.read(file, 1 << 16):
            parts.append(part)
            if folder is not None:  # what is told of a thread comes at once
                break
    os.close(file)
    return b"".join(parts).decode("utf-8", "replace")


def stat(pid: int) -> Stat | None:
    """Return what /proc/PID/stat says, or None where the process is gone."""
    return _stat(read(pid, "stat"))


def main_thread(pid: int) -> Stat | None:
    """Return what is known of a process's main thread alone, or None where it is gone.

    Helper threads of a rank may use CPU time while its loop is stuck.
    """
    return _stat(read(pid, f"task/{pid}/stat"))


def _stat(text: str) -> Stat | None:
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    try:
        # Numbered as in proc(5), less the three fields up to the state.
        return Stat(
            fields[0], int(fields[1]), int(fields[3]), int(fields[11]), int(fields[12]),
            int(fields[17]), int(fields[19]), int(fields[49]) if len(fields) > 49 else 0,
        )  # fmt: skip
    except (IndexError, ValueError):
        return None


def everyone() -> dict[int, Stat]:
    """Return all processes that can be seen."""
    found = ((int(name), stat(int(name))) for name in os.listdir(PROC) if name.isdigit())
    return {pid: facts for pid, facts in found if facts is not None}


def family(roots: set[int], processes: dict[int, Stat]) -> list[int]:
    """Return these processes and all their descendants, by number."""
    children: dict[int, list[int]] = {}
    for pid, facts in processes.items():
        children.setdefault(facts.parent, []).append(pid)
    members: set[int] = set()
    todo = [pid for pid in roots if pid in processes]
    while todo:
        pid = todo.pop()
        if pid not in members:
            members.add(pid)
            todo += children.get(pid, ())
    return sorted(members)


def arguments(pid: int) -> list[str]:
    """Return the command line as a list; of a process with a title, the title alone."""
    raw = read(pid, "cmdline")
    if _TITLE.match(raw.replace("\0", " ")):
        return [raw.replace("\0", " ").strip()]
    return raw.rstrip("\0").split("\0") if raw else []


def is_title(argv: list[str]) -> bool:
    """Whether a command line is one of SGLang's or vLLM's process titles."""
    return bool(argv) and bool(_TITLE.match(argv[0]))


def status_field(pid: int, name: str) -> str:
    """Return one field of /proc/PID/status."""
    for line in read(pid, "status").splitlines():
        if line.startswith(name + ":"):
            return line.partition(":")[2].strip()
    return ""


def tracer(pid: int) -> int:
    """Return the process that traces this one, 0 for none."""
    text = status_field(pid, "TracerPid")
    return int(text) if text.isdigit() else 0


def environment(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with.

    A process that wrote itself a title may have written it over its environment: what is no
    assignment is left out.
    """
    pairs = (text.partition("=") for text in read(pid, "environ").split("\0") if _is_pair(text))
    return {name: value for name, _, value in pairs}


def _is_pair(text: str) -> bool:
    return bool(_VARIABLE.match(text))


def boot_time() -> float | None:
    """Return when this machine was started, in seconds since 1970."""
    try:
        with open(f"{PROC}/stat") as file:
            for line in file:
                if line.startswith("btime "):
                    return float(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def open_files(pid: int) -> dict[int, str]:
    """Return file descriptor → what it points to; empty where that may not be read."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{PROC}/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError):
                found[int(name)] = os.readlink(f"{PROC}/{pid}/fd/{name}")
    return found


def namespace(pid: object, kind: str) -> str:
    """Return the name of a process's namespace (``net``, ``pid``, ``mnt``), or nothing."""
    try:
        return os.readlink(f"{PROC}/{pid}/ns/{kind}")
    except OSError:
        return ""


def facts(pid: int, processes: dict[int, Stat], *, threads: bool = True) -> dict[str, Any]:
    """Return what a case's ``processes.json`` says of one process.

    Parameters
    ----------
    pid
        The process.
    processes
        All processes, for its children.
    threads
        Whether to look at each thread, too.
    """
    now = stat(pid)
    if now is None:
        return {}
    argv = arguments(pid)
    boot = boot_time()
    main = main_thread(pid)
    record: dict[str, Any] = {
        "pid": pid,
        "ppid": now.parent,
        "started": None if boot is None else round(boot + now.started / TICKS, 2),
        "started_boot": round(now.started / TICKS, 2),
        "namespace_pid": _namespace_pid(pid),
        "cmd": " ".join(argv) or f"[{read(pid, 'comm').strip()}]",
        "status": now.state,
        "wait_channel": read(pid, "wchan").strip().strip("0") or None,
        "cpu": {"user": now.user / TICKS, "system": now.system / TICKS},
        "main_cpu_seconds": None if main is None else (main.user + main.system) / TICKS,
        "exit_code": os.waitstatus_to_exitcode(now.exit_code) if now.state == "Z" else None,
        "read_at": round(time.time(), 3),
    }
    if not is_title(argv):
        record["argv"] = argv
    if threads:
        record.update(_threads(pid))
        record.update(io(pid))
        record["lock_files"] = sorted({f for f in open_files(pid).values() if _LOCK.search(f)})
        record["compilers"] = compilers(pid, processes)
    return record


def sample(pid: int, started: int) -> dict[str, Any] | None:
    """Return what a main thread does at this moment, in microseconds; None where it is gone."""
    found = main_thread(pid)
    if found is None or found.started != started:
        return None
    call = read(pid, f"task/{pid}/syscall").split(" ", 1)[0]
    return {
        "at": round(time.monotonic(), 3),
        "state": found.state,
        "cpu": (found.user + found.system) / TICKS,
        "wait_channel": read(pid, f"task/{pid}/wchan").strip().strip("0"),
        "call": int(call) if call.isdigit() else None,
    }


def clocks() -> dict[str, float]:
    """Return the wall clock, and the time since boot with and without sleep."""
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return {
        "wall": round(time.time(), 3),
        "boot": round(time.clock_gettime(boot), 3),
        "monotonic": round(time.monotonic(), 3),
    }


def compilers(pid: int, processes: dict[int, Stat]) -> list[str]:
    """Return the names of the compilers among a process's descendants."""
    names = (read(child, "comm").strip() for child in family({pid}, processes) if child != pid)
    return sorted(name for name in names if name in COMPILERS)


def _namespace_pid(pid: int) -> int | None:
    numbers = status_field(pid, "NSpid").split()
    return int(numbers[-1]) if len(numbers) > 1 and numbers[-1].isdigit() else None


def _threads(pid: int) -> dict[str, Any]:
    states: collections.Counter[str] = collections.Counter()
    waits: collections.Counter[str] = collections.Counter()
    try:
        folder = os.open(f"{PROC}/{pid}/task", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError:
        return {}
    try:
        tasks = os.listdir(folder)
        for task in tasks:
            state = _read(f"{task}/stat", folder).rpartition(")")[2].strip()[:1]
            if state:
                states[state] += 1
                # A running thread waits in nothing.
                where = "" if state == "R" else _read(f"{task}/wchan", folder).strip().strip("0")
                waits[where or "?"] += 1
    except OSError:  # it ended meanwhile
        return {}
    finally:
        os.close(folder)
    known = {name: count for name, count in waits.most_common(12) if name != "?"}
    return {"threads": len(tasks), "thread_states": dict(states), "thread_waits": known}


def uninterruptible(pid: int) -> set[str]:
    """Return the threads of a process that nothing can interrupt (state D).

    They wait in the kernel: for a disk or a file system, or for a child that is not yet executed.
    """
    found: set[str] = set()
    try:
        folder = os.open(f"{PROC}/{pid}/task", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError:
        return found
    try:
        for task in os.listdir(folder):
            if _read(f"{task}/stat", folder).rpartition(")")[2].strip()[:1] == "D":
                found.add(task)
    except OSError:  # it ended meanwhile
        pass
    finally:
        os.close(folder)
    return found


def io(pid: int) -> dict[str, int]:
    """Return bytes read and written, as counters that rise while a process reads or writes.

    What goes through calls (also out of the page cache) and what a disk gives (also to mapped files) are
    added: either alone misses a way in which weights are loaded.
    """
    counts = {}
    for line in read(pid, "io").splitlines():
        name, _, value = line.partition(":")
        if value.strip().isdigit():
            counts[name] = int(value)
    if not counts:
        return {}
    return {
        "read_bytes": counts.get("rchar", 0) + counts.get("read_bytes", 0),
        "written_bytes": counts.get("wchar", 0) + counts.get("write_bytes", 0),
    }
