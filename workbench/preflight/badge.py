"""A badge in SVG and in Markdown: with its basis, its date, the digest, and the page with the doubts."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

_HEIGHT, _PAD, _CHARACTER = 20, 8, 6.6
_LABEL = "workbench"
_TONES = ("#334155", "#15803d")


def svg(text: str, about: str, page: str) -> str:
    """Return the badge as a picture that is a link; it loads nothing."""
    left = round(len(_LABEL) * _CHARACTER) + 2 * _PAD
    right = round(len(text) * _CHARACTER) + 2 * _PAD
    font = 'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" fill="#fff"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f"aria-label={quoteattr(f'{_LABEL}: {text}')}>\n"
        f"<title>{escape(text)}</title>\n<desc>{escape(about)}</desc>\n"
        f"<a href={quoteattr(page)}>\n"
        f'<rect width="{left}" height="{_HEIGHT}" fill="{_TONES[0]}"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{_TONES[1]}"/>\n'
        f'<text x="{_PAD}" y="14" {font}>{_LABEL}</text>'
        f'<text x="{left + _PAD}" y="14" {font}>{escape(text)}</text>\n</a>\n</svg>\n'
    )


def markdown(text: str, about: str, page: str) -> str:
    """Return the line that a model card takes: the picture, and the page behind it."""
    plain = about.replace('"', "'")
    return f'[![{text}](badge.svg "{plain}")]({page})\n'
