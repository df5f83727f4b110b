"""Recorded rounds drafted again on an engine's kind of card, call by call in the engine's own shapes.

    python -m benchmarks.replay_on_card --kernels .../sglang/srt/layers/attention/triton_ops [--prompts 200]

Prints JSON; needs a CUDA card. The workbench sums in an order of its own, and bfloat16 then decides a round
in a hundred otherwise. Here nothing is left to chance: request by request, the prompt at once, the drafted
tokens in one verification, the same matrix products of cuBLAS, the engine's own attention kernels.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.replay_fidelity import DATA
from workbench import fix_checkpoint, open_checkpoint
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import Run, read_run
from workbench.speculation.model import eagle3
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds import tree as trees
from workbench.speculation.rounds.setup import as_launched

RUNS = {
    "sglang-0.5.14/speculators": "speculators",
    "sglang-0.5.14/speculators-tree": "speculators",
    "sglang-0.5.11/repaired": "repaired",
    "sglang-0.5.11/repaired-tree": "repaired",
}
# Places of the pool: the text, the branches being drafted, the tree being verified.
PLACES, BRANCHES, VERIFIED = 1024, 600, 800
AHEAD = 8  # places of a branch


class PlainOps:
    """The same operations in plain PyTorch and float32, which tell whether the calls are right."""

    device, dtype = "cpu", torch.float32

    def norm(self, x: Tensor, weight: Tensor, epsilon: float, residual: Any = None) -> Tensor:
        """Return the norm of `x`, or of its sum with `residual`, which becomes that sum."""
        if residual is not None:
            x = residual.add_(x)
        return x * (x * x).mean(-1, keepdim=True).add(epsilon).rsqrt() * weight

    def gate(self, x: Tensor) -> Tensor:
        """Return SiLU of the first half of each row times the second."""
        first, second = x.chunk(2, dim=-1)
        return F.silu(first) * second

    def turn(self, x: Tensor, places: Tensor, table: Tensor, heads: int) -> None:
        """Turn the first `heads` heads of each row in place."""
        cos, sin = table[places][:, None].chunk(2, dim=-1)
        part = x[:, : heads * table.shape[1]]
        first, second = part.view(len(x), heads, -1).chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        part.copy_(turned.flatten(1))

    def extend(
        self, pool: Pool, layer: int, qkv: tuple[Tensor, ...], prefix: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attend to the places `prefix` of the pool and to the rows themselves, causally or by `mask`."""
        q, k, v = qkv
        before = torch.ones(len(q), len(prefix), dtype=torch.bool)
        if mask is None:
            mask = torch.cat([before, torch.ones(len(q), len(q), dtype=torch.bool).tril()], 1)
        keys = torch.cat([pool.keys[layer][prefix], k])
        values = torch.cat([pool.values[layer][prefix], v])
        return _attend(
            q, keys.expand(len(q), *keys.shape), values.expand(len(q), *values.shape), mask
        )

    def decode(self, pool: Pool, layer: int, q: Tensor, places: Tensor) -> Tensor:
        """Attend to each row's own places of the pool, [rows, places]."""
        mask = torch.ones(places.shape, dtype=torch.bool)
        return _attend(q, pool.keys[layer][places], pool.values[layer][places], mask)


