"""Train the target of the shipped case: a small Llama on the text of Python's standard library.

On a GPU host, nothing but PyTorch and numpy is needed::

    python3 data/scripts/incident/train_target.py .carry/corpus $OUT/target --seconds 150 --tidy-seconds 45

`--seconds` is the time of ordinary training (cosine schedule over that time). A model this small falls into
loops when it is decoded greedily, and a looping target would hide a broken draft (repetition is easy to
guess). So `--tidy-seconds` of sequence-level unlikelihood training follow: the model continues training
text greedily, and what it repeats there (the last token of a 4-gram that was in the sequence before) is
pushed down, in turn with ordinary steps.

Writes config.json, generation_config.json, model.safetensors in parts below 16 MB (`--part-megabytes`, with
the usual index; one file if it fits), and report.json: losses beside unigram and bigram, and how repetitive
the greedy continuations of the held-out prompts are, beside the real text at the same places.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from common import Deadline, Log, read_lines, read_tokens, save_safetensors, write_json
from measure import repetition, simple_losses
from models import Llama, Sizes, cosine, optimizer
from torch import Tensor

TIDY_PROMPT, TIDY_NEW, TIDY_POOL, TIDY_BATCH = 48, 96, 4096, 256
CONTINUED = 64  # tokens of the continuations that are measured


def kind_for(x: Tensor) -> torch.dtype:
    """Return bfloat16 on a GPU; on a CPU, where toys are tried, it would only be slow."""
    return torch.bfloat16 if x.is_cuda else torch.float32


def half(x: Tensor) -> torch.autocast:
    """Compute in bfloat16 where that is fast."""
    return torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda)


class Batches:
    """Random windows of a token array that lies on the device."""

    def __init__(self, tokens: Any, device: str, seed: int) -> None:
        self.tokens = torch.from_numpy(tokens.astype("int32")).to(device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def draw(self, count: int, length: int) -> Tensor:
        """Return windows [count, length]."""
        last = len(self.tokens) - length
        starts = torch.randint(
            last, (count, 1), generator=self.generator, device=self.tokens.device
        )
        return self.tokens[starts + torch.arange(length, device=self.tokens.device)].long()


def loss_of(model: Llama, windows: Tensor) -> Tensor:
    """Return the mean loss of predicting each window's next tokens."""
    logits, _ = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())


def step(model: Llama, adam: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """Take one step at this learning rate."""
    for group in adam.param_groups:
        group["lr"] = rate
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    adam.zero_grad(set_to_none=True)


@torch.no_grad()
def held_out_loss(model: Llama, tokens: Tensor, context: int) -> float:
    """Return the loss over the held-out text, window by window."""
    model.eval()
    usable = (len(tokens) - 1) // context * context
    windows = tokens[:usable].view(-1, context).long()
    following = tokens[1 : usable + 1].view(-1, context).long()
    total = 0.0
    for part, wanted in zip(windows.split(64), following.split(64), strict=True):
        with half(part):
            logits, _ = model(part)
        total += float(
            F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), reduction="sum")
        )
    model.train()
    return total / usable


