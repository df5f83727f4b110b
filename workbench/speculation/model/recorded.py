"""A target that is known by its recorded features alone: a trillion parameters need not run on a laptop.

Of its checkpoint only the embedding, the head and the last norm are read. What the evidence does not hold is
unknown: features of rejected drafts, other layers, what the target would say elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from workbench.errors import CheckpointError, WorkbenchError
from workbench.speculation.evidence.facts import Facts, Recorded
from workbench.speculation.model.config_fields import ModelConfig
from workbench.speculation.model.features import Choices, TargetTrace, choices_of, join_choices, pad
from workbench.speculation.model.layers import Numerics, linear, rms_norm

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.checkpoint import Checkpoint

_PLACES = 256  # places whose logits are held at once
_UP = 5  # folders above the evidence in which the target is looked for


class RecordedTarget:
    """Embedding, head and sizes of a target that is not run.

    Parameters
    ----------
    checkpoint
        The target's; only three of its tensors are read.
    """

    def __init__(self, checkpoint: Checkpoint, numerics: Numerics, device: str = "cpu") -> None:
        fields = ModelConfig(checkpoint.config.text, "the target's")
        self.numerics, self.device = numerics, device
        self.layers, self.epsilon = fields.whole("num_hidden_layers"), fields.epsilon
        self.model_type = str(fields.config.get("model_type", ""))
        self.embedding = _read(checkpoint, "embed_tokens.weight", None, None).to(device)
        self.vocabulary, self.hidden = self.embedding.shape
        self.head, self.norm = self.embedding, None
        if not fields.flag("tie_word_embeddings") and _named(checkpoint, "lm_head.weight"):
            self.head = _read(checkpoint, "lm_head.weight", None, self.hidden).to(device)
        if _named(checkpoint, "model.norm.weight"):
            self.norm = _read(checkpoint, "model.norm.weight", self.hidden).to(device)

    def trace(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is nothing to run."""
        raise _not_run()

    def branches(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is nothing to run."""
        raise _not_run()

    def greedy(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is nothing to run."""
        raise _not_run()

    def choices(self, last: Tensor) -> tuple[Tensor, Choices] | None:
        """Return last features after the norm, and what they choose, for a last layer's output."""
        import torch

        if self.norm is None or last.shape[-1] != self.hidden:
            return None
        final = rms_norm(last.to(self.device), self.norm, self.epsilon, self.numerics)
        parts = [
            choices_of(linear(piece, self.head, None, self.numerics))
            for piece in torch.split(final, _PLACES)
        ]
        return final, join_choices(parts)


def trace_of(
    records: Sequence[Recorded], target: RecordedTarget, aux: Sequence[int] | None
) -> tuple[TargetTrace, list[tuple[int, ...]] | None, list[tuple[int, ...]] | None, list[str]]:
    """Put recorded features in the place of a target's pass.

    Parameters
    ----------
    aux
        The layers that the draft reads, in the order in which the engine put them side by side.

    Returns
    -------
    tuple
        The trace; where rounds began and what they emitted (None: the replay finds its own); and notes.
    """
    import torch

    _check_widths(records, target, aux)
    known = all(r.starts for r in records)
    # Without an engine's rounds the text ends where the features do.
    texts = [r.tokens if known else r.tokens[: len(r.rows) + 1] for r in records]
    tokens, lengths = pad(texts, target.device)
    inputs: dict[int, Tensor] = {}
    size = tokens.shape[1]
    for row, record in enumerate(records):
        layers = record.layers or tuple(aux or ())
        for at, layer in enumerate(layers):
            values = inputs.setdefault(layer, torch.zeros(len(records), size, target.hidden))
            part = record.rows[: len(texts[row]), at * target.hidden : (at + 1) * target.hidden]
            values[row, : len(part)] = part
    final, choices = _last(records, target, size)
    trace = TargetTrace(
        tokens,
        lengths,
        torch.tensor([r.prompt for r in records], device=target.device),
        {layer: values.to(target.device) for layer, values in inputs.items()},
        final,
        choices,
        torch.zeros_like(tokens),
    )
    if not known:
        return trace, None, None, []
    starts, emitted, lost = [], [], 0
    for record in records:
        pairs = list(zip(record.starts or (), record.emitted or (), strict=True))
        held = [(at, n) for at, n in pairs if at - 2 < len(record.rows)]
        lost += len(pairs) - len(held)
        starts.append(tuple(at for at, _ in held))
        emitted.append(tuple(n for _, n in held))
    notes = [f"{lost} rounds have no recorded features and are left out"] if lost else []
    return trace, starts, emitted, notes


def find_checkpoint(facts: Facts, named: str) -> Path | None:
    """Return the folder of the target that a launch or a draft names, near the evidence."""
    if not named or "\0" in named:
        return None
    given = Path(named).expanduser()
    places = [given] if given.is_absolute() else []
    if not given.is_absolute() and ".." not in given.parts:
        above = [Path(facts.source).resolve(), *Path(facts.source).resolve().parents][: _UP + 1]
        places = [folder / given for folder in above]
    return next((place for place in places if (place / "config.json").is_file()), None)


def _last(
    records: Sequence[Recorded], target: RecordedTarget, size: int
) -> tuple[Tensor | None, Choices | None]:
    """Return last features and the target's choices where all records hold the last layer's output."""
    import torch

    if not all(r.last is not None for r in records):
        return None, None
    finals, parts = [], []
    for record in records:
        assert record.last is not None
        padded = torch.zeros(size, record.last.shape[-1])
        held = record.last[:size]
        padded[: len(held)] = held
        found = target.choices(padded)
        if found is None:
            return None, None
        finals.append(found[0])
        parts.append(found[1])
    names = ("best", "margin", "tokens", "probabilities")
    return torch.stack(finals), Choices(
        *(torch.stack([getattr(p, n) for p in parts]) for n in names)
    )


def _check_widths(
    records: Sequence[Recorded], target: RecordedTarget, aux: Sequence[int] | None
) -> None:
    for record in records:
        layers = record.layers or aux
        wide = record.rows.shape[1]
        if layers is None:
            raise WorkbenchError(
                "the target's last features are not known",
                why="a draft launched as EAGLE reads those, and the evidence holds auxiliary layers",
                next_step='Give the target itself, or replay with engine="trainer".',
            )
        if wide != len(layers) * target.hidden:
            raise WorkbenchError(
                f"features of {record.name} are {wide} wide, not {len(layers)} times {target.hidden}",
                why="they were recorded of another target, or for a draft of other layers",
                next_step="Give the target and the draft that the features were recorded with.",
            )
        if len(record.rows) < 2:
            raise WorkbenchError(
                f"{record.name} has features of {len(record.rows)} tokens",
                next_step="Record longer texts.",
            )


def _named(checkpoint: Checkpoint, end: str) -> list[str]:
    found = [n for n in checkpoint.names if n == end or n.endswith(f".{end}")]
    return sorted(found, key=len)


def _read(checkpoint: Checkpoint, end: str, *shape: int | None) -> Tensor:
    """Return a tensor as float32, of this shape; None stands for any size."""
    names = _named(checkpoint, end)
    if not names:
        raise CheckpointError(
            f"the target's checkpoint has no {end}",
            why="a draft takes it from there",
            next_step="Give the target's own checkpoint.",
        )
    found = checkpoint.tensor(names[0])
    fits = len(shape) == found.ndim and all(
        n > 0 and wanted in (None, n) for n, wanted in zip(found.shape, shape, strict=True)
    )
    if not fits or not found.is_floating_point():
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise CheckpointError(
            f"the target's {names[0]} is {list(found.shape)} of {found.dtype}, not [{wanted}]",
            why="a draft reads and is verified with it",
            next_step="Compare the checkpoint with the one that was published.",
        )
    return found.float()


def _not_run() -> WorkbenchError:
    return WorkbenchError(
        "the target is known by its recorded features alone",
        why="what it would choose elsewhere is not among them",
        next_step="Give a target that can be run here.",
    )
