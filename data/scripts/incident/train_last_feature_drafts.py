"""Train two small drafts that read the target's last features: one as EAGLE-2, one as MiMo's MTP layer.

On a GPU host, nothing but PyTorch and numpy is needed; two minutes::

    python3 data/scripts/incident/train_last_feature_drafts.py data/incident $OUT

The texts are what the target writes after beginnings of the shipped prompts, half of them greedily and half
sampled; the first 40 prompts are left for tests. The loss is the cross-entropy with the target's choices.
Steps after the first are given the draft's own outputs of the step before, moved by one place, as in serving.

The two modules are written from what their classes compute in SGLang (llama_eagle.py, mimo_mtp.py). Embedding
and head are the target's, and are not saved. Writes OUT/eagle and OUT/mtp, each with model.safetensors
(bfloat16), config.json and report.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from common import Log, read_lines, save_safetensors, write_json
from models import Attention, Llama, Mlp, Norm, Sizes, cosine, optimizer, rotations
from torch import Tensor, nn
from torch.nn import functional
from train_draft import load_target

HELD_OUT, LENGTH, UNROLLED = 40, 128, 4
SIZES = Sizes(num_hidden_layers=1, intermediate_size=256)


class Layer(nn.Module):
    """A decoder layer; EAGLE's first one has no norm in front of its attention."""

    def __init__(self, entry: bool, bias: bool) -> None:
        super().__init__()
        h = SIZES.hidden_size
        self.input_layernorm = Norm(h, SIZES.rms_norm_eps) if entry else nn.Identity()
        self.self_attn = Attention(SIZES, h)
        if bias:
            for name in ("q_proj", "k_proj", "v_proj"):
                rows = getattr(self.self_attn, name).out_features
                setattr(self.self_attn, name, nn.Linear(h, rows))
        self.post_attention_layernorm = Norm(h, SIZES.rms_norm_eps)
        self.mlp = Mlp(SIZES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, the residual included."""
        turn = rotations(SIZES, torch.arange(x.shape[1], device=x.device))
        q, k, v = self.self_attn.heads(self.input_layernorm(x), *turn)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.self_attn.join(out)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle(nn.Module):
    """EAGLE-1 and EAGLE-2: fc joins embedding and feature; what comes out stands for the next feature."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * SIZES.hidden_size, SIZES.hidden_size)
        self.layers = nn.ModuleList([Layer(entry=False, bias=False)])

    def forward(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """Return what the head reads and the next step is given."""
        return self.layers[0](self.fc(torch.cat([embedded, hidden], dim=-1)))


class Mtp(nn.Module):
    """MiMo's MTP layer: both are normed, the feature goes first, and the first place has no embedding."""

    def __init__(self) -> None:
        super().__init__()
        h, epsilon = SIZES.hidden_size, SIZES.rms_norm_eps
        self.token_layernorm, self.hidden_layernorm = Norm(h, epsilon), Norm(h, epsilon)
        self.input_proj = nn.Linear(2 * h, h, bias=False)
        self.mtp_block = Layer(entry=True, bias=True)
        self.final_layernorm = Norm(h, epsilon)

    def forward(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """Return what the head reads and the next step is given."""
        embedded = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, 1:]], dim=1)
        pair = [self.hidden_layernorm(hidden), self.token_layernorm(embedded)]
        return self.final_layernorm(self.mtp_block(self.input_proj(torch.cat(pair, dim=-1))))


@torch.no_grad()
def texts(target: Llama, prompts: list[list[int]], count: int) -> Tensor:
    """Return texts [count, LENGTH]: beginnings of prompts, continued greedily or at temperature 0.8."""
    device = target.lm_head.weight.device
    longest = max(map(len, prompts))
    table = torch.tensor([[*p, *[0] * (longest - len(p))] for p in prompts], device=device)
    whole = torch.tensor([len(p) for p in prompts], device=device)
    rows = torch.randint(len(prompts), (count,), device=device)
    lengths = (4 + (whole[rows] - 3) * torch.rand(count, device=device)).long()
    half = count // 2
    greedy = [
        target.continue_greedily(table[rows[at]], lengths[at], LENGTH)
        for at in torch.arange(half, device=device).split(1024)
    ]
    sampled = functional.pad(table[rows[half:]], (0, LENGTH - longest))
    for end in range(4, LENGTH):
        parts = [target(ids[:, :end])[0][:, -1] for ids in sampled.split(1024)]
        drawn = torch.multinomial((torch.cat(parts).float() / 0.8).softmax(-1), 1)[:, 0]
        sampled[:, end] = torch.where(end < lengths[half:], sampled[:, end], drawn)
    return torch.cat([*greedy, sampled])


