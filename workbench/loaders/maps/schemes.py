"""A config.json's ``quantization_config`` as a scheme and the layers that it is for, or "cannot tell"."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.loaders.maps import ignored
from workbench.loaders.maps.ignored import Asked, Packed
from workbench.loaders.maps.layouts import Scheme
from workbench.loaders.profile import NotCovered

Quant = Mapping[str, Any]
LINEAR = frozenset(
    [
        "QKVParallelLinear", "MergedColumnParallelLinear", "ColumnParallelLinear", "RowParallelLinear",
        "ReplicatedLinear", "LinearBase", ignored.EXPERTS,
    ]
)  # fmt: skip
HEAD = "ParallelLMHead"
GROUPS = (32, 64, 128)
# Fields that say how the file was made, or what SGLang does not read.
_FREE = {
    "compressed-tensors": "quant_method quantization_status version global_compression_ratio",
    "fp8": "quant_method fmt",
    "awq": "quant_method version backend do_fuse exllama_config fuse_max_seq_len modules_to_fuse",
    "gptq": "quant_method damp_percent true_sequential static_groups model_name_or_path model_file_base_name "
    "meta pack_dtype quantizer damp_auto_increment batch_size block_name_to_quantize cache_block_outputs "
    "dataset exllama_config max_input_length model_seqlen module_name_preceding_first_block "
    "pad_token_id tokenizer use_cuda_fp16 use_exllama backend",
    "modelopt": "quant_method producer config_groups",
}
# The fields of one group's arguments that are known; the first four are of use to its writer only.
_ARGUMENTS = frozenset(
    [
        "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "block_structure", "group_size", "actorder",
        "symmetric", "dynamic", "num_bits", "type", "strategy",
    ]
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Method:
    """What a config asks for.

    Attributes
    ----------
    skips
        Whether a layer that asks is left unquantised; raises `Refused` where the engine would stop.
    heads
        Whether heads are quantised as well.
    """

    scheme: Scheme
    skips: Callable[[Asked], bool]
    heads: bool = False

    def of(self, asked: Asked) -> Scheme | None:
        """Return the scheme of a layer, None for a plain one."""
        takes = asked.kind in LINEAR or (asked.kind == HEAD and self.heads)
        return self.scheme if takes and not self.skips(asked) else None


def read(quant: Quant, packed: Packed) -> Method:
    """Return what a ``quantization_config`` asks for.

    Parameters
    ----------
    packed
        The class's fused layers and their parts, as it declares them.

    Raises
    ------
    NotCovered
        It has a method, or a value of a field, that was not tried.
    """
    method = str(quant.get("quant_method", "")).lower()
    reader = _READERS.get(method)
    if reader is None:
        raise NotCovered(
            f"how this class stores weights quantised by {method or 'an unnamed method'} was not tried"
        )
    return reader(quant, packed)


def _compressed(quant: Quant, packed: Packed) -> Method:
    _known("compressed-tensors", quant, "format", "config_groups", "ignore", "kv_cache_scheme",
           "sparsity_config", "transform_config")  # fmt: skip
    _unset(quant, "kv_cache_scheme", "sparsity_config", "transform_config")
    groups = quant.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise NotCovered("config_groups is not one group, and several were not tried")
    (group,) = groups.values()
    form = quant.get("format")
    if list(group.get("targets") or ()) != ["Linear"]:
        raise NotCovered(f"the group's targets are {group.get('targets')!r:.80}, not Linear")
    if group.get("output_activations") or group.get("format") not in (None, form):
        raise NotCovered("the group has output_activations, or a format of its own")
    weights, inputs = _arguments(group.get("weights")), _arguments(group.get("input_activations"))
    scheme = _of_groups(form, weights, inputs)
    if scheme is None:
        raise NotCovered(
            f"{form} with {_said(weights)} and activations {_said(inputs)} was not tried"
        )
    return Method(scheme, ignored.compressed(_texts(quant, "ignore"), packed))


def _arguments(given: Any) -> dict[str, Any]:
    """Return the arguments that decide how a tensor is stored."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or set(given) - _ARGUMENTS:
        raise NotCovered(f"{sorted(set(given or ()) - _ARGUMENTS)} of a group was not tried")
    kept = dict(given)
    for name in ("observer", "observer_kwargs", "scale_dtype", "zp_dtype"):
        kept.pop(name, None)
    return {n: v for n, v in kept.items() if v not in (None, False)}


def _of_groups(form: Any, weights: dict[str, Any], inputs: dict[str, Any]) -> Scheme | None:
    """Return the scheme of weights and activations, None where it was not tried."""
    w = dict(weights)
    symmetric = bool(w.pop("symmetric", False))
    kind, strategy, bits = w.pop("type", "int"), w.pop("strategy", None), w.pop("num_bits", 8)
    act = dict(inputs)
    act.pop("symmetric", None)
    size = w.pop("group_size", None)
    if form == "float-quantized" and (kind, bits, symmetric) == ("float", 8, True):
        block = w.pop("block_structure", None)
        if w or act.pop("num_bits", 8) != 8 or act.pop("type", "float") != "float":
            return None
        if strategy == "block" and block == [128, 128]:
            good = act == {"strategy": "group", "group_size": 128, "dynamic": True}
            return Scheme("fp8", ("block", "dynamic")) if good else None
        if block or size:
            return None
        if strategy in ("channel", "tensor") and act in (
            {"strategy": "token", "dynamic": True},
            {"strategy": "tensor", "dynamic": True},
        ):
            return Scheme("fp8", (strategy, "dynamic"))
        static = strategy == "tensor" and act == {"strategy": "tensor"} and inputs.get("symmetric")
        return Scheme("fp8", ("tensor", "static")) if static else None
    if form == "int-quantized" and (kind, bits, strategy, symmetric) == ("int", 8, "channel", True):
        good = act == {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
        return Scheme("int8") if good and not w and not size else None
    if form == "pack-quantized" and kind == "int" and bits in (4, 8) and not inputs and not w:
        grouped = strategy == "group" and size in GROUPS
        whole = strategy == "channel" and size in (None, -1)
        return (
            Scheme("pack", (bits, size if grouped else 0, symmetric)) if grouped or whole else None
        )
    if form == "nvfp4-pack-quantized" and (kind, bits, strategy) == ("float", 4, "tensor_group"):
        if size != 16 or w or not symmetric:
            return None
        wanted = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                  "dynamic": "local"}  # fmt: skip
        return Scheme("nvfp4", (bool(inputs),)) if act in ({}, wanted) else None
    return None


