"""Scenes of hung, slow and healthy servers, with what a diagnosis of each must say."""

from __future__ import annotations

from .case import Case
from .design import DESIGN
from .healthy import HEALTHY
from .misleading import MISLEADING
from .on_gpus import ON_GPUS
from .recorded import RECORDED
from .reported import REPORTED
from .rules import BY_RULE
from .traps import TRAPS

CASES: tuple[Case, ...] = (
    *RECORDED, *ON_GPUS, *DESIGN, *REPORTED, *BY_RULE, *HEALTHY, *TRAPS, *MISLEADING,
)  # fmt: skip
