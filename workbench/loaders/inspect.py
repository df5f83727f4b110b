"""A torch module, a state dict or another checkpoint, taken as the model to load into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.templates import group_names, numbered
from workbench.checkpoint.values import DTYPE_OF_TORCH
from workbench.errors import WorkbenchError
from workbench.loaders.profile import Model, Profile, Route, Slot


def is_module(model: object) -> bool:
    """Tell a torch module without importing torch."""
    return hasattr(model, "named_parameters") and hasattr(model, "state_dict")


def has_own_loader(model: object) -> bool:
    """Tell whether a module brings its own ``load_weights``, as serving engines' models do."""
    return is_module(model) and callable(getattr(model, "load_weights", None))


def table_of(model: object) -> TensorTable:
    """Return the names, shapes and dtypes of a module, a state dict or a checkpoint.

    Raises
    ------
    WorkbenchError
        It is none of these.
    """
    table = getattr(model, "table", None)
    if isinstance(table, TensorTable):
        return table
    if is_module(model):
        model = model.state_dict()  # type: ignore[attr-defined]
    if isinstance(model, Mapping) and all(hasattr(t, "shape") for t in model.values()):
        return TensorTable.from_rows(
            [TensorInfo(str(k), _dtype(t), tuple(map(int, t.shape)), "") for k, t in model.items()]
        )
    raise WorkbenchError(
        f"a {type(model).__name__} is not a model to compare with",
        why="it has no names with shapes",
        next_step='Give a torch module, a state dict, a checkpoint, or an engine as text: "sglang".',
    )


def _dtype(tensor: Any) -> str:
    name = str(getattr(tensor, "dtype", "")).rpartition(".")[2]
    return DTYPE_OF_TORCH.get(name, name.upper())


def model_of(table: TensorTable) -> Model:
    """Return a model that wants exactly these tensors, each by its own name."""
    slots = []
    for group in group_names(table.names, table.shape):
        shape = table.shapes[table.shape[int(group.at[0])]]
        parameter = numbered(group.template)
        slots.append(Slot(group.template, parameter, group.index, shape))
    return Model(tuple(slots), shapes={slot.parameter: slot.shape or () for slot in slots})


def strict_profile(name: str) -> Profile:
    """Return the rules of a plain ``load_state_dict``: every name as it is, none too many or few."""
    return Profile(
        engine="torch",
        model_class=name,
        first="0",
        last="0",
        place="torch.nn.Module.load_state_dict(strict=True)",
        build=lambda config: Model(()),
        route=lambda key, model: Route("load", key),
        verified=("",),
        unknown="raises",
        missing="raises",
    )
