"""What a tensor's name says: its layer, its kind, and whether it holds weights at all."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.checkpoint.templates import describe, group_names

# Ids, masks and counters. A matrix of small whole numbers may be the codes of a weight.
_TABLES = {"BOOL", "I16", "U16", "I64", "U64"}
_CODES = {"I8", "U8", "I32", "U32"}
# Buffers of floats that no training touches.
_BUFFER = re.compile(
    r"(^|\.)(rotary_emb\..*|inv_freq|position_ids|masked_bias|attn\.bias|relative_position_index|"
    r"rope\.freqs|num_batches_tracked|e_score_correction_bias|t2d|d2t)$"
)
# What quantised layouts call codes; a table is called otherwise.
_PACKED = re.compile(r"\.(weight|qweight|weight_packed)$")
# Small, and the answer hangs on it: which experts are used, and what the model answers.
_DECIDES = re.compile(
    r"(^|\.)(gate|router(\.\w+)?|score|classifier(\.\w+)?|reward_head|value_head|v_head(\.\w+)?|lm_head|"
    r"qa_outputs)\.weight$"
)
_GATE = re.compile(r"(^|\.)(gate|router(\.\w+)?)\.weight$")
_VOCABULARY = re.compile(
    r"(^|\.)(\w*emb(d|ed\w*)|wte|wpe|shared|lm_head|output_layer|embed_out)\.weight$"
)
# A head that many models carry and most uses of them never read.
_SELDOM_READ = re.compile(r"(^|\.)(pooler|seq_relationship|nsp)\.")
# What speculators leaves as NaN until the verifier's own weights are put there; a target's has a longer name.
_POSITIONS = re.compile(r"(?:^|[._])(?:wpe|rel|pos|position|relative)", re.IGNORECASE)
_FILLED_LATER = re.compile(r"(draft_model\.)?(embed_tokens|verifier_lm_head|verifier_norm)\.weight")

_ORDER = (
    "embed", "wte", "hidden_norm", "input_layernorm", "ln_1", "q_a", "q_b", "kv_a", "kv_b", "qkv",
    "query_key_value", "c_attn", "q_proj", "query", "k_proj", "key", "v_proj", "value", "q_norm", "k_norm",
    "o_proj", "c_proj", "attention.output", "self_attn", "attn", "attention", "post_attention", "ln_2",
    "router", "mlp.gate.", "gate_up", "gate_proj", "w1", "up_proj", "w3", "down_proj", "w2", "mlp",
    "intermediate", "output", "fc", "layernorm", "norm", "lm_head",
)  # fmt: skip


def is_weight(name: str, dtype: str, layout: str = "", is_matrix: bool = True) -> bool:
    """Say whether a tensor holds something that training moves: no buffer, no table of integers."""
    return not why_no_weight(name, dtype, layout, is_matrix)


def why_no_weight(name: str, dtype: str, layout: str = "", is_matrix: bool = True) -> str:
    """Say what a tensor is that training does not move; "" for a weight."""
    if layout:
        return ""
    codes = dtype in _CODES and not is_matrix and not _PACKED.search(name)
    if dtype in _TABLES or codes:
        return f"a table of {dtype} (ids, masks, counters)"
    return "a buffer that no training touches" if _BUFFER.search(name) else ""


def is_seldom_read(name: str) -> bool:
    """Say whether it belongs to a head that most uses of a model never read, such as BERT's pooler."""
    return bool(_SELDOM_READ.search(name))


def decides(name: str) -> bool:
    """Say whether it is a gate or a head: small, and all hangs on it."""
    return bool(_DECIDES.search(name))


def is_gate(name: str) -> bool:
    """Say whether it chooses among experts."""
    return bool(_GATE.search(name))


def is_vocabulary(name: str) -> bool:
    """Say whether it has a row for each token or position: an embedding or a head."""
    return bool(_VOCABULARY.search(name))


def has_tokens(name: str) -> bool:
    """Say whether it has a row for each token, and not one for each position."""
    return is_vocabulary(name) and not _POSITIONS.search(name)


