"""The checks of config.json against the real loaders: what passes must load. One process a version."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.test_config_checks import ABSENT, REFUSED, ROPE
from workbench.checkpoint.config import Config
from workbench.checkpoint.open import open_checkpoint
from workbench.loaders import registry
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.running import run_tracer
from workbench.loaders.simulate import simulate

from . import checkpoints, environments
from .checkpoints import Case

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

VERSIONS = environments.sglang_versions()
# Odd values that some release takes, and plain ones.
MORE: list[tuple[str, Any]] = [
    ("draft_vocab_size", True),
    ("draft_vocab_size", -1),
    ("draft_vocab_size", 0),
    ("num_attention_heads", True),
    ("num_key_value_heads", 3),
    ("num_key_value_heads", -1),
    ("head_dim", 33),
    ("head_dim", "32"),
    ("eagle_config", [1]),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": 5}),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": [1, 2]}),
    ("num_aux_hidden_states", "3"),
    ("rope_theta", "x"),
    ("rope_scaling", {}),
    ("rope_scaling", {"rope_type": "linear", "factor": 2.0}),
    ("rope_parameters", ROPE | {"rope_type": "mrope"}),
    ("rope_parameters", ROPE | {"rope_type": "dynamic", "alpha": 2.0}),
    ("return_dict", "x"),
    ("problem_type", "x"),
    ("id2label", "x"),
    ("partial_rotary_factor", "x"),
    ("torch_dtype", "float64"),
    ("torch_dtype", ABSENT),
    ("max_position_embeddings", ABSENT),
    ("eos_token_id", [1, 2]),
    ("pad_token_id", -1),
    ("foo", "x"),
]
CHANGES = [*REFUSED, *MORE]


def bases() -> list[Case]:
    return [checkpoints.draft("specforge"), checkpoints.dense("qwen3")]


def changed(case: Case, field: str, value: Any) -> dict[str, Any]:
    return {k: v for k, v in (dict(case.config) | {field: value}).items() if v is not ABSENT}


@cache
def answers(version: str, work: Path) -> dict[str, dict[str, Any]]:
    """What the real loader did with each change; a folder with a byte order mark and a square d2t last."""
    jobs = []
    for case in bases():
        folder = str(case.write(work))
        for number, (field, value) in enumerate(CHANGES):
            job = {"id": f"{case.name} {number}", "checkpoint": folder, "values": False}
            job |= {"model_class": case.model_class, "config": changed(case, field, value)}
            jobs.append(job)
    jobs.append({"id": "bom", "checkpoint": str(marked(work)), "values": False})
    python = environments.ensure(f"sglang-{version}")
    said = run_tracer(python, jobs, engine="sglang", stubs=True, timeout=60 + 2 * len(jobs))
    return {answer["id"]: answer for answer in said}


def marked(work: Path) -> Path:
    """A target whose config.json begins with a byte order mark."""
    folder = checkpoints.altered(checkpoints.dense("llama"), "marked").write(work)
    file = folder / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    return folder


def real(answer: dict[str, Any]) -> str:
    if answer["unsupported"]:
        return "unsupported"
    return "refused" if answer["refused"] else "raises" if answer["error"] else "loads"


def told(version: str, case: Case, config: dict[str, Any], work: Path) -> str:
    """What the profile says: an outcome, or that it cannot tell."""
    table = open_checkpoint(case.write(work)).table
    engine = registry.parse(f"sglang=={version}:{case.model_class}")
    try:
        profile = registry.select(engine, Config(config)).profiles[0][1]
        return simulate(profile, profile.build(Config(config)), table, version).outcome
    except Refused:
        return "refused"
    except NotCovered:
        return "unknown"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_checks_give_no_all_clear_and_accuse_nobody(
    version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not environments.is_ready(f"sglang-{version}"):
        pytest.skip(f"no environment sglang-{version}: make engines")
    work = tmp_path_factory.mktemp(version)
    found, alike = [], 0
    for case in bases():
        for number, (field, value) in enumerate(CHANGES):
            seen = real(answers(version, work)[f"{case.name} {number}"])
            said = told(version, case, changed(case, field, value), work)
            alike += said == seen
            if seen != "unsupported" and said not in (seen, "unknown"):
                found.append(
                    f"{case.name} {field}={json.dumps(value, default=str)}: {said}, {seen}"
                )
    assert real(answers(version, work)["bom"]) == "refused"
    assert told(version, bases()[0], dict(bases()[0].config), work) == "loads"
    # Wholly impossible numbers are called refused, whichever of several errors comes first.
    assert not found, "\n".join(found)
    strict = tuple(map(int, version.split("."))) >= (0, 5, 11)
    assert alike > len(CHANGES) * 2 * (0.85 if strict else 0.6), alike
