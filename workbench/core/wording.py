"""Words as they are counted and shortened, wherever they are shown."""

from __future__ import annotations

import unicodedata

DOTS = "…"


def cells(text: str) -> int:
    """Return the terminal columns `text` takes: two for wide characters, none for combining."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(bool(unicodedata.combining(c)) for c in text)


def begun(text: str) -> str:
    """Return text as a sentence begins; a flag, a key or a release (``sglang 0.5.11``) stays as it is."""
    word, _, rest = text.partition(" ")
    return text[:1].upper() + text[1:] if word.isalpha() and not rest[:1].isdigit() else text


def plural(count: int, one: str, many: str = "") -> str:
    """Return ``1 key``, ``2,048 keys``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def middle(text: str, width: int) -> str:
    """Shorten `text` to `width` columns in its middle: both ends of a name tell it apart."""
    if cells(text) <= width:
        return text
    if width < 2:
        return DOTS[:width]
    left, right = (width - 1) // 2, (width - 1) - (width - 1) // 2
    while left + right > 0 and cells(text[:left]) + cells(text[len(text) - right :]) > width - 1:
        left, right = (left - 1, right) if left >= right else (left, right - 1)
    return text[:left] + DOTS + text[len(text) - right :]
