"""Quantised checkpoints of real writers: what the real loader makes of them, and what the workbench says.

``python -m tests.engines.quantised_agreement RELEASE [CLASS ...]`` writes small models (`write_quantised`),
damages them (`quantised_damage`) and loads each with SGLang as on GPUs of several compute capabilities. It
prints the counts of each class and method, for `maps_page`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.engines import environments
from tests.engines.quantised_damage import CODES, MORE, SCALES, damaged
from workbench.keys.diff import diff_keys
from workbench.loaders.running import run_tracer

CAPABILITIES = ("9.0", "10.0")
CLASSES = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Phi3ForCausalLM",
    "Gemma2ForCausalLM", "GraniteForCausalLM", "Glm4ForCausalLM", "Olmo2ForCausalLM", "Cohere2ForCausalLM",
    "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM",
    "Glm4MoeForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM",
)  # fmt: skip
METHODS = (
    "ct-fp8-dynamic", "ct-fp8-dynamic+head", "ct-fp8-static", "ct-fp8-block", "ct-int8", "ct-w4a16",
    "ct-w4a16+head", "ct-w4a16-g32", "ct-w4a16-asym", "ct-w8a16", "ct-nvfp4", "ct-nvfp4a16", "awq",
    "awq+head", "awq-g64", "gptq", "gptq+head", "gptq-order", "gptq-8bit", "gptq-g32", "fp8-block",
    "fp8-block+head", "fp8-static", "fp8-dynamic", "modelopt-fp8", "modelopt-nvfp4",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What both said of one checkpoint.

    ``said``: ``same``, ``open`` where the workbench cannot tell, else the difference. ``really``: whether it
    loads, by capability.
    """

    model_class: str
    method: str
    damage: str
    really: tuple[bool, ...]
    said: str
    why: str = ""


def written(names: Sequence[str], methods: Sequence[str], work: Path) -> dict[str, str]:
    """Write the models; return why some could not be written."""
    asked = []
    for name in names:
        own = ("mxfp4",) if name.startswith("GptOss") else methods
        asked += [(name, method, str(work / f"{name}={method}")) for method in own]
    script = Path(__file__).with_name("write_quantised.py")
    python = environments.ensure("quantisers")
    done = subprocess.run(
        [python, script], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def loaded(release: str, cases: Sequence[Path]) -> list[list[dict[str, Any]]]:
    """Return what the real loader says of each checkpoint, by capability."""
    python = environments.ensure(f"sglang-{release}")
    jobs = [
        {"id": str(n), "checkpoint": str(place), "target": None, "model_class": None}
        for n, place in enumerate(cases)
    ]
    by_capability = [
        run_tracer(python, jobs, engine="sglang", stubs=True, claim=capability, timeout=3600)
        for capability in CAPABILITIES
    ]
    return [list(answers) for answers in zip(*by_capability, strict=True)]


def last(name: str) -> str:
    """Return what a parameter of a module is called, ``weight_scale`` for that of stacked experts, too."""
    return re.sub(r"^(w13|w2|w1|w3)_", "", name.rpartition(".")[2])


def unfilled(answer: dict[str, Any], whole: dict[str, Any]) -> set[str]:
    """Return the parameters without values that the files of some method have values for.

    Others the engine makes for itself: no file has them.
    """
    stored = {last(key) for key in whole["stored"]} | {*CODES, *SCALES, *MORE}
    return {n for n, share in answer["written"].items() if share < 1 and last(n) in stored}


def loads(answer: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Tell whether everything went well."""
    bad = answer["refused"] or answer["unreached_or_dropped"] or answer["mismatched"]
    return not (bad or answer["resized"] or answer["unexplained"] or unfilled(answer, whole))


def compare(
    release: str, names: Sequence[str], methods: Sequence[str], work: Path
) -> Iterator[Agreement]:
    """Yield what the workbench and the real loader say of the same files."""
    failed = written(names, methods, work)
    wholes = [p for p in sorted(work.iterdir()) if str(p) not in failed]
    cases = [(w, damage, place) for w in wholes for damage, place in damaged(w)]
    answers = loaded(release, [place for _, _, place in cases])
    whole: list[dict[str, Any]] = []
    for (folder, damage, place), each in zip(cases, answers, strict=True):
        name, _, method = folder.name.partition("=")
        whole = each if damage == "whole" else whole
        if any(answer["unsupported"] for answer in each):
            yield Agreement(
                name, method, damage, (), "not tried", str(each[0]["unsupported"])[:200]
            )
            continue
        really = tuple(loads(a, w) for a, w in zip(each, whole, strict=True))
        said, why = _said(place, release, each, whole, really)
        yield Agreement(name, method, damage, really, said, why)


def _said(
    place: Path,
    release: str,
    answers: Sequence[dict[str, Any]],
    wholes: Sequence[dict[str, Any]],
    really: Sequence[bool],
) -> tuple[str, str]:
    diff = diff_keys(place, f"sglang=={release}")
    if diff.ok is None:
        return "open", diff.summary
    if diff.ok is True and not all(really):
        return "the workbench says it loads, and it does not", ""
    if diff.ok is False and any(really):
        return "the workbench says it does not load, and it does", ""
    for answer, whole in zip(answers, wholes, strict=True):
        if answer["refused"] or answer["unexplained"] or diff.outcome == "refused":
            continue
        lost = set(answer["unreached_or_dropped"]) | set(answer["mismatched"])
        if odd := set(diff.dropped) - lost:
            return f"not dropped: {sorted(odd)[:2]}", ""
        if odd := (set(diff.missing) | set(diff.partial)) - unfilled(answer, whole):
            return f"filled: {sorted(odd)[:2]}", ""
    return "same", ""


def counts(found: Sequence[Agreement]) -> dict[str, dict[str, list[int]]]:
    """Return for each class and method: checkpoints, how many agree, are left open, differ."""
    out: dict[str, dict[str, list[int]]] = {}
    for one in found:
        if one.said == "not tried":
            continue
        row = out.setdefault(one.model_class, {}).setdefault(one.method, [0, 0, 0, 0])
        row[0] += 1
        row[1 if one.said == "same" else 2 if one.said == "open" else 3] += 1
    return out


def main(arguments: Sequence[str]) -> int:
    """Compare the classes named, or all; print the counts, and each difference, as they come."""
    release, names = arguments[0], arguments[1:] or CLASSES
    every: list[Agreement] = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            every += compare(release, [name], METHODS, Path(folder))
        mine = [one for one in every if one.model_class == name]
        rows = counts(mine).get(name, {"": [0, 0, 0, 0]}).values()
        total = [sum(column) for column in zip(*rows, strict=True)]
        print(f"{name}: {total} of {len(mine)}", file=sys.stderr, flush=True)
        for one in mine:
            if one.said not in ("same", "open"):
                text = f"  {one.method}, {one.damage}: {one.said} {one.really} {one.why}"
                print(text, file=sys.stderr, flush=True)
    print(json.dumps(counts(every)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
