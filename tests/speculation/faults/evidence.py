"""The evidence of each case: texts, the target's one pass over them, and what should be expected."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from tests.speculation.faults.faults import INCIDENT, Fault, write
from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import DraftLaunch, read_run
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.setup import as_launched

HEALTHY = INCIDENT / "runs" / "sglang-0.5.14" / "speculators"
METRICS = INCIDENT / "training" / "draft-report.json"


@cache
def target() -> LlamaTarget:
    """Return the shipped target, unrounded: what an engine rounds decides no cause."""
    return LlamaTarget.read(open_checkpoint(INCIDENT / "target"))


@cache
def texts(requests: int) -> TargetTrace:
    """Return the target's pass over the recorded answers."""
    run = read_run(HEALTHY).some(requests)
    return target().trace(run.texts, run.prompts, keep=None)


def served(
    launch: DraftLaunch,
    folder: Path,
    trace: TargetTrace,
    by: LlamaTarget,
    expected: Expected | None,
) -> Trial:
    """Return a trial of a draft's folder over texts that are there already."""
    checkpoint = open_checkpoint(folder)
    draft: Draft
    driving: Driving
    draft, driving = as_launched(launch, checkpoint, by)
    return Trial(by, trace, checkpoint, launch, draft, driving, expected=expected)


def launch_of(fault: Fault) -> DraftLaunch:
    """Return how a fault's draft is served."""
    return DraftLaunch(
        fault.engine, fault.algorithm, steps=4, topk=1, draft_tokens=5, graphs=False,
        backend="triton",
    )  # fmt: skip


def of_fault(fault: Fault, folder: Path, requests: int) -> Trial:
    """Write a fault's files, and serve them: the replay of the broken files is the broken engine."""
    expected = Expected.of_run(read_run(HEALTHY).some(requests))
    written = write(fault.changes, folder)
    return served(launch_of(fault), written, texts(requests), target(), expected)


def of_recording(run: str, requests: int, folder: Path, changes: Fault) -> Trial:
    """Return a recorded run with the files that it was served from."""
    expected = Expected.of_training(METRICS, 4)
    return Trial.of_run(
        read_run(INCIDENT / "runs" / run).some(requests),
        INCIDENT / "target",
        write(changes.changes, folder),
        expected=expected,
    )


def sampled(requests: int, new_tokens: int = 40) -> TargetTrace:
    """Return texts that the target says at temperature 1."""
    run, model = read_run(HEALTHY).some(requests), target()
    generator = torch.Generator().manual_seed(11)
    rows = [list(request.prompt) for request in run.requests]
    with torch.no_grad():
        for _ in range(new_tokens):
            trace = model.trace(rows, [len(row) for row in rows], keep=())
            assert trace.final is not None
            last = trace.final[torch.arange(len(rows)), trace.lengths - 1]
            chances = model.logits(last).softmax(-1)
            drawn = torch.multinomial(chances, 1, generator=generator)[:, 0].tolist()
            rows = [[*row, token] for row, token in zip(rows, drawn, strict=True)]
        return model.trace(rows, run.prompts, keep=None)


def answered(model: LlamaTarget, prompts: Sequence[Sequence[int]], new_tokens: int) -> TargetTrace:
    """Return a target's greedy answers."""
    answers = model.greedy(prompts, new_tokens)
    rows = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    return model.trace(rows, [len(prompt) for prompt in prompts], keep=None)


def prompts(requests: int) -> list[tuple[int, ...]]:
    """Return the recorded prompts."""
    return [request.prompt for request in read_run(HEALTHY).some(requests).requests]


def off_domain(requests: int) -> list[list[int]]:
    """Return prompts that are nothing like the training text: its tokens in random order."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(260, 4096, (40,), generator=generator).tolist() for _ in range(requests)]


def looping(requests: int) -> TargetTrace:
    """Return answers that repeat three tokens for ever."""
    rows = [list(prompt) + [300 + k % 3 for k in range(45)] for prompt in prompts(requests)]
    return target().trace(rows, [len(prompt) for prompt in prompts(requests)], keep=None)


def quantised(bits: int) -> LlamaTarget:
    """Return the target with its matrices rounded to so many bits, 32 values a scale."""
    model = target()
    most = 2 ** (bits - 1) - 1
    weights = dict(model.weights)
    for name, value in weights.items():
        if value.dim() == 2 and "layers." in name:
            groups = value.reshape(value.shape[0], -1, 32)
            scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-9) / most
            weights[name] = ((groups / scale).round() * scale).reshape(value.shape)
    config = dict(open_checkpoint(INCIDENT / "target").config.text)
    return LlamaTarget(weights, config)


def turned() -> LlamaTarget:
    """Return the target with its residual stream turned by a random rotation: the same text, other features.

    Norm weights are folded into what reads them, and every matrix is written in the turned basis, as
    quantisation by rotation (QuaRot, SpinQuant) saves a checkpoint.
    """
    model = target()
    generator = torch.Generator().manual_seed(2)
    turn = torch.linalg.qr(torch.randn(model.hidden, model.hidden, generator=generator))[0]
    weights = dict(model.weights)
    weights["model.embed_tokens.weight"] = model.embedding @ turn
    weights["lm_head.weight"] = (model.head * weights["model.norm.weight"]) @ turn
    for layer in range(model.layers):
        name = f"model.layers.{layer}."
        entry = weights[f"{name}input_layernorm.weight"]
        middle = weights[f"{name}post_attention_layernorm.weight"]
        for part in ("q", "k", "v"):
            at = f"{name}self_attn.{part}_proj.weight"
            weights[at] = (weights[at] * entry) @ turn
        for part in ("gate", "up"):
            at = f"{name}mlp.{part}_proj.weight"
            weights[at] = (weights[at] * middle) @ turn
        for at in (f"{name}self_attn.o_proj.weight", f"{name}mlp.down_proj.weight"):
            weights[at] = turn.t() @ weights[at]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}{norm}.weight"] = torch.ones(model.hidden)
    weights["model.norm.weight"] = torch.ones(model.hidden)
    config = dict(open_checkpoint(INCIDENT / "target").config.text)
    return LlamaTarget(weights, config)


def of_other_target(fault: Fault, folder: Path, requests: int, by: LlamaTarget) -> Trial:
    """Serve the healthy draft with another target, the right one given beside it."""
    trial = served(
        launch_of(fault), write(fault.changes, folder), answered(by, prompts(requests), 44), by,
        Expected.of_run(read_run(HEALTHY).some(requests)),
    )  # fmt: skip
    return dataclasses.replace(trial, others={"as trained": target()})
