"""The command of a running process: its arguments, its environment, the release that is installed."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.errors import WorkbenchError

MOST_BYTES = 1 << 20
_TITLE = re.compile(r"sglang::|VLLM::|vllm::")
_KEPT = re.compile(
    r"(?:NCCL|CUDA|SGLANG|SGL|VLLM|TORCH|TRTLLM|TRITON|GLOO|UCX|NVSHMEM|HF_HUB_OFFLINE)\w*"
)
_PARENTS = 8
_MOST_PTH, _MOST_FOLDERS = 20, 100


def words_of(pid: int) -> tuple[list[str], int]:
    """Return the arguments of a process, and the process that they are of.

    A worker of SGLang or vLLM shows a title in the place of its arguments: those of the main process are
    returned.

    Raises
    ------
    WorkbenchError
        There is no such process, or it may not be looked at.
    """
    first = pid
    for _ in range(_PARENTS):
        text = _read(first, "cmdline", pid).decode("utf-8", "replace")
        words = text.rstrip("\0").split("\0")
        if not _TITLE.match(words[0].strip()):
            break
        status = _read(first, "status", pid).decode("utf-8", "replace")
        parent = re.search(r"(?m)^PPid:\s*(\d+)", status)
        if parent is None or int(parent[1]) < 1:
            break
        first = int(parent[1])
    if not any(words):
        raise WorkbenchError(
            f"process {pid} has no command line",
            why="it has ended, or it is a thread of the kernel",
            next_step="Give the PID of the server's main process.",
        )
    return words, first


def environment_of(pid: int) -> dict[str, str]:
    """Return the variables of a process that matter to a server; {} where they may not be read."""
    try:
        pairs = _read(pid, "environ", pid).decode("utf-8", "replace").split("\0")
    except WorkbenchError:
        return {}
    named = (pair.partition("=") for pair in pairs)
    return {name: value for name, _, value in named if _KEPT.fullmatch(name)}


def installed(interpreter: str, package: str) -> str:
    """Return the release of a package next to an interpreter, "" where it is not found there."""
    path = Path(interpreter)
    if not path.is_absolute():
        return ""
    try:
        for site in path.parent.parent.glob("lib/python3*/site-packages"):
            for folder in (site, *_named(site)):
                for info in folder.glob(f"{package}-*.dist-info"):
                    return info.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    except OSError:
        pass
    return ""


def _named(site: Path) -> list[Path]:
    """Return the folders that the .pth files of a site name; their lines of code are not run."""
    found: list[Path] = []
    for file in sorted(site.glob("*.pth"))[:_MOST_PTH]:
        with file.open(encoding="utf-8", errors="replace") as lines:
            found += [
                Path(line.strip()) for line in lines.read(1 << 16).splitlines() if line[:1] == "/"
            ]
    return [one for one in found[:_MOST_FOLDERS] if one.is_dir()]


def interpreter_of(pid: int, program: str = "") -> str:
    """Return the path of a process's program, "" where it may not be read.

    `program` is the first word of its command: in a virtual environment it is a link whose target knows
    nothing of the environment.
    """
    if Path(program).is_absolute() and Path(program).name.startswith("python"):
        return program
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def _read(pid: int, name: str, asked: int) -> bytes:
    try:
        with Path(f"/proc/{pid}/{name}").open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        gone = isinstance(error, FileNotFoundError | ProcessLookupError)
        raise WorkbenchError(
            f"process {asked} cannot be read",
            why="there is no such process" if gone else error.strerror or str(error),
            next_step="Give the PID of a running server, as its user or as root.",
        ) from None
