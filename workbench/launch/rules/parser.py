"""The parser of a release, made again from the facts about its options: what it refuses, and why.

It is Python's own argparse, as in the engine, so beginnings of options, values and choices count as they
count there. An option with a type of the engine's own takes whatever this file does not know to be refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from packaging.version import Version

from workbench.errors import shorten
from workbench.facts import flags, rows
from workbench.facts.flags import Flag
from workbench.launch import holes

PROGRAMS = frozenset({"sglang.launch_server", "sglang serve", "launch_server.py", "sglang", ""})
"""The programs of which these are all options."""
_MOST = 20
_OPPOSITE = frozenset({"enable", "disable", "no"})
_READABLE = re.compile(r"\d+(?:\.\d+)?(?:[kKmMgGtT]i?)?")
# The options that `sglang serve` takes away before the parser sees the rest.
_SERVE = ("--model-type",)
_ALGORITHM = "speculative-algorithm"
_VOID_WARNS = "0.5.8"  # before, a retired option stops the launch; from here on it only warns


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that the parser refuses.

    Attributes
    ----------
    option
        As it was typed, "" where a word belongs to none, or a needed one is missing.
    sort
        ``unknown``, ``ambiguous``, ``value``, ``missing`` (a value), ``switch`` (with a value), ``stray``
        (a word), ``required``.
    value
        What was given.
    says
        What the parser says.
    """

    option: str
    sort: str
    says: str
    value: str = ""
    choices: tuple[str, ...] = ()


class _RefusedError(Exception):
    def __init__(self, says: str) -> None:
        super().__init__(says)
        found = re.match(r"(?:argument |ambiguous option: )(--[\w.-]+)", says)
        self.option, self.says = found[1] if found else "", says


class _Parser(argparse.ArgumentParser):
    """A parser that raises what it refuses."""

    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)