class Teacher:
    """The target with its last features, after the final norm."""

    def __init__(self, target: Llama) -> None:
        self.target, self.final = target, torch.empty(0)
        target.model.norm.register_forward_hook(self.keep)
        self.embedding = target.model.embed_tokens.weight.float()
        self.head = target.lm_head.weight.float()

    def keep(self, module: nn.Module, given: Any, made: Tensor) -> None:
        """Keep what the norm made."""
        self.final = made.float()

    @torch.no_grad()
    def features(self, ids: Tensor) -> Tensor:
        """Return the last features of texts."""
        self.target(ids)
        return self.final


def steps_of(draft: nn.Module, teacher: Teacher, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return for each step the logits of draft and target, at the places where it is one."""
    final = teacher.features(ids)
    wanted = final[:, 1:] @ teacher.head.T
    embedded, hidden = teacher.embedding[ids[:, 1:]], final[:, :-1]
    found = []
    for number in range(UNROLLED):
        out = draft(embedded, hidden)
        found.append(((out @ teacher.head.T)[:, number:], wanted[:, number:]))
        hidden = torch.cat([final[:, :1], out[:, :-1]], dim=1)
    return found


def train(draft: nn.Module, teacher: Teacher, ids: Tensor, arguments: Any, log: Log) -> list[float]:
    """Train, and return the shares of right first choices on the last batch, by step."""
    adam, shares = optimizer(draft, arguments.rate), []
    for number in range(arguments.steps):
        for group in adam.param_groups:
            group["lr"] = arguments.rate * cosine(number / arguments.steps)
        rows = torch.randint(len(ids), (arguments.batch,), device=ids.device)
        steps = steps_of(draft, teacher, ids[rows])
        losses = [-(w.softmax(-1) * own.log_softmax(-1)).sum(-1).mean() for own, w in steps]
        adam.zero_grad()
        torch.stack(losses).sum().backward()
        nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        adam.step()
        if number % 200 == 0 or number == arguments.steps - 1:
            shares = [float((own.argmax(-1) == w.argmax(-1)).float().mean()) for own, w in steps]
            log(number, f"{float(losses[0]):.3f}", *(f"{share:.3f}" for share in shares))
    return shares


def config(kind: str) -> dict[str, Any]:
    """Return config.json, as SGLang reads it."""
    common = {**SIZES.config(), "vocab_size": 4096}
    if kind == "eagle":
        return {**common, "architectures": ["LlamaForCausalLMEagle"], "bias": True}
    more = {"architectures": ["MiMoMTP"], "model_type": "qwen2", "num_nextn_predict_layers": 1}
    return {**common, **more, "attention_bias": True}


def saved(kind: str, name: str) -> str:
    """Return a tensor's name as checkpoints of this kind have it."""
    return name if kind == "eagle" else f"model.mtp_layers.0.{name.removeprefix('mtp_block.')}"


def main() -> None:
    """Train and write both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("incident", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--texts", type=int, default=8192)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    target = load_target(arguments.incident / "target", arguments.device)
    prompts = [row["ids"] for row in read_lines(arguments.incident / "training" / "prompts.jsonl")]
    ids = texts(target, prompts[HELD_OUT:], arguments.texts)
    unseen = texts(target, prompts[:HELD_OUT], min(256, arguments.texts))
    teacher = Teacher(target)
    for kind, made in (("eagle", Eagle), ("mtp", Mtp)):
        torch.manual_seed(arguments.seed)
        out = arguments.out / kind
        log = Log(None)
        draft = made().to(arguments.device)
        seen = train(draft, teacher, ids, arguments, log)
        with torch.no_grad():
            right = [
                float((own.argmax(-1) == wanted.argmax(-1)).float().mean())
                for own, wanted in steps_of(draft, teacher, unseen)
            ]
        log(kind, "unseen", *(f"{share:.3f}" for share in right))
        tensors = {saved(kind, n): v.bfloat16() for n, v in draft.state_dict().items()}
        save_safetensors(out / "model.safetensors", tensors)
        (out / "config.json").write_text(json.dumps(config(kind), indent=1) + "\n")
        write_json(out / "report.json", {
            "parameters": sum(p.numel() for p in draft.parameters()),
            "seed": arguments.seed, "steps": arguments.steps, "torch": torch.__version__,
            "right_by_step": {"training": seen, "unseen": right},
        })  # fmt: skip


if __name__ == "__main__":
    main()
