"""From what a loader does to what that means: the verdict, its line, and the findings about keys."""

from __future__ import annotations

import shlex
from textwrap import shorten

from workbench.core.finding import Confidence, Finding
from workbench.core.verdict import Coverage, Verdict
from workbench.core.wording import plural
from workbench.keys.records import Rename
from workbench.loaders.outcome import KeyGroup, LoadOutcome, Outcome, ParameterGroup
from workbench.loaders.profile import Basis

# How sure each basis is, the surest first.
SURENESS: tuple[Basis, ...] = ("traced", "profile_verified", "harvested", "profile_source_read")
BASES = {
    "traced": "traced: the real loader ran",
    "profile_verified": "profile checked against this version's real loader",
    "harvested": "harvested: this class's real loader ran on synthetic keys in this release",
    "profile_source_read": "profile read from this engine's source, not run",
}


# How sure an answer is that rests on each: a profile that was only read may have been misread.
_SURE: dict[Basis, Confidence] = {
    "traced": "certain",
    "profile_verified": "certain",
    "harvested": "likely",
    "profile_source_read": "likely",
}
_OVERTURNED = "the engine's own loader, run with --python, doing otherwise"


def basis_text(engine: str, basis: Basis) -> str:
    """Return in words what an answer rests on."""
    if engine == "torch" and basis != "traced":
        return "names and shapes compared, as load_state_dict does"
    return BASES[basis]


def of(outcome: Outcome, basis: Basis, coverage: Coverage, sentence: str) -> Verdict:
    """Return the verdict on keys; whether it is one follows from the coverage."""
    state: str
    sure: Confidence
    if coverage.ok is None:
        state, sure = "cannot_tell", "unknown"
    elif outcome != "loads":
        state, sure = outcome, _SURE[basis]
    else:
        state, sure = ("loads" if coverage.ok else "wrong"), _SURE[basis]
    overturned = () if basis == "traced" else (_OVERTURNED,)
    return Verdict(state, sentence, sure, coverage, overturned)


def summary_line(
    outcome: LoadOutcome, findings: tuple[Finding, ...], why: str, uncovered: str
) -> str:
    """Return the verdict in one line or two."""
    who = f"{outcome.engine} {outcome.version}".strip()
    if uncovered:
        return f"Cannot tell: the profile of {who} does not describe this checkpoint ({uncovered})."
    known = _known(outcome, findings, who)
    return f"Cannot tell: {why}. As far as is known: {known}" if why else known


def _known(outcome: LoadOutcome, findings: tuple[Finding, ...], who: str) -> str:
    total = sum(len(group) for group in outcome.keys)
    losses = _losses(outcome, total)
    if outcome.outcome == "refused":
        text = f"{who} refuses this config. {_clause(outcome.error)}."
        if outcome.parameters:
            would = _joined([verb + rest for verb, _, rest in losses]) or "load everything"
            text += f" With the config flattened it would {would}."
        return text
    if outcome.outcome == "raises":
        return f"{who} stops while loading. {_clause(outcome.error)}."
    if losses:
        return f"{who} {_joined([verb + s + rest for verb, s, rest in losses])}."
    skipped = sum(len(g) for g in outcome.keys if g.status == "ignored")
    some = (
        f"{total - skipped:,} of {plural(total, 'key')}"
        if skipped
        else f"All {plural(total, 'key')}"
    )
    broken = [f for f in findings if f.changes_output and f.severity != "note"]
    if broken:
        return f"{some} load in {who}, but: {broken[0].title}."
    aside = f", {skipped} {'is' if skipped == 1 else 'are'} skipped on purpose" if skipped else ""
    return f"{some} load in {who}{aside}, and every parameter is filled."


def _clause(text: str) -> str:
    """Return the first statement of a longer explanation, as the beginning of a sentence."""
    first = text.strip().splitlines()[0] if text.strip() else "the engine gives no reason"
    parts = first.split("; ") if len(first) < 120 else first.split(": ")
    # What precedes the first colon may be no more than an exception's name.
    first = parts[0] if len(parts[0].split()) > 2 or len(parts) == 1 else ": ".join(parts[:2])
    first = shorten(first.rstrip("."), 160, placeholder=" …")
    # A key or a file at the beginning keeps its spelling.
    return first[:1].upper() + first[1:] if first.split(" ")[0].isalpha() else first


