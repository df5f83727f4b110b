"""The draft: every variant against a slow reading of its definition, and what engines load of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file

from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import Driving, captured_layers, driving_of
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.layers import (
    AttentionContext,
    Numerics,
    attend,
    blockwise,
    causal_bias,
)
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.mla import Latent, latent_heads
from workbench.speculation.model.rope import attention_scale, rope_of
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import generate, replay_rounds, run_freely

H, V, D = 16, 40, 12
CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": H,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 20,
    "num_hidden_layers": 1,
    "vocab_size": V,
    "draft_vocab_size": D,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
}


def target_of(layers: int = 6) -> LlamaTarget:
    config = {**CONFIG, "num_hidden_layers": layers}
    g = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.empty(shape).normal_(0, 0.35, generator=g)

    weights = {"model.embed_tokens.weight": draw(V, H), "lm_head.weight": draw(V, H)}
    weights["model.norm.weight"] = 1 + draw(H) / 5
    for n in range(layers):
        name = f"model.layers.{n}."
        for part, rows, columns in (
            ("self_attn.q_proj", 24, H), ("self_attn.k_proj", 12, H), ("self_attn.v_proj", 12, H),
            ("self_attn.o_proj", H, 24), ("mlp.gate_proj", 20, H), ("mlp.up_proj", 20, H),
            ("mlp.down_proj", H, 20),
        ):  # fmt: skip
            weights[f"{name}{part}.weight"] = draw(rows, columns)
        for part in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}{part}.weight"] = 1 + draw(H) / 5
    return LlamaTarget(weights, config)


def write_draft(
    folder: Path, layers: int = 1, qk_norm: bool = False, prefix: str = "layers.0.", **config: Any
) -> Path:
    """Write a random draft; `prefix` is how its first layer is called."""
    g = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> torch.Tensor:
        return torch.empty(shape).normal_(0, 0.35, generator=g)

    tensors = {"fc.weight": draw(H, 3 * H), "norm.weight": 1 + draw(H) / 5}
    tensors["lm_head.weight"] = draw(D, H)
    kept = torch.tensor(sorted(torch.randperm(V, generator=g)[:D].tolist()))
    tensors["d2t"] = kept - torch.arange(D)
    tensors["t2d"] = torch.isin(torch.arange(V), kept)
    tensors["input_norm.weight"] = 1 + draw(3 * H) / 5
    for n in range(3):
        tensors[f"fc_norm.{n}.weight"] = 1 + draw(H) / 5
    for n in range(layers):
        name, wide = (prefix, 2 * H) if n == 0 else (f"layers.{n}.", H)
        for part, rows, columns in (
            ("self_attn.q_proj", 24, wide), ("self_attn.k_proj", 12, wide),
            ("self_attn.v_proj", 12, wide), ("self_attn.o_proj", H, 24),
            ("mlp.gate_proj", 20, H), ("mlp.up_proj", 20, H), ("mlp.down_proj", H, 20),
        ):  # fmt: skip
            tensors[f"{name}{part}.weight"] = draw(rows, columns)
        for part in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            tensors[f"{name}{part}.weight"] = 1 + draw(H) / 5
        if qk_norm:
            tensors[f"{name}self_attn.q_norm.weight"] = 1 + draw(6) / 5
            tensors[f"{name}self_attn.k_norm.weight"] = 1 + draw(6) / 5
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    whole = {**CONFIG, "num_hidden_layers": layers, **config}
    (folder / "config.json").write_text(json.dumps(whole))
    return folder


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def slowly(
    t: dict[str, torch.Tensor], c: dict[str, Any], embed: torch.Tensor, tokens: list[int],
    features: list[torch.Tensor], positions: list[int],
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the last slot's logits and what the next step is fed, all slots recomputed one by one."""
    states, count = [], len(tokens)
    for token, given in zip(tokens, features, strict=True):
        f = given
        if len(f) != H:
            if c.get("norm_before_fc"):
                f = norm(f, t["input_norm.weight"])
            elif c.get("fc_norm"):
                f = torch.cat([norm(x, t[f"fc_norm.{n}.weight"]) for n, x in enumerate(f.chunk(3))])
            f = t["fc.weight"] @ f
        states.append((embed[token], f))
    hidden: list[torch.Tensor] = []
    residual: list[torch.Tensor] = []
    for n in range(c["num_hidden_layers"]):
        p = f"layers.{n}."
        q, k, v = [], [], []
        for slot in range(count):
            if n == 0:
                e, f = states[slot]
                g = norm(f, t[p + "hidden_norm.weight"])
                residual.append(g if c.get("norm_before_residual") else f)
                x = torch.cat([norm(e, t[p + "input_layernorm.weight"]), g])
            else:
                residual[slot] = residual[slot] + hidden[slot]
                x = norm(residual[slot], t[p + c["later"] + ".weight"])
            for kind, rows in (("q", q), ("k", k), ("v", v)):
                heads = (t[f"{p}self_attn.{kind}_proj.weight"] @ x).reshape(-1, 6)
                if kind != "v":
                    if f"{p}self_attn.{kind}_norm.weight" in t:
                        heads = norm(heads, t[f"{p}self_attn.{kind}_norm.weight"])
                    angle = positions[slot] * 100.0 ** (-torch.arange(3) / 3)
                    a, b = heads[:, :3], heads[:, 3:]
                    heads = torch.cat(
                        [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 1
                    )
                rows.append(heads)
        hidden = []
        for slot in range(count):
            out = []
            for head in range(4):
                scores = torch.stack([q[slot][head] @ k[s][head // 2] for s in range(slot + 1)])
                weights = (scores / math.sqrt(6)).softmax(0)
                out.append(sum(w * v[s][head // 2] for s, w in enumerate(weights)))
            residual[slot] = residual[slot] + t[p + "self_attn.o_proj.weight"] @ torch.cat(out)
            x = norm(residual[slot], t[p + "post_attention_layernorm.weight"])
            gate = F.silu(t[p + "mlp.gate_proj.weight"] @ x) * (t[p + "mlp.up_proj.weight"] @ x)
            hidden.append(t[p + "mlp.down_proj.weight"] @ gate)
    last = residual[-1] + hidden[-1]
    normed = norm(last, t["norm.weight"])
    return t["lm_head.weight"] @ normed, normed if c.get("norm_output") else last


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_output": {"norm_output": True},
    "two layers": {"layers": 2},
    "three layers, qk norm, normed output": {"layers": 3, "qk_norm": True, "norm_output": True},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_chain_is_what_the_definition_says(name: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_draft(tmp_path / "draft", **VARIANTS[name]))
    target = target_of()
    draft = load_draft(checkpoint, target)
    driving = Driving(steps=4, topk=1, draft_tokens=5, aux=(2, 3, 3))
    trace, free = generate(target, draft, driving, [[5, 9, 2, 30], [7, 1, 1]], 9)
    starts = [[5, 8, 9], [4, 7]]
    found = replay_rounds(draft, driving, trace, starts)
    c = {**checkpoint.config.text, "later": "input_layernorm"}
    t = {key: checkpoint.tensor(key).float() for key in checkpoint.names}
    row = 0
    for request, known_all in enumerate(starts):
        ids = trace.tokens[request].tolist()
        features = [*trace.features((2, 3, 3))[request]]
        for known in known_all:
            tokens, fed = ids[1:known], list(features[: known - 1])
            drafted = []
            for _ in range(4):
                logits, state = slowly(t, c, target.embedding, tokens, fed, list(range(len(fed))))
                best = int(logits.argmax())
                drafted.append(best + int(t["d2t"][best]))
                own = float(found.probabilities[row, len(drafted) - 1])
                assert own == pytest.approx(float(logits.softmax(0).max()), abs=2e-5)
                tokens, fed = [*tokens, drafted[-1]], [*fed, state]
            assert found.tokens[row].tolist() == drafted
            text = ids[known : int(trace.lengths[request])]
            same = [a == b for a, b in zip(drafted, text, strict=False)]
            assert found.accepted[row] >= (*same, False).index(False)
            row += 1
    assert free.prefix.tolist()[0] == 5  # its first round begins behind the answer's first token


def test_rounds_run_freely_are_those_that_are_replayed_from_their_beginnings(
    tmp_path: Path,
) -> None:
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target := target_of())
    for extend in ("prefix", "accepted", "block"):
        driving = Driving(steps=3, topk=1, draft_tokens=4, aux=(1, 2, 4), extend=extend)
        trace, free = generate(target, draft, driving, [[5, 9, 2, 30], [7, 1, 1], [3, 3]], 12)
        starts = [free.prefix[free.request == n].tolist() for n in range(3)]
        again = replay_rounds(draft, driving, trace, starts)
        assert (again.tokens == free.tokens).all()
        assert (again.accepted == free.accepted).all()
        for n, known in enumerate(starts):
            ends = [a + 1 + b for a, b in zip(known, free.accepted[free.request == n], strict=True)]
            assert ends[:-1] == known[1:]
            assert ends[-1] >= int(trace.lengths[n])


def test_a_tree_of_all_nodes_holds_the_chain(tmp_path: Path) -> None:
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target := target_of())
    chain = Driving(steps=3, topk=1, draft_tokens=4, aux=(1, 2, 4))
    trace, free = generate(target, draft, chain, [[5, 9, 2, 30], [7, 1, 1]], 10)
    starts = [free.prefix[free.request == n].tolist() for n in range(2)]
    tree = chain.replaced(topk=3, draft_tokens=3 + 9 + 9 + 1)
    found = replay_rounds(draft, tree, trace, starts)
    for row in range(len(found)):
        at, path = -1, []
        for depth in (1, 2, 3):
            kids = [
                n for n in range(21)
                if found.parents[row, n] == at and found.depths[row, n] == depth
            ]  # fmt: skip
            at = max(kids, key=lambda n: found.probabilities[row, n])
            path.append(int(found.tokens[row, at]))
        # The likeliest first token is always drafted on; what follows it is what the chain drafts, too.
        assert path[0] == free.tokens[row, 0]
        assert path[1] == free.tokens[row, 1]
    assert (found.accepted >= free.accepted).mean() > 0.9


def test_numbers_of_dropped_layers_are_said(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_draft(tmp_path / "d"))
    target = target_of()
    old = load_draft(checkpoint, target, engine="sglang==0.5.11")
    new = load_draft(checkpoint, target, engine="sglang==0.5.14")
    assert not new.filled
    assert len(old.filled) == 7  # q, k, v, o, gate, up, down
    assert old.origins["layers.0.hidden_norm.weight"] == "ones"
    assert old.notes
    assert not old.tensors["layers.0.self_attn.q_proj.weight"].any()
    zero, random, nan = (
        load_draft(checkpoint, target, engine="sglang==0.5.11", fill=fill)  # type: ignore[arg-type]
        for fill in ("zero", "random", "nan")
    )
    assert zero.tensors["layers.0.mlp.up_proj.weight"].shape == (20, H)
    assert random.tensors["layers.0.mlp.up_proj.weight"].std() > 0.01
    assert nan.tensors["layers.0.mlp.up_proj.weight"].isnan().all()
    renamed = open_checkpoint(write_draft(tmp_path / "m", prefix="midlayer."))
    assert not load_draft(renamed, target, engine="sglang==0.5.11").filled
    fused = torch.arange(48 * 2 * H, dtype=torch.float32).reshape(48, -1)
    held = load_draft(
        checkpoint, target, engine="sglang==0.5.11",
        memory={"model.midlayer.self_attn.qkv_proj.weight": fused},
    )  # fmt: skip
    assert held.origins["layers.0.self_attn.k_proj.weight"] == "memory"
    assert torch.equal(held.tensors["layers.0.self_attn.k_proj.weight"], fused[24:36])


def test_flags_are_read_as_the_engine_reads_them(tmp_path: Path) -> None:
    config = {"norm_before_residual": True, "norm_output": True, "norm_before_fc": True}
    checkpoint = open_checkpoint(write_draft(tmp_path / "d", **config))
    target = target_of()
    trained = load_draft(checkpoint, target).settings
    assert (trained.norm_before_residual, trained.norm_output, trained.norm_before_fc) == (
        True,
    ) * 3
    served = {v: load_draft(checkpoint, target, engine=f"sglang=={v}").settings for v in
              ("0.5.11", "0.5.14", "0.5.23")}  # fmt: skip
    assert not any(s.norm_before_residual for s in served.values())
    assert [s.norm_output for s in served.values()] == [False, True, True]
    assert [s.norm_before_fc for s in served.values()] == [False, False, True]
    assert trained.later_norm == "input_layernorm"
    assert served["0.5.23"].later_norm == "hidden_norm"


def test_launched_as_eagle_the_target_lends_its_head(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_draft(tmp_path / "d"))
    target = target_of()
    draft = load_draft(checkpoint, target, engine="sglang==0.5.14", algorithm="EAGLE")
    assert torch.equal(draft.tensors["lm_head.weight"], target.head[:D])
    assert draft.to_target.tolist() == list(range(D))
    last = torch.ones(2, H)
    assert draft.features(last) is last  # fc is passed by


def test_without_a_target_or_an_embedding_nothing_is_drafted(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="no embedding of its own"):
        load_draft(open_checkpoint(write_draft(tmp_path / "d")))


def test_layers_and_positions_by_version() -> None:
    assert captured_layers("sglang==0.5.14", None, "llama", 12) == (2, 6, 9)
    assert captured_layers("sglang==0.5.14", (2, 6, 9), "llama", 12) == (3, 7, 10)
    assert captured_layers(None, (2, 6, 9), "llama", 12) == (2, 6, 9)
    assert captured_layers("vllm==0.32.0", (2, 6, 9), "llama", 12) == (2, 6, 9)
    assert captured_layers("sglang==0.5.14", (2, 30, 58), "deepseek_v3", 61) == (2, 30, 58)
    assert captured_layers("sglang==0.5.14", (1, 30, 58), "deepseek_v3", 61) == (2, 31, 59)
    assert captured_layers("sglang==0.5.11", (2, 30, 58), "deepseek_v3", 61) == (3, 31, 59)
    old = driving_of("sglang==0.5.11", steps=4)
    assert (old.ahead, old.extend, old.draft_tokens) == (1, "block", 5)
    assert driving_of("sglang==0.5.11", steps=4, graphs=False).extend == "prefix"
    assert driving_of("sglang==0.5.11", steps=4, topk=4, draft_tokens=16).extend == "accepted"
    new = driving_of("sglang==0.5.14", steps=4, topk=4, draft_tokens=16)
    assert (new.ahead, new.extend, new.draft_tokens, new.moved) == (0, "prefix", 16, False)
    with pytest.raises(WorkbenchError):
        driving_of(None, steps=0)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    ],
)  # fmt: skip
def test_rope_is_that_of_transformers(rope: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    table = {"rope_theta": 5000.0, **rope}
    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=2, max_position_embeddings=256, rope_parameters=table
    )
    inverse, scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
    own = rope_of({"rope_parameters": table, "max_position_embeddings": 256}, 128)
    assert own.scale == pytest.approx(scale)
    torch.testing.assert_close(torch.tensor(own.inverse), inverse, rtol=1e-5, atol=1e-9)
    old = rope_of({"rope_theta": 5000.0, "rope_scaling": rope, "max_position_embeddings": 256}, 128)
    assert old == own
    with pytest.raises(WorkbenchError, match="not known here"):
        rope_of({"rope_scaling": {"rope_type": "longrope"}}, 128)
    with pytest.raises(WorkbenchError, match="rope_theta"):
        rope_of({"rope_theta": "1e4"}, 128)


def test_latent_attention_is_that_of_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.models.deepseek_v3 import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
        DeepseekV3Attention,
        DeepseekV3RotaryEmbedding,
    )

    config = DeepseekV3Config(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=8,
        qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, max_position_embeddings=64,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    attention = DeepseekV3Attention(config, layer_idx=0).eval()
    x = torch.randn(1, 7, 32)
    mask = torch.full((7, 7), -math.inf).triu(1)[None, None]
    turn = DeepseekV3RotaryEmbedding(config)(x, torch.arange(7)[None])
    with torch.no_grad():
        expected = attention(x, position_embeddings=turn, attention_mask=mask)[0]
        weights = {f"a.{k}": v for k, v in attention.state_dict().items()}
        flat = config.to_dict()
        rope = rope_of(flat, 4, interleaved=True)
        q, k, v = latent_heads(
            x, torch.arange(7)[None], weights, "a.", Latent(12, 8, 6, 4, 5), rope, 1e-6, Numerics()
        )
        seen = AttentionContext(k, v, causal_bias(7, torch.tensor([7])))
        out = attend(q, seen, None, attention_scale(flat, 10), Numerics())
        out = out.flatten(2) @ weights["a.o_proj.weight"].T
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_a_tensor_core_cuts_toward_zero_and_never_past() -> None:
    g = torch.Generator().manual_seed(0)
    x, w = (torch.empty(9, 70).normal_(generator=g).bfloat16().float() for _ in range(2))
    exact = x.double() @ w.double().T
    found = blockwise(x, w, 70)
    assert (found.double().abs() <= exact.abs()).all()
    torch.testing.assert_close(found.double(), exact, rtol=2**-22, atol=0)
    assert not torch.equal(blockwise(x, w, 4), found)


def test_tiles_change_nothing_but_rounding() -> None:
    g = torch.Generator().manual_seed(0)
    q = torch.empty(2, 3, 4, 8).normal_(generator=g)
    k, v = (torch.empty(2, 90, 2, 8).normal_(generator=g) for _ in range(2))
    bias = torch.zeros(2, 3, 90).masked_fill(torch.arange(90) > 70, -math.inf)
    tiles = (torch.arange(90) // 32).expand(2, 3, 90)
    plain = attend(q, AttentionContext(k, v, bias), None, 0.3, Numerics())
    for running in (True, False):
        tiled = attend(
            q, AttentionContext(k, v, bias, tiles), None, 0.3, Numerics("bfloat16"), running
        )
        torch.testing.assert_close(tiled, plain, rtol=0.03, atol=0.02)
        assert not torch.equal(
            tiled, attend(q, AttentionContext(k, v, bias), None, 0.3, Numerics("bfloat16"))
        )


def test_a_free_run_needs_two_tokens(tmp_path: Path) -> None:
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target := target_of())
    assert isinstance(draft, Draft)
    with pytest.raises(WorkbenchError, match="one token"):
        generate(target, draft, Driving(aux=(1, 2, 3)), [[1, 2]], 1)
    trace = target.trace([[1, 2, 3]], [2])
    with pytest.raises(WorkbenchError, match="no rounds"):
        run_freely(draft, Driving(aux=(1, 2, 3)), trace)
