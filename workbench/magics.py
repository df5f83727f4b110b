"""``%load_ext workbench``: the command line's words in a notebook, returning the result objects."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shown

if TYPE_CHECKING:
    from workbench.panels.calls import Call
    from workbench.panels.forms import Form

# Verb: its form, and the fields that its arguments fill in, in their order.
_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "hang": ("hang", ("path",)),
    "diff": ("keys", ("ckpt", "model")),
    "fix": ("keys", ("ckpt", "model", "out")),
    "weights": ("weights", ("ckpt",)),
    "replay": ("replay", ("target", "draft")),
}
_USAGE = (
    "%workbench hang [PID|CASE], diff CKPT ENGINE, fix CKPT ENGINE OUT, weights CKPT, replay TARGET DRAFT, "
    "or panel [THING]; options as the panel names them, such as --snapshots 3"
)


def load_ipython_extension(shell: Any) -> None:
    """Make ``%workbench`` known to a shell."""
    shell.register_magic_function(line_magic, "line", "workbench")


def line_magic(line: str) -> Any:
    """Run one line, as in ``%workbench diff CKPT sglang==0.5.11``, and return its result.

    Without words it opens the panel.
    """
    from IPython.core.error import UsageError

    from workbench.panels.opening import panel

    try:
        words = shlex.split(line)
        if not words or words[0] == "panel":
            return panel(*words[1:])
        return call_of(words).run()
    except WorkbenchError as error:  # its message is enough: no traceback
        raise UsageError(str(error)) from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{error}\n  next: {_USAGE}") from None


def call_of(words: Sequence[str]) -> Call:
    """Return the call that the words of a line stand for.

    Raises
    ------
    WorkbenchError
        The verb or an option is not known, or something is missing.
    """
    from workbench.panels.calls import Call
    from workbench.panels.forms import changed, given
    from workbench.panels.session import FORMS

    verb, *rest = words
    if verb not in _VERBS:
        close = get_close_matches(verb, _VERBS, n=1)
        step = f"Did you mean {close[0]}? " if close else ""
        raise WorkbenchError(f"{shown(verb)} is not a verb of %workbench", next_step=step + _USAGE)
    name, places = _VERBS[verb]
    form = FORMS[name]
    values, arguments = _options(form, rest)
    if len(arguments) > len(places):
        raise WorkbenchError(
            f"{shown(arguments[len(places)])} is one word too many for {verb}", next_step=_USAGE
        )
    values |= dict(zip(places, arguments, strict=False))
    if verb == "hang":
        if not arguments:
            return Call(
                "attach",
                (),
                (
                    *changed(form, values, "snapshots", "interval", "native"),
                    *given(log=values["log"]),
                ),
            )
        if arguments[0].isdecimal():
            values |= {"server": int(arguments[0]), "path": ""}
    made = form.call(values)
    if verb != "fix":
        return made
    if not values.get("out"):
        raise WorkbenchError("the folder of the copy is missing", next_step=_USAGE)
    return Call("fix_checkpoint", (*made.args, values["out"]), given(target=values["target"]))


def _options(form: Form, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a form, and the words that are no options."""
    values, arguments = form.defaults(), []
    known = {field.name: field for field in form.fields}
    todo = list(words)
    while todo:
        word = todo.pop(0)
        if not word.startswith("--"):
            arguments.append(word)
            continue
        flag, equals, text = word[2:].partition("=")
        field = known.get(flag.replace("-", "_"))
        if field is None:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in known)
            raise WorkbenchError(f"there is no option {word}", next_step=f"Known are {options}.")
        if field.kind == "switch":
            values[field.name] = True
            continue
        if not equals:
            if not todo:
                raise WorkbenchError(f"{word} needs a value", next_step=_USAGE)
            text = todo.pop(0)
        try:
            cast = {"integer": int, "number": float}.get(field.kind, str)
            values[field.name] = cast(text)
        except ValueError:
            raise WorkbenchError(
                f"{word} {shown(text)}: that is not a number", next_step=_USAGE
            ) from None
    return values, arguments
