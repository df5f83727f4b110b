"""Forward hooks that SGLang itself installs (`--forward-hooks`): the draft's tokens, logits and weights.

The server imports this module by name; PYTHONPATH holds its folder. Hooks see eager calls only, so CUDA
graphs are off in these runs. What is written, one file a call, in the order of the calls:

    NNNNN-draft.npz    of the draft's logits processor: input_ids, positions, seq_lens, mode, logits
                       and hidden (what the head was given)
    NNNNN-target.npz   of the target's: the same, but of the logits only the best token and its logit
    NNNNN-fc.npz       of the draft's fc: its input and output (float16)
    weights/NAME.npy   each parameter of a module that was asked for, once, in float32: what its memory
                       really held
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNTER = itertools.count()


def array(value: Any) -> Any:
    """Return a tensor as numpy."""
    value = value.detach()
    return (value.float() if value.is_floating_point() else value).cpu().numpy()


def logits(config: dict[str, Any]) -> Callable[..., None]:
    """Return a hook for the logits processor of target and draft."""
    import numpy as np

    folder, draft_width = Path(config["folder"]), int(config["draft_vocabulary"])
    folder.mkdir(parents=True, exist_ok=True)

    def hook(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        found = getattr(output, "next_token_logits", None)
        if found is None or (number := next(COUNTER)) >= int(config.get("limit", 4000)):
            return
        batch = next((item for item in inputs if hasattr(item, "forward_mode")), None)
        record = {"input_ids": array(inputs[0])}
        for name in ("positions", "seq_lens"):
            value = getattr(batch, name, None)
            if value is not None:
                record[name] = array(value)
        record["mode"] = np.array(str(getattr(batch, "forward_mode", "")))
        if found.shape[-1] == draft_width:
            record["logits"] = array(found).astype(np.float16)
            record["hidden"] = array(inputs[1])
            np.savez_compressed(folder / f"{number:05}-draft.npz", **record)
        else:
            best, token = found.float().max(-1)
            np.savez_compressed(
                folder / f"{number:05}-target.npz", best=array(best), token=array(token), **record
            )

    return hook


def passing(config: dict[str, Any]) -> Callable[..., None]:
    """Return a hook that writes a module's first input and its output."""
    import numpy as np

    folder = Path(config["folder"])
    folder.mkdir(parents=True, exist_ok=True)

    def hook(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        number = next(COUNTER)
        if number < int(config.get("limit", 4000)):
            np.savez_compressed(
                folder / f"{number:05}-{config['name']}.npz",
                input=array(inputs[0]).astype(np.float16),
                output=array(output).astype(np.float16),
            )

    return hook


def weights(config: dict[str, Any]) -> Callable[..., None]:
    """Return a hook that writes a module's parameters when it is first called."""
    import numpy as np

    folder = Path(config["folder"]) / "weights"
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[int] = set()

    def hook(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        for name, parameter in module.named_parameters():
            np.save(folder / f"{config['name']}.{name}.npy", array(parameter))

    return hook


def specification(folder: str, draft_vocabulary: int, layer: str) -> list[dict[str, Any]]:
    """Return the value of `--forward-hooks`.

    Parameters
    ----------
    layer
        Name of the draft's decoder layer in this version where the target has none of that name
        (`model.midlayer`, up to 0.5.11); else empty: `model.layers.0` would be the target's, too.
    """
    common = {"folder": folder, "draft_vocabulary": draft_vocabulary}
    specs = [
        {
            "name": "logits",
            "target_modules": ["logits_processor"],
            "hook_factory": "recorder:logits",
            "config": common,
        },
        {
            "name": "fc",
            "target_modules": ["model.fc"],
            "hook_factory": "recorder:passing",
            "config": {**common, "name": "fc"},
        },
    ]
    modules = ["model.fc"]
    if layer:
        parts = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
        norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        modules += [f"{layer}.{part}" for part in (*parts, *norms)]
    specs += [
        {
            "name": f"weights {module}",
            "target_modules": [module],
            "hook_factory": "recorder:weights",
            "config": {**common, "name": module},
        }
        for module in modules
    ]
    return specs
