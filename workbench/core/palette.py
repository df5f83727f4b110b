"""One colour and one glyph for every state, the same in a terminal, a notebook and a page.

The hues are Okabe and Ito's, which stay apart for every common kind of colour blindness, darkened
for light and lightened for dark backgrounds until text in them has a contrast of at least 4.5:1. No
state is told by colour alone: its glyph and its word stand beside it.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Tone:
    """How one state looks.

    Attributes
    ----------
    glyph, ascii
        The sign beside the colour, and its replacement where the terminal has no Unicode.
    light, dark
        Text colour on a light and on a dark background, ``#rrggbb``.
    ansi
        The nearest colour of a terminal's 256.
    """

    glyph: str
    ascii: str
    light: str
    dark: str
    ansi: int


_RED = ("#b34a00", "#ff8f4d", 166)  # vermillion
_PURPLE = ("#a23b78", "#e79ac6", 175)
_ORANGE = ("#8a5a00", "#f0b440", 172)
_YELLOW = ("#6f6200", "#e6dc55", 178)
_BLUE = ("#0b6aa2", "#6fc3f2", 74)
_SLATE = ("#4b5a7a", "#9fb2dd", 110)
_GREEN = ("#00714f", "#3fcfa3", 36)
_GREY = ("#5c6470", "#a3abb8", 245)

TONES: dict[str, Tone] = {
    "dropped": Tone("✗", "x", *_RED),
    "mismatched": Tone("≠", "!", *_ORANGE),
    "missing": Tone("○", "o", *_PURPLE),
    "partial": Tone("◐", "%", *_YELLOW),
    "ignored": Tone("–", "-", *_GREY),
    "shared": Tone("↔", "=", *_BLUE),
    "unused": Tone("◌", ".", *_SLATE),
    "loaded": Tone("✓", "+", *_GREEN),
    "written": Tone("✓", "+", *_GREEN),
    "error": Tone("✗", "x", *_RED),
    "warning": Tone("▲", "!", *_ORANGE),
    "note": Tone("i", "i", *_BLUE),
    "ok": Tone("✓", "+", *_GREEN),
    "wrong": Tone("✗", "x", *_RED),
    "unsure": Tone("?", "?", *_YELLOW),
    # How a rank of a hung server stands (missing: above).
    "odd": Tone("◆", "X", *_RED),
    "stopped": Tone("■", "T", *_ORANGE),
    "not_seen": Tone("?", "?", *_YELLOW),
    "waiting": Tone("●", "w", *_BLUE),
    "present": Tone("●", "p", *_SLATE),
    "moving": Tone("▸", ">", *_GREEN),
    "idle": Tone("◎", "-", *_GREEN),
    "not_collected": Tone("–", "_", *_GREY),
    # What a scan concludes of a tensor, and what a comparison sees of it (shape: mismatched).
    "at_init": Tone("✗", "x", *_RED),
    "invalid": Tone("!", "!", *_PURPLE),
    "constant": Tone("=", "=", *_ORANGE),
    "undecided": Tone("?", "?", *_YELLOW),
    "trained": Tone("✓", "+", *_GREEN),
    "not_weights": Tone("–", "-", *_GREY),
    "shape": Tone("≠", "#", *_ORANGE),
    "changed": Tone("△", "^", *_BLUE),
    "identical": Tone("=", "=", *_GREY),
    "unread": Tone("?", "?", *_YELLOW),
    "left": Tone("◧", "<", *_SLATE),
    "right": Tone("◨", ">", *_SLATE),
    # How a drafted token fares, and the token that the target adds.
    "accepted": Tone("✓", "+", *_GREEN),
    "rejected": Tone("✗", "x", *_RED),
    "bonus": Tone("◆", "*", *_BLUE),
    "beside": Tone("·", ".", *_GREY),
    "quiet": Tone("·", ".", *_GREY),
}
"""The tone of every state, severity and verdict."""

RAMP = (
    "#00224e", "#083370", "#35456c", "#4f576c", "#666970", "#7d7c78", "#948e77", "#aea371", "#c8b866",
    "#e5cf52", "#fee838",
)  # fmt: skip
"""Colours of a number from low to high: cividis, the same to every kind of colour vision."""

ORDER = (
    "dropped",
    "missing",
    "mismatched",
    "partial",
    "ignored",
    "shared",
    "unused",
    "loaded",
    "written",
)
"""States of keys and parameters, the ones to look at first."""

BACKGROUNDS = {"light": ("#ffffff", "#f7f7f5"), "dark": ("#14171c", "#1c2027")}
"""The page and the cards on it, in each theme."""


def tone(state: str) -> Tone:
    """Return how `state` looks; an unknown one is grey."""
    return TONES.get(state, TONES["quiet"])


def verdict_state(ok: bool | None) -> str:
    """Return the state of a verdict: ``ok``, ``wrong``, or ``unsure`` where it cannot tell."""
    return "unsure" if ok is None else "ok" if ok else "wrong"


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours ``#rrggbb``, 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
