"""Scenes of hung, slow and healthy servers, with what a diagnosis of each must say."""

from __future__ import annotations

from tests.hang.cases.case import Case
from tests.hang.cases.design import DESIGN
from tests.hang.cases.healthy import HEALTHY
from tests.hang.cases.launch_specific import LAUNCH_SPECIFIC
from tests.hang.cases.misleading import MISLEADING
from tests.hang.cases.on_gpus import ON_GPUS
from tests.hang.cases.recorded import RECORDED
from tests.hang.cases.reported import REPORTED
from tests.hang.cases.rules import BY_RULE
from tests.hang.cases.traps import TRAPS

CASES: tuple[Case, ...] = (
    *RECORDED, *ON_GPUS, *DESIGN, *REPORTED, *BY_RULE, *LAUNCH_SPECIFIC, *HEALTHY, *TRAPS, *MISLEADING,
)  # fmt: skip
