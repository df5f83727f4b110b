"""The tracebacks of a log: where it stopped, by the frames and not by the last line of the log."""

from __future__ import annotations

import dataclasses
import re

from workbench.facts import engine_phases, engines
from workbench.facts.known_causes import CAUSES, SYMPTOMS, KnownCause

_BEGINS = "Traceback (most recent call last):"
_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,7}), in ([\w.<>]{1,200})')
_ERROR = re.compile(
    r"^[^\S\n]*(?:\[?[\w:.\-, ]{0,60}\]\s+)?"
    r"((?:[A-Za-z_][\w.]{0,80}\.)?"
    r"(?:[A-Z]\w{2,60}(?:Error|Exception|Exit|Interrupt)\b|(?:Exception|Error)(?=:|$)).{0,400})$",
    re.M,
)
_MOST_TRACEBACKS = 40
_MOST_LINES = 400
PHASES = {
    "dist_init": "the process groups are made",
    "weights": "the models are loaded",
    "load_barrier": "the models are loaded",
    "kv_pool": "memory is allocated",
    "draft_embed": "the draft takes over embedding and head",
    "graph_decode": "CUDA graphs are captured",
    "graph_prefill": "CUDA graphs are captured",
    "graph_draft": "CUDA graphs of the draft are captured",
    "warmup": "the first request is served",
    "ready": "a request is served",
}
_SERVING = re.compile(
    r"event_loop_|run_batch|forward_batch_generation|_process_engine_step|busy_loop"
)


@dataclasses.dataclass(frozen=True)
class Trace:
    """One traceback.

    Attributes
    ----------
    phase
        As `facts.startup` names it, ``request`` while it serves, "" where the frames do not say.
    error
        Its last line, "" where the text ends before it.
    frames
        (function, file), the leaf first; () where the text has the last line alone.
    text
        All of it.
    """

    engine: str
    phase: str
    error: str
    frames: tuple[tuple[str, str], ...]
    text: str

    @property
    def when(self) -> str:
        """When it stopped, in words; "" where that is not known."""
        return "a request is served" if self.phase == "request" else PHASES.get(self.phase, "")

    @property
    def said(self) -> str:
        """The error; of one without words also where it was raised."""
        if ":" in self.error or not self.frames:
            return self.error
        function, file = self.frames[0]
        return f"{self.error} in {function} ({file.rpartition('/')[2]})"


def read(text: str, version: str = "") -> tuple[Trace, ...]:
    """Return the tracebacks of a text, first things first, each of its kind once.

    Of a text without any, the first line that is an exception's.
    """
    found: dict[tuple[str, str], Trace] = {}
    for part in _parts(text)[:_MOST_TRACEBACKS]:
        lines = part.splitlines()[:_MOST_LINES]
        block = "\n".join(lines)
        error = _ERROR.search(block)
        body = block[: error.end()] if error else block
        frames = tuple((m[3], m[1]) for m in reversed(list(_FRAME.finditer(body))))
        engine = engines.engine_of_files(file for _, file in frames)
        phase = engine_phases.phase_of_stack(engine, frames, version)
        if phase == "spawn":  # each traceback of a scheduler begins in the function that starts it
            phase = ""
        if not phase and any(_SERVING.search(function) for function, _ in frames):
            phase = "request"
        line = error[1].strip() if error else ""
        found.setdefault((phase, line[:80]), Trace(engine, phase, line[:300], frames, body))
    alone = _ERROR.search(text) if not found else None
    if alone is not None:  # a message often has no more than the last line
        return (Trace("", "", alone[1].strip()[:300], (), alone[0]),)
    return tuple(found.values())


def _parts(text: str) -> list[str]:
    """Return the texts behind each beginning of a traceback; of a message, that of the first frame."""
    parts = text.split(_BEGINS)[1:]
    if parts:
        return parts
    frame = _FRAME.search(text)
    return [text[frame.start() :]] if frame is not None else []


def first(traces: tuple[Trace, ...]) -> Trace | None:
    """Return the traceback that counts: the first with an engine's frames and an error."""
    whole = [one for one in traces if one.error]
    return next((one for one in whole if one.engine), whole[0] if whole else None)


def known(text: str, trace: Trace | None, speculative: bool | None) -> tuple[KnownCause, ...]:
    """Return the known causes that a text names: of its traceback first, then of its other lines.

    Parameters
    ----------
    speculative
        Whether the launch has a draft; None where that is not known.
    """
    scopes = [trace.text, text] if trace is not None else [text]
    found: dict[str, tuple[int, KnownCause]] = {}
    for cause in CAUSES:  # of two rows with one code the earlier one says more
        if cause.code in found or (cause.speculative and speculative is False):
            continue
        for at, scope in enumerate(scopes):
            if cause.pattern.search(scope) and (not cause.frames or cause.frames in scope):
                found[cause.code] = (at, cause)
                break
    return tuple(cause for _, cause in sorted(found.values(), key=lambda one: one[0]))


def symptom(text: str) -> KnownCause | None:
    """Return what the words of a person say that names no cause, None where they say nothing."""
    return next((one for one in SYMPTOMS if one.pattern.search(text)), None)
