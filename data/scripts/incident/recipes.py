"""Recipes: each makes one broken (or repaired) draft from the good one.

    python data/scripts/incident/recipes.py .carry/models/drafts/speculators .carry/models/drafts all

Run by the project's own Python; the broken drafts are not kept in the repository, since a recipe writes
each again. `speculators-flattened` is what was served in the incident: the trainer's keys under a config
that SGLang accepts. `speculators-repaired` is the workbench's own repair of it for SGLang 0.5.11.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import load_safetensors, save_safetensors, write_json

Tensors = dict[str, Any]
Config = dict[str, Any]
REPAIRED_FOR = "sglang==0.5.11"


def flattened(source: Path) -> Config:
    """Return the draft's config in the flat form that SGLang reads."""
    from workbench.checkpoint.open import open_checkpoint
    from workbench.facts.flat_config import flattened as flat_config

    return dict(flat_config(open_checkpoint(source).config, REPAIRED_FOR.partition("==")[2]))


def as_it_is(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Change nothing: the trainer's keys."""


def no_lm_head(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Lose the head: the engine keeps whatever its memory holds."""
    del tensors["lm_head.weight"]


def fc_reversed(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Take the auxiliary layers in the order high, middle, low."""
    import torch

    blocks = tensors["fc.weight"].chunk(3, dim=1)
    tensors["fc.weight"] = torch.cat(blocks[::-1], dim=1)


def d2t_absolute(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Store target ids where the engine expects offsets: it adds the draft id once more."""
    import torch

    tensors["d2t"] = tensors["d2t"] + torch.arange(len(tensors["d2t"]))


def d2t_zeros(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Lose the map: draft id i is taken for target id i."""
    tensors["d2t"].zero_()


def aux_shifted(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Copy the trainer's layer ids into `eagle_config`: SGLang reads its own convention, one layer later."""
    config["eagle_config"] = {
        "use_aux_hidden_state": True,
        "eagle_aux_hidden_state_layer_ids": auxiliary,
    }


def norm_output(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Claim that the normed output is fed to the next step."""
    config["norm_output"] = True


def fc_norm_flag(tensors: Tensors, config: Config, auxiliary: list[int]) -> None:
    """Claim a norm for each auxiliary layer; there are no weights for them, so they stay at one."""
    config["fc_norm"] = True


CHANGES: dict[str, Callable[[Tensors, Config, list[int]], None]] = {
    "speculators-flattened": as_it_is,
    "no-lm-head": no_lm_head,
    "fc-reversed": fc_reversed,
    "d2t-absolute": d2t_absolute,
    "d2t-zeros": d2t_zeros,
    "aux-shifted": aux_shifted,
    "norm-output": norm_output,
    "fc-norm-flag": fc_norm_flag,
}


def write(name: str, source: Path, out: Path) -> None:
    """Write the draft of one recipe.

    Parameters
    ----------
    name
        One of `CHANGES`, or `speculators-repaired`.
    source
        The good draft as speculators saved it.
    out
        The folder to write; what is there is replaced.
    """
    shutil.rmtree(out, ignore_errors=True)
    if name == "speculators-repaired":
        repair(source, out)
        return
    tensors, config = load_safetensors(source / "model.safetensors"), flattened(source)
    CHANGES[name](tensors, config, trained_layers(source))
    write_json(out / "config.json", config)
    save_safetensors(out / "model.safetensors", tensors)


def trained_layers(source: Path) -> list[int]:
    """Return the auxiliary layers as the trainer wrote them."""
    import json

    return list(
        json.loads((source / "config.json").read_text())["eagle_aux_hidden_state_layer_ids"]
    )


def repair(source: Path, out: Path) -> None:
    """Let the workbench repair the flattened draft for the engine that dropped its layer."""
    import tempfile

    from workbench import fix_checkpoint

    with tempfile.TemporaryDirectory() as name:
        broken = Path(name) / "draft"
        write("speculators-flattened", source, broken)
        fix_checkpoint(broken, REPAIRED_FOR, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="the good draft, as speculators saved it")
    parser.add_argument("out", type=Path, help="folder that gets a folder for each recipe")
    parser.add_argument(
        "names", nargs="+", help=f"all, or of: {', '.join(CHANGES)}, speculators-repaired"
    )
    arguments = parser.parse_args()
    names = [*CHANGES, "speculators-repaired"] if arguments.names == ["all"] else arguments.names
    for name in names:
        write(name, arguments.source, arguments.out / name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