def _fp8(quant: Quant, packed: Packed) -> Method:
    _known("fp8", quant, "activation_scheme", "weight_block_size", "modules_to_not_convert",
           "ignored_layers", "kv_cache_scheme", "scale_fmt")  # fmt: skip
    _unset(quant, "kv_cache_scheme", "scale_fmt")
    block, activations = quant.get("weight_block_size"), quant.get("activation_scheme")
    lists = [n for n in ("ignored_layers", "modules_to_not_convert") if n in quant]
    if len(lists) > 1:
        raise NotCovered("ignored_layers and modules_to_not_convert are both there")
    skips = ignored.fp8(_texts(quant, *lists) if lists else [], packed)
    if activations not in ("static", "dynamic") or (
        block and (block, activations) != ([128, 128], "dynamic")
    ):
        raise NotCovered(
            f"weight_block_size {block} with {activations!r:.40} activations was not tried"
        )
    return Method(Scheme("block") if block else Scheme("autofp8", (activations,)), skips)


def _awq(quant: Quant, packed: Packed) -> Method:
    _known("awq", quant, "bits", "group_size", "zero_point", "modules_to_not_convert")
    _expect(
        quant, bits=[4], group_size=list(GROUPS), zero_point=[True], version=["gemm", "GEMM", None]
    )
    skips = ignored.awq(_texts(quant, "modules_to_not_convert"))
    return Method(Scheme("awq", (quant["group_size"],)), skips)


def _gptq(quant: Quant, packed: Packed) -> Method:
    _known("gptq", quant, "bits", "group_size", "sym", "desc_act", "lm_head", "checkpoint_format",
           "dynamic", "modules_in_block_to_quantize", "is_marlin_format")  # fmt: skip
    _unset(quant, "lm_head", "modules_in_block_to_quantize", "is_marlin_format")
    _expect(quant, bits=[4, 8], group_size=list(GROUPS), sym=[True], desc_act=[True, False],
            checkpoint_format=["gptq", None])  # fmt: skip
    dynamic = quant.get("dynamic") or {}
    if not isinstance(dynamic, Mapping) or any(not str(p).startswith("-:") for p in dynamic):
        raise NotCovered("dynamic gives layers other values, which was not tried")
    detail = quant["bits"], quant["group_size"], quant["desc_act"]
    return Method(Scheme("gptq", detail), ignored.gptq([p[2:] for p in dynamic]))


def _modelopt(quant: Quant, packed: Packed) -> Method:
    _known("modelopt", quant, "quant_algo", "ignore", "kv_cache_scheme", "group_size")
    _unset(quant, "kv_cache_scheme")
    groups = quant.get("config_groups")
    every = list(groups.values()) if isinstance(groups, Mapping) else []
    if [group.get("targets") for group in every] != [["Linear"]]:
        raise NotCovered("config_groups of ModelOpt is not one group for Linear")
    algorithm = quant.get("quant_algo")
    skips = ignored.modelopt(_texts(quant, "ignore"), packed)
    if algorithm == "FP8":
        return Method(Scheme("modelopt-fp8"), skips, heads=True)
    size = quant.get("group_size") or (every[0].get("weights") or {}).get("group_size")
    if algorithm == "NVFP4" and size == 16:
        return Method(Scheme("modelopt-nvfp4"), skips, heads=True)
    raise NotCovered(f"ModelOpt's {algorithm!r:.40} with groups of {size!r:.20} was not tried")


_READERS: dict[str, Callable[[Quant, Packed], Method]] = {
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "modelopt": _modelopt,
}


def _known(method: str, quant: Quant, *read_too: str) -> None:
    """Raise where a config has a field that is neither read here nor free."""
    odd = sorted(set(quant) - set(_FREE[method].split()) - set(read_too))
    if odd:
        raise NotCovered(f"{odd[0]} of the quantization_config was not tried")


def _unset(quant: Quant, *names: str) -> None:
    for name in names:
        if quant.get(name):
            raise NotCovered(f"{name} of the quantization_config is set, which was not tried")


def _expect(quant: Quant, **values: Sequence[Any]) -> None:
    """Raise where a field has a value that was not tried; 1 is not True."""
    for name, tried in values.items():
        value = quant.get(name)
        if not any(
            value == one and isinstance(value, bool) is isinstance(one, bool) for one in tried
        ):
            raise NotCovered(f"{name} {value!r:.40} of the quantization_config was not tried")


def _texts(quant: Quant, name: str) -> list[str]:
    """Return a list of names, empty where there is none."""
    given = quant.get(name)
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise NotCovered(f"{name} of the quantization_config is no list of names")
    return list(given)


def _said(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} {v}" for n, v in sorted(arguments.items())) or "none"
