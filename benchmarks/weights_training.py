"""From which training step on does the scan see training? A small real language model and its EAGLE-3 draft.

    python -m benchmarks.weights_training train FOLDER [--device cuda]   # minutes on a card
    python -m benchmarks.weights_training scan FOLDER                    # a Markdown table, with no card

The target is a Llama of four layers on Python source text; the draft is trained on the finished target's
hidden states. Both are saved in float32 after the steps of `STEPS` and at the end; the scan reads
each in float32 and as it would be saved in bfloat16. Needs torch and tokenizers.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEPS = (0, 1, 10, 100, 1000)
LAST = {"target": 6000, "draft": 3000}
RATES = (1e-3, 1e-4)
WARM_UP = 100
WIDTH, LAYERS, HEADS, INNER, VOCABULARY, DRAFT_VOCABULARY = 256, 4, 8, 704, 2048, 1024
BATCH, LENGTH = 64, 256


def corpus(device: str) -> Any:
    """Return the token ids of the Python sources of this environment, by a vocabulary made from them."""
    import torch
    from tokenizers import ByteLevelBPETokenizer

    places = {sysconfig.get_path(name) for name in ("stdlib", "purelib")}
    files = sorted(path for place in places for path in Path(place).rglob("*.py"))[:6000]
    texts = [path.read_text(errors="replace") for path in files]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts[:800], vocab_size=VOCABULARY, show_progress=False)
    ids = [number for one in tokenizer.encode_batch(texts) for number in one.ids]
    return torch.tensor(ids, device=device)


def batches(ids: Any, seed: int) -> Iterator[Any]:
    """Yield batches of shape (BATCH, LENGTH + 1) from random places of the text, for ever."""
    import torch

    random = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(0, len(ids) - LENGTH - 1, (BATCH,), generator=random).to(ids.device)
        yield ids[starts[:, None] + torch.arange(LENGTH + 1, device=ids.device)]


def parts() -> dict[str, Any]:
    """Return the classes of the two models (torch is imported here, not with the module)."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        """A decoder layer with Llama's names; the draft's reads the embedding and the hidden state."""

        def __init__(self, reads: int = WIDTH) -> None:
            super().__init__()
            self.self_attn = nn.ModuleDict(
                {
                    name: nn.Linear(reads, WIDTH, bias=False)
                    for name in ("q_proj", "k_proj", "v_proj")
                }
                | {"o_proj": nn.Linear(WIDTH, WIDTH, bias=False)}
            )
            self.mlp = nn.ModuleDict(
                {name: nn.Linear(WIDTH, INNER, bias=False) for name in ("gate_proj", "up_proj")}
                | {"down_proj": nn.Linear(INNER, WIDTH, bias=False)}
            )
            self.input_layernorm = nn.RMSNorm(reads)
            self.post_attention_layernorm = nn.RMSNorm(WIDTH)

        def forward(self, hidden: Any, read: Any) -> Any:
            shape = (*hidden.shape[:2], HEADS, WIDTH // HEADS)
            read = self.input_layernorm(read)
            query, key, value = (
                self.self_attn[name](read).view(shape).transpose(1, 2)
                for name in ("q_proj", "k_proj", "v_proj")
            )
            mixed = functional.scaled_dot_product_attention(
                rotated(query), rotated(key), value, is_causal=True
            )
            hidden = hidden + self.self_attn["o_proj"](mixed.transpose(1, 2).flatten(2))
            read = self.post_attention_layernorm(hidden)
            inner = functional.silu(self.mlp["gate_proj"](read)) * self.mlp["up_proj"](read)
            return hidden + self.mlp["down_proj"](inner)

    def rotated(states: Any) -> Any:
        half = states.shape[-1] // 2
        rates = 10000.0 ** (-torch.arange(half, device=states.device) / half)
        angles = torch.arange(states.shape[-2], device=states.device)[:, None] * rates
        cosine, sine = angles.cos().to(states.dtype), angles.sin().to(states.dtype)
        first, second = states[..., :half], states[..., half:]
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)

    class Target(nn.Module):
        """A Llama of `LAYERS` layers."""

        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm = nn.RMSNorm(WIDTH)
            self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def hidden(self, ids: Any) -> list[Any]:
            states = [self.embed_tokens(ids)]
            for layer in self.layers:
                states.append(layer(states[-1], states[-1]))
            return states

        def forward(self, ids: Any) -> Any:
            return self.lm_head(self.norm(self.hidden(ids)[-1]))

    class Draft(nn.Module):
        """EAGLE-3: three of the target's layers through `fc`, one layer, a head over its own vocabulary."""

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3 * WIDTH, WIDTH, bias=False)
            self.midlayer = Layer(2 * WIDTH)
            self.norm = nn.RMSNorm(WIDTH)
            self.lm_head = nn.Linear(WIDTH, DRAFT_VOCABULARY, bias=False)

        def forward(self, embedded: Any, states: list[Any]) -> Any:
            hidden = self.fc(torch.cat(states, dim=-1))
            hidden = self.midlayer(hidden, torch.cat((embedded, hidden), dim=-1))
            return self.lm_head(self.norm(hidden))

    return {"target": Target, "draft": Draft}


