"""The tensors that a draft computes with, and whether those at hand have their shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError, shorten
from workbench.speculation.model.eagle3 import Settings
from workbench.speculation.model.experts import expert_shapes, further_expert_shapes
from workbench.speculation.model.joining import MATRIX

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.speculation.model.features import Target

Shape = tuple[int, ...]
Found = dict[str, tuple[str, "Tensor"]]
"""Name → where it came from and its values."""

EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
_LAYER = re.compile(r"(?:^|\.)(?:layers\.(\d{1,6})|midlayer)\.")
_NEXT = (
    "Compare config.json with the training run's; workbench diff shows the shape of every tensor."
)
_ORIGINS = {
    "file": " in the file", "memory": " in the captured memory", "target": " as the target has it",
}  # fmt: skip


def wanted_shapes(settings: Settings, rows: int, gated: int = 0) -> dict[str, Shape]:
    """Return the tensors that a draft of these settings computes with, and their shapes.

    Parameters
    ----------
    rows
        Size of its vocabulary.
    gated
        Width of the feed-forward part, which the settings do not name.
    """
    s = settings
    shapes = _joining(s)
    for layer in range(s.layers):
        both = layer == 0 and s.joining == "eagle3"
        name, wide = f"layers.{layer}.", s.hidden * (2 if both else 1)
        shapes |= {f"{name}{norm}.weight": (s.hidden,) for norm in _norms(s, layer)}
        parts = _attention(s, wide)
        shapes |= {f"{name}self_attn.{part}.weight": shape for part, shape in parts.items()}
        if s.routing is not None:
            held = expert_shapes(s.routing, s.hidden)
            shapes |= {f"{name}{part}": shape for part, shape in held.items()}
            continue
        shapes |= {f"{name}mlp.{part}_proj.weight": (gated, s.hidden) for part in ("gate", "up")}
        shapes[f"{name}mlp.down_proj.weight"] = (s.hidden, gated)
    if s.joining != "eagle":
        shapes["norm.weight"] = (s.hidden,)
    shapes[HEAD] = (rows, s.hidden)
    return shapes


def _joining(s: Settings) -> dict[str, Shape]:
    """Return the tensors that join embedding and features."""
    if s.joining == "eagle3":
        return {"fc.weight": (s.hidden, s.aux * s.aux_width)}
    shapes: dict[str, Shape] = {f"{MATRIX[s.joining]}.weight": (s.hidden, 2 * s.hidden)}
    if s.joining == "mtp":
        shapes |= {"enorm.weight": (s.hidden,), "hnorm.weight": (s.hidden,)}
    return shapes


def further_shapes(settings: Settings) -> dict[str, Shape]:
    """Return the tensors that a draft computes with where it has them, and their shapes."""
    s = settings
    shapes: dict[str, Shape] = {f"{MATRIX[s.joining]}.bias": (s.hidden,)}
    if s.joining == "eagle3":
        shapes["input_norm.weight"] = (s.aux * s.aux_width,)
        shapes |= {f"fc_norm.{number}.weight": (s.aux_width,) for number in range(s.aux)}
    for layer in range(s.layers):
        if s.routing is not None:
            more = further_expert_shapes(s.routing, s.hidden)
            shapes |= {f"layers.{layer}.{part}": shape for part, shape in more.items()}
        name = f"layers.{layer}.self_attn."
        for part, shape in _attention(s, s.hidden).items():
            if len(shape) == 2:
                shapes[f"{name}{part}.bias"] = shape[:1]
        if not s.latent:
            shapes |= {f"{name}{part}_norm.weight": (s.head_dim,) for part in ("q", "k")}
    return shapes


def _norms(settings: Settings, layer: int) -> tuple[str, ...]:
    if layer == 0 and settings.joining == "eagle":
        return ("post_attention_layernorm",)
    if layer == 0 and settings.joining == "mtp":
        return ("input_layernorm", "post_attention_layernorm")
    if layer == 0:
        return ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    return (settings.later_norm, "post_attention_layernorm")


def _attention(s: Settings, wide: int) -> dict[str, Shape]:
    """Return the attention's tensors by their short names, for an input of this width."""
    a = s.latent
    if a is None:
        kept = (s.key_heads * s.head_dim, wide)
        return {
            "q_proj": (s.heads * s.head_dim * (1 + s.output_gate), wide),
            "k_proj": kept,
            "v_proj": kept,
            "o_proj": (s.hidden, s.heads * s.head_dim),
        }
    return {
        "q_a_proj": (a.q_rank, wide),
        "q_a_layernorm": (a.q_rank,),
        "q_b_proj": (s.heads * s.head_dim, a.q_rank),
        "kv_a_proj_with_mqa": (a.kv_rank + a.turned, wide),
        "kv_a_layernorm": (a.kv_rank,),
        "kv_b_proj": (s.heads * (a.plain + a.value), a.kv_rank),
        "o_proj": (s.hidden, s.heads * a.value),
    }