def train(model: Llama, data: Batches, arguments: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Train for the time that was given."""
    adam = optimizer(model, arguments.rate)
    run = torch.compile(loss_of) if arguments.compile else loss_of
    began, steps, shown = time.monotonic(), 0, 0.0
    while (share := (time.monotonic() - began) / arguments.seconds) < 1:
        windows = data.draw(arguments.batch, arguments.context + 1)
        with half(windows):
            loss = run(model, windows)
        step(model, adam, loss, arguments.rate * cosine(share))
        steps += 1
        if time.monotonic() - shown > 10 or steps == 1:
            shown = time.monotonic()
            log(f"step {steps}, {share:.0%}, loss {loss.item():.3f}")
        elif steps % 20 == 0:
            loss.item()  # waits for the device, so that the clock is true
    tokens = steps * arguments.batch * arguments.context
    return {"steps": steps, "tokens": tokens, "seconds": round(time.monotonic() - began, 1)}


def repeated(ids: Tensor, prompt: int, size: int = 4) -> Tensor:
    """Mark the tokens [batch, slots] after the prompt that end an n-gram which was there before."""
    grams = ids.unfold(1, size, 1)  # gram g ends at token g + size - 1
    code = torch.zeros(grams.shape[:2], dtype=torch.long, device=ids.device)
    for place in range(size):
        code = code * 4099 + grams[:, :, place]
    same = (code[:, :, None] == code[:, None, :]).tril(-1).any(-1)
    marks = torch.zeros_like(ids, dtype=torch.bool)
    marks[:, size - 1 :] = same
    marks[:, :prompt] = False
    return marks


def unlikelihood(model: Llama, ids: Tensor, marks: Tensor) -> Tensor:
    """Return the loss that pushes marked tokens down."""
    logits, _ = model(ids[:, :-1])
    chance = logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1).exp()
    wanted = marks[:, 1:]
    return -(torch.log1p(-chance.clamp(max=0.999)) * wanted).sum() / wanted.sum().clamp(min=1)


def tidy(model: Llama, data: Batches, arguments: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Teach the model not to loop, for the time that was given."""
    adam = optimizer(model, arguments.tidy_rate)
    began, steps, shares = time.monotonic(), 0, []
    pool = arguments.tidy_pool
    batch = min(TIDY_BATCH, pool)
    real = repeated(data.draw(pool, TIDY_PROMPT + TIDY_NEW), TIDY_PROMPT)
    natural = round(float(real[:, TIDY_PROMPT:].float().mean()), 4)
    log(f"repeated share of real text {natural}")
    while (share := (time.monotonic() - began) / max(arguments.tidy_seconds, 1e-9)) < 1:
        prompts = data.draw(pool, TIDY_PROMPT)
        lengths = torch.full((pool,), TIDY_PROMPT, device=prompts.device)
        model.eval()
        ids = greedy(model, prompts, lengths, TIDY_PROMPT + TIDY_NEW)
        model.train()
        marks = repeated(ids, TIDY_PROMPT)
        shares.append(round(float(marks[:, TIDY_PROMPT:].float().mean()), 4))
        if shares[-1] < natural:
            break  # less would be unnatural: code does repeat itself
        for part, marked in zip(ids.split(batch), marks.split(batch), strict=True):
            windows = data.draw(max(1, arguments.batch // 2), arguments.context + 1)
            with half(windows):
                loss = loss_of(model, windows) + arguments.tidy_weight * unlikelihood(
                    model, part, marked
                )
            step(model, adam, loss, arguments.tidy_rate * cosine(min(share, 1.0), floor=0.2))
            steps += 1
        log(f"tidy {steps}, {share:.0%}, loss {loss.item():.3f}, repeated share {shares[-1]}")
    return {"steps": steps, "repeated_share": shares, "repeated_share_of_real_text": natural}


def greedy(model: Llama, prompts: Tensor, lengths: Tensor, total: int) -> Tensor:
    """Continue greedily with a bfloat16 copy of the model, as the engine will run it."""
    copy = type(model)(model.sizes).to(prompts.device, kind_for(prompts)).eval()
    copy.load_state_dict(model.state_dict())
    return copy.continue_greedily(prompts, lengths, total)


def continuations(model: Llama, prompts: list[dict[str, Any]], device: str) -> list[list[int]]:
    """Return the greedy continuations of the prompts."""
    lengths = torch.tensor([len(prompt["ids"]) for prompt in prompts], device=device)
    longest = int(lengths.max())
    ids = torch.zeros(len(prompts), longest, dtype=torch.long, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt["ids"])] = torch.tensor(prompt["ids"], device=device)
    done = greedy(model.eval(), ids, lengths, longest + CONTINUED).tolist()
    return [
        tokens[len(prompt["ids"]) : len(prompt["ids"]) + CONTINUED]
        for tokens, prompt in zip(done, prompts, strict=True)
    ]


def save(model: Llama, out: Path, megabytes: float) -> list[str]:
    """Write the model in bfloat16, in parts that can come back from the host one by one."""
    state = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    parts: list[dict[str, Tensor]] = [{}]
    room = megabytes * 1e6
    for name, tensor in state.items():
        if tensor.nbytes > room and parts[-1]:
            parts.append({})
            room = megabytes * 1e6
        parts[-1][name] = tensor
        room -= tensor.nbytes
    write_json(out / "config.json", model.sizes.config())
    write_json(
        out / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    )
    if len(parts) == 1:
        save_safetensors(out / "model.safetensors", state)
        return ["model.safetensors"]
    names = [f"model-{n + 1:05}-of-{len(parts):05}.safetensors" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        save_safetensors(out / name, part)
    places = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    total = sum(tensor.nbytes for tensor in state.values())
    write_json(
        out / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))},
    )
    return names


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=150, help="of ordinary training")
    parser.add_argument(
        "--tidy-seconds", type=float, default=45, help="of training against repetition"
    )
    parser.add_argument(
        "--deadline", type=float, default=1e9, help="skip what does not fit in these seconds"
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--tidy-rate", type=float, default=2e-4)
    parser.add_argument("--tidy-weight", type=float, default=1.0)
    parser.add_argument("--tidy-pool", type=int, default=TIDY_POOL)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--part-megabytes", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--held-out", type=int, help="this many held-out tokens only: a toy")
    parser.add_argument("--prompts", type=int, help="this many prompts only: a toy")
    parser.add_argument("--sizes", default="", help="name=value,… to change a size: a toy")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    log, deadline = Log(arguments.out / "train.log"), Deadline(arguments.deadline)

    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    train_tokens, held_out = (
        read_tokens(arguments.corpus / f"{p}.npy.xz") for p in ("train", "heldout")
    )
    held_out = held_out[: arguments.held_out]
    prompts = read_lines(arguments.corpus / "prompts.jsonl")[: arguments.prompts]
    changed = dict(pair.split("=") for pair in arguments.sizes.split(",") if pair)
    sizes = Sizes(**{name: int(value) for name, value in changed.items()})
    model = Llama(sizes, arguments.dropout).to(arguments.device).train()
    data = Batches(train_tokens, arguments.device, arguments.seed)
    evaluated = torch.from_numpy(held_out.astype("int32")).to(arguments.device)
    count = sum(p.numel() for p in model.parameters())
    log(f"{count} parameters, {len(train_tokens)} training tokens, {len(held_out)} held out")

    report: dict[str, Any] = {
        "parameters": count,
        "arguments": {k: str(v) if isinstance(v, Path) else v for k, v in vars(arguments).items()},
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "corpus_tokens": {"train": len(train_tokens), "heldout": len(held_out)},
        "held_out_loss": simple_losses(train_tokens, held_out, sizes.vocab_size),
    }
    report["training"] = train(model, data, arguments, log)
    report["held_out_loss"]["after_training"] = held_out_loss(model, evaluated, arguments.context)
    report["greedy_after_training"] = repetition(continuations(model, prompts, arguments.device))
    log(report["held_out_loss"], report["greedy_after_training"])
    save(model, arguments.out, arguments.part_megabytes)  # should the rest be cut short
    if deadline.left() > arguments.tidy_seconds:
        report["tidying"] = tidy(model.train(), data, arguments, log)
        report["held_out_loss"]["at_the_end"] = held_out_loss(model, evaluated, arguments.context)
    done = continuations(model, prompts, arguments.device)
    report["greedy"] = repetition(done)
    real = [held_out[i : i + CONTINUED].tolist() for i in range(0, len(held_out) - CONTINUED, 997)]
    report["real_text"] = repetition(real)
    report["files"] = save(model, arguments.out, arguments.part_megabytes)
    report["samples"] = [
        {"prompt": prompts[n]["prompt"], "ids": done[n]}
        for n in range(0, len(prompts), max(1, len(prompts) // 8))
    ]
    write_json(arguments.out / "report.json", report)
    log("losses", report["held_out_loss"])
    log("greedy", report["greedy"])
    log("real  ", report["real_text"])


if __name__ == "__main__":
    main()