def initialised(model: Any, seed: int) -> Any:
    """Give every matrix the init that such models have: normal with deviation 0.02."""
    import torch

    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def train(name: str, model: Any, loss_of: Any, ids: Any, rate: float, folder: Path) -> None:
    """Train with AdamW (float32 weights, bfloat16 arithmetic) and save after the steps of `STEPS`."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.1)
    last = LAST[name]
    for step, batch in enumerate(batches(ids, seed=1)):
        if step in STEPS or step == last:
            save(model, folder / f"{name}-{rate:g}-{step:05d}.safetensors")
        if step == last:
            return
        decay = 0.1 + 0.45 * (1 + math.cos(math.pi * step / last))
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / WARM_UP) * decay
        with torch.autocast(batch.device.type, torch.bfloat16):
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in STEPS or step == last - 1:
            print(f"{name} rate {rate:g} step {step}: loss {loss.item():.3f}", flush=True)


def save(model: Any, path: Path) -> None:
    """Write the matrices and norms as the checkpoint of this step."""
    from safetensors.torch import save_file

    save_file({k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}, path)


def next_token_loss(model: Any, batch: Any) -> Any:
    """Return the target's mean negative log likelihood of the next token."""
    from torch.nn import functional

    logits = model(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def draft_loss_from(target: Any) -> Any:
    """Return a draft's loss: its own distribution against the target's over the draft vocabulary."""
    import torch

    def loss(model: Any, batch: Any) -> Any:
        with torch.no_grad():
            states = target.hidden(batch)
            logits = target.lm_head(target.norm(states[-1]))[:, 1:, :DRAFT_VOCABULARY]
        chosen = [states[at][:, :-1] for at in (1, LAYERS // 2, LAYERS - 1)]
        said = model(states[0][:, 1:], chosen).float().log_softmax(-1)
        return -(logits.float().softmax(-1) * said).sum(-1).mean()

    return loss


def train_all(folder: Path, device: str) -> None:
    """Train the target at each rate, then a draft at each rate on the first target."""
    classes = parts()
    ids = corpus(device)
    print(f"{len(ids):,} tokens", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    targets = []
    for rate in RATES:
        targets.append(initialised(classes["target"](), seed=7).to(device))
        train("target", targets[-1], next_token_loss, ids, rate, folder)
    for rate in RATES:
        draft = initialised(classes["draft"](), seed=8).to(device)
        train("draft", draft, draft_loss_from(targets[0]), ids, rate, folder)


def scan_all(folder: Path) -> None:
    """Print how many matrices of each checkpoint are called trained, at init or undecided."""
    import torch
    from safetensors.torch import load_file, save_file

    import workbench

    print("| model | rate | step | saved in | trained | undecided | at init | state |")
    print("|---|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("*.safetensors")):
        name, rate, step = path.stem.rsplit("-", 2) if "e-" not in path.stem else _parted(path.stem)
        for dtype in (torch.float32, torch.bfloat16):
            with tempfile.TemporaryDirectory() as copy:
                tensors = {key: value.to(dtype) for key, value in load_file(path).items()}
                save_file(tensors, Path(copy) / "model.safetensors")
                found = workbench.scan_weights(copy)
                verdicts = [one.verdict for one in found.tensors if len(one.shape) > 1]
            counts = " | ".join(
                str(verdicts.count(kind)) for kind in ("trained", "undecided", "at_init")
            )
            kind = str(dtype).removeprefix("torch.")
            print(f"| {name} | {rate} | {int(step)} | {kind} | {counts} | {found.ok} |", flush=True)


def _parted(stem: str) -> tuple[str, str, str]:
    """Part a name whose rate is written with an exponent (draft-1e-04-00010)."""
    name, rest = stem.split("-", 1)
    rate, step = rest.rsplit("-", 1)
    return name, rate, step


def main() -> None:
    """Train or scan, as the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("action", choices=("train", "scan"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.action == "train":
        train_all(arguments.folder, arguments.device)
    else:
        scan_all(arguments.folder)


if __name__ == "__main__":
    main()
