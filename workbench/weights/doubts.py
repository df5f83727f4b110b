"""What is doubted of single tensors, other than "trained or at init": one record for all checks."""

from __future__ import annotations

import dataclasses

from workbench.core.verdict import State


@dataclasses.dataclass(frozen=True, slots=True)
class Doubt:
    """Why a tensor is not healthy: ``wrong`` where that is proved, ``open`` where it may be."""

    state: State
    how: str


Doubts = dict[int, Doubt]
"""By position in the scan."""
