"""The tensors of common layers, for every engine: attention, MLP, experts, embeddings, heads.

A profile's ``build`` puts a class together with a `Blueprint`: it collects slots and parameter
shapes, and fuses projections where the engine does. Names are those of the checkpoint after the
engine's renames; ``{}`` stands for an index, in the order of the columns of ``index``.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.templates import Rows
from workbench.loaders.blocks import same_in_all_layers, whole_blocks
from workbench.loaders.profile import Model, NotCovered, Refused, Slot, indices

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

# Sizes beyond these are damage: the largest models published have some 200 layers and 400 experts.
MOST = 1 << 31
_MOST = {"num_hidden_layers": 10_000, "n_routed_experts": 100_000}

ONCE: Rows = np.zeros((1, 0), np.int64)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes that a Llama-like class reads from its config.

    ``heads``, ``kv_heads`` and ``head_dim`` are attention's; ``layers`` counts decoder layers.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    vocab: int

    @property
    def q(self) -> int:
        """Rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """Rows of the key projection, and of the value projection."""
        return self.kv_heads * self.head_dim

    @classmethod
    def of(cls, config: Config, **defaults: int) -> Sizes:
        """Read the sizes as Llama-like classes do.

        ``head_dim`` is hidden_size / num_attention_heads and ``num_key_value_heads`` is
        num_attention_heads where the config does not say otherwise.

        Raises
        ------
        Refused
            A size is missing or no positive whole number.
        """
        hidden = whole(config, "hidden_size", defaults.get("hidden_size"))
        heads = whole(config, "num_attention_heads", defaults.get("num_attention_heads"))
        return cls(
            hidden=hidden,
            intermediate=whole(config, "intermediate_size", defaults.get("intermediate_size")),
            heads=heads,
            kv_heads=whole(config, "num_key_value_heads", heads),
            head_dim=whole(config, "head_dim", defaults.get("head_dim", hidden // heads)),
            layers=whole(config, "num_hidden_layers", defaults.get("num_hidden_layers")),
            vocab=whole(config, "vocab_size", defaults.get("vocab_size")),
        )


def whole(config: Config, name: str, default: int | None = None) -> int:
    """Return a positive whole number of the config; null counts as absent.

    Raises
    ------
    Refused
        It is neither given nor defaulted, or is no positive whole number.
    """
    value = config.get(name, None)
    value = default if value is None else value
    if value is None:
        raise Refused(f"the config has no {name}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused(f"{name} is {value!r} in the config, not a positive whole number")
    if value > _MOST.get(name, MOST):
        raise NotCovered(f"the config asks for {name} {value:.6g}: not credible")
    return value


def whole_or(config: Config, name: str, default: int) -> int:
    """Return a positive whole number of the config, or `default` where it is null or absent.

    Raises
    ------
    NotCovered
        It is anything else, and what the engine makes of that was not seen.
    """
    try:
        return whole(config, name, default)
    except Refused as error:
        raise NotCovered(error.text) from None


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a linear layer's weight is stored: one tensor, or codes with their scales.

    Attributes
    ----------
    name
        ``plain``, ``pack-quantized``, ``fp8-block``.
    bits, group
        Bits of a code and columns that share one scale (``pack-quantized``).
    block
        Rows and columns of one scale's block (``fp8-block``).
    """

    name: str = "plain"
    bits: int = 16
    group: int = 0
    block: tuple[int, int] = (128, 128)

    def tensors(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """Return suffix -> shape of the tensors that store a weight of [rows, columns]."""
        if self.name == "pack-quantized":
            groups = math.ceil(columns / self.group) if self.group > 0 else 1
            return {
                "weight_packed": (rows, math.ceil(columns * self.bits / 32)),
                "weight_scale": (rows, groups),
                "weight_shape": (2,),
            }
        if self.name == "fp8-block":
            scales = math.ceil(rows / self.block[0]), math.ceil(columns / self.block[1])
            return {"weight": (rows, columns), "weight_scale_inv": scales}
        return {"weight": (rows, columns)}


PLAIN = Layout()


def layout_of(config: Config, module: str) -> Layout:
    """Return how the config says that a linear layer is stored.

    Parameters
    ----------
    module
        The layer's name in the checkpoint (``model.layers.3.mlp.experts.0.up_proj``).

    Raises
    ------
    NotCovered
        The quantisation is of a kind that these profiles do not describe.
    """
    quant = config.get("quantization_config", None) or config.get("compression_config", None)
    if not isinstance(quant, Mapping):
        return PLAIN
    same_in_all_layers(quant)
    if _skipped(quant, module):
        return PLAIN
    method = quant.get("quant_method")
    if method == "fp8" and quant.get("weight_block_size"):
        rows, columns = quant["weight_block_size"]
        return Layout("fp8-block", 8, block=(int(rows), int(columns)))
    if method == "compressed-tensors" and quant.get("format") == "pack-quantized":
        weights = _weights(quant)
        bits, group = int(weights.get("num_bits", 4)), int(weights.get("group_size") or 0)
        return Layout("pack-quantized", bits, group)
    raise NotCovered(
        f"quantisation {method!r} (format {quant.get('format')!r}) is not described here"
    )


def _weights(quant: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the scheme of weights; profiles know configs with one group of layers."""
    groups = list((quant.get("config_groups") or {}).values())
    weights = groups[0].get("weights") if len(groups) == 1 else None
    if not isinstance(weights, Mapping) or weights.get("symmetric") is False:
        raise NotCovered(
            "compressed-tensors with several groups or zero points is not described here"
        )
    return weights


def _skipped(quant: Mapping[str, Any], module: str) -> bool:
    """Tell whether a layer is left out of quantisation, by the rules of the two formats.

    compressed-tensors: ``re:`` patterns match from the start, other entries are whole names.
    Others: entries of ``modules_to_not_convert`` are parts of names.
    """
    for entry in quant.get("ignore") or ():
        if entry.startswith("re:") and re.match(entry[3:], module):
            return True
        if entry == module:
            return True
    return any(entry in module for entry in quant.get("modules_to_not_convert") or ())


class Blueprint:
    """Slots and parameter shapes of a class while a profile puts it together.

    Parameters
    ----------
    fused
        Whether the engine fuses q/k/v and gate/up into one parameter (SGLang, vLLM) or not
        (transformers).
    """

    def __init__(self, *, fused: bool = True) -> None:
        self.fused = fused
        self.slots: list[Slot] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def model(self, **fields: Any) -> Model:
        """Return the finished `Model`; `fields` are its other attributes."""
        return Model(slots=tuple(self.slots), shapes=dict(self.shapes), **fields)

    def add(
        self,
        template: str,
        shape: tuple[int, ...] | None,
        index: Rows = ONCE,
        *,
        parameter: str = "",
        whole: tuple[int, ...] | None = None,
        **fields: Any,
    ) -> None:
        """Add one template of tensors.

        Parameters
        ----------
        template
            Name in the checkpoint, ``{}`` for each column of `index`.
        parameter
            Name in the engine; "" where it is the same.
        whole
            Shape of the parameter; None where it is `shape`.
        fields
            Other attributes of `Slot`.
        """
        into = numbered(parameter or template)
        self.slots.append(Slot(template, into, index, shape, **fields))
        size = whole or shape
        if size is not None:
            self.shapes.setdefault(into, size)

    def linear(
        self,
        name: str,
        rows: int,
        columns: int,
        index: Rows = ONCE,
        *,
        bias: bool = False,
        layout: Layout = PLAIN,
        **fields: Any,
    ) -> None:
        """Add a linear layer of [rows, columns], with all tensors that store it."""
        for suffix, shape in layout.tensors(rows, columns).items():
            self.add(f"{name}.{suffix}", shape, index, **fields)
        if bias:
            self.add(f"{name}.bias", (rows,), index, **fields)

    def fuse(
        self,
        prefix: str,
        into: str,
        parts: Sequence[tuple[str, int, str]],
        columns: int,
        index: Rows = ONCE,
        *,
        bias: bool = False,
        layout: Layout = PLAIN,
        ready: bool = True,
        joint: bool = False,
    ) -> None:
        """Add linear layers that the engine keeps stacked by rows in one parameter.

        Parameters
        ----------
        prefix, into
            ``model.layers.{}.self_attn`` and ``qkv_proj``.
        parts
            Name, rows and shard of each: ``("q_proj", 4096, "q")``.
        ready
            Whether a tensor that is fused already (``qkv_proj.weight``) is taken too.
        joint
            Whether the loader writes the parts only when it has seen them all.
        """
        if not self.fused:
            for name, rows, _ in parts:
                self.linear(f"{prefix}.{name}", rows, columns, index, bias=bias, layout=layout)
            return
        total = sum(rows for _, rows, _ in parts)
        suffixes = list(layout.tensors(total, columns)) + ["bias"] * bias
        for suffix in suffixes:
            stored = {"bias": (total,)} | layout.tensors(total, columns)
            parameter = f"{prefix}.{into}.{suffix}"
            for name, rows, shard in parts:
                shape = ({"bias": (rows,)} | layout.tensors(rows, columns))[suffix]
                self.add(
                    f"{prefix}.{name}.{suffix}",
                    shape,
                    index,
                    parameter=parameter,
                    whole=stored[suffix],
                    fraction=shape[0] / stored[suffix][0],
                    shard=shard,
                    joint=numbered(parameter) if joint else "",
                )
            if ready:
                self.add(parameter, stored[suffix], index, alternative=True)


def numbered(template: str) -> str:
    """Return a template with ``{}`` numbered in turn: ``layers.{0}.experts.{1}.w``."""
    pieces = template.split("{}")
    return pieces[0] + "".join(f"{{{at}}}{piece}" for at, piece in enumerate(pieces[1:]))


def attention(
    out: Blueprint,
    prefix: str,
    index: Rows,
    sizes: Sizes,
    *,
    columns: int = 0,
    bias: bool = False,
    out_bias: bool = False,
    qk_norm: bool = False,
    layout: Layout = PLAIN,
) -> None:
    """Add grouped-query attention: q/k/v (fused where the engine fuses), o, q_norm/k_norm if asked.

    ``columns`` is the input width where it is not hidden_size (2 x hidden_size in an EAGLE-3
    layer).
    """
    parts = (("q_proj", sizes.q, "q"), ("k_proj", sizes.kv, "k"), ("v_proj", sizes.kv, "v"))
    whole_blocks(out.fused, layout, parts)
    out.fuse(prefix, "qkv_proj", parts, columns or sizes.hidden, index, bias=bias, layout=layout)
    out.linear(f"{prefix}.o_proj", sizes.hidden, sizes.q, index, bias=out_bias, layout=layout)
    if qk_norm:
        out.add(f"{prefix}.q_norm.weight", (sizes.head_dim,), index)
        out.add(f"{prefix}.k_norm.weight", (sizes.head_dim,), index)


def mlp(
    out: Blueprint,
    prefix: str,
    index: Rows,
    hidden: int,
    intermediate: int,
    *,
    bias: bool = False,
    layout: Layout = PLAIN,
) -> None:
    """Add a gated MLP: gate/up (fused where the engine fuses) and down."""
    parts = (("gate_proj", intermediate, "gate"), ("up_proj", intermediate, "up"))
    whole_blocks(out.fused, layout, parts)
    out.fuse(prefix, "gate_up_proj", parts, hidden, index, bias=bias, layout=layout)
    out.linear(f"{prefix}.down_proj", hidden, intermediate, index, bias=bias, layout=layout)


def decoder_layer(
    out: Blueprint,
    prefix: str,
    layers: Iterable[int],
    sizes: Sizes,
    *,
    columns: int = 0,
    norms: Sequence[str] = ("input_layernorm", "post_attention_layernorm"),
    bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    layout: Layout = PLAIN,
) -> None:
    """Add Llama-like decoder layers.

    Parameters
    ----------
    prefix
        ``model.layers.{}`` with `layers` as its index; without ``{}``, one layer
        (``model.midlayer``) and `layers` is not read.
    columns, bias, out_bias, qk_norm
        As in `attention`.
    norms
        Names of the norms of hidden_size; an EAGLE-3 layer has ``hidden_norm`` too.
    """
    index = indices(layers) if "{}" in prefix else ONCE
    attention(
        out, f"{prefix}.self_attn", index, sizes,
        columns=columns, bias=bias, out_bias=out_bias, qk_norm=qk_norm, layout=layout,
    )  # fmt: skip
    mlp(out, f"{prefix}.mlp", index, sizes.hidden, sizes.intermediate, bias=mlp_bias, layout=layout)
    for name in norms:
        out.add(f"{prefix}.{name}.weight", (sizes.hidden,), index)


def mla(
    out: Blueprint,
    prefix: str,
    index: Rows,
    config: Config,
    *,
    columns: int = 0,
    layout: Layout = PLAIN,
    joint: bool = True,
) -> None:
    """Add DeepSeek's multi-head latent attention.

    With a query rank, q_a and kv_a are one parameter in engines that fuse; `joint` says that the
    loader writes it only once it has seen both.
    """
    hidden = whole(config, "hidden_size")
    width = columns or hidden
    heads = whole(config, "num_attention_heads")
    rank, rope = whole(config, "kv_lora_rank"), whole(config, "qk_rope_head_dim")
    nope, value = whole(config, "qk_nope_head_dim"), whole(config, "v_head_dim")
    kv_a = ("kv_a_proj_with_mqa", rank + rope, "kv_a")
    if config.get("q_lora_rank", None) is None:
        out.linear(f"{prefix}.q_proj", heads * (nope + rope), width, index, layout=layout)
        out.linear(f"{prefix}.{kv_a[0]}", kv_a[1], width, index, layout=layout)
    else:
        q_rank = whole(config, "q_lora_rank")
        parts = (("q_a_proj", q_rank, "q_a"), kv_a)
        out.fuse(
            prefix, "fused_qkv_a_proj_with_mqa", parts, width, index,
            layout=layout, ready=not joint, joint=joint,
        )  # fmt: skip
        out.add(f"{prefix}.q_a_layernorm.weight", (q_rank,), index)
        out.linear(f"{prefix}.q_b_proj", heads * (nope + rope), q_rank, index, layout=layout)
    out.add(f"{prefix}.kv_a_layernorm.weight", (rank,), index)
    out.linear(f"{prefix}.kv_b_proj", heads * (nope + value), rank, index, layout=layout)
    out.linear(f"{prefix}.o_proj", hidden, heads * value, index, layout=layout)


def experts(
    out: Blueprint,
    prefix: str,
    layers: Iterable[int],
    *,
    count: int,
    hidden: int,
    intermediate: int,
    layout: Layout = PLAIN,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> None:
    """Add routed experts: one tensor an expert on disk, stacked as ``w13_*`` and ``w2_*``.

    Parameters
    ----------
    prefix
        ``model.layers.{}.mlp.experts``; the tensors are ``{prefix}.{}.gate_proj.weight`` and so on.
    count
        Number of experts; every one fills 1/count of ``w2_*`` and two halves of that of ``w13_*``.
    names
        The tensors for gate, up and down (w1, w3, w2).

    Notes
    -----
    Parameter shapes are [experts, rows, columns] as stored; engines that transpose packed codes
    hold the same elements in another order. ``weight_shape`` is written whole by gate and by up alike.
    """
    index = indices(layers, range(count))
    gate, up, down = names
    whole_blocks(out.fused, layout, ((gate, intermediate, "gate"),))
    for name, rows, columns, into, shard in (
        (gate, intermediate, hidden, "w13", "gate"),
        (up, intermediate, hidden, "w13", "up"),
        (down, hidden, intermediate, "w2", "down"),
    ):
        for suffix, shape in layout.tensors(rows, columns).items():
            stacked = into == "w13" and suffix != "weight_shape"
            whole = (count, 2 * shape[0], *shape[1:]) if stacked else (count, *shape)
            out.add(
                f"{prefix}.{{}}.{name}.{suffix}",
                shape,
                index,
                parameter=f"{prefix}.{into}_{suffix}",
                whole=whole,
                fraction=1 / count / (2 if stacked else 1),
                shard=shard,
                alternative=suffix == "weight_shape" and shard == "up",
            )


def norm(out: Blueprint, name: str, size: int, index: Rows = ONCE, **fields: Any) -> None:
    """Add the weight of one norm."""
    out.add(f"{name}.weight", (size,), index, **fields)
