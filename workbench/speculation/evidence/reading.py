"""Evidence of any form at one place: what it is, and what it holds."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.launch.logs import read_log
from workbench.launch.read import read_record
from workbench.speculation.evidence import read_counts, read_dump, read_features, read_metrics
from workbench.speculation.evidence.facts import Facts, Recorded
from workbench.speculation.evidence.files import content, json_lines, json_of, left_out, place_of
from workbench.speculation.evidence.observed import (
    DraftLaunch,
    hidden_of,
    launch_of,
    read_launch,
    read_run,
    read_tensors,
)
from workbench.speculation.evidence.tally import Tally

MOST_SAMPLES = 512  # files of hidden states that are read
_MOST_SAMPLED = 8 << 30  # bytes of them in all
_MOST_BYTES = 256 << 20
_LINES = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".json", ".json.gz", ".json.xz")
_TEXTS = (".log", ".txt", ".out", ".err", ".prom", ".metrics")
_LOGS = tuple(f"{end}{packed}" for end in _TEXTS for packed in ("", ".gz", ".xz"))


def read_facts(place: str | os.PathLike[str]) -> Facts:
    """Read evidence.

    Parameters
    ----------
    place
        A folder or a file: a recorded run of SGLang (``launch.json``, ``requests.jsonl.gz``), answers with
        hidden states, a tensor dump, speculators' ``hs_*.safetensors``, SpecForge's ``*.ckpt``; answers,
        streamed chunks or vLLM's per-request metrics as JSON lines; a log of SGLang or vLLM, a page of their
        Prometheus metrics, the statistics of trtllm-bench, the answer of ``/server_info``.

    Raises
    ------
    WorkbenchError
        There is nothing there, or nothing that is known.
    """
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise WorkbenchError(
            f"{shown(place)} is not a place of evidence",
            next_step="Give the path of a folder or of a file.",
        )
    path = place_of(place)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # a NUL in the name
        raise WorkbenchError(
            f"there is no evidence at {shown(os.fspath(place))}",
            why=getattr(error, "strerror", None) or str(error),
            next_step="Give the folder of a recorded run.",
        ) from None
    try:
        return _folder(path) if path.is_dir() else _file(path)
    except OSError as error:
        raise WorkbenchError(
            f"cannot read the evidence at {path}",
            why=str(error),
            next_step="Ask for read permission, or copy it.",
        ) from None


def _unknown(path: Path, why: str = "") -> WorkbenchError:
    return WorkbenchError(
        f"{path} holds no known evidence",
        why=why or "neither requests, hidden states, dumps, per-request metrics nor a log is in it",
        next_step="Give a recorded run, hs_*.safetensors, answers as JSON lines, or a server's log.",
    )


def _folder(path: Path) -> Facts:
    launch = read_launch(path) if (path / "launch.json").is_file() else None
    memory = read_tensors(path, "memory")
    run = None
    if any((path / f"requests.jsonl{end}").is_file() for end in ("", ".gz")):
        run = read_run(path)
    answers, notes = hidden_of(path)
    hidden = read_features.recorded_of(answers, run)
    counts = _counts_in(path, _LOGS if run is not None else (*_LINES, *_LOGS))
    notes = [*(run.notes if run is not None else ()), *notes, *counts.notes]
    if run is not None and run.requests:
        return Facts(
            str(path), "run", "a recorded run", run, hidden, counts.tally, counts.logged,
            run.launch, memory, tuple(notes),
        )  # fmt: skip
    launch = launch or counts.launch
    if hidden:
        form = "answers of SGLang with hidden states"
        return dataclasses.replace(
            counts, source=str(path), kind="features", form=form, recorded=hidden, launch=launch,
            memory=memory, notes=tuple(notes),
        )  # fmt: skip
    for form, read in _SAMPLES.items():
        recorded, more = read(path)
        notes += more
        if recorded:
            return Facts(
                str(path), "features", form, None, recorded, counts.tally, counts.logged,
                launch, memory, tuple(notes),
            )  # fmt: skip
    if counts.tally is None and counts.logged is None:
        raise _unknown(path, "; ".join(notes))
    return dataclasses.replace(counts, source=str(path), launch=launch, notes=tuple(notes))


def _file(path: Path) -> Facts:
    name = path.name.lower()
    if name.endswith(".safetensors"):
        recorded = (read_features.read_speculators(path),)
        return Facts(str(path), "features", "hidden states of speculators", None, recorded)
    if name.endswith((".ckpt", ".pt")):
        recorded = (read_features.read_specforge(path),)
        return Facts(str(path), "features", "hidden states of SpecForge", None, recorded)
    found = _counts_of([path])
    if found.tally is None and found.logged is None:
        raise _unknown(path, "; ".join(found.notes))
    return found


def _speculators(path: Path) -> tuple[tuple[Recorded, ...], list[str]]:
    files = _files(path, "hs_*.safetensors") or _files(path, "*/hs_*.safetensors")
    return _some(files, read_features.read_speculators)


def _specforge(path: Path) -> tuple[tuple[Recorded, ...], list[str]]:
    files = sorted([*_files(path, "*.ckpt"), *_files(path, "*/*.ckpt")])
    return _some(files, read_features.read_specforge)


def _files(path: Path, pattern: str) -> list[Path]:
    return sorted(file for file in path.glob(pattern) if file.is_file())


def _some(
    files: list[Path], read: Callable[[Path], Recorded]
) -> tuple[tuple[Recorded, ...], list[str]]:
    """Return so many samples as can be held, and notes that say which are left out."""
    found, odd, size, many = [], [], 0, 0
    for file in files[:MOST_SAMPLES]:
        size += file.stat().st_size
        if many and size > _MOST_SAMPLED:
            break
        many += 1
        try:
            found.append(read(file))
        except WorkbenchError as error:
            odd.append((file.name, error))
    if odd and not found:
        raise odd[0][1]
    alike = Counter(one.rows.shape[1] for one in found).most_common(1)
    for one in [one for one in found if one.rows.shape[1] != alike[0][0]]:
        why = f"its rows are {one.rows.shape[1]} wide, those of most are {alike[0][0]}"
        odd.append((one.name, WorkbenchError(why)))
        found.remove(one)
    unread = len(files) - many
    notes = [f"{unread} more samples were not read"] if unread else []
    return tuple(found), [*left_out("samples", odd), *notes]


_SAMPLES = {
    "hidden states of speculators": _speculators,
    "hidden states of SpecForge": _specforge,
    "a tensor dump of SGLang": read_dump.read_dump,
}


_COUNTS = {
    "answers' histograms": read_counts.tally_of_answers,
    "per-request metrics of vLLM": read_counts.tally_of_vllm,
    "streamed chunks": read_counts.tally_of_chunks,
}


def _counts_in(path: Path, ends: tuple[str, ...]) -> Facts:
    files = [f for f in sorted(path.iterdir()) if f.is_file()]
    return _counts_of([f for f in files if f.name.lower().endswith(ends)])


def _counts_of(files: list[Path]) -> Facts:
    """Return what files count: the engine's own histogram goes before chunks, and both before nothing."""
    lines = [line for file in files if file.name.lower().endswith(_LINES) for line in _lines(file)]
    tally, form, notes = _tally(lines)
    logged, launch = None, None
    for file in files:
        if file.name.lower().endswith(_LINES) or logged is not None:
            continue
        text = content(file, _MOST_BYTES, whole=False).decode("utf-8", "replace")
        logged, more = read_counts.logged_of(text)
        notes += more
        launch = launch or (_launch_of(text, file) if logged else None)
        printed = read_metrics.printed_in(text) if logged is None else None
        if printed is not None and tally is None:
            tally, logged, form = printed.tally, printed.logged, printed.form
            launch = launch or printed.launch
            notes += printed.notes
            break
    if tally is None and logged is None:
        logged, more_notes = read_metrics.server_info(lines)
        if logged is not None:
            form, notes = "/server_info of SGLang", [*notes, *more_notes]
            launch = launch or _launch_in(lines[0], files[0])
    source = str(files[0]) if len(files) == 1 else ""
    return Facts(
        source, "counts", form, tally=tally, logged=logged, launch=launch, notes=tuple(notes)
    )


