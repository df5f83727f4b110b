"""A `HangDiagnosis` as one screen of text, and as the data of its interactive view."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.saving import strict
from workbench.display import text as lines
from workbench.hang import words
from workbench.hang.shown import RankSeen, ThreadSeen, walk
from workbench.hang.timeline_text import start_up

if TYPE_CHECKING:
    from workbench.hang.diagnosis import HangDiagnosis
    from workbench.hang.records import Frame

SHOWN_EVIDENCE = 6
SHOWN_BRANCHES = 14
SHOWN_FINDINGS = 3
SHOWN_RANKS = 12
SHOWN_GROUPS = 64
LONGEST_FRAME = 400  # a native C++ name may be as long as a page
PREVIEW_WIDTH = 100


def text(diagnosis: HangDiagnosis, width: int | None = None) -> str:
    """Return the diagnosis as one screen: verdict, ranks, evidence, stacks, start-up, experiment."""
    page = lines.Page(width)
    page.verdict(diagnosis.ok, words.sentence(diagnosis.summary))
    page.prose(f"{words.where_from(diagnosis)}; {words.how_often(diagnosis.times)}")
    page.prose(words.verdict_line(diagnosis))
    for said in diagnosis.overturns:
        page.prose(said, "  overturned by: ")
    page.prose(diagnosis.experiment.change, "  next: ")
    for note in diagnosis.notes:
        page.prose(note, "  note: ")
    _ranks(page, diagnosis)
    _evidence(page, diagnosis)
    _tree(page, diagnosis)
    start_up(page, diagnosis)
    _experiment(page, diagnosis)
    if diagnosis.unknowns:
        page.heading("What cannot be told")
        for said in diagnosis.unknowns:
            page.prose(said, "  ? ")
    rest = diagnosis.findings[1:]
    if rest:
        page.heading("Also found")
        for item in rest[:SHOWN_FINDINGS]:
            page.finding(item)
        if len(rest) > SHOWN_FINDINGS:
            page.prose(f"… and {len(rest) - SHOWN_FINDINGS} more (to_html shows all)")
    return str(page)


def _ranks(page: lines.Page, diagnosis: HangDiagnosis) -> None:
    if not diagnosis.ranks:
        return
    seen = sum(rank.frame is not None for rank in diagnosis.ranks)
    folded = sum(rank.folded for rank in diagnosis.ranks)
    page.heading(f"Ranks: stacks of {seen} of {len(diagnosis.ranks)}")
    groups = words.alike(diagnosis.ranks)
    for group in groups[:SHOWN_RANKS]:
        first = group[0]
        word = words.WORDS.get(first.standing, first.standing)
        facts = [word, first.wait_class if first.frame else "", *words.signs_of_life(group)]
        page.group(first.standing, words.names_of(group), *facts)
        if first.frame:
            page.add(lines.wrap_name(words.frame_text(first.frame), page.width, first="      "))
        if first.why:
            page.prose(first.why, "      ")
        if first.remedy:
            page.prose(first.remedy, "      do: ")
    if len(groups) > SHOWN_RANKS:
        left = sum(map(len, groups[SHOWN_RANKS:]))
        page.prose(f"… and {left} more ranks (to_html shows all)")
    if folded:
        page.prose(f"{lines.plural(folded, 'bystander thread')} folded")


def _evidence(page: lines.Page, diagnosis: HangDiagnosis) -> None:
    if not diagnosis.findings:
        return
    first = diagnosis.findings[0]
    page.heading("For and against")
    if first.title not in diagnosis.summary:
        page.prose(first.title)
    if first.detail:
        page.prose(first.detail)
    for sign, told in (("+", first.evidence_for), ("-", first.evidence_against)):
        for said in told[:SHOWN_EVIDENCE]:
            page.prose(said, f"  {sign} ")
        if len(told) > SHOWN_EVIDENCE:
            page.prose(f"… and {len(told) - SHOWN_EVIDENCE} more", "    ")


def _tree(page: lines.Page, diagnosis: HangDiagnosis) -> None:
    shown = list(words.branches(diagnosis.tree))
    if not shown:
        return
    page.heading("Merged stacks: has | lacks")
    labels = [
        f"{words.spans(b.has)} | {words.spans(b.lacks)}" if b.lacks else words.spans(b.has)
        for b in shown[:SHOWN_BRANCHES]
    ]
    labels = [lines.middle(label, page.width // 4) for label in labels]
    wide = max(map(lines.cells, labels))
    for branch, label in zip(shown, labels, strict=False):
        sign = "~" if branch.moving else " "
        lead = f"  {label.ljust(wide)} {sign}" + "  " * min(branch.depth, page.width // 10)
        chain = _chain(branch.frames, page.unicode)
        if branch.ends:
            chain += f"; here {words.spans(branch.ends)} ends"
        page.prose(chain, f"{lead}{'└ ' if branch.depth else ''}")
    if len(shown) > SHOWN_BRANCHES:
        page.prose(f"… and {len(shown) - SHOWN_BRANCHES} more branches (to_html shows all)")
    if len(diagnosis.times) > 1:
        moving = any(branch.moving for branch in shown)
        said = "marked lines differ between the snapshots" if moving else "no stack moved"
        page.prose(said, "  ~ " if moving else "  ")


def _chain(frames: Sequence[Frame], unicode: bool) -> str:
    """Return a run of frames on a line: its first, and the last two, where the story is."""
    arrow = " → " if unicode else " -> "
    names = [lines.middle(frame.function.rsplit(".", 1)[-1], 60) for frame in frames]
    last = words.frame_text(frames[-1])
    if len(names) <= 4:
        return arrow.join([*names[:-1], last])
    return arrow.join([names[0], f"… {len(names) - 3} frames", names[-2], last])


def _experiment(page: lines.Page, diagnosis: HangDiagnosis) -> None:
    item = diagnosis.experiment
    page.heading("The one next experiment")
    told = [("change", item.change), ("if right", item.if_right), ("if wrong", item.if_wrong)]
    for name, said in [*told, ("cost", item.cost), ("undo", item.undo)]:
        if said:
            page.prose(said, f"  {name + ':':<10}")


def payload(diagnosis: HangDiagnosis, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, first the threads of
        bystanders go, then all threads, then the deepest frames of the tree, then ranks; ``left_out``
        says how many.
    """
    for cut in _cuts(diagnosis):
        data: dict[str, Any] = strict(_data(diagnosis, cut))
        if limit is None or len(gzip.compress(json.dumps(data).encode(), 6)) <= limit:
            break
    return data


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """What a bounded view still holds."""

    threads: tuple[ThreadSeen, ...]
    depth: int
    ranks: int


