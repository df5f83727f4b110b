"""Harvested maps against the real loaders, on checkpoints that another program wrote: transformers itself.

The harvester makes names by undoing substitutions, and sizes by doubling fields. Here transformers' classes
write real files of other sizes, whole and damaged, and SGLang's loader says what becomes of them.
``python -m tests.engines.map_agreement RELEASE`` prints the counts of each class, for `maps_page`.
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests.engines import environments
from workbench.keys.diff import diff_keys
from workbench.loaders.maps import records
from workbench.loaders.maps.names import template_of
from workbench.loaders.running import run_tracer

FIELDS: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 320,
    "moe_intermediate_size": 96,
    "shared_expert_intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "vocab_size": 384,
    "num_experts": 5,
    "num_local_experts": 5,
    "n_routed_experts": 5,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What CI tries: quick classes, dense and with experts.
BATCH = 12  # classes at a time: their files lie on the disk meanwhile
SAMPLE = ("MistralForCausalLM", "Qwen2MoeForCausalLM")


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What both said of one checkpoint: ``same``, ``open`` where the map abstains, else the difference."""

    model_class: str
    damage: str
    said: str


def classes(release: str) -> list[str]:
    """Return the classes whose map is complete."""
    maps = records.maps_of("sglang", release).classes
    return [name for name, found in maps.items() if found.complete]


def damaged(folder: Path, seed: str) -> Iterator[tuple[str, Path]]:
    """Yield the checkpoint whole, and with one tensor gone, one renamed, one of another shape."""
    yield "whole", folder
    stored = load_file(folder / "model.safetensors")
    rng = random.Random(seed)
    for damage in ("one gone", "one prefixed", "one longer"):
        name = rng.choice(sorted(stored))
        other = dict(stored)
        tensor = other.pop(name)
        if damage == "one prefixed":
            other[f"model.{name}"] = tensor
        elif damage == "one longer":
            other[name] = tensor.new_zeros((tensor.shape[0] + 1, *tensor.shape[1:]))
        place = folder.with_name(f"{folder.name}-{damage.replace(' ', '-')}")
        shutil.copytree(folder, place)
        save_file(other, place / "model.safetensors")
        yield damage, place


def compare(release: str, names: Sequence[str], work: Path) -> list[Agreement]:
    """Return what the maps and the real loader say of the same files."""
    python = environments.ensure(f"sglang-{release}")
    asked = [(name, FIELDS, str(work / name)) for name in names]
    script = Path(__file__).with_name("save_transformers.py")
    done = subprocess.run(
        [python, script], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    failed = json.loads(done.stdout.splitlines()[-1])
    cases = [
        (name, damage, place)
        for name in names
        if name not in failed and (work / name / "model.safetensors").exists()
        for damage, place in damaged(work / name, name)
    ]
    jobs = [
        {"id": str(n), "checkpoint": str(place), "target": None, "model_class": name}
        for n, (name, _, place) in enumerate(cases)
    ]
    answers = run_tracer(python, jobs, engine="sglang", stubs=True, timeout=1800)
    found = []
    for (name, damage, place), answer in zip(cases, answers, strict=True):
        if not answer["unsupported"]:
            found.append(Agreement(name, damage, _said(place, release, name, answer)))
    return found


def _said(place: Path, release: str, name: str, answer: dict[str, Any]) -> str:
    diff = diff_keys(place, f"sglang=={release}:{name}")
    if diff.ok is None:
        return "open"
    lost = set(answer["unreached_or_dropped"])
    known = records.maps_of("sglang", release).classes[name]
    spared = {*known.unread, *known.shared}
    unfilled = {
        n for n, share in answer["written"].items() if share < 1 and template_of(n) not in spared
    }
    if answer["refused"]:
        return (
            "same"
            if diff.outcome == "refused"
            else f"the engine refuses it, the map says {diff.ok}"
        )
    if diff.outcome == "refused":
        return "the map says that the engine refuses it, and it does not"
    really = not (lost or unfilled or answer["mismatched"] or answer["resized"])
    if diff.ok is True and not really:
        return f"the map says it loads; lost {sorted(lost)[:2]}, unfilled {sorted(unfilled)[:2]}"
    if set(diff.dropped) - lost - set(answer["mismatched"]):
        return f"not dropped: {sorted(set(diff.dropped) - lost)[:2]}"
    if (set(diff.missing) | set(diff.partial)) - unfilled:
        return f"filled: {sorted((set(diff.missing) | set(diff.partial)) - unfilled)[:2]}"
    if diff.ok is False and really:
        return "the map says it does not load, and it does"
    return "same"


def rows(found: Sequence[Agreement]) -> dict[str, list[int]]:
    """Return for each class: checkpoints, how many agree, how many the map leaves open, how many differ."""
    counted = {}
    for name in dict.fromkeys(one.model_class for one in found):
        said = [one.said for one in found if one.model_class == name]
        same, left = said.count("same"), said.count("open")
        counted[name] = [len(said), same, left, len(said) - same - left]
    return counted


def main(arguments: Sequence[str]) -> int:
    """Compare the classes named, or all; print the rows, and each difference, as they come."""
    release, names = arguments[0], arguments[1:] or classes(arguments[0])
    every = {}
    for at in range(0, len(names), BATCH):
        with tempfile.TemporaryDirectory() as folder:
            found = compare(release, names[at : at + BATCH], Path(folder))
        every |= rows(found)
        for one in found:
            if one.said not in ("same", "open"):
                print(f"{one.model_class}, {one.damage}: {one.said}", file=sys.stderr, flush=True)
        print(f"{at + len(names[at : at + BATCH])} of {len(names)}", file=sys.stderr, flush=True)
    print(json.dumps(every))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
