"""Terminal text: what fits, what is escaped, what is coloured."""

import io
import itertools

import pytest

from workbench.core import palette, wording
from workbench.core.finding import Experiment, Finding
from workbench.display import text

LONG = "language_model.model.layers.{0...60}.mlp.experts.{0...383}.gate_proj.weight_packed"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("state", sorted(palette.TONES))
def test_every_tone_is_readable_on_every_background(state: str, theme: str) -> None:
    colour = getattr(palette.tone(state), theme)
    for background in palette.BACKGROUNDS[theme]:
        assert palette.contrast(colour, background) >= 4.5


def test_contrast_knows_its_ends() -> None:
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#777777") == 1


def test_states_that_stand_together_have_different_glyphs() -> None:
    shown = [
        s for s in palette.ORDER if s != "written"
    ]  # loaded and written are the same good news
    for one, other in itertools.combinations(shown, 2):
        assert palette.tone(one).glyph != palette.tone(other).glyph
        assert palette.tone(one).ascii != palette.tone(other).ascii
    assert all(len(tone.glyph) == wording.cells(tone.glyph) == 1 for tone in palette.TONES.values())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_nothing_is_wider_than_asked(width: int) -> None:
    finding = Finding(
        "keys.dropped",
        "error",
        "The decoder layer is lost: " + LONG,
        detail="a word " * 40 + "sglang/srt/models/" + "deep/" * 30 + "llama.py:210",
        evidence_for=("seen " * 30, LONG * 2),
        evidence_against=("日本語のテキスト" * 12,),
        confidence="likely",
        next_step="workbench fix draft sglang==0.5.11 -o " + "out/" * 40,
        experiment=Experiment("relaunch " * 12, "right " * 20, "wrong " * 20),
        place="sglang/srt/models/llama_eagle3.py:210",
    )
    lines = [
        *text.finding(finding, width),
        *text.verdict(False, "no " * 60, width),
        *text.group_line("dropped", LONG, ["23,424 keys", "[2048, 896]", "I32"], width=width),
        *text.table([[LONG, "[1]", "BF16"], ["short", "[2, 3]", "F32"]], width),
        text.heading("Dropped", width),
    ]
    assert max(map(wording.cells, lines)) <= width


def test_a_group_line_keeps_its_facts_at_the_edge() -> None:
    assert text.group_line("dropped", "layers.0.norm.weight", ["[64]", "BF16"], width=60) == [
        "  ✗ layers.0.norm.weight                          [64]  BF16"
    ]


def test_names_break_after_dots_and_never_inside_a_span() -> None:
    lines = text.wrap_name("layers.{0...23}.self_attn.q_proj.weight", 30, "  ")
    assert lines == ["  layers.{0...23}.self_attn.", "    q_proj.weight"]


def test_control_characters_never_reach_the_terminal() -> None:
    hostile = "layers\x1b[2J\x1b]0;owned\x07\r\n\u202eweights"
    for lines in (
        text.wrap(hostile),
        text.wrap_name(hostile),
        text.group_line("dropped", hostile, [hostile]),
        text.table([[hostile, hostile]]),
        [text.heading(hostile)],
        text.verdict(None, hostile),
    ):
        assert all(line.isprintable() for line in lines), lines
    assert text.clean("a\x1b[31m\u202e") == "a\\x1b[31m\\u202e"


def test_middle_keeps_both_ends() -> None:
    assert wording.middle("model.layers.0.weight", 40) == "model.layers.0.weight"
    short = wording.middle("model.layers.0.self_attn.q_proj.weight", 21)
    assert short == "model.laye…roj.weight"
    assert wording.cells(wording.middle("日本語" * 20, 21)) <= 21
    assert [wording.middle("abc", n) for n in (0, 1, 2, 3)] == ["", "…", "…c", "abc"]


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert text.colour_wanted(_Terminal())
    assert not text.colour_wanted(io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert text.colour_wanted(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not text.colour_wanted(_Terminal())
    assert text.paint("x", "dropped", False) == "x"
    assert text.paint("x", "dropped", True).endswith("x\x1b[0m")


def test_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert text.columns(stream=io.StringIO()) == 80
    assert text.columns(stream=_Terminal()) == text.LONGEST
    assert text.columns(10) == text.SHORTEST
    assert text.columns(100) == 100


def test_ascii_replaces_glyphs_where_the_terminal_has_none() -> None:
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert not text.unicode_wanted(latin)
    assert text.verdict(False, "no", unicode=False) == ["x no"]
    assert text.heading("A", 10, unicode=False) == "A --------"


def test_plural() -> None:
    assert [wording.plural(n, "key") for n in (0, 1, 2048)] == ["0 keys", "1 key", "2,048 keys"]
    assert wording.plural(2, "copy", "copies") == "2 copies"
