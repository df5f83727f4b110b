"""Rules that would bring lost keys home: found on templates, proved on the whole checkpoint.

A rule is found by laying a lost template beside one that the model lacks, of the same shape: what
differs between their common beginning and their common end is the candidate. Candidates compose, up to
`DEPTH`. None is believed: each is applied to all keys and run through the loader's rules again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.checkpoint.templates import Rows, describe, field, fill, group_names, spans
from workbench.engines.outcome import Gap, KeyGroup, LoadOutcome
from workbench.keys.records import Rename

Steps = tuple[tuple[str, str], ...]
Resolve = Callable[[TensorTable], LoadOutcome]

DEPTH = 3  # rules that may be needed one after the other
WIDTH = 6  # candidates followed at each step
SHOWN = 5  # proposals reported

# Projections that models join along the rows: (parts in order, whole).
FUSES = (
    (("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    (("gate_proj", "up_proj"), "gate_up_proj"),
    (("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj_with_mqa"),
    (("query", "key", "value"), "qkv"),
)
_WHOLE_NUMBERS = re.compile(r"\.(weight_packed|weight_shape|qweight|qzeros|weight_g_idx|g_idx)$")


@dataclasses.dataclass(frozen=True)
class _Lost:
    """Lost keys of one template, shape and dtype."""

    template: str
    index: Rows
    shape: tuple[int, ...]
    dtype: str


def propose(table: TensorTable, outcome: LoadOutcome, resolve: Resolve) -> tuple[Rename, ...]:
    """Return the rules that would load what was lost, proved ones first.

    Parameters
    ----------
    table
        The checkpoint's tensors.
    outcome
        What the loader does with them.
    resolve
        The loader's rules: what it would do with another table.

    Returns
    -------
    tuple of Rename
        Empty where nothing was lost, nothing is lacking, or no rule fits. At most one is `chosen`.
    """
    lost = [
        _Lost(group.template, group.index, group.shape, group.dtype)
        for group in outcome.keys
        if group.status == "dropped"
    ]
    gaps = [gap for gap in outcome.gaps if gap.shape is not None]
    if not lost or not any(not gap.optional for gap in gaps):
        return ()
    found = _search(table, outcome, resolve, lost, gaps, ())
    if not any(rename.proved for rename in found):
        fused, fuses = _fused(table, gaps)
        if fuses:
            after = resolve(fused)
            lost = [
                _Lost(g.template, g.index, g.shape, g.dtype)
                for g in after.keys
                if g.status == "dropped"
            ]
            found += _search(fused, after, resolve, lost, list(after.gaps), fuses)
    return _choose(found)


def _search(
    table: TensorTable,
    outcome: LoadOutcome,
    resolve: Resolve,
    lost: list[_Lost],
    gaps: list[Gap],
    fuses: tuple[tuple[str, str], ...],
) -> list[Rename]:
    """Try rules of growing length until one is proved; keep what was proved at that length."""
    prefix = _loader_prefix(outcome)
    level: list[Steps] = [()]
    tried: dict[str, Rename] = {}
    proof = _prove((), table, outcome, resolve, fuses) if fuses else None
    if proof is not None and proof.proved:
        return [proof]
    for _ in range(DEPTH):
        following = [
            (*steps, step)
            for steps in level
            for step in _candidates(_moved(lost, steps), _left(gaps, lost, steps))
        ]
        level = following[: 2 * WIDTH]
        for steps in level:
            rename = _best_spelling(steps, prefix, table, outcome, resolve, fuses)
            if rename is not None:
                tried.setdefault(_landing(rename, lost), rename)
        if any(rename.proved for rename in tried.values()):
            break
    return list(tried.values())


def _candidates(lost: list[_Lost], gaps: list[Gap]) -> list[tuple[str, str]]:
    """Return the most promising single steps: those that bring the most keys to a gap first."""
    open_at: dict[tuple[str, tuple[int, ...] | None], list[Gap]] = {}
    for gap in gaps:
        open_at.setdefault((gap.template.rpartition(".")[2], gap.shape), []).append(gap)
    steps: dict[tuple[str, str], None] = {}
    whole: dict[tuple[str, str], None] = {}
    for group in lost:
        end = group.template.rpartition(".")[2]
        for gap in open_at.get((end, group.shape), ()):
            if compatible(group.dtype, gap.template):
                steps.update(dict.fromkeys(_steps(group, gap)))
        for gap in gaps:
            if gap.shape == group.shape and compatible(group.dtype, gap.template):
                whole.update(dict.fromkeys(_whole(group, gap)))
    ranked = sorted(steps, key=lambda step: (-_score(step, lost, gaps), len(step[0] + step[1])))
    good = [step for step in ranked if _score(step, lost, gaps) > 0][:WIDTH]
    return good or list(whole)[:WIDTH]


def _steps(group: _Lost, gap: Gap) -> Iterator[tuple[str, str]]:
    """Yield the steps that turn one template into the other."""
    old, new = group.template.split("."), gap.template.split(".")
    end = _common(old[::-1], new[::-1])
    # A common end may not eat the whole of a name: the rest is what the step is about.
    end = min(end, len(old), len(new))
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
    group: _Lost, gap: Gap, old: list[str], new: list[str], start: int, end: int
) -> Iterator[tuple[str, str]]:
    """Yield the step for what lies between `start` segments and `end` segments from the end."""
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    before = sum(s == "{}" for s in old[:start])
    numbers_a = [group.index[:, before + c] for c in range(a.count("{}"))]
    numbers_b = [gap.index[:, before + c] for c in range(b.count("{}"))]
    same = len(numbers_a) == len(numbers_b)
    if not same or _constant(numbers_a + numbers_b):
        if not _constant(numbers_a + numbers_b):
            return
        pattern = _segments(a, [re.escape(str(n[0])) for n in numbers_a], re.escape)
        text = _segments(b, [str(n[0]) for n in numbers_b], str)
    else:
        pattern = _segments(a, ["([0-9]+)"] * len(numbers_a), re.escape)
        text = _segments(b, [f"\\{c + 1}" for c in range(len(numbers_b))], str)
    if not start:
        yield f"^{pattern}", text
    elif a and b:
        yield rf"(?<=\.){pattern}", text


def _constant(columns: list[Rows]) -> bool:
    return all(len(c) and (c == c[0]).all() for c in columns)


def _segments(parts: list[str], numbers: list[str], spell: Callable[[str], str]) -> str:
    """Join segments with a dot behind each, numbers in place of ``{}``."""
    dot = spell(".")
    fields = iter(numbers)
    return "".join((next(fields) if part == "{}" else spell(part)) + dot for part in parts)


def _whole(group: _Lost, gap: Gap) -> Iterator[tuple[str, str]]:
    """Yield the step from one whole name to another, for single tensors with nothing in common."""
    if len(group.index) == 1 and len(gap.index) == 1:
        old, new = fill(group.template, group.index)[0], fill(gap.template, gap.index)[0]
        yield f"^{re.escape(old)}$", new


def _score(step: tuple[str, str], lost: list[_Lost], gaps: list[Gap]) -> int:
    """Return how many lost keys a step brings to a gap of their shape."""
    pattern, text = re.compile(step[0]), step[1]
    open_: dict[tuple[str, tuple[int, ...] | None], int] = {}
    for gap in gaps:
        at = gap.template, gap.shape
        open_[at] = open_.get(at, 0) + len(gap.index)
    score = 0
    for group in lost:
        new, hits = pattern.subn(text, fill(group.template, group.index[:1])[0])
        if hits:
            (landed,) = group_names([new])
            score += min(len(group.index), open_.get((landed.template, group.shape), 0))
    return score


def _moved(lost: list[_Lost], steps: Steps) -> list[_Lost]:
    """Return the lost keys under their new names."""
    if not steps:
        return lost
    moved = []
    for group in lost:
        names = apply(steps, fill(group.template, group.index))
        moved += [_Lost(g.template, g.index, group.shape, group.dtype) for g in group_names(names)]
    return moved


def _left(gaps: list[Gap], lost: list[_Lost], steps: Steps) -> list[Gap]:
    """Return the gaps that the steps leave open: all of them, where names were only half changed."""
    if not steps:
        return gaps
    landed = {n for g in _moved(lost, steps) for n in fill(g.template, g.index)}
    left = []
    for gap in gaps:
        keep = [i for i, name in enumerate(fill(gap.template, gap.index)) if name not in landed]
        if keep:
            left.append(dataclasses.replace(gap, index=gap.index[keep]))
    return left


def apply(steps: Steps, names: Sequence[str]) -> list[str]:
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


def _loader_prefix(outcome: LoadOutcome) -> str:
    """Return what the loader itself puts before the keys that it knows, such as ``model.``."""
    for group in outcome.keys:
        plain = group.template.replace("{}", "")
        lands = re.sub(r"\{[0-9]+\}", "", group.parameter)
        if group.status == "loaded" and lands.endswith(plain) and lands != plain:
            return lands[: -len(plain)]
    return ""


def _best_spelling(
    steps: Steps,
    prefix: str,
    table: TensorTable,
    outcome: LoadOutcome,
    resolve: Resolve,
    fuses: tuple[tuple[str, str], ...],
) -> Rename | None:
    """Prove a rule, in the spelling of the keys that load already where that works as well."""
    short = tuple((a, b.removeprefix(prefix)) for a, b in steps)
    full = _prove(steps, table, outcome, resolve, fuses)
    if prefix and short != steps and full is not None:
        other = _prove(short, table, outcome, resolve, fuses)
        if other is not None and (other.proved, other.renamed) >= (full.proved, full.renamed):
            return other
    return full


def _prove(
    steps: Steps,
    table: TensorTable,
    before: LoadOutcome,
    resolve: Resolve,
    fuses: tuple[tuple[str, str], ...],
) -> Rename | None:
    """Apply a rule to the whole checkpoint and see what the loader then does; None if it helps nothing."""
    names = apply(steps, table.names)
    changed = [i for i, (a, b) in enumerate(zip(table.names, names, strict=True)) if a != b]
    if (not changed and steps) or len(set(names)) < len(names):
        return None
    after = resolve(table.renamed(names))
    back = {names[i]: table.names[i] for i in changed}
    landed, left, pairs = [], [], []
    for group in after.keys:
        if group.status in ("dropped", "mismatched"):
            left += [back.get(name, name) for name in group.names]
        else:
            moved = [i for i, name in enumerate(group.names) if name in back]
            landed += [group.names[i] for i in moved]
            pairs += list(_pairs(group, moved, back))
    was_loaded = {n for g in before.keys if g.status in ("loaded", "ignored") for n in g.names}
    if was_loaded.intersection(left):
        return None  # it would break what works
    lacks = [n for g in after.parameters if g.status in ("missing", "partial") for n in g.wanted]
    misfits = [back[n] for n in back.keys() - set(landed)]
    doubled = set(after.doubled) - set(before.doubled)
    if not landed and not fuses:
        return None
    proved = not (left or lacks or misfits or doubled)
    example = back[landed[0]] if landed else ""
    return Rename(
        steps=steps,
        fuses=fuses,
        example=(example, landed[0] if landed else ""),
        renamed=len(landed),
        proved=proved,
        proof=_words(len(landed), left, lacks, sorted(doubled), before),
        leaves_keys=tuple(left),
        leaves_parameters=tuple(lacks),
        pairs=tuple(pairs),
    )


def _pairs(
    group: KeyGroup, moved: list[int], back: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield, by template, what the renamed keys of a group were called and where they land."""
    if not moved:
        return
    index = group.index[moved]
    parameter = group.parameter
    for column in range(index.shape[1]):
        values = {*index[:, column].tolist()}
        text = spans(values) if len(values) == 1 else f"{{{spans(values)}}}"
        parameter = parameter.replace(field(column), text)
    for old in group_names([back[group.names[i]] for i in moved]):
        yield describe(old.template, old.index), describe(group.template, index), parameter


