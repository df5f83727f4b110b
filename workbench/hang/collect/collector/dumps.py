"""A dump of py-spy's as it is kept: its stacks without local variables and secrets, each decoded once.

Hundreds of threads stand in the same stack. In the form that py-spy writes, a stack's text ends at the first
bracket with four spaces before it: no line of a text in JSON can look so, since its line ends are escaped.
"""

from __future__ import annotations

import json
from typing import Any

from workbench.evidence.redact import Frames, Redactor

_BEGINS, _ENDS = b'\n    "frames": [\n', b"\n    ]"


def redacted(dump: bytes, redact: Redactor) -> str:
    """Return a dump's threads as JSON, with what `Redactor.dump` keeps of them.

    Raises
    ------
    ValueError, RecursionError
        It is no JSON.
    """
    rest, texts = _split(dump)
    threads = json.loads(rest)
    known: Frames = {}
    stacks = [json.dumps(redact.frames(json.loads(b"[%b]" % text), known)) for text in texts]
    return f"[{', '.join(_written(threads, stacks, redact))}]"


def _split(dump: bytes) -> tuple[bytes, dict[bytes, int]]:
    """Return a dump with a number for each stack, and the texts of the stacks with their numbers."""
    rest: list[bytes] = []
    texts: dict[bytes, int] = {}
    at = 0
    while (begin := dump.find(_BEGINS, at)) >= 0:
        end = dump.find(_ENDS, begin)
        if end < 0:
            break
        number = texts.setdefault(dump[begin + len(_BEGINS) : end], len(texts))
        rest.append(b'%b\n    "frames": %d' % (dump[at:begin], number))
        at = end + len(_ENDS)
    return b"".join((*rest, dump[at:])), texts


def _written(threads: Any, stacks: list[str], redact: Redactor) -> list[str]:
    written = []
    for thread in threads if isinstance(threads, list) else ():
        number = thread.get("frames") if isinstance(thread, dict) else None
        if type(number) is int and 0 <= number < len(stacks):
            (one,) = redact.dump([{**thread, "frames": []}])
            written.append(f"{json.dumps(one).removesuffix('[]}')}{stacks[number]}}}")
        else:
            written += map(json.dumps, redact.dump([thread]))
    return written
