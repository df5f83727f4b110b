"""A `KeyDiff`, laid out, and the data of its interactive view."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from workbench.core.palette import ORDER
from workbench.core.saving import strict
from workbench.core.wording import plural
from workbench.keys.records import KeyDiff, Rename
from workbench.keys.verdict import basis_text
from workbench.loaders.outcome import KeyGroup, ParameterGroup
from workbench.views.parts import Document, Findings, Group, Groups, Heading, Part, head
from workbench.views.parts import document as lay_out


def document(diff: KeyDiff) -> Document:
    """Return the diff as a document: what is lost and what lacks it, the findings, then the rest."""
    facts = [
        ("Checkpoint", diff.checkpoint),
        ("Engine", diff.engine_text),
        ("Basis", basis_text(diff.engine, diff.basis)),
        *([("Stops at", diff.error)] if diff.error else []),
    ]
    body = (
        *_answers(diff),
        *_lost(diff),
        *_groups("Wrong shape or dtype", [g for g in diff.keys if g.status == "mismatched"]),
        *([Findings(diff.findings)] if diff.findings else []),
        *_others(diff),
    )
    return lay_out(diff, facts, body, notes=diff.notes)


def _answers(diff: KeyDiff) -> Iterator[Part]:
    if not diff.versions:
        return
    yield Heading("By version")
    state = {True: "ok", False: "wrong", None: "unsure"}
    yield Groups(
        tuple(
            Group(state[answer.ok], answer.span or answer.version, lines=(("", answer.text),))
            for answer in diff.versions
        ),
        noun="version",
    )


def _lost(diff: KeyDiff) -> Iterator[Part]:
    """Lay lost keys next to what lacks them, the proposed rename between the two."""
    lost = [g for g in diff.keys if g.status == "dropped"]
    lacking = [g for g in diff.parameters if g.status in ("missing", "partial")]
    if not lost and not lacking:
        return
    rename = next(iter(diff.renames), None)
    pairs = {old: (new, parameter) for old, new, parameter in rename.pairs} if rename else {}
    yield Heading("Lost keys, and what needs them" if lost else "Parameters that are not filled")
    yield Groups(tuple(_lost_group(group, pairs) for group in lost))
    paired = {parameter for _, parameter in pairs.values()}
    rest = [g for g in lacking if g.text not in paired or g.status == "partial"]
    yield Groups(tuple(Group(at.status, at.text, _facts(at), _lacks(at)) for at in rest))
    if diff.renames:
        yield from _renames(diff.renames)


def _lost_group(group: KeyGroup, pairs: Mapping[str, tuple[str, str]]) -> Group:
    lines: tuple[tuple[str, str], ...] = (("", group.reason),)
    if group.text in pairs:
        new, parameter = pairs[group.text]
        lines = (("rename to ", new), ("    for ", parameter))
    return Group("dropped", group.text, _facts(group), lines)


def _lacks(group: ParameterGroup) -> tuple[tuple[str, str], ...]:
    if group.status != "partial":
        return ()
    more = ", …" if len(group.wanted) > 4 else ""
    return (("", f"missing: {', '.join(group.wanted[:4])}{more}"),)


def _renames(renames: tuple[Rename, ...]) -> Iterator[Part]:
    several = sum(rename.proved for rename in renames) > 1
    yield Heading("Renames that fit equally well: none is chosen" if several else "Proposed rename")
    rows = (
        Group(
            "ok" if rename.proved else "unsure",
            rename.text,
            ("proved" if rename.proved else "partly proved", plural(rename.renamed, "key")),
            (("", rename.proof),),
        )
        for rename in renames
    )
    yield Groups(tuple(rows), noun="rename")


def _groups(title: str, groups: list[KeyGroup]) -> Iterator[Part]:
    if groups:
        yield Heading(title)
        rows = (Group(g.status, g.text, _facts(g), (("", g.reason),)) for g in groups)
        yield Groups(tuple(rows))


def _others(diff: KeyDiff) -> Iterator[Part]:
    """Yield in few lines what the engine skips on purpose, what it fills itself, and what loads."""
    ignored = [g for g in diff.keys if g.status == "ignored"]
    own = [g for g in diff.parameters if g.status == "shared"]
    if ignored or own:
        yield Heading("On purpose")
        skipped = (Group("ignored", g.text, ("skipped",), (("", _reason(g)),)) for g in ignored)
        filled = (Group("shared", at.text, (f"from {at.source}",)) for at in own)
        yield Groups((*skipped, *filled))
    loaded = [g for g in diff.keys if g.status == "loaded"]
    if loaded:
        yield Heading(f"Loaded: {plural(len(diff.loaded), 'key')}")
        yield Groups(tuple(Group("loaded", g.text, _facts(g)) for g in loaded))


def _reason(group: KeyGroup) -> str:
    return group.reason + (f" ({group.place})" if group.place else "")


def _facts(group: KeyGroup | ParameterGroup) -> tuple[str, ...]:
    if isinstance(group, KeyGroup):
        count = f"×{len(group):,}" if len(group) > 1 else ""
        return count, str(list(group.tensors.shape)), group.tensors.dtype
    shape = "" if group.shape is None else str(list(group.shape))
    count = f"×{len(group.index):,}" if len(group.index) > 1 else ""
    state = f"{group.fraction:.0%} written" if group.status == "partial" else group.status
    return count, shape, state


def payload(diff: KeyDiff, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, the groups that come last
        (what loads) keep their one line and lose their rows; ``left_out`` says how many.
    """
    groups = sorted(_table(diff), key=lambda group: ORDER.index(group["status"]))
    data: dict[str, Any] = head(document(diff)) | {
        "versions": [[a.span or a.version, a.ok, a.text] for a in diff.versions],
        "renames": [_rename(rename) for rename in diff.renames],
        "table": {"groups": groups, "rows": sum(g["count"] for g in groups), "left_out": 0},
    }
    data = strict(data)
    if limit is not None:
        _shorten(data, limit)
    return data


def _rename(rename: Rename) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(rename)
    return plain


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
    state = "not written" if group.status == "missing" else f"{group.fraction:.2%} written"
    lacks = ", ".join(group.wanted[:3]) + (", …" if len(group.wanted) > 3 else "")
    return f"{state}; {lacks} missing" if lacks else state


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
