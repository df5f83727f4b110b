"""EAGLE-1, EAGLE-2 and prediction layers: against SGLang's own classes, and against slow readings of each."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

from tests.speculation.model.engine_chains import STEPS, chains_of_sglang
from tests.speculation.model.test_draft import CONFIG, H, target_of
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.ablate.single_changes import ablate
from workbench.speculation.evidence.driving import driving_of
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.replaying import replay
from workbench.speculation.rounds.run import replay_rounds
from workbench.speculation.rounds.setup import as_launched

ROOT = Path(__file__).resolve().parents[3]
INCIDENT = ROOT / "data" / "incident"
NEW = "sglang==0.5.14"


@cache
def shipped() -> LlamaTarget:
    return LlamaTarget.read(open_checkpoint(INCIDENT / "target"))


def prompts(count: int) -> list[list[int]]:
    """Return beginnings that no draft was trained on."""
    lines = (INCIDENT / "training" / "prompts.jsonl").read_text().splitlines()[:count]
    return [json.loads(line)["ids"][:32] for line in lines]


# -- against the engine ---------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.11", "0.5.14", "0.5.23"])
@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_sglangs_own_class_drafts_the_same_chains(kind: str, version: str, tmp_path: Path) -> None:
    target, folder = shipped(), INCIDENT / "drafts" / kind
    answers = target.greedy(prompts(4), 24)
    texts = [[*p, *a] for p, a in zip(prompts(4), answers, strict=True)]
    trace = target.trace(texts, [32] * 4)
    roots = [[33, 36, 40, 47, 51]] * 4
    said = chains_of_sglang(version, INCIDENT / "target", folder, trace, roots, tmp_path / "asked")

    draft = load_draft(
        open_checkpoint(folder), target, engine=f"sglang=={version}", algorithm="EAGLE"
    )
    driving = driving_of(None, steps=STEPS)
    found = replay_rounds(draft, driving, trace, [[at + 1 for at in row] for row in roots])
    assert found.tokens.reshape(4, -1, STEPS).tolist() == said["drafted"].tolist()
    best = said["logits"].softmax(-1).max(-1).values.flatten()
    torch.testing.assert_close(
        torch.from_numpy(found.probabilities[:, 0]).float(), best, rtol=1e-4, atol=1e-5
    )


# -- against the definitions ----------------------------------------------------------------


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()


def slow(layout: str, w: dict[str, Any], e: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Return what a draft makes of all slots of one text, [slots, H], from the published definitions."""
    if layout == "eagle":
        x = F.linear(torch.cat([e, h], -1), w["fc.weight"], w["fc.bias"])
    elif layout == "mimo":
        e = e.clone()
        e[0] = 0
        pair = [norm(h, w["hidden_layernorm.weight"]), norm(e, w["token_layernorm.weight"])]
        x = F.linear(torch.cat(pair, -1), w["input_proj.weight"])
    else:
        pair = [norm(e, w["enorm.weight"]), norm(h, w["hnorm.weight"])]
        x = F.linear(torch.cat(pair, -1), w["eh_proj.weight"])
    y = x if layout == "eagle" else norm(x, w["input_layernorm.weight"])

    def heads(part: str) -> torch.Tensor:
        out = F.linear(y, w[f"self_attn.{part}_proj.weight"], w.get(f"self_attn.{part}_proj.bias"))
        return out.reshape(len(y), -1, 6).transpose(0, 1)

    def turned(z: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(z.shape[1])[:, None] * 100.0 ** (-torch.arange(3) / 3)
        a, b = z[..., :3], z[..., 3:]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1
        )

    out = F.scaled_dot_product_attention(
        turned(heads("q"))[None], turned(heads("k"))[None], heads("v")[None],
        is_causal=True, enable_gqa=True,
    )[0]  # fmt: skip
    x = x + F.linear(out.transpose(0, 1).reshape(len(y), -1), w["self_attn.o_proj.weight"])
    y = norm(x, w["post_attention_layernorm.weight"])
    gate = F.silu(F.linear(y, w["mlp.gate_proj.weight"]))
    x = x + F.linear(gate * F.linear(y, w["mlp.up_proj.weight"]), w["mlp.down_proj.weight"])
    last = {"mimo": "final_layernorm.weight", "nextn": "shared_head.norm.weight"}
    return norm(x, w[last[layout]]) if layout in last else x


