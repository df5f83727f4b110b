"""Recorded runs of a real engine: what it was asked, what each round emitted, and what hooks recorded.

A folder holds ``requests.jsonl.gz`` (one request a line: ``input_ids``, ``chunks`` as [tokens so far,
milliseconds], ``last`` with ``output_ids`` and ``meta_info``), ``launch.json`` (command and versions) and,
where they were recorded, ``hidden_states.jsonl.gz``, ``hooks.safetensors`` and ``memory.safetensors``.
With one request at a time and ``--stream-interval 1`` each chunk after the first is one round.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shown
from workbench.launch.read import read_record
from workbench.launch.records import Launch
from workbench.speculation.evidence.driving import check_shape
from workbench.speculation.evidence.files import content, json_lines, json_of, left_out
from workbench.speculation.evidence.further import further_of
from workbench.speculation.evidence.tally import HISTOGRAMS, MOST_DRAFTS, is_histogram

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("", "auto", "bfloat16", "float16", "half", "float32", "float")
"""What ``--dtype`` may be; without one, and with ``auto``, the target's config decides."""
_MOST_TOKENS = 1 << 22  # of one request


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One prompt and its answer.

    Attributes
    ----------
    name
        What the run calls it.
    prompt, answer
        Token ids.
    counts
        Answer tokens known after each chunk, the first being the prompt's own token.
    histogram
        The engine's own count of rounds by accepted drafts; empty where it gave none.
    """

    name: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    counts: tuple[int, ...]
    histogram: tuple[int, ...] = ()

    @property
    def text(self) -> tuple[int, ...]:
        """Prompt and answer."""
        return self.prompt + self.answer

    @property
    def starts(self) -> tuple[int, ...]:
        """Tokens known before each round."""
        return tuple(len(self.prompt) + count for count in self.counts[:-1])

    @property
    def emitted(self) -> tuple[int, ...]:
        """Tokens that each round added."""
        return tuple(after - before for before, after in pairwise(self.counts))

    @property
    def explained(self) -> bool:
        """Whether the engine's histogram agrees with the chunks, but for a last round that was cut."""
        if not self.histogram:
            return False
        own = +Counter(dict(enumerate(self.histogram)))
        accepted = [n - 1 for n in self.emitted]
        same = sum(own.values()) == len(accepted)
        return same and not (Counter(accepted[:-1]) - own)


@dataclasses.dataclass(frozen=True, slots=True)
class DraftLaunch:
    """How the engine was started, as far as it matters here.

    Attributes
    ----------
    engine
        ``"sglang==0.5.14"``, empty where no version is known.
    algorithm
        ``EAGLE3``, ``EAGLE`` …; empty without speculation.
    steps, topk, draft_tokens
        Of the tree.
    graphs, backend, dtype
        Whether CUDA graphs were on, the attention backend, the dtype.
    draft, target
        Paths as the command names them.
    overlap
        Whether drafting and scheduling overlap; None: as the version has it by itself.
    notes
        What it does not say, or what is not understood of it.
    unread
        What of it was not understood and may decide what was served: nothing is cleared with it.
    further
        Arguments that change what is accepted and are not among these, with their values.
    """

    engine: str
    algorithm: str = ""
    steps: int = 3
    topk: int = 1
    draft_tokens: int = 4
    graphs: bool = True
    backend: str = ""
    dtype: str = ""
    draft: str = ""
    target: str = ""
    overlap: bool | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    further: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes
    ----------
    source
        The folder.
    notes
        What a reader should know: requests whose chunks are not its rounds, say.
    """

    source: str
    launch: DraftLaunch
    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()

    def some(self, count: int) -> Run:
        """Return the run with its first requests alone."""
        return dataclasses.replace(self, requests=self.requests[:count])

    @property
    def texts(self) -> list[tuple[int, ...]]:
        """Prompt and answer of each request."""
        return [request.text for request in self.requests]

    @property
    def prompts(self) -> list[int]:
        """Length of each prompt."""
        return [len(request.prompt) for request in self.requests]

    @property
    def starts(self) -> list[tuple[int, ...]]:
        """Tokens known before each round of each request."""
        return [request.starts for request in self.requests]

    @property
    def emitted(self) -> list[tuple[int, ...]]:
        """Tokens that each round of each request added."""
        return [request.emitted for request in self.requests]


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a recorded run.

    Raises
    ------
    WorkbenchError
        There is no such folder, or what it holds is no recorded run.
    """
    path = Path(folder)
    lines = json_lines(path / "requests.jsonl.gz")
    if lines is None:
        raise WorkbenchError(
            f"{path} holds no recorded run",
            why="it has no requests.jsonl.gz",
            next_step="Give the folder of one run: launch.json and requests.jsonl.gz.",
        )
    requests, odd, short, uncounted = [], [], 0, 0
    for number, line in enumerate(lines):
        name = _name(line, number)
        try:
            request, counted = _request(line, name, path)
        except WorkbenchError as error:
            odd.append((name, error))
            continue
        uncounted += not counted
        if len(request.counts) > 1:
            requests.append(request)
        else:
            short += 1
    if odd and not requests:
        raise odd[0][1]
    notes = left_out("requests", odd)
    if short:
        notes.append(f"{short} requests have no rounds: answered with one token, or not at all")
    if uncounted:
        notes.append(f"{uncounted} requests have an invalid histogram")
    joined = sum(bool(r.histogram) and not r.explained for r in requests)
    if joined:
        notes.append(f"the chunks of {joined} requests are not the engine's rounds")
    return Run(str(path), read_launch(path), tuple(requests), tuple(notes))


