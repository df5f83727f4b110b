"""Write docs/conformance.md: the profiles of SGLang against its real loader, checkpoint by checkpoint.

``python -m tests.engines.tables [--mutations N] [VERSION ...]``; ``make tables`` calls it without options.
Exit status 1: profile and real loader differ somewhere; the file is written all the same and says where.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import checkpoints, conformance, environments, mutations
from .checkpoints import Case
from .conformance import Sets
from .eagle_drafts import eagle_drafts

OUT = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
MUTATIONS = 100
COLUMNS = ("loaded", "lost", "mismatched", "resized", "missing", "partial")

HEAD = """\
# Profiles against real loaders

Made by `make tables`; do not edit. Each checkpoint is loaded by the real model class of that SGLang release,
in an environment of its own (tests/engines/environments.py), and watched (workbench/loaders/tracer). The
profile of the release answers for the same checkpoint from names, shapes and config alone. The two are
compared name by name, not only by count: which keys reach the model, which are lost (dropped or skipped on
purpose: watching cannot distinguish these), at which the loader raises, which are silently cut or padded to
fit, which parameters are never written, which are written in part and to which share, and which parameters
exist.

What this does not show: the releases ran on a CPU with torch {torch}, not the torch they pin, on one rank,
with stand-ins for the GPU packages (nothing of them is called while loading). Layers take their share of a
tensor as they do on a GPU. The step that fills parameters after loading (the target's embedding) is not run;
parameters that it would fill count as missing here, on both sides.

Numbers are profile/real, or one number if both agree. "lost" counts dropped and ignored keys.
"""


def main(arguments: Sequence[str]) -> int:
    """Trace, compare, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=environments.sglang_versions())
    parser.add_argument("--mutations", type=int, default=MUTATIONS)
    asked = parser.parse_args(arguments)
    summary, bodies, differing, torch = [], [], 0, ""
    for version in asked.versions:
        start = time.monotonic()
        cases = [*checkpoints.drafts(), *eagle_drafts(), *checkpoints.targets()]
        mutated = list(mutations.mutations(asked.mutations, version))
        answers = conformance.traced(version, [*cases, *mutated])
        wrong = conformance.compare(version, [*cases, *mutated], answers)
        differing += len(wrong)
        some: dict[str, Any] = next(iter(answers.values()))
        torch = some["torch"]
        summary.append(
            f"| {version} | {some['transformers']} | {len(cases)} | {len(mutated)} "
            f"| {sum(1 for name in answers if name not in wrong)} | {len(wrong)} |"
        )
        bodies.append(_body(version, cases, mutated, answers, wrong))
        print(f"{version}: {len(wrong)} differ, {time.monotonic() - start:.0f} s", file=sys.stderr)
    lines = [
        HEAD.format(torch=torch),
        "| SGLang | transformers | checkpoints | mutations | agree | differ |",
        "|---|---|---|---|---|---|",
        *summary,
        "",
        *bodies,
    ]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join(lines))
    return 1 if differing else 0


def _body(
    version: str,
    cases: Sequence[Case],
    mutated: Sequence[Case],
    answers: dict[str, dict[str, Any]],
    wrong: dict[str, list[str]],
) -> str:
    lines = [
        f"## SGLang {version}",
        "",
        f"| checkpoint | class | keys | outcome | {' | '.join(COLUMNS)} |",
        f"|{'---|' * (4 + len(COLUMNS))}",
    ]
    for case in cases:
        profile = conformance.profile_sets(version, case)
        real = conformance.real_sets(answers[case.name])
        lines.append(_row(case, profile, real, case.name in wrong))
    totals = [_outcome(conformance.real_sets(answers[case.name])) for case in mutated]
    counted = ", ".join(f"{totals.count(name)} {name}" for name in sorted(set(totals)))
    bad = [case.name for case in mutated if case.name in wrong]
    lines += ["", f"{len(mutated)} random mutations (really: {counted}): {len(bad)} differ.", ""]
    if wrong:
        lines += ["Differences:", ""]
        lines += [f"- `{name}`: {'; '.join(said)}" for name, said in wrong.items()]
        lines.append("")
    return "\n".join(lines)


def _row(case: Case, profile: Sets, real: Sets, differs: bool) -> str:
    outcome = _pair(_outcome(profile), _outcome(real))
    if "refused" in (profile.outcome, real.outcome) or "unknown" in (profile.outcome, real.outcome):
        numbers = ["–"] * len(COLUMNS)
    else:
        numbers = [_pair(len(getattr(profile, c)), len(getattr(real, c))) for c in COLUMNS]
    mark = " **differs**" if differs else ""
    return (
        f"| {case.name}{mark} | {case.model_class} | {len(case.tensors)} | {outcome} "
        f"| {' | '.join(numbers)} |"
    )


def _outcome(sets: Sets) -> str:
    return {"unknown": "no such class or profile"}.get(sets.outcome, sets.outcome)


def _pair(mine: object, other: object) -> str:
    return str(mine) if mine == other else f"{mine}/{other}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
