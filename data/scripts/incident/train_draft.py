"""Train the EAGLE-3 draft of the shipped case on what its target computes.

On a GPU host, nothing but PyTorch and numpy is needed::

    python3 data/scripts/incident/train_draft.py .carry/corpus $OUT/target $OUT/draft --seconds 90

Half of each batch is text of the corpus, half is what the target itself writes greedily after the beginning
of such text: that is what a draft meets in serving at temperature 0. Training is the multi-step scheme of
EAGLE-3 (training-time test): step k of slot i is given the token i + 1 + k, the draft's own features of
step k - 1, and attends to the true features up to slot i and to its own k steps. The loss is the
cross-entropy with the target's distribution over the draft's vocabulary, where the target's best token is
in it.

Writes draft.safetensors (bfloat16; names as speculators saves them, `d2t` offsets and `t2d`), draft.json
(sizes) and report.json: accuracies on held-out text and on the target's greedy continuations of the
held-out prompts, and what a chain would accept there. In `full` and `conditional` a target token outside
the draft's vocabulary counts as missed; `trainer` has the accuracies as speculators prints them (the
target's best token *of the draft's vocabulary*).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from common import (
    Deadline,
    Log,
    load_safetensors,
    read_lines,
    read_tokens,
    save_safetensors,
    write_json,
)
from models import Draft, Llama, Sizes, cosine, optimizer
from torch import Tensor
from train_target import Batches, half, kind_for, step

SHORTEST, LONGEST = 32, 64  # tokens of a prompt


def load_target(folder: Path, device: str) -> Llama:
    """Read the target, as saved: bfloat16."""
    model = Llama(Sizes.read(json.loads((folder / "config.json").read_text())))
    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        state |= load_safetensors(file)
    model.load_state_dict(state)
    kind = kind_for(torch.empty(0, device=device))
    return model.to(device, kind).eval().requires_grad_(requires_grad=False)


def continue_text(target: Llama, data: Batches, count: int, length: int, batch: int) -> Tensor:
    """Return `count` sequences: beginnings of training text, continued greedily by the target."""
    rows = []
    while len(rows) * batch < count:
        prompts = data.draw(batch, LONGEST)
        lengths = torch.randint(
            SHORTEST, LONGEST + 1, (batch,), generator=data.generator, device=prompts.device
        )
        rows.append(target.continue_greedily(prompts, lengths, length))
    return torch.cat(rows)[:count]


def vocabulary(tokens: Tensor, generated: Tensor, size: int, total: int) -> Tensor:
    """Return the target ids that the draft knows, ascending: the most frequent of text and continuations."""
    counts = torch.bincount(tokens.long(), minlength=total).double() / len(tokens)
    counts += torch.bincount(generated.flatten(), minlength=total).double() / generated.numel()
    return counts.topk(size).indices.sort().values


class Lesson:
    """What the target says about a batch: features, distribution, best tokens."""

    def __init__(self, target: Llama, ids: Tensor, kept: Tensor, steps: int) -> None:
        with torch.no_grad():
            logits, features = target(ids, target.sizes.auxiliary())
        assert features is not None
        self.ids, self.features = ids, features
        self.slots = ids.shape[1] - steps
        self.best = logits.argmax(-1)
        restricted = logits[..., kept].float()
        self.chances = restricted.softmax(-1)
        self.best_kept = restricted.argmax(-1)
        self.covered = torch.isin(self.best, kept)


def run_steps(draft: Draft, lesson: Lesson, steps: int) -> list[Tensor]:
    """Return the logits of each step, [batch, slots, draft vocabulary]."""
    slots = lesson.slots
    hidden = draft.fc(lesson.features[:, :slots])
    positions = torch.arange(slots, device=hidden.device)
    past: list[tuple[Tensor, Tensor]] = []
    answers = []
    for number in range(steps):
        tokens = lesson.ids[:, 1 + number : 1 + number + slots]
        logits, hidden = draft.step(tokens, hidden, past, positions)
        answers.append(logits)
    return answers


def loss_of(draft: Draft, lesson: Lesson, steps: int, decay: float) -> Tensor:
    """Return the weighted mean over the steps of the cross-entropy with the target's distribution."""
    total = torch.zeros((), device=lesson.ids.device)
    for number, logits in enumerate(run_steps(draft, lesson, steps)):
        place = slice(1 + number, 1 + number + lesson.slots)
        each = -(lesson.chances[:, place] * F.log_softmax(logits.float(), -1)).sum(-1)
        covered = lesson.covered[:, place]
        total = total + decay**number * (each * covered).sum() / covered.sum().clamp(min=1)
    return total / sum(decay**number for number in range(steps))


