"""What the workbench says of quantised checkpoints is what SGLang does: a sample; the rest by command."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engines import environments, quantised_agreement
from workbench.loaders import quantising
from workbench.loaders.maps import ignored, quantised
from workbench.loaders.profile import Refused

pytestmark = pytest.mark.engine
RELEASE = "0.5.23"
PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
LAYERS = (
    "self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj", "mlp.gate",
    "mlp.shared_experts.gate_up_proj", "self_attn.fused_qkv_a_proj_with_mqa", "self_attn.q_b_proj",
)  # fmt: skip
PARTS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
    "mlp.up_proj", "mlp.down_proj", "mlp.gate", "mlp.experts.0.gate_proj", "mlp.experts", "self_attn",
    "self_attn.q_a_proj", "self_attn.kv_b_proj", "mlp.shared_experts.up_proj",
)  # fmt: skip


@pytest.fixture
def python() -> Path:
    for name in (f"sglang-{RELEASE}", "quantisers"):
        if not environments.is_ready(name) and "engine" not in os.environ.get("REQUIRE", ""):
            pytest.skip(f"no environment {name}: make engines")
    return environments.ensure(f"sglang-{RELEASE}")


def _entry(rng: random.Random) -> str:
    name = f"model.layers.{rng.randrange(3)}.{rng.choice(PARTS)}"
    return rng.choice(
        [
            name, name, name.removeprefix("model."), f"language_model.{name}", name.split("layers.")[1],
            name.rpartition(".")[2], f"re:.*{name.rpartition('.')[2]}$", "re:.*lm_head", "lm_head",
            name.replace("layers.1", "layers.*"), f"{name}*", "re:model.layers.[01].self_attn.*",
        ]
    )  # fmt: skip


def _asked(count: int) -> list[list[Any]]:
    rng = random.Random(16)
    out: list[list[Any]] = []
    for _ in range(count):
        method = rng.choice(["compressed", "fp8", "awq", "gptq", "modelopt"])
        entries = [_entry(rng) for _ in range(rng.randrange(1, 5))]
        if rng.random() < 0.4:  # all parts of a fused layer
            entries += [f"model.layers.1.self_attn.{part}" for part in PACKED["qkv_proj"]]
        if method == "gptq":
            entries = [
                e.removeprefix("re:").replace("*", ".*").replace("..*", ".*") for e in entries
            ]
        experts = rng.random() < 0.2
        name = f"model.layers.{rng.randrange(3)}.{'mlp.experts' if experts else rng.choice(LAYERS)}"
        kind = "FusedMoE" if experts else "LinearBase"
        out.append([method, entries, rng.choice([PACKED, {}]), kind, name])
    return out


def _said(
    method: str, entries: list[str], packed: dict[str, list[str]], kind: str, name: str
) -> Any:
    rules = {
        "compressed": lambda: ignored.compressed(entries, packed),
        "fp8": lambda: ignored.fp8(entries, packed),
        "awq": lambda: ignored.awq(entries),
        "gptq": lambda: ignored.gptq(entries),
        "modelopt": lambda: ignored.modelopt(entries, packed),
    }
    try:
        return bool(rules[method]()(ignored.Asked(kind, name)))
    except Refused:
        return "ValueError"


def test_the_same_layers_are_left_out(python: Path) -> None:
    asked = _asked(3000)
    script = Path(__file__).with_name("ask_ignored.py")
    done = subprocess.run(
        [python, script], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    truth = json.loads(done.stdout)
    assert {True, False, "ValueError"} <= set(truth)
    wrong = [(one, said) for one, said in zip(asked, truth, strict=True) if _said(*one) != said]
    assert wrong == []


def test_quantised_checkpoints_agree(python: Path, tmp_path: Path) -> None:
    methods = ("ct-fp8-dynamic", "awq")
    found = list(quantised_agreement.compare(RELEASE, ["Qwen2ForCausalLM"], methods, tmp_path))
    assert len(found) > 15
    assert {one.said for one in found} <= {"same", "open"}
    assert {one.said for one in found if one.damage in ("whole", "scale gone", "codes gone")} == {
        "same"
    }


def test_the_data_are_what_the_harvest_sees(python: Path) -> None:
    name = "Qwen2ForCausalLM"
    raws = quantising.configs(str(python), [name])
    found = quantising.Harvest(str(python), RELEASE, raws).all()
    seen = quantised.quantised_of("sglang", RELEASE)
    assert seen is not None
    assert found[name] == seen.classes[name]
