"""Quantised layouts: which tensors of a checkpoint belong together to make one weight.

Works on templates of names, never name by name. Nothing is dequantised here; the record holds what that
takes: the format, the members by role and the indices of every weight.

Sources: compressed-tensors (compressors/pack_quantized, nvfp4), ModelOpt's unified Hugging Face export,
DeepSeek-V3's FP8 blocks, gpt-oss, AutoGPTQ, AutoAWQ and bitsandbytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.records import TensorTable
from workbench.checkpoint.templates import NameGroup, Rows, fill, group_names
from workbench.errors import shown

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

PACK = "compressed-tensors pack-quantized"
NVFP4_PACK = "compressed-tensors nvfp4"
MXFP4_PACK = "compressed-tensors mxfp4"
NVFP4_MODELOPT = "modelopt nvfp4"
FP8_BLOCK = "fp8 block"
FP8 = "fp8"
INT8 = "int8"
MXFP4 = "mxfp4"
GPTQ = "gptq"
AWQ = "awq"
NF4 = "bitsandbytes nf4"
FP4 = "bitsandbytes fp4"
BNB8 = "bitsandbytes int8"

_F8 = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
_ANY: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class _Rule:
    """How one format names the parts of a weight; the first rule that fits is taken."""

    format: str
    codes: str
    dtypes: frozenset[str]
    logical: str
    needed: Mapping[str, str]
    optional: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scale: frozenset[str] = _ANY


_ZERO = {"zero_point": ".weight_zero_point", "order": ".weight_g_idx"}
_RULES = (
    _Rule(
        NVFP4_PACK,
        ".weight_packed",
        frozenset({"U8"}),
        ".weight",
        {"scale": ".weight_scale", "global_scale": ".weight_global_scale"},
        {"input_scale": ".input_global_scale"},
    ),
    _Rule(
        MXFP4_PACK,
        ".weight_packed",
        frozenset({"U8"}),
        ".weight",
        {"scale": ".weight_scale"},
        scale=frozenset({"U8", "F8_E8M0"}),
    ),
    _Rule(
        PACK,
        ".weight_packed",
        frozenset({"I32"}),
        ".weight",
        {"scale": ".weight_scale", "shape": ".weight_shape"},
        _ZERO,
    ),
    _Rule(
        NVFP4_MODELOPT,
        ".weight",
        frozenset({"U8"}),
        ".weight",
        {"scale": ".weight_scale", "global_scale": ".weight_scale_2"},
        {"input_scale": ".input_scale"},
    ),
    *(
        _Rule(
            layout,
            ".weight",
            frozenset({"U8"}),
            ".weight",
            {
                "scale": ".weight.absmax",
                "map": ".weight.quant_map",
                "state": f".weight.quant_state.bitsandbytes__{kind}",
            },
            {"nested_scale": ".weight.nested_absmax", "nested_map": ".weight.nested_quant_map"},
        )
        for layout, kind in ((NF4, "nf4"), (FP4, "fp4"))
    ),
    _Rule(
        BNB8,
        ".weight",
        frozenset({"I8"}),
        ".weight",
        {"scale": ".SCB"},
        {"format": ".weight_format"},
    ),
    _Rule(FP8_BLOCK, ".weight", _F8, ".weight", {"scale": ".weight_scale_inv"}),
    _Rule(
        FP8,
        ".weight",
        _F8,
        ".weight",
        {"scale": ".weight_scale"},
        {"input_scale": ".input_scale"} | _ZERO,
    ),
    _Rule(
        INT8,
        ".weight",
        frozenset({"I8"}),
        ".weight",
        {"scale": ".weight_scale"},
        {"input_scale": ".input_scale"} | _ZERO,
    ),
    _Rule(MXFP4, "_blocks", frozenset({"U8"}), "", {"scale": "_scales"}),
    # GPTQ and AWQ have the same names; `_gptq_or_awq` tells them apart by their shapes.
    _Rule(
        GPTQ,
        ".qweight",
        frozenset({"I32"}),
        ".weight",
        {"scale": ".scales"},
        {"zero_point": ".qzeros", "order": ".g_idx"},
    ),
)

# What quantization_config.quant_method may mean in tensors.
_METHODS: Mapping[str, frozenset[str]] = {
    "compressed-tensors": frozenset({PACK, NVFP4_PACK, MXFP4_PACK, FP8, FP8_BLOCK, INT8}),
    "fp8": frozenset({FP8, FP8_BLOCK}),
    "modelopt": frozenset({NVFP4_MODELOPT, FP8, FP8_BLOCK}),
    "modelopt_fp4": frozenset({NVFP4_MODELOPT}),
    "mxfp4": frozenset({MXFP4}),
    "gptq": frozenset({GPTQ}),
    "awq": frozenset({AWQ}),
    "fbgemm_fp8": frozenset({FP8}),
    "bitsandbytes": frozenset({NF4, FP4, BNB8}),
}
# What compressed-tensors' own word for the layout means.
_FORMATS: Mapping[str, frozenset[str]] = {
    "pack-quantized": frozenset({PACK}),
    "nvfp4-pack-quantized": frozenset({NVFP4_PACK}),
    "mxfp4-pack-quantized": frozenset({MXFP4_PACK}),
    "float-quantized": frozenset({FP8, FP8_BLOCK}),
    "naive-quantized": frozenset({FP8, FP8_BLOCK, INT8}),
    "int-quantized": frozenset({INT8}),
}


@dataclasses.dataclass(frozen=True)
class QuantizedGroup:
    """Weights of one template that are stored in several tensors each.

    Attributes
    ----------
    logical
        Template of the weight's own name: ``layers.{}.mlp.experts.{}.up_proj.weight``.
    format
        How it is stored, one of this module's constants.
    members
        Role -> template of the tensor: ``codes``, ``scale``, and where the format has them ``global_scale``,
        ``zero_point``, ``shape``, ``order`` (act-order index), ``input_scale``.
    index
        One row of indices a weight, shape (n, number of ``{}``).
    incomplete
        Names of weights that lack a member, and the role of what is lacking: at most a hundred.
    incomplete_count
        How many members are lacking.
    """

    logical: str
    format: str
    members: Mapping[str, str]
    index: Rows = dataclasses.field(repr=False)
    incomplete: tuple[tuple[str, str], ...] = ()
    incomplete_count: int = 0

    def __len__(self) -> int:
        return len(self.index)

    def weights(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the name of each weight and the names of its members by role."""
        names = fill(self.logical, self.index)
        columns = {role: fill(template, self.index) for role, template in self.members.items()}
        for at, name in enumerate(names):
            yield name, {role: column[at] for role, column in columns.items()}


