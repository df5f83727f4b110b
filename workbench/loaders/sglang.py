"""SGLang: what each release from 0.4.4 to 0.5.23 does with the keys of a checkpoint.

Each claim names the place in SGLang's source that it was read from, with the release. The classes stand
in `sglang_eagle3`, `sglang_mla` and `sglang_eagle` (drafts), `sglang_targets` (Llama, Qwen),
`sglang_deepseek` (DeepSeek, NextN) and `sglang_kimi`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from workbench.loaders.profile import Profile
from workbench.loaders.sglang_config import checked
from workbench.loaders.sglang_deepseek import DEEPSEEK_RANGES, NextN, Target
from workbench.loaders.sglang_eagle import EAGLE_RANGES, Eagle
from workbench.loaders.sglang_eagle3 import LLAMA_RANGES, Llama
from workbench.loaders.sglang_kimi import KIMI_RANGES, Kimi
from workbench.loaders.sglang_mla import MLA_RANGES, Mla
from workbench.loaders.sglang_parts import RELEASES, release
from workbench.loaders.sglang_targets import DENSE_RANGES, Dense

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

__all__ = ["PROFILES", "RELEASES", "class_for", "draft_class_for", "release"]

_Entry = Llama | Mla | Eagle | Dense | Target | NextN | Kimi


def _parts(entry: _Entry, seen: str = "") -> Iterator[Profile]:
    """Yield the profiles of one range, with the lines of the release `seen`, or of the last of the range."""
    if isinstance(entry, Target | NextN | Kimi):
        entry = dataclasses.replace(entry, rules=dataclasses.replace(entry.rules, seen=seen))
    else:
        entry = dataclasses.replace(entry, seen=seen)
    for part in checked(entry.profile(), seen):
        yield dataclasses.replace(part, cite=partial(_cited, entry, part.first))


def _cited(entry: _Entry, first: str, version: str) -> Profile:
    return next(part for part in _parts(entry, version) if part.first == first)


PROFILES: tuple[Profile, ...] = tuple(
    part
    for entry in (
        *LLAMA_RANGES,
        *MLA_RANGES,
        *EAGLE_RANGES,
        *DENSE_RANGES,
        *DEEPSEEK_RANGES,
        *KIMI_RANGES,
    )
    for part in _parts(entry)
)

# Architectures that SGLang loads as another class when the checkpoint is a launch's draft model
# (sglang/srt/configs/model_config.py, _config_draft_model).
# A draft that names a plain LlamaForCausalLM stays one, whatever its keys are.
_AS_DRAFT = {
    "DeepseekV3ForCausalLM": "DeepseekV3ForCausalLMNextN",
}


def class_for(config: Config) -> str:
    """Return the class that a config.json asks for, "" where it names none.

    A speculators config names no class of SGLang; flattened it is a `LlamaForCausalLMEagle3`.
    """
    if config.layout == "speculators":
        return "LlamaForCausalLMEagle3"
    return config.architectures[0] if config.architectures else ""


def draft_class_for(config: Config) -> str:
    """Return the class that a launch's draft model is loaded as."""
    name = class_for(config)
    return _AS_DRAFT.get(name, name)