def read_launch(folder: Path) -> DraftLaunch:
    """Read how an engine was started, from ``launch.json``; what it does not say has its default."""
    file = folder / "launch.json"
    data = json_of(content(file), file) if file.is_file() else {}
    data = data if isinstance(data, Mapping) else {}
    versions = data.get("versions")
    named = versions.get("sglang") if isinstance(versions, Mapping) else None
    version = named if isinstance(named, str) else ""
    said = bool(data.get("command") or data.get("resolved"))
    found = read_record(data, str(file)) if said else Launch("", "launch record")
    # A record names the release also where its command is not understood.
    return launch_of(dataclasses.replace(found, version=found.version or version), str(file))


def launch_of(found: Launch, source: str) -> DraftLaunch:
    """Return what a launch says of the draft; its notes say what was not understood.

    Raises
    ------
    WorkbenchError
        Its numbers are of no draft tree.
    """
    notes = []

    def number(name: str, default: int) -> int:
        text = found.value(name)
        if text is None:
            return default
        if text.isascii() and text.isdecimal():
            return int(text[:18])
        notes.append(f"--{name} {shown(text)} is not a number: {default} is taken")
        return default

    steps, topk = number("speculative-num-steps", 3), number("speculative-eagle-topk", 1)
    tokens = number("speculative-num-draft-tokens", steps + 1)
    try:
        check_shape(steps, topk, tokens)
    except WorkbenchError as error:
        raise WorkbenchError(
            f"{source} launches no draft tree",
            why=f"{error.what}; {error.why or error.next_step}",
            next_step="Correct its --speculative-num-steps, -eagle-topk and -num-draft-tokens.",
        ) from None
    if found.argument("speculative-num-steps") is None:
        notes.append(f"the launch names no --speculative-num-steps: {steps} are taken")
    algorithm = (found.value("speculative-algorithm") or "").upper()
    unread = tuple(map(str, found.doubts))
    if not algorithm and unread:
        notes.append("the launch was not understood, and EAGLE3 is taken: " + "; ".join(unread[:2]))
    elif not algorithm:
        notes.append("the launch names no --speculative-algorithm: EAGLE3 is taken")
    if algorithm == "NEXTN":
        algorithm = "EAGLE"
        notes.append("launched as NEXTN, which SGLang runs as EAGLE")
    dtype = (found.value("dtype") or "").lower()
    if dtype not in DTYPES:
        notes.append(f"--dtype {shown(dtype)} is not known: computed in float32")
    off = _on(found, "disable-cuda-graph") or found.value("cuda-graph-backend-decode") == "disabled"
    return DraftLaunch(
        f"sglang=={found.version}" if found.version else "",
        algorithm,
        steps,
        topk,
        tokens,
        graphs=not off,
        backend=found.value("attention-backend") or "",
        dtype=dtype,
        draft=found.draft or "",
        target=found.target or "",
        overlap=_overlap(found),
        notes=tuple(notes),
        unread=unread,
        further=tuple(further_of(found, steps, topk)),
    )


def _on(found: Launch, switch: str) -> bool:
    return found.value(switch) == "true"


def _overlap(found: Launch) -> bool | None:
    """Return whether a launch says that the schedule overlaps with drafting."""
    if _on(found, "disable-overlap-schedule"):
        return False
    said = found.environment.get("SGLANG_ENABLE_SPEC_V2")
    return None if said is None else said.lower() in ("1", "true", "yes", "y", "on")


