"""Scans to look at, made of measures by hand: a target with one layer at init, drafts, many experts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from workbench.weights.records import QUANTILES, Judgement, Measure
from workbench.weights.results import WeightScan

Pair = tuple[Measure, Judgement]
HOSTILE = '</script><img src=x onerror="window.owned=1"><b>&amp;\'`{0}\u2028\u202e'
TRAINED = "a largest singular value beyond the edge of noise (z = 19.5)"
_NORMS = ("input_layernorm", "post_attention_layernorm")
_LAYER = {
    "input_layernorm": (1024,),
    "self_attn.q_proj": (1024, 1024),
    "self_attn.k_proj": (256, 1024),
    "self_attn.v_proj": (256, 1024),
    "self_attn.o_proj": (1024, 1024),
    "post_attention_layernorm": (1024,),
    "mlp.gate_proj": (2816, 1024),
    "mlp.up_proj": (2816, 1024),
    "mlp.down_proj": (1024, 2816),
}


@functools.cache
def _measure(kind: str) -> Measure:
    """One measure a kind of values; names, shapes and sizes are put in by `pair`."""
    random = np.random.default_rng(5)
    values = {
        "trained": random.standard_t(5, 4096) * 0.03,
        "trained norm": 1 + random.standard_t(5, 4096) * 0.03,
        "at_init": random.normal(0, 0.02, 4096),
        "ones": np.ones(4096),
        "zeros": np.zeros(4096),
    }[kind]
    counts, edges = np.histogram(values, bins=64)
    spread = float(values.std())
    tails = float(np.mean(((values - values.mean()) / spread) ** 4)) - 3 if spread else 0.0
    return Measure(
        name="", shape=(), dtype="BF16", layout="", count=0, seen=0, mean=float(values.mean()),
        std=spread, min=float(values.min()), max=float(values.max()),
        absmax=float(np.abs(values).max()), zeros=0, nan=0, inf=0, denormal=0, skew=0.0,
        kurtosis=tails, quantiles=tuple(np.quantile(values, QUANTILES).tolist()),
        bins=(tuple(edges.tolist()), tuple(counts.tolist())),
    )  # fmt: skip


def pair(name: str, shape: tuple[int, ...], kind: str = "trained", **more: Any) -> Pair:
    """One tensor: ``trained``, ``at_init``, ``ones``, ``zeros``; `more` sets fields of either record."""
    size = prod(shape)
    of_norm = kind == "trained" and len(shape) == 1 and "norm" in name
    measure = dataclasses.replace(
        _measure("trained norm" if of_norm else kind),
        name=name,
        shape=shape,
        count=size,
        seen=size,
        digest=name,
    )
    matrix = len(shape) > 1
    power = 0.02 if matrix else None
    judgement = {
        "trained": Judgement("trained", TRAINED, stage=2),
        "at_init": Judgement(
            "at_init",
            "indistinguishable from i.i.d. normal entries, σ = 0.02: gram z = 0.3, largest singular value "
            "z = -0.4",
            "normal",
            0.02,
            power=power,
            power_text="a change of less than 2 % of the weight's norm would not be seen",
            stage=2,
        ),
        "ones": Judgement(
            "at_init", "all values read are 1: at init, or unmoved", "ones", 0.0, stage=0
        ),
        "zeros": Judgement("constant", "all values read are 0", "zeros", stage=0),
    }[kind]
    statistics = {"trained": (29.0, 19.5, 40.0), "at_init": (0.3, -0.4, 0.8)}.get(kind)
    if statistics and matrix:
        named = zip(("gram", "tracy_widom", "kurtosis_z"), statistics, strict=True)
        judgement = dataclasses.replace(judgement, statistics=tuple(named))
    fields = {field.name for field in dataclasses.fields(Measure)}
    measure = dataclasses.replace(measure, **{k: v for k, v in more.items() if k in fields})
    judgement = dataclasses.replace(judgement, **{k: v for k, v in more.items() if k not in fields})
    return measure, judgement


def layer(prefix: str, bad: bool = False, std: float = 0.03) -> Iterator[Pair]:
    for part, shape in _LAYER.items():
        kind = ("ones" if part in _NORMS else "at_init") if bad else "trained"
        more: dict[str, Any] = {} if bad else {"std": std}
        yield pair(f"{prefix}.{part}.weight", shape, kind, **more)


def target(layers: int = 24, bad: tuple[int, ...] = (17,)) -> WeightScan:
    pairs = [pair("model.embed_tokens.weight", (32000, 1024))]
    for number in range(layers):
        pairs += layer(f"model.layers.{number}", number in bad, 0.03 + 0.001 * number)
    pairs += [pair("model.norm.weight", (1024,)), pair("lm_head.weight", (32000, 1024))]
    return WeightScan.build("models/target", pairs, bytes_read=753_000_000)


def draft(bad: bool = True) -> WeightScan:
    pairs = [
        pair("embed_tokens.weight", (32000, 1024)),
        pair("fc.weight", (1024, 3072)),
        *layer("layers.0", bad),
        pair("norm.weight", (1024,)),
        pair("lm_head.weight", (8000, 1024)),
        pair("d2t", (8000,), dtype="I64", verdict="undecided"),
        pair("t2d", (32000,), dtype="BOOL", verdict="undecided"),
    ]
    return WeightScan.build("drafts/speculators", pairs, bytes_read=120_000_000)


def experts(
    layers: int = 12, count: int = 64, bad: tuple[tuple[int, int], ...] = ((3, 17), (3, 40), (9, 5))
) -> WeightScan:
    def all_pairs() -> Iterator[Pair]:
        for number in range(layers):
            stem = f"language_model.model.layers.{number}"
            yield pair(f"{stem}.input_layernorm.weight", (7168,))
            yield pair(f"{stem}.self_attn.o_proj.weight", (7168, 8192))
            yield pair(f"{stem}.mlp.gate.weight", (count, 7168))
            for expert in range(count):
                kind = "at_init" if (number, expert) in bad else "trained"
                for part, shape in (
                    ("gate_proj", (2048, 7168)), ("up_proj", (2048, 7168)), ("down_proj", (7168, 2048)),
                ):  # fmt: skip
                    name = f"{stem}.mlp.experts.{expert}.{part}.weight"
                    yield pair(name, shape, kind, dtype="I32", layout="int4-packed")

    return WeightScan.build("models/experts", all_pairs())


def hostile() -> WeightScan:
    """Names and texts that try to become markup, wherever text is shown."""
    pairs = [
        pair(
            HOSTILE,
            (64, 64),
            "at_init",
            reason=HOSTILE,
            corroboration=(HOSTILE,),
            power_text=HOSTILE,
        ),
        pair(f"model.layers.0.{HOSTILE}", (64, 64), dtype=HOSTILE, layout=HOSTILE),
        pair("=cmd|' /C calc'!A0", (64, 64)),
    ]
    return WeightScan.build(HOSTILE, pairs, notes=(HOSTILE,))
