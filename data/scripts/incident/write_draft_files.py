"""Write the trained draft with the real writers, beside its target: speculators 0.9.0 and SpecForge 0.2.0.

Run by the Python of the environment that holds them, from the repository's root::

    WRITERS=$(python -m tests.engines.environments --where | grep writers | cut -f2)
    $WRITERS data/scripts/incident/write_draft_files.py .carry/made .carry/models

The first folder is what training left (target/, draft/); the second gets target/ (one file of weights), and
drafts/speculators and drafts/specforge. Both drafts hold the same bfloat16 weights; the script compares
them, bit by bit, with the trained ones. The verifier is named by its bare folder name, so no path of this
machine gets into a config.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from common import load_safetensors, save_safetensors

# torchvision's native library does not load beside a CPU build of torch; nobody here calls it.
sys.modules.setdefault(
    "torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations")
)
os.environ["HF_HUB_OFFLINE"] = "1"

SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


def write_target(made: Path, out: Path) -> dict[str, Any]:
    """Copy the target with its weights in one file; return its tensors."""
    out.mkdir(parents=True)
    for name in SMALL_FILES:
        shutil.copyfile(made / name, out / name)
    state: dict[str, Any] = {}
    for file in sorted(made.glob("model*.safetensors")):
        state |= load_safetensors(file)
    save_safetensors(out / "model.safetensors", state)
    return state


def llama_config(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the draft's settings in Llama's words."""
    names = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "rms_norm_eps",
    )
    return {
        **{name: sizes[name] for name in names},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    }


def write_speculators(
    out: Path, sizes: dict[str, Any], trained: dict[str, Any], embedding: Any, auxiliary: list[int]
) -> None:
    """Let speculators save the draft as its trainer would: nested config, keys `layers.0.*`."""
    import torch
    from speculators.models.eagle3 import Eagle3DraftModel
    from transformers import LlamaConfig

    model = Eagle3DraftModel.from_training_args(
        LlamaConfig(**llama_config(sizes), tie_word_embeddings=False),
        t2d=trained["t2d"],
        d2t=trained["d2t"],
        draft_vocab_size=sizes["draft_vocab_size"],
        norm_before_residual=False,
        norm_output=False,
        norm_before_fc=False,
        ttt_steps=4,
        target_layer_ids=auxiliary,
        verifier_name_or_path="target",
    ).to(torch.bfloat16)
    weights = {name: tensor for name, tensor in trained.items() if name not in {"d2t", "t2d"}}
    weights["embed_tokens.weight"] = embedding
    lost = model.load_state_dict(weights, strict=False)
    # What may be left: the maps, and what speculators takes from the verifier to compute its loss.
    left = {name for name in lost.missing_keys if not name.startswith("verifier_")} - {"d2t", "t2d"}
    if lost.unexpected_keys or left:
        raise SystemExit(f"speculators has other names: {lost.unexpected_keys} {sorted(left)}")
    model.save_pretrained(out)
    # transformers adds the class of the config as code. It is not ours, and nobody runs it here.
    (out / "config.py").unlink(missing_ok=True)


def write_specforge(out: Path, sizes: dict[str, Any], trained: dict[str, Any]) -> None:
    """Let SpecForge export the same weights for SGLang: flat config, keys `midlayer.*`, no embedding."""
    import torch
    from specforge.export.checkpoint_io import STATE_FILE
    from specforge.export.to_sglang import export_to_sglang

    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": sizes["draft_vocab_size"],
        "hidden_act": "silu",
        **llama_config(sizes),
        "tie_word_embeddings": False,
    }
    renamed = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in trained.items()}
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        (state / "draft.json").write_text(json.dumps(config))
        torch.save({"strategy": "eagle3", "draft_state_dict": renamed}, state / STATE_FILE)
        export_to_sglang(name, str(state / "draft.json"), str(out))


def compare(folder: Path, trained: dict[str, Any], layer: str) -> None:
    """Refuse a file that does not hold the trained weights, bit by bit."""
    written = load_safetensors(folder / "model.safetensors")
    for name, tensor in trained.items():
        found = written[name.replace("layers.0.", layer)]
        if found.dtype != tensor.dtype or not bool((found == tensor).all()):
            raise SystemExit(f"{folder.name}: {name} is not what was trained ({found.dtype})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("made", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    made, out = arguments.made.resolve(), arguments.out.resolve()
    for name in ("target", "drafts/speculators", "drafts/specforge"):
        shutil.rmtree(out / name, ignore_errors=True)
    target = write_target(made / "target", out / "target")
    sizes = json.loads((made / "draft" / "draft.json").read_text())
    auxiliary = json.loads((made / "draft" / "report.json").read_text())["auxiliary_layers"]
    trained = load_safetensors(made / "draft" / "draft.safetensors")
    os.chdir(out)
    embedding = target["model.embed_tokens.weight"]
    write_speculators(Path("drafts/speculators"), sizes, trained, embedding, auxiliary)
    compare(Path("drafts/speculators"), trained, "layers.0.")
    write_specforge(Path("drafts/specforge"), sizes, trained)
    compare(Path("drafts/specforge"), trained, "midlayer.")
    for file in Path("drafts").rglob("*.*"):
        file.chmod(0o644)
        print(file, file.stat().st_size)


if __name__ == "__main__":
    main()
