"""What a page of several results found: the worst of all, and how many of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from workbench.core.palette import tone
from workbench.display.html import escape, prose
from workbench.display.page import Verdict
from workbench.export.clean import Shown

WORST_FIRST = ("wrong", "unsure", "ok")
_WORDS = {"wrong": "wrong", "unsure": "cannot tell", "ok": "ok"}


def of(shown: Sequence[Shown]) -> Verdict | None:
    """Return state and sentence of the worst result, the first of several; None without results."""
    if not shown:
        return None
    worst = min(shown, key=lambda one: WORST_FIRST.index(one.state))
    return worst.state, worst.line


def counts(states: Iterable[str]) -> str:
    """Return how many of each, the worst first: ``2 wrong, 1 cannot tell, 4 ok``."""
    found = Counter(states)
    return ", ".join(f"{found[state]} {_WORDS[state]}" for state in WORST_FIRST if found[state])


def banner(shown: Sequence[Shown]) -> str:
    """Return what stands at the top of a page of several results: the counts, and a link to each."""
    if len(shown) < 2:
        return ""
    state, _ = of(shown) or ("unsure", "")
    items = "".join(
        f'<li><a href="#result-{at}">{_sign(one.state)}<span>{prose(_first(one.line))}</span></a></li>'
        for at, one in enumerate(shown, 1)
    )
    return (
        f'<nav class="nb-results" aria-label="Results"><p>{_sign(state)}<b>{len(shown)} results: '
        f"{escape(counts(one.state for one in shown))}</b></p><ol>{items}</ol></nav>"
    )


def _first(line: str) -> str:
    """Return the first sentence of a verdict; the result itself has the rest."""
    found = re.match(r".{12,}?[.!?](?=\s)", line, re.DOTALL)
    return found.group(0) if found else line


def _sign(state: str) -> str:
    look = tone(state)
    return (
        f'<span class="sign" style="color:light-dark({look.light},{look.dark})" '
        f'aria-hidden="true">{look.glyph}</span>'
    )
