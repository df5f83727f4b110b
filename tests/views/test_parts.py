"""Documents: each kind of part is shown by every form, and no form shows less than another."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import get_args

import pytest

from workbench.core.finding import Experiment, Finding
from workbench.core.wording import cells
from workbench.display import markdown, static_html, terminal
from workbench.display.text import Page
from workbench.views import parts
from workbench.views.parts import (
    Answer,
    Bar,
    Branch,
    Code,
    Document,
    Facts,
    Findings,
    Group,
    Groups,
    Heading,
    Outline,
    Part,
    Picture,
    Plan,
    Prose,
    Sign,
    Table,
)

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e`@all #12 | [a](b) **b**"
FINDING = Finding(
    code="keys_lost",
    severity="error",
    title="ten keys are lost",
    detail="the layer keeps uninitialised memory",
    evidence_for=("midlayer is empty",),
    evidence_against=("the log has no warning",),
    confidence="possible",
    next_step="rename them",
    experiment=Experiment("turn graphs off", "it serves", "it hangs again", "slower", "turn on"),
    place="llama_eagle3.py:264",
)
SAMPLES: dict[type, tuple[Part, tuple[str, ...]]] = {
    Answer: (
        Answer(
            None, "It may load", "possible, not proved", ("16 keys",), ("rank TP1: not seen",),
            ("the real loader doing otherwise",), "run the real loader",
        ),
        (
            "It may load", "possible, not proved", "16 keys", "rank TP1: not seen",
            "the real loader doing otherwise", "run the real loader",
        ),
    ),
    Facts: (Facts((("Engine", "sglang 0.5.11"),)), ("engine", "sglang 0.5.11")),
    Findings: (
        Findings((FINDING,)),
        (
            "ten keys are lost", "uninitialised memory", "midlayer is empty", "the log has no warning",
            "possible, not proved", "rename them", "turn graphs off", "it serves", "it hangs again", "slower",
            "turn on", "llama_eagle3.py:264",
        ),
    ),
    Heading: (Heading("Ranks"), ("Ranks",)),
    Prose: (Prose("the clock went back", "missing: "), ("the clock went back", "issing")),
    Code: (Code("a  b\nc  d"), ("a  b", "c  d")),
    Table: (
        Table(("Change", "Length"), ((Sign("ok", "layer"), "2.40", Bar(0.0, 0.5)), ("x", "1.00", "")), 1),
        ("Change", "layer", "2.40", "████", "1 more row"),
    ),
    Groups: (
        Groups((Group("dropped", "layers.0.q", ("[64]",), (("to ", "midlayer.q"),)),), left_out=3),
        ("✗", "layers.0.q", "[64]", "to midlayer.q", "3 more templates"),
    ),
    Outline: (
        Outline((Branch("0-3 | 1", 0, "main"), Branch("1", 1, "all_reduce", True)), 1),
        ("0-3 | 1", "main", "1 more branch"),
    ),
    Plan: (
        Plan(Experiment("turn graphs off", "it serves", "it hangs again")),
        ("turn graphs off", "it serves", "it hangs again"),
    ),
    Picture: (Picture(b"\x89PNG", "a map", "x . x"), ()),
}  # fmt: skip


def forms(part: Part) -> dict[str, str]:
    page = Page(100)
    terminal.add(part, page)
    return {
        "text": str(page),
        "html": static_html.lower_part(part),
        "markdown": markdown.lower_part(part),
    }


def test_there_is_a_sample_of_each_kind_of_part() -> None:
    assert set(SAMPLES) == set(get_args(Part))


@pytest.mark.parametrize("kind", get_args(Part), ids=lambda kind: kind.__name__)
def test_each_kind_of_part_is_shown_by_every_form(kind: type) -> None:
    part, said = SAMPLES[kind]
    for form, text in forms(part).items():
        plain = re.sub(r"\s+", " ", re.sub(r"<br>|<[^>]*>", " ", text)).replace("\\", "")
        for word in (re.sub(r"\s+", " ", each) for each in said):
            assert word.lower() in plain.lower(), f"{form} lacks {word!r}: {text}"


def test_what_is_no_part_is_refused() -> None:
    for lower in (static_html.lower_part, markdown.lower_part):
        with pytest.raises(TypeError, match="str"):
            lower("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="str"):
        terminal.add("text", Page(80))  # type: ignore[arg-type]


class Elements(HTMLParser):
    """All elements and attributes of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def hostile() -> Document:
    """Return a document whose every text is hostile."""
    finding = Finding(
        HOSTILE, "error", HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), "possible", True, HOSTILE,
        Experiment(HOSTILE, HOSTILE, HOSTILE), HOSTILE,
    )  # fmt: skip
    body: tuple[Part, ...] = (
        Findings((finding,), HOSTILE),
        Heading(HOSTILE),
        Prose(HOSTILE, HOSTILE),
        Code(f"one\n{HOSTILE}"),
        Table((HOSTILE,), ((Sign("ok", HOSTILE),), (HOSTILE,)), noun="row"),
        Groups((Group("ok", HOSTILE, (HOSTILE,), ((HOSTILE, HOSTILE),)),)),
        Outline((Branch(HOSTILE, 2, HOSTILE, True),)),
        Plan(Experiment(HOSTILE, HOSTILE, HOSTILE), HOSTILE),
        Picture(b"png", HOSTILE, HOSTILE),
    )
    answer = Answer(None, HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), (HOSTILE,), HOSTILE)
    return Document("workbench.keydiff/1", HOSTILE, answer, Facts(((HOSTILE, HOSTILE),)), body)


