"""The flags of every SGLang release that is at hand, read from its own parser.

``python -m tests.engines.flag_tables --write`` writes them to workbench/facts/sglang_flags.json; without
``--write`` it says whether that file is what the parsers say.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.facts.flags import TABLE
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


def table(answers: dict[str, dict[str, Any]]) -> str:
    """Return the table as JSON text: one flag a line, releases that agree together."""
    rows: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for version, answer in answers.items():
        for flag in answer["flags"]:
            said = (flag["field"], flag["sort"], flag["default"], "old" * flag["deprecated"])
            for name in flag["flags"]:
                rows.setdefault(name, {}).setdefault(said, []).append(version)
    lines = [
        f"  {json.dumps(name)}: "
        + json.dumps([[" ".join(versions), *said] for said, versions in row.items()])
        for name, row in sorted(rows.items())
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: Sequence[str]) -> int:
    """Write the table, or say whether it is true."""
    text = table({version: ask(version) for version in environments.sglang_versions()})
    if "--write" in arguments:
        TABLE.write_text(text)
    elif TABLE.read_text() != text:
        print(f"{TABLE.name} is not what the parsers say; run again with --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