PREFIX = {"eagle": "", "mimo": "model.mtp_layers.0.", "nextn": "model.layers.6."}
CLASS = {"eagle": "LlamaForCausalLMEagle", "mimo": "MiMoMTP", "nextn": "Glm4MoeForCausalLMNextN"}


def write(folder: Path, layout: str) -> dict[str, torch.Tensor]:
    """Write a random draft of a layout; return its weights by their short names."""
    g = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> torch.Tensor:
        return torch.empty(shape).normal_(0, 0.4, generator=g)

    w = {
        "self_attn.q_proj.weight": draw(24, H), "self_attn.k_proj.weight": draw(12, H),
        "self_attn.v_proj.weight": draw(12, H), "self_attn.o_proj.weight": draw(H, 24),
        "mlp.gate_proj.weight": draw(20, H), "mlp.up_proj.weight": draw(20, H),
        "mlp.down_proj.weight": draw(H, 20),
    }  # fmt: skip
    names = ["post_attention_layernorm"]
    if layout == "eagle":
        w |= {"fc.weight": draw(H, 2 * H), "fc.bias": draw(H)}
    elif layout == "mimo":
        names += ["input_layernorm", "token_layernorm", "hidden_layernorm", "final_layernorm"]
        w["input_proj.weight"] = draw(H, 2 * H)
        w |= {f"self_attn.{p}_proj.bias": draw(n) for p, n in (("q", 24), ("k", 12), ("v", 12))}
    else:
        names += ["input_layernorm", "enorm", "hnorm", "shared_head.norm"]
        w["eh_proj.weight"] = draw(H, 2 * H)
    w |= {f"{name}.weight": 1 + draw(H) for name in names}
    layer = ("self_attn.", "mlp.", "post_attention_layernorm.")
    saved = {
        f"layers.0.{n}" if layout == "eagle" and n.startswith(layer) else PREFIX[layout] + n: v
        for n, v in w.items()
    }
    if layout == "nextn":  # as in the checkpoint of a whole model: other layers lie beside it
        saved |= {"model.layers.5.mlp.up_proj.weight": draw(20, H), "model.norm.weight": draw(H)}
    folder.mkdir()
    save_file(saved, folder / "model.safetensors")
    config = {k: v for k, v in CONFIG.items() if k != "draft_vocab_size"}
    config |= {"architectures": [CLASS[layout]], "num_hidden_layers": 6 if layout == "nextn" else 1}
    (folder / "config.json").write_text(json.dumps(config))
    return w


def texts() -> tuple[LlamaTarget, TargetTrace]:
    target = target_of()
    g = torch.Generator().manual_seed(8)
    rows = torch.randint(0, target.vocabulary, (3, 16), generator=g).tolist()
    return target, target.trace(rows, [4] * 3)


@pytest.mark.parametrize("layout", ["eagle", "mimo", "nextn"])
def test_every_layout_is_computed_as_it_is_published(layout: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "draft", layout)
    target, trace = texts()
    draft = load_draft(open_checkpoint(tmp_path / "draft"), target)
    roots = [[5, 8], [6], [9, 12]]
    found = replay_rounds(draft, driving_of(None, steps=3), trace, roots)
    assert trace.final is not None
    at = 0
    for row, known in enumerate(roots):
        for root in known:
            tokens, hidden = trace.tokens[row, 1:root], trace.final[row, : root - 1]
            drafted, sure = [], []
            for _ in range(3):
                made = slow(layout, weights, target.embedding[tokens], hidden)[-1:]
                shares = F.linear(made[0], target.head).softmax(-1)
                drafted.append(int(shares.argmax()))
                sure.append(float(shares.max()))
                tokens = torch.cat([tokens, shares.argmax()[None]])
                hidden = torch.cat([hidden, made])
            assert found.tokens[at].tolist() == drafted
            assert found.probabilities[at] == pytest.approx(sure, rel=1e-4)
            at += 1


