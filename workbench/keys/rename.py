"""Rules that would bring lost keys home: found on templates, proved on the whole checkpoint.

A rule is found by laying a lost template beside one that the model lacks, of the same shape: what
differs between their common beginning and their common end is the candidate. Candidates compose, up to
`DEPTH`. None is believed: each is applied to all keys and run through the loader's rules again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from workbench.checkpoint.records import TensorGroup, TensorTable
from workbench.checkpoint.symbols import concrete, encode, symbolic
from workbench.checkpoint.templates import Rows, describe, fill, parse
from workbench.core.wording import plural
from workbench.keys import prefixes
from workbench.keys.fused import Fuses, joined
from workbench.keys.prefixes import crosses
from workbench.keys.records import Rename
from workbench.loaders.outcome import Gap, LoadOutcome
from workbench.loaders.profile import NotCovered
from workbench.loaders.simulate import Resolve

Groups = Sequence[TensorGroup]

DEPTH = 3  # rules that may be needed one after the other
WIDTH = 6  # candidates followed at each step
PROVED = 4  # candidates that are run through the loader's rules at each step
SHOWN = 5  # proposals reported
MOST = 2000  # lost templates that are searched: names without any order have no rule

_WHOLE_NUMBERS = re.compile(r"\.(weight_packed|weight_shape|qweight|qzeros|weight_g_idx|g_idx)$")


@dataclasses.dataclass(frozen=True)
class _Step:
    """One regular expression with its replacement; `literal` are the indices it names outright."""

    pattern: str
    text: str
    literal: frozenset[int] = frozenset()


_Steps = tuple[_Step, ...]


def propose(table: TensorTable, outcome: LoadOutcome, resolve: Resolve) -> tuple[Rename, ...]:
    """Return the rules that would load what was lost, proved ones first.

    Parameters
    ----------
    table
        The checkpoint's tensors.
    outcome
        What the loader does with them.
    resolve
        The loader's rules: what it would do with other groups of tensors.

    Returns
    -------
    tuple of Rename
        Empty where nothing was lost, nothing is lacking, or no rule fits. At most one is `chosen`.
    """
    lost = _lost(outcome)
    if not lost or len(lost) > MOST or all(gap.optional for gap in outcome.gaps):
        return ()
    found = _by_prefix(table.groups, outcome, resolve)
    if found:
        return _choose(found)
    found = _search(table.groups, outcome, resolve, ())
    if not any(rename.proved for rename in found):
        fused, fuses = joined(table, outcome.gaps)
        if fuses:
            with contextlib.suppress(NotCovered):
                found += _search(fused.groups, resolve(fused.groups), resolve, fuses)
    return _choose(found)


def _lost(outcome: LoadOutcome) -> list[TensorGroup]:
    return [group.tensors for group in outcome.keys if group.status == "dropped"]


def _by_prefix(groups: Groups, before: LoadOutcome, resolve: Resolve) -> list[Rename]:
    """Return the rules that exchange one beginning of names for another and are proved, one a landing."""
    lost = _lost(before)
    proved: dict[str, Rename] = {}
    for old, new in prefixes.pairs(lost, _spellings(before)):
        steps = (_Step(f"^{re.escape(old)}", new),)
        landing = _landing(steps, lost)
        if landing in proved:
            continue
        rename = _prove(steps, groups, before, resolve, (), whole=True)
        if rename is not None and rename.proved:
            proved[landing] = rename
    return list(proved.values())


def _search(groups: Groups, before: LoadOutcome, resolve: Resolve, fuses: Fuses) -> list[Rename]:
    """Try rules of growing length until one is proved; keep the best of what was tried."""
    if fuses:
        proof = _prove((), groups, before, resolve, fuses)
        if proof is not None and proof.proved:
            return [proof]
    lost, gaps = _lost(before), _spellings(before)
    level: list[_Steps] = [()]
    tried: dict[str, Rename] = {}
    for _ in range(DEPTH):
        level = _longer(level, lost, gaps)
        for steps in _best(level, lost, gaps)[:PROVED]:
            rename = _prove(steps, groups, before, resolve, fuses)
            if rename is not None:
                tried[_landing(steps, lost)] = rename
        if any(rename.proved for rename in tried.values()):
            break
    return list(tried.values())


def _spellings(outcome: LoadOutcome) -> list[Gap]:
    """Return the gaps under each name that may reach them: loaders put their own prefix before keys.

    Where the prefix cannot be seen from a key that loads, ``model.`` is supposed, unless a lost key
    refutes that; a wrong supposition fails in the proof.
    """
    prefix = _loader_prefix(outcome) or "model."
    gaps = [gap for gap in outcome.gaps if gap.shape is not None]
    short = [
        dataclasses.replace(gap, template=gap.template.removeprefix(prefix))
        for gap in gaps
        if gap.template.startswith(prefix)
    ]
    lost = {group.template for group in _lost(outcome)}
    return gaps if any(gap.template in lost for gap in short) else gaps + short


def _loader_prefix(outcome: LoadOutcome) -> str:
    """Return what the loader itself puts before the keys that it knows, such as ``model.``."""
    for group in outcome.keys:
        plain = group.tensors.template.replace("{}", "")
        lands = re.sub(r"\{[0-9]+\}", "", group.parameter)
        if group.status == "loaded" and lands.endswith(plain) and lands != plain:
            return lands[: -len(plain)]
    return ""


def _longer(level: list[_Steps], lost: Groups, gaps: list[Gap]) -> list[_Steps]:
    """Return the rules of a level, each with one more step that helps."""
    longer: dict[_Steps, None] = {}
    for steps in level:
        moved = _moved(lost, steps)
        least = _score(steps, lost, gaps)
        for step in _candidates(moved, _open(gaps, moved)):
            if _score((*steps, step), lost, gaps) > least:
                longer[(*steps, step)] = None
    ranked = sorted(longer, key=lambda steps: -_score(steps, lost, gaps))
    return ranked[: 2 * WIDTH]


def _best(level: list[_Steps], lost: Groups, gaps: list[Gap]) -> list[_Steps]:
    """Return the rules that bring the most keys to a gap, one for each way to place them.

    Of two spellings of one rule the shorter is kept.
    """
    if not level:
        return []
    scores = [_score(steps, lost, gaps) for steps in level]
    ways: dict[str, _Steps] = {}
    for steps, score in sorted(zip(level, scores, strict=True), key=lambda pair: _length(pair[0])):
        if score == max(scores):
            ways.setdefault(_landing(steps, lost), steps)
    return list(ways.values())


def _length(steps: _Steps) -> int:
    return sum(len(step.pattern) + len(step.text) for step in steps)


def _candidates(lost: Groups, gaps: list[Gap]) -> list[_Step]:
    """Return the most promising single steps: those that bring the most keys to a gap first."""
    open_at: dict[tuple[str, tuple[int, ...] | None], list[Gap]] = {}
    for gap in gaps:
        open_at.setdefault((gap.template.rpartition(".")[2], gap.shape), []).append(gap)
    steps: dict[_Step, None] = {}
    whole: dict[_Step, None] = {}
    for group in lost:
        end = group.template.rpartition(".")[2]
        for gap in open_at.get((end, group.shape), ()):
            if compatible(group.dtype, gap.template) and not crosses(group.template, gap.template):
                steps.update(dict.fromkeys(_steps(group, gap)))
        for gap in gaps:
            if gap.shape == group.shape and compatible(group.dtype, gap.template):
                whole.update(dict.fromkeys(_whole(group, gap)))
    scores = {step: _score((step,), lost, gaps) for step in steps}
    good = sorted((s for s in steps if scores[s]), key=lambda s: (-scores[s], _length((s,))))
    return good[:WIDTH] or list(whole)[:WIDTH]


def _steps(group: TensorGroup, gap: Gap) -> Iterator[_Step]:
    """Yield the steps that turn one template into the other."""
    old, new = group.template.split("."), gap.template.split(".")
    end = _common(old[::-1], new[::-1])
    start = _common(old[: len(old) - end], new[: len(new) - end])
    yield from _step(group, gap, old, new, 0, end)
    if start:
        yield from _step(group, gap, old, new, start, end)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    n = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        n += 1
    return n


def _step(
    group: TensorGroup, gap: Gap, old: list[str], new: list[str], start: int, end: int
) -> Iterator[_Step]:
    """Yield the step for what lies between `start` segments and `end` segments from the end."""
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    before = sum(segment == "{}" for segment in old[:start])
    numbers_a = [group.index[:, before + c] for c in range(a.count("{}"))]
    numbers_b = [gap.index[:, before + c] for c in range(b.count("{}"))]
    literal: frozenset[int] = frozenset()
    if all(len(c) and (c == c[0]).all() for c in numbers_a + numbers_b):
        literal = frozenset(int(n[0]) for n in numbers_a)
        pattern = _segments(a, [str(n[0]) for n in numbers_a], re.escape)
        text = _segments(b, [str(n[0]) for n in numbers_b], str)
    elif len(numbers_a) == len(numbers_b):
        pattern = _segments(a, ["([0-9]+)"] * len(numbers_a), re.escape)
        text = _segments(b, [rf"\{c + 1}" for c in range(len(numbers_b))], str)
    else:
        return
    if not start:
        yield _Step(f"^{pattern}", text, literal)
    elif a and b:
        yield _Step(rf"(?<=\.){pattern}", text, literal)


def _segments(parts: list[str], numbers: list[str], spell: Callable[[str], str]) -> str:
    """Join segments with a dot behind each, numbers in place of ``{}``."""
    dot = spell(".")
    fields = iter(numbers)
    return "".join((next(fields) if part == "{}" else spell(part)) + dot for part in parts)


def _whole(group: TensorGroup, gap: Gap) -> Iterator[_Step]:
    """Yield the step from one whole name to another, for single tensors with nothing in common."""
    if len(group) == 1 and len(gap.index) == 1:
        old, new = group.names[0], fill(gap.template, gap.index)[0]
        yield _Step(f"^{re.escape(old)}$", new, frozenset(group.index[0].tolist()))


def _score(steps: _Steps, lost: Groups, gaps: list[Gap]) -> int:
    """Return how many lost keys a rule brings to a gap of their shape, at most."""
    room = Counter[tuple[str, tuple[int, ...] | None]]()
    for gap in gaps:
        room[gap.template, gap.shape] += len(gap.index)
    changes = [(re.compile(step.pattern).sub, step.text) for step in steps]
    score = 0
    for group in lost:
        name = group.template.format(*group.index[0].tolist())
        for change, text in changes:
            name = change(text, name)
        score += min(len(group), room[parse(name)[0], group.shape])
    return score


def _moved(groups: Groups, steps: _Steps) -> list[TensorGroup]:
    """Return the tensors under their new names."""
    out = list(groups)
    for step in steps:
        change = re.compile(step.pattern).sub
        out = [
            dataclasses.replace(part, template=template, index=index)
            for part, name in symbolic(out, step.literal)
            for template, index in [concrete(change(step.text, name), part)]
        ]
    return out


def _open(gaps: list[Gap], moved: Groups) -> list[Gap]:
    """Return the gaps that the moved tensors leave open."""
    landed: dict[str, list[Rows]] = {}
    for group in moved:
        landed.setdefault(group.template, []).append(encode(group.index))
    left = []
    for gap in gaps:
        codes = landed.get(gap.template)
        keep = np.ones(len(gap.index), dtype=bool)
        if codes:
            keep = ~np.isin(encode(gap.index), np.concatenate(codes))
        if keep.any():
            left.append(dataclasses.replace(gap, index=gap.index[keep]))
    return left


def _landing(steps: _Steps, lost: Groups) -> str:
    """Return where a rule takes the lost keys, so that two spellings of one rule count once."""
    return "\n".join(
        describe(group.template.removeprefix("model."), group.index)
        for group in _moved(lost, steps)
    )


def apply(steps: Sequence[tuple[str, str]], names: Sequence[str]) -> list[str]:
    """Return the names after all steps of a rule."""
    out = list(names)
    for pattern, text in steps:
        change = re.compile(pattern).sub
        out = [change(text, name) for name in out]
    return out


def compatible(dtype: str, template: str) -> bool:
    """Tell whether a dtype suits a tensor of that name: floats for weights, integers for codes."""
    wants_whole = bool(_WHOLE_NUMBERS.search(template))
    is_whole = dtype[:1] in "IU" or dtype == "BOOL"
    return wants_whole == is_whole or dtype == "U8"


def _prove(
    steps: _Steps,
    groups: Groups,
    before: LoadOutcome,
    resolve: Resolve,
    fuses: Fuses,
    *,
    whole: bool = False,
) -> Rename | None:
    """Apply a rule to the whole checkpoint and see what the loader then does; None if it helps nothing.

    With `whole`, also None if it leaves anything: hundreds of thousands of names are not written out then.
    """
    total = sum(len(group) for group in groups)
    try:
        after = resolve(_moved(groups, steps))
    except NotCovered:
        return None  # names that the loader's rules do not describe
    was, now = _good(before, total), _good(after, total)
    if (was & ~now).any():
        return None  # it would break what loads
    lacking = [group for group in after.parameters if group.status in ("missing", "partial")]
    if whole and (not now.all() or any(group.lacks for group in lacking)):
        return None
    touched = np.zeros(total, dtype=bool)
    old = _named(groups, total)
    pairs: list[tuple[str, str, str]] = []
    by_name = True
    example = ("", "")
    for group in after.keys:
        if group.status != "loaded":
            continue
        for source, rows in _renamed(group.tensors, old):
            touched[group.tensors.at[rows]] = True
            part = group.tensors.take(rows)
            by_name &= _related(source.template, part.template)
            pairs.append(
                (
                    describe(source.template, source.index),
                    describe(part.template, part.index),
                    describe(group.parameter.replace("{}", ""), part.index),
                )
            )
            example = example if example[0] else (source.names[0], part.names[0])
    landed = int((touched & ~was).sum())
    if not landed and not fuses:
        return None
    left = [name for group in groups for name in group.take(np.flatnonzero(~now[group.at])).names]
    lacks = [name for group in lacking for name in group.wanted]
    if set(after.doubled) - set(before.doubled):
        return None  # two keys for one tensor: no renaming at all
    misfits = any(
        not compatible(g.tensors.dtype, g.tensors.template)
        for g in after.keys
        if g.status == "loaded" and g.parameter and touched[g.tensors.at].any()
    )
    return Rename(
        steps=tuple((step.pattern, step.text) for step in steps),
        fuses=fuses,
        example=example,
        renamed=int(touched.sum()),
        proved=not (left or lacks or misfits),
        proof=_words(int(touched.sum()), left, lacks, by_name, before),
        leaves_keys=tuple(left),
        leaves_parameters=tuple(lacks),
        by_name=by_name,
        pairs=tuple(pairs),
    )


def _good(outcome: LoadOutcome, total: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which tensors, by position, load or are skipped on purpose."""
    good = np.zeros(total, dtype=bool)
    for group in outcome.keys:
        if group.status in ("loaded", "ignored"):
            good[group.tensors.at] = True
    return good


