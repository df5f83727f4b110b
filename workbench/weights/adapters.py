"""What an adapter's own config says that its file holds: with `use_dora`, a magnitude for each LoRA pair."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Absent = tuple[tuple[str, str], ...]

# PEFT writes `lora_A.weight`; a file of the whole state has the adapter's name: `lora_A.default.weight`.
_FACTOR = re.compile(
    r"(?P<module>.+)\.lora_(embedding_)?[AB](\.(?P<adapter>(?!weight$)[^.]+))?(\.weight)?"
)
# PEFT calls it `lora_magnitude_vector`; what other programs call it is not known, so each likely word counts.
_MAGNITUDE = re.compile(
    r"(?P<module>.+)\.(?=[^.]*(magnitude|dora))[^.]+(\.(?P<adapter>(?!weight$)[^.]+))?(\.weight)?"
)


def absent_magnitudes(names: Sequence[str], adapter: Mapping[str, Any]) -> Absent:
    """Return the magnitudes that a DoRA adapter lacks, each with the reason.

    Parameters
    ----------
    names
        All tensors of the adapter.
    adapter
        Its adapter_config.json; empty without one.
    """
    if adapter.get("use_dora") is not True:
        return ()
    modules: dict[str, dict[str, None]] = defaultdict(dict)  # of each adapter, in the file's order
    for module, called in _places(_FACTOR, names):
        modules[called][module] = None
    held: dict[str, set[str]] = defaultdict(set)
    for module, called in _places(_MAGNITUDE, names):
        held[module].add(called)
    lacking = [
        [
            f"{module}.lora_magnitude_vector" + (f".{called}" if called else "")
            for module in members
            if not _agree(held[module], called)
        ]
        for called, members in modules.items()
    ]
    # Of several adapters in one file the config describes one: the one that lacks least.
    return tuple((name, _WHY) for name in min(lacking, key=len, default=()))


_WHY = "it is not in the file, and adapter_config.json says use_dora: true"


def _places(pattern: re.Pattern[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return module and adapter of each name that matches; the adapter is "" where it is not named."""
    matches = (pattern.fullmatch(name) for name in names)
    return [(match["module"], match["adapter"] or "") for match in matches if match]


def _agree(magnitudes: set[str], called: str) -> bool:
    """Say whether a pair's adapter has one of the module's magnitudes; a name on one side only agrees."""
    return bool(magnitudes) and (not called or called in magnitudes or "" in magnitudes)