def _attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attend with keys of each row, [rows, places, key heads, width]."""
    group = q.shape[1] // keys.shape[2]
    keys, values = keys.repeat_interleave(group, 2), values.repeat_interleave(group, 2)
    scores = torch.einsum("nhd,nphd->nhp", q, keys) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1)
    return torch.einsum("nhp,nphd->nhd", weights, values)


class Pool:
    """Keys and values of one model for one request."""

    def __init__(self, layers: int, key_heads: int, width: int, ops: Any) -> None:
        shape = (layers, PLACES, key_heads, width)
        self.keys = torch.zeros(shape, device=ops.device, dtype=ops.dtype)
        self.values = torch.zeros_like(self.keys)


class Model:
    """What target and draft share: fused weights, one layer, rotary table, pool."""

    def __init__(self, ops: Any, width: int, epsilon: float, theta: float) -> None:
        self.ops, self.width, self.epsilon = ops, width, epsilon
        # As the engine has it: in float32, on the card. Its last bits count.
        even = torch.arange(0, width, 2, dtype=torch.float32, device=ops.device)
        inverse = 1.0 / (theta ** (even / width))
        turns = torch.outer(torch.arange(PLACES, device=ops.device).float(), inverse)
        self.table = torch.cat([turns.cos(), turns.sin()], -1).contiguous()

    def put(self, *values: Tensor) -> Tensor:
        """Return tensors joined, on the card and in its type."""
        joined = torch.cat([value.to(self.ops.device).to(self.ops.dtype) for value in values])
        return joined.contiguous()

    def fused(self, weights: Any, name: str) -> dict[str, Tensor]:
        """Return the weights of a layer as engines join them."""
        return {
            "qkv": self.put(*(weights[f"{name}self_attn.{p}_proj.weight"] for p in "qkv")),
            "o": self.put(weights[f"{name}self_attn.o_proj.weight"]),
            "gate_up": self.put(*(weights[f"{name}mlp.{p}_proj.weight"] for p in ("gate", "up"))),
            "down": self.put(weights[f"{name}mlp.down_proj.weight"]),
            "after": self.put(weights[f"{name}post_attention_layernorm.weight"]),
        }

    def layer(
        self, number: int, w: dict[str, Tensor], x: Tensor, residual: Tensor, call: Call
    ) -> Tensor:
        """Run one layer behind its first norm."""
        pool, width = self.pool, self.width
        key_heads = pool.keys.shape[2]
        joined = F.linear(x, w["qkv"])
        heads = joined.shape[1] // width - 2 * key_heads
        self.ops.turn(joined, call.positions, self.table, heads + key_heads)
        sizes = [heads * width, key_heads * width, key_heads * width]
        q, k, v = (part.reshape(len(x), -1, width) for part in joined.split(sizes, 1))
        pool.keys[number][call.store], pool.values[number][call.store] = k, v
        if call.decode is None:
            out = self.ops.extend(pool, number, (q, k, v), call.prefix, call.mask)
        else:
            out = self.ops.decode(pool, number, q, call.decode)
        x = F.linear(out.reshape(len(x), -1), w["o"])
        x = self.ops.norm(x, w["after"], self.epsilon, residual)
        return F.linear(self.ops.gate(F.linear(x, w["gate_up"])), w["down"])

    pool: Pool


@dataclasses.dataclass(frozen=True)
class Call:
    """Where the rows of one call stand, what they see, and where their keys are put."""

    positions: Tensor
    store: Tensor
    prefix: Tensor | None = None
    mask: Tensor | None = None
    decode: Tensor | None = None


class Target(Model):
    """The target, as an engine calls it."""

    def __init__(self, plain: LlamaTarget, theta: float, ops: Any) -> None:
        super().__init__(ops, plain.head_dim, plain.epsilon, theta)
        w = plain.weights
        key_heads = len(w["model.layers.0.self_attn.k_proj.weight"]) // plain.head_dim
        self.pool = Pool(plain.layers, key_heads, plain.head_dim, ops)
        self.embedding = self.put(w["model.embed_tokens.weight"])
        names = [f"model.layers.{number}." for number in range(plain.layers)]
        self.layers = [self.fused(w, name) for name in names]
        self.first = [self.put(w[f"{name}input_layernorm.weight"]) for name in names]

    def features(self, tokens: Tensor, aux: Sequence[int], call: Call) -> Tensor:
        """Return the inputs of the layers `aux`, side by side."""
        residual, x, kept = self.embedding[tokens], None, []
        for number, (w, norm) in enumerate(zip(self.layers, self.first, strict=True)):
            if x is None:
                y = self.ops.norm(residual, norm, self.epsilon)
            else:
                y = self.ops.norm(x, norm, self.epsilon, residual)
            if number in aux:
                kept.append(residual.clone())
            x = self.layer(number, w, y, residual, call)
        return torch.cat(kept, -1)


class Draft(Model):
    """A draft of one layer, as an engine calls it."""

    def __init__(self, plain: eagle3.Draft, theta: float, ops: Any) -> None:
        s, t = plain.settings, plain.tensors
        super().__init__(ops, s.head_dim, s.epsilon, theta)
        self.pool = Pool(1, s.key_heads, s.head_dim, ops)
        names = ("embed_tokens", "fc", "norm", "lm_head")
        self.embedding, self.fc, self.norm, self.head = (self.put(t[f"{n}.weight"]) for n in names)
        self.weights = self.fused(t, "layers.0.")
        self.hidden_norm = self.put(t["layers.0.hidden_norm.weight"])
        self.input_norm = self.put(t["layers.0.input_layernorm.weight"])
        self.to_target = plain.to_target.to(ops.device)

    def run(self, tokens: Tensor, hidden: Tensor, call: Call) -> tuple[Tensor, Tensor]:
        """Return what the head reads, and what the next step is fed."""
        if hidden.shape[1] != self.embedding.shape[1]:
            hidden = F.linear(hidden, self.fc)
        residual, norm = hidden.clone(), self.ops.norm
        embedded = norm(self.embedding[tokens], self.input_norm, self.epsilon)
        x = torch.cat([embedded, norm(hidden, self.hidden_norm, self.epsilon)], -1)
        x = self.layer(0, self.weights, x, residual, call)
        return norm(x, self.norm, self.epsilon, residual), residual

    def best(self, normed: Tensor, topk: int) -> tuple[Tensor, Tensor]:
        """Return probabilities and target ids of the best tokens."""
        logits = torch.matmul(normed, self.head.T).float()
        probabilities, ids = trees.best(logits.softmax(-1), topk)
        return probabilities, self.to_target[ids]


@dataclasses.dataclass(frozen=True)
class Round:
    """What a round drafted, and how many tokens it emits."""

    tokens: list[int]
    emitted: int


def replay(
    target: Target, draft: Draft, driving: Driving, text: Sequence[int], prompt: int,
    starts: Sequence[int], emitted: Sequence[int],
) -> list[Round]:  # fmt: skip
    """Draft the rounds of one request again; each begins with the engine's own text before it."""
    device = draft.ops.device
    known_text = torch.tensor([*text, *[0] * driving.draft_tokens], device=device)
    row = torch.arange(PLACES, device=device)
    whole = Call(row[:prompt], row[:prompt], row[:0])
    features = target.features(known_text[:prompt], driving.aux or (), whole)
    normed, fed = draft.run(known_text[1 : prompt + 1], features, whole)
    best, fed = draft.best(normed[-1:], driving.topk), fed[-1:]
    out = []
    for known, count in zip(starts, emitted, strict=True):
        tree = grow(draft, driving, known - 2, best, fed)
        tokens, parents, depths = torch.stack([tree.tokens, tree.parents, tree.depths])[
            :, 0
        ].tolist()
        path = walk(tokens, parents, text[known:])
        out.append(Round(tokens, min(len(path) + 1, len(text) - known)))
        features = verify(target, driving, text, known, count, (tokens, parents, depths, path), row)
        # What goes into the draft again: the new tokens, and what the engine's shapes drag along.
        rows = driving.steps + 1 if driving.extend == "accepted" else driving.draft_tokens
        again = known_text[known : known + rows].clone()
        if driving.extend == "block":
            again[count:] = 0
        seen = {"prefix": 0, "block": driving.draft_tokens, "accepted": count}[driving.extend]
        place = row[known - 1 : known - 1 + rows]
        call = Call(place, place, row[: known - 1 + seen])
        normed, fed = draft.run(again, features[:rows], call)
        # The head reads all rows, as in the engine's graph; one of them counts.
        chances, ids = draft.best(normed, driving.topk)
        best, fed = (chances[count - 1 : count], ids[count - 1 : count]), fed[count - 1 : count]
    return out


