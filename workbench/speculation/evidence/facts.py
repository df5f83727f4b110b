"""What evidence of any form says of a server's drafting: records, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from workbench.speculation.evidence.observed import DraftLaunch, Run
from workbench.speculation.evidence.tally import Logged, Tally

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["run", "features", "counts"]


@dataclasses.dataclass(frozen=True, eq=False)
class Recorded:
    """A text with the target's features, as an engine or a trainer's data pipeline wrote them.

    Attributes
    ----------
    name
        What the evidence calls it.
    tokens, prompt
        Its token ids, and how many of them are the prompt's.
    rows
        Features of the first tokens, [places, auxiliary layers × width].
    last
        What the last layer put out, before the final norm, [places, width]; None where it is not known.
    layers
        The layers that `rows` are inputs of; None: those that the draft reads, in its order.
    starts, emitted
        Where an engine's rounds began and what each emitted; None: not known.
    """

    name: str
    tokens: tuple[int, ...]
    prompt: int
    rows: Tensor
    last: Tensor | None = None
    layers: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None
    emitted: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Facts:
    """What was found at one place.

    Attributes
    ----------
    source
        Folder or file.
    kind
        ``run``: texts and rounds. ``features``: texts and what the target computed. ``counts``: how many
        drafts were accepted, and no text.
    form
        What wrote it, for a reader.
    run, recorded
        Rounds of a real engine; features.
    tally, logged
        Rounds by accepted drafts, as the engine counted them; what its log says.
    launch
        How it was started, where that is known.
    memory
        Tensors captured in the running engine.
    notes
        What was left out, and what is not known.
    """

    source: str
    kind: Kind
    form: str
    run: Run | None = None
    recorded: tuple[Recorded, ...] = ()
    tally: Tally | None = None
    logged: Logged | None = None
    launch: DraftLaunch | None = None
    memory: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
