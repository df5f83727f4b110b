"""Contracts by class and by form: how many layers fc joins, names with a prefix, versions that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .test_contracts import KEPT, Checkpoint, D, H, draft, run, target
from .test_contracts_borders import VLLM, borrowing, certainty, joined, nested, normed

IDS = "eagle_aux_hidden_state_layer_ids"
FOUR = [1, 3, 5, 7]
LLAMA = ("sglang==0.5.14", "LlamaForCausalLMEagle3")
DEEPSEEK = ("sglang==0.5.14", "Eagle3DeepseekV2ForCausalLM")
QWEN = ("vllm==0.32.0", "Eagle3Qwen3ForCausalLM")
INNER = {"eagle_config": {IDS: FOUR}}


@pytest.mark.parametrize(
    ("where", "config", "layers"),
    [
        # The number, else the list, else three; of two lists these classes take that at the top level.
        (LLAMA, {}, 3),
        (LLAMA, INNER, 4),
        (LLAMA, INNER | {"num_aux_hidden_states": 2}, 2),
        (LLAMA, {IDS: FOUR}, 3),
        *[
            (where, config, layers)
            for where in (DEEPSEEK, QWEN)
            for config, layers in (
                ({}, 3),
                (INNER, 4),
                ({IDS: FOUR}, 4),
                ({IDS: FOUR[:2]} | INNER, 2),
                (INNER | {"num_aux_hidden_states": 5}, 5),
            )
        ],
    ],
)
def test_how_many_layers_a_class_builds_fc_for(
    where: tuple[str, str], config: dict[str, Any], layers: int
) -> None:
    for width in range(2, 6):
        found = run(joined(width, **config), *where)
        assert ("fc_width" in found) is (width != layers), width


@pytest.mark.parametrize(
    "where",
    [("sglang==0.5.14", "LlamaForCausalLM"), ("transformers==5.0.0", "LlamaForCausalLMEagle3"),
     ("sglang", "LlamaForCausalLMEagle3")],
)  # fmt: skip
def test_fc_is_not_judged_for_a_class_or_release_that_is_not_known(where: tuple[str, str]) -> None:
    assert "fc_width" in run(joined(5), *LLAMA)
    assert "fc_width" not in run(joined(5), *where)


@pytest.mark.parametrize("version", ["", "==main"])
def test_a_version_that_is_none_proves_nothing(version: str) -> None:
    assert "lm_head_replaced" in run(borrowing(), "sglang==0.5.14")
    assert "norm_output_not_read" in run(normed("", norm_output=True), "sglang==0.5.11")
    assert "lm_head_replaced" not in run(borrowing(), f"sglang{version}")
    assert "norm_output_not_read" not in run(normed("", norm_output=True), f"sglang{version}")


def test_how_sure_a_form_that_is_not_read_is() -> None:
    read = run(nested(), "sglang==0.5.23", LLAMA[1])["speculators_config"]
    assert certainty(read) == ("error", "certain", True)
    read = run(nested(), "vllm==0.10.0", VLLM)["speculators_config"]
    assert certainty(read) == ("error", "likely", True)


def prefixed(made: Checkpoint, prefix: str) -> Checkpoint:
    made.arrays = {f"{prefix}{name}": array for name, array in made.arrays.items()}
    return made


def test_tensors_are_found_under_any_prefix_and_by_their_whole_name() -> None:
    def codes(prefix: str) -> set[str]:
        made = normed("fc_norm.0.weight", fc_norm=False)
        made.arrays["fc.weight"] = np.zeros((H, 4 * H), np.float32)
        return set(run(prefixed(made, prefix)))

    assert {"fc_width", "norm_not_applied"} <= codes("")
    assert codes("model.") == codes("")
    assert not {"fc_width", "norm_not_applied"} & codes("own_")


@pytest.mark.parametrize(("count", "draft_like"), [(4096, True), (4097, False)])
def test_a_checkpoint_of_thousands_of_tensors_is_no_draft(count: int, draft_like: bool) -> None:
    made = draft(t2d=KEPT, architectures=["LlamaForCausalLM"])
    for n in range(count - len(made.arrays)):
        made.arrays[f"model.layers.{n}.x"] = np.zeros(1, np.float32)
    assert ("base_architecture" in run(made, cls="LlamaForCausalLM")) is draft_like


def test_the_evidence_names_the_field_that_does_not_fit() -> None:
    plain = run(draft(t2d=KEPT), target=target(hidden_size=2 * H))["target_hidden_size"]
    wide = run(draft(t2d=KEPT, target_hidden_size=2 * H), target=target())["target_hidden_size"]
    assert plain.evidence_for[0].endswith(f"the draft's hidden_size {H}")
    assert wide.evidence_for[0].endswith(f"the draft's target_hidden_size {2 * H}")


def test_ids_beyond_an_unknown_vocabulary_are_none() -> None:
    made = draft(d2t=KEPT - np.arange(D), vocab_size=..., draft_vocab_size=D)
    assert "d2t_out_of_range" not in run(made)
    below = KEPT - np.arange(D)
    below[0] = -1
    odd = run(draft(d2t=below, vocab_size=..., draft_vocab_size=D))["d2t_out_of_range"]
    assert f"1 of {D} draft ids are outside" in odd.evidence_for


def test_a_map_of_a_draft_without_fc_makes_no_eagle3_draft() -> None:
    """Other drafts have a reduced vocabulary too; without fc no layers of the target are joined."""
    made = draft(t2d=KEPT, architectures=["LlamaForCausalLM"])
    assert "base_architecture" in run(made, cls="LlamaForCausalLM")
    made.arrays = {name: array for name, array in made.arrays.items() if "fc.weight" not in name}
    assert made.arrays
    assert "base_architecture" not in run(made, cls="LlamaForCausalLM")


IN_RANGE, BEYOND = [2, 16, 29], [2, 16, 40]


@pytest.mark.parametrize(
    ("engine", "cls", "inner", "top", "outside"),
    [
        # SGLang reads eagle_config; vLLM the top level before it.
        ("sglang==0.5.14", LLAMA[1], BEYOND, IN_RANGE, True),
        ("sglang==0.5.14", LLAMA[1], IN_RANGE, BEYOND, False),
        ("vllm==0.32.0", "Eagle3LlamaForCausalLM", BEYOND, IN_RANGE, False),
        ("vllm==0.32.0", "Eagle3LlamaForCausalLM", IN_RANGE, BEYOND, True),
        ("vllm==0.32.0", "Eagle3LlamaForCausalLM", None, BEYOND, True),
    ],
)
def test_of_two_lists_each_engine_takes_its_own(
    engine: str, cls: str, inner: list[int] | None, top: list[int], outside: bool
) -> None:
    lists = {IDS: top} | ({"eagle_config": {IDS: inner}} if inner else {})
    assert ("aux_layer_range" in run(draft(t2d=KEPT, **lists), engine, cls, target=target())) is (
        outside
    )
