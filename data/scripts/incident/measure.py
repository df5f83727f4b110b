"""Numbers about text: losses of simple models to compare with, and how repetitive a continuation is."""

from __future__ import annotations

from typing import Any

import numpy as np


def simple_losses(train: Any, held_out: Any, vocabulary: int) -> dict[str, float]:
    """Return held-out losses (nats a token) of a unigram and of a bigram model of the training tokens.

    The bigram is interpolated with the unigram; its weight is the best of a few on the held-out text
    itself, which can only flatter it.
    """
    train, held_out = train.astype(np.int64), held_out.astype(np.int64)
    unigram = np.bincount(train, minlength=vocabulary) + 0.5
    unigram = unigram / unigram.sum()
    pairs = np.bincount(train[:-1] * vocabulary + train[1:], minlength=vocabulary**2)
    before = np.bincount(train[:-1], minlength=vocabulary)
    first, second = held_out[:-1], held_out[1:]
    seen = pairs[first * vocabulary + second] / np.maximum(before[first], 1)
    losses = [
        -np.log(w * seen + (1 - w) * unigram[second]).mean() for w in (0.5, 0.7, 0.8, 0.9, 0.95)
    ]
    return {
        "unigram": float(-np.log(unigram[held_out]).mean()),
        "bigram": float(min(losses)),
    }


def distinct(sequences: list[list[int]], size: int) -> float:
    """Return distinct n-grams over all n-grams, counted within each sequence, averaged."""
    shares = []
    for tokens in sequences:
        grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        shares.append(len(set(grams)) / len(grams))
    return float(np.mean(shares))


def loops(tokens: list[int], longest: int = 10, times: int = 3) -> bool:
    """Tell whether a sequence ends in one that is repeated, `times` times, with a period up to `longest`."""
    for period in range(1, longest + 1):
        tail = tokens[-period * times :]
        if len(tail) == period * times and tail == tail[:period] * times:
            return True
    return False


def repetition(sequences: list[list[int]]) -> dict[str, float]:
    """Describe how repetitive sequences of one length are."""
    return {
        **{f"distinct_{size}": round(distinct(sequences, size), 4) for size in (1, 2, 3)},
        "repeated_4grams": round(1 - distinct(sequences, 4), 4),
        "looping_share": round(float(np.mean([loops(tokens) for tokens in sequences])), 4),
    }
