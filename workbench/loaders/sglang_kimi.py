"""SGLang's Kimi-K2.5 as a target: vision tower, projector, and the language model of `sglang_deepseek`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.loaders.families import ONCE, Blueprint, whole
from workbench.loaders.profile import Model, NotCovered, Profile, Route, indices
from workbench.loaders.sglang_deepseek import (
    PAST,
    RULES,
    Rules,
    deepseek_facts,
    deepseek_profile,
    deepseek_route,
    language,
    past_layer,
)
from workbench.loaders.sglang_parts import merge, place_in, readable

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

KIMI = "models/kimi_k25.py"


@dataclasses.dataclass(frozen=True)
class Kimi:
    """KimiK25ForConditionalGeneration: vision tower, projector, and a DeepSeek-V3 language model."""

    rules: Rules
    first: str

    @property
    def place(self) -> str:
        """Where load_weights stands."""
        return place_in(KIMI, self.rules.version, "load_weights")

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.rules.version)
        layers = whole(config, "num_hidden_layers")
        inside = Blueprint()
        language(inside, config, self.rules, "language_model.")
        out = Blueprint()
        merge(out, inside, lambda name: f"language_model.{name}")
        out.slots[:] = [
            dataclasses.replace(s, template=f"language_model.{s.template}") for s in out.slots
        ]
        vision = config.raw.get("vision_config") or {}
        if not isinstance(vision, Mapping):
            raise NotCovered("vision_config in config.json is not an object")
        _vision(out, vision, whole(config, "hidden_size"))
        special = frozenset(range(layers, layers + PAST))
        return out.model(special=special, facts=deepseek_facts(config, layers))

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        name = key
        if name.startswith("language_model.layers."):
            name = name.replace("language_model.layers.", "language_model.model.layers.", 1)
        if "vision_tower" in name or "mm_projector" in name:
            for old, new in _VISION_NAMES:
                name = name.replace(old, new)
            return Route(
                "load", name, "a ValueError where there is no such parameter", self.place, "raises"
            )
        name = name.replace("language_model.", "")
        route = past_layer(name, model, self.rules) or deepseek_route(name, self.rules, model.facts)
        if route.fate != "load":
            return route
        return dataclasses.replace(route, name=f"language_model.{route.name}")

    def profile(self) -> Profile:
        """Return the profile of this range."""
        rules = dataclasses.replace(self.rules, first=self.first)
        return deepseek_profile(
            "KimiK25ForConditionalGeneration",
            rules,
            self.build,
            self.route,
            prefix=f"{self.place}: language_model. is taken off, then the DeepSeek loader runs",
            vision=f"{self.place}: ValueError, Weight … not found in params_dict",
        )


_VISION_NAMES = (
    ("wqkv.", "attn.qkv_proj."),
    ("wo.", "attn.proj."),
)


def _vision(out: Blueprint, vision: Mapping[str, Any], text_hidden: int) -> None:
    """Add MoonViT and the projector; the tower reads the plain fields, the projector those with vt_."""

    def size(name: str, default: int) -> int:
        value = vision.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise NotCovered(f"vision_config.{name} is {value!r}")
        return value

    hidden, inner = size("hidden_size", 1152), size("intermediate_size", 4304)
    patch, blocks = size("patch_size", 14), indices(range(size("num_hidden_layers", 27)))
    height, width = size("init_pos_emb_height", 64), size("init_pos_emb_width", 64)
    merge_by = vision.get("merge_kernel_size", (2, 2))
    before = size("vt_hidden_size", hidden)
    merged = before * int(merge_by[0]) * int(merge_by[1])
    tower, block = "vision_tower", "vision_tower.encoder.blocks.{}"
    out.add(f"{tower}.patch_embed.proj.weight", (hidden, 3, patch, patch))
    out.add(f"{tower}.patch_embed.proj.bias", (hidden,))
    out.add(f"{tower}.patch_embed.pos_emb.weight", (height, width, hidden))
    for name, rows, columns in (
        ("attn.qkv_proj", 3 * hidden, hidden),
        ("attn.proj", hidden, hidden),
        ("mlp.fc0", inner, hidden),
        ("mlp.fc1", hidden, inner),
    ):
        out.linear(f"{block}.{name}", rows, columns, blocks, bias=True)
    for name, index, channels in (
        (f"{block}.norm0", blocks, hidden),
        (f"{block}.norm1", blocks, hidden),
        (f"{tower}.encoder.final_layernorm", ONCE, hidden),
        ("mm_projector.pre_norm", ONCE, before),
    ):
        out.add(f"{name}.weight", (channels,), index)
        out.add(f"{name}.bias", (channels,), index)
    wide = size("text_hidden_size", text_hidden)
    for at, name, rows in ((0, "linear_1", merged), (2, "linear_2", wide)):
        parameter, index = f"mm_projector.{name}", indices([at])
        for suffix, shape in (("weight", (rows, merged)), ("bias", (rows,))):
            key = f"mm_projector.proj.{{}}.{suffix}"
            out.add(key, shape, index, parameter=f"{parameter}.{suffix}")


KIMI_RANGES: tuple[Kimi, ...] = (Kimi(RULES[5], "0.5.9"), Kimi(RULES[6], "0.5.20"))
