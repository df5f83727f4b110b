"""The line with its faults corrected, ready to paste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from workbench.evidence.redact import LEFT_OUT, is_secret
from workbench.launch import holes
from workbench.launch.records import Launch
from workbench.launch.rules.records import Edit

_PROGRAMS = {
    "sglang serve": "sglang serve", "": "python3 -m sglang.launch_server",
    "launch_server.py": "python3 launch_server.py", "sglang": "sglang serve",
}  # fmt: skip
_PLAIN = re.compile(r"\$\w+")


def corrected(words: Sequence[str], edits: Iterable[Edit]) -> list[str]:
    """Return the words behind a server with some changes made."""
    made = list(words)
    for edit in edits:
        spans = list(_spans(made, edit.option))
        if not spans:
            if edit.value is not None and edit.option.startswith("--") and not edit.rename:
                made += [edit.option, *edit.value.split()]
            continue
        # The last of an option holds; a changed value replaces every other.
        start, end = spans[-1]
        for other, until in reversed(spans[:-1]):
            del made[other:until]
            start, end = start - (until - other), end - (until - other)
        made[start:end] = _replaced(made[start:end], edit)
    return made


def _spans(words: Sequence[str], option: str) -> Iterable[tuple[int, int]]:
    for at, word in enumerate(words):
        head, equals, _ = word.partition("=")
        if head != option:
            continue
        end = at + 1
        if not equals and option.startswith("-"):
            while end < len(words) and not re.match(r"--?[A-Za-z]", words[end]):
                end += 1
        yield at, end


def _replaced(words: Sequence[str], edit: Edit) -> list[str]:
    if edit.rename:
        if edit.rename == edit.option and edit.value is None:  # a switch loses its value
            return [edit.option]
        _, equals, value = words[0].partition("=")
        rest = (
            edit.value.split() if edit.value is not None else [value] if equals else list(words[1:])
        )
        return [edit.rename, *rest]
    return [] if edit.value is None else [edit.option, *edit.value.split()]


def line_of(launch: Launch, words: Sequence[str]) -> str:
    """Return the command with these words behind the server, as one pastes it.

    Where the server is started by another command (a container, a shell), its own line is returned.
    """
    shown = tuple(holes.shown(word) for word in launch.options)
    whole = launch.words
    count = len(shown)
    if count and whole[-count:] == shown:
        before = list(whole[: len(whole) - count])
    else:
        name = launch.program
        module = f"python3 -m {name}" if "." in name else name  # else a command of its own
        before = _PROGRAMS.get(name, module).split()
    return " ".join([*map(_quoted, before), *_safe(words)])


def _safe(words: Sequence[str]) -> list[str]:
    """Return the words, quoted for a shell, without secrets."""
    made: list[str] = []
    hide = False
    for word in words:
        head, equals, _ = word.partition("=")
        if hide:
            made.append(shlex.quote(LEFT_OUT))
            hide = False
            continue
        secret = head.startswith("--") and is_secret(head.lstrip("-").replace("-", "_"))
        if secret and equals:
            made.append(f"{head}={shlex.quote(LEFT_OUT)}")
        else:
            hide = secret
            made.append(_quoted(holes.shown(word)))
    return made


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)
