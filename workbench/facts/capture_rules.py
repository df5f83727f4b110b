"""Which layers of a target SGLang captures for the ids of a draft's ``eagle_config``, and the ids to write.

Each release's class has its own rule (`rows`, kind ``captures``). A captured layer k means the input of layer
k, which is the output of layer k - 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbench.facts import rows
from workbench.facts.features import since

ENGINE = "sglang"
PLUS_ONE = "[val + 1 for val in layer_ids]"
_UNLESS_ONE = (
    "[val + 1 for val in layer_ids] if layer_ids and layer_ids[0] == 1; "
    "list(layer_ids) if not (layer_ids and layer_ids[0] == 1)"
)
_UNLESS_LAST = (
    "[val + 1 for val in layer_ids] if not (layer_ids and max(layer_ids) == num_layers); "
    "list(layer_ids) if layer_ids and max(layer_ids) == num_layers"
)

Rule = Callable[[Sequence[int], int | None], list[int] | None]


def _plus_one(ids: Sequence[int], layers: int | None) -> list[int]:
    return [k + 1 for k in ids]


def _unless_one(ids: Sequence[int], layers: int | None) -> list[int]:
    return [k + 1 for k in ids] if ids and ids[0] == 1 else list(ids)


def _unless_last(ids: Sequence[int], layers: int | None) -> list[int] | None:
    if layers is None:
        return None
    return list(ids) if ids and max(ids) == layers else [k + 1 for k in ids]


# What was understood of the rules; a class with another one is not known.
RULES: dict[str, Rule] = {PLUS_ONE: _plus_one, _UNLESS_ONE: _unless_one, _UNLESS_LAST: _unless_last}

# Classes whose forward pass captures after the last layer too.
_TAKES_LAST = frozenset({"GptOssForCausalLM"})

# Target model_type -> the class that a config without architectures means.
_CLASS_OF = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "mistral_large_3": "MistralLarge3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Capture:
    """How one release captures layers of one target class.

    Attributes
    ----------
    version, target
        The release, and the class whose rule it is.
    row
        Where it stands; None where the release has no such class, or the class captures nothing.
    known
        Whether the release was read at all.
    """

    version: str
    target: str
    row: rows.Row | None
    known: bool

    @property
    def rule(self) -> Rule | None:
        """The rule, None where there is none or it was not understood."""
        return RULES.get(self.row.value) if self.row is not None else None

    @property
    def takes_last(self) -> bool:
        """Whether the class can capture what the last layer puts out (as the input of the layer after it)."""
        return self.row is not None and self.row.name in _TAKES_LAST

    @property
    def place(self) -> str:
        """Where the rule stands in this release."""
        return f"{self.row.file} ({self.version})" if self.row is not None else ""

    def layers(self, ids: Sequence[int], layers: int | None) -> list[int] | None:
        """Return the layers whose inputs are captured for these ids, None where that is not known."""
        return self.rule(ids, layers) if self.rule is not None else None

    def ids(self, wanted: Sequence[int], layers: int | None) -> list[int] | None:
        """Return the ids with which the inputs of `wanted` layers are captured, None where there are none."""
        for shift in (0, 1):
            ids = [k - shift for k in wanted]
            if min(ids, default=0) >= 0 and self.layers(ids, layers) == list(wanted):
                return ids
        return None


def capture_of(version: str, architectures: Iterable[str] = (), model_type: str = "") -> Capture:
    """Return how a release captures layers of a target.

    Parameters
    ----------
    version
        Of SGLang; "" or one that was not read: not known.
    architectures, model_type
        Of the target's config; the first class that the release captures layers of counts.
    """
    release = rows.known(ENGINE, version) if version else None
    named = [*architectures]
    if not named and model_type:
        named = [_CLASS_OF[model_type.lower()]] if model_type.lower() in _CLASS_OF else []
    if release is None:
        return Capture(version, named[0] if named else "", None, False)
    for name in named:
        row = rows.row_in(ENGINE, "captures", name, release)
        if row is not None:
            return Capture(release, name, row, True)
    return Capture(release, named[0] if named else "", None, True)


_SWITCH = "use_aux_hidden_state"


def auxiliary_off(eagle_config: Mapping[str, Any], engine: str, version: str) -> bool:
    """Tell whether a draft's ``eagle_config`` keeps an engine from capturing auxiliary layers.

    SGLang and vLLM take any value that is not true for "off". SGLang reads the field from 0.5.8 on, in one of
    two files; a release that was not read is taken to read it.
    """
    if _SWITCH not in eagle_config or eagle_config[_SWITCH]:
        return False
    files = (_SWITCH, f"{_SWITCH}, in a file of its own")
    found = [since(engine, name, version) for name in files] if engine == ENGINE else [None]
    return any(one is not False for one in found)