def _named(groups: Groups, total: int) -> tuple[Groups, Rows, Rows]:
    """Return the groups, and for each position its group and its row there."""
    number, row = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
    for n, group in enumerate(groups):
        number[group.at] = n
        row[group.at] = np.arange(len(group))
    return groups, number, row


def _renamed(
    tensors: TensorGroup, old: tuple[Groups, Rows, Rows]
) -> Iterator[tuple[TensorGroup, Rows]]:
    """Yield the tensors that were renamed: as they were called, and their rows in `tensors`."""
    groups, number, row = old
    for n in np.unique(number[tensors.at]).tolist():
        rows = np.flatnonzero(number[tensors.at] == n)
        source = groups[n].take(row[tensors.at[rows]])
        same = source.template == tensors.template and np.array_equal(
            source.index, tensors.index[rows]
        )
        if not same:
            yield source, rows


def _related(old: str, new: str) -> bool:
    """Tell whether two names have two segments in common at their ends, or all that the shorter has."""
    a, b = old.split("."), new.split(".")
    end = _common(a[::-1], b[::-1])
    start = _common(a[: len(a) - end], b[: len(b) - end])
    return start + end >= min(2, len(a), len(b))


def _words(
    landed: int, left: list[str], lacks: list[str], by_name: bool, before: LoadOutcome
) -> str:
    engine = f"{before.engine} {before.version}".strip()
    keys = plural(landed, "renamed key")
    if not (left or lacks):
        text = (
            f"{keys}, each for one tensor that {engine} was missing, of the same shape and a "
            "compatible dtype; all keys are used and all tensors are there"
        )
        return text if by_name else f"{text}; but only the shapes match, not the names"
    text = f"{keys} for tensors that {engine} was missing"
    if left:
        text += f"; {len(left)} stay lost ({left[0]}{', …' if len(left) > 1 else ''})"
    if lacks:
        text += f"; {len(lacks)} are still missing ({lacks[0]}{', …' if len(lacks) > 1 else ''})"
    return text


def _choose(found: list[Rename]) -> tuple[Rename, ...]:
    """Order the proposals, proved first, and mark the only proved one as the one to apply."""
    proved = [rename for rename in found if rename.proved]
    partly = sorted((r for r in found if not r.proved), key=_leaves)
    if len(proved) == 1 and proved[0].by_name:
        proved = [structs.replace(proved[0], chosen=True)]
    if proved:
        partly = []
    elif partly:
        partly = [rename for rename in partly if _leaves(rename) == _leaves(partly[0])]
    return tuple((proved + partly)[:SHOWN])


def _leaves(rename: Rename) -> tuple[int, int]:
    """Return how much a partial proof leaves undone, and how many steps it takes."""
    return len(rename.leaves_keys) + len(rename.leaves_parameters), len(rename.steps)
