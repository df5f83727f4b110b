"""Classes and model types that releases register and nothing describes: never an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from workbench.checkpoint.config import Config
from workbench.keys.diff import diff_keys
from workbench.loaders import registered, registry
from workbench.loaders.config_checks import Rules, check
from workbench.loaders.profile import Refused


@pytest.mark.parametrize(
    ("model_class", "version", "said"),
    [
        ("DFlash2DraftModel", "0.5.9", "the first release with it is 0.5.19"),
        ("DFlash2DraftModel", "0.5.18", "the first release with it is 0.5.19"),
        ("DFlash2DraftModel", "0.5.19", "0.5.19 has this class (sglang/srt/models/dflash.py)"),
        ("DFlash2DraftModel", "", "0.5.23 has this class"),
        ("DFlash2DraftModel", "0.5.23+gabc", "not a release of sglang that is known here"),
        ("NobodysForCausalLM", "0.5.23", "no release of sglang from"),
    ],
)
def test_what_is_known_of_a_class(model_class: str, version: str, said: str) -> None:
    assert said in registered.known("sglang", model_class, version)


@pytest.mark.parametrize(
    ("model_class", "kind"),
    [
        ("DFlash2DraftModel", "a DFlash draft"),
        ("Qwen3DSparkModel", "a DSpark draft"),
        ("MedusaModel", "a draft with Medusa heads"),
        ("MiMoMTP", "the multi-token prediction layer of its target, loaded as a draft"),
        ("LlamaForCausalLMEagle3", "an EAGLE-3 draft"),
        ("MistralForCausalLM", ""),
    ],
)
def test_the_kind_of_a_draft_is_in_its_class(model_class: str, kind: str) -> None:
    assert registered.kind_of(model_class) == kind


def test_every_registered_class_has_an_answer() -> None:
    from workbench.facts import rows

    for name in rows.names("sglang", "class", "0.5.23"):
        choice = registry.select(registry.parse(f"sglang==0.5.23:{name}"), Config({}))
        assert choice.profiles, name


@pytest.mark.parametrize(
    ("release", "refused"),
    [("0.5.23", False), ("0.5.12", False), ("0.5.11", True), ("0.5.9", True)],
)
def test_kimi_k2_is_a_type_of_sglang_from_0_5_12_on(release: str, refused: bool) -> None:
    rules = Rules("5.6.0", sglang=True, release=release)
    config = Config({"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]})
    if refused:
        with pytest.raises(Refused):
            check(config, rules)
    else:
        check(config, rules)


def test_a_class_without_a_description_is_cannot_tell(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NobodysModel"]}))
    save_file({"model.norm.weight": torch.ones(4)}, tmp_path / "model.safetensors")
    for engine in ("sglang", "sglang==0.5.23", "vllm==0.32.0"):
        found = diff_keys(tmp_path, engine)
        assert found.ok is None
        assert "NobodysModel" in found.summary