def train(
    draft: Draft,
    target: Llama,
    data: Batches,
    generated: Tensor,
    arguments: argparse.Namespace,
    log: Log,
) -> dict[str, Any]:
    """Train for the time that was given."""
    adam = optimizer(draft, arguments.rate, decay=0.01)
    each = max(1, arguments.batch // 2)
    began, steps, shown = time.monotonic(), 0, 0.0
    while (share := (time.monotonic() - began) / arguments.seconds) < 1:
        chosen = torch.randint(
            len(generated), (each,), generator=data.generator, device=generated.device
        )
        ids = torch.cat([generated[chosen], data.draw(each, generated.shape[1])])
        lesson = Lesson(target, ids, draft.kept, arguments.steps)
        with half(ids):
            loss = loss_of(draft, lesson, arguments.steps, arguments.decay)
        step(draft, adam, loss, arguments.rate * cosine(share))
        steps += 1
        if time.monotonic() - shown > 10 or steps == 1:
            shown = time.monotonic()
            log(f"step {steps}, {share:.0%}, loss {loss.item():.3f}")
        elif steps % 20 == 0:
            loss.item()  # waits for the device, so that the clock is true
    tokens = steps * 2 * each * generated.shape[1]
    return {"steps": steps, "tokens": tokens, "seconds": round(time.monotonic() - began, 1)}


@torch.no_grad()
def judge(draft: Draft, target: Llama, ids: Tensor, lengths: Tensor, steps: int) -> dict[str, Any]:
    """Measure the draft on sequences, from the slot at the end of each one's prompt onwards."""
    draft.eval()
    hits, trainer_hits, used, covered, chains = [], [], [], [], []
    for part, length in zip(ids.split(64), lengths.split(64), strict=True):
        lesson = Lesson(target, part, draft.kept, steps)
        with half(part):
            answers = [logits.argmax(-1) for logits in run_steps(draft, lesson, steps)]
        places = [slice(1 + n, 1 + n + lesson.slots) for n in range(steps)]
        right = [draft.kept[a] == lesson.best[:, p] for a, p in zip(answers, places, strict=True)]
        hits.append(torch.stack(right, -1))
        near = [a == lesson.best_kept[:, p] for a, p in zip(answers, places, strict=True)]
        trainer_hits.append(torch.stack(near, -1))
        covered.append(lesson.covered[:, places[0]])
        used.append(torch.arange(lesson.slots, device=part.device) >= length[:, None] - 1)
        chains += rounds(hits[-1], length, steps)
    mask = torch.cat(used)
    accepted = [count for chain in chains for count in chain]
    return {
        "slots": int(mask.sum()),
        "coverage": round(float(torch.cat(covered)[mask].float().mean()), 4),
        **profile(torch.cat(hits)[mask]),
        "trainer": profile(torch.cat(trainer_hits)[mask]),
        "chain_accept_length": round(1 + sum(accepted) / len(accepted), 4),
        "chain_histogram": [accepted.count(n) for n in range(steps + 1)],
    }


def profile(hits: Tensor) -> dict[str, list[float]]:
    """Return for each step: right at all steps so far, over all, and over those right until then."""
    full = hits.cumprod(-1).double().sum(0)
    before = torch.cat([full.new_tensor([float(len(hits))]), full[:-1]])
    return {
        "full": [round(float(x), 4) for x in full / len(hits)],
        "conditional": [round(float(x), 4) for x in full / before.clamp(min=1)],
    }


def rounds(hits: Tensor, lengths: Tensor, steps: int) -> list[list[int]]:
    """Return what each round of a chain of `steps` drafts would accept, sequence by sequence."""
    ahead = hits.cumprod(-1).sum(-1).tolist()
    chains = []
    for counts, length in zip(ahead, lengths.tolist(), strict=True):
        slot, chain = length - 1, []
        while slot < len(counts):
            chain.append(int(counts[slot]))
            slot += chain[-1] + 1
        chains.append(chain)
    return chains


def held_out(
    target: Llama, prompts: list[dict[str, Any]], tokens: Tensor, length: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the sequences for measuring: continuations of the prompts, and windows of held-out text."""
    device = tokens.device
    lengths = torch.tensor([len(prompt["ids"]) for prompt in prompts], device=device)
    ids = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.long, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt["ids"])] = torch.tensor(prompt["ids"], device=device)
    windows = tokens[: len(tokens) // length * length].view(-1, length).long()[:512]
    return {
        "greedy_continuations": (target.continue_greedily(ids, lengths, length), lengths),
        "held_out_text": (windows, torch.full((len(windows),), SHORTEST, device=device)),
    }


def save(draft: Draft, out: Path) -> None:
    """Write the weights in bfloat16 with both maps."""
    size, total = len(draft.kept), draft.sizes.vocab_size
    state = {name: tensor.to(torch.bfloat16) for name, tensor in draft.state_dict().items()}
    kept = draft.kept.cpu()
    state["d2t"] = kept - torch.arange(size)
    state["t2d"] = torch.zeros(total, dtype=torch.bool)
    state["t2d"][kept] = True
    save_safetensors(out / "draft.safetensors", state)
    sizes = {name: getattr(draft.sizes, name) for name in draft.sizes.__dataclass_fields__}
    write_json(out / "draft.json", {**sizes, "draft_vocab_size": size})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument(
        "--deadline", type=float, default=1e9, help="train shorter to end within these seconds"
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, default=192, help="tokens of a sequence")
    parser.add_argument(
        "--generated", type=int, default=16384, help="sequences that the target writes"
    )
    parser.add_argument("--steps", type=int, default=5, help="of training-time test")
    parser.add_argument(
        "--decay", type=float, default=0.9, help="weight of a step over that of the one before"
    )
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--draft-vocabulary", type=int, default=1024)
    parser.add_argument("--intermediate", type=int, default=512)
    parser.add_argument("--held-out", type=int, help="this many held-out tokens only: a toy")
    parser.add_argument("--prompts", type=int, help="this many prompts only: a toy")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    log, deadline = Log(arguments.out / "train.log"), Deadline(arguments.deadline)

    torch.manual_seed(arguments.seed)
    target = load_target(arguments.target, arguments.device)
    data = Batches(read_tokens(arguments.corpus / "train.npy.xz"), arguments.device, arguments.seed)
    prompts = read_lines(arguments.corpus / "prompts.jsonl")[: arguments.prompts]
    tokens = torch.from_numpy(read_tokens(arguments.corpus / "heldout.npy.xz").astype("int32"))
    tokens = tokens[: arguments.held_out]
    sets = held_out(target, prompts, tokens.to(arguments.device), arguments.length)
    batch = min(4096, arguments.generated)
    generated = continue_text(target, data, arguments.generated, arguments.length, batch)
    kept = vocabulary(data.tokens, generated, arguments.draft_vocabulary, target.sizes.vocab_size)
    log(
        f"{len(generated)} continuations; coverage {float(torch.isin(generated, kept).float().mean()):.4f}"
    )

    sizes = Sizes.read(
        {
            **target.sizes.config(),
            "num_hidden_layers": 1,
            "intermediate_size": arguments.intermediate,
        }
    )
    draft = Draft(sizes, target.model.embed_tokens.weight.detach().float(), kept).to(
        arguments.device
    )
    count = sum(p.numel() for p in draft.parameters())
    log(f"{count} parameters, auxiliary layers {target.sizes.auxiliary()}")
    arguments.seconds = max(5.0, min(arguments.seconds, deadline.left() - 15))
    report: dict[str, Any] = {
        "parameters": count,
        "arguments": {k: str(v) if isinstance(v, Path) else v for k, v in vars(arguments).items()},
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "auxiliary_layers": target.sizes.auxiliary(),
        "training": train(draft, target, data, generated, arguments, log),
    }
    save(draft, arguments.out)
    for name, (ids, lengths) in sets.items():
        report[name] = judge(draft, target, ids, lengths, arguments.steps)
        log(name, report[name])
    write_json(arguments.out / "report.json", report)


if __name__ == "__main__":
    main()
