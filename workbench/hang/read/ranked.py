"""What the debug server of torch.distributed writes: the stacks of all ranks, one after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.hang.read.pyspy import MOST_DUMPS, TextDump, read_faulthandler, read_text

_RANK = re.compile(r"^=== Rank (\d{1,6}): .{0,200} ===$")


def is_ranked(head: bytes) -> bool:
    """Tell such a file by its first bytes."""
    return re.search(rb"(?m)^=== Rank \d{1,6}: [^\n]{0,200} ===\r?$", head) is not None


def read_ranked(lines: Sequence[str]) -> list[tuple[int, TextDump]]:
    """Read ``/pyspy_dump`` and ``/stacks`` of the debug server: rank and stacks.

    A rank's stacks of the second kind come without a pid: it is made up, and negative.
    """
    starts = [
        (n, int(match[1])) for n, line in enumerate(lines) if (match := _RANK.match(line.rstrip()))
    ]
    found: list[tuple[int, TextDump]] = []
    ends = [number for number, _ in starts[1:]] + [len(lines)]
    for (start, rank), end in zip(starts[:MOST_DUMPS], ends, strict=False):
        part = lines[start + 1 : end]
        dumps = read_text(part) or read_faulthandler(part, asked=True)
        if len(dumps) == 1:
            found.append((rank, dumps[0]))
    return found
