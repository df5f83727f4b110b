"""Quantised checkpoints, damaged in the ways that people meet: each a new folder beside the whole one.

Nothing here knows how an engine stores a layer; what a module has is read from the files themselves.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

State = dict[str, torch.Tensor]
Json = dict[str, Any]
CODES = ("qweight", "weight_packed")
SCALES = ("scales", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale")
MORE = (
    "qzeros", "g_idx", "weight_zero_point", "weight_shape", "input_scale", "input_global_scale",
)  # fmt: skip


class Case:
    """One checkpoint on the way to its damage."""

    def __init__(self, stored: State, config: Json, seed: str) -> None:
        self.stored, self.config = dict(stored), copy.deepcopy(config)
        self.random = random.Random(seed)

    @property
    def settings(self) -> Json:
        """The quantisation settings."""
        return dict.__getitem__(self.config, "quantization_config")

    def modules(self) -> list[str]:
        """Return the modules that are quantised."""
        suffixes = (*CODES, *SCALES)
        found = {k.rpartition(".")[0] for k in self.stored if k.rpartition(".")[2] in suffixes}
        return sorted(found)

    def tensors(self, suffixes: tuple[str, ...]) -> list[str]:
        """Return the keys of quantised modules that end so."""
        quantised = set(self.modules())
        return sorted(
            k
            for k in self.stored
            if k.rpartition(".")[2] in suffixes and k.rpartition(".")[0] in quantised
        )

    def make_plain(self, module: str) -> None:
        """Store a module as it was before it was quantised."""
        rows, columns = self._sizes(module)
        for key in [k for k in self.stored if k.rpartition(".")[0] == module]:
            if not key.endswith(".bias"):
                del self.stored[key]
        self.stored[f"{module}.weight"] = torch.randn(rows, columns).to(torch.bfloat16)

    def _sizes(self, module: str) -> tuple[int, int]:
        has = {
            k.rpartition(".")[2]: v
            for k, v in self.stored.items()
            if k.rpartition(".")[0] == module
        }
        if "weight_shape" in has:
            return tuple(has["weight_shape"].tolist())
        if "qweight" in has and "g_idx" in has:  # GPTQ packs the inputs
            return has["qweight"].shape[1], len(has["g_idx"])
        if "qweight" in has:  # AWQ packs the outputs
            return has["qweight"].shape[1] * 8, has["qweight"].shape[0]
        codes = has["weight_packed"] if "weight_packed" in has else has["weight"]
        return codes.shape[0], codes.shape[1] * (2 if codes.dtype == torch.uint8 else 1)

    def ignore(self, *modules: str) -> None:
        """Name modules in the list of what is not quantised, as the program that wrote it does."""
        settings = self.settings
        if settings["quant_method"] == "gptq":
            more = {rf"-:^{name}$": {} for name in modules}
            settings["dynamic"] = {**(settings.get("dynamic") or {}), **more}
            return
        field = "ignore" if settings["quant_method"] in ("compressed-tensors", "modelopt") else ""
        field = field or (
            "ignored_layers" if "ignored_layers" in settings else "modules_to_not_convert"
        )
        settings[field] = [*(settings.get(field) or []), *modules]


def _gone(suffixes: tuple[str, ...]) -> Callable[[Case], bool]:
    def damage(case: Case) -> bool:
        names = case.tensors(suffixes)
        if names:
            del case.stored[case.random.choice(names)]
        return bool(names)

    return damage


def other_size(case: Case) -> bool:
    """Say another size of groups or blocks than the file has; or another way to scale activations."""
    settings = case.settings
    if "group_size" in settings:
        settings["group_size"] //= 2
    elif "weight_block_size" in settings:
        settings["weight_block_size"] = [64, 64]
    elif "activation_scheme" in settings:
        other = {"static": "dynamic", "dynamic": "static"}
        settings["activation_scheme"] = other[settings["activation_scheme"]]
    else:
        group = next(iter(settings["config_groups"].values()))
        if group["weights"].get("group_size"):
            group["weights"]["group_size"] //= 2
        elif settings["quant_method"] == "modelopt":
            return False  # it says so twice, and engines read the other place
        else:
            group["weights"]["strategy"] = (
                "channel" if group["weights"]["strategy"] == "tensor" else "tensor"
            )
    return True


def ignored_though_quantised(case: Case) -> bool:
    """Name a quantised module among those that are not."""
    case.ignore(case.random.choice(case.modules()))
    return True


def plain_though_not_ignored(case: Case) -> bool:
    """Leave a module unquantised, and do not say so."""
    case.make_plain(case.random.choice(case.modules()))
    return True


def half_ignored(case: Case) -> bool:
    """Leave the gate unquantised, and the other half of what engines fuse it with quantised."""
    gates = [m for m in case.modules() if m.endswith((".gate_proj", ".q_proj"))]
    if not gates:
        return False
    gate = case.random.choice(gates)
    case.make_plain(gate)
    case.ignore(gate)
    return True


def attention_ignored(case: Case) -> bool:
    """Leave the attention of a layer unquantised, and say so: nothing is wrong."""
    mine = [m for m in case.modules() if ".layers.1." in m and "attn" in m]
    for module in mine:
        case.make_plain(module)
    case.ignore(*mine)
    return bool(mine)


def mlp_ignored(case: Case) -> bool:
    """Leave the MLP of a layer unquantised, experts included, and say so: nothing is wrong."""
    mine = [m for m in case.modules() if ".layers.1." in m and "attn" not in m]
    for module in mine:
        case.make_plain(module)
    case.ignore(*mine)
    return bool(mine)


def longer(case: Case) -> bool:
    """Give a tensor of a quantised module a row more."""
    name = case.random.choice(
        [n for n in case.tensors((*CODES, *SCALES, "weight")) if case.stored[n].dim()]
    )
    tensor = case.stored[name]
    case.stored[name] = torch.zeros((tensor.shape[0] + 1, *tensor.shape[1:])).to(tensor.dtype)
    return True


def renamed(case: Case) -> bool:
    """Put a prefix before a tensor's name."""
    name = case.random.choice(case.tensors((*CODES, *SCALES, "weight")))
    case.stored[f"model.{name}"] = case.stored.pop(name)
    return True


def other_dtype(case: Case) -> bool:
    """Store codes as numbers of another kind."""
    name = case.random.choice(case.tensors((*CODES, "weight")))
    case.stored[name] = case.stored[name].float().to(torch.bfloat16)
    return True


DAMAGES: dict[str, Callable[[Case], bool]] = {
    "whole": lambda case: True,
    "scale gone": _gone(SCALES),
    "codes gone": _gone((*CODES, "weight")),
    "side tensor gone": _gone(MORE),
    "other size in the config": other_size,
    "ignored though quantised": ignored_though_quantised,
    "plain though not ignored": plain_though_not_ignored,
    "half ignored": half_ignored,
    "attention ignored": attention_ignored,
    "MLP ignored": mlp_ignored,
    "longer": longer,
    "renamed": renamed,
    "other dtype": other_dtype,
}


def damaged(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each damage that fits a checkpoint, and the folder that has it."""
    stored = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    for name, damage in DAMAGES.items():
        case = Case(stored, config, f"{folder.name} {name}")
        if not case.modules() or not damage(case):
            continue
        place = folder.with_name(f"{folder.name}+{name.replace(' ', '-')}")
        shutil.copytree(folder, place)
        save_file({k: v.contiguous() for k, v in case.stored.items()}, place / "model.safetensors")
        (place / "config.json").write_text(json.dumps(case.config, indent=1))
        yield name, place
