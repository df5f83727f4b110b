"""A `HangDiagnosis`, laid out, and the data of its interactive view."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.core.finding import Finding
from workbench.core.saving import strict
from workbench.core.wording import middle, plural
from workbench.facts import engines
from workbench.hang.diagnosis_records import RankRow, ThreadRow, walk
from workbench.hang.judge import wording
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.records import Frame
from workbench.views.hang_startup import start_up
from workbench.views.parts import (
    Branch,
    Document,
    Findings,
    Group,
    Groups,
    Heading,
    Outline,
    Part,
    Plan,
    Prose,
    head,
)
from workbench.views.parts import document as lay_out

SHOWN_BRANCHES = 14
SHOWN_RANKS = 12
SHOWN_GROUPS = 64  # of the interactive view
LONGEST_FRAME = 400  # a native C++ name may be as long as a page


def document(diagnosis: HangDiagnosis) -> Document:
    """Return the diagnosis as a document: ranks, evidence, merged stacks, start-up, the experiment."""
    body = (
        *_ranks(diagnosis),
        *([Findings(_findings(diagnosis))] if diagnosis.findings else []),
        *_stacks(diagnosis),
        *start_up(diagnosis),
        Plan(diagnosis.experiment),
    )
    return lay_out(
        diagnosis,
        _facts(diagnosis),
        body,
        sentence=wording.sentence(diagnosis.summary),
        next_step=diagnosis.experiment.change,
        notes=diagnosis.notes,
    )


def _facts(diagnosis: HangDiagnosis) -> list[tuple[str, str]]:
    state = f"{diagnosis.state.replace('_', ' ')}, phase {diagnosis.phase}"
    if diagnosis.wait_class != "UNKNOWN":
        state += f", waiting in {diagnosis.wait_class}"
    engine = _engine(diagnosis)
    return [
        ("State", state),
        ("Engine", engine),
        ("Evidence", f"{wording.how_often(diagnosis.times)}; {diagnosis.source}"),
    ]


def _engine(diagnosis: HangDiagnosis) -> str:
    if not diagnosis.engine:
        return "not known: nothing in the evidence names one"
    name = diagnosis.engine if diagnosis.engine == "sglang" else engines.spoken(diagnosis.engine)
    return f"{name} {diagnosis.version or 'of unknown version'}"


def _findings(diagnosis: HangDiagnosis) -> tuple[Finding, ...]:
    """Return the findings; what verdict and experiment show already is not repeated."""
    first, *rest = diagnosis.findings
    title, detail = first.title, first.detail
    if detail and title == diagnosis.summary:
        title, detail = wording.sentence(detail), ""
    plan, step = first.experiment, first.next_step
    if plan == diagnosis.experiment:
        plan, step = None, ""
    first = dataclasses.replace(first, title=title, detail=detail, experiment=plan, next_step=step)
    return (first, *rest)


def _ranks(diagnosis: HangDiagnosis) -> Iterator[Part]:
    if not diagnosis.ranks:
        return
    with_stack = sum(rank.frame is not None for rank in diagnosis.ranks)
    yield Heading(f"Ranks: stacks of {with_stack} of {len(diagnosis.ranks)}")
    rows = tuple(map(_rank_group, wording.alike(diagnosis.ranks)))
    yield Groups(rows, shown=SHOWN_RANKS, noun="group")
    folded = sum(rank.folded for rank in diagnosis.ranks)
    if folded:
        yield Prose(f"{plural(folded, 'bystander thread')} folded")


def _rank_group(ranks: Sequence[RankRow]) -> Group:
    first = ranks[0]
    word = wording.WORDS.get(first.standing, first.standing)
    wait = first.wait_class if first.frame else ""
    details = [("", wording.frame_text(first.frame))] if first.frame else []
    details += [("", first.why)] if first.why else []
    details += [("do: ", first.remedy)] if first.remedy else []
    facts = (word, wait, *wording.signs_of_life(ranks))
    return Group(first.standing, wording.names_of(ranks), facts, tuple(details))


def _stacks(diagnosis: HangDiagnosis) -> Iterator[Part]:
    shown = list(wording.branches(diagnosis.tree))
    if not shown:
        return
    yield Heading("Merged stacks: has | lacks")
    rows = (Branch(_label(branch), branch.depth, _chain(branch), branch.moving) for branch in shown)
    yield Outline(tuple(rows), shown=SHOWN_BRANCHES)
    if len(diagnosis.times) > 1:
        moving = any(branch.moving for branch in shown)
        yield Prose("~ lines differ between the snapshots" if moving else "no stack moved")


def _label(branch: wording.Branch) -> str:
    has = wording.spans(branch.has)
    return f"{has} | {wording.spans(branch.lacks)}" if branch.lacks else has


def _chain(branch: wording.Branch) -> str:
    """Return a run of frames on a line: its first, and the last two, which matter most."""
    frames = branch.frames
    names = [middle(frame.function.rsplit(".", 1)[-1], 60) for frame in frames]
    last = wording.frame_text(frames[-1])
    if len(names) > 4:
        names = [names[0], f"… {len(names) - 3} frames", names[-2], last]
    chain = " → ".join([*names[:-1], last])
    return f"{chain}; here {wording.spans(branch.ends)} ends" if branch.ends else chain


def payload(diagnosis: HangDiagnosis, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, first the threads of
        bystanders go, then all threads, then the deepest frames of the tree, then ranks; ``left_out``
        says how many.
    """
    start = head(document(diagnosis))
    for cut in _cuts(diagnosis):
        data: dict[str, Any] = strict(start | _data(diagnosis, cut))
        if limit is None or len(gzip.compress(json.dumps(data).encode(), 6)) <= limit:
            break
    return data


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """What a bounded view still holds."""

    threads: tuple[ThreadRow, ...]
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
    groups = wording.alike(diagnosis.ranks)
    kept = [rank for group in groups for rank in group][: cut.ranks]
    kept.sort(key=lambda rank: rank.rank)
    return {
        "experiment": dataclasses.asdict(diagnosis.experiment),
        "times": list(diagnosis.times),
        "groups": [_group(group) for group in groups[:SHOWN_GROUPS]],
        "ranks": [_rank(rank, frames) for rank in kept],
        "tree": tree,
        "timeline": _timeline(diagnosis, {rank.rank for rank in kept}),
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
            name = middle(frame.function, LONGEST_FRAME)
            self.rows.append([name, frame.file, frame.line, frame.module])
        return at


def _group(ranks: Sequence[RankRow]) -> dict[str, Any]:
    first = ranks[0]
    return {
        "standing": first.standing,
        "names": wording.names_of(ranks),
        "ranks": wording.ranges(rank.rank for rank in ranks),
        "wait": first.wait_class if first.frame else "",
        "frame": wording.frame_text(first.frame) if first.frame else "",
        "signs": wording.signs_of_life(ranks),
        "why": first.why,
        "remedy": first.remedy,
    }


def _rank(rank: RankRow, frames: _Table) -> dict[str, Any]:
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
    return {"nodes": nodes, "sets": [[wording.ranges(one) for one in many] for many in sets]}


def _timeline(diagnosis: HangDiagnosis, kept: set[int]) -> dict[str, Any] | None:
    known = [span for span in diagnosis.timeline if span.begin is not None]
    if not known:
        return None
    return {
        "start": min(span.begin for span in known if span.begin is not None),
        "end": wording.end_of(diagnosis, known),
        "silent_for": diagnosis.silent_for,
        "spans": [
            [s.rank, s.phase, s.label or s.phase, s.begin, s.end]
            for s in known
            if s.rank in kept or s.rank is None or len(kept) == len(diagnosis.ranks)
        ],
    }


_OF_A_THREAD = tuple(f.name for f in dataclasses.fields(ThreadRow) if f.name != "frames")


def _thread(thread: ThreadRow, frames: _Table) -> dict[str, Any]:
    plain = {name: getattr(thread, name) for name in _OF_A_THREAD}
    known = {k: v for k, v in plain.items() if v is not None and v != "" and v is not False}
    return known | {"frames": [frames.number(frame) for frame in thread.frames]}