def _cuts(diagnosis: HangDiagnosis) -> Iterator[_Cut]:
    """Yield everything, then less and less: what is looked at last goes first."""
    depth = 1 + max((depth for depth, _ in walk(diagnosis.tree)), default=0)
    ranks = len(diagnosis.ranks)
    yield _Cut(diagnosis.threads, depth, ranks)
    yield _Cut(tuple(t for t in diagnosis.threads if not t.folded), depth, ranks)
    yield _Cut((), depth, ranks)
    while depth > 1 or ranks > 1:
        depth, ranks = max(depth // 2, 1), ranks if depth > 1 else ranks // 2
        yield _Cut((), depth, ranks)


def _data(diagnosis: HangDiagnosis, cut: _Cut) -> dict[str, Any]:
    frames = _Table()
    tree = _forest(diagnosis, cut.depth, frames)
    kept = [rank for group in words.alike(diagnosis.ranks) for rank in group][: cut.ranks]
    kept.sort(key=lambda rank: rank.rank)
    return {
        "schema": diagnosis.schema,
        "title": diagnosis.title,
        "verdict": {"ok": diagnosis.ok, "line": words.sentence(diagnosis.summary)},
        "facts": _facts(diagnosis),
        "findings": [finding.to_dict() for finding in diagnosis.findings],
        "preview": _preview(diagnosis),
        "experiment": dataclasses.asdict(diagnosis.experiment),
        "overturns": list(diagnosis.overturns),
        "unknowns": list(diagnosis.unknowns),
        "times": list(diagnosis.times),
        "groups": [_group(group) for group in words.alike(diagnosis.ranks)[:SHOWN_GROUPS]],
        "ranks": [_rank(rank, frames) for rank in kept],
        "tree": tree,
        "timeline": _start_up(diagnosis, {rank.rank for rank in kept}),
        "threads": [_thread(thread, frames) for thread in cut.threads],
        "left_out": {
            "threads": len(diagnosis.threads) - len(cut.threads),
            "nodes": sum(1 for _ in walk(diagnosis.tree)) - len(tree["nodes"]),
            "ranks": len(diagnosis.ranks) - len(kept),
        },
        "frames": frames.rows,
    }


class _Table:
    """Frames, each written once and then named by its number."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._at: dict[Frame, int] = {}

    def number(self, frame: Frame) -> int:
        at = self._at.setdefault(frame, len(self.rows))
        if at == len(self.rows):
            name = lines.middle(frame.function, LONGEST_FRAME)
            self.rows.append([name, frame.file, frame.line, frame.module])
        return at


def _facts(diagnosis: HangDiagnosis) -> list[list[str]]:
    waiting = [] if diagnosis.wait_class == "UNKNOWN" else [["Wait", diagnosis.wait_class]]
    return [
        ["State", diagnosis.state.replace("_", " ")],
        ["Phase", diagnosis.phase],
        *waiting,
        ["Confidence", diagnosis.confidence],
        ["Engine", f"{diagnosis.engine} {diagnosis.version or 'of unknown version'}"],
        ["Seen", words.how_often(diagnosis.times)],
        ["Source", diagnosis.source],
        *(["Note", note] for note in diagnosis.notes),
    ]


def _group(group: Sequence[RankSeen]) -> dict[str, Any]:
    first = group[0]
    return {
        "standing": first.standing,
        "names": words.names_of(group),
        "ranks": words.ranges(rank.rank for rank in group),
        "wait": first.wait_class if first.frame else "",
        "frame": words.frame_text(first.frame) if first.frame else "",
        "signs": words.signs_of_life(group),
        "why": first.why,
        "remedy": first.remedy,
    }


def _rank(rank: RankSeen, frames: _Table) -> dict[str, Any]:
    at = None if rank.frame is None else frames.number(rank.frame)
    # What is not known is left out: 512 ranks of nulls are most of a page.
    plain = {field.name: getattr(rank, field.name) for field in dataclasses.fields(rank)}
    known = {k: v for k, v in plain.items() if v is not None and v != ""}
    return known | {"frame": at}


def _forest(diagnosis: HangDiagnosis, deepest: int, frames: _Table) -> dict[str, Any]:
    """Return the tree in pre-order; the sets of ranks, mostly the same few, are written once."""
    sets: dict[tuple[tuple[int, ...], ...], int] = {}
    nodes = [
        [depth, frames.number(node.frame), sets.setdefault(node.ranks, len(sets)), int(node.moving)]
        for depth, node in walk(diagnosis.tree)
        if depth < deepest
    ]
    return {"nodes": nodes, "sets": [[words.ranges(one) for one in many] for many in sets]}


def _start_up(diagnosis: HangDiagnosis, kept: set[int]) -> dict[str, Any] | None:
    known = [span for span in diagnosis.timeline if span.begin is not None]
    if not known:
        return None
    return {
        "start": min(span.begin for span in known if span.begin is not None),
        "end": words.end_of(diagnosis, known),
        "silent_for": diagnosis.silent_for,
        "spans": [
            [s.rank, s.phase, s.label or s.phase, s.begin, s.end]
            for s in known
            if s.rank in kept or s.rank is None or len(kept) == len(diagnosis.ranks)
        ],
    }


def _thread(thread: ThreadSeen, frames: _Table) -> dict[str, Any]:
    plain = {field.name: getattr(thread, field.name) for field in dataclasses.fields(thread)}
    known = {k: v for k, v in plain.items() if v is not None and v != "" and v is not False}
    return known | {"frames": [frames.number(frame) for frame in thread.frames]}


def _preview(diagnosis: HangDiagnosis) -> list[dict[str, Any]]:
    """Return what is left where no script runs: the ranks, the stacks, the start-up, the experiment."""
    blocks: list[dict[str, Any]] = []
    if diagnosis.ranks:
        rows = [
            [
                {
                    "state": group[0].standing,
                    "text": words.WORDS.get(group[0].standing, group[0].standing),
                },
                words.names_of(group),
                group[0].wait_class if group[0].frame else "",
                words.frame_text(group[0].frame) if group[0].frame else group[0].why,
                " ".join(words.signs_of_life(group)),
            ]
            for group in words.alike(diagnosis.ranks)[:SHOWN_RANKS]
        ]
        head = ["", "Ranks", "Wait", "Frame", "Signs of life"]
        blocks += [
            {"kind": "heading", "text": "Ranks"},
            {"kind": "table", "head": head, "rows": rows},
        ]
    for title, draw in (("Merged stacks", _tree), ("Start-up", start_up)):
        page = lines.Page(PREVIEW_WIDTH)
        page.colour, page.unicode = False, True
        draw(page, diagnosis)
        if page.out:
            blocks += [
                {"kind": "heading", "text": title},
                {"kind": "code", "text": "\n".join(page.out[2:])},
            ]
    plan = dataclasses.asdict(diagnosis.experiment)
    told = [f"{name.replace('_', ' ')}: {said}" for name, said in plan.items() if said]
    blocks.append({"kind": "heading", "text": "The one next experiment"})
    return [*blocks, *({"kind": "text", "text": said} for said in told)]
