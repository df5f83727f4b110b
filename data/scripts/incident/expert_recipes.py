"""Write broken copies of the draft that train_experts.py made, and lay out the folder that servers run in.

    python3 data/scripts/incident/expert_recipes.py $OUT data/incident/target ~/models

OUT holds `target`, `draft` and `untrained`; the tokenizer is the shipped one. Each copy has one thing wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import load_safetensors, save_safetensors, write_json

Change = Callable[[dict[str, Any], dict[str, Any]], None]
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def fc_reversed(tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """Join the auxiliary layers from high to low."""
    import torch

    parts = tensors["fc.weight"].chunk(3, dim=1)
    tensors["fc.weight"] = torch.cat(parts[::-1], dim=1)


def layer_prefixed(tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """Save the decoder layer under another prefix: the engine's loader drops it."""
    for name in [n for n in tensors if n.startswith("layers.")]:
        tensors[f"draft_model.{name}"] = tensors.pop(name)


def norm_output(tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """Claim that the next step is given the normed output."""
    config["norm_output"] = True


def aux_late(tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """Name later layers than those that the draft was trained on."""
    named = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [3, 5, 6]}
    config["eagle_config"] = named


CHANGES: dict[str, Change] = {
    "fc-reversed": fc_reversed,
    "layer-prefixed": layer_prefixed,
    "norm-output": norm_output,
    "aux-late": aux_late,
}


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trained", type=Path, help="folder with target, draft and untrained")
    parser.add_argument("tokenizer", type=Path, help="folder with tokenizer.json")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    for name in ("target", "draft", "untrained"):
        if (given.trained / name).is_dir():
            shutil.copytree(given.trained / name, given.out / name, dirs_exist_ok=True)
    for target in given.out.rglob("target"):
        for name in TOKENIZER:
            shutil.copyfile(given.tokenizer / name, target / name)
    if not (given.trained / "draft").is_dir():
        return
    for name, change in CHANGES.items():
        tensors = load_safetensors(given.trained / "draft" / "model.safetensors")
        config = json.loads((given.trained / "draft" / "config.json").read_text())
        change(tensors, config)
        write_json(given.out / name / "config.json", config)
        save_safetensors(given.out / name / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
