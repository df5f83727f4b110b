"""Changes to config.json that the real loaders are asked about, and what the profiles say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.loaders.test_config_checks import ABSENT, REFUSED, ROPE
from workbench.checkpoint.config import Config
from workbench.checkpoint.open import open_checkpoint
from workbench.loaders import registry
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.simulate import simulate

from . import checkpoints
from .checkpoints import Case

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


def jobs(work: Path) -> list[dict[str, Any]]:
    """Every change to every base; a folder with a byte order mark and a square d2t last."""
    found: list[dict[str, Any]] = []
    for case in bases():
        folder = str(case.write(work))
        for number, (field, value) in enumerate(CHANGES):
            job = {"id": f"{case.name} {number}", "checkpoint": folder, "values": False}
            job |= {"model_class": case.model_class, "config": changed(case, field, value)}
            found.append(job)
    return [*found, {"id": "bom", "checkpoint": str(marked(work)), "values": False}]


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
