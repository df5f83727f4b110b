"""SGLang: what each release from 0.4.4 to 0.5.23 does with the keys of a checkpoint.

Each claim names the place in SGLang's source that it was read from, with the release. The classes stand
in `sglang_eagle3` and `sglang_mla` (drafts), `sglang_targets` (Llama, Qwen) and `sglang_deepseek`
(DeepSeek, NextN, Kimi).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.loaders.profile import Profile
from workbench.loaders.sglang_config import checked
from workbench.loaders.sglang_deepseek import DEEPSEEK_RANGES
from workbench.loaders.sglang_eagle3 import LLAMA_RANGES
from workbench.loaders.sglang_mla import MLA_RANGES
from workbench.loaders.sglang_parts import RELEASES, release
from workbench.loaders.sglang_targets import DENSE_RANGES

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

__all__ = ["PROFILES", "RELEASES", "class_for", "draft_class_for", "release"]

PROFILES: tuple[Profile, ...] = tuple(
    part
    for entry in (*LLAMA_RANGES, *MLA_RANGES, *DENSE_RANGES, *DEEPSEEK_RANGES)
    for part in checked(entry.profile())
)

# Architectures that SGLang loads as another class when the checkpoint is a launch's draft model
# (sglang/srt/configs/model_config.py:266 (0.5.8), :413 (0.5.12), :1010 (0.5.23) _config_draft_model).
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