@dataclasses.dataclass(frozen=True)
class Quantization:
    """What is quantised in a checkpoint, by its tensors and by its config.

    Attributes
    ----------
    format
        The format of most weights (others follow after ``+``); empty where nothing is quantised.
    groups
        The quantised weights, by template.
    count
        Number of quantised weights.
    declared
        What the config says: ``compressed-tensors pack-quantized``; empty where it says nothing.
    agrees
        Whether tensors and config fit; None where neither says anything, or the method is not known here.
    detail
        In words, what does not fit.
    settings
        The config's ``quantization_config``.
    """

    format: str = ""
    groups: tuple[QuantizedGroup, ...] = ()
    count: int = 0
    declared: str = ""
    agrees: bool | None = None
    detail: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.groups)


def recognise(table: TensorTable, config: Config | None = None) -> Quantization:
    """Return which tensors make up quantised weights, and whether the config says the same.

    Parameters
    ----------
    table
        The tensors of the checkpoint.
    config
        Its config; None for tensors alone.
    """
    groups = _groups(table)
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.format] = counts.get(group.format, 0) + len(group)
    found = sorted(counts, key=lambda name: -counts[name])
    settings = config.quantization if config is not None else {}
    declared, agrees, detail = _compare(set(found), settings, config)
    return Quantization(
        format=" + ".join(found),
        groups=tuple(groups),
        count=sum(counts.values()),
        declared=declared,
        agrees=agrees,
        detail=detail,
        settings=settings,
    )


def _groups(table: TensorTable) -> list[QuantizedGroup]:
    endings = tuple({rule.codes for rule in _RULES})
    by_template: dict[str, list[NameGroup]] = {}
    for group in group_names(table.names, table.dtype):
        by_template.setdefault(group.template, []).append(group)
    found = []
    for template, groups in by_template.items():
        if not template.endswith(endings):
            continue
        for group in groups:
            made = _match(template, group, by_template, table)
            if made is not None:
                found.append(made)
    return found