@pytest.mark.parametrize(
    ("layout", "change"),
    [
        ("eagle", {"hidden_first": True}), ("mimo", {"hidden_first": False}),
        ("mimo", {"blank_first": False}), ("mimo", {"norm_output": False}),
        ("nextn", {"hidden_first": True}), ("nextn", {"norm_output": False}),
    ],
)  # fmt: skip
def test_each_part_of_a_definition_matters(
    layout: str, change: dict[str, Any], tmp_path: Path
) -> None:
    """What the comparison above would not notice could be computed in any way."""
    write(tmp_path / "draft", layout)
    target, trace = texts()
    draft = load_draft(open_checkpoint(tmp_path / "draft"), target)
    driving, roots = driving_of(None, steps=3), [[5, 8], [6], [9, 12]]
    one = replay_rounds(draft, driving, trace, roots)
    other = replay_rounds(draft.replaced(**change), driving, trace, roots)
    assert abs(one.probabilities - other.probabilities).max() > 1e-4


def test_a_tree_of_an_eagle2_draft_begins_with_its_best_tokens(tmp_path: Path) -> None:
    write(tmp_path / "draft", "eagle")
    target, trace = texts()
    draft = load_draft(open_checkpoint(tmp_path / "draft"), target)
    chain = replay_rounds(draft, driving_of(None, steps=3), trace, [[5], [6], [9]])
    driving = driving_of(None, steps=3, topk=3, draft_tokens=10)
    tree = replay_rounds(draft, driving, trace, [[5], [6], [9]])
    assert tree.tokens[:, 0].tolist() == chain.tokens[:, 0].tolist()
    for row, depths in enumerate(tree.depths.tolist()):
        count = depths.count(1)
        assert count > 1
        assert tree.tokens[row, :count].tolist() == chain.first[row, :count].tolist()


# -- what is refused, and what is said ------------------------------------------------------


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_launched_as_eagle3_it_is_refused(kind: str) -> None:
    launch = DraftLaunch(NEW, "EAGLE3")
    with pytest.raises(WorkbenchError, match="is not an EAGLE-3 draft, and is launched as EAGLE3"):
        as_launched(launch, open_checkpoint(INCIDENT / "drafts" / kind), shipped())


def test_vllm_is_not_modelled_with_it() -> None:
    launch = DraftLaunch("vllm==0.32.0", "EAGLE")
    with pytest.raises(WorkbenchError, match="not modelled"):
        as_launched(launch, open_checkpoint(INCIDENT / "drafts" / "eagle"), shipped())


def test_an_eagle3_draft_launched_as_eagle_is_still_said() -> None:
    draft = INCIDENT / "drafts" / "specforge"
    trial = Trial.of_prompts(
        shipped(), draft, prompts(2), launch=DraftLaunch(NEW, "EAGLE", 3), new_tokens=8
    )
    assert trial.draft.settings.joining == "eagle3"
    assert trial.driving.aux is None


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_a_replay_launches_it_as_eagle_by_itself(kind: str) -> None:
    found = replay(
        INCIDENT / "target", INCIDENT / "drafts" / kind, prompts(8), engine=NEW, new_tokens=24
    )
    assert found.algorithm == "EAGLE"
    assert found.accept_length > 1.6
    assert "launched_as" not in " ".join(finding.code for finding in found.findings)


def test_a_missing_bias_is_a_warning(tmp_path: Path) -> None:
    folder = broken(tmp_path, "eagle", lambda tensors: tensors.pop("fc.bias"))
    found = replay(INCIDENT / "target", folder, prompts(8), engine=NEW, new_tokens=16)
    (finding,) = (f for f in found.findings if f.code == "bias_absent")
    assert finding.severity == "warning"


