"""The pairs of an adapter in the spellings of PEFT, mlx-lm and kohya, and what is absent from its file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Absent = tuple[tuple[str, str], ...]

# First and second factor: of PEFT (and its embeddings), of mlx-lm, of kohya's scripts and LyCORIS.
_PAIRS = (
    ("lora_A", "lora_B"),
    ("lora_embedding_A", "lora_embedding_B"),
    ("lora_a", "lora_b"),
    ("lora_down", "lora_up"),
)
_OTHER = dict(_PAIRS) | {second: first for first, second in _PAIRS}
# PEFT writes `lora_A.weight`; a file of the whole state has the adapter's name: `lora_A.default.weight`.
_FACTOR = re.compile(
    rf"(?P<module>.+)\.(?P<factor>{'|'.join(_OTHER)})(\.(?P<adapter>(?!weight$)[^.]+))?(\.weight)?"
)
# `lora_magnitude_vector` of PEFT, `m` of mlx-lm, `dora_scale` of LyCORIS; any other likely word counts, too.
_MAGNITUDE = re.compile(
    r"(?P<module>.+)\.(?:m|(?=[^.]*(?:magnitude|dora))[^.]+)(\.(?P<adapter>(?!weight$)[^.]+))?(\.weight)?"
)


def second_factor(name: str) -> str:
    """Return the name of the second factor of a pair whose first this is; "" where it is none."""
    match = _FACTOR.fullmatch(name)
    other = _OTHER[match["factor"]] if match else ""
    if match is None or (match["factor"], other) not in _PAIRS:
        return ""
    start, stop = match.span("factor")
    return name[:start] + other + name[stop:]


def absent_factors(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the factors that are not in the file while the other one of their pair is, with the reason."""
    matches = [match for name in names if (match := _FACTOR.match(name))]
    # Several second factors may share one first: any name of the other one will do.
    here = {(match["module"], match["factor"]) for match in matches}
    for match in matches:
        other = _OTHER[match["factor"]]
        if (match["module"], other) not in here:
            start, stop = match.span("factor")
            name = match.string
            yield (
                name[:start] + other + name[stop:],
                "it is not in the file; the other factor of its pair is",
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
    promise = _promise(adapter)
    if not promise:
        return ()
    modules: dict[str, dict[str, None]] = defaultdict(dict)  # of each adapter, in the file's order
    for module, called in _places(_FACTOR, names):
        modules[called][module] = None
    held: dict[str, set[str]] = defaultdict(set)
    for module, called in _places(_MAGNITUDE, names):
        held[module].add(called)
    suffix = "lora_magnitude_vector" if "use_dora" in promise else "m"
    lacking = [
        [
            f"{module}.{suffix}" + (f".{called}" if called else "")
            for module in members
            if not _agree(held[module], called)
        ]
        for called, members in modules.items()
    ]
    why = f"it is not in the file, and adapter_config.json says {promise}"
    # Of several adapters in one file the config describes one: the one that lacks least.
    return tuple((name, why) for name in min(lacking, key=len, default=()))


def _promise(adapter: Mapping[str, Any]) -> str:
    """Return what the config says that promises magnitudes, "" for nothing."""
    if adapter.get("use_dora") is True:
        return "use_dora: true"
    return 'fine_tune_type: "dora"' if adapter.get("fine_tune_type") == "dora" else ""


def _places(pattern: re.Pattern[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return module and adapter of each name that matches; the adapter is "" where it is not named."""
    matches = (pattern.fullmatch(name) for name in names)
    return [(match["module"], match["adapter"] or "") for match in matches if match]


def _agree(magnitudes: set[str], called: str) -> bool:
    """Say whether a pair's adapter has one of the module's magnitudes; a name on one side only agrees."""
    return bool(magnitudes) and (not called or called in magnitudes or "" in magnitudes)
