"""The one door from a result to how it looks: everything here is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.core.result import Result
    from workbench.views.parts import Document, Part

# For each schema: the module and the name of the class of its results, and the module that lays them out.
KINDS = {
    "workbench.keydiff/1": ("workbench.keys.records", "KeyDiff", "keydiff"),
    "workbench.weightscan/1": ("workbench.weights.results", "WeightScan", "weightscan"),
    "workbench.weightcompare/1": (
        "workbench.weights.comparison",
        "WeightComparison",
        "weightcompare",
    ),
    "workbench.hang/1": ("workbench.hang.judge.diagnosis", "HangDiagnosis", "hang"),
    "workbench.launches/1": ("workbench.hang.ledger.ledger", "LaunchLedger", "launches"),
    "workbench.replay/1": ("workbench.speculation.result", "Replay", "replay"),
    "workbench.launchcheck/1": ("workbench.preflight.records", "LaunchCheck", "launchcheck"),
    "workbench.gate/1": ("workbench.preflight.gate_records", "Gate", "gate"),
    "workbench.case/1": ("workbench.triage.records", "Case", "case"),
    "workbench.ablations/1": ("workbench.speculation.ablate.ablations", "Ablations", "ablations"),
}


def kind_of(schema: object) -> type[Result] | None:
    """Return the class of the results of a schema, None where it is not known."""
    if not isinstance(schema, str) or schema not in KINDS:
        return None
    module, name, _ = KINDS[schema]
    kind: type[Result] = getattr(import_module(module), name)
    return kind


def layout(result: Result) -> Any:
    """Return the module that lays out a result."""
    return import_module(f"workbench.views.{KINDS[result.schema][2]}")


def document(result: Result) -> Document:
    """Return the document of a result, as the module of its kind lays it out."""
    made: Document = layout(result).document(result)
    return made


def payload(result: Result, limit: int | None) -> dict[str, Any]:
    """Return the data of a result's interactive view."""
    data: dict[str, Any] = layout(result).payload(result, limit)
    return data


def to_text(result: Result, width: int | None) -> str:
    """Return a result as text, without colour."""
    from workbench.display.terminal import lower

    return lower(result.document(), width)


def parts_to_text(parts: Iterable[Part], width: int | None) -> str:
    """Return some parts of a document as text, without colour."""
    from workbench.display.terminal import lower_parts

    return lower_parts(parts, width).lstrip("\n")


def to_markdown(result: Result) -> str:
    """Return a result as Markdown."""
    from workbench.display.markdown import lower

    return lower(result.document())


def page(result: Result) -> str:
    """Return a result as one HTML page."""
    from workbench.display.page import result_page

    return result_page(result)


def view(result: Result) -> Any:
    """Return a result's interactive view as a widget."""
    from workbench.display.widget import view_of

    return view_of(result)


def mimebundle(result: Result, **kwargs: Any) -> Any:
    """Return a result in every form that a notebook may ask for."""
    from workbench.display.widget import mimebundle as bundle

    return bundle(result, **kwargs)
