"""The flags of the SGLang releases that are at hand, as their own parsers say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.loaders.running import SCRIPT as TRACER

from . import environments

READER = Path(__file__).with_name("read_flags.py")


def ask(version: str, lines: Sequence[Sequence[str]] = ()) -> dict[str, Any]:
    """Return the flags of one release, and why it refuses each of `lines` ("" where it does not)."""
    request = {"stubs": str(TRACER.parent), "lines": [list(line) for line in lines]}
    done = subprocess.run(
        [str(environments.ensure(f"sglang-{version}")), str(READER)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