def _launch_in(info: Mapping[str, Any], file: Path) -> DraftLaunch | None:
    """Return the launch in the answer of ``/server_info``: every argument, resolved, and the version."""
    resolved = {name: value for name, value in info.items() if name != "internal_states"}
    version = info.get("version")
    record = {
        "resolved": resolved,
        "versions": {"sglang": version if isinstance(version, str) else ""},
    }
    try:
        return launch_of(read_record(record, str(file)), str(file))
    except WorkbenchError:
        return None


def _tally(lines: list[dict[str, Any]]) -> tuple[Tally | None, str, list[str]]:
    """Return the counts, of which form they are, and what was left out."""
    notes: list[str] = []
    for form, count in _COUNTS.items():
        tally, more = count(lines)
        notes += more
        if tally is not None:
            return tally, form, notes
    return None, "a log", notes


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file: one a line, or one alone, or a list of them."""
    if ".jsonl" in file.name.lower():
        yield from json_lines(file) or ()
        return
    value = json_of(content(file, _MOST_BYTES), file)
    values = value if isinstance(value, list) else [value]
    yield from (item for item in values if isinstance(item, dict))


def _launch_of(text: str, file: Path) -> DraftLaunch | None:
    """Return a launch as a log's arguments tell it; the version is not among them."""
    found = read_log(text, str(file), "")
    return launch_of(found, str(file)) if found.engine == "sglang" else None
