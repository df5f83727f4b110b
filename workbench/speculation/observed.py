"""Recorded runs of a real engine: what it was asked, what each round emitted, and what hooks saw.

A folder holds ``requests.jsonl.gz`` (one request a line: ``input_ids``, ``chunks`` as [tokens so far,
milliseconds], ``last`` with ``output_ids`` and ``meta_info``), ``launch.json`` (command and versions) and,
where they were recorded, ``hidden_states.jsonl.gz``, ``hooks.safetensors`` and ``memory.safetensors``.
With one request at a time and ``--stream-interval 1`` each chunk after the first is one round.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import lzma
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shown

if TYPE_CHECKING:
    from torch import Tensor

_MOST_BYTES = 4 << 30  # of one file, unpacked
_MOST_TOKENS = 1 << 22  # of one request
_HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")


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
class Launch:
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
    launch: Launch
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
    lines = read_lines(path / "requests.jsonl.gz")
    if lines is None:
        raise WorkbenchError(
            f"{path} holds no recorded run",
            why="it has no requests.jsonl.gz",
            next_step="Give the folder of one run: launch.json and requests.jsonl.gz.",
        )
    requests, lost = [], 0
    for number, line in enumerate(lines):
        request = _request(line, str(line.get("prompt", number)), path)
        if len(request.counts) > 1:
            requests.append(request)
        else:
            lost += 1
    notes = []
    if lost:
        notes.append(f"{lost} requests have no round: answered with one token, or not at all")
    joined = sum(bool(r.histogram) and not r.explained for r in requests)
    if joined:
        notes.append(f"of {joined} requests the chunks are not the engine's rounds")
    return Run(str(path), read_launch(path), tuple(requests), tuple(notes))


def read_launch(folder: Path) -> Launch:
    """Read how an engine was started, from ``launch.json``; what it does not say has its default."""
    data = _json(folder / "launch.json")
    command = data.get("command")
    arguments = [str(part) for part in command] if isinstance(command, list) else []
    versions = data.get("versions")
    version = versions.get("sglang") if isinstance(versions, Mapping) else None
    flags = _flags(arguments)

    def number(name: str, default: int) -> int:
        text = flags.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 6 else default

    steps, topk = number("speculative-num-steps", 3), number("speculative-eagle-topk", 1)
    off = "disable-cuda-graph" in flags or flags.get("cuda-graph-backend-decode") == "disabled"
    return Launch(
        engine=f"sglang=={version}" if version else "",
        algorithm=flags.get("speculative-algorithm", "").upper(),
        steps=steps,
        topk=topk,
        draft_tokens=number("speculative-num-draft-tokens", steps + 1),
        graphs=not off,
        backend=flags.get("attention-backend", ""),
        dtype=flags.get("dtype", ""),
        draft=flags.get("speculative-draft-model-path", ""),
        target=flags.get("model-path", ""),
        overlap=_overlap(flags, data.get("environment")),
    )


def _overlap(flags: Mapping[str, str], environment: Any) -> bool | None:
    """Return whether a launch says that the schedule overlaps with drafting."""
    if "disable-overlap-schedule" in flags:
        return False
    said = environment.get("SGLANG_ENABLE_SPEC_V2") if isinstance(environment, Mapping) else None
    return None if said is None else str(said).lower() in ("1", "true", "yes", "y", "on")


def read_tensors(folder: str | os.PathLike[str], name: str) -> dict[str, Tensor]:
    """Return the tensors of ``NAME.safetensors`` or ``NAME.safetensors.xz``; none where there is no file."""
    from safetensors.torch import load

    path = Path(folder)
    for file in (path / f"{name}.safetensors", path / f"{name}.safetensors.xz"):
        if file.is_file():
            return dict(load(_bytes(file)))
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
    import torch

    out: list[Hidden] = []
    for line in read_lines(Path(folder) / "hidden_states.jsonl.gz") or []:
        answer = line.get("answer", {})
        parts = answer.get("meta_info", {}).get("hidden_states") or []
        rows: list[Any] = []
        for part in parts:
            rows += part if part and isinstance(part[0], list) else [part]
        prompt = _ids(line.get("input_ids"), folder)
        tokens = prompt + _ids(answer.get("output_ids"), folder)
        found = torch.tensor(rows, dtype=torch.float32)
        # Numbers of bfloat16 that were written with fewer digits are put back.
        nearest = found.bfloat16().float()
        if found.numel() and bool(((nearest - found).abs() <= 1e-5 * found.abs()).all()):
            found = nearest
        out.append(Hidden(str(line.get("prompt", len(out))), tokens, len(prompt), found))
    return out


def read_lines(path: Path) -> list[dict[str, Any]] | None:
    """Return the objects of a JSON lines file, packed or not; None where there is no such file."""
    if not path.is_file():
        plain = path.with_suffix("")
        if path.suffix != ".gz" or not plain.is_file():
            return None
        path = plain
    out = []
    for number, line in enumerate(_bytes(path).splitlines(), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise WorkbenchError(
                f"line {number} of {path} is no JSON object",
                next_step="Record again, or remove the line.",
            )
        out.append(value)
    return out


def _request(line: Mapping[str, Any], name: str, path: Path) -> Request:
    last = line.get("last")
    last = last if isinstance(last, Mapping) else {}
    meta = last.get("meta_info")
    meta = meta if isinstance(meta, Mapping) else {}
    prompt, answer = _ids(line.get("input_ids"), path), _ids(last.get("output_ids"), path)
    counts: list[int] = []
    for chunk in line.get("chunks") or ():
        count = chunk[0] if isinstance(chunk, list) and chunk else chunk
        if isinstance(count, int) and (not counts or count > counts[-1]) and count > 0:
            counts.append(min(count, len(answer)))
    own: list[Any] = next((meta[key] for key in _HISTOGRAMS if isinstance(meta.get(key), list)), [])
    good = len(own) < 4096 and all(type(n) is int and 0 <= n < 1 << 40 for n in own)
    histogram = tuple(own) if good else ()
    return Request(name, prompt, answer, tuple(dict.fromkeys(counts)), histogram)


def _ids(value: Any, path: Any) -> tuple[int, ...]:
    value = value or []
    good = isinstance(value, list) and len(value) < _MOST_TOKENS
    if not good or not all(type(t) is int and 0 <= t < 1 << 31 for t in value):
        raise WorkbenchError(
            f"{path} holds {shown(value, 60)} where token ids are wanted",
            next_step="Record with input_ids, and keep output_ids of the last chunk.",
        )
    return tuple(value)


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """Return command-line flags without their dashes; the last of a name counts."""
    flags = {}
    for number, part in enumerate(arguments):
        if not part.startswith("--"):
            continue
        name, equals, value = part[2:].partition("=")
        if not equals and number + 1 < len(arguments):
            following = arguments[number + 1]
            value = "" if following.startswith("--") else following
        flags[name.replace("_", "-")] = value
    return flags


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_bytes(path)) if path.is_file() else {}
    except (ValueError, RecursionError):
        raise WorkbenchError(f"{path} is not JSON", next_step="Record again.") from None
    return value if isinstance(value, dict) else {}


def _bytes(path: Path) -> bytes:
    """Return a file's content, unpacked, of a bounded size."""
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        file: IO[bytes]
        with openers.get(path.suffix, open)(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise WorkbenchError(
            f"cannot read {path}", why=str(error), next_step="Copy the file again."
        ) from None
    if len(data) > _MOST_BYTES:
        raise WorkbenchError(f"{path} is larger than {_MOST_BYTES >> 30} GiB unpacked")
    return data