class _Retired(argparse.Action):
    """An option that only says that it is gone."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**(given | {"nargs": 0}))

    def __call__(self, *_: Any) -> None:
        raise argparse.ArgumentError(self, "this option was retired, and stops the launch")


class _Choices(tuple[Any, ...]):
    """Choices that let through what is not known."""

    __slots__ = ()

    def __contains__(self, value: object) -> bool:
        return isinstance(value, _Hole) or tuple.__contains__(self, value)


class _Hole(str):
    """A value that is not known."""

    __slots__ = ()


@functools.lru_cache(maxsize=16)
def parser_of(release: str) -> argparse.ArgumentParser:
    """Return the parser of a release."""
    made = _Parser(prog="sglang", add_help=False, exit_on_error=False)
    seen: set[tuple[str, ...]] = set()
    for flag in flags.flags_of(release).values():
        names = tuple(name for name in flag.names if not _negated(name, flag))
        if names in seen:
            continue
        seen.add(names)
        made.add_argument(*(f"--{name}" for name in names), **_options(flag, release))
    return made


def _negated(name: str, flag: Flag) -> bool:
    return flag.sort == "optional" and name.startswith("no-")


def _options(flag: Flag, release: str) -> dict[str, Any]:
    """Return how argparse is told of an option."""
    dest = {"dest": flag.field.replace("-", "_")}
    if flag.sort == "optional":
        return dest | {"action": argparse.BooleanOptionalAction}
    if flag.sort == "void" and Version(release) < Version(_VOID_WARNS):
        return dest | {"action": _Retired}
    if flag.sort in ("switch", "void") or flag.sort.startswith("sets "):
        return dest | {"action": "store_true"}
    given: dict[str, Any] = dest | {"type": _type(flag.type), "required": flag.required}
    if flag.nargs:
        given["nargs"] = int(flag.nargs) if flag.nargs.isdigit() else flag.nargs
        if flag.nargs == "?":
            given["const"] = ""
    if flag.choices is not None:
        given["choices"] = _Choices(flag.choices)
    elif flag.field == _ALGORITHM:  # looked up in a registry, which a plugin may extend
        given["type"] = _algorithm(release)
    return given


def algorithms(release: str) -> tuple[str, ...]:
    """Return the algorithms that a release knows of itself."""
    flag = flags.flags_of(release)[_ALGORITHM]
    if flag.choices:
        return tuple(map(str, flag.choices))
    return (*rows.names("sglang", "algorithm", release), "NEXTN")


def _algorithm(release: str) -> Callable[[str], str]:
    known = algorithms(release)

    def algorithm(text: str) -> str:
        if not holes.has_hole(text) and text.upper() not in known:
            raise argparse.ArgumentTypeError(f"Unknown speculative algorithm name: {text}")
        return text

    return algorithm


def _type(name: str) -> Callable[[str], Any]:
    """Return what makes a value of a text, as the engine does; what is not known is let through."""
    own: dict[str, Callable[[str], Any]] = {
        "int": int, "float": float, "json.loads": json.loads, "human_readable_int": _readable,
        "json_list_type": json.loads,
    }  # fmt: skip
    convert = own.get(name, str)

    def value(text: str) -> Any:
        return _Hole(text) if holes.has_hole(text) else convert(text)

    value.__name__ = name
    return value


def _readable(text: str) -> int:
    if not _READABLE.fullmatch(text.strip()):
        raise ValueError(text)
    return 0


def refusals(words: Sequence[str], release: str, program: str = "") -> tuple[Refusal, ...]:
    """Return everything that a release's parser refuses in the words behind the server, first things first.

    A word that is not known is taken for whatever fits.
    """
    words = list(_without_config(words, program))
    found: list[Refusal] = []
    while len(found) < _MOST:
        one = _first(words, release)
        if one is None:
            break
        found.append(one)
        if not _dropped(words, one):
            break
    return tuple(found)


def _without_config(words: Sequence[str], program: str) -> Iterator[str]:
    """Yield the words without the configuration file, whose own words come first, and without loose holes."""
    skip = False
    taken = ("--config", *(_SERVE if program == "sglang serve" else ()))
    for at, word in enumerate(words):
        if skip:
            skip = False
            continue
        if word in taken and at + 1 < len(words):
            skip = True
            continue
        if word.startswith(tuple(f"{name}=" for name in taken[1:])):
            continue
        before = words[at - 1] if at else ""
        if holes.may_be_many(word) and not before.startswith("--"):
            continue  # it may be options of any kind; the reader says so
        yield word


def _first(words: Sequence[str], release: str) -> Refusal | None:
    parser = parser_of(release)
    try:
        _, extra = parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        if error.argument_name is None:  # so Python 3.12 and later raise what they had an error for
            return _of_error(_RefusedError(str(error.message)), words, release)
        named = error.argument_name.split("/")
        typed = next((w for w in words if _is_one_of(w, named, release)), named[0])
        return _of_argument(typed.partition("=")[0], str(error.message), words, release)
    except _RefusedError as error:
        return _of_error(error, words, release)
    if not extra:
        return None
    word = extra[0]
    if word.startswith("-") and not re.fullmatch(r"-\d.*", word):
        return Refusal(
            word.partition("=")[0], "unknown", f"unrecognized arguments: {shorten(word)}"
        )
    return Refusal("", "stray", f"unrecognized arguments: {shorten(word)}", word)


def _is_one_of(word: str, names: Sequence[str], release: str) -> bool:
    head = word.partition("=")[0]
    if head in names:
        return True
    if not head.startswith("--") or head[2:] in flags.flags_of(release):
        return False
    return any(name.startswith(head) for name in names)


def _of_error(error: _RefusedError, words: Sequence[str], release: str) -> Refusal:
    if error.says.startswith("ambiguous option"):
        return Refusal(error.option, "ambiguous", error.says)
    if "required" in error.says:
        return Refusal("", "required", error.says)
    return _of_argument(error.option, error.says, words, release)


def _of_argument(option: str, says: str, words: Sequence[str], release: str) -> Refusal:
    value = _value_of(option, says, words)
    if "ignored explicit argument" in says:
        return Refusal(option, "switch", says, value)
    if re.search(r"(?:^|: )expected ", says):
        return Refusal(option, "missing", says)
    flag = flags.flags_of(release).get(option.lstrip("-"))
    choices = tuple(map(str, flag.choices or ())) if flag is not None else ()
    if flag is not None and flag.field == _ALGORITHM:
        choices = algorithms(release)
    return Refusal(option, "value", says, value, choices)


def _value_of(option: str, says: str, words: Sequence[str]) -> str:
    """Return the value that was refused: of an option that is given twice, the one that the parser names."""
    found = []
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head == option:
            found.append(value if equals else (words[at + 1] if at + 1 < len(words) else ""))
    return next((value for value in found if repr(value) in says), found[0] if found else "")


def _dropped(words: list[str], one: Refusal) -> bool:
    """Take away what was refused, with its values, so that the next thing can be found."""
    if one.sort == "stray":
        words.remove(one.value)
        return True
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head != one.option:
            continue
        end = at + 1
        given = value if equals else (words[end] if end < len(words) else "")
        if one.value and given != one.value:
            continue
        if not equals:
            while end < len(words) and not words[end].startswith("--"):
                end += 1
        del words[at:end]
        return True
    return False


def meant(option: str, release: str) -> str:
    """Return the option of a release that a misspelt one most likely means, "" where none is near."""
    name = option.lstrip("-").replace("_", "-")
    known = [flag.name for flag in flags.flags_of(release).values() if flag.sort != "void"]
    if other_releases(name)[0] and name not in known:
        return ""  # an option of another release is not misspelt
    start = name.partition("-")[0]
    if start in _OPPOSITE:
        known = [one for one in known if one.partition("-")[0] not in _OPPOSITE - {start}]
    if name in known:
        return f"--{name}"
    near = difflib.get_close_matches(name, known, 2, 0.9)
    if not near or (len(near) > 1 and _alike(name, near[0]) == _alike(name, near[1])):
        return ""
    return f"--{near[0]}"


def _alike(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def other_releases(option: str) -> tuple[str, str]:
    """Return the first and the last release that have an option by this name, "" where none has."""
    name = option.lstrip("-").replace("_", "-")
    having = [one for one in flags.measured() if name in flags.flags_of(one)]
    return (having[0], having[-1]) if having else ("", "")


def in_words(choices: Iterable[str], most: int = 8) -> str:
    """Return choices in a sentence."""
    given = list(choices)
    return ", ".join(given[:most]) + (f", … ({len(given)} in all)" if len(given) > most else "")
