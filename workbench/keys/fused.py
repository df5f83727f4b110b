"""A checkpoint with projections joined that only the model has as one: q, k and v; gate and up."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.loaders.outcome import Gap

Fuses = tuple[tuple[str, str], ...]

# Projections that models join along the rows: (parts in order, whole).
FUSES = (
    (("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    (("gate_proj", "up_proj"), "gate_up_proj"),
    (("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj_with_mqa"),
    (("query", "key", "value"), "qkv"),
)


def joined(table: TensorTable, gaps: Sequence[Gap]) -> tuple[TensorTable, Fuses]:
    """Return the checkpoint with parts joined wherever only the model has them joined."""
    wanted = " ".join(f".{gap.template}" for gap in gaps)
    possible = [
        (parts, whole)
        for parts, whole in FUSES
        if f".{whole}." in wanted and f".{parts[0]}." not in wanted
    ]
    if not possible:
        return table, ()
    rows = {row.name: row for row in table}
    fuses = []
    for parts, whole in possible:
        heads = [name for name in rows if f".{parts[0]}." in f".{name}"]
        done = 0
        for head in heads:
            members = [head.replace(parts[0], part) for part in parts]
            tensors = [rows[m] for m in members if m in rows]
            if len(tensors) < len(parts) or len({t.shape[1:] for t in tensors}) > 1:
                continue
            shape = (sum(t.shape[0] for t in tensors), *tensors[0].shape[1:])
            name = head.replace(parts[0], whole)
            for member in members:
                del rows[member]
            rows[name] = TensorInfo(name, tensors[0].dtype, shape, tensors[0].shard)
            done += 1
        if done:
            fuses.append((" + ".join(parts), whole))
    return TensorTable.from_rows(list(rows.values())), tuple(fuses)
