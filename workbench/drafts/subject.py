"""What the contracts look at: a checkpoint, what its loader did, the target and the launch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.facts.features import since
from workbench.launch.records import Launch
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.registered import EAGLE3_KIND, EAGLE_KIND, kind_of

SOURCE = {
    "sglang": "sglang/srt/models/llama_eagle3.py",
    "vllm": "vllm/model_executor/models/llama_eagle3.py",
    "tensorrt-llm": "tensorrt_llm/_torch/models/modeling_speculative.py",
}
NAMES = {"sglang": "SGLang", "vllm": "vLLM", "tensorrt-llm": "TensorRT-LLM"}

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class Subject:
    """One draft or model in front of one engine.

    Attributes
    ----------
    checkpoint
        Offers ``table``, ``config`` and ``tensor(name)``; only small integer tensors are read.
    target
        The target's checkpoint or config, None where it is not known.
    launch
        How the server is launched, None where it is not known.
    """

    checkpoint: Any
    outcome: LoadOutcome
    target: Any = None
    launch: Launch | None = None

    @property
    def engine(self) -> str:
        """The engine's name, as in ``registry.ROOMS``."""
        return self.outcome.engine

    @property
    def who(self) -> str:
        """The engine with its version, for a sentence."""
        name = NAMES.get(self.engine, self.engine or "the model")
        return f"{name} {self.outcome.version}".strip()

    @property
    def table(self) -> TensorTable:
        """The checkpoint's tensors."""
        table: TensorTable = self.checkpoint.table
        return table

    def place(self, file: str = "") -> str:
        """Return a source file of the engine with its version."""
        file = file or SOURCE.get(self.engine, "")
        return f"{file} ({self.outcome.version})" if file and self.outcome.version else file

    def since(self, feature: str) -> bool | None:
        """Tell whether the engine's version does it; None where nobody looked."""
        return since(self.engine, feature, self.outcome.version)

    # -- the config ---------------------------------------------------------------------------

    @cached_property
    def raw(self) -> Mapping[str, Any]:
        """The config as read; {} for none."""
        raw = getattr(self.checkpoint.config, "raw", None)
        return raw if isinstance(raw, Mapping) else {}

    @property
    def nested(self) -> bool:
        """Whether the config has speculators' nested form."""
        return getattr(self.checkpoint.config, "layout", "") == "speculators"

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field of the config, from its flat form or from the top level."""
        value = self.checkpoint.config.get(name, None)
        if value is None:
            value = self.raw.get(name)
        return default if value is None else value

    def number(self, name: str) -> int | None:
        """Return a whole number of the config, None where there is none."""
        return _whole(self.get(name))

    @cached_property
    def eagle_config(self) -> Mapping[str, Any]:
        """The ``eagle_config`` of the config; {} for none."""
        value = self.get("eagle_config")
        return value if isinstance(value, Mapping) else {}

    @cached_property
    def target_config(self) -> Any:
        """The target's config, None where no target is known."""
        return getattr(self.target, "config", self.target)

    def of_target(self, name: str) -> int | None:
        """Return a whole number of the target's config, None where it is not known."""
        return None if self.target_config is None else _whole(self.target_config.get(name, None))

    # -- the tensors --------------------------------------------------------------------------

    @cached_property
    def eagle3(self) -> bool:
        """Whether this is an EAGLE-3 draft, by class, by config or by its tensors."""
        if self.other_draft:
            return False
        says = [self.outcome.model_class, *getattr(self.checkpoint.config, "architectures", ())]
        says += [str(self.raw.get("speculators_model_type", ""))]
        return any("eagle3" in name.lower() for name in says) or self.eagle3_tensors

    @property
    def other_draft(self) -> bool:
        """Whether the class is that of a draft of another kind (DFlash, NextN, Medusa), by its name."""
        return kind_of(self.outcome.model_class) not in ("", EAGLE3_KIND)

    @cached_property
    def eagle3_tensors(self) -> bool:
        """Whether the tensors are those of an EAGLE-3 draft: fc, and d2t or hidden_norm."""
        if len(self.table) > 4096:  # no draft has that many, and the search looks at every name
            return False
        mark = self.find("hidden_norm.weight") or self.containing("d2t")
        return bool(self.find("fc.weight") and mark)

    @property
    def first_generation(self) -> bool:
        """Whether the class is that of a draft of the first EAGLE generation."""
        return kind_of(self.outcome.model_class) == EAGLE_KIND

    def find(self, name: str) -> list[TensorInfo]:
        """Return the tensors of that name, under whatever prefix."""
        tail = "." + name
        return [self.table[n] for n in self.table.names if n == name or n.endswith(tail)]

    def containing(self, text: str) -> list[TensorInfo]:
        """Return the tensors with `text` in their name, as loaders look for d2t and t2d."""
        return [self.table[n] for n in self.table.names if text in n]

    def values(self, tensor: TensorInfo) -> Array:
        """Return the values of a small tensor, flat; torch is needed only for types numpy lacks."""
        plain = tensor.dtype[:1] in "IU" or tensor.dtype in ("BOOL", "F16", "F32", "F64")
        read = self.checkpoint.numpy if plain else self.checkpoint.tensor
        values = read(tensor.name).reshape(-1)
        return np.asarray(values) if plain else np.asarray(values.tolist())

    # -- vocabularies -------------------------------------------------------------------------

    @property
    def draft_vocab(self) -> int | None:
        """``draft_vocab_size`` as the config says, None where it says none."""
        return self.number("draft_vocab_size")

    @property
    def vocab(self) -> int | None:
        """The target's vocabulary size, as the draft's config says."""
        return self.number("vocab_size")

    @property
    def target_hidden(self) -> int | None:
        """Width of one target layer's features, as the draft's config says."""
        return self.number("target_hidden_size") or self.number("hidden_size")


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