# -- causes ---------------------------------------------------------------------------------


def broken(folder: Path, kind: str, change: Any) -> Path:
    """Write a shipped draft with one change."""
    source, out = INCIDENT / "drafts" / kind, folder / "draft"
    tensors = load_file(source / "model.safetensors")
    change(tensors)
    out.mkdir()
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / "model.safetensors")
    (out / "config.json").write_bytes((source / "config.json").read_bytes())
    return out


@cache
def answered() -> TargetTrace:
    """Return one pass of the target over its answers to unseen prompts."""
    asked = prompts(12)
    whole = [[*p, *a] for p, a in zip(asked, shipped().greedy(asked, 28), strict=True)]
    return shipped().trace(whole, [len(p) for p in asked])


def trial_of(folder: Path, engine: str = "") -> Trial:
    """Return a draft over those answers, served as EAGLE."""
    launch, draft = DraftLaunch(engine, "EAGLE", 3), open_checkpoint(folder)
    loaded, driving = as_launched(launch, draft, shipped())
    return Trial(shipped(), answered(), draft, launch, loaded, driving)


@cache
def healthy(kind: str) -> float:
    return trial_of(INCIDENT / "drafts" / kind).replayed.accept_length


def caused(kind: str, folder: Path, engine: str = "", **driving: Any) -> Ablations:
    """Return the ablations of a draft that should accept as much as the shipped one."""
    trial = dataclasses.replace(trial_of(folder, engine), expected=Expected.given(healthy(kind)))
    if driving:
        trial = dataclasses.replace(trial, driving=trial.driving.replaced(**driving))
    return ablate(trial, pairs=False)


def rename(begin: str) -> Any:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [n for n in tensors if n.startswith(begin)]:
            tensors[f"draft_model.{name}"] = tensors.pop(name)

    return change


def swap(name: str) -> Any:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = tensors[name].roll(256, dims=1)

    return change


def scramble(tensors: dict[str, torch.Tensor]) -> None:
    table = shipped().embedding.bfloat16()
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(1))
    tensors["embed_tokens.weight"] = table[order]


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_nothing_is_wrong_with_the_shipped_ones(kind: str) -> None:
    found = caused(kind, INCIDENT / "drafts" / kind)
    assert healthy(kind) > 1.8
    assert found.cause.state == "healthy"


@pytest.mark.parametrize(
    ("kind", "change", "engine", "fact"),
    [
        ("eagle", rename("fc."), NEW, "fc"),
        ("eagle", swap("fc.weight"), NEW, "input order"),
        ("eagle", scramble, "", "embedding"),
        ("mtp", rename("model.mtp_layers.0.input_proj."), "", "eh_proj"),
        ("mtp", swap("model.mtp_layers.0.input_proj.weight"), "", "input order"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(
    kind: str, change: Any, engine: str, fact: str, tmp_path: Path
) -> None:
    found = caused(kind, broken(tmp_path, kind, change), engine)
    assert found.served.accept_length < 1.4
    assert (found.ok, found.cause.facts) == (False, (fact,))


def test_the_wrong_features_are_named() -> None:
    """Four layers early: what goes into the last one is nearly what comes out of it.

    A prediction layer norms its features, and of this small target's late layers any will do for it.
    """
    found = caused("eagle", INCIDENT / "drafts" / "eagle", aux=(shipped().layers - 4,))
    assert (found.ok, found.cause.facts) == (False, ("features",))
    assert found.cause.switches == ("features after the final norm",)


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_the_features_matter(kind: str) -> None:
    trial = trial_of(INCIDENT / "drafts" / kind)
    assert trial.trace.final is not None
    late = dataclasses.replace(trial.trace, final=trial.trace.final.roll(1, dims=1))
    assert dataclasses.replace(trial, trace=late).replayed.accept_length < healthy(kind) - 0.25
