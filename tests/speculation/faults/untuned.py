"""Cases on a pair that no rule was made for: latent attention and experts, served by a real engine.

Faults and expectations were written down before any replay of the pair was run, and are not changed after it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from benchmarks.expert_pair import DRAFT, EXPERTS, RUNS, expert_target
from tests.speculation.faults.faults import (
    LAYER,
    TRAINER,
    Change,
    Config,
    Fault,
    Tensors,
    absolute,
    blocks,
    exchanged,
    fault,
    listed,
    lost,
    renamed,
    said,
    zeros,
)
from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.observed import DraftLaunch, read_run
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.rounds.setup import as_launched

METRICS = EXPERTS / "training" / "draft-report.json"
ATTENTION = LAYER + "self_attn."
HEADS, PLAIN, TURNED, LATENT = 4, 32, 32, 96  # of queries; of keys without a position


@cache
def texts(requests: int) -> TargetTrace:
    """Return the target's pass over the recorded answers."""
    run = read_run(RUNS / "chain").some(requests)
    return expert_target().trace(run.texts, run.prompts)


def write(changes: tuple[Change, ...], folder: Path) -> Path:
    """Write the healthy draft with changes."""
    tensors = load_file(DRAFT / "model.safetensors")
    config = json.loads((DRAFT / "config.json").read_text())
    for change in changes:
        change(tensors, config)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def of_fault(fault: Fault, folder: Path, requests: int) -> Trial:
    """Write a fault's files, and serve them."""
    checkpoint = open_checkpoint(write(fault.changes, folder))
    launch = DraftLaunch(
        fault.engine, fault.algorithm, steps=4, topk=1, draft_tokens=5, graphs=False,
        backend="triton",
    )  # fmt: skip
    draft, driving = as_launched(launch, checkpoint, expert_target())
    expected = Expected.of_run(read_run(RUNS / "chain").some(requests))
    return Trial(
        expert_target(), texts(requests), checkpoint, launch, draft, driving, expected=expected
    )


def of_recording(run: str, requests: int, folder: Path, fault: Fault) -> Trial:
    """Return a recorded run with the files that it was served from."""
    return Trial.of_run(
        read_run(RUNS / run).some(requests), expert_target(), write(fault.changes, folder),
        expected=Expected.of_training(METRICS, 4),
    )  # fmt: skip


def latent_halves(tensors: Tensors, config: Config) -> None:
    """Write both down-projections for the feature before the embedding."""
    for part in ("q_a_proj", "kv_a_proj_with_mqa"):
        name = f"{ATTENTION}{part}.weight"
        tensors[name] = torch.cat(tensors[name].chunk(2, dim=1)[::-1], dim=1)


def latent_pairs(tensors: Tensors, config: Config) -> None:
    """Write queries and keys for rotary pairs of two halves, as Llama has them."""
    order = torch.cat([torch.arange(0, TURNED, 2), torch.arange(1, TURNED, 2)])
    queries = tensors[f"{ATTENTION}q_b_proj.weight"].unflatten(0, (HEADS, PLAIN + TURNED)).clone()
    queries[:, PLAIN:] = queries[:, PLAIN:][:, order]
    tensors[f"{ATTENTION}q_b_proj.weight"] = queries.flatten(0, 1)
    keys = tensors[f"{ATTENTION}kv_a_proj_with_mqa.weight"].clone()
    keys[LATENT:] = keys[LATENT:][order]
    tensors[f"{ATTENTION}kv_a_proj_with_mqa.weight"] = keys


def other_head(tensors: Tensors, config: Config) -> None:
    """Save the target's first rows as the draft's head."""
    head = expert_target().head
    tensors["lm_head.weight"] = head[: len(tensors["lm_head.weight"])].bfloat16()


def other_tokenizer(tensors: Tensors, config: Config) -> None:
    """Ship an embedding whose rows belong to a tokenizer with eight more special tokens."""
    tensors["embed_tokens.weight"] = expert_target().embedding.roll(8, dims=0).bfloat16()


def normed_features(tensors: Tensors, config: Config) -> None:
    """Claim a norm before fc that the draft was trained without."""
    config["norm_before_fc"] = True
    tensors["input_norm.weight"] = torch.ones(3 * 128, dtype=torch.bfloat16)


def _theta(value: float) -> Change:
    return said(rope_theta=value)


