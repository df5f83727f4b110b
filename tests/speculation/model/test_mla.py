"""A draft with latent attention, as Kimi K2.x has: loaded, driven and held step by step against transformers.

The reference is put together from transformers' DeepSeek-V3 classes (attention, rotary positions, norm,
feed-forward), in the order in which SGLang's ``Eagle3DeepseekV2ForCausalLM`` runs its own; it keeps no cache.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import ROOT
from tests.engines import environments, sglang_rotary
from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.huggingface import HuggingFaceTarget
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.rope import attention_scale, rope_of
from workbench.speculation.rounds.run import generate, replay_rounds
from workbench.speculation.rounds.setup import as_launched

pytest.importorskip("transformers")

H, V, D, LAYERS = 32, 60, 24, 6
YARN = {
    "rope_type": "yarn", "type": "yarn", "rope_theta": 500.0, "factor": 8.0, "beta_fast": 32, "beta_slow": 1,
    "mscale": 0.8, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": H,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 8,
    "v_head_dim": 5,
    "intermediate_size": 40,
    "first_k_dense_replace": 1,
    "vocab_size": V,
    "draft_vocab_size": D,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "rope_theta": 500.0,
    "rope_scaling": YARN,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]},
}
NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


def reference_config(**changes: Any) -> Any:
    from transformers.models.deepseek_v3 import DeepseekV3Config

    left = (
        "architectures",
        "model_type",
        "eagle_config",
        "draft_vocab_size",
        "rope_scaling",
        "rope_theta",
    )
    kept = {key: value for key, value in CONFIG.items() if key not in left}
    return DeepseekV3Config(
        **{**kept, "rope_parameters": dict(YARN), "attn_implementation": "eager", **changes}
    )


def scattered(model: torch.nn.Module, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    for name, value in sorted(model.named_parameters()):
        noise = torch.randn(value.shape, generator=g)
        value.data = 1 + noise / 5 if "norm" in name else noise / value.shape[-1] ** 0.5


class Reference(torch.nn.Module):
    """The draft by transformers' classes."""

    def __init__(self, embedding: torch.Tensor, **flags: bool) -> None:
        from transformers.models.deepseek_v3 import modeling_deepseek_v3 as classes

        super().__init__()
        config = reference_config()
        self.flags, self.embedding, self.config = flags, embedding, config

        def norm(size: int = H) -> Any:
            return classes.DeepseekV3RMSNorm(size, eps=1e-5)

        self.fc = torch.nn.Linear(3 * H, H, bias=False)
        self.fc_norm = torch.nn.ModuleList([norm() for _ in range(3)])
        layer = torch.nn.Module()
        layer.self_attn = classes.DeepseekV3Attention(config, 0)
        # It reads embedding and feature side by side; an engine gives all norms the config's epsilon.
        layer.self_attn.q_a_proj = torch.nn.Linear(2 * H, 12, bias=False)
        layer.self_attn.kv_a_proj_with_mqa = torch.nn.Linear(2 * H, 8 + 8, bias=False)
        layer.self_attn.q_a_layernorm, layer.self_attn.kv_a_layernorm = norm(12), norm(8)
        layer.mlp = classes.DeepseekV3MLP(config, intermediate_size=40)
        for name in NORMS:
            setattr(layer, name, norm())
        self.layers = torch.nn.ModuleList([layer])
        self.norm, self.lm_head = norm(), torch.nn.Linear(H, D, bias=False)
        self.rotary = classes.DeepseekV3RotaryEmbedding(config)
        scattered(self, 5)

    def enter(self, features: torch.Tensor) -> torch.Tensor:
        if self.flags.get("fc_norm"):
            parts = features.chunk(3, dim=-1)
            features = torch.cat([n(p) for n, p in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(features)

    def forward(self, tokens: list[int], hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last slot's logits and what the next step is fed, all slots computed anew."""
        layer: Any = self.layers[0]
        count = len(tokens)
        normed = layer.hidden_norm(hidden)
        x = torch.cat([layer.input_layernorm(self.embedding[tokens]), normed], dim=-1)[None]
        turn = self.rotary(x, torch.arange(count)[None])
        mask = torch.full((count, count), -math.inf).triu(1)[None, None]
        out = layer.self_attn(x, position_embeddings=turn, attention_mask=mask)[0][0]
        residual = normed if self.flags.get("norm_before_residual") else hidden
        residual = residual + out
        last = residual + layer.mlp(layer.post_attention_layernorm(residual))
        said = self.norm(last)
        return self.lm_head(said[-1]), (said if self.flags.get("norm_output") else last)[-1]


def write(folder: Path, model: Reference, names: str, **config: Any) -> Path:
    """Write a reference's weights under the names that speculators or SGLang give them."""
    tensors = {
        k: v.detach().contiguous() for k, v in model.state_dict().items() if "rotary" not in k
    }
    if not model.flags.get("fc_norm"):
        tensors = {k: v for k, v in tensors.items() if not k.startswith("fc_norm")}
    if names == "sglang":
        tensors = {k.replace("layers.0", "midlayer"): v for k, v in tensors.items()}
    kept = torch.arange(0, 2 * D, 2)
    tensors |= {"d2t": kept - torch.arange(D), "t2d": torch.isin(torch.arange(V), kept)}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **model.flags, **config}))
    return folder


