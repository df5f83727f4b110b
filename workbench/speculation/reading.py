"""Evidence of any form at one place: what it is, and what it holds."""

from __future__ import annotations

import dataclasses
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation import read_counts, read_dump, read_features
from workbench.speculation.facts import Facts, Recorded
from workbench.speculation.observed import (
    Launch,
    read_hidden,
    read_launch,
    read_lines,
    read_run,
    read_tensors,
)

MOST_SAMPLES = 512  # files of hidden states that are read
_MOST_BYTES = 256 << 20
_LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_LOGS = (".log", ".log.gz", ".log.xz", ".txt")


def read_facts(place: str | os.PathLike[str]) -> Facts:
    """Read evidence.

    Parameters
    ----------
    place
        A folder or a file: a recorded run of SGLang (``launch.json``, ``requests.jsonl.gz``), answers with
        hidden states, a tensor dump, speculators' ``hs_*.safetensors``, SpecForge's ``*.ckpt``; answers,
        streamed chunks or vLLM's per-request metrics as JSON lines; a server's log.

    Raises
    ------
    WorkbenchError
        There is nothing there, or nothing that is known.
    """
    path = Path(place).expanduser()
    if not path.exists():
        raise WorkbenchError(
            f"there is no evidence at {path}", next_step="Give the folder of a recorded run."
        )
    found = _folder(path) if path.is_dir() else _file(path)
    if found is None:
        raise WorkbenchError(
            f"{path} holds no evidence that is known",
            why="neither requests, hidden states, dumps, per-request metrics nor a log is in it",
            next_step="Give a recorded run, hs_*.safetensors, answers as JSON lines, or a server's log.",
        )
    return found


def _folder(path: Path) -> Facts | None:
    launch = read_launch(path) if (path / "launch.json").is_file() else None
    memory = read_tensors(path, "memory")
    run = None
    if any((path / f"requests.jsonl{end}").is_file() for end in ("", ".gz")):
        run = read_run(path)
    hidden = read_features.recorded_of(read_hidden(path), run)
    counts = _counts_in(path, _LOGS if run is not None else (*_LINES, *_LOGS))
    if run is not None and run.requests:
        return Facts(
            str(path), "run", "a recorded run", run, hidden, counts.tally, counts.logged,
            run.launch, memory, run.notes,
        )  # fmt: skip
    launch = launch or counts.launch
    if hidden:
        form = "answers of SGLang with hidden states"
        return dataclasses.replace(
            counts, source=str(path), kind="features", form=form, recorded=hidden, launch=launch
        )
    for form, read in _SAMPLES.items():
        recorded, notes = read(path)
        if recorded:
            return Facts(
                str(path), "features", form, None, recorded, counts.tally, counts.logged,
                launch, memory, tuple(notes),
            )  # fmt: skip
    if counts.tally is None and counts.logged is None:
        return None
    return dataclasses.replace(counts, source=str(path), launch=launch)


def _file(path: Path) -> Facts | None:
    name = path.name.lower()
    if name.endswith(".safetensors"):
        recorded = (read_features.read_speculators(path),)
        return Facts(str(path), "features", "hidden states of speculators", None, recorded)
    if name.endswith((".ckpt", ".pt")):
        recorded = (read_features.read_specforge(path),)
        return Facts(str(path), "features", "hidden states of SpecForge", None, recorded)
    found = _counts_of([path])
    return None if found.tally is None and found.logged is None else found


def _speculators(path: Path) -> tuple[tuple[Recorded, ...], list[str]]:
    files = sorted(path.glob("hs_*.safetensors")) or sorted(path.glob("*/hs_*.safetensors"))
    return _some(files, read_features.read_speculators)


def _specforge(path: Path) -> tuple[tuple[Recorded, ...], list[str]]:
    return _some(
        sorted([*path.glob("*.ckpt"), *path.glob("*/*.ckpt")]), read_features.read_specforge
    )


def _some(
    files: list[Path], read: Callable[[Path], Recorded]
) -> tuple[tuple[Recorded, ...], list[str]]:
    left = len(files) - MOST_SAMPLES
    notes = [f"{left} more samples were not read"] if left > 0 else []
    return tuple(read(file) for file in files[:MOST_SAMPLES]), notes


def _dump(path: Path) -> tuple[tuple[Recorded, ...], list[str]]:
    return (read_dump.read_dump(path) if read_dump.passes_of(path) else ()), []


_SAMPLES = {
    "hidden states of speculators": _speculators,
    "hidden states of SpecForge": _specforge,
    "a tensor dump of SGLang": _dump,
}


def _counts_in(path: Path, ends: tuple[str, ...]) -> Facts:
    files = [f for f in sorted(path.iterdir()) if f.is_file()]
    return _counts_of([f for f in files if f.name.lower().endswith(ends)])


def _counts_of(files: list[Path]) -> Facts:
    """Return what files count: the engine's own histogram goes before chunks, and both before nothing."""
    lines = [line for file in files if file.name.lower().endswith(_LINES) for line in _lines(file)]
    tally, notes = read_counts.tally_of_answers(lines)
    form = "answers' histograms"
    if tally is None:
        tally, form = read_counts.tally_of_vllm(lines), "per-request metrics of vLLM"
    if tally is None:
        tally, form = read_counts.tally_of_chunks(lines), "streamed chunks"
    logged, launch = None, None
    for file in files:
        if file.name.lower().endswith(_LOGS) and logged is None:
            text = _unpacked(file).decode("utf-8", "replace")
            logged = read_counts.logged_of(text)
            launch = _launch_of(read_counts.arguments_of_log(text)) if logged else None
    form = form if tally else "a log"
    source = str(files[0]) if len(files) == 1 else ""
    return Facts(
        source, "counts", form, tally=tally, logged=logged, launch=launch, notes=tuple(notes)
    )


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file: one a line, or one alone, or a list of them."""
    if ".jsonl" in file.name.lower():
        yield from read_lines(file) or ()
        return
    try:
        value = json.loads(_unpacked(file))
    except (ValueError, RecursionError):
        raise WorkbenchError(f"{file} is not JSON", next_step="Copy the file again.") from None
    values = value if isinstance(value, list) else [value]
    yield from (item for item in values if isinstance(item, dict))


def _unpacked(file: Path) -> bytes:
    """Return the first 256 MiB of a file, unpacked: a log says the same all along."""
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with openers.get(file.suffix, open)(file, "rb") as stream:
            return bytes(stream.read(_MOST_BYTES))
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise WorkbenchError(
            f"cannot read {file}", why=str(error), next_step="Copy the file again."
        ) from None


def _launch_of(arguments: dict[str, str]) -> Launch | None:
    """Return a launch as a log's arguments tell it; the version is not among them."""

    def number(name: str, default: int) -> int:
        text = arguments.get(f"speculative_{name}", "")
        return int(text) if text.isdecimal() else default

    if not arguments:
        return None
    steps = number("num_steps", 3)
    return Launch(
        engine="",
        algorithm=arguments.get("speculative_algorithm", "").upper(),
        steps=steps,
        topk=number("eagle_topk", 1),
        draft_tokens=number("num_draft_tokens", steps + 1),
        draft=arguments.get("speculative_draft_model_path", ""),
    )


def origin_of(facts: Facts) -> str:
    """Return in words what the evidence is."""
    texts = (
        len(facts.recorded)
        if facts.kind == "features"
        else len(facts.run.requests)
        if facts.run
        else 0
    )
    many = f", {texts:,} requests" if texts else ""
    return f"{facts.form}{many} ({shown(facts.source).strip(chr(39))})"
