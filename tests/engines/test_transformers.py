"""The profiles of transformers against the real library, in the interpreters of the SGLang tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.engines import environments
from workbench.checkpoint.config import Config
from workbench.checkpoint.open import open_checkpoint
from workbench.checkpoint.templates import fill
from workbench.loaders import hf
from workbench.loaders.profile import Profile
from workbench.loaders.simulate import simulate

pytestmark = pytest.mark.engine

# The transformers that each environment pins.
PINNED = {"sglang-0.5.8": "4.57.1", "sglang-0.5.14": "5.8.1", "sglang-0.5.23": "5.19.0"}
SCRIPT = Path(__file__).parent / "load_transformers.py"
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
Tensors = dict[str, np.ndarray]


def move(old: str, new: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {k.replace(old, new): v for k, v in tensors.items()}


def drop(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {k: v for k, v in tensors.items() if part not in k}


def add(name: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: np.zeros(shape, np.float32)}


CASES: dict[str, tuple[Callable[[Tensors], Tensors], dict[str, Any]]] = {
    "whole": (dict, {}),
    "biased": (dict, {"attention_bias": True, "mlp_bias": True}),
    "one key renamed": (move("layers.1.mlp.up_proj", "layers.1.mlp.up"), {}),
    "a norm missing": (drop("layers.0.input_layernorm"), {}),
    "a key too many": (add("model.layers.0.self_attn.rotary.x", 4), {}),
    "an old table": (add("model.layers.0.self_attn.rotary_emb.inv_freq", 8), {}),
    "a layer too many": (add("model.layers.2.mlp.up_proj.weight", 96, 64), {}),
    "a wrong shape": (add("model.norm.weight", 32), {}),
    "saved without the head": (lambda t: move("model.", "")(drop("lm_head")(t)), {}),
    "tied, without head": (drop("lm_head"), {"tie_word_embeddings": True}),
    "tied, with both": (add("lm_head.weight", 128, 64), {"tie_word_embeddings": True}),
}


def profile(model_class: str, version: str) -> Profile:
    five = version.startswith("5")
    return next(
        p for p in hf.PROFILES if p.model_class == model_class and p.last.startswith("5") == five
    )


def write(folder: Path, rules: Profile, case: str) -> None:
    """Write a checkpoint of the tensors that the profile asks for, altered."""
    change, config = CASES[case]
    kind = hf.KINDS[rules.model_class]
    fields = SIZES | config | {"model_type": kind, "architectures": [rules.model_class]}
    fields |= {"head_dim": 16} if kind == "qwen3" else {}
    tensors = {}
    for slot in rules.build(Config(fields)).slots:
        if not slot.alternative:
            for name in fill(slot.template, slot.index):
                tensors[name] = np.ones(slot.shape or (), np.float32)
    folder.mkdir()
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields))


@pytest.mark.parametrize("name", PINNED)
def test_the_profiles_say_what_the_library_reports(name: str, tmp_path: Path) -> None:
    if not environments.is_ready(name):
        pytest.skip(f"{name} is not built: python -m tests.engines.environments {name}")
    tried = []
    for model_class in hf.KINDS:
        rules = profile(model_class, PINNED[name])
        for case in CASES:
            tried.append((rules, case, tmp_path / str(len(tried))))
            write(tried[-1][-1], rules, case)
    folders = [str(folder) for _, _, folder in tried]
    command = [str(environments.interpreter(name)), str(SCRIPT), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=500)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {line.get("version") for line in lines} - {None} == {PINNED[name]}
    for (rules, case, folder), real in zip(tried, lines, strict=True):
        checkpoint = open_checkpoint(folder)
        model = rules.build(checkpoint.config)
        outcome = simulate(rules, model, checkpoint.table, PINNED[name])
        what = (rules.model_class, case)
        assert (outcome.outcome == "raises") == bool(real["error"]), (what, real)
        if real["error"]:
            continue
        missing = {n for g in outcome.parameters if g.status == "missing" for n in g.names}
        lost = {n for g in outcome.keys if g.status == "dropped" for n in g.names}
        assert (missing, lost) == (set(real["missing_keys"]), set(real["unexpected_keys"])), what