@pytest.fixture(scope="module")
def target() -> HuggingFaceTarget:
    """A small random DeepSeek-V3: latent attention, experts from the second layer on."""
    from transformers.models.deepseek_v3 import DeepseekV3ForCausalLM

    config = reference_config(
        num_hidden_layers=LAYERS, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2,
        n_shared_experts=1, n_group=2, topk_group=1,
    )  # fmt: skip
    model = DeepseekV3ForCausalLM(config)
    scattered(model, 1)
    return HuggingFaceTarget(model)


def check(
    draft: Draft, driving: Driving, model: Reference, trace: TargetTrace, starts: list[list[int]]
) -> int:
    """Compare each round's drafts and their probabilities; return how many drafts were compared."""
    found = replay_rounds(draft, driving, trace, starts)
    compared, worst = 0, 0.0
    with torch.no_grad():
        entered = model.enter(trace.features(driving.aux))
        for row in range(len(found)):
            request, known = int(found.request[row]), int(found.prefix[row])
            tokens = trace.tokens[request, 1:known].tolist()
            hidden = entered[request, : known - 1]
            for step in range(driving.steps):
                logits, fed = model(tokens, hidden)
                best = int(logits.argmax())
                assert found.tokens[row, step] == 2 * best
                share = float(logits.softmax(0)[best])
                worst = max(worst, abs(float(found.probabilities[row, step]) - share))
                tokens = [*tokens, 2 * best]
                hidden = torch.cat([hidden, fed[None]])
                compared += 1
    assert worst < 2e-5
    return compared


FLAGS: dict[str, dict[str, bool]] = {
    "3": {},
    "3.1": {"fc_norm": True, "norm_output": True},
    "normed residual": {"norm_before_residual": True},
}
PROMPTS = [[5, 9, 2, 30], [7, 1, 1], [44, 3, 8, 8, 12, 50]]


@pytest.mark.parametrize("names", ["speculators", "sglang"])
@pytest.mark.parametrize("name", FLAGS)
def test_by_the_trainers_flags(
    name: str, names: str, target: HuggingFaceTarget, tmp_path: Path
) -> None:
    model = Reference(target.embedding, **FLAGS[name])
    checkpoint = open_checkpoint(write(tmp_path / "d", model, names))
    draft, driving = as_launched(DraftLaunch("", steps=4), checkpoint, target)
    assert driving.aux == (2, 3, 4)
    assert not draft.filled
    trace, free = generate(target, draft, driving, PROMPTS, 20)
    starts = [free.prefix[free.request == n].tolist() for n in range(len(PROMPTS))]
    assert check(draft, driving, model, trace, starts) > 150