def grow(
    draft: Draft, driving: Driving, root: int, best: tuple[Tensor, Tensor], fed: Tensor
) -> trees.Tree:
    """Draft the tree of one round."""
    topk = driving.topk
    row = torch.arange(PLACES, device=fed.device)
    level = trees.first_level(*best)
    levels, fed = [level], fed.expand(topk, -1).contiguous()
    branches = BRANCHES + AHEAD * row[:topk, None]
    for step in range(1, driving.steps):
        if step > 1:
            fed = fed[(level.forwarded // topk)[0]]
        tokens = level.tokens.gather(1, level.forwarded)[0]
        ahead = 0 if driving.frozen else step + driving.ahead
        seen = torch.cat([row[: root + 1].expand(topk, -1), branches + row[1 : step + 1]], 1)
        call = Call(row[root + ahead].repeat(topk), branches[:, 0] + step, decode=seen)
        normed, fed = draft.run(tokens, fed, call)
        chances, ids = draft.best(normed, topk)
        level = trees.next_level(level, chances[None], ids[None])
        levels.append(level)
    return trees.prune(levels, driving.draft_tokens - 1)


def walk(tokens: list[int], parents: list[int], wanted: Sequence[int]) -> list[int]:
    """Return the nodes that say what the text says."""
    path, at = [], -1
    for token in wanted:
        found = [n for n, t in enumerate(tokens) if parents[n] == at and t == token]
        if not found:
            break
        at = found[0]
        path.append(at)
    return path


def verify(
    target: Target, driving: Driving, text: Sequence[int], known: int, count: int,
    drafted: tuple[list[int], list[int], list[int], list[int]], row: Tensor,
) -> Tensor:  # fmt: skip
    """Run the target over the tree; return features, those of the engine's `count` tokens first.

    Where this tree lacks what the engine accepted, the text takes its first nodes' place.
    """
    tokens, parents, depths, path = drafted
    ids = [text[known - 1], *tokens]
    above, deep = [-1, *(p + 1 for p in parents)], [0, *depths]
    size, before = len(ids), known - 1
    if driving.topk > 1 and len(path) >= count - 1:
        rows = [0, *(n + 1 for n in path[: count - 1])]
    else:
        rows = list(range(count))
        ids[1:count] = text[known : known + count - 1]
        above[1:count], deep[1:count] = range(count - 1), range(1, count)
        if driving.topk > 1:
            above[count:], deep[count:] = [0] * (size - count), [1] * (size - count)
    tokens_there, depth = torch.tensor([ids, deep], device=row.device)
    chain = driving.topk == 1
    store = row[before : before + size] if chain else row[VERIFIED : VERIFIED + size]
    mask = None if chain else seen_by(above, before).to(row.device)
    call = Call(before + depth, store, row[:before], mask)
    features = target.features(tokens_there, driving.aux or (), call)
    if chain:
        return features
    pool, moved = target.pool, VERIFIED + torch.tensor(rows, device=row.device)
    for kept in (pool.keys, pool.values):
        kept[:, before : before + count] = kept[:, moved]
    return features[torch.tensor(rows + [0] * (size - count), device=row.device)]


def seen_by(parents: Sequence[int], before: int) -> Tensor:
    """Return which places each node sees: all before the tree, its ancestors, itself."""
    size = len(parents)
    seen = np.zeros((size, before + size), dtype=bool)
    seen[:, :before] = True
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node, before:] |= seen[parent, before:]
        seen[node, before + node] = True
    return torch.from_numpy(seen)


def replay_run(run: Run, draft: Path, ops: Any) -> list[list[Round]]:
    """Replay all requests of a run."""
    checkpoint = open_checkpoint(DATA / "target")
    plain, theta = LlamaTarget.read(checkpoint), float(checkpoint.config.text["rope_theta"])
    loaded, driving = as_launched(run.launch, open_checkpoint(draft), plain)
    target, used = Target(plain, theta, ops), Draft(loaded, theta, ops)
    with torch.inference_mode():
        return [
            replay(target, used, driving, text, prompt, starts, emitted)
            for text, prompt, starts, emitted in zip(
                run.texts, run.prompts, run.starts, run.emitted, strict=True
            )
        ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=Path, required=True, help="the engine's triton_ops")
    parser.add_argument("--prompts", type=int, default=200)
    chosen = parser.parse_args(arguments)
    from benchmarks.card_kernels import CardOps

    ops = CardOps(chosen.kernels)
    with tempfile.TemporaryDirectory() as folder:
        repaired = Path(folder) / "repaired"
        fix_checkpoint(DATA / "drafts" / "speculators", "sglang==0.5.11", repaired)
        for name, draft in RUNS.items():
            run, began = read_run(DATA / "runs" / name).some(chosen.prompts), time.monotonic()
            found = replay_run(
                run, repaired if draft == "repaired" else DATA / "drafts" / draft, ops
            )
            got = np.array([r.emitted for rounds in found for r in rounds])
            same = got == np.array([n for emitted in run.emitted for n in emitted])
            row = {
                "run": name,
                "rounds": len(got),
                "agree": float(same.mean()),
                "other": int((~same).sum()),
            }
            print(json.dumps({**row, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
