"""How faithful the replay is: recorded rounds of real SGLang servers, drafted again, run by run.

    python -m benchmarks.replay_fidelity [--prompts 200] [--write docs/replay.md]

Nothing is left out: not a round that is near a tie, not the last one of an answer, which may be cut. A second
replay sums in another order, which is as right as the first; where the two differ, bfloat16 does not decide.
Set OMP_NUM_THREADS=1 on a machine that is busy.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.expert_pair import DRAFT, RUNS, expert_target
from workbench import fix_checkpoint, open_checkpoint
from workbench.speculation.evidence.observed import Run, read_hidden, read_run, read_tensors
from workbench.speculation.judge.compare import (
    Difference,
    compare_draft,
    compare_hidden,
    hook_calls,
)
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.run import replay_rounds, run_freely
from workbench.speculation.rounds.setup import as_launched

DATA = Path(__file__).resolve().parents[1] / "data" / "incident"
# Run -> the draft it was served with.
HEALTHY = {
    "sglang-0.5.14/speculators": "speculators",
    "sglang-0.5.14/specforge": "specforge",
    "sglang-0.5.14/speculators-tree": "speculators",
    "sglang-0.5.11/repaired": "repaired",
    "sglang-0.5.11/specforge": "specforge",
    "sglang-0.5.11/repaired-tree": "repaired",
}
HOOKS = {
    "sglang-0.5.14/speculators-hooks": "speculators",
    "sglang-0.5.11/repaired-hooks": "repaired",
}
# The pair of another shape; its target is a model of transformers, in bfloat16 and in float32.
EXPERTS = ("chain", "tree")
ORDERS = (0, 64)  # Numerics.block: two orders of summation
BEGIN, END = "<!-- fidelity: made by benchmarks.replay_fidelity -->", "<!-- end of fidelity -->"


def replays(run: Run, draft: Path) -> tuple[list[Replayed], Replayed]:
    """Return the replay of a run in each order of summation, and a free one."""
    return _replays(run, draft, map(target_of, ORDERS))


def expert_replays(run: Run) -> tuple[list[Replayed], Replayed]:
    """Return the replay of a run with its target in bfloat16 and in float32, and a free one."""
    import torch

    return _replays(run, DRAFT, map(expert_target, (torch.bfloat16, torch.float32)))


def _replays(run: Run, draft: Path, targets: Iterable[Any]) -> tuple[list[Replayed], Replayed]:
    out, free = [], None
    for target in targets:
        loaded, driving = as_launched(run.launch, open_checkpoint(draft), target)
        trace = target.trace(run.texts, run.prompts, keep=driving.aux, starts=run.starts)
        out.append(replay_rounds(loaded, driving, trace, run.starts, run.emitted))
        free = free or run_freely(loaded, driving, trace)
    assert free is not None
    return out, free


def target_of(block: int) -> LlamaTarget:
    return LlamaTarget.read(open_checkpoint(DATA / "target"), Numerics("bfloat16", block))


def row_of(name: str, draft: Path | None, prompts: int) -> str:
    """Return the row of a run; without a draft it is one of the other pair."""
    run = read_run((DATA / "runs" / name) if draft else RUNS / name).some(prompts)
    began = time.monotonic()
    (first, second), free = replays(run, draft) if draft else expert_replays(run)
    agrees, same = first.agrees(), first.same_tokens()
    decided = first.emitted == second.emitted
    ends = {(int(r), int(k)) for r, k in zip(first.request, first.prefix, strict=True)}
    shared = [(int(r), int(k)) in ends for r, k in zip(free.request, free.prefix, strict=True)]
    cells = (
        name if draft else f"experts/{name}",
        f"{len(first):,}",
        f"{first.observed.mean():.3f}",
        f"{first.emitted.mean():.3f}",
        f"{agrees.mean():.2%}",
        f"{same.mean():.2%}",
        f"{decided.mean():.2%}",
        f"{agrees[decided].mean():.2%} of {int(decided.sum()):,}",
        f"{int((~agrees & decided).sum())}",
        f"{free.emitted.mean():.3f}",
        f"{np.mean(shared):.2%}",
    )
    print(f"{name}: {time.monotonic() - began:.0f} s, {agrees.mean():.2%}", flush=True)
    return "| " + " | ".join(cells) + " |"


def hooks_of(name: str, draft: Path) -> list[str]:
    folder = DATA / "runs" / name
    run, target = read_run(folder), target_of(0)
    loaded, driving = as_launched(run.launch, open_checkpoint(draft), target)
    trace = target.trace(run.texts, run.prompts, starts=run.starts)
    found: list[Difference] = []
    if hidden := read_hidden(folder):
        found += compare_hidden(hidden, trace, driving.aux or ())
    calls = list(hook_calls(read_tensors(folder, "hooks")))
    found += compare_draft(calls, loaded, driving, trace)
    return [
        f"| {name} | {d.name} | {d.rows} | {d.cosine:.5f} | {d.largest:.3f} | {d.relative:.2%} |"
        for d in found
    ]


def tables(prompts: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        drafts = {name: DATA / "drafts" / name for name in ("speculators", "specforge")}
        drafts["repaired"] = Path(folder) / "repaired"
        fix_checkpoint(drafts["speculators"], "sglang==0.5.11", drafts["repaired"])
        rows = [row_of(name, drafts[draft], prompts) for name, draft in HEALTHY.items()]
        rows += [row_of(name, None, prompts) for name in EXPERTS]
        hooks = [line for name, draft in HOOKS.items() for line in hooks_of(name, drafts[draft])]
    return "\n".join(
        (
            f"{prompts} prompts of 48 new tokens, bfloat16, each round from the engine's own prefix.",
            "",
            "| run | rounds | accept length, engine | replay | rounds agree | and the very tokens "
            "| replay with itself | agree where the replay is sure | sure and wrong "
            "| accept length, free | rounds begin alike, free |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "| run | what | rows | least cosine | largest difference | relative |",
            "|---|---|---|---|---|---|",
            *hooks,
        )
    )


def write(path: Path, text: str) -> None:
    """Put the tables between their marks; a file without marks gets them at its end."""
    old = path.read_text() if path.exists() else "# The replay\n"
    block = f"{BEGIN}\n{text}\n{END}"
    if BEGIN in old and END in old:
        head, _, rest = old.partition(BEGIN)
        new = head + block + rest.partition(END)[2]
    else:
        new = f"{old.rstrip()}\n\n## How faithful it is\n\n{block}\n"
    path.write_text(new)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--write", type=Path, help="Markdown file that holds the tables")
    chosen = parser.parse_args(arguments)
    text = tables(chosen.prompts)
    print(text)
    if chosen.write:
        write(chosen.write, text)


if __name__ == "__main__":
    main()
