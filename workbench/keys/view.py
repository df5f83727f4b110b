"""A `KeyDiff` as text, and as the data of its interactive view."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from workbench.display import text as lines
from workbench.display.palette import ORDER
from workbench.engines.outcome import KeyGroup, ParameterGroup
from workbench.keys.records import KeyDiff, Rename
from workbench.keys.verdict import basis_text
from workbench.result import strict

SHOWN = 40  # groups of one state that the text lists


def text(diff: KeyDiff, width: int | None = None) -> str:
    """Return the diff as text for a terminal: verdict, what is lost and lacking, findings, the rest."""
    page = lines.Page(width)
    page.verdict(diff.ok, diff.summary)
    page.prose(f"{basis_text(diff.engine, diff.basis)}; {diff.engine_text}", "  ")
    page.prose(f"checkpoint {diff.checkpoint}", "  ")
    for note in diff.notes:
        page.prose(note, "  note: ")
    if diff.ok is not True and diff.findings:
        page.prose(diff.findings[0].next_step, "  next: ")
    _answers(page, diff)
    _lost(page, diff)
    _groups(page, "Wrong shape or dtype", [g for g in diff.keys if g.status == "mismatched"])
    _others(page, diff)
    if diff.findings:
        page.heading("Findings")
        for item in diff.findings:
            page.finding(item)
    return str(page)


def _answers(page: lines.Page, diff: KeyDiff) -> None:
    if not diff.versions:
        return
    page.heading("By version")
    for answer in diff.versions:
        state = {True: "ok", False: "wrong", None: "unsure"}[answer.ok]
        page.group(state, answer.span or answer.version)
        page.prose(answer.text, "      ")


def _lost(page: lines.Page, diff: KeyDiff) -> None:
    """Lay lost keys beside what lacks them, the proposed rename between the two."""
    lost = [g for g in diff.keys if g.status == "dropped"]
    lacking = [g for g in diff.parameters if g.status in ("missing", "partial")]
    if not lost and not lacking:
        return
    rename = next(iter(diff.renames), None)
    pairs = {old: (new, parameter) for old, new, parameter in rename.pairs} if rename else {}
    page.heading("Lost keys, and what lacks them" if lost else "What nothing fills")
    arrow = "→" if page.unicode else "->"
    for group in lost[:SHOWN]:
        page.group("dropped", group.text, *_facts(group))
        if group.text in pairs:
            new, parameter = pairs[group.text]
            page.add(lines.wrap_name(new, page.width, first=f"      {arrow} "))
            page.add(lines.wrap_name(parameter, page.width, first="          for "))
        else:
            page.prose(group.reason, "      ")
    _more(page, len(lost))
    told = {parameter for _, parameter in pairs.values()}
    rest = [g for g in lacking if g.text not in told or g.status == "partial"]
    for at in rest[:SHOWN]:
        page.group(at.status, at.text, *_facts(at))
        if at.status == "partial":
            page.prose("lacks " + ", ".join(at.wanted[:4]), "      ")
    _more(page, len(rest))
    _renames(page, diff.renames)


def _renames(page: lines.Page, renames: tuple[Rename, ...]) -> None:
    if not renames:
        return
    several = sum(rename.proved for rename in renames) > 1
    page.heading("Renames that fit equally well: none is chosen" if several else "Proposed rename")
    for rename in renames:
        page.group("ok" if rename.proved else "unsure", rename.text, *(["proved"] * rename.proved))
        page.prose(rename.proof, "      ")


def _groups(page: lines.Page, title: str, groups: list[KeyGroup]) -> None:
    if not groups:
        return
    page.heading(title)
    for group in groups[:SHOWN]:
        page.group(group.status, group.text, *_facts(group))
        page.prose(group.reason, "      ")
    _more(page, len(groups))


def _others(page: lines.Page, diff: KeyDiff) -> None:
    """Tell in few lines what the engine skips on purpose, what it fills itself, and what loads."""
    ignored = [g for g in diff.keys if g.status == "ignored"]
    own = [g for g in diff.parameters if g.status == "shared"]
    if ignored or own:
        page.heading("On purpose")
    for group in ignored[:SHOWN]:
        page.group("ignored", group.text, "skipped")
        page.prose(group.reason + (f" ({group.place})" if group.place else ""), "      ")
    for at in own:
        page.group("shared", at.text, f"from {at.source}")
    loaded = [g for g in diff.keys if g.status == "loaded"]
    if loaded:
        page.heading(f"Loaded: {lines.plural(len(diff.loaded), 'key')}")
    for group in loaded[:SHOWN]:
        page.group("loaded", group.text, *_facts(group))
    _more(page, len(loaded))


def _more(page: lines.Page, count: int) -> None:
    if count > SHOWN:
        page.prose(f"… and {count - SHOWN} more templates (to_html shows all)", "    ")


def _facts(group: KeyGroup | ParameterGroup) -> list[str]:
    if isinstance(group, KeyGroup):
        count = f"×{len(group):,}" if len(group) > 1 else ""
        return [count, str(list(group.tensors.shape)), group.tensors.dtype]
    shape = "" if group.shape is None else str(list(group.shape))
    count = f"×{len(group.index):,}" if len(group.index) > 1 else ""
    state = f"{group.fraction:.0%} written" if group.status == "partial" else group.status
    return [count, shape, state]


def payload(diff: KeyDiff, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, the groups that come last
        (what loads) keep their one line and lose their rows; ``left_out`` says how many.
    """
    groups = sorted(_table(diff), key=lambda group: ORDER.index(group["status"]))
    data: dict[str, Any] = {
        "schema": diff.schema,
        "title": diff.title,
        "verdict": {"ok": diff.ok, "line": diff.summary},
        "facts": [
            ["Checkpoint", diff.checkpoint],
            ["Engine", diff.engine_text],
            ["Basis", basis_text(diff.engine, diff.basis)],
            *([["Stops at", diff.error]] if diff.error else []),
            *(["Note", note] for note in diff.notes),
        ],
        "versions": [[a.span or a.version, a.ok, a.text] for a in diff.versions],
        "findings": [finding.to_dict() for finding in diff.findings],
        "renames": [rename.to_dict() for rename in diff.renames],
        "table": {"groups": groups, "rows": sum(g["count"] for g in groups), "left_out": 0},
    }
    data = strict(data)
    if limit is not None:
        _shorten(data, limit)
    return data


