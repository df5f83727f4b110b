"""The releases that a gate asks for, and what each does with a draft."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from workbench.errors import EngineError, WorkbenchError, shorten, shown
from workbench.facts import rows
from workbench.facts.engines import spoken
from workbench.loaders import registry
from workbench.preflight.gate_records import Cell

_ENGINES = ("sglang", "vllm")


def releases(text: str) -> tuple[tuple[str, str], ...]:
    """Return the releases of ``"sglang>=0.5.9,<0.5.20,vllm"`` that are on file, oldest first.

    Raises
    ------
    WorkbenchError
        It is not a list of engines with versions, or no release on file is in it.
    """
    if not isinstance(text, str):
        raise _no_engines(shown(text), "it is not a text")
    found: list[tuple[str, str]] = []
    for part in re.split(r",(?=\s*[A-Za-z])", text.strip()):
        try:
            wanted = Requirement(part.strip())
        except InvalidRequirement as error:
            raise _no_engines(text, str(error).splitlines()[0]) from None
        name = wanted.name.lower()
        if name not in _ENGINES:
            raise _no_engines(text, f"there are no releases of {shorten(name, 40)} on file")
        chosen = [
            one for one in rows.releases(name) if wanted.specifier.contains(one, prereleases=True)
        ]
        if not chosen:
            on_file = rows.releases(name)
            raise _no_engines(
                text,
                f"no release of {spoken(name)} on file is in it ({on_file[0]} to {on_file[-1]})",
            )
        found += [(name, one) for one in chosen]
    return tuple(dict.fromkeys(found))


def _no_engines(text: str, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"{shorten(text, 80) or 'an empty text'} does not name releases",
        why=why,
        next_step='Write it as "sglang>=0.5.9,vllm".',
    )


def cells(
    wanted: Sequence[tuple[str, str]], draft: Any, target: Any
) -> Iterator[tuple[Cell, tuple[Any, ...]]]:
    """Yield what each release does with the draft's keys, with what the diff found."""
    from workbench.checkpoint.open import open_checkpoint
    from workbench.keys.diff import diff_keys

    opened = open_checkpoint(draft)
    for engine, version in wanted:
        named = f"{engine}=={version}"
        try:
            described = registry.select(registry.parse(named), opened.config).certain
            diff = diff_keys(opened, named, target=target)
        except WorkbenchError as error:
            old = isinstance(error, EngineError)
            yield Cell(engine, version, None, error.what, described=not old), ()
            continue
        yield Cell(engine, version, diff.ok, diff.summary, diff.basis, described), diff.findings


def spans(found: Sequence[Cell]) -> str:
    """Return the releases in words: ``sglang 0.5.9–0.5.23, vllm 0.11.2–0.17.1 and 0.20.0–0.32.0``.

    A range has no release on file in it that is not among them.
    """
    parts = []
    for engine in dict.fromkeys(one.engine for one in found):
        have = {one.version for one in found if one.engine == engine and one.described}
        runs: list[list[str]] = [[]]
        for release in rows.releases(engine):
            if release in have:
                runs[-1].append(release)
            elif runs[-1]:
                runs.append([])
        texts = [run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs if run]
        if texts:
            parts.append(f"{engine} {' and '.join(texts)}")
    return ", ".join(parts)