SINGLE = (
    fault("layer-prefixed", "the layer saved under draft_model.", "decoder layer",
          renamed(LAYER, "draft_model." + LAYER)),
    fault("latent-norms-prefixed", "the norms of both latent vectors saved under draft_model.",
          "decoder layer",
          renamed(ATTENTION + "q_a_layernorm", "draft_model.q_a_layernorm"),
          renamed(ATTENTION + "kv_a_layernorm", "draft_model.kv_a_layernorm")),
    fault("fc-prefixed", "fc saved under draft_model.", "fc", renamed("fc.", "draft_model.fc.")),
    fault("fc-reversed", "fc's blocks from high to low", "fc order", blocks((2, 1, 0))),
    fault("input-halves", "feature before embedding in both down-projections", "input order",
          latent_halves),
    fault("gate-up", "gate and up saved under each other's name", "gate and up",
          exchanged("mlp.gate_proj", "mlp.up_proj")),
    fault("entry-norms", "hidden_norm and input_layernorm exchanged", "entry norms",
          exchanged("hidden_norm", "input_layernorm")),
    fault("lm-head-missing", "no lm_head in the file", "lm_head", lost("lm_head.weight")),
    fault("lm-head-other", "the target's first rows saved as lm_head", "lm_head", other_head),
    fault("d2t-absolute", "target ids in d2t", "draft vocabulary", absolute),
    fault("d2t-zeros", "d2t never filled", "draft vocabulary", zeros),
    fault("aux-late", "layers 3, 5, 6 in eagle_config", "auxiliary layers", listed(3, 5, 6)),
    fault("norm-output", "norm_output claimed", "norm_output", said(norm_output=True)),
    fault("fc-norm", "fc_norm claimed, no weights", "fc_norm", said(fc_norm=True)),
    fault("norm-before-fc", "norm_before_fc claimed", "norm_before_fc", normed_features,
          engine=TRAINER),
    fault("norm-before-residual", "norm_before_residual claimed", "norm_before_residual",
          said(norm_before_residual=True), engine=TRAINER),
    fault("theta", "rope_theta 100", "rotary positions", _theta(100.0)),
    fault("rope-pairs", "queries and keys for rotary pairs of two halves", "rotary pairs",
          latent_pairs),
    fault("embedding", "the embedding of another tokenizer shipped", "embedding", other_tokenizer,
          engine=TRAINER),
    fault("eagle", "launched as EAGLE", "launch", algorithm="EAGLE"),
)  # fmt: skip

SEVERAL = (
    fault("eagle+layer-prefixed", "launched as EAGLE, the layer saved under draft_model.",
          "launch/decoder layer", renamed(LAYER, "draft_model." + LAYER), algorithm="EAGLE"),
    fault("fc-reversed+norm-output", "fc's blocks reversed, norm_output claimed",
          "fc order/norm_output", blocks((2, 1, 0)), said(norm_output=True)),
    fault("input-halves+d2t-absolute", "input halves exchanged, target ids in d2t",
          "input order/draft vocabulary", latent_halves, absolute),
    fault("layer-prefixed+aux-late", "the layer saved under draft_model., layers 3, 5, 6",
          "decoder layer/auxiliary layers", renamed(LAYER, "draft_model." + LAYER),
          listed(3, 5, 6)),
    fault("gate-up+theta", "gate and up exchanged, rope_theta 100", "gate and up/rotary positions",
          exchanged("mlp.gate_proj", "mlp.up_proj"), _theta(100.0)),
    fault("fc-reversed+fc-norm+aux-late", "fc's blocks reversed, fc_norm claimed, layers 3, 5, 6",
          "fc order/fc_norm/auxiliary layers", blocks((2, 1, 0)), said(fc_norm=True),
          listed(3, 5, 6)),
)  # fmt: skip

RECORDED = (
    fault("chain", "nothing wrong", ""),
    fault("fc-reversed", "fc's blocks from high to low", "fc order", blocks((2, 1, 0))),
    fault("layer-prefixed", "the layer saved under draft_model.", "decoder layer",
          renamed(LAYER, "draft_model." + LAYER)),
    fault("norm-output", "norm_output claimed", "norm_output", said(norm_output=True)),
    fault("aux-late", "layers 3, 5, 6 in eagle_config", "auxiliary layers", listed(3, 5, 6)),
)  # fmt: skip
