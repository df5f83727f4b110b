"""Evidence that holds the target's features: speculators' and SpecForge's files, SGLang's hidden states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation.facts import Recorded
from workbench.speculation.observed import Hidden, Run

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 4 << 30  # of one file
_MOST_TOKENS = 1 << 20


def read_speculators(file: Path) -> Recorded:
    """Read ``hs_N.safetensors``: ``token_ids`` [S] and ``hidden_states`` [S, layers, H].

    The last of the layers is the target's last, before its final norm; the others are the auxiliary ones.
    """
    tensors = _safetensors(file)
    tokens, hidden = _named(tensors, file, "token_ids"), _named(tensors, file, "hidden_states")
    if hidden.ndim != 3 or hidden.shape[1] < 2 or not hidden.is_floating_point():
        raise _no_sample(file, f"hidden_states is {list(hidden.shape)}, not [S, layers, H]")
    ids = _ids(tokens, file, hidden.shape[0])
    mask = tensors.get("loss_mask")
    return Recorded(
        file.stem,
        ids,
        _prompt(mask, len(ids)),
        hidden[:, :-1].flatten(1).float(),
        hidden[:, -1].float(),
    )


def read_specforge(file: Path) -> Recorded:
    """Read one sample of SpecForge: ``input_ids``, ``loss_mask``, ``hidden_state``, ``aux_hidden_state``.

    The file is a pickle: it is read without running anything in it.
    """
    tensors = load_pickle(file)
    tokens = _named(tensors, file, "input_ids").flatten()
    aux = _named(tensors, file, "aux_hidden_state")
    if not aux.is_floating_point() or aux.ndim < 2:
        raise _no_sample(file, f"aux_hidden_state is {list(aux.shape)}, not [S, 3H]")
    aux = aux.reshape(-1, aux.shape[-1])
    ids = _ids(tokens, file, aux.shape[0])
    last = tensors.get("hidden_state")
    if last is not None:
        last = last.reshape(-1, last.shape[-1]).float()
        last = last if len(last) == len(ids) else None
    return Recorded(file.stem, ids, _prompt(tensors.get("loss_mask"), len(ids)), aux.float(), last)


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
        if item.rows.ndim == 2 and len(item.rows):
            found.append(
                Recorded(item.name, tokens, item.prompt, item.rows, None, None, starts, emitted)
            )
    return tuple(found)


def load_pickle(file: Path) -> Mapping[str, Any]:
    """Return the tensors of a ``torch.save`` file, by name; nothing in it is executed."""
    import torch

    _check_size(file)
    try:
        value = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _no_sample(file, f"{type(error).__name__}: {error}") from None
    if not isinstance(value, Mapping):
        raise _no_sample(file, f"it holds {type(value).__name__}, not tensors by name")
    return {str(name): item for name, item in value.items()}


def _safetensors(file: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _check_size(file)
    try:
        return dict(load_file(file))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise _no_sample(file, str(error)) from None


def _check_size(file: Path) -> None:
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise WorkbenchError(f"{file} is larger than {MOST_BYTES >> 30} GiB")


def _named(tensors: Mapping[str, Any], file: Path, name: str) -> Tensor:
    import torch

    value = tensors.get(name)
    if not isinstance(value, torch.Tensor):
        raise _no_sample(file, f"it has no tensor {name}")
    return value


def _ids(tokens: Tensor, file: Path, places: int) -> tuple[int, ...]:
    whole = not tokens.is_floating_point() and tokens.ndim == 1
    if not whole or len(tokens) != places or not 1 < places < _MOST_TOKENS:
        raise _no_sample(file, f"{list(tokens.shape)} token ids do not fit {places} rows")
    if int(tokens.min()) < 0 or int(tokens.max()) >= 1 << 31:
        raise _no_sample(file, "its token ids are no ids")
    return tuple(tokens.tolist())


def _prompt(mask: Any, length: int) -> int:
    """Return how many tokens stand before the first one that training counts; at least one."""
    import torch

    if isinstance(mask, torch.Tensor) and mask.numel() == length:
        counted = mask.flatten().nonzero()
        if len(counted):
            return min(max(1, int(counted[0])), length - 1)
    return 1


def _no_sample(file: Path, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"{file} is no sample of hidden states",
        why=shown(why, 200).strip("'\""),
        next_step="Give files as speculators or SpecForge write them.",
    )
