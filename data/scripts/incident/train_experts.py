"""Train the pair of another shape: a target with latent attention and experts, and a draft for it.

On a GPU host, nothing but PyTorch and numpy is needed; four minutes::

    python3 data/scripts/incident/train_experts.py .carry/corpus $OUT \
        --prompts data/incident/training/prompts.jsonl

The tokens are those of the shipped case (corpus.py), the schedules those of train_target.py and
train_draft.py.
Writes OUT/target and OUT/draft, each with config.json, model.safetensors and report.json, and at once, before
anything is trained, OUT/untrained/target and OUT/untrained/draft: the same shapes, for a server that compiles
its kernels meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from common import Deadline, Log, read_lines, read_tokens, save_safetensors, write_json
from expert_models import Experts, ExpertSizes, ExpertTarget, LatentDraft, parameters
from measure import repetition, simple_losses
from train_draft import continue_text, held_out, judge, vocabulary
from train_draft import train as train_draft
from train_target import Batches, continuations, held_out_loss, kind_for, tidy
from train_target import train as train_target


def save_target(model: ExpertTarget, out: Path) -> None:
    """Write the target as a checkpoint."""
    write_json(out / "config.json", model.sizes.config())
    named = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    write_json(out / "generation_config.json", named)
    save_safetensors(out / "model.safetensors", model.saved())


def save_draft(draft: LatentDraft, out: Path) -> None:
    """Write the draft as speculators names its tensors, with both maps, under SGLang's config."""
    state = {name: tensor.to(torch.bfloat16) for name, tensor in draft.state_dict().items()}
    kept = draft.kept.cpu()
    state["d2t"] = kept - torch.arange(len(kept))
    state["t2d"] = torch.zeros(draft.sizes.vocab_size, dtype=torch.bool)
    state["t2d"][kept] = True
    assert isinstance(draft.sizes, ExpertSizes)
    write_json(out / "config.json", draft.sizes.draft_config(len(kept)))
    save_safetensors(out / "model.safetensors", state)


def as_served(model: ExpertTarget) -> ExpertTarget:
    """Return the target as an engine has it: in bfloat16, but for the experts' correction."""
    exact = [m.correction.float() for m in model.modules() if isinstance(m, Experts)]
    kind = kind_for(model.lm_head.weight)
    served = model.to(kind).eval().requires_grad_(requires_grad=False)
    modules = [m for m in served.modules() if isinstance(m, Experts)]
    for module, correction in zip(modules, exact, strict=True):
        module.correction = correction
    return served  # type: ignore[no-any-return]


def taught_target(
    model: ExpertTarget, data: Batches, prompts: list[dict[str, Any]], given: argparse.Namespace, log: Log
) -> dict[str, Any]:  # fmt: skip
    """Train the target; return its report."""
    tokens = read_tokens(given.corpus / "heldout.npy.xz")[: given.held_out]
    evaluated = torch.from_numpy(tokens.astype("int32")).to(given.device)
    losses = simple_losses(
        data.tokens.cpu().numpy().astype("uint16"), tokens, model.sizes.vocab_size
    )
    report: dict[str, Any] = {"parameters": parameters(model), "held_out_loss": losses}
    report["training"] = train_target(model.train(), data, given, log)
    losses["after_training"] = held_out_loss(model, evaluated, given.context)
    report["tidying"] = tidy(model.train(), data, given, log)
    losses["at_the_end"] = held_out_loss(model, evaluated, given.context)
    report["greedy"] = repetition(continuations(model, prompts, given.device))
    counts = [m.correction.float() for m in model.modules() if isinstance(m, Experts)]
    report["largest_correction"] = round(max(float(c.abs().max()) for c in counts), 4)
    log("losses", losses, "greedy", report["greedy"])
    return report


def taught_draft(
    target: ExpertTarget, data: Batches, prompts: list[dict[str, Any]], given: argparse.Namespace, log: Log
) -> dict[str, Any]:  # fmt: skip
    """Train the draft and write it; return its report."""
    tokens = read_tokens(given.corpus / "heldout.npy.xz")[: given.held_out]
    told = torch.from_numpy(tokens.astype("int32")).to(given.device)
    sets = held_out(target, prompts, told, given.length)
    generated = continue_text(
        target, data, given.generated, given.length, min(4096, given.generated)
    )
    kept = vocabulary(data.tokens, generated, given.draft_vocabulary, target.sizes.vocab_size)
    embedding = target.model.embed_tokens.weight.detach().float()
    assert isinstance(target.sizes, ExpertSizes)
    draft = LatentDraft(target.sizes.draft(given.intermediate), embedding, kept).to(given.device)
    given.seconds = max(5.0, min(given.draft_seconds, Deadline(given.deadline).left() - 10))
    report: dict[str, Any] = {
        "parameters": parameters(draft),
        "auxiliary_layers": target.sizes.auxiliary(),
        "training": train_draft(draft, target, data, generated, given, log),
    }
    save_draft(draft, given.out / "draft")
    for name, (ids, lengths) in sets.items():
        report[name] = judge(draft, target, ids, lengths, given.steps)
        log(name, report[name])
    return report


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=100, help="of the target's training")
    parser.add_argument("--tidy-seconds", type=float, default=30)
    parser.add_argument("--draft-seconds", type=float, default=70)
    parser.add_argument("--deadline", type=float, default=1e9)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--length", type=int, default=192, help="tokens of a draft's sequence")
    parser.add_argument("--generated", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--decay", type=float, default=0.9)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--tidy-rate", type=float, default=2e-4)
    parser.add_argument("--tidy-weight", type=float, default=1.0)
    parser.add_argument("--tidy-pool", type=int, default=4096)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--draft-vocabulary", type=int, default=1024)
    parser.add_argument("--intermediate", type=int, default=256, help="of the draft")
    parser.add_argument("--held-out", type=int, help="this many held-out tokens only: a toy")
    parser.add_argument("--some-prompts", type=int, help="this many prompts only: a toy")
    parser.add_argument("--sizes", default="", help="name=value,… to change a size: a toy")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    """Train and write both."""
    given = parse()
    given.compile = False
    log = Log(given.out / "train.log")
    torch.manual_seed(given.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    changed = dict(pair.split("=") for pair in given.sizes.split(",") if pair)
    sizes = ExpertSizes(**{name: int(value) for name, value in changed.items()})
    model = ExpertTarget(sizes, given.dropout).to(given.device)
    kept = torch.arange(given.draft_vocabulary)
    embedding = model.model.embed_tokens.weight.detach().cpu()
    save_target(model, given.out / "untrained" / "target")
    save_draft(
        LatentDraft(sizes.draft(given.intermediate), embedding, kept),
        given.out / "untrained" / "draft",
    )
    log(f"{parameters(model)} parameters; untrained files written")
    prompts = read_lines(given.prompts)[: given.some_prompts]
    data = Batches(read_tokens(given.corpus / "train.npy.xz"), given.device, given.seed)
    common = {
        "seed": given.seed, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "arguments": {k: str(v) if isinstance(v, Path) else v for k, v in vars(given).items()},
    }  # fmt: skip
    report = taught_target(model, data, prompts, given, log)
    save_target(model, given.out / "target")
    write_json(given.out / "target" / "report.json", common | report)
    report = taught_draft(as_served(model), data, prompts, given, log)
    write_json(given.out / "draft" / "report.json", common | report)
    log("all is written")


if __name__ == "__main__":
    main()
