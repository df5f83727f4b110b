"""Run by the writers' interpreter: speculators' own EAGLE-3 drafts, and the logits of their forward pass.

Usage: ``python speculators_forward.py FOLDER``. FOLDER/target becomes a small random Llama, and FOLDER/NAME a
draft for it with ``forward.st`` beside: the tokens and features it was run on, and its logits at each of
the trainer's steps, [steps, places, draft vocabulary].
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

# The environments hold a CUDA build of torchvision, which cannot be imported beside a CPU torch.
sys.modules["torchvision"] = None  # type: ignore[assignment]
os.environ["HF_HUB_OFFLINE"] = "1"

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
DRAFT, STEPS, PLACES = 48, 4, 40
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "layers-norm-before-fc": {
        "layers": 3, "norm_before_fc": True, "norm_before_residual": True, "norm_output": True,
    },
    "qwen3-layers-fc-norm": {"layers": 2, "qwen3": True, "fc_norm": True},
    "llama3-rope-biases": {"layers": 2, "norm_before_residual": True, "rope": LLAMA3, "bias": True},
}  # fmt: skip


def scatter(model: torch.nn.Module, seed: int) -> None:
    """Give every weight a value of its own: norms at one and biases at zero would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in sorted(model.named_parameters()):
        noise = torch.randn(value.shape, generator=generator)
        if "norm" in name:
            value.data = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value.data = 0.3 * noise
        else:
            value.data = noise * (1.5 if "embed" in name else 1.0) / value.shape[-1] ** 0.5


def write(
    out: Path, seed: int, layers: int = 1, qwen3: bool = False, bias: bool = False,
    rope: dict[str, Any] | None = None, **options: bool,
) -> None:  # fmt: skip
    """Write one draft and what it says."""
    from speculators.models.eagle3 import Eagle3DraftModel
    from transformers import LlamaConfig, Qwen3Config

    kept = torch.randperm(SIZES["vocab_size"], generator=torch.Generator().manual_seed(seed))
    kept = kept[:DRAFT].sort().values
    t2d = torch.zeros(SIZES["vocab_size"], dtype=torch.bool)
    t2d[kept] = True
    sizes = {**SIZES, "num_hidden_layers": layers, "attention_bias": bias}
    if rope:
        sizes["rope_parameters"] = rope
    model = Eagle3DraftModel.from_training_args(
        (Qwen3Config if qwen3 else LlamaConfig)(**sizes),
        t2d=t2d, d2t=kept - torch.arange(DRAFT), draft_vocab_size=DRAFT, ttt_steps=STEPS,
        norm_before_residual=options.pop("norm_before_residual", False), draft_attn_impl="eager",
        target_layer_ids=[2, 4, 5], verifier_name_or_path="target", **options,
    )  # fmt: skip
    model = model.float().eval()
    embedding = model.embed_tokens.weight.data.clone()
    scatter(model, seed)
    model.embed_tokens.weight.data = embedding  # the target's, as in training
    model.save_pretrained(out)

    generator = torch.Generator().manual_seed(seed + 1)
    tokens = torch.randint(0, SIZES["vocab_size"], (PLACES + 1,), generator=generator)
    features = torch.randn(PLACES, 3 * SIZES["hidden_size"], generator=generator) * 2
    said: list[torch.Tensor] = []
    model.lm_head.register_forward_hook(lambda _, __, logits: said.append(logits[0].clone()))
    with torch.no_grad():
        # As the trainer's data has it: features at i beside token i + 1.
        model(
            hidden_states=features[None],
            input_ids=tokens[None, 1:],
            document_ids=torch.zeros(1, PLACES, dtype=torch.long),
            ttt_steps=STEPS,
        )
    save_file(
        {"tokens": tokens, "features": features, "logits": torch.stack(said)}, out / "forward.st"
    )


def main(folder: Path) -> None:
    """Write the target and all cases."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    torch.manual_seed(0)
    target = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=8))
    scatter(target, 0)
    target.save_pretrained("target")
    for number, (name, options) in enumerate(CASES.items(), start=1):
        write(Path(name), number, **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
