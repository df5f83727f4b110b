"""Write docs/quantised.md: which classes answer for which quantised weights, and how that agrees with SGLang.

``python -m tests.engines.quantised_page``; the counts are those of ``quantised_counts.json``, which
`quantised_agreement` printed: ``untuned`` before anything was changed for a class, ``tuned`` as it is now.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.engines.maps_page import wilson
from workbench.loaders.maps import quantised, records
from workbench.loaders.maps.quantised import PASSES, REFUSES, Layers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quantised.md"
COUNTS = Path(__file__).with_name("quantised_counts.json")
MARKS = "+RL~–"
Counts = Mapping[
    str, Mapping[str, Sequence[int]]
]  # class -> method -> checkpoints, same, open, differ
_HEAD = """# Quantised weights of harvested classes

Made by `python -m tests.engines.quantised_page`; do not edit. A map of a class ([harvested.md](harvested.md))
says which tensors it takes unquantised, and `quantization_config` which layers are stored in another way
(`workbench/loaders/maps/layouts.py`). Both together are the answer, but only for a class and a scheme that
the real loader was seen to take together: `python -m workbench.loaders.quantising` builds the class as a
server does, on a GPU that is only claimed, and gives its loader every tensor, without values.

An answer holds for one rank on an NVIDIA GPU of each compute capability that was claimed: {capabilities}.
Where these differ the answer is "cannot tell", and says how. Not tried, and so "cannot tell":

- bitsandbytes, GGUF, MXFP4 and MXFP8, Quark, AutoRound's own format, several config groups, scales of the
  KV cache, `hf_quant_config.json` without a `quantization_config`, group sizes other than those below;
- layers whose rows are no multiples of {rows} or whose columns are none of {columns}; experts that lie
  stacked in the file; lists of layers of classes that substitute in names; dtypes that no writer uses;
- what happens after loading, such as repacking for a kernel.
"""


def mark(held: Mapping[str, str]) -> str:
    """Return what became of a class with a scheme: one of `MARKS`, which the page explains."""
    if not any(held.values()):
        return "+"
    if all(said.startswith(REFUSES) for said in held.values()):
        return "R"
    if all(said.startswith(PASSES) for said in held.values()):
        return "L"
    return "–" if all(held.values()) else "~"


def table(classes: Mapping[str, Layers]) -> list[str]:
    """Return the lines of the table by scheme and class."""
    names = list(dict.fromkeys(scheme for one in classes.values() for scheme in one.holds))
    lines = [
        "`+` loads as predicted; `R` refused, `L` loses the scales of every layer, on every GPU that was",
        'tried, and answered so; `~` GPUs differ, `–` something else was seen: both are "cannot tell".\n',
        "| scheme | " + " | ".join(MARKS) + " | not `+` in |",
        "|---|" + "---|" * (len(MARKS) + 1),
    ]
    for scheme in names:
        marks = {
            name: mark(one.holds[scheme]) for name, one in classes.items() if scheme in one.holds
        }
        every = list(marks.values())
        odd = ", ".join(f"{name} {said}" for name, said in marks.items() if said != "+")
        counted = " | ".join(str(every.count(said)) for said in MARKS)
        lines.append(f"| {scheme} | {counted} | {odd or '–'} |")
    return lines


def said(counts: Counts) -> str:
    """Return the counts in a sentence."""
    rows = [row for methods in counts.values() for row in methods.values()]
    total, same, left, differ = (sum(column) for column in zip(*rows, strict=True))
    low, high = wilson(differ, same + differ)
    return (
        f"{len(counts)} classes, {total:,} checkpoints: {same:,} agree, {differ} differ, {left:,} open. "
        f"Share that differs, of those answered: {differ / (same + differ):.1%} (95 % interval "
        f"{low:.1%} to {high:.1%})."
    )


def agreement(release: str) -> list[str]:
    """Return the section about the agreement with the real loader."""
    kept: dict[str, Counts] = json.loads(COUNTS.read_text())
    lines = [
        f"\n## Agreement with the real loader of SGLang {release}\n",
        "compressed-tensors, AutoAWQ, AutoRound and ModelOpt packed small models of transformers; each was",
        "damaged in up to twelve ways (`tests/engines/quantised_damage.py`), and loaded as on each GPU",
        f"(`python -m tests.engines.quantised_agreement {release}`; mostly some of the methods).\n",
        f"- Each class at its first comparison, before anything was changed for it: {said(kept['untuned'])}",
        f"- All, as it is now: {said(kept['tuned'])}\n",
        "| class | method | same | open | differ |",
        "|---|---|---|---|---|",
    ]
    for name, methods in kept["tuned"].items():
        lines += [
            f"| {name} | {m} | {row[1]} | {row[2]} | {row[3]} |" for m, row in methods.items()
        ]
    return lines


def page() -> str:
    """Return the whole page."""
    release = records.harvested("sglang")[-1]
    seen = quantised.quantised_of("sglang", release)
    assert seen is not None
    tried = {name: one for name, one in seen.classes.items() if one.holds}
    head = _HEAD.format(
        capabilities=" and ".join(seen.capabilities), rows=quantised.ROWS, columns=quantised.COLUMNS
    )
    lines = [f"\n## SGLang {release}\n", f"{len(tried)} classes were tried.", *table(tried)]
    lines += ["\nClasses: " + ", ".join(tried) + "."]
    return head + "\n".join([*lines, *agreement(release)]) + "\n"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