def _words(
    landed: int, left: list[str], lacks: list[str], doubled: list[str], before: LoadOutcome
) -> str:
    engine = f"{before.engine} {before.version}".strip()
    text = f"all {landed} renamed keys land one-to-one on tensors that {engine} lacked, same shape"
    if not (left or lacks or doubled):
        return text + ", compatible dtype; nothing is left over and nothing is missing"
    text = f"{landed} renamed keys land on tensors that {engine} lacked"
    if left:
        text += f"; {len(left)} stay lost ({left[0]}{', …' if len(left) > 1 else ''})"
    if lacks:
        text += f"; {len(lacks)} are still lacking ({lacks[0]}{', …' if len(lacks) > 1 else ''})"
    if doubled:
        text += f"; {doubled[0]} would be written twice"
    return text


def _landing(rename: Rename, lost: list[_Lost]) -> str:
    """Return where a rule takes the lost keys, so that two spellings of one rule count once."""
    names = [fill(g.template, g.index[:1])[0] for g in lost]
    return "\n".join(n.removeprefix("model.") for n in apply(rename.steps, names))


def _fused(table: TensorTable, gaps: list[Gap]) -> tuple[TensorTable, tuple[tuple[str, str], ...]]:
    """Return the checkpoint with parts joined wherever only the model has them joined."""
    wanted = " ".join(gap.template for gap in gaps)
    rows = {row.name: row for row in table}
    fuses = []
    for parts, whole in FUSES:
        if f".{whole}." not in wanted or f".{parts[0]}." in wanted:
            continue
        heads = [name for name in rows if f".{parts[0]}." in f".{name}"]
        done = 0
        for head in heads:
            members = [head.replace(parts[0], part) for part in parts]
            tensors = [rows[m] for m in members if m in rows]
            if len(tensors) < len(parts) or len({t.shape[1:] for t in tensors}) > 1:
                continue
            shape = (sum(t.shape[0] for t in tensors), *tensors[0].shape[1:])
            name = head.replace(parts[0], whole)
            for member in members:
                del rows[member]
            rows[name] = TensorInfo(name, tensors[0].dtype, shape, tensors[0].shard)
            done += 1
        if done:
            fuses.append((" + ".join(parts), whole))
    return TensorTable.from_rows(list(rows.values())), tuple(fuses)


def _choose(found: list[Rename]) -> tuple[Rename, ...]:
    """Order the proposals, proved first, and mark the only proved one as the one to apply."""
    proved = [rename for rename in found if rename.proved]
    partly = sorted((r for r in found if not r.proved), key=lambda r: -r.renamed)
    if len(proved) == 1:
        proved = [dataclasses.replace(proved[0], chosen=True)]
        partly = []
    elif len(proved) > 1:
        partly = []
    elif partly:
        most = partly[0].renamed
        partly = [rename for rename in partly if rename.renamed == most]
    return tuple((proved + partly)[:SHOWN])
