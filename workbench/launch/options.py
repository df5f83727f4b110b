"""SGLang's command line, read as the parser of its release reads it.

A beginning of an option counts where only one option begins so; the last of an option holds; a switch takes
no value. What the release does not know is not read. Without a release, an option is read where the known
releases that have it agree on what it is.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from workbench.evidence.redact import LEFT_OUT, is_secret
from workbench.facts import flags
from workbench.launch import holes
from workbench.launch.records import Argument, Place, Unread

# They name a place or count nodes; what is served does not depend on them.
INCIDENTAL = frozenset({
    "host", "port", "nccl-port", "dist-init-addr", "node-rank", "nnodes", "base-gpu-id",
    "gpu-id-step", "served-model-name", "log-file", "log-level", "log-level-http", "log-requests",
    "log-requests-level", "crash-dump-folder", "random-seed", "api-key", "admin-api-key",
    "file-storage-path", "download-dir", "warmups", "metrics-http-port", "dist-timeout",
    "watchdog-timeout", "disaggregation-bootstrap-port", "disaggregation-ib-device",
    "tokenizer-path",
})  # fmt: skip
MOST_WORDS = 4000
_MOST_UNREAD = 50
_OPTION = re.compile(r"--?[A-Za-z]")
_NUMBER = re.compile(r"-\d")


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """An option as the releases in question know it."""

    field: str
    key: str
    sort: str
    nargs: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Arguments:
    """What a command line says, and what of it was not understood."""

    arguments: tuple[Argument, ...]
    not_read: tuple[Unread, ...]


@functools.lru_cache(maxsize=4096)
def option_of(name: str, version: str) -> Option | str:
    """Return the option that a release's parser takes a name for, or why it takes it for none."""
    found: dict[str, Option] = {}
    begun: dict[str, Option] = {}
    why = ""
    for release in flags.neighbours(version) if version else flags.measured():
        known = flags.flags_of(release)
        names = [name] if name in known else [flag for flag in known if flag.startswith(name)]
        if len({known[one].field for one in names}) > 1:
            why = f"it may be {_listed(names)}"
        elif names:
            flag = known[names[0]]
            key = flags.canonical(names[0], release)
            # A measured neighbour that does not know a newer or older option says nothing of it.
            into = found if name in known else begun
            into.setdefault(key, Option(flag.field, key, flag.sort, flag.nargs))
    if not found and not why:
        found = begun
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        return "it is not the same option in all releases"
    if why:
        return why
    return (
        f"SGLang {version} has no such option" if version else "no known release of SGLang has it"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"--{name}" for name in sorted(names)[:4]) + (" …" if len(names) > 4 else "")


def read_arguments(words: Sequence[str], version: str, where: Place) -> Arguments:
    """Return the arguments of a command line, in the order in which they count."""
    words, too_many = bounded(words)
    arguments: list[Argument] = []
    not_read: list[Unread] = [*too_many]
    ambiguous: set[str] = set()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        head, equals, value = word.partition("=")
        if not _OPTION.match(head) or holes.has_hole(head):
            at = _stray(words, at - 1, arguments, not_read)
            continue
        option = option_of(head.lstrip("-"), version) if head.startswith("--") else ""
        following = at
        while following < len(words) and not _begins(words[following]):
            following += 1
        values = [value] if equals else list(words[at:following])
        if isinstance(option, str):
            why = option or "SGLang's options begin with two dashes"
            not_read.append(Unread(head, why))
            if not option:  # an option that looks like it: what it would have set is not known
                arguments += _meant(head, where)
            else:
                arguments.append(_as_typed(head, values, where))
            if option and head not in ambiguous:
                ambiguous.add(head)
                meant = _candidates(head.lstrip("-"), version)
                arguments += (Argument(flag, key, head, None, where) for flag, key in meant)
            at = at if equals else following
            continue
        took = _take(option, head, values, bool(equals), where)
        arguments += took.arguments
        not_read += took.not_read
        at = at if equals else at + _used(option, values)
    return Arguments(tuple(arguments), tuple(not_read[:_MOST_UNREAD]))