def is_filled_later(name: str) -> bool:
    """Say whether a draft's file may hold NaN there, because the engine takes the target's own."""
    return bool(_FILLED_LATER.fullmatch(name))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in the model a tensor lies.

    Attributes
    ----------
    stack
        What stands before the layer's number: ``model.layers``; "" outside of layers.
    layer
        The layer's number, -1 outside of layers.
    kind
        What follows it, later numbers as ``*``: ``mlp.experts.*.up_proj.weight``.
    """

    stack: str
    layer: int
    kind: str

    @property
    def prefix(self) -> str:
        """The layer's own name: ``model.layers.3``; "" outside of layers."""
        return f"{self.stack}.{self.layer}" if self.layer >= 0 else ""


@dataclasses.dataclass(frozen=True)
class Places:
    """The places of many tensors, in columns.

    ``stack`` and ``kind`` are codes into ``stacks`` and ``kinds``, ``layer`` is -1 outside of layers.
    """

    stacks: tuple[str, ...]
    kinds: tuple[str, ...]
    stack: np.ndarray[Any, np.dtype[np.int32]]
    layer: np.ndarray[Any, np.dtype[np.int64]]
    kind: np.ndarray[Any, np.dtype[np.int32]]

    def __getitem__(self, at: int) -> Place:
        stack, kind = self.stacks[self.stack[at]], self.kinds[self.kind[at]]
        return Place(stack, int(self.layer[at]), kind)


def places(names: Sequence[str]) -> Places:
    """Return where each tensor lies, by the templates of the names."""
    stack = np.zeros(len(names), dtype=np.int32)
    kind = np.zeros(len(names), dtype=np.int32)
    layer = np.full(len(names), -1, dtype=np.int64)
    stacks: dict[str, int] = {"": 0}
    kinds: dict[str, int] = {}
    for group in group_names(names):
        before, found, after = group.template.partition(".{}.")
        if found and before and "{" not in before:
            stack[group.at] = stacks.setdefault(before, len(stacks))
            layer[group.at] = group.index[:, 0]
            text = after.replace("{}", "*")
        elif group.index.shape[1]:
            text = group.template.replace("{}", "*")
        else:  # a name without a number is itself, whatever braces are in it
            text = names[group.at[0]]
        kind[group.at] = kinds.setdefault(text, len(kinds))
    return Places(tuple(stacks), tuple(kinds), stack, layer, kind)


def rank(kind: str) -> tuple[int, str]:
    """Return where a kind stands among the others: in the order of the forward pass, where it is known."""
    for at, part in enumerate(_ORDER):
        if part in kind:
            return at, kind
    return len(_ORDER), kind


def short(kinds: Sequence[str]) -> list[str]:
    """Return labels for kinds: as few of their last segments as tell them apart, without ``.weight``."""
    plain = [kind.removesuffix(".weight").split(".") for kind in kinds]
    # How many kinds end with these segments: counted once, since a model may have thousands of kinds.
    ends = Counter(".".join(parts[at:]) for parts in plain for at in range(len(parts)))
    labels = []
    for parts in plain:
        for take in range(1, len(parts) + 1):
            label = ".".join(parts[-take:])
            if ends[label] == 1 and label != "bias" and not label.startswith("*"):
                break
        labels.append(label)
    return labels


def named_groups(names: Sequence[str]) -> list[tuple[str, np.ndarray[Any, np.dtype[np.int64]]]]:
    """Return many names as few lines, each with the positions of the names that it stands for."""
    groups: dict[str, list[np.ndarray[Any, Any]]] = {}
    for group in group_names(names):
        groups.setdefault(describe(group.template, group.index), []).append(group.at)
    return [(text, np.concatenate(parts)) for text, parts in groups.items()]


def named(names: Sequence[str]) -> list[str]:
    """Return many names as few lines: ``layers.{0...23}.self_attn.q_proj.weight``."""
    return [describe(group.template, group.index) for group in group_names(names)]
