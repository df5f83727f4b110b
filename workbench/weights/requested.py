"""Names and patterns by which a part of the weights is requested, and the words for the rest."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from workbench.core.wording import plural
from workbench.errors import WorkbenchError, shorten, shown

_PATTERN = re.compile(r"[*?\[]")


def names_listed(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list.

    Raises
    ------
    WorkbenchError
        It is neither text nor a list of texts, or is empty.
    """
    step = 'Give names or patterns: names=["lm_head.weight", "layers.0.*"].'
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable) or isinstance(names, bytes):
        raise WorkbenchError(
            f"names={shown(names)} is neither text nor a list of texts", next_step=step
        )
    listed = list(names)
    if not all(isinstance(name, str) for name in listed):
        raise WorkbenchError(
            f"names={shown(listed)} holds something that is not text", next_step=step
        )
    if not listed:
        raise WorkbenchError(
            "names is empty: it asks for no tensors", next_step=f"{step} None asks for all."
        )
    return listed


def named_positions(known: Sequence[str], names: str | Iterable[str], source: str) -> list[int]:
    """Return the positions in `known` of what is requested, in their order.

    Raises
    ------
    WorkbenchError
        `source` has nothing of one of the names.
    """
    places = {name: at for at, name in enumerate(known)}
    found: set[int] = set()
    for name in names_listed(names):
        if name in places:
            found.add(places[name])
            continue
        hits = fnmatch.filter(places, name) if _PATTERN.search(name) else []
        if not hits:
            raise _unknown(name, known, source)
        found.update(places[hit] for hit in hits)
    return sorted(found)


def limited_to(requested: int, total: int) -> str:
    """Say how much was requested, "" where that is all."""
    if requested >= total:
        return ""
    verb = "was" if requested == 1 else "were"
    return f"only {requested:,} of {plural(total, 'weight')} {verb} requested"


def _unknown(name: str, names: Sequence[str], source: str) -> WorkbenchError:
    tail = name.rsplit(".", 2)[-2:]
    near = [known for known in names if known.endswith(".".join(tail))][:2000]
    close = get_close_matches(name, near or list(names[:2000]), n=3)
    step = (
        f"Did you mean {', '.join(shorten(known, 140) for known in close)}?"
        if close
        else "Give a name that the checkpoint has, or a pattern such as *.weight."
    )
    return WorkbenchError(f"{source} has no weight {shown(name)}", next_step=step)
