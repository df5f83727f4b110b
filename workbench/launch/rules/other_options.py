"""The words behind ``vllm serve``, read by the options of its release: what its parser refuses.

Underscores count as hyphens, a beginning of an option counts where only one option begins so, and ``--a.b``
is a key of the JSON that ``--a`` takes: as vLLM's own parser has it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.facts import rows
from workbench.launch import holes
from workbench.launch.rules.parser import Refusal

_OPTION = re.compile(r"--?[A-Za-z]")
# Options of the parser itself, and those that every Python parser has.
_OWN = {"config": "value", "help": "optional", "h": "optional"}


@dataclasses.dataclass(frozen=True)
class Read:
    """A command line as the parser of a release reads it.

    Attributes
    ----------
    values
        The value that holds, by the option's first name; None where it is not known, "true" for a switch.
    keys
        Keys of a JSON option that were given one by one, by the option's name.
    raw
        Each option as it was typed.
    loose
        Words that belong to no option: the model first.
    """

    values: Mapping[str, str | None]
    keys: Mapping[str, Mapping[str, str]]
    raw: Mapping[str, str]
    loose: tuple[str, ...]
    refusals: tuple[Refusal, ...]


@functools.lru_cache(maxsize=32)
def options_of(release: str) -> Mapping[str, tuple[str, dict[str, Any]]]:
    """Return the options of a release by every name: the first name, and how it is."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in rows.names("vllm", "option", release):
        row = rows.row_in("vllm", "option", name, release)
        for spelt in row.value["names"] if row is not None else ():
            found[spelt] = (name, row.value)  # type: ignore[union-attr]
            if (
                row is not None
                and row.value["sort"] in ("optional", "any")
                and spelt.startswith("--")
            ):
                found[f"--no-{spelt[2:]}"] = (name, {**row.value, "off": True})
    for name, sort in _OWN.items():
        found.setdefault(f"-{name}" if len(name) == 1 else f"--{name}", (name, {"sort": sort}))
    return found


def read(words: Sequence[str], release: str) -> Read:
    """Read the words behind the server."""
    reader = _Reader(options_of(release))
    at = 0
    while at < len(words):
        at = reader.take(words, at)
    return reader.done()


class _Reader:
    def __init__(self, known: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
        self.known = known
        self.values: dict[str, str | None] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self.raw: dict[str, str] = {}
        self.loose: list[str] = []
        self.refused: list[Refusal] = []

    def done(self) -> Read:
        return Read(self.values, self.keys, self.raw, tuple(self.loose), tuple(self.refused))

    def take(self, words: Sequence[str], at: int) -> int:
        """Read one option with its values, or a word without one; return where the next begins."""
        word = words[at]
        head, equals, value = word.partition("=")
        if not _OPTION.match(head):
            self.loose.append(word)
            if len(self.loose) > 1 and not holes.has_hole(word):
                self.refused.append(Refusal(word, "stray", "it belongs to no option", word))
            return at + 1
        first, dot, key = head.replace("_", "-").partition(".")
        found = self._option(head, first)
        given = _values(words, at + 1)
        if found is None:
            return at + 1 + (0 if equals else len(given))
        name, option = found
        self.raw[name] = head
        sort = option["sort"]
        if sort in ("optional", "switch"):
            self.values[name] = "false" if option.get("off") else "true"
            if equals:
                self.refused.append(
                    Refusal(head, "switch", "it is a switch and takes no value", value)
                )
            return at + 1
        many = option.get("nargs") in ("*", "+", "?") or sort == "any"
        used = [value] if equals else list(given if many else given[:1])
        if not used and not many:
            self.refused.append(Refusal(head, "missing", "its value is missing"))
            return at + 1
        text = " ".join(used)
        if dot:
            self.keys.setdefault(name, {})[key.replace("-", "_")] = text
        else:
            self.values[name] = None if holes.has_hole(text) else text
            why = _wrong(option, text)
            if why:
                self.refused.append(Refusal(head, "value", why, text))
        return at + 1 + (0 if equals else len(used))

    def _option(self, head: str, first: str) -> tuple[str, dict[str, Any]] | None:
        if first in self.known:
            return self.known[first]
        begun = {name: one for name, one in self.known.items() if name.startswith(first)}
        names = {one[0] for one in begun.values()}
        if len(names) == 1 and first.startswith("--"):
            return next(iter(begun.values()))
        if re.match(r"-O\S", head):  # -O3: the value is part of the word
            return "optimization-level", {"sort": "switch"}
        sort = "ambiguous" if names else "unknown"
        why = f"it may be {', '.join(sorted(begun)[:4])}" if names else "there is no such option"
        self.refused.append(Refusal(head, sort, why))
        return None


def _values(words: Sequence[str], at: int) -> Sequence[str]:
    end = at
    while end < len(words) and not _OPTION.match(words[end]):
        end += 1
    return words[at:end]


def _wrong(option: Mapping[str, Any], text: str) -> str:
    """Return why a value is not taken, "" where it is or where that is not known."""
    if holes.has_hole(text) or (option.get("empty") and text in ("", "None")):
        return ""
    if option.get("choices") and text not in option["choices"]:
        return f"it takes {', '.join(option['choices'][:12])}"
    kind = option.get("type")
    if kind == "json":
        return _not_json(text)
    try:
        _ = int(text) if kind == "int" else float(text) if kind == "float" else 0
    except ValueError:
        return "it takes a whole number" if kind == "int" else "it takes a number"
    return ""


def _not_json(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        # A newer release lets numbers have a suffix: only what is broken with them is broken.
        return "" if re.search(r"\d[kKmMgGtT]\b", text) else f"it takes JSON: {error}"
    except RecursionError:
        return "it takes JSON"
    return ""


def speculative(found: Read) -> dict[str, Any] | None:
    """Return the speculative configuration: {} without one, None where it is not known."""
    text = found.values.get("speculative-config", "")
    if text is None:
        return None
    try:
        config = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return None
    if not isinstance(config, dict):
        return None
    return config | dict(_typed(found.keys.get("speculative-config", {})))


def _typed(keys: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, text in keys.items():
        try:
            yield name, json.loads(text)
        except ValueError:
            yield name, text
