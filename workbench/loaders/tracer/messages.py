"""What a loader says: its warnings, and its exceptions with the place where they were raised."""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path

# Our files whose functions stand between the engine and torch.
_OURS = {
    str(Path(__file__).with_name(f"{name}.py"))
    for name in ("dispatch", "memory", "messages", "watch")
}


class LogLines(logging.Handler):
    """Collect warnings and worse, from logging and from the warnings module."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line once."""
        line = f"{record.levelname} {record.name}: {record.getMessage()}"
        if line not in self.lines:
            self.lines.append(line)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Listen for a while, also to loggers that keep their records to themselves."""
        known = list(logging.root.manager.loggerDict.values())
        closed = [x for x in known if isinstance(x, logging.Logger) and not x.propagate]
        loggers = [logging.root, *closed]
        logging.captureWarnings(True)
        for logger in loggers:
            logger.addHandler(self)
        try:
            yield
        finally:
            logging.captureWarnings(False)
            for logger in loggers:
                logger.removeHandler(self)


def shorten(error: BaseException, most: int = 500) -> str:
    """Return an exception as text; some engines list every model they know in theirs."""
    text = str(error)
    if len(text) > most:
        text = text[:most] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, ``sglang/srt/models/llama.py:42 load_weights``."""
    frames = list(frames_of(error))
    own = [f for f in frames if not _is_beneath(f[0].f_code.co_filename)] or frames
    if not own:
        return ""
    frame, line = own[-1]
    file = frame.f_code.co_filename
    roots = sorted((p for p in sys.path if p and file.startswith(p.rstrip("/") + "/")), key=len)
    if roots:
        file = file[len(roots[-1].rstrip("/")) + 1 :]
    return f"{file}:{line} {frame.f_code.co_name}"


def _is_beneath(file: str) -> bool:
    """Tell torch's own frames, and ours within them, from the engine's."""
    return "/torch/" in file or file in _OURS


def frames_of(error: BaseException) -> Iterator[tuple[types.FrameType, int]]:
    """Yield the frames that an exception passed, the outermost first, each with its line."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
