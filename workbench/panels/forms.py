"""What a form is, apart from any widget: fields, checks, and the call that it stands for."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import WorkbenchError, shown
from workbench.panels.calls import Call

if TYPE_CHECKING:
    from workbench.core.result import Result

Kind = Literal["text", "short", "combo", "choice", "integer", "number", "switch", "checklist"]
Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One entry of a list: what is shown, what it stands for, and the heading it belongs under."""

    label: str
    value: Any
    group: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One thing to fill in.

    Attributes
    ----------
    name
        Its key in the values; where it is an argument of the call, the argument's name.
    kind
        ``text``; ``short`` (a number that may be left empty); ``combo`` (text with suggestions); ``choice``
        (one of `options`); ``integer``, ``number``; ``switch``; ``checklist`` (any of the options, a tuple).
    options
        Makes the list of a combo or a choice when the form is opened or refreshed.
    refresh
        Whether the list may change while the form is open, so that it has a button to read it again.
    """

    name: str
    label: str
    kind: Kind = "text"
    default: Any = ""
    hint: str = ""
    options: Callable[[], Sequence[Option]] | None = None
    refresh: bool = False
    low: float = 0
    high: float = 0


@dataclasses.dataclass(frozen=True)
class FollowUp:
    """What can be done with a result: a few more fields and a second call.

    Attributes
    ----------
    fits
        Tells the results that it can be done with.
    options
        Makes the list of its checklist from the result.
    call
        Returns the call, from its values, the call of the result and the result.
    """

    action: str
    purpose: str
    fields: tuple[Field, ...]
    fits: Callable[[Result], bool]
    call: Callable[[Values, Call, Result], Call]
    options: Callable[[Result], Sequence[Option]] | None = None


@dataclasses.dataclass(frozen=True)
class Form:
    """One of the jobs.

    Attributes
    ----------
    name, label, purpose
        Its key, its name for a reader, and what it does in a sentence.
    call
        Returns the call that the values stand for, or raises what is missing.
    action
        What the button says for these values.
    stops_early
        Whether stopping keeps what was found until then.
    unused
        Returns the fields that mean nothing with these values.
    """

    name: str
    label: str
    purpose: str
    fields: tuple[Field, ...]
    call: Callable[[Values], Call]
    action: Callable[[Values], str]
    stops_early: bool = False
    unused: Callable[[Values], frozenset[str]] = lambda values: frozenset()
    follow_up: FollowUp | None = None

    def defaults(self) -> dict[str, Any]:
        """Return the values of the empty form."""
        return {field.name: field.default for field in self.fields}

    def field(self, name: str) -> Field:
        """Return a field by its name."""
        return next(field for field in self.fields if field.name == name)


def text_of(values: Values, name: str) -> str:
    """Return a text as it was meant: without the spaces and quotes that pasting brings."""
    text = str(values.get(name) or "").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def required(values: Values, name: str, what: str, example: str) -> str:
    """Return a text that must not be empty.

    Raises
    ------
    WorkbenchError
        It is.
    """
    text = text_of(values, name)
    if not text:
        raise WorkbenchError(f"{what} is missing", next_step=f"Fill it in: {example}.")
    return text


def several(values: Values, name: str) -> list[str]:
    """Return the words of a text, parted by commas or spaces; quotes keep a word together."""
    text = str(values.get(name) or "").replace(",", " ").strip()
    if not text:
        return []
    try:
        return shlex.split(text)
    except ValueError as error:
        raise WorkbenchError(
            f"{shown(text)} cannot be read as a list",
            why=str(error),
            next_step='Part names by commas, and close each quote: "*.mlp.*", lm_head.weight.',
        ) from None


def whole(values: Values, name: str, label: str) -> int | None:
    """Return an optional whole number, None where it is left empty."""
    text = text_of(values, name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise _no_number(text, label, "a whole number, such as 8") from None


def decimal(values: Values, name: str, label: str) -> float | None:
    """Return an optional number, None where it is left empty."""
    text = text_of(values, name)
    if not text:
        return None
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise _no_number(text, label, "a number, such as 0.05") from None


def _no_number(text: str, label: str, example: str) -> WorkbenchError:
    return WorkbenchError(
        f"{label}: {shown(text)} is not a number",
        next_step=f"Give {example}, or leave it empty.",
    )


def changed(form: Form, values: Values, *names: str) -> tuple[tuple[str, Any], ...]:
    """Return those of the named fields that differ from their defaults, as keyword arguments."""
    return tuple(
        (name, values[name])
        for name in names
        if name in values and values[name] != form.field(name).default
    )


def given(**options: Any) -> tuple[tuple[str, Any], ...]:
    """Return the options that are set, as keyword arguments."""
    return tuple((name, value) for name, value in options.items() if not _is_empty(value))


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [])
