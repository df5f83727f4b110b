"""What a process that asks an engine may not do: reach a network, or run code that came with a model.

The engine's Python runs this; it imports nothing of the workbench. The kernel's network namespace is used
where a user may make one; the audit hook holds everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from typing import Any

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# What the hub's library puts the code of a checkpoint into, to import it from there.
FOREIGN_CODE = "transformers_modules"
# Calls that reach another machine, or another server on this one.
_NETWORK = frozenset(
    {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
)
_LOCAL = (socket.AF_UNIX,)


class CagedError(PermissionError):
    """Something that may not be done here: it says nothing about the engine's answer."""


class Cage:
    """The hook; `folders` are those of the models, no file of which is run.

    `trusted` are beginnings of the engine's own modules, whose classes a pickle may name: vLLM gets the
    description of a model's class from a process of its own as one.
    """

    def __init__(self, folders: list[str], trusted: tuple[str, ...] = ()) -> None:
        self.trusted = trusted
        self.folders = tuple(os.path.realpath(one) + os.sep for one in folders if one)
        self.asking = False
        self.stopped: list[str] = []

    def close(self) -> None:
        """Leave the network, and look at every call from now on. There is no way out of it."""
        with contextlib.suppress(OSError, AttributeError, ValueError):
            ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNET)
        sys.addaudithook(self._look)

    def _look(self, event: str, given: tuple[Any, ...]) -> None:
        if event in _NETWORK:
            family = getattr(given[0], "family", None) if given else None
            if family not in _LOCAL:
                self._stop("the network")
        elif event == "pickle.find_class" and self.asking and not self._is_trusted(given[0]):
            self._stop("a pickle")
        elif event == "compile" and self._of_a_model(given[1]):
            self._stop("code of a checkpoint")
        elif event == "exec" and self._of_a_model(getattr(given[0], "co_filename", "")):
            self._stop("code of a checkpoint")  # compiled before: there is no source to compile

    def _is_trusted(self, module: object) -> bool:
        return isinstance(module, str) and bool(self.trusted) and module.startswith(self.trusted)

    def _of_a_model(self, file: object) -> bool:
        if isinstance(file, bytes):
            file = os.fsdecode(file)
        # Only a path: what the name of a generated function resolves to would be the current folder.
        if not isinstance(file, str) or not file.startswith("/"):
            return False
        if f"{os.sep}{FOREIGN_CODE}{os.sep}" in file:
            return True
        return bool(self.folders) and os.path.realpath(file).startswith(self.folders)

    def _stop(self, what: str) -> None:
        self.stopped.append(what)
        raise CagedError(f"{what} is out of reach here")