def _losses(outcome: LoadOutcome, total: int) -> list[tuple[str, str, str]]:
    """Return what goes wrong, each as a verb, its ending for one engine, and the rest."""
    lost = [g for g in outcome.keys if g.status == "dropped"]
    dropped = sum(map(len, lost))
    wrong = sum(len(g) for g in outcome.keys if g.status == "mismatched")
    unfilled = sum(len(g.index) for g in outcome.parameters if g.status == "missing")
    part = sum(len(g.index) for g in outcome.parameters if g.status == "partial")
    silent = "" if _warned(lost) or outcome.outcome == "raises" else "silently "
    found = [
        (dropped, f"{silent}ignore", f" {dropped:,} of {plural(total, 'key')}"),
        (wrong, "get", f" {plural(wrong, 'key')} of the wrong shape or dtype"),
        (unfilled, "leave", f" {plural(unfilled, 'parameter')} unfilled"),
        (part, "fill", f" {plural(part, 'parameter')} only in part"),
    ]
    return [(verb, "s", rest) for count, verb, rest in found if count]


def _joined(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def findings(
    outcome: LoadOutcome, renames: tuple[Rename, ...], checkpoint: str, uncovered: str
) -> list[Finding]:
    """Return the findings about lost, misshapen and missing tensors, each with its next step."""
    if uncovered:
        return []
    found: list[Finding] = []
    if outcome.outcome == "refused":
        found.append(_refused(outcome, checkpoint))
    lost = [g for g in outcome.keys if g.status == "dropped"]
    lacking = [g for g in outcome.parameters if g.status in ("missing", "partial")]
    if lost and (outcome.parameters or outcome.outcome != "refused"):
        found.append(_lost(outcome, lost, lacking, renames, checkpoint))
    elif lacking:
        found.append(_lacking(outcome, lacking))
    wrong = [g for g in outcome.keys if g.status == "mismatched"]
    if wrong:
        found.append(_misshapen(outcome, wrong))
    found += [_unused(group) for group in outcome.parameters if group.unused]
    if outcome.doubled:
        found.append(_doubled(outcome))
    return found


def _who(outcome: LoadOutcome) -> str:
    return f"{outcome.engine} {outcome.version}".strip()


def _fix(outcome: LoadOutcome, checkpoint: str) -> str:
    """Return the command that writes a repaired copy."""
    engine = f"{outcome.engine}=={outcome.version}" if outcome.version else outcome.engine
    return f"workbench fix {shlex.quote(checkpoint)} {engine} -o REPAIRED"


def _refused(outcome: LoadOutcome, checkpoint: str) -> Finding:
    flat = bool(outcome.parameters)
    return Finding(
        code="config_refused",
        severity="error",
        title=f"{_who(outcome)} does not accept this config.json",
        detail=outcome.error,
        evidence_for=("the keys below are judged with the config flattened",) if flat else (),
        changes_output=True,
        place=outcome.place,
        next_step=f"`{_fix(outcome, checkpoint)}` writes a copy with a config that it reads."
        if flat
        else "Use an engine or a version that knows this config.",
    )


def _lost(
    outcome: LoadOutcome,
    lost: list[KeyGroup],
    lacking: list[ParameterGroup],
    renames: tuple[Rename, ...],
    checkpoint: str,
) -> Finding:
    count = sum(len(g) for g in lost)
    unfilled = sum(len(g.index) for g in lacking)
    stops = outcome.outcome == "raises"
    how = "stops at" if stops else "warns of and ignores" if _warned(lost) else "silently ignores"
    evidence = _first([f"{g.text}: {g.reason}" for g in lost], "template")
    evidence += _first([f"{g.text} {_state(g)}" for g in lacking], "template")
    return Finding(
        code="keys_lost",
        severity="error",
        title=f"The loader {how} {plural(count, 'key')}: {'they match' if count > 1 else 'it matches'} "
        "no parameter",
        detail=_left(unfilled) if unfilled and not stops else "",
        evidence_for=evidence,
        changes_output=True,
        place=lost[0].place,
        next_step=_repair(outcome, renames, checkpoint),
    )


def _left(count: int) -> str:
    """Say what is in parameters that nothing wrote."""
    many = f"{plural(count, 'parameter')} that the checkpoint should fill {'keep' if count > 1 else 'keeps'}"
    return (
        f"{many} what the engine allocated: uninitialised memory in linear layers, ones in norms."
    )


def _first(texts: list[str], what: str, most: int = 3) -> tuple[str, ...]:
    """Return the first few texts, and how many more there are."""
    more = len(texts) - most
    return (*texts[:most], f"… and {plural(more, f'more {what}')}") if more > 0 else tuple(texts)


def _warned(lost: list[KeyGroup]) -> bool:
    return all("warning" in group.reason for group in lost)


def _state(group: ParameterGroup) -> str:
    if group.status == "partial":
        lacks = ", ".join(group.wanted[:3]) + (", …" if len(group.wanted) > 3 else "")
        return f"is {group.fraction:.1%} written; {lacks} missing"
    return "is not written"


def _repair(outcome: LoadOutcome, renames: tuple[Rename, ...], checkpoint: str) -> str:
    chosen = next((r for r in renames if r.chosen), None)
    if chosen is not None:
        if outcome.engine == "torch":
            return f"Rename `{chosen.text}`: this rule is proved."
        fix = _fix(outcome, checkpoint)
        return f"Run `{fix}`. It renames `{chosen.text}`, which is proved."
    if sum(r.proved for r in renames) == 1:
        return (
            "One rename fits (below), but only by shape. Apply it only if the names mean the same."
        )
    if any(r.proved for r in renames):
        return "Several renames fit equally well (below). Choose by the program that wrote the checkpoint."
    if renames:
        return f"`{renames[0].text}` repairs a part: {renames[0].proof}."
    return (
        "These keys cannot be renamed to what is missing. Check which program wrote the checkpoint."
    )


def _lacking(outcome: LoadOutcome, lacking: list[ParameterGroup]) -> Finding:
    count = sum(len(g.index) for g in lacking)
    wanted = [name for g in lacking for name in g.wanted]
    return Finding(
        code="tensors_missing",
        severity="error",
        title=f"The checkpoint lacks {plural(len(wanted), 'tensor')} that {_who(outcome)} needs",
        detail=_left(count),
        evidence_for=_first([f"{g.text} {_state(g)}" for g in lacking], "template", 6),
        changes_output=True,
        place=outcome.place,
        next_step=f"Find {wanted[0]} among the trained weights, and save it with the checkpoint."
        if wanted
        else "Find these parameters among the trained weights, and save them with the checkpoint.",
    )


def _misshapen(outcome: LoadOutcome, wrong: list[KeyGroup]) -> Finding:
    count = sum(len(g) for g in wrong)
    return Finding(
        code="shapes_differ",
        severity="error",
        title=f"{plural(count, 'key')} of a shape or dtype that {_who(outcome)} does not expect",
        evidence_for=_first([f"{g.text}: {g.reason}" for g in wrong], "template", 6),
        changes_output=True,
        place=wrong[0].place,
        next_step="Compare config.json with the weights: sizes, heads and vocabulary must match.",
    )


def _unused(group: ParameterGroup) -> Finding:
    return Finding(
        code="loaded_but_unused",
        severity="warning",
        title=f"{group.text} is loaded, but the forward pass does not read it",
        detail=group.unused,
        next_step="Compare what the trainer computes with what this engine computes.",
    )


def _doubled(outcome: LoadOutcome) -> Finding:
    return Finding(
        code="written_twice",
        severity="warning",
        title=f"{plural(len(outcome.doubled), 'tensor')} written by more than one key: the last key wins",
        evidence_for=outcome.doubled[:6],
        next_step="Save each tensor once. Which one the engine keeps depends on the order of the files.",
    )
