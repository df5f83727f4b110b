"""The words behind ``trtllm-serve``, parsed by click, as there, with the options of its release."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from workbench.facts import rows
from workbench.launch import holes
from workbench.launch.rules.parser import Refusal

# Only newer releases of click have the type of a value in it.
if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

ENGINE = "tensorrt-llm"
_TYPES: dict[str, _ParamType] = {"int": click.INT, "float": click.FLOAT}
_MOST = 20


class _Unless(_ParamType):
    """A type that lets through a value that is not known."""

    def __init__(self, known: _ParamType) -> None:
        self.known, self.name = known, known.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if holes.has_hole(str(value)) else self.known.convert(value, param, ctx)


@functools.lru_cache(maxsize=8)
def command_of(release: str) -> click.Command:
    """Return the command of a release, made of its options on file."""
    # --help ends the real command; here nothing is printed.
    options: list[click.Parameter] = [
        click.Argument(["model"]),
        click.Option(["--help"], is_flag=True),
    ]
    for name in rows.names(ENGINE, "option", release):
        row = rows.row_in(ENGINE, "option", name, release)
        assert row is not None
        if row.value["sort"] == "switch":
            options.append(click.Option(row.value["names"], is_flag=True))
            continue
        choices = row.value.get("choices")
        known = (
            click.Choice(choices)
            if choices
            else _TYPES.get(row.value.get("type", ""), click.STRING)
        )
        options.append(click.Option(row.value["names"], type=_Unless(known)))
    return click.Command("trtllm-serve", params=options, add_help_option=False)


def refusals(words: Sequence[str], release: str) -> tuple[Refusal, ...]:
    """Return what a release's parser refuses in the words behind the server, first things first.

    click stops at the first; what it refused is taken away, so that the next can be found.
    """
    left = list(words)
    found: list[Refusal] = []
    while len(found) < _MOST:
        try:
            command_of(release).make_context("trtllm-serve", list(left))
        except click.ClickException as error:
            one = _refusal(error, left)
            if one.sort not in ("stray", "required") or not any(map(holes.may_be_many, words)):
                found.append(one)
            if not _taken_away(left, one):
                break
        else:
            break
    return tuple(found)


def _refusal(error: click.ClickException, words: Sequence[str]) -> Refusal:
    says = error.format_message().removesuffix(".")
    if isinstance(error, click.NoSuchOption):
        return Refusal(error.option_name, "unknown", says)
    if isinstance(error, click.BadOptionUsage):
        sort = "switch" if "does not take a value" in says else "missing"
        return Refusal(error.option_name, sort, says, _value(words, error.option_name))
    if isinstance(error, click.MissingParameter):
        return Refusal("", "required", says)
    if isinstance(error, click.BadParameter) and error.param is not None:
        typed = next((w for w in words if w.partition("=")[0] in error.param.opts), "")
        option = typed.partition("=")[0]
        choices = getattr(getattr(error.param.type, "known", None), "choices", ())
        return Refusal(option, "value", says, _value(words, option), tuple(choices))
    stray = next((w for w in reversed(words) if w in says), "")
    return Refusal("", "stray", says, stray)


def _value(words: Sequence[str], option: str) -> str:
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head == option:
            return value if equals else "".join(words[at + 1 : at + 2])
    return ""


def _taken_away(words: list[str], one: Refusal) -> bool:
    """Take away what was refused; a value behind an option that is not known goes with it."""
    for at, word in enumerate(words):
        head, equals, _ = word.partition("=")
        if one.option and head == one.option:
            behind = words[at + 1 : at + 2]
            with_value = not equals and one.sort in ("unknown", "value") and behind
            ends = at + 2 if with_value and not behind[0].startswith("-") else at + 1
            del words[at:ends]
            return True
    if one.sort == "stray" and one.value in words:
        words.remove(one.value)
        return True
    return False