def held_layers(names: Iterable[str]) -> int:
    """Return how many decoder layers the tensors of these names belong to, under whatever prefix."""
    return len({int(m[1] or 0) for name in names if (m := _LAYER.search(name))})


def check_layers(settings: Settings, names: Iterable[str]) -> None:
    """Raise where the config has more layers than the file, or another kind of attention."""
    names = list(names)
    held = held_layers(names)
    if settings.layers > max(held, 1):
        raise WorkbenchError(
            f"the draft's config says num_hidden_layers is {settings.layers:,}",
            why=f"the file holds the weights of {held}",
            next_step="Correct config.json, or save the draft again with all of its layers.",
        )
    latent = any(".kv_a_proj_with_mqa." in name for name in names)
    plain = any(".self_attn.k_proj." in name for name in names)
    if latent not in (plain, settings.latent is not None):
        kinds = ("grouped-query attention (k_proj)", "latent attention (kv_a_proj_with_mqa)")
        raise WorkbenchError(
            f"the file holds weights of {kinds[latent]}, and the config describes {kinds[not latent]}",
            why=f"kv_lora_rank is {'set' if settings.latent else 'not set'}",
            next_step="Correct config.json: compare it with the training run's.",
        )


def check_own(
    key: str, part: str, value: Tensor, keys: dict[str, str], wanted: Mapping[str, Shape]
) -> None:
    """Raise where the trainer's file holds a tensor twice, or one that holds no numbers."""
    if part in keys:
        raise WorkbenchError(
            f"{shorten(key, 80)} and {shorten(keys[part], 80)} are the same tensor of the draft",
            why=f"both are {part}",
            next_step="Save the draft again with one of them.",
        )
    keys[part] = key
    if part in wanted and not value.is_floating_point():
        kind = str(value.dtype).removeprefix("torch.")
        raise WorkbenchError(
            f"{shorten(key, 80)} holds {kind}, which is not a type of weights",
            why="the codes of a quantised weight cannot be computed with",
            next_step="Give the draft before it was quantised; trainers save it in bfloat16.",
        )


def gated_width(found: Found, said: int) -> int:
    """Return the width of the feed-forward part by its weights, or else what the config says.

    Raises
    ------
    WorkbenchError
        Neither tells it.
    """
    for name, (_, value) in found.items():
        if value.dim() == 2 and name.endswith((".mlp.gate_proj.weight", ".mlp.up_proj.weight")):
            return int(value.shape[0])
        if value.dim() == 2 and name.endswith(".mlp.down_proj.weight"):
            return int(value.shape[1])
    if not said:
        raise WorkbenchError(
            "the width of the draft's feed-forward part is not known",
            why="the config has no intermediate_size, and the file no gate_proj, up_proj or down_proj",
            next_step="Write intermediate_size into config.json, as the training run had it.",
        )
    return said