def _table(diff: KeyDiff) -> Iterator[dict[str, Any]]:
    new_name = {old: new for rename in diff.renames[:1] for old, new, _ in rename.pairs}
    for key in diff.keys:
        yield {
            "side": "key",
            "status": key.status,
            "text": key.text,
            "template": key.tensors.template,
            "index": key.tensors.index.tolist(),
            "names": None,
            "count": len(key),
            "shape": list(key.tensors.shape),
            "dtype": key.tensors.dtype,
            "parameter": key.parameter,
            "reason": key.reason,
            "place": key.place,
            "rename": new_name.get(key.text),
        }
    for at in diff.parameters:
        if at.status == "written" and not at.unused:
            continue  # its keys are listed already
        yield {
            "side": "parameter",
            "status": "unused" if at.status == "written" else at.status,
            "text": at.text,
            "template": at.template,
            "index": at.index.tolist(),
            "names": None,
            "count": len(at.index),
            "shape": None if at.shape is None else list(at.shape),
            "dtype": None,
            "parameter": "",
            "reason": _why(at),
            "place": "",
            "rename": None,
        }


def _why(group: ParameterGroup) -> str:
    if group.unused:
        return group.unused
    if group.status == "shared":
        return f"filled from {group.source}"
    said = "nothing writes it" if group.status == "missing" else f"{group.fraction:.2%} written"
    lacks = ", ".join(group.wanted[:3]) + (", …" if len(group.wanted) > 3 else "")
    return f"{said}; lacks {lacks}" if lacks else said


def _shorten(data: dict[str, Any], limit: int) -> None:
    """Take the rows out of the last groups until the data fits, and count what was taken."""
    groups = data["table"]["groups"]
    at = len(groups)
    while at and len(gzip.compress(json.dumps(data).encode(), 6)) > limit:
        # Half of what is left at a time: a few compressions, not one a group.
        for group in groups[at // 2 : at]:
            data["table"]["left_out"] += group["count"] if group["index"] else 0
            group["index"] = None
        at //= 2
