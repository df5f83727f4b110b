"""Replay recorded chains in plain PyTorch, and find out why the same draft does worse on SGLang 0.5.11.

Run by a Python with torch (the project's own has one), from the repository's root::

    python data/scripts/incident/replay_rounds.py data/incident data/incident/replayed.json --prompts 40

Each recorded answer is taken as the truth, and each recorded round is drafted again from where it began;
`agreement` is the share of rounds in which as many drafts are accepted as the engine accepted. Three ways to
draft:

`trained`    as the draft was trained.
`positions`  the tokens after the first are drafted one position too far on: 0.5.11 adds one to the positions
             before each forward pass of the draft (eagle_worker_v2.py), 0.5.14 after it.
`graph`      that, and the attention of 0.5.11's Triton backend when the draft is extended in a CUDA graph
             (triton_backend.py, draft_extend with include_v2=True): the "prefix" reaches to the end of the
             sequence, so it holds the five slots of the last verification as well, rejected ones included and
             seen by all; the accepted ones are then seen a second time. The eager path takes the true prefix.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from common import load_safetensors, write_json
from models import Draft, Llama, Sizes, rotations
from torch import Tensor
from train_draft import load_target

STEPS = 4
RUNS = {
    "sglang-0.5.14/speculators": ("trained", "graph"),
    "sglang-0.5.11/repaired": ("trained", "positions", "graph"),
}


def load_draft(folder: Path, target: Llama) -> Draft:
    """Read the draft that speculators wrote, in float32."""
    weights = load_safetensors(folder / "model.safetensors")
    layer = json.loads((folder / "config.json").read_text())["transformer_layer_config"]
    kept = weights["d2t"] + torch.arange(len(weights["d2t"]))
    draft = Draft(Sizes.read(layer), target.model.embed_tokens.weight.detach().float(), kept)
    own = {
        k: v.float() for k, v in weights.items() if k not in {"d2t", "t2d", "embed_tokens.weight"}
    }
    draft.load_state_dict(own)
    return draft.eval()


class Chain:
    """Drafts rounds of one answer.

    Parameters
    ----------
    ids
        The prompt and what the engine answered.
    """

    def __init__(self, target: Llama, draft: Draft, ids: list[int]) -> None:
        self.target, self.draft, self.ids = target, draft, ids
        features = self.features(ids)
        self.hidden = draft.fc(features)
        slots = torch.arange(len(ids) - 1)
        self.q, self.k, self.v = self.heads(torch.tensor(ids[1:]), self.hidden[:-1], slots)

    def features(self, ids: list[int]) -> Tensor:
        """Return what the target's auxiliary layers are given, [slots, 3 hidden]."""
        found = self.target(torch.tensor([ids]), self.target.sizes.auxiliary())[1]
        assert found is not None
        return found[0]

    def heads(
        self, tokens: Tensor, hidden: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of the draft's layer, [heads, slots, head_dim]."""
        layer = self.draft.layers[0]
        embedded = F.embedding(tokens, self.draft.embedding)
        x = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], dim=-1)[None]
        q, k, v = layer.self_attn.heads(x, *rotations(self.draft.sizes, positions))
        return q[0], k[0], v[0]

    def finish(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        """Return the layer's output for one query that sees all these keys."""
        layer = self.draft.layers[0]
        groups = len(q) // len(k)
        keys, values = k.repeat_interleave(groups, dim=0), v.repeat_interleave(groups, dim=0)
        weights = ((q @ keys.transpose(-1, -2)) / math.sqrt(q.shape[-1])).softmax(-1)
        hidden = hidden + layer.self_attn.join((weights @ values)[None])[0]
        return hidden + layer.mlp(layer.post_attention_layernorm(hidden))

    def best(self, hidden: Tensor) -> int:
        """Return the target id of the best draft token."""
        return int(self.draft.kept[self.draft.lm_head(self.draft.norm(hidden))[-1].argmax()])

    def seen_in_graph(self, root: int, known: int, drafts: list[int]) -> tuple[Tensor, Tensor]:
        """Return what the root sees in 0.5.11's graph; the round before began with `known` tokens."""
        rows = torch.arange(root - known + 2, STEPS + 1)  # of its block, those that were rejected
        keys, values = [self.k[:, : root + 1]], [self.v[:, : root + 1]]
        if len(rows):
            slots = known - 1 + rows
            hidden = self.draft.fc(self.features(self.ids[:known] + drafts)[slots])
            _, k, v = self.heads(torch.zeros(len(rows), dtype=torch.long), hidden, slots)
            keys.append(k)
            values.append(v)
        again = slice(known - 1, root + 1)
        keys.append(self.k[:, again])
        values.append(self.v[:, again])
        return torch.cat(keys, dim=1), torch.cat(values, dim=1)

    def rounds(self, starts: list[int], way: str) -> list[int]:
        """Return how many drafts are accepted in rounds that begin with so many tokens known."""
        accepted, before = [], None
        for known in starts:
            root = known - 2
            k, v = self.k[:, : root + 1], self.v[:, : root + 1]
            seen = self.seen_in_graph(root, *before) if way == "graph" and before else (k, v)
            hidden = self.finish(self.q[:, root : root + 1], *seen, self.hidden[root : root + 1])
            drafts = [self.best(hidden)]
            for number in range(1, STEPS):
                place = torch.tensor([root + number + (way != "trained")])
                q, key, value = self.heads(torch.tensor([drafts[-1]]), hidden, place)
                k, v = torch.cat([k, key], dim=1), torch.cat([v, value], dim=1)
                hidden = self.finish(q, k, v, hidden)
                drafts.append(self.best(hidden))
            right = [a == b for a, b in zip(drafts, self.ids[known:], strict=False)]
            accepted.append((*right, False).index(False))
            before = (known, drafts)
        return accepted


@torch.no_grad()
def compare(
    target: Llama, draft: Draft, requests: list[dict[str, Any]], way: str
) -> dict[str, Any]:
    """Replay requests; rounds that the end of the answer may have cut are not counted."""
    observed, replayed = [], []
    for request in requests:
        prompt, answer = request["input_ids"], request["last"]["output_ids"]
        counts = [chunk[0] for chunk in request["chunks"]]
        chain = Chain(target, draft, prompt + answer)
        found = chain.rounds([len(prompt) + count for count in counts[:-1]], way)
        for start, end, mine in zip(counts, counts[1:], found, strict=False):
            if start + STEPS + 1 <= len(answer):
                observed.append(end - start - 1)
                replayed.append(mine)
    same = sum(a == b for a, b in zip(observed, replayed, strict=True))
    first = sum((a > 0) == (b > 0) for a, b in zip(observed, replayed, strict=True))
    return {
        "rounds": len(observed),
        "agreement": round(same / len(observed), 4),
        "agreement_first": round(first / len(observed), 4),
        "accept_length_engine": round(1 + sum(observed) / len(observed), 4),
        "accept_length_replayed": round(1 + sum(replayed) / len(replayed), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="the shipped case")
    parser.add_argument("out", type=Path)
    parser.add_argument("--prompts", type=int, default=40)
    arguments = parser.parse_args()
    target = load_target(arguments.data / "target", "cpu")
    draft = load_draft(arguments.data / "drafts" / "speculators", target)
    result: dict[str, Any] = {"prompts": arguments.prompts, "dtype": "float32"}
    for name, ways in RUNS.items():
        with gzip.open(arguments.data / "runs" / name / "requests.jsonl.gz", "rt") as file:
            requests = [json.loads(line) for line in file][: arguments.prompts]
        result[name] = {way: compare(target, draft, requests, way) for way in ways}
        print(name, json.dumps(result[name], indent=1), flush=True)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
