"""CPU time of a whole diff of 208,000 keys: as they are, one expert shard short, and all renamed."""

from __future__ import annotations

import dataclasses
import statistics
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.kimi_like import Shape, write
from workbench.checkpoint.open import open_checkpoint
from workbench.checkpoint.records import TensorTable
from workbench.keys.diff import diff_keys
from workbench.keys.rename import propose
from workbench.loaders import registry
from workbench.loaders.simulate import simulate

ENGINE = "sglang==0.5.14"
REPEATS = 5
SHARD = "language_model.model.layers.17.mlp.experts.203.down_proj.weight_packed"


def variants(table: TensorTable) -> dict[str, TensorTable]:
    """Return the checkpoint as it is, one expert shard short, and under a prefix nobody knows."""
    keep = [at for at, name in enumerate(table.names) if name != SHARD]
    return {
        "as it is": table,
        "one expert shard missing": table.select(keep),
        "all keys under draft_model.": table.renamed([f"draft_model.{n}" for n in table.names]),
        "every key lost, no rename fits": table.renamed([f"{n[::-1]}" for n in table.names]),
    }


def files() -> None:
    """Print what `diff_keys` takes from the files on, for few and for many of them."""
    for shards, prefix in ((64, ""), (1000, ""), (64, "draft_model."), (1000, "draft_model.")):
        with TemporaryDirectory() as folder:
            write(Path(folder) / "kimi", Shape(), shards, prefix=prefix)
            seconds = []
            for _ in range(REPEATS):
                start = time.process_time()
                diff = diff_keys(Path(folder) / "kimi", ENGINE)
                seconds.append(time.process_time() - start)
            what = "as it is" if diff.ok else f"all keys under {prefix}"
            print(f"  diff_keys, {shards} files, {what:30} {statistics.median(seconds):6.2f}")


def main() -> None:
    """Print a line a variant."""
    print(f"{ENGINE}; seconds of CPU, median of {REPEATS}")
    files()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kimi"
        write(path, Shape())
        checkpoint = open_checkpoint(path)
        choice = registry.select(registry.parse(ENGINE), checkpoint.config)
        ((version, profile),) = choice.profiles
        print(f"{ENGINE}, {len(checkpoint.table):,} tensors; seconds of CPU, median of {REPEATS}")
        for name, table in variants(checkpoint.table).items():
            seconds = []
            for _ in range(REPEATS):
                fresh = dataclasses.replace(table)  # nothing of an earlier round is kept in it
                start = time.process_time()
                model = profile.build(checkpoint.config)
                outcome = simulate(profile, model, fresh, version)
                renames = propose(
                    fresh, outcome, partial(simulate, profile, model, version=version)
                )
                seconds.append(time.process_time() - start)
            lost = sum(len(g.names) for g in outcome.keys if g.status == "dropped")
            wanted = [n for g in outcome.parameters for n in g.wanted]
            proved = next((r.text for r in renames if r.proved), "-")
            print(
                f"  {name:30} {statistics.median(seconds):6.2f}   "
                f"lost {lost}, wanted {wanted[:1]}{'…' if len(wanted) > 1 else ''}, rename {proved}"
            )


if __name__ == "__main__":
    main()