def read_tensors(folder: str | os.PathLike[str], name: str) -> dict[str, Tensor]:
    """Return the tensors of ``NAME.safetensors`` or ``NAME.safetensors.xz``; none where there is no file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = Path(folder)
    for file in (path / f"{name}.safetensors", path / f"{name}.safetensors.xz"):
        if file.is_file():
            try:
                return dict(load(content(file)))
            except (SafetensorError, ValueError, KeyError) as error:
                raise WorkbenchError(
                    f"{file} holds no tensors", why=str(error), next_step="Copy the file again."
                ) from None
    return {}


@dataclasses.dataclass(frozen=True)
class Hidden:
    """Features that an engine handed out: one row a token of `tokens`, from the first on."""

    name: str
    tokens: tuple[int, ...]
    prompt: int
    rows: Tensor


def read_hidden(folder: str | os.PathLike[str]) -> list[Hidden]:
    """Read ``hidden_states.jsonl.gz``: answers to ``return_hidden_states``, rows joined in order.

    The rows are those of the prompt and of accepted tokens; the last tokens of an answer may have none.
    """
    return hidden_of(folder)[0]


def hidden_of(folder: str | os.PathLike[str]) -> tuple[list[Hidden], list[str]]:
    """Return what `read_hidden` returns, and notes that say which answers are left out, and why."""
    path = Path(folder) / "hidden_states.jsonl.gz"
    found, odd = [], []
    for number, line in enumerate(json_lines(path) or []):
        name = _name(line, number)
        try:
            found.append(_hidden(line, name, path))
        except WorkbenchError as error:
            odd.append((name, error))
    return found, left_out("answers with hidden states", odd)


def _hidden(line: Mapping[str, Any], name: str, path: Path) -> Hidden:
    import torch

    answer = _table(line.get("answer"))
    parts = _table(answer.get("meta_info")).get("hidden_states")
    rows: list[Any] = []
    for part in parts if isinstance(parts, list) else ():
        rows += part if isinstance(part, list) and part and isinstance(part[0], list) else [part]
    try:
        found = torch.tensor(rows, dtype=torch.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise WorkbenchError("its hidden_states are not rows of numbers", why=str(error)) from None
    if found.ndim != 2 or not found.numel():
        raise WorkbenchError("it has no hidden_states")
    prompt = _prompt(line, path)
    tokens = prompt + _ids(answer.get("output_ids"), path)
    # Numbers of bfloat16 that were written with fewer digits are put back.
    nearest = found.bfloat16().float()
    if bool(((nearest - found).abs() <= 1e-5 * found.abs()).all()):
        found = nearest
    return Hidden(name, tokens, len(prompt), found)


def _request(line: Mapping[str, Any], name: str, path: Path) -> tuple[Request, bool]:
    """Return a request, and whether its histogram is one, where it has any."""
    last = _table(line.get("last"))
    meta = _table(last.get("meta_info"))
    prompt, answer = _prompt(line, path), _ids(last.get("output_ids"), path)
    counts: list[int] = []
    chunks = line.get("chunks")
    for chunk in chunks if isinstance(chunks, list) else ():
        count = chunk[0] if isinstance(chunk, list) and chunk else chunk
        if type(count) is int and count > (counts[-1] if counts else 0):
            counts.append(min(count, len(answer)))
    counts = list(dict.fromkeys(counts))
    if any(b - a > MOST_DRAFTS for a, b in pairwise(counts)):
        raise WorkbenchError(
            f"a chunk of request {shown(name, 40)} has more than {MOST_DRAFTS} tokens",
            why="a round cannot emit as many",
            next_step="Record with --stream-interval 1.",
        )
    own: Any = next((meta[key] for key in HISTOGRAMS if meta.get(key) is not None), [])
    counted = is_histogram(own)
    return Request(name, prompt, answer, tuple(counts), tuple(own) if counted else ()), counted


def _name(line: Mapping[str, Any], number: int) -> str:
    name = line.get("prompt")
    return str(name) if type(name) in (str, int) else str(number)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _prompt(line: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    """Return the ids of a prompt; one that is not known is no empty one."""
    ids = _ids(line.get("input_ids"), path)
    if not ids:
        raise WorkbenchError(
            f"{path} holds an answer without input_ids",
            why="its prompt is not known, so it cannot be replayed",
            next_step="Record with input_ids.",
        )
    return ids


def _ids(value: Any, path: Path) -> tuple[int, ...]:
    value = [] if value is None else value
    good = isinstance(value, list) and len(value) < _MOST_TOKENS
    if not good or not all(type(t) is int and 0 <= t < 1 << 31 for t in value):
        raise WorkbenchError(
            f"{path} holds {shown(value, 60)} instead of token ids",
            next_step="Record with input_ids, and keep output_ids of the last chunk.",
        )
    return tuple(value)
