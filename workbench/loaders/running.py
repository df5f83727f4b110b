"""Run a real engine's loader in the engine's own Python, and return what its tracer says."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from workbench.errors import EngineError

SCRIPT = Path(__file__).resolve().parent / "tracer" / "trace_load.py"
# Lines of an engine's own output that an error message quotes.
LAST_LINES = 12
# Variables that would let modules of our own environment into the engine's.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


def run_tracer(
    python: str | os.PathLike[str],
    jobs: Sequence[Mapping[str, Any]],
    *,
    engine: str,
    stubs: bool = False,
    claim: str = "",
    timeout: float = 600.0,
) -> list[dict[str, Any]]:
    """Let an engine load checkpoints with its own loader, and say where each key went.

    One process does all jobs, so that the engine is imported only once. Nothing is downloaded, and the engine
    runs no code of a checkpoint. No weights go to a GPU.

    Parameters
    ----------
    python
        The interpreter that ``import sglang`` (or the like) works in; a name is looked up on PATH.
    jobs
        One mapping each: ``id``, ``checkpoint`` (folder), ``target`` (folder or None), ``model_class``
        (name or None: from the config); optional ``draft``, ``config``, ``values``: see
        `tracer/trace_load.py`.
    engine
        ``"sglang"`` or ``"transformers"``.
    stubs
        Stand in for packages that have no CPU build, where they are missing. For tests on machines without a
        GPU; a user's installation needs none.
    claim
        The compute capability of a GPU to claim where there is none (``9.0``): how quantised layers are
        stored depends on it.
    timeout
        Seconds for everything; then the process and its children are killed.

    Returns
    -------
    list of dict
        One answer a job, in the order of the jobs, with the fields that `tracer/trace_load.py` lists.

    Raises
    ------
    EngineError
        There is no such interpreter, the engine cannot be imported in it, the process died or took too long.
    """
    request = {
        "engine": engine,
        "stubs": stubs,
        "claim": claim,
        "jobs": [_plain(job) for job in jobs],
    }
    ran = run_script(python, SCRIPT, request, engine=engine, timeout=timeout)
    answers = _answers(ran.output)
    lost = [str(job["id"]) for job in jobs if str(job["id"]) not in answers]
    if ran.late:
        raise EngineError(
            f"{engine} took longer than {timeout:g} s and was stopped.",
            why=f"It had finished {len(answers)} of {len(jobs)} checkpoints; {lost[0]} was next."
            if lost
            else "",
            next_step="Allow it more time, or give it fewer checkpoints at once.",
        )
    if ran.status or lost:
        where = f" at checkpoint {lost[0]}" if lost else ""
        raise died(f"{engine}'s loader", engine, python, ran, where)
    return [answers[str(job["id"])] for job in jobs]


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a script of the engine's Python left.

    Attributes
    ----------
    output, said
        Its standard output, and its standard error.
    status
        As `subprocess` has it: negative for a signal.
    late
        Whether it was stopped because it took too long.
    """

    output: bytes
    said: str
    status: int
    late: bool


def run_script(
    python: str | os.PathLike[str],
    script: Path,
    request: Mapping[str, Any],
    *,
    engine: str,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run one of our scripts in an engine's own Python; when this returns, nothing of it runs any more.

    Parameters
    ----------
    request
        What the script reads from its standard input, as JSON.
    environment
        All its variables; those of this process by default. Ours that would let modules into the engine's
        Python are left out.

    Raises
    ------
    EngineError
        There is no such interpreter, or it cannot be started.
    """
    command = [_interpreter(python), str(script)]
    surroundings = os.environ if environment is None else environment
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in surroundings.items() if name not in FOREIGN},
            start_new_session=True,  # so that its children can be killed with it
        )
    except OSError as error:
        raise EngineError(
            f"{command[0]} cannot be started.",
            why=str(error),
            next_step=f"Name the Python of the environment that {engine} is installed in.",
        ) from error
    late = threading.Event()

    def stop() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(timeout, stop)
    timer.start()
    try:
        output, said = process.communicate(json.dumps(request).encode())
    except BaseException:  # Ctrl-C, too, must not leave an engine behind
        _kill(process)
        raise
    finally:
        timer.cancel()
        _close(process.stdin, process.stdout, process.stderr)
    return Ran(output, said.decode(errors="replace"), process.returncode, late.is_set())


def _interpreter(python: str | os.PathLike[str]) -> str:
    text = os.fspath(python)
    found = shutil.which(text)
    if found is None:
        raise EngineError(
            f"There is no Python interpreter {text}.",
            why="It does not exist, or is not executable.",
            next_step="Ask the engine's environment: `python -c 'import sys; print(sys.executable)'`.",
        )
    return found


def _plain(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job as JSON can hold it, with absolute paths: the tracer may run elsewhere."""
    plain = dict(job, id=str(job["id"]))
    for name in ("checkpoint", "target"):
        if plain.get(name) is not None:
            plain[name] = os.path.abspath(plain[name])
    return plain


def _answers(output: bytes) -> dict[str, dict[str, Any]]:
    """Read the answers there are; a process that was killed may leave half a line."""
    answers: dict[str, dict[str, Any]] = {}
    for line in output.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            answer = json.loads(line)
            answers[str(answer["id"])] = answer
    return answers


def died(
    what: str, engine: str, python: str | os.PathLike[str], ran: Ran, where: str = ""
) -> EngineError:
    """Return the error for a script that ended without its answers."""
    lines = [line.rstrip() for line in ran.said.splitlines() if line.strip()]
    last = "\n".join(lines[-LAST_LINES:])
    if lines and lines[-1].startswith(("ModuleNotFoundError:", "ImportError:")):
        return EngineError(
            f"{engine} cannot be imported by {os.fspath(python)}.",
            why=lines[-1],
            next_step=f"Name the Python of the environment that {engine} runs in; it must be able to "
            f"`import {engine}` there.",
        )
    status = ran.status
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return EngineError(
        f"{what} {how}{where}.",
        why=f"Its last output:\n{last}" if last else "It printed nothing.",
        next_step="Run it again on this checkpoint alone; if it dies again, report this message.",
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and whatever it started: it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _close(*streams: IO[bytes] | None) -> None:
    for stream in streams:
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
