"""Replaying and ablating the shipped pair: one replay, all ablations, and against generating anew.

    OMP_NUM_THREADS=2 python -m benchmarks.replay [--prompts 200] [--tokens 64] [--look 200]

The draft is the incident's, as SGLang 0.5.11 loads it. To generate anew means that the target answers the
prompts again for every change, as a benchmark of a server would. Most changes are tried on the first look's
requests alone; with ``--look 200`` every change is tried on all, and nothing is saved by that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.ablate.single_changes import FIRST_PASS, ablate
from workbench.speculation.evidence.observed import DraftLaunch, read_run
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import generate

T = TypeVar("T")
DATA = Path(__file__).resolve().parents[1] / "data" / "incident"
LAUNCH = DraftLaunch(
    "sglang==0.5.11", "EAGLE3", steps=4, topk=1, draft_tokens=5, graphs=False, backend="triton",
    dtype="bfloat16",
)  # fmt: skip


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return how long something took, by the clock, and what it returned."""
    begin = time.perf_counter()
    out = work()
    return time.perf_counter() - begin, out


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument(
        "--generated", type=int, default=40, help="prompts that are generated again"
    )
    parser.add_argument("--look", type=int, default=FIRST_PASS, help="requests of the first pass")
    chosen = parser.parse_args(arguments)
    target = LlamaTarget.read(open_checkpoint(DATA / "target"), Numerics("bfloat16"))
    run = read_run(DATA / "runs" / "sglang-0.5.14" / "speculators").some(chosen.prompts)
    prompts = [request.prompt for request in run.requests]
    expected = Expected.of_training(DATA / "training" / "draft-report.json", LAUNCH.steps)

    begun, trial = timed(
        lambda: Trial.of_prompts(
            target, DATA / "drafts" / "speculators", prompts, launch=LAUNCH,
            new_tokens=chosen.tokens, expected=expected,
        )
    )  # fmt: skip
    replaying, replayed = timed(lambda: trial.replayed)
    ablating, result = timed(lambda: ablate(trial, requests=chosen.look))
    changes = [*result.lifts, *result.pairs]
    few = prompts[: chosen.generated]
    anew, _ = timed(lambda: generate(target, trial.draft, trial.driving, few, chosen.tokens))
    anew /= len(few)
    print(f"{len(prompts)} prompts, {chosen.tokens} new tokens, {len(replayed)} rounds")
    print(f"  target once (answers and trace)   {begun:8.1f} s")
    print(f"  one replay                        {replaying:8.1f} s")
    print(f"  {len(changes):3d} ablations (first pass {chosen.look:3d})    {ablating:8.1f} s")
    for what, requests in (
        ("each as its own generation", len(prompts) * len(changes)),
        ("… of the requests replayed", sum(change.requests for change in changes)),
    ):
        seconds = anew * requests
        cheaper = seconds / (begun + ablating)
        print(f"  {what:33} {seconds:8.1f} s, {cheaper:.1f} x the whole")
    print(f"  {result.summary}")


if __name__ == "__main__":
    main()
