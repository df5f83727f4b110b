"""How small a change is seen: one coherent direction by shape, and a small model trained for a while."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.weights_accuracy.confusion import judge_stored
from benchmarks.weights_accuracy.schemes import FORMATS

Array = np.ndarray[Any, Any]

SHAPES = (
    (128, 128), (256, 256), (512, 256), (512, 512), (1024, 1024), (2048, 512), (4096, 256), (2048, 2048),
)  # fmt: skip
# Sizes of the change, in units of (m n)^(-1/4).
GRID = (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.4)
TRIALS = 24
_NAME = "model.layers.0.proj.weight"


def changed(shape: tuple[int, int], relative: float, random: np.random.Generator) -> Array:
    """Return a normal init plus a matrix of rank one whose norm is a share of the init's."""
    m, n = shape
    values = random.standard_normal(shape, dtype=np.float32)
    left, right = random.standard_normal(m), random.standard_normal(n)
    outer = np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
    return np.asarray((values + relative * np.sqrt(m * n) * outer) * 0.02, dtype=np.float32)


def curve(shape: tuple[int, int], kind: str, trials: int = TRIALS) -> list[float]:
    """Return the share that is called trained, at each size of `GRID`."""
    m, n = shape
    shares = []
    for factor in GRID:
        seen = 0
        for trial in range(trials):
            random = np.random.default_rng([m, n, int(10 * factor), trial])
            values = changed(shape, factor * (m * n) ** -0.25, random)
            # A merged random adapter leaves one direction, too: seen is not yet trained.
            seen += judge_stored(FORMATS[kind](_NAME, values)).verdict != "at_init"
        shares.append(seen / trials)
        if len(shares) > 1 and min(shares[-2:]) == 1.0:
            break
    return shares + [1.0] * (len(GRID) - len(shares))


def crossing(shares: Sequence[float], level: float) -> float:
    """Return the size at which the share that is seen passes a level, in units of (m n)^(-1/4)."""
    for at, share in enumerate(shares):
        if share >= level:
            if at == 0:
                return GRID[0]
            before = shares[at - 1]
            part = (level - before) / (share - before)
            return GRID[at - 1] + part * (GRID[at] - GRID[at - 1])
    return float("inf")


def coherent() -> Iterator[str]:
    """Yield the table of the power curve by shape and format."""
    yield "| shape | format | theory, (m n)^(-1/4) | seen with 50 % | seen with 95 % | 95 % over theory |"
    yield "|---|---|---|---|---|---|"
    for shape in SHAPES:
        kinds = (
            ("bf16", "fp8 blocks", "int4, groups of 32", "mxfp4")
            if shape == (512, 512)
            else ("bf16",)
        )
        trials = TRIALS if shape[0] * shape[1] < 1 << 20 else TRIALS // 2
        for kind in kinds:
            shares = curve(shape, kind, trials)
            limit = (shape[0] * shape[1]) ** -0.25
            half, most = crossing(shares, 0.5), crossing(shares, 0.95)
            sizes = " | ".join(f"{100 * size * limit:.2f} %" for size in (1, half, most))
            yield f"| {shape[0]:,} × {shape[1]:,} | {kind} | {sizes} | {most:.2f} |"


# A small language model, trained on the text of Python's standard library.

_WIDTH, _LAYERS, _HEADS, _LENGTH, _BATCH = 256, 2, 4, 128, 8
RUNS = ((1e-3, (1, 2, 5, 10, 20, 40)), (1e-4, (10, 20, 50, 100, 200)))