def bounded(words: Sequence[str]) -> tuple[Sequence[str], tuple[Unread, ...]]:
    """Return the words that are read, and what is left out of too many."""
    if len(words) <= MOST_WORDS:
        return words, ()
    why = f"only the first {MOST_WORDS:,} of {len(words):,} words were read"
    return words[:MOST_WORDS], (Unread("the end of the command", why, options=True),)


def _begins(word: str) -> bool:
    return bool(_OPTION.match(word)) and not _NUMBER.match(word)


def _used(option: Option, values: Sequence[str]) -> int:
    """Return how many words belong to an option."""
    if option.sort == "switch" or option.sort.startswith("sets ") or option.sort == "optional":
        return 0
    if not values:
        return 0
    if option.nargs in ("", "?", "1"):
        return 1
    return next((n for n, one in enumerate(values) if n and holes.may_be_many(one)), len(values))


def _take(option: Option, head: str, values: list[str], equals: bool, where: Place) -> Arguments:
    """Return what one option says."""
    secret = is_secret(option.key.replace("-", "_"))

    def argument(value: str | None, unknown: tuple[str, ...] = ()) -> Argument:
        shown = LEFT_OUT if secret and value is not None else value
        return Argument(option.field, option.key, head, shown, where, unknown)

    if option.sort in ("switch", "optional") or option.sort.startswith("sets "):
        if equals:
            return Arguments(
                (argument(None),), (Unread(head, "it is a switch and takes no value"),)
            )
        if option.sort.startswith("sets "):
            return Arguments((argument(option.sort.removeprefix("sets ")),), ())
        return Arguments((argument("false" if head.startswith("--no-") else "true"),), ())
    used = values if equals else values[: _used(option, values)]
    if option.sort == "void":
        return Arguments((), ())
    if not used:
        return Arguments((argument(None),), (Unread(head, "its value is missing"),))
    text = " ".join(used)
    unknown = holes.names(text)
    if not unknown:
        return Arguments((argument(text),), ())
    known = "its value depends on " + ", ".join(holes.shown(holes.hole(n)) for n in unknown)
    essential = option.key not in INCIDENTAL
    return Arguments((argument(None, unknown),), (Unread(head, known, essential),))


def _stray(words: Sequence[str], at: int, arguments: list[Argument], not_read: list[Unread]) -> int:
    """Note a word that belongs to no option; an unknown one may be options that outweigh those before it."""
    word = words[at]
    unknown = holes.names(word)
    if not unknown:
        not_read.append(Unread(holes.shown(word), "it belongs to no option"))
        return at + 1
    why = "it is not known, and may hold further options"
    not_read.append(Unread(holes.shown(word), why, options=True))
    arguments[:] = [
        dataclasses.replace(one, value=None, unknown=(*one.unknown, *unknown)) for one in arguments
    ]
    return at + 1


@functools.lru_cache(maxsize=256)
def _candidates(name: str, version: str) -> tuple[tuple[str, str], ...]:
    """Return each option that an ambiguous beginning may mean, with its name in the newest release."""
    releases = flags.neighbours(version) if version else flags.measured()[-1:]
    found: dict[str, str] = {}
    for release in releases:
        for flag in flags.flags_of(release):
            if flag.startswith(name):
                found.setdefault(flags.canonical(flag, release), flag)
    return tuple((flag, key) for key, flag in found.items())


def _as_typed(head: str, values: Sequence[str], where: Place) -> Argument:
    """Return an option that is not known, under the name that was typed."""
    name = head.lstrip("-")
    text = " ".join(values) if values else "true"
    unknown = holes.names(text)
    secret = is_secret(name.replace("-", "_"))
    known = None if unknown else LEFT_OUT if secret else text
    return Argument(name, name, head, known, where, unknown)


def _meant(head: str, where: Place) -> Iterator[Argument]:
    """Yield the option that ``-tp`` would be with two dashes."""
    option = option_of(head.lstrip("-"), "")
    if isinstance(option, Option):
        yield Argument(option.field, option.key, head, None, where)


def from_config(values: Mapping[str, object]) -> list[str]:
    """Return the words that SGLang makes of a configuration file; none of what is false or empty."""
    words: list[str] = []
    for key, value in values.items():
        name = "--" + str(key).replace("_", "-")
        if value is None or value is False:
            continue
        words.append(name)
        if isinstance(value, list):
            words += [str(one) for one in value]
        elif value is not True:
            words.append(str(value))
    return words
