"""Write small random drafts with the real writers, speculators 0.9.0 and SpecForge 0.2.0.

Run by the Python of the environment that holds them, from the repository's root::

    WRITERS=$(python -m tests.engines.environments writers | cut -f2)
    $WRITERS data/scripts/write_drafts.py data/drafts target speculators specforge

Those three are kept in the repository; the tests write the others (``--list``) when they need them. Every
file is reproducible: the same packages and seed write the same bytes. The script goes into the output folder
and names the target by its bare folder name, so that no path of this machine gets into a config.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

# torchvision's native library does not load beside a CPU build of torch; nobody here calls it.
sys.modules.setdefault(
    "torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations")
)
os.environ["HF_HUB_OFFLINE"] = "1"

SEED = 20
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 128, 256, 4, 2, 32
VOCABULARY, DRAFT_VOCABULARY = 256, 128
POSITIONS, EPSILON = 512, 1e-6
TARGET_LAYERS, TARGET_INTERMEDIATE = 8, 128
AUXILIARY_LAYERS = [2, 4, 5]


def llama_sizes(layers: int, intermediate: int = INTERMEDIATE) -> dict[str, Any]:
    """Return the settings that target and drafts have in common."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": EPSILON,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def write_target(out: Path) -> None:
    """Write a random Llama with a word-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    # A wide initialisation: the usual one would make all logits of so small a model alike.
    config = LlamaConfig(**llama_sizes(TARGET_LAYERS, TARGET_INTERMEDIATE), initializer_range=0.2)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out)

    words = ["<unk>", "<s>", "</s>", *(f"w{n}" for n in range(3, VOCABULARY))]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(out)
    # transformers 5 names a class here that transformers 4 (SGLang 0.5.8) does not know.
    file = out / "tokenizer_config.json"
    settings = {**json.loads(file.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}
    file.write_text(json.dumps(settings, indent=2) + "\n")


def vocabulary_maps() -> tuple[Any, Any]:
    """Return t2d, the mask of kept target tokens, and d2t, the offsets from draft to target ids.

    Every second token is kept, so that draft id i is target id 2 i, and d2t is 0, 1, 2, …
    """
    import torch

    kept = torch.arange(0, VOCABULARY, VOCABULARY // DRAFT_VOCABULARY)
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[kept] = True
    return t2d, kept - torch.arange(DRAFT_VOCABULARY)


def write_speculators(
    out: Path,
    *,
    layers: int = 1,
    qwen3: bool = False,
    norm_before_residual: bool = False,
    **options: bool,
) -> None:
    """Let speculators write a draft for the target, as its trainer would save one."""
    from speculators.models.eagle3 import Eagle3DraftModel
    from transformers import LlamaConfig, Qwen3Config

    t2d, d2t = vocabulary_maps()
    model = Eagle3DraftModel.from_training_args(
        (Qwen3Config if qwen3 else LlamaConfig)(**llama_sizes(layers)),
        t2d=t2d,
        d2t=d2t,
        draft_vocab_size=DRAFT_VOCABULARY,
        norm_before_residual=norm_before_residual,
        ttt_steps=3,
        target_layer_ids=AUXILIARY_LAYERS,
        verifier_name_or_path="target",
        **options,
    )
    model.save_pretrained(out)
    # transformers adds the class of the config as code. It is not ours, and nobody runs it here.
    (out / "config.py").unlink(missing_ok=True)


def write_specforge(out: Path, *, embedding: bool = False) -> None:
    """Let SpecForge export a draft: for SGLang, or with the target's embedding for Hugging Face."""
    import torch
    from specforge.export.checkpoint_io import STATE_FILE
    from specforge.export.to_hf import export_to_hf
    from specforge.export.to_sglang import export_to_sglang
    from specforge.modeling.auto import AutoDraftModel, AutoDraftModelConfig

    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": DRAFT_VOCABULARY,
        "hidden_act": "silu",
        "pad_token_id": 0,
        **llama_sizes(1),
    }
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        draft_config = state / "draft.json"
        draft_config.write_text(json.dumps(config))
        model = AutoDraftModel.from_config(
            AutoDraftModelConfig.from_file(str(draft_config)), torch_dtype=torch.bfloat16
        )
        t2d, d2t = vocabulary_maps()
        model.t2d.copy_(t2d)
        model.d2t.copy_(d2t)
        # What its trainer leaves behind: everything that was trained. The embedding is the target's.
        trained = {key: t for key, t in model.state_dict().items() if "embed" not in key}
        torch.save({"strategy": "eagle3", "draft_state_dict": trained}, state / STATE_FILE)
        if embedding:
            export_to_hf(name, str(draft_config), str(out), embedding_source="target")
        else:
            export_to_sglang(name, str(draft_config), str(out))


WRITERS: dict[str, Callable[[Path], None]] = {
    "target": write_target,
    "speculators": write_speculators,
    "specforge": write_specforge,
    "specforge-embedding": lambda out: write_specforge(out, embedding=True),
    "speculators-qwen3": lambda out: write_speculators(out, qwen3=True),
    "speculators-two-layers": lambda out: write_speculators(out, layers=2),
    "speculators-fc-norm": lambda out: write_speculators(out, fc_norm=True),
    "speculators-norm-before-fc": lambda out: write_speculators(out, norm_before_fc=True),
    "speculators-norm-before-residual": lambda out: write_speculators(
        out, norm_before_residual=True
    ),
}


def main() -> None:
    """Write what was asked for; the target first, since the writers read it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="?", help="folder that gets a folder for each")
    parser.add_argument("names", nargs="*", help="which to write (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names there are")
    arguments = parser.parse_args()
    if arguments.list or arguments.out is None:
        print("\n".join(WRITERS))
        return
    unknown = set(arguments.names) - set(WRITERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(WRITERS)}")

    import torch

    arguments.out.mkdir(parents=True, exist_ok=True)
    os.chdir(arguments.out)
    for name in arguments.names or WRITERS:
        if name != "target" and not Path("target").exists():
            parser.error("the writers need the target: name it, too")
        shutil.rmtree(name, ignore_errors=True)
        torch.manual_seed(SEED + list(WRITERS).index(name))
        WRITERS[name](Path(name))
        for file in Path(name).iterdir():
            file.chmod(0o644)
        print(name, flush=True)


if __name__ == "__main__":
    main()
