"""Snapshots of every form of a result (``UPDATE_GOLDEN=1`` rewrites them), and that no form lacks a doubt."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path

import pytest

from workbench.core.finding import SURE
from workbench.core.result import Result
from workbench.core.wording import cells
from workbench.display.static_html import static
from workbench.display.terminal import lower
from workbench.views.parts import head

GOLDEN = Path(__file__).parent / "golden" / "forms"


def check_forms(result: Result, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare every form of a result with its snapshot, and check what must hold of any result."""
    monkeypatch.setenv(
        "FORCE_COLOR", "1"
    )  # what is stored has no colours, whatever the terminal wants
    forms = forms_of(result)
    for file, text in forms.items():
        assert "\x1b" not in text, f"{file} holds escape codes"
        golden = GOLDEN / name / file
        if os.environ.get("UPDATE_GOLDEN"):
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_text(text)
        assert text == golden.read_text(), f"{name}/{file} is not as it was"
    for width in (40, 80):
        lines = forms[f"text-{width}.txt"].splitlines()
        assert all(line.isprintable() and cells(line) <= width for line in lines)
    check_doubts(result)


def forms_of(result: Result) -> dict[str, str]:
    """Return every form as text, by the name of its file."""
    document = result.document()
    shown = json.dumps(head(document), indent=1, ensure_ascii=False, allow_nan=False)
    return {
        "text-80.txt": result.to_text(80) + "\n",
        "text-40.txt": result.to_text(40) + "\n",
        "static.html": static(result).replace("><", ">\n<") + "\n",
        "markdown.md": result.to_markdown(),
        "head.json": shown + "\n",
    }


def check_doubts(result: Result) -> None:
    """Check that the doubts of a verdict, and how sure each finding is, are in every form."""
    verdict, document = result.verdict, result.document()
    doubts = [*verdict.missing[:12], *verdict.overturned_by, document.answer.sure]
    doubts += [SURE[finding.confidence] for finding in document.findings]
    for kind, text in words_of(result).items():
        for doubt in doubts:
            assert squeezed(doubt) in text, f"{kind} lacks {doubt!r}"


def words_of(result: Result) -> dict[str, str]:
    """Return the words of every form, without what marks it up."""
    document = result.document()
    tags = re.compile(r"<[^>]*>")
    return {
        "text": squeezed(lower(document, 400)),
        "static HTML": squeezed(html.unescape(tags.sub(" ", static(result)))),
        "Markdown": squeezed(re.sub(r"\\(.)", r"\1", result.to_markdown()).replace("\u2060", "")),
        "live page": squeezed(" ".join(strings(head(document)))),
    }


def strings(value: object) -> list[str]:
    """Return every string of plain data, words of certainty as the view shows them."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [SURE.get(value, value)] if isinstance(value, str) else []


def squeezed(text: str) -> str:
    """Return text without spaces and backticks: forms wrap and mark in their own ways."""
    return re.sub(r"[\s`]+", "", text)
