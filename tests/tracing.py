"""A program that traces another, as py-spy and gdb do, for as long as a test likes."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType

_PROGRAM = """
import ctypes, os, sys
ATTACH, DETACH = 16, 17
pid = int(sys.argv[1])
open("/proc/self/comm", "w").write(sys.argv[2])
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
assert ptrace(ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
os.waitpid(pid, 0)
print("holds", flush=True)
sys.stdin.readline()
ptrace(DETACH, pid, None, None)
print("let go", flush=True)
sys.stdin.readline()
"""


class Tracer:
    """Holds a process (state t) under the name of a program, until it is left or `let_go`."""

    def __init__(self, pid: int, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(pid), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._held = True
        self._expect("holds")

    def let_go(self) -> None:
        """Let the process run on; the tracer lives on without it."""
        if self._held:
            self._held = False
            self._say()
            self._expect("let go")

    def _say(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _expect(self, text: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == text

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.let_go()
        self._say()
        self._process.wait(20)