def test_hostile_text_stays_text_in_every_form() -> None:
    document = hostile()
    page = static_html.lower(document)
    found = Elements(page)
    assert found.tags <= {
        *("div", "p", "span", "b", "i", "code", "pre", "img", "br", "ul", "li"),
        *("details", "summary", "table", "tr", "td"),
    }
    assert found.attributes <= {"style", "open", "alt", "src"}
    for text in (page, terminal.lower(document, 60), markdown.lower(document)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    shown = markdown.lower(document)
    outside = re.sub(r"(`+).*?\1", "", re.sub(r"```.*?```", "", shown, flags=re.DOTALL))
    assert not re.search(r"(?<!\\)<img", outside)
    assert "@all" not in outside  # nobody is called to the issue
    assert "](b)" not in outside.replace("\\]", "")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("kind", get_args(Part), ids=lambda kind: kind.__name__)
def test_prose_is_no_wider_than_asked(kind: type, width: int) -> None:
    part, _ = SAMPLES[kind]
    page = Page(width)
    terminal.add(part, page)
    assert max(map(cells, str(page).splitlines()), default=0) <= width


def test_colour_is_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    document = hostile()
    assert "\x1b[" not in terminal.lower(document)
    assert "\x1b[1;38;5;" in terminal.lower(document, colour=True)


def test_a_narrow_terminal_drops_the_bars_and_keeps_the_numbers() -> None:
    rows = tuple(
        (f"a change with a long name {n}", "2.40", Bar(0.0, 0.5), "12 rounds") for n in range(2)
    )
    page = Page(40)
    terminal.add(Table(("", "", "", ""), rows), page)
    assert "█" not in str(page)
    assert str(page).count("2.40") == 2


@pytest.mark.parametrize(
    ("item", "drawn"),
    [
        (Bar(0.0, 1.0), "████"),
        (Bar(0.0, 0.5), "██··"),
        (Bar(0.5, 1.0, open=True), "··▒▒"),
        (Bar(0.99, 1.0), "···█"),
        (Bar(0.0, 0.0), "····"),
    ],
)
def test_bars_fill_their_share(item: Bar, drawn: str) -> None:
    assert terminal.bar(item, columns=4) == drawn


@pytest.mark.parametrize(
    ("noun", "many"),
    [("key", "keys"), ("matrix", "matrices"), ("branch", "branches"), ("entry", "entries")],
)
def test_plurals(noun: str, many: str) -> None:
    assert parts.plural_of(noun) == many
