"""Which version of the engine a process runs."""

from __future__ import annotations

import glob
import os
import re

from workbench.hang.collect.collector import proc

_VERSION = re.compile(r"^(sglang|vllm)-(\d[\w.+!-]*)\.dist-info$")
# What the path of a frame has in it, of each engine.
_BELOW = {"sglang": "/sglang/srt/", "vllm": "/vllm/"}


def by_frames(pid: int, dump: bytes, engine: str = "sglang") -> str:
    """Find the engine's version beside the files that its frames name."""
    # The plain search first: a dump has megabytes, and may name no such file.
    below = _BELOW.get(engine, _BELOW["sglang"]).encode()
    at = dump.find(below)
    found = (
        re.search(rb'"filename": "([^"]+?)' + below, dump[max(at - 4096, 0) :]) if at > 0 else None
    )
    return _version_in(pid, found.group(1).decode("utf-8", "replace"), engine) if found else ""


def by_interpreter(pid: int, engine: str = "sglang") -> str:
    """Find the engine's version among the packages of the interpreter that runs it."""
    argv = proc.arguments(pid)
    prefix = os.path.dirname(os.path.dirname(argv[0])) if argv and "/" in argv[0] else ""
    for place in filter(None, (prefix, "/usr/local", "/usr", "/opt/venv", "/opt/conda")):
        for folder in ("lib/python3*/site-packages", "lib/python3*/dist-packages"):
            root = f"{proc.PROC}/{pid}/root"
            for path in glob.glob(f"{root}{place}/{folder}"):
                version = _version_in(pid, path[len(root) :], engine)
                if version:
                    return version
    return ""


def _version_in(pid: int, folder: str, engine: str) -> str:
    for root in (f"{proc.PROC}/{pid}/root", ""):
        try:
            names = os.listdir(f"{root}{folder}")
        except OSError:
            continue
        for name in names:
            match = _VERSION.match(name)
            if match and match.group(1) == (engine or "sglang"):
                return match.group(2)
    return ""
