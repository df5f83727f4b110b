"""Which layers of a model ask a quantisation method how to store their weights, and under which name."""

from __future__ import annotations

from typing import Any

# What a layer is to the methods: the first of these among its class and those it is derived from.
KINDS = (
    "QKVParallelLinear",
    "MergedColumnParallelLinear",
    "ColumnParallelLinear",
    "RowParallelLinear",
    "ReplicatedLinear",
    "LinearBase",
    "FusedMoE",
    "ParallelLMHead",
    "VocabParallelEmbedding",
    "RadixAttention",
)


class Asked:
    """Notes what `get_quant_method` of an engine's quantisation config is asked."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, str, str]] = {}

    def of(self, quant_config: Any) -> Any:
        """Return the config, its method noted whenever it is asked."""
        if quant_config is None:
            return None
        answer = quant_config.get_quant_method

        def noted(layer: Any, prefix: str = "", *args: Any, **options: Any) -> Any:
            method = answer(layer, prefix, *args, **options)
            self._seen[id(layer)] = layer, prefix, type(method).__name__
            return method

        quant_config.get_quant_method = noted
        return quant_config

    def table(self, model: Any) -> dict[str, list[str]]:
        """Return module -> its kind, the name it asked under, and the class of the answer."""
        found = {}
        for name, module in model.named_modules():
            seen = self._seen.get(id(module))
            if seen is not None:
                found[name] = [kind_of(module), seen[1], seen[2]]
        return found


def kind_of(layer: Any) -> str:
    """Return what a layer is to the methods, its own class where it is nothing of that."""
    names = [cls.__name__ for cls in type(layer).__mro__]
    return next((name for name in names if name in KINDS), names[0])


def spellings(cls: Any, config: Any) -> dict[str, Any]:
    """Return how a class tells the methods that its names differ from the checkpoint's.

    ``packed``: fused layer -> its parts; ``mapper``: what is replaced in names, by kind of place.
    """
    get = getattr(cls, "get_hf_to_sglang_mapper", None)
    mapper = get(config) if get is not None else getattr(cls, "hf_to_sglang_mapper", None)
    places = ("orig_to_new_substr", "orig_to_new_prefix", "orig_to_new_suffix")
    return {
        "packed": dict(getattr(cls, "packed_modules_mapping", None) or {}),
        "mapper": None if mapper is None else {p: dict(getattr(mapper, p, {})) for p in places},
    }
