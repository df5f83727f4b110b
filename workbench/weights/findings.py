"""From judged tensors to a verdict on the whole: what matters, in groups, with evidence and a next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import numpy as np

from workbench.checkpoint.templates import describe, group_names
from workbench.core.finding import GRAVITY, Finding
from workbench.core.verdict import Coverage, Verdict
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.coverage import covered
from workbench.weights.faults import (
    constants,
    copies,
    empty,
    limits,
    memory,
    not_finite,
    targets_own,
    vectors,
)
from workbench.weights.kin import BRIEF
from workbench.weights.lacks import AFTER_TIED, lacks
from workbench.weights.names import is_seldom_read
from workbench.weights.part_findings import unused_rows
from workbench.weights.repeated import repeated
from workbench.weights.seen import (
    LINES,
    At,
    Seen,
    corroboration,
    lines,
    names_of,
    power_of,
    step_after_init,
    title_of,
)


def conclude(seen: Seen) -> tuple[Verdict, tuple[Finding, ...]]:
    """Return the verdict on a scan, and its findings."""
    findings = _all(seen)
    findings.sort(key=lambda finding: GRAVITY[finding.severity])
    coverage = covered(seen)
    errors = [finding for finding in findings if finding.severity == "error"]
    limits = f" {seen.limited[:1].upper()}{seen.limited[1:]}." if seen.limited else ""
    if coverage.ok is None:
        sentence = _open(seen, coverage, findings) + limits
        return Verdict("cannot_tell", sentence, "unknown", coverage), tuple(findings)
    if not coverage.ok:
        more = f" ({plural(len(errors) - 1, 'more error')} below)" if len(errors) > 1 else ""
        sentence = f"{errors[0].title}{more}.{limits}"
        return Verdict("wrong", sentence, errors[0].confidence, coverage), tuple(findings)
    what = plural(int(seen.matters.sum()), "matrix", "matrices")
    server = seen.kind == "server"
    sentence = f"All {what}{' that were requested' * server} look trained."
    if seen.matters.sum() == 1:
        sentence = f"The one matrix{' that was requested' * server} looks trained."
    return Verdict("trained", sentence + limits, "likely", coverage, (_OVERTURNED,)), tuple(
        findings
    )


def _all(seen: Seen) -> list[Finding]:
    if seen.changed:
        return lacks(seen)
    return [
        *memory(seen), *not_finite(seen), *_at_init(seen), *constants(seen), *empty(seen),
        *repeated(seen), *_undecided(seen),
        *copies(seen), *targets_own(seen), *unused_rows(seen), *vectors(seen), *limits(seen), *lacks(seen),
    ]  # fmt: skip


_OVERTURNED = "a comparison with the weights from before training that shows no change"


# What leaves the question open, each by a finding of its own.
_OPEN = (
    "weights.unread", "weights.no_elements", "weights.absent", "weights.mismatched", "weights.magnitude",
    "weights.norms", "weights.buffers", "weights.undecided", "weights.seldom_read", "weights.filled_later",
    "weights.not_seen", "weights.empty", "weights.repeated_rows", "weights.tied_differs",
)  # fmt: skip


def _open(seen: Seen, coverage: Coverage, findings: Sequence[Finding]) -> str:
    """Return why a scan cannot be judged, and how much of it looks trained."""
    if seen.changed:
        return f"Cannot tell, because {seen.changed} changed while it was read."
    if not seen.matters.any():
        return "Cannot tell: there is no matrix of weights among what was read."
    item = next(coverage.having("open", essential=True))
    titles = {finding.code: finding.title for finding in reversed(findings)}
    code = next((code for code in _OPEN if code in titles), "")
    first = titles.get(code, "")
    why = first if first else f"{shorten(item.name, 90)}: {item.how}"
    step = f" {AFTER_TIED}" if code == "weights.tied_differs" else ""
    what = plural(int(seen.matters.sum()), "matrix", "matrices")
    trained = len(seen.having("trained"))
    if seen.sampled:
        read, count = (int(seen.tensors.column(name).sum()) for name in ("seen", "count"))
        why = f"{read:,} of {count:,} values were read" + (f", and {first}" if first else "")
        return f"Cannot tell: {why}. Of what was read, {trained:,} of {what} look trained."
    return f"Cannot tell: {why}.{step} {trained:,} of {what} look trained."


# At init.


def _at_init(seen: Seen) -> list[Finding]:
    at = seen.having("at_init")
    seldom = np.array([is_seldom_read(name) for name in names_of(seen, at)], dtype=bool)
    found = [_seldom_read(seen, at[seldom])] if seldom.any() else []
    at = at[~seldom]
    if not len(at):
        return found
    total = int(seen.matters.sum())
    if len(at) == total:
        what = f"All {total:,} matrices" if total > 1 else title_of(seen, at)
        return [*found, _init_finding(seen, at, what)]
    modules, rest = _whole_modules(seen, at)
    for where, exactly, group in modules:
        many = f"{len(group):,} of {len(group):,} matrices"
        found.append(_init_finding(seen, group, f"{shorten(where, 90)}: {many}", exactly))
    by_kind: dict[str, list[int]] = {}
    for i in rest:
        by_kind.setdefault(seen.places[int(i)].kind, []).append(int(i))
    for positions in by_kind.values():
        group = np.array(positions)
        found.append(_init_finding(seen, group, title_of(seen, group)))
    return found


def _whole_modules(seen: Seen, at: At) -> tuple[list[tuple[str, tuple[str, ...], At]], At]:
    """Split tensors at init into modules of which no matrix is trained, each as wide as can be, and the rest.

    Modules of one template are one group: ``layers.{33, 50}.mlp.experts.{3, 17}.*``. Where that names more
    than there are, the modules stand beside it one by one.
    """
    prefixes = {int(i): _prefixes(seen.tensors.names[int(i)]) for i in at}
    bad = Counter(prefix for found in prefixes.values() for prefix in found)
    total = Counter(
        prefix
        for i in np.flatnonzero(seen.matters)
        for prefix in _prefixes(seen.tensors.names[int(i)])
        if prefix in bad
    )
    whole: dict[str, list[int]] = {}
    rest = []
    for i, found in prefixes.items():
        all_bad = [prefix for prefix in found if bad[prefix] == total[prefix] and bad[prefix] > 1]
        if all_bad:
            # As wide as can be, and as narrow as holds the same: layers.0, not layers.
            module = next(p for p in reversed(all_bad) if bad[p] == bad[all_bad[0]])
            whole.setdefault(module, []).append(i)
        else:
            rest.append(i)
    names = list(whole)
    groups = []
    for group in group_names(names):
        members = [i for at_name in group.at.tolist() for i in whole[names[at_name]]]
        product = prod(len(set(column)) for column in group.index.T.tolist())
        exactly = (
            [names[at_name] for at_name in group.at.tolist()] if product > len(group.at) else []
        )
        told = tuple(f"exactly {', '.join(exactly[:LINES])}" for _ in exactly[:1])
        more = (f"and {len(exactly) - LINES:,} more modules",) * (len(exactly) > LINES)
        text = f"{describe(group.template, group.index)}.*"
        groups.append((text, (*told, *more), np.array(members)))
    return groups, np.array(rest, dtype=np.int64)


def _prefixes(name: str) -> list[str]:
    """Return the modules that a tensor is in, the widest first."""
    parts = name.split(".")[:-1]
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _init_finding(seen: Seen, at: At, what: str, exactly: tuple[str, ...] = ()) -> Finding:
    rows = seen.rows(at[:200])
    kinds = Counter(row.family for row in rows if row.family)
    families = " or ".join(kinds) or "values"
    sigmas = [row.sigma for row in rows if row.sigma is not None]
    verb = "are" if len(at) > 1 else "is"
    return Finding(
        "weights.at_init",
        "error",
        f"{what} {verb} indistinguishable from random initialisation ({families}{_sigma(sigmas)})",
        detail=rows[0].reason,
        evidence_for=(
            *exactly,
            *lines(names_of(seen, at)),
            *_siblings(seen, at),
            *corroboration(rows),
        ),
        evidence_against=power_of(rows),
        confidence="likely",
        changes_output=True,
        next_step=step_after_init(seen),
    )


def _sigma(sigmas: Sequence[float]) -> str:
    if not sigmas:
        return ""
    low, high = min(sigmas), max(sigmas)
    return f", σ = {low:.3g}" if high <= low * 1.02 else f", σ = {low:.3g} to {high:.3g}"


def _siblings(seen: Seen, at: At) -> tuple[str, ...]:
    """Contrast with the tensors of the same kinds in other layers."""
    where = seen.places
    mine = {(int(where.stack[i]), int(where.kind[i])) for i in at if where.layer[i] >= 0}
    if not mine:
        return ()
    trained = [
        i for i in seen.having("trained") if (int(where.stack[i]), int(where.kind[i])) in mine
    ]
    if not trained:
        return ()
    layers = len({int(where.layer[i]) for i in trained})
    return (
        f"{plural(len(trained), 'tensor')} of the same kinds in {plural(layers, 'layer')} look trained",
    )


def _seldom_read(seen: Seen, at: At) -> Finding:
    rows = seen.rows(at[:200])
    return Finding(
        "weights.seldom_read",
        "warning",
        f"{title_of(seen, at)} {'is' if len(at) == 1 else 'are'} indistinguishable from random "
        "initialisation, in a head that most uses of the model never read",
        detail=rows[0].reason,
        evidence_for=(*lines(names_of(seen, at)), *corroboration(rows)),
        evidence_against=power_of(rows),
        confidence="likely",
        next_step="Check whether your use of the model reads this head. If it does, it reads noise.",
    )


def _undecided(seen: Seen) -> list[Finding]:
    at = seen.having("undecided")
    at = at[seen.is_read[at]]
    if not len(at):
        return []
    brief = at[seen.tensors.statistic(BRIEF)[at] == 1]
    if len(brief):
        return [*_brief(seen, brief), *_open_question(seen, np.setdiff1d(at, brief))]
    return _open_question(seen, at)


def _brief(seen: Seen, at: At) -> list[Finding]:
    """Return what can be said of matrices at init in a model that moved a little."""
    rows = seen.rows(at[:200])
    total = int(seen.matters.sum())
    what = f"All {total:,} matrices" if 1 < len(at) == total else title_of(seen, at)
    verb = "are" if len(at) > 1 else "is"
    return [
        Finding(
            "weights.undecided",
            "warning",
            f"{what} {verb} indistinguishable from random initialisation: never trained, or trained too "
            "briefly to show it",
            detail=rows[0].reason,
            evidence_for=lines(names_of(seen, at)),
            evidence_against=power_of(rows),
            confidence="unknown",
            next_step="Compare with the weights from before training: scan_weights(before).compare(after). "
            "Without them, ask the trainer for the number of steps.",
        )
    ]


def _open_question(seen: Seen, at: At) -> list[Finding]:
    if not len(at):
        return []
    rows = seen.rows(at[:200])
    step = "Scan again without `sample`." if seen.sampled else ""
    return [
        Finding(
            "weights.undecided",
            "warning",
            f"{title_of(seen, at)} could be trained or at init",
            detail=rows[0].reason,
            evidence_for=lines(names_of(seen, at)),
            evidence_against=power_of(rows),
            confidence="unknown",
            next_step=step
            or "Compare with the weights from before training: scan_weights(before).compare(after).",
        )
    ]