def _match(
    template: str, group: NameGroup, by_template: Mapping[str, list[NameGroup]], table: TensorTable
) -> QuantizedGroup | None:
    dtype = table.dtypes[table.dtype[group.at[0]]]
    for rule in _RULES:
        if not template.endswith(rule.codes) or dtype not in rule.dtypes:
            continue
        base = template.removesuffix(rule.codes)
        needed = {role: base + ending for role, ending in rule.needed.items()}
        if not all(member in by_template for member in needed.values()):
            continue
        if rule.scale:
            scale = by_template[needed["scale"]][0]
            if table.dtypes[table.dtype[scale.at[0]]] not in rule.scale:
                continue
        optional = {role: base + ending for role, ending in rule.optional.items()}
        optional = {role: member for role, member in optional.items() if member in by_template}
        logical = base + rule.logical
        parts = {"codes": template} | needed
        count, incomplete = _incomplete(group.index, parts, by_template, logical)
        return QuantizedGroup(
            logical=logical,
            format=_gptq_or_awq(table, group, by_template[needed["scale"]][0])
            if rule.format == GPTQ
            else rule.format,
            members=parts | optional,
            index=group.index,
            incomplete=incomplete,
            incomplete_count=count,
        )
    return None


def _gptq_or_awq(table: TensorTable, codes: NameGroup, scale: NameGroup) -> str:
    """GPTQ packs along the rows ([K/8, N]), AWQ along the columns ([K, N/8]); scales are [K/g, N]."""
    packed, scales = (table.shapes[table.shape[group.at[0]]] for group in (codes, scale))
    if len(packed) == 2 and len(scales) == 2 and packed[1] < scales[1]:
        return AWQ
    return GPTQ


def _incomplete(
    index: Rows, parts: Mapping[str, str], by_template: Mapping[str, list[NameGroup]], logical: str
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return how many needed members are lacking, and the first of them with their role."""
    held = {
        role: np.concatenate([group.index for group in by_template[template]])
        for role, template in parts.items()
    }
    count = 0
    named: list[tuple[str, str]] = []
    for role, rows in held.items():
        # A weight is one whose codes are here; a scale without codes was a weight once.
        wanted = held["scale"] if role == "codes" else index
        lacking = wanted[~_in(wanted, rows)]
        count += len(lacking)
        named += [(name, role) for name in fill(logical, lacking[:100])]
    return count, tuple(named[:100])


def _in(rows: Rows, held: Rows) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each row of indices is among the held ones."""
    if rows.shape[1] == 0:
        return np.full(len(rows), len(held) > 0)
    both = np.concatenate([rows, held])
    code = np.zeros(len(both), dtype=np.int64)
    for column in both.T:
        # Dense codes keep the product of several columns within 64 bits.
        values, dense = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(values) + dense, return_inverse=True)
    return np.isin(code[: len(rows)], code[len(rows) :])


def _compare(
    found: set[str], settings: Mapping[str, Any], config: Config | None
) -> tuple[str, bool | None, str]:
    """Return what the config declares, whether it fits, and what does not."""
    if not settings:
        if found and config:
            return (
                "",
                False,
                f"the tensors are {_words(found)}, but the config has no quantization_config",
            )
        return "", None, ""
    method = str(settings.get("quant_method") or "")
    layout = str(settings.get("format") or settings.get("quant_algo") or "")
    declared = f"{method} {layout}".strip()
    allowed = _METHODS.get(method)
    if method == "compressed-tensors":
        allowed = _FORMATS.get(layout, allowed)
    elif method == "modelopt" and layout.upper() in ("FP8", "NVFP4"):
        allowed = frozenset({NVFP4_MODELOPT}) if layout.upper() == "NVFP4" else frozenset({FP8})
    if allowed is None:
        return declared, None, f"the method {shown(method)} is not known here"
    if not found:
        return declared, False, f"the config says {declared}, but the tensors are not quantised"
    if found <= allowed or (layout == "mixed-precision" and found & allowed):
        return declared, True, ""
    return declared, False, f"the config says {declared}, but the tensors are {_words(found)}"


def _words(found: set[str]) -> str:
    return " and ".join(sorted(found))
