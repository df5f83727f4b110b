"""Forensics for SGLang: what hangs, which keys are dropped, which weights were never trained.

The public names are imported on first use, so that ``import workbench`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.checkpoint.open import open_checkpoint
    from workbench.core.saving import load
    from workbench.errors import WorkbenchError
    from workbench.export.report import report
    from workbench.hang.attach import attach
    from workbench.hang.ledger.ledger import Ledger
    from workbench.hang.open_evidence import open_evidence
    from workbench.hang.watch.watching import watch
    from workbench.keys.diff import diff_keys
    from workbench.keys.repair import fix_checkpoint
    from workbench.panels.opening import panel
    from workbench.preflight.check import check
    from workbench.preflight.gating import gate
    from workbench.speculation.replaying import replay
    from workbench.triage.doctor import doctor
    from workbench.weights.scan import scan_weights

__version__ = "0.2.0"

_HOMES = {
    "Ledger": "workbench.hang.ledger.ledger",
    "WorkbenchError": "workbench.errors",
    "attach": "workbench.hang.attach",
    "check": "workbench.preflight.check",
    "diff_keys": "workbench.keys.diff",
    "doctor": "workbench.triage.doctor",
    "fix_checkpoint": "workbench.keys.repair",
    "gate": "workbench.preflight.gating",
    "load": "workbench.core.saving",
    "load_ipython_extension": "workbench.magics",
    "open_checkpoint": "workbench.checkpoint.open",
    "open_evidence": "workbench.hang.open_evidence",
    "panel": "workbench.panels.opening",
    "replay": "workbench.speculation.replaying",
    "report": "workbench.export.report",
    "scan_weights": "workbench.weights.scan",
    "watch": "workbench.hang.watch.watching",
}

__all__ = [
    "Ledger",
    "WorkbenchError",
    "attach",
    "check",
    "diff_keys",
    "doctor",
    "fix_checkpoint",
    "gate",
    "load",
    "open_checkpoint",
    "open_evidence",
    "panel",
    "replay",
    "report",
    "scan_weights",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
