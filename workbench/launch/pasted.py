"""What copying does to a command: typographic characters, prompts, and line ends of other shells."""

from __future__ import annotations

import re
from collections import Counter

_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_NOTHING = "\u200b\u200c\u200d\u2060\u00ad\ufeff"
_LONG, _SHORT = "\u2012\u2013\u2014\u2015", "\u2010\u2011\u2212\ufe63\uff0d"
_DASHES = rf"\-{_LONG}{_SHORT}"
_SPACE = re.compile(f"[{_SPACES}]")
_GONE = re.compile(f"[{_NOTHING}]")
# An option: dashes of any kind in front of a name, which may have dashes of any kind in it.
_OPTION = re.compile(rf"(?<!\S)([{_DASHES}]{{1,3}})([A-Za-z][\w{_DASHES}]*)")
_DOUBLE = re.compile(
    "[\u201c\u201d\u201e\u201f\u2033]([^\u201c\u201d\u201e\u201f\u2033\n]*)[\u201c\u201d\u201f\u2033]"
)
_SINGLE = re.compile(
    "[\u2018\u2019\u201a\u201b]([^\u2018\u2019\u201a\u201b\n]*)[\u2018\u2019\u201b]"
)
_PROMPT = re.compile(
    r"(?m)^[ \t]*(?:\([\w.-]+\)[ \t]*)?"
    r"(?:\[?[\w.-]+@[\w.-]+(?:[:\s][^\n$#%]{0,80})?\]?[ \t]*[$#%]|\$)[ \t]+(?=\S)"
)
# At a line's end, before a line that begins with an option.
_CONTINUED = re.compile(rf"(?m)[ \t]+([`^])[ \t]*\n(?=[ \t]*[{_DASHES}])")
_UNSEEN = "characters that are not seen"
_SPACES_SAID = "spaces that a shell does not split at"
_NO_HYPHENS = "dashes that are no hyphens"
_QUOTES = "pairs of typographic quotes"
_ONE = {
    _UNSEEN: "character that is not seen", _SPACES_SAID: "space that a shell does not split at",
    _NO_HYPHENS: "dash that is no hyphen", _QUOTES: "pair of typographic quotes",
}  # fmt: skip
_SHELLS = {"`": "PowerShell", "^": "cmd.exe"}


def typed(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text as it is typed on a keyboard, and what was changed: ``3 dashes that are no hyphens``."""
    seen: Counter[str] = Counter()
    text = _counted(_GONE, "", _UNSEEN, text, seen)
    text = _counted(_SPACE, " ", _SPACES_SAID, text, seen)
    text = _OPTION.sub(lambda found: _option(found, seen), text)
    for kind, plain in ((_DOUBLE, '"'), (_SINGLE, "'")):

        def quoted(found: re.Match[str], plain: str = plain) -> str:
            seen[_QUOTES] += 1
            return f"{plain}{found[1]}{plain}"

        text = kind.sub(quoted, text)
    return text, tuple(
        f"{number} {what if number > 1 else _ONE[what]}" for what, number in seen.items()
    )


def _counted(kind: re.Pattern[str], plain: str, what: str, text: str, seen: Counter[str]) -> str:
    text, number = kind.subn(plain, text)
    if number:
        seen[what] += number
    return text


def _option(found: re.Match[str], seen: Counter[str]) -> str:
    """Return an option with hyphens; a long dash stands for two of them."""
    if found[0].isascii():
        return found[0]
    seen[_NO_HYPHENS] += sum(one in _LONG + _SHORT for one in found[0])
    long = len(found[1]) > 1 or (found[1] in _LONG and len(found[2]) > 1)
    name = re.sub(f"[{_LONG}{_SHORT}]", "-", found[2])
    return ("--" if long else "-") + name


def without_prompts(text: str) -> str:
    """Return a text without the prompts of a terminal: ``$``, ``root@host:/srv#``."""
    return _PROMPT.sub("", text)


def joined(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text with the lines that another shell continues as bash does, and the names of the shells."""
    shells = tuple(dict.fromkeys(_SHELLS[found[1]] for found in _CONTINUED.finditer(text)))
    return _CONTINUED.sub(" \\\\\n", text), shells
