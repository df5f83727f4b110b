"""`gate`: whether a draft may be published."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from workbench.checkpoint.open import open_checkpoint
from workbench.core.finding import Finding
from workbench.core.outputs import prepared, writing
from workbench.core.verdict import Coverage, Item, State, Verdict
from workbench.core.wording import plural
from workbench.errors import WorkbenchError, shown
from workbench.facts.engines import spoken
from workbench.loaders.registered import kind_of
from workbench.preflight import matrix
from workbench.preflight.gate_records import Baseline, Cell, Gate

_STATE: dict[bool | None, State] = {True: "ok", False: "wrong", None: "open"}
REQUESTS, NEW_TOKENS, STEPS = 10, 64, 3
_WHOLE = 2 << 30  # bytes up to which every value is looked at
_SAMPLE = 128
_MOST_BASELINE = 16 << 20
_MOST = 12  # findings: those of many releases are mostly the same
PROMPTS = (
    "Explain how a hash table handles collisions.",
    "Write a short story about a lighthouse keeper.",
    "What is the derivative of x squared times sin x?",
    "Translate to French: The train leaves at seven.",
    "List three causes of the First World War.",
    "Write a Python function that reverses a linked list.",
    "Summarise the water cycle in two sentences.",
    "Why is the sky blue?",
    "Give me a recipe for lentil soup.",
    "A shop sells 3 pens for 2 euros. How much do 12 pens cost?",
)
"""What the target is asked if prompts are not given."""


@dataclasses.dataclass(frozen=True)
class _Replayed:
    """What the replay gave: an item, the acceptance length, and the baseline that it makes."""

    item: Item
    accept_length: float | None = None
    made: Baseline | None = None


def gate(
    draft: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str],
    engines: str,
    baseline: str | os.PathLike[str] | None = None,
    save_baseline: str | os.PathLike[str] | None = None,
    prompts: Any = None,
    requests: int = REQUESTS,
    new_tokens: int = NEW_TOKENS,
    tolerance: float = 0.05,
) -> Gate:
    """Ask every release that matters whether it loads a draft, scan its weights, and replay requests.

    Nothing is started but the replay, which computes with target and draft on this machine; it runs only with
    `baseline` or `save_baseline`.

    Parameters
    ----------
    draft, target
        The checkpoints, as folders on this machine.
    engines
        ``"sglang>=0.5.9,vllm"``: of the releases on file, those that are in it.
    baseline
        A file of `save_baseline`: the replay may not accept less than it, by more than `tolerance`.
    save_baseline
        Where the acceptance of this replay is written, for the gates to come.
    prompts
        What the target is asked: texts, lists of token ids, or a file. By default ten short texts.
    requests, new_tokens
        How many of them, and the length of the answers.
    tolerance
        The share by which acceptance length may be lower than the baseline.

    Returns
    -------
    Gate
        ``ok`` is True only if every release loads the draft whole, its weights are trained, and the baseline,
        where one is given, is reached.

    Raises
    ------
    WorkbenchError
        Something cannot be read, or `engines` names no release on file.
    """
    _check_numbers(tolerance, requests, new_tokens)
    folder, verifier = _folder(draft, "draft"), _folder(target, "target")
    _check_target(verifier)
    wanted = matrix.releases(engines)
    stored = _stored(baseline) if baseline is not None else None
    kept = None
    if save_baseline is not None:
        kept = prepared(save_baseline, "result", examined=(str(folder),))
    asked = list(matrix.cells(wanted, draft, target))
    found = tuple(cell for cell, _ in asked)
    items = [*(_item(cell) for cell in found), *_undescribed(found)]
    weights, findings = _weights(draft, target)
    replayed = None
    if stored is not None or kept is not None:
        question = (prompts if prompts is not None else list(PROMPTS), requests, new_tokens)
        replayed = _replay(draft, target, question, stored, tolerance)
        items += [weights, replayed.item]
    else:
        aside = "not asked: give --baseline, or make one with --save-baseline"
        items += [weights, Item("replay", "acceptance", "open", aside, essential=False)]
    if kept is not None and replayed is not None and replayed.made is not None:
        with writing(kept, "result") as out:
            out.write(msgspec.json.encode(replayed.made))
    coverage = Coverage(tuple(items))
    return Gate(
        verdict=_verdict(coverage, found),
        draft=os.fspath(draft),
        target=os.fspath(target),
        digest=digest(folder),
        date=datetime.date.today().isoformat(),
        engines=engines,
        cells=found,
        accept_length=replayed.accept_length if replayed else None,
        baseline=stored.accept_length if stored else None,
        tolerance=tolerance,
        badge=f"loads in {matrix.spans(found)}" if coverage.ok else "",
        findings=_findings(asked, findings),
    )


def _check_target(folder: Path) -> None:
    """Refuse a draft in the place of the target: its keys say nothing about the draft."""
    try:
        named = open_checkpoint(folder).config.architectures
    except WorkbenchError:
        return  # whoever needs it says so
    draft = next((name for name in named if kind_of(name)), "")
    if draft:
        raise WorkbenchError(
            f"{shown(str(folder))} is a draft, and was given as the target",
            why=f"its class is {draft}",
            next_step="Give the checkpoint of the model that is served as --target.",
        )


def _check_numbers(tolerance: object, requests: object, new_tokens: object) -> None:
    share = (
        isinstance(tolerance, int | float)
        and not isinstance(tolerance, bool)
        and 0 <= tolerance < 1
    )
    if not share:
        raise WorkbenchError(f"tolerance={shown(tolerance)} is not a share between 0 and 1")
    for name, number in (("requests", requests), ("new_tokens", new_tokens)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise WorkbenchError(f"{name}={shown(number)} is not a whole number above 0")


def _folder(given: object, role: str) -> Path:
    folder = None
    if isinstance(given, str | os.PathLike):
        try:
            folder = Path(os.fspath(given)).expanduser()
            folder = folder if folder.is_dir() else None
        except (OSError, RuntimeError, TypeError, ValueError):
            folder = None
    if folder is None:
        raise WorkbenchError(
            f"{shown(given)} is not a folder on this machine",
            why="a gate answers for the files that are published",
            next_step=f"Give the folder of the {role}.",
        )
    return folder


def digest(folder: Path) -> str:
    """Return ``sha256:…`` of a checkpoint: of its weights and configs, by name."""
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in (".safetensors", ".bin", ".pt", ".json") and file.is_file():
            one = hashlib.sha256()
            with file.open("rb") as opened:
                while block := opened.read(1 << 20):
                    one.update(block)
            whole.update(f"{file.name}\0{one.hexdigest()}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _item(cell: Cell) -> Item:
    name = spoken(cell.engine, cell.version)
    state = _STATE[cell.ok] if cell.described else "open"
    return Item("release", name, state, cell.text, essential=cell.described)


def _undescribed(found: tuple[Cell, ...]) -> Iterator[Item]:
    """Yield an open item for an engine of which no release that was asked for is described."""
    for engine in dict.fromkeys(one.engine for one in found):
        if not any(one.described for one in found if one.engine == engine):
            text = "the loader of no release that was asked for is described here"
            yield Item("engine", spoken(engine), "open", text)


def _weights(draft: Any, target: Any) -> tuple[Item, tuple[Finding, ...]]:
    from workbench.checkpoint.open import open_checkpoint
    from workbench.weights.scan import scan_weights

    opened = open_checkpoint(draft)
    size = sum(file.stat().st_size for file in Path(draft).expanduser().iterdir() if file.is_file())
    try:
        found = scan_weights(opened, target=target, sample=None if size < _WHOLE else _SAMPLE)
    except WorkbenchError as error:
        return Item("weight", "weights", "open", error.brief), ()
    return Item("weight", "weights", _STATE[found.ok], found.summary), found.findings


def _stored(path: Any) -> Baseline:
    why = "it is no path of a file"
    try:
        file = Path(os.fspath(path)).expanduser()
        if file.is_file():  # a pipe or a device would be read for ever
            with file.open("rb") as opened:
                return msgspec.json.decode(opened.read(_MOST_BASELINE), type=Baseline)
    except (OSError, RuntimeError, TypeError, ValueError, msgspec.MsgspecError) as error:
        why = str(error)
    raise WorkbenchError(
        f"{shown(str(path) if isinstance(path, Path) else path)} is not a baseline",
        why=why,
        next_step="Make one with --save-baseline FILE, from a draft that is known to be good.",
    )


def _replay(
    draft: Any,
    target: Any,
    question: tuple[Any, int, int],
    stored: Baseline | None,
    tolerance: float,
) -> _Replayed:
    """Replay some requests, and compare what is accepted with the baseline."""
    from workbench.speculation.replaying import replay

    prompts, requests, new_tokens = question
    try:
        found = replay(
            target, draft, prompts, steps=STEPS, requests=requests, new_tokens=new_tokens
        )
    except WorkbenchError as error:
        return _Replayed(Item("replay", "acceptance", "open", error.brief))
    length = found.accept_length
    if length is None or found.replayed is None:
        return _Replayed(Item("replay", "acceptance", "open", found.summary))
    made = Baseline(
        accept_length=length, rounds=found.replayed.rounds, requests=requests, new_tokens=new_tokens,
        steps=STEPS, prompts=_sum_of_prompts(prompts), target=_sum_of_config(target), draft=os.fspath(draft),
        date=datetime.date.today().isoformat(),
    )  # fmt: skip
    text = f"acceptance length {length:.2f} in {made.rounds} rounds"
    if found.ok is False:
        return _Replayed(Item("replay", "acceptance", "wrong", found.summary), length, made)
    if stored is None:
        return _Replayed(
            Item("replay", "acceptance", "open", f"{text}: the baseline", essential=False),
            length,
            made,
        )
    other = _differs(made, stored)
    if other:
        how = f"the baseline is of another question: {other}"
        return _Replayed(Item("replay", "acceptance", "open", how), length, made)
    floor = stored.accept_length * (1 - tolerance)
    state: State = "ok" if length >= floor else "wrong"
    how = f"{text}; the baseline has {stored.accept_length:.2f}, and {floor:.2f} is the least"
    return _Replayed(Item("replay", "acceptance", state, how), length, made)


def _differs(made: Baseline, stored: Baseline) -> str:
    """Return in what two baselines are of different questions, "" where they are of the same."""
    for name in ("prompts", "target", "requests", "new_tokens", "steps"):
        if getattr(made, name) != getattr(stored, name):
            return f"its {name.replace('_', ' ')} differ"
    return ""


def _sum_of_prompts(prompts: Any) -> str:
    if isinstance(prompts, str | os.PathLike):
        return hashlib.sha256(Path(prompts).read_bytes()).hexdigest()
    return hashlib.sha256(msgspec.json.encode(prompts)).hexdigest()


def _sum_of_config(target: Any) -> str:
    file = Path(target).expanduser() / "config.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _findings(
    asked: list[tuple[Cell, tuple[Any, ...]]], weights: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """Return what was found, each once, with the releases that it was found in besides the first."""
    found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for cell, ones in asked:
        for one in ones:
            if one.severity != "error":
                continue
            # A title that names the release says the same of another one.
            title = one.title.replace(cell.version, "")
            _, also = found.setdefault((one.code, title), (one, []))
            also.append(f"{cell.engine} {cell.version}")
    kept = [_with_others(one, also[1:]) for one, also in found.values()]
    return tuple([*kept, *(one for one in weights if one.severity == "error")][:_MOST])


def _with_others(finding: Finding, also: Sequence[str]) -> Finding:
    """Return a finding that names the other releases in which it was found."""
    if not also:
        return finding
    names = ", ".join(also[:3]) + (f" … {also[-1]}" if len(also) > 3 else "")
    said = f"the same in {plural(len(also), 'other release')}: {names}"
    return dataclasses.replace(finding, evidence_for=(*finding.evidence_for, said))


def _verdict(coverage: Coverage, found: tuple[Cell, ...]) -> Verdict:
    ok = coverage.ok
    doubt = ("a release's real loader doing otherwise",)
    if ok:
        return Verdict(
            "passes", f"The draft loads in {matrix.spans(found)}.", "likely", coverage, doubt
        )
    if ok is False:
        return Verdict(
            "fails", f"The draft does not pass. {_why(coverage)}", "certain", coverage, doubt
        )
    item = next(coverage.having("open", essential=True))
    count = sum(1 for _ in coverage.having("open", essential=True))
    more = f" {plural(count - 1, 'more item')} open." if count > 1 else ""
    return Verdict(
        "cannot_tell",
        f"Cannot tell: {item.name}: {item.how.rstrip('.')}.{more}",
        "unknown",
        coverage,
    )


def _why(coverage: Coverage) -> str:
    wrong = list(coverage.having("wrong", essential=True))
    of_releases = [item for item in wrong if item.kind == "release"]
    parts = []
    if of_releases:
        total = sum(item.kind == "release" and item.essential for item in coverage.items)
        parts.append(
            f"{len(of_releases)} of {total} releases do not load it whole: {of_releases[0].how}"
        )
    parts += [f"{item.name.capitalize()}: {item.how}" for item in wrong if item.kind != "release"]
    return " ".join(f"{part.rstrip('.')}." for part in parts)


def badges(found: Gate, page: str) -> Iterator[tuple[str, str]]:
    """Yield the badge as ``badge.svg`` and as ``badge.md``, both with the doubts one click away.

    Raises
    ------
    WorkbenchError
        The coverage is not closed: there is no badge.
    """
    if not found.badge:
        raise WorkbenchError(
            "there is no badge for this draft",
            why=found.summary,
            next_step="Settle what is wrong or open, and run the gate again.",
        )
    from workbench.preflight.badge import markdown, svg

    about = f"{basis_of(found)}; {found.date}; {found.digest[:19]}"
    yield "badge.svg", svg(found.badge, about, page)
    yield "badge.md", markdown(found.badge, about, page)


def basis_of(found: Gate) -> str:
    """Return on what the cells rest, the weakest first: ``profile read from source``."""
    words = {
        "profile_source_read": "profiles read from source",
        "profile_verified": "profiles checked against the real loaders",
        "harvested": "maps of the real loaders",
        "traced": "real loaders",
    }
    seen = {one.basis for one in found.cells}
    return ", ".join(text for name, text in words.items() if name in seen) or "not known"
