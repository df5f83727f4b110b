"""Evidence that holds the target's features: speculators' and SpecForge's files, SGLang's hidden states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoint import pickles
from workbench.checkpoint.sources import check_regular
from workbench.errors import CheckpointError, WorkbenchError, shown
from workbench.speculation.evidence.facts import Recorded
from workbench.speculation.evidence.observed import Hidden, Run

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 4 << 30  # of one file
MOST_TOKENS = 1 << 20  # of one text


def read_speculators(file: Path) -> Recorded:
    """Read ``hs_N.safetensors``: ``token_ids`` [S] and ``hidden_states`` [S, layers, H].

    The last of the layers is the target's last, before its final norm; the others are the auxiliary ones.
    """
    tensors = _safetensors(file)
    hidden = numbers(_named(tensors, file, "hidden_states"), file, "hidden_states")
    if hidden.ndim != 3 or hidden.shape[1] < 2 or not hidden.shape[2]:
        raise no_sample(file, f"hidden_states is {list(hidden.shape)}, not [S, layers, H]")
    ids = _ids(_named(tensors, file, "token_ids"), file, hidden.shape[0])
    return Recorded(
        file.stem,
        ids,
        _prompt(tensors, file, len(ids)),
        hidden[:, :-1].flatten(1).float(),
        hidden[:, -1].float(),
    )


def read_specforge(file: Path) -> Recorded:
    """Read one sample of SpecForge: ``input_ids``, ``loss_mask``, ``hidden_state``, ``aux_hidden_state``.

    The file is a pickle: it is read without running anything in it.
    """
    tensors = load_pickle(file)
    aux = _rows(tensors, file, "aux_hidden_state")
    ids = _ids(_named(tensors, file, "input_ids").flatten(), file, aux.shape[0])
    last = _rows(tensors, file, "hidden_state") if tensors.get("hidden_state") is not None else None
    if last is not None and len(last) != len(ids):
        raise no_sample(file, f"hidden_state has {len(last)} rows for {len(ids)} tokens")
    return Recorded(file.stem, ids, _prompt(tensors, file, len(ids)), aux, last)


def recorded_of(hidden: Sequence[Hidden], run: Run | None) -> tuple[Recorded, ...]:
    """Join answers to ``return_hidden_states`` with the rounds of the same requests, where a run has them.

    A run of the same prompts counts only where its text is the same: another answer has other rounds.
    """
    requests = {request.name: request for request in run.requests} if run else {}
    found = []
    for item in hidden:
        own = requests.get(item.name)
        same = own is not None and own.text[: len(item.tokens)] == item.tokens[: len(own.text)]
        starts = own.starts if own is not None and same else None
        emitted = own.emitted if own is not None and same else None
        tokens = own.text if own is not None and same and len(own.text) > 0 else item.tokens
        found.append(
            Recorded(item.name, tokens, item.prompt, item.rows, None, None, starts, emitted)
        )
    return tuple(found)


def load_pickle(file: Path) -> Mapping[str, Any]:
    """Return the tensors of a ``torch.save`` file, by name; nothing in it is executed."""
    _check_size(file)
    try:
        value = pickles.load(file)
    except CheckpointError:
        raise
    except Exception as error:
        raise no_sample(file, f"{type(error).__name__}: {error}") from None
    if not isinstance(value, Mapping):
        raise no_sample(file, f"it holds {type(value).__name__}, not tensors by name")
    return {str(name): item for name, item in value.items()}


def _safetensors(file: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _check_size(file)
    try:
        return dict(load_file(file))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise no_sample(file, str(error)) from None


def _check_size(file: Path) -> None:
    if check_regular(file).st_size > MOST_BYTES:
        raise WorkbenchError(
            f"{file} is larger than {MOST_BYTES >> 30} GiB",
            next_step="Give samples of shorter texts.",
        )


def whole(value: Tensor, file: Path, name: str) -> Tensor:
    """Return a tensor whose numbers are all in the file: a view may claim terabytes of one number."""
    import torch

    held = value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized
    if not held or value.untyped_storage().nbytes() < value.numel() * value.element_size():
        raise no_sample(file, f"{name} does not hold all of its numbers")
    return value


def numbers(value: Tensor, file: Path, name: str) -> Tensor:
    """Return a tensor that holds floating-point numbers."""
    if not whole(value, file, name).is_floating_point():
        raise no_sample(file, f"{name} is of {value.dtype}")
    return value


def _named(tensors: Mapping[str, Any], file: Path, name: str) -> Tensor:
    import torch

    value = tensors.get(name)
    if not isinstance(value, torch.Tensor):
        raise no_sample(file, f"it has no tensor {name}")
    return whole(value, file, name)


def _rows(tensors: Mapping[str, Any], file: Path, name: str) -> Tensor:
    """Return features [S, width], which may be one of a batch of one."""
    value = numbers(_named(tensors, file, name), file, name)
    if value.ndim < 2 or not value.numel():
        raise no_sample(file, f"{name} is {list(value.shape)}, not [S, width]")
    return value.reshape(-1, value.shape[-1]).float()


def _ids(tokens: Tensor, file: Path, places: int) -> tuple[int, ...]:
    import torch

    good = tokens.dtype in (torch.int64, torch.int32) and tokens.ndim == 1
    if not good or len(tokens) != places or not 1 < places < MOST_TOKENS:
        raise no_sample(file, f"{list(tokens.shape)} token ids do not fit {places} rows")
    if int(tokens.min()) < 0 or int(tokens.max()) >= 1 << 31:
        raise no_sample(file, "its token ids are not valid ids")
    return tuple(tokens.tolist())


def _prompt(tensors: Mapping[str, Any], file: Path, length: int) -> int:
    """Return how many tokens stand before the first one that training counts; at least one."""
    if tensors.get("loss_mask") is None:
        return 1
    mask = _named(tensors, file, "loss_mask")
    if mask.numel() != length:
        raise no_sample(file, f"its loss_mask is of {mask.numel()} tokens, not of {length}")
    counted = (mask.flatten() > 0).nonzero()
    return min(max(1, int(counted[0])), length - 1) if len(counted) else 1


def no_sample(file: Path, why: str) -> WorkbenchError:
    """Return the error for a file that holds something else than was said."""
    return WorkbenchError(
        f"{file} is not a sample of hidden states",
        why=shown(why, 200).strip("'\""),
        next_step="Give files as speculators or SpecForge write them.",
    )