def check_shapes(found: Found, settings: Settings, rows: int, gated: int) -> None:
    """Raise at the first tensor that is not of the shape that the settings make of it.

    Parameters
    ----------
    rows
        Size of the draft's vocabulary.
    gated
        Width of the feed-forward part.
    """
    shapes = wanted_shapes(settings, rows, gated) | further_shapes(settings)
    for name, (origin, value) in found.items():
        wanted = shapes.get(name)
        if name == EMBED:
            wanted = (
                value.shape[0],
                settings.hidden,
            )  # as many rows as the target asks for, or more
        if wanted is not None and tuple(value.shape) != wanted:
            raise wrong_shape(name, tuple(value.shape), wanted, origin)
    for layer in range(settings.layers):
        one, other = (f"layers.{layer}.self_attn.{part}_norm.weight" for part in ("q", "k"))
        if (one in found) != (other in found):
            held, lost = (one, other) if one in found else (other, one)
            raise WorkbenchError(
                f"the draft has {held} and no {lost}",
                why="queries and keys are normed alike",
                next_step=f"Save the draft again with {lost}.",
            )


def wrong_shape(name: str, shape: Shape, wanted: Shape, origin: str) -> WorkbenchError:
    """Return the error for a tensor of another shape than the config says."""
    where = _ORIGINS.get(origin, "")
    return WorkbenchError(
        f"{shorten(name, 80)} has shape {list(shape)}{where}, and {list(wanted)} by the draft's config",
        why="a draft of these shapes cannot be computed",
        next_step=_NEXT,
    )


def check_target(found: Found, settings: Settings, target: Target | None, as_eagle: bool) -> int:
    """Raise where draft and target do not go together; return the target's vocabulary."""
    origin, table = found[EMBED]
    if table.dim() != 2:
        wanted = (target.vocabulary if target else 0, settings.hidden)
        raise wrong_shape(EMBED, tuple(table.shape), wanted, origin)
    if target is None:
        return len(table)
    read = settings.hidden if as_eagle else settings.aux_width
    if read != target.hidden:
        raise WorkbenchError(
            f"the draft reads features of width {read:,}, and the target's have {target.hidden:,}",
            why="target_hidden_size of the draft's config, or else its hidden_size, is the target's",
            next_step="Give the target that the draft was trained with, or correct config.json.",
        )
    if len(table) < target.vocabulary:
        raise WorkbenchError(
            f"{EMBED} has {len(table):,} rows, and the target {target.vocabulary:,} tokens",
            why="the draft reads every token of the target",
            next_step="Leave embed_tokens out of the draft's file: the target's is then used.",
        )
    return target.vocabulary


def check_map(offsets: Tensor, rows: int, vocabulary: int) -> None:
    """Raise where d2t is no list of the target's ids, one for each token of the draft.

    Target ids that were saved where offsets belong are let through, up to the sum of both vocabularies: they
    are a mistake that the ablations name.

    Parameters
    ----------
    offsets
        As the file holds them: target id minus draft id.
    rows
        Size of the draft's vocabulary.
    vocabulary
        Size of the target's.
    """
    import torch

    if offsets.dim() != 1 or len(offsets) != rows:
        raise _no_map(
            f"has shape {list(offsets.shape)}",
            f"it must have one number for each of the {rows:,} rows of lm_head",
        )
    whole = offsets.dtype != torch.bool and not offsets.is_complex()
    # float64 holds every id; what is not finite is not equal to its floor, or past every vocabulary.
    numbers = offsets.double() if whole else offsets.new_empty(0)
    if not whole or not bool((numbers.floor() == numbers).all()):
        raise _no_map(
            f"holds {str(offsets.dtype).removeprefix('torch.')}", "it must hold whole numbers"
        )
    ids = numbers + torch.arange(rows, device=offsets.device)
    for at in (int(ids.argmin()), int(ids.argmax())):
        if not 0 <= float(ids[at]) < vocabulary + rows:
            raise _no_map(
                f"makes target id {float(ids[at]):.0f} of draft id {at}",
                f"the target's ids are 0 to {vocabulary - 1:,}",
            )


def _no_map(what: str, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"d2t {what}",
        why=why,
        next_step="Write d2t as offsets, target id minus draft id, as the training run's t2d has them.",
    )