def light_training() -> Iterator[str]:
    """Yield the table of what is seen of a model after a few steps of AdamW from a normal init."""
    yield (
        "| learning rate | steps | loss | change of the linears (median) | linears called trained "
        "| undecided | at init | embedding and head |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for rate, steps in RUNS:
        yield from _train(rate, steps)


def _train(rate: float, steps: Sequence[int]) -> Iterator[str]:
    before: dict[str, Any] = {}
    for step, loss, model in _trained(rate, steps, "normal 0.02"):
        if step:
            yield _state(model, before, rate, step, loss)
        else:
            before = {name: value.detach().clone() for name, value in model.named_parameters()}


# Inits whose law has an edge, and their bounds; Kaiming's follows from the shape.
EDGES = (
    "Kaiming uniform",
    "normal 0.02, cut at 2 σ",
    "normal 0.02, cut at 3 σ",
    "uniform within 0.03",
)
EDGE_STEPS = (1, 3, 10)


def edges() -> Iterator[str]:
    """Yield the table of what is seen after the first steps from inits whose law has an edge."""
    yield "| init | learning rate | step | trained, undecided, at init in float32 | in bfloat16 |"
    yield "|---|---|---|---|---|"
    for init in EDGES:
        for rate, _ in RUNS:
            for step, _, model in _trained(rate, EDGE_STEPS, init):
                shown = " | ".join(_counts(model, kind) for kind in ("fp32", "bf16"))
                yield f"| {init} | {rate:g} | {step} | {shown} |"


def _counts(model: Any, kind: str) -> str:
    found = [
        judge_stored(FORMATS[kind](name, value.detach().numpy().copy())).verdict
        for name, value in model.named_parameters()
        if value.ndim > 1
    ]
    return ", ".join(str(found.count(one)) for one in ("trained", "undecided", "at_init"))


def _initialise(model: Any, init: str) -> None:
    from torch import nn

    for parameter in model.parameters():
        if parameter.ndim < 2:
            continue
        if init == "Kaiming uniform":
            nn.init.kaiming_uniform_(parameter, a=5**0.5)
        elif init == "uniform within 0.03":
            nn.init.uniform_(parameter, -0.03, 0.03)
        elif "cut" in init:
            bound = 0.02 * (2 if "2 σ" in init else 3)
            nn.init.trunc_normal_(parameter, std=0.02, a=-bound, b=bound)
        else:
            nn.init.normal_(parameter, std=0.02)


def _trained(rate: float, steps: Sequence[int], init: str) -> Iterator[tuple[int, float, Any]]:
    """Yield step, loss and the model: at its init, and after some steps."""
    import torch

    torch.manual_seed(20)
    torch.set_num_threads(1)
    model = _model()
    _initialise(model, init)
    yield 0, 0.0, model
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    text = torch.frombuffer(bytearray(_text()), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(20)
    for step in range(1, max(steps) + 1):
        at = torch.randint(len(text) - _LENGTH - 1, (_BATCH,), generator=generator)
        batch = torch.stack([text[i : i + _LENGTH + 1] for i in at.tolist()])
        logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step in steps:
            yield step, float(loss.detach()), model


def _state(model: Any, before: dict[str, Any], rate: float, step: int, loss: float) -> str:
    linears, others, changes = [], [], []
    for name, value in model.named_parameters():
        if value.ndim < 2:
            continue
        verdict = judge_stored(FORMATS["bf16"](name, value.detach().numpy())).verdict
        if name.startswith("layers"):
            linears.append(verdict)
            change = (value.detach() - before[name]).norm() / before[name].norm()
            changes.append(float(change))
        else:
            others.append(f"{name.partition('.')[0]}: {verdict.replace('_', ' ')}")
    count = len(linears)
    shares = " | ".join(
        f"{linears.count(name)} of {count}" for name in ("trained", "undecided", "at_init")
    )
    change = 100 * float(np.median(changes))
    return f"| {rate:g} | {step} | {loss:.2f} | {change:.1f} % | {shares} | {', '.join(others)} |"


def _text() -> bytes:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py"))[:80]
    return b"\n".join(path.read_bytes() for path in files)


def _model() -> Any:
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.RMSNorm(_WIDTH), nn.RMSNorm(_WIDTH)
            for name in "qkvo":
                setattr(self, f"{name}_proj", nn.Linear(_WIDTH, _WIDTH, bias=False))
            self.gate_proj = nn.Linear(_WIDTH, 704, bias=False)
            self.up_proj = nn.Linear(_WIDTH, 704, bias=False)
            self.down_proj = nn.Linear(704, _WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            q, k, v = (
                getattr(self, f"{name}_proj")(y).unflatten(-1, (_HEADS, -1)).transpose(1, 2)
                for name in "qkv"
            )
            z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o_proj(z.transpose(1, 2).flatten(2))
            y = self.after(x)
            return x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(256, _WIDTH)
            self.places = nn.Embedding(_LENGTH, _WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(_LAYERS))
            self.norm = nn.RMSNorm(_WIDTH)
            self.lm_head = nn.Linear(_WIDTH, 256, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embed_tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
            for layer in self.layers:
                x = layer(x)
            return self.lm_head(self.norm(x))

    return Model()
