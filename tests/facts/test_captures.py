"""Which layers SGLang captures for which ids, by release, and the ids that `fix` writes for it."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.checkpoint.config import Config
from workbench.facts import rows
from workbench.facts.capture_rules import RULES, capture_of
from workbench.facts.flat_config import flattened

DEEPSEEK = ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration")


def nested(target: str, ids: list[int], **verifier: Any) -> Config:
    return Config(
        {
            "speculators_model_type": "eagle3",
            "norm_before_residual": False,
            "eagle_aux_hidden_state_layer_ids": ids,
            "speculators_config": {"verifier": {"architectures": [target], **verifier}},
            "transformer_layer_config": {"model_type": "llama", "hidden_size": 64},
        },
        "config.json",
    )


def written(config: Config, version: str) -> tuple[list[int], tuple[str, ...]]:
    flat = flattened(config, version)
    return flat["eagle_config"]["eagle_aux_hidden_state_layer_ids"], flat.lost


@pytest.mark.parametrize("target", DEEPSEEK)
@pytest.mark.parametrize("version", ["0.5.11", "0.5.12", "0.5.12.post1"])
def test_older_releases_add_one_to_the_ids_of_deepseek(target: str, version: str) -> None:
    assert written(nested(target, [2, 30, 58]), version) == ([1, 29, 57], ())
    # An id list that begins with 1 can be expressed there, and not in the newer releases.
    assert written(nested(target, [1, 29, 57]), version) == ([0, 28, 56], ())


@pytest.mark.parametrize("target", DEEPSEEK)
@pytest.mark.parametrize("version", ["0.5.13", "0.5.14", "0.5.23"])
def test_newer_releases_take_the_ids_of_deepseek_as_given(target: str, version: str) -> None:
    assert written(nested(target, [2, 30, 58]), version) == ([2, 30, 58], ())
    ids, lost = written(nested(target, [1, 29, 57]), version)
    assert ids == [1, 29, 57]
    assert "begin with 1" in lost[0]


def test_the_ids_come_back_as_the_layers_that_were_meant() -> None:
    """In every release, for every class: what is written is captured as what the trainer named."""
    checked = 0
    for release in rows.releases("sglang"):
        for name in rows.names("sglang", "captures", release):
            capture = capture_of(release, [name])
            for wanted in ([2, 18, 33], [1, 18, 33], [3, 20, 36]):
                ids = capture.ids(wanted, 36)
                if ids is not None:
                    assert capture.layers(ids, 36) == wanted
                    checked += 1
    assert checked > 1000


def test_the_rule_of_gpt_oss_needs_the_number_of_layers() -> None:
    config = nested("GptOssForCausalLM", [2, 18, 36])
    assert "number of layers" in written(config, "0.5.17")[1][0]
    config = nested("GptOssForCausalLM", [2, 18, 36], num_hidden_layers=36)
    assert written(config, "0.5.17") == ([2, 18, 36], ())
    assert written(config, "0.5.16") == ([1, 17, 35], ())


def test_a_release_that_was_not_read_is_said() -> None:
    ids, lost = written(nested("KimiK25ForConditionalGeneration", [2, 30, 58]), "99.0.0")
    assert ids == [2, 30, 58]
    assert "SGLang 99.0.0 was not read" in lost[0]
    assert "the release is not named" in written(nested(DEEPSEEK[0], [2, 30, 58]), "")[1][0]
    # All releases agree on Llama: nothing is to be said where none is named.
    assert written(nested("LlamaForCausalLM", [2, 4, 5]), "") == ([1, 3, 4], ())


def test_a_class_without_a_rule_is_not_guessed() -> None:
    assert "no rule" in written(nested("NewForCausalLM", [2, 4, 5]), "0.5.14")[1][0]
    assert "0.4.9 on" in written(nested("LlamaForCausalLM", [2, 4, 5]), "0.4.6")[1][0]
    # 0.5.8 has no Kimi K2.5 that captures layers.
    assert capture_of("0.5.8", ["KimiK25ForConditionalGeneration"]).row is None


def test_most_rules_were_understood() -> None:
    release = rows.releases("sglang")[-1]
    values = [
        row.value
        for name in rows.names("sglang", "captures", release)
        if (row := rows.row_in("sglang", "captures", name, release)) is not None
    ]
    unknown = [value for value in values if value not in RULES]
    assert len(unknown) <= 3
    assert all(value.startswith("?") for value in unknown)
