"""Checkpoints with a random change each, always the same for the same seed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import torch

from tests.engines.checkpoints import SEED, Case, deepseek, dense, draft, flat, kimi_draft, values

PREFIXES = ("model.", "draft_model.", "module.", "base_model.model.", "language_model.")
SPELLINGS = (
    ("midlayer", "layers.0"), ("layers.0", "midlayer"), ("layers.0", "layers.1"),
    ("self_attn", "attention"), ("mlp", "feed_forward"), ("_proj", "_linear"), ("norm", "layernorm"),
    (".weight", ".bias"), (".weight", ""), ("lm_head", "output"), ("embed_tokens", "wte"),
    ("q_proj", "qkv_proj"), ("gate_proj", "gate_up_proj"), ("fc", "fc.0"), ("d2t", "model.d2t"),
)  # fmt: skip


def mutations(count: int, version: str = "") -> Iterator[Case]:
    """Yield seeded random mutations of drafts and targets: one to three changes each.

    Parameters
    ----------
    count
        How many.
    version
        Part of the seed: each version of an engine gets others.
    """
    torch.manual_seed(SEED + 2)
    bases = [
        draft("specforge"), flat(draft("speculators")), draft("specforge-embedding"),
        flat(draft("speculators-two-layers")), flat(draft("speculators-qwen3")),
        dense("llama"), dense("qwen3"), deepseek(), kimi_draft(),
    ]  # fmt: skip
    # Drafts are what this is about: three of four mutations are of one.
    weights = [4, 4, 3, 2, 2, 1, 1, 1, 2]
    for number in range(count):
        dice = random.Random(f"{SEED} {version} {number}")
        case = dice.choices(bases, weights)[0]
        tensors = dict(case.tensors)
        done = [dice.choice(MUTATIONS)(dice, tensors) for _ in range(dice.choice((1, 1, 2, 3)))]
        name = f"mutation-{number:03d}-{case.name}-{'-'.join(done)}"
        yield dataclasses.replace(case, name=name, tensors=tensors)


def _pick(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    return dice.choice(sorted(tensors))


def _rename_one(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    key = _pick(dice, tensors)
    old, new = dice.choice([s for s in SPELLINGS if s[0] in key] or [("", "x.")])
    _move(tensors, key, key.replace(old, new, 1))
    return "rename"


def _rename_group(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    old, new = dice.choice([s for s in SPELLINGS if any(s[0] in key for key in tensors)])
    for key in sorted(tensors):
        if old in key:
            _move(tensors, key, key.replace(old, new, 1))
    return "respell"


def _prefix(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    prefix = dice.choice(PREFIXES)
    share = dice.choice((1.0, 1.0, 0.5))
    for key in sorted(tensors):
        if dice.random() < share:
            _move(tensors, key, prefix + key)
    return "prefix"


def _remove_some(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    for _ in range(dice.randint(1, 3)):
        if len(tensors) > 1:
            del tensors[_pick(dice, tensors)]
    return "remove"


def _double(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    prefix = dice.choice(PREFIXES)
    for key in dice.sample(sorted(tensors), min(3, len(tensors))):
        tensors.setdefault(prefix + key, tensors[key].clone())
    return "double"


def _reshape(dice: random.Random, tensors: dict[str, torch.Tensor]) -> str:
    key = dice.choice(
        sorted(k for k, t in tensors.items() if t.dtype.is_floating_point and t.dim())
    )
    shape = list(tensors[key].shape)
    at = dice.randrange(len(shape))
    how = dice.choice(("half", "double", "plus", "transpose", "flat"))
    if how == "half" and shape[at] > 1:
        shape[at] //= 2
    elif how == "double":
        shape[at] *= 2
    elif how == "plus":
        shape[at] += dice.choice((1, 64))
    elif how == "transpose":
        shape.reverse()
    else:
        shape = [tensors[key].numel()]
    if shape == list(tensors[key].shape):
        shape[at] += 1
    tensors[key] = values(tuple(shape), tensors[key].dtype)
    return "reshape"


def _move(tensors: dict[str, torch.Tensor], old: str, new: str) -> None:
    if new and new not in tensors:
        tensors[new] = tensors.pop(old)


MUTATIONS = (
    _rename_one, _rename_one, _rename_group, _prefix, _remove_some, _double, _reshape, _reshape,
)  # fmt: skip
