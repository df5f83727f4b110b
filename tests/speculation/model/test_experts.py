"""Prediction layers with experts: against transformers' modules, and against SGLang's own classes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file

from tests.speculation.model.engine_chains import STEPS, chains_of_sglang
from tests.speculation.model.expert_layers import FAMILIES, H, Layer, V, write
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import driving_of
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import replay_rounds

pytest.importorskip("transformers")

ROOTS = [[5, 8, 11], [6, 9, 12], [7, 10, 14]]


TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
    "num_hidden_layers": 2, "vocab_size": V, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 128, "tie_word_embeddings": False, "torch_dtype": "float32",
}  # fmt: skip


@pytest.fixture(scope="module")
def target() -> LlamaTarget:
    """A small random Llama; of a target these drafts read the last features, embedding and head."""
    g = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g) / shape[-1] ** 0.5

    w = {"model.embed_tokens.weight": draw(V, H), "lm_head.weight": 2 * draw(V, H)}
    w["model.norm.weight"] = 1 + draw(H)
    for n in range(2):
        for part, rows, columns in (
            ("self_attn.q_proj", H, H), ("self_attn.k_proj", 16, H), ("self_attn.v_proj", 16, H),
            ("self_attn.o_proj", H, H), ("mlp.gate_proj", 48, H), ("mlp.up_proj", 48, H),
            ("mlp.down_proj", H, 48),
        ):  # fmt: skip
            w[f"model.layers.{n}.{part}.weight"] = draw(rows, columns)
        for part in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{n}.{part}.weight"] = 1 + draw(H)
    return LlamaTarget(w, TARGET)


@pytest.fixture(scope="module")
def trace(target: LlamaTarget) -> TargetTrace:
    g = torch.Generator().manual_seed(8)
    return target.trace(torch.randint(0, V, (3, 20), generator=g).tolist(), [4] * 3)


def chains(layer: Layer, target: LlamaTarget, trace: TargetTrace) -> tuple[list[Any], list[Any]]:
    """Draft behind each root, all slots computed anew in each step; return drafts and probabilities."""
    assert trace.final is not None
    tokens, shares = [], []
    with torch.no_grad():
        for row, known in enumerate(ROOTS):
            for root in known:
                given, hidden = trace.tokens[row, 1:root], trace.final[row, : root - 1]
                drafted, sure = [], []
                for _ in range(STEPS):
                    made = layer(target.embedding[given], hidden)[-1:]
                    best = F.linear(made[0], target.head).softmax(-1).max(-1)
                    drafted.append(int(best.indices))
                    sure.append(float(best.values))
                    given = torch.cat([given, best.indices[None]])
                    hidden = torch.cat([hidden, made])
                tokens.append(drafted)
                shares.append(sure)
    return tokens, shares


def drafted(draft: Draft, trace: TargetTrace) -> Any:
    return replay_rounds(draft, driving_of(None, steps=STEPS), trace, ROOTS)


CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one group": {"n_group": 1, "topk_group": 1},
    "weights as they are": {"norm_topk_prob": False},
    "three of a group": {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 3},
    "two shared": {"n_shared_experts": 2, "shared_expert_intermediate_size": 40},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_drafts_what_transformers_modules_do(
    name: str, change: str, target: LlamaTarget, trace: TargetTrace, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    layer = Layer(family, **CHANGES[change])
    folder = write(tmp_path / "draft", family, layer, **CHANGES[change])
    draft = load_draft(open_checkpoint(folder), target)
    assert draft.settings.routing is not None
    assert not draft.filled
    tokens, shares = chains(layer, target, trace)
    found = drafted(draft, trace)
    assert found.tokens.tolist() == tokens
    assert found.probabilities == pytest.approx(torch.tensor(shares).numpy(), abs=2e-5)
    assert len({tuple(row) for row in tokens}) > 4


WRONG: dict[str, dict[str, Any]] = {
    "scoring": {"scoring": "softmax"},
    "more experts": {"chosen": 3},
    "all groups open": {"open_groups": 4},
    "weights as they are": {"normed": False},
    "factor": {"factor": 1.0},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_part_of_the_routing_matters(
    wrong: str, target: LlamaTarget, trace: TargetTrace, tmp_path: Path
) -> None:
    """What the comparison above would not notice could be computed in any way."""
    family = FAMILIES["deepseek"]
    folder = write(tmp_path / "draft", family, Layer(family))
    draft = load_draft(open_checkpoint(folder), target)
    assert draft.settings.routing is not None
    other = dataclasses.replace(draft.settings.routing, **WRONG[wrong])
    one, two = drafted(draft, trace), drafted(draft.replaced(routing=other), trace)
    assert abs(one.probabilities - two.probabilities).max() > 1e-3


@pytest.mark.parametrize("part", ["e_score_correction_bias", "shared_experts.down_proj.weight"])
def test_each_tensor_of_the_layer_matters(
    part: str, target: LlamaTarget, trace: TargetTrace, tmp_path: Path
) -> None:
    family = FAMILIES["deepseek"]
    draft = load_draft(open_checkpoint(write(tmp_path / "draft", family, Layer(family))), target)
    name = next(n for n in draft.tensors if n.endswith(part))
    other = draft.replaced(tensors={name: torch.zeros_like(draft.tensors[name])})
    one, two = drafted(draft, trace), drafted(other, trace)
    assert abs(one.probabilities - two.probabilities).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"n_group": 3}, "n_group"),
        ({"topk_group": 5}, "n_group"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({"scoring_func": "sqrtsoftplus"}, "scoring_func"),
        ({"routed_scaling_factor": "big"}, "routed_scaling_factor"),
        ({"n_routed_experts": None}, "num_experts"),
        ({"moe_intermediate_size": 10**9}, "moe_intermediate_size"),
    ],
)
def test_a_config_that_describes_no_routing_is_refused(
    change: dict[str, Any], what: str, target: LlamaTarget, tmp_path: Path
) -> None:
    family = FAMILIES["deepseek"]
    folder = write(tmp_path / "draft", family, Layer(family), **change)
    with pytest.raises(WorkbenchError, match=what):
        load_draft(open_checkpoint(folder), target)


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.14", "0.5.23"])
@pytest.mark.parametrize("name", ["deepseek", "glm"])
def test_sglangs_own_class_drafts_the_same_chains(
    name: str, version: str, target: LlamaTarget, trace: TargetTrace, tmp_path: Path
) -> None:
    """Routing, experts and all else but attention are the engine's, in float32 on a CPU.

    Qwen3's classes do not run there: one asks for a server's attention, the other for a kernel.
    """
    family = FAMILIES[name]
    folder = write(tmp_path / "draft", family, Layer(family))
    lender = tmp_path / "target"
    lender.mkdir()
    lent = {n: target.weights[n] for n in ("model.embed_tokens.weight", "lm_head.weight")}
    save_file(lent, lender / "model.safetensors")
    (lender / "config.json").write_text(json.dumps(TARGET))
    roots = [[place - 1 for place in row] for row in ROOTS]
    said = chains_of_sglang(version, lender, folder, trace, roots, tmp_path / "asked")

    checkpoint = open_checkpoint(folder)
    draft = load_draft(checkpoint, target, engine=f"sglang=={version}", algorithm="EAGLE")
    found = drafted(draft, trace)
    assert found.tokens.reshape(3, -1, STEPS).tolist() == said["drafted"].tolist()
    best = said["logits"].softmax(-1).max(-1).values.flatten().numpy()
    assert found.probabilities[:, 0] == pytest.approx(best, rel=1e-4, abs=1e-5)