@pytest.mark.parametrize("names", ["speculators", "sglang"])
def test_as_sglang_serves_it(names: str, target: HuggingFaceTarget, tmp_path: Path) -> None:
    """Served, the residual is never normed, and the ids mean inputs of layers from 0.5.13 on."""
    flags = {"fc_norm": True, "norm_output": True, "norm_before_residual": True}
    model = Reference(target.embedding, **flags)
    checkpoint = open_checkpoint(write(tmp_path / "d", model, names))
    launch = DraftLaunch("sglang==0.5.23", "EAGLE3", steps=3, draft_tokens=4, backend="triton")
    draft, driving = as_launched(launch, checkpoint, target)
    assert driving.aux == (2, 3, 4)
    assert not draft.filled
    trace, free = generate(target, draft, driving, PROMPTS, 12)
    starts = [free.prefix[free.request == n].tolist() for n in range(len(PROMPTS))]
    model.flags["norm_before_residual"] = False
    assert check(draft, driving, model, trace, starts) > 60
    tree = driving.replaced(topk=3, draft_tokens=10)
    wide = replay_rounds(draft, tree, trace, starts)
    # The likeliest first draft heads the tree, too.
    chain = replay_rounds(draft, driving, trace, starts)
    assert ((wide.tokens == chain.tokens[:, :1]) & (wide.depths == 1)).any(1).all()
    old = as_launched(
        DraftLaunch("sglang==0.5.12", "EAGLE3", steps=3, draft_tokens=4, backend="fa3"),
        checkpoint,
        target,
    )
    assert old[1].aux == (3, 4, 5)


def test_what_was_captured_in_memory_is_taken_apart(
    target: HuggingFaceTarget, tmp_path: Path
) -> None:
    """SGLang holds both down-projections in one matrix."""
    model = Reference(target.embedding)
    checkpoint = open_checkpoint(write(tmp_path / "d", model, "sglang"))
    plain = load_draft(checkpoint, target, engine="sglang==0.5.23")
    name = "layers.0.self_attn."
    fused = torch.arange(28 * 2 * H, dtype=torch.float32).reshape(28, 2 * H)
    held = load_draft(
        checkpoint, target, engine="sglang==0.5.23",
        memory={"model.midlayer.self_attn.fused_qkv_a_proj_with_mqa.weight": fused},
    )  # fmt: skip
    assert torch.equal(held.tensors[f"{name}q_a_proj.weight"], fused[:12])
    assert torch.equal(held.tensors[f"{name}kv_a_proj_with_mqa.weight"], fused[12:])
    assert held.origins[f"{name}q_a_proj.weight"] == "memory"
    assert plain.origins[f"{name}q_a_proj.weight"] == "file"


@pytest.mark.parametrize(
    ("field", "value"), [("rope", None), ("scale", 0.3), ("latent", None), ("epsilon", 0.1)]
)
def test_the_comparison_sees_a_wrong_detail(
    field: str, value: Any, target: HuggingFaceTarget, tmp_path: Path
) -> None:
    model = Reference(target.embedding)
    checkpoint = open_checkpoint(write(tmp_path / "d", model, "speculators"))
    draft, driving = as_launched(DraftLaunch("", steps=4), checkpoint, target)
    trace, _ = generate(target, draft, driving, PROMPTS, 12)
    if field == "rope":
        value = dataclasses.replace(draft.settings.rope, interleaved=False)
    if field == "latent":
        field, value = "rope", dataclasses.replace(draft.settings.rope, scale=1.1)
    with pytest.raises(AssertionError):
        check(draft.replaced(**{field: value}), driving, model, trace, [[5, 9], [6], [9]])


@pytest.mark.engine
def test_sglang_turns_and_scales_alike(tmp_path: Path) -> None:
    """DeepSeek's YaRN by the engine's own rotary class and its own factor of the scores."""
    python = environments.ensure("sglang-0.5.23")
    script = Path(sglang_rotary.__file__)
    stubs = ROOT / "workbench" / "loaders" / "tracer"
    file = tmp_path / "rotary.st"
    subprocess.run([python, script, stubs, file], check=True, capture_output=True)
    said = load_file(file)
    config = {"rope_theta": sglang_rotary.THETA, "rope_scaling": sglang_rotary.YARN}
    rope = rope_of(config, sglang_rotary.TURNED, interleaved=True)
    places = torch.arange(sglang_rotary.PLACES)[:, None]
    for name in ("q", "k"):
        found = rope.turn(said[name], places, Numerics())
        torch.testing.assert_close(found, said[f"turned_{name}"], rtol=1e-4, atol=1e-5)
    own = attention_scale(config, sglang_rotary.WIDTH)
    assert own == pytest.approx(float(said["scale"]), rel=1e-6)
