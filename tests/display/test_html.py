"""The pieces of a page: escaping, the preview, the module, what a notebook carries."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from importlib import import_module
from typing import Any

import pytest

from tests.display_samples import HOSTILE, Sample, big, group, hostile, incident, payload
from tests.weights_samples import target
from workbench.core import palette
from workbench.display import assets, html, live, page
from workbench.display.static_html import static


class Elements(HTMLParser):
    """All elements and attributes of a piece of HTML, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("sample", [incident, hostile, big])
def test_the_static_form_is_made_of_what_a_sanitizer_keeps(sample: Any) -> None:
    found = Elements(static(sample()))
    assert found.tags <= {
        *("div", "p", "span", "b", "i", "code", "br", "ul", "li"),
        *("details", "summary", "table", "tr", "td"),
    }
    assert found.attributes <= {"style", "open"}


def test_the_static_form_says_what_matters() -> None:
    text = Elements(static(incident())).text
    assert text.index("silently drops 10 of 16") < text.index("The whole decoder layer is lost")
    assert "workbench fix drafts/speculators" in text
    assert "layers.0.self_attn.q_proj.weight→ midlayer.self_attn.q_proj.weight" in text
    assert "✗ dropped" in text
    assert "likely, not certain" in text
    assert "23,039×" in Elements(static(big())).text


def test_hostile_text_stays_text() -> None:
    sample = hostile()
    for text in (static(sample), page.result_page(sample)):
        found = Elements(text)
        assert "img" not in found.tags
        assert "onerror" not in found.attributes
        assert "\u202e" not in text
    assert HOSTILE[:12] in Elements(static(sample)).text


def test_script_elements_hold_nothing_that_ends_them() -> None:
    assert "</" not in live.start_script()
    assert "<!--" not in live.start_script()
    text = page.result_page(hostile())
    assert len(re.findall("<script", text)) == len(re.findall("</script>", text)) == 2


def test_a_page_names_no_address_and_forbids_all() -> None:
    text = page.result_page(incident())
    assert not re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert "default-src 'none'" in policy.group(1)
    assert "unsafe-inline" not in policy.group(1).split("script-src")[1].split(";")[0]


def module_text() -> str:
    pieces = dict.fromkeys(one for schema in assets._VIEWS for one in assets.pieces(schema))
    return "".join(piece.text for piece in pieces)


def test_the_module_needs_no_other() -> None:
    assert not re.search(r"^\s*import\s", module_text(), re.MULTILINE)
    exported = re.findall(r"^export .*", module_text(), re.MULTILINE)
    assert exported == ["export default { render, mount: (out) => mountWith(render, out) };"]


@pytest.mark.parametrize("schema", sorted(assets._VIEWS))
def test_what_an_output_carries_of_script_and_style_is_small(schema: str) -> None:
    text = live.live(b"", "", schema)
    assert len(text) < 48_000
    # Seven results of one kind, as in the shipped notebook on keys: 197 KB each before.
    assert 7 * len(live.live(b"", "", "workbench.keydiff/1")) < 190_000


def test_every_view_is_in_the_pieces_of_its_schema() -> None:
    for schema, (_, function) in assets._VIEWS.items():
        text = "".join(piece.text for piece in assets.pieces(schema))
        assert f'VIEWS["{schema}"] = {function};' in text
        assert re.search(rf"^function {function}\(", text, re.MULTILINE)
    assert [piece.name[:4] for piece in assets.pieces("of-another/1")] == ["core"]


def test_every_state_has_its_colour_in_the_style_sheet() -> None:
    for state, tone in palette.TONES.items():
        assert f"--wb-{state}:light-dark({tone.light},{tone.dark})" in assets.css()
        assert f'[data-state="{state}"]' in assets.css()


def test_every_rule_is_of_our_view_and_weighs_more_than_a_notebooks() -> None:
    for prelude in re.findall(r"(?:^|[{}])\s*([^{}@;]+)\{", assets.css()):
        for selector in re.split(r",(?![^(]*\))", prelude):
            assert ".wb-view" in selector
            assert len(re.findall(r"[.\[]", selector)) >= 2, selector


def test_packing_is_strict_and_reproducible() -> None:
    sample = incident()
    packed = assets.packed(sample.payload())
    assert packed == assets.packed(incident().payload())
    data = json.loads(gzip.decompress(packed))
    assert data["style"]["glyphs"]["dropped"] == "✗"
    assert data["style"]["order"][0] == "dropped"
    with pytest.raises(ValueError, match="Out of range float"):
        assets.packed({"x": float("nan")})


def test_a_live_view_carries_its_payload_and_its_pieces() -> None:
    data = assets.packed(incident().payload())
    text = live.live(data, "<p>still</p>", "workbench.keydiff/1")
    found = re.search(r'data-wb-data="([^"]+)"', text)
    assert found
    assert base64.b64decode(found.group(1)) == data
    assert "<div data-wb-mount><p>still</p></div>" in text
    needs = re.search(r'data-wb-needs="([^"]+)"', text)
    carried = dict(re.findall(r'data-wb-piece="([^"]+)" data-wb-code="([^"]+)"', text))
    assert needs
    assert list(carried) == needs.group(1).split()
    joined = [gzip.decompress(base64.b64decode(code)).decode() for code in carried.values()]
    assert joined == [piece.text for piece in assets.pieces("workbench.keydiff/1")]


def test_a_notebook_gets_text_and_html_and_nothing_that_needs_a_kernel() -> None:
    sample = incident()
    Sample.limits.clear()
    bundle, _ = sample._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == sample.to_text()
    assert len(Sample.limits) == 1
    limit = Sample.limits[0]
    assert limit is not None
    assert 2 * (limit * 4 / 3 + 60_000) < 2_000_000
    only, _ = sample._repr_mimebundle_(include={"text/plain"})
    assert set(only) == {"text/plain"}
    less, _ = sample._repr_mimebundle_(exclude={"text/html"})
    assert "text/html" not in less


def test_a_widget_is_shown_by_the_same_html() -> None:
    view = incident().view()
    bundle, _ = view._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert f'data-wb-model="{view.name}"' in bundle["text/html"]
    again, _ = incident()._repr_mimebundle_()
    assert bundle["text/html"].replace(f' data-wb-model="{view.name}"', "") == again["text/html"]


@pytest.mark.parametrize(
    "sample", ["hang_samples.diverged", "replay_samples.chain", "weights_samples.target"]
)
def test_no_escape_code_enters_what_a_notebook_keeps(
    monkeypatch: pytest.MonkeyPatch, sample: str
) -> None:
    """A kernel sets these variables, though what it writes goes into a file."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for wish in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE"):
        monkeypatch.setenv(wish, "1")
        module, function = sample.split(".")
        result = getattr(import_module(f"tests.{module}"), function)()
        bundle, _ = result._repr_mimebundle_()
        for text in bundle.values():
            assert "\x1b" not in text
            assert "x1b[" not in text  # as it is spelt out in HTML


def test_two_hundred_thousand_rows_fit_a_notebook() -> None:
    bundle, _ = big()._repr_mimebundle_()
    assert len(bundle["text/html"]) < 1_000_000


def test_the_widget_keeps_what_the_reader_chose() -> None:
    view = incident().view()
    assert view.ui == {}
    assert gzip.decompress(view.payload).startswith(b'{"schema":"workbench.keydiff/1"')
    view.ui = {"filter": "q_proj"}
    assert view.get_state()["ui"] == {"filter": "q_proj"}
    view.show(target())
    assert gzip.decompress(view.payload).startswith(b'{"schema":"workbench.weightscan/1"')
    assert "weights" in view.needs
    assert view.ui == {"filter": "q_proj"}
    assert target().to_text(80).splitlines()[0] in view._repr_mimebundle_()[0]["text/plain"]


def test_to_html_writes_everything(tmp_path: Any) -> None:
    Sample.limits.clear()
    sample = Sample(payload([group("loaded", "a.weight")], ok=True, title="A <b> title"))
    out = sample.to_html(tmp_path / "page.html")
    assert Sample.limits == [None]
    text = out.read_text()
    assert "<title>A &lt;b&gt; title</title>" in text
    assert '<meta name="workbench-verdict" data-state="ok" content="A sample.">' in text
    assert list(tmp_path.iterdir()) == [out]


def test_files_of_the_view_keep_their_private_names_to_themselves() -> None:
    module = module_text()
    scripts = [name for made in (assets._CORE, *assets._KINDS.values()) for name in made.scripts]
    for name in scripts:
        exported = re.findall(r"^export (?:async )?\w+ (\w+)", assets.read(name), re.M)
        assert f"const {{ {', '.join(exported)} }} = (() => {{" in module
    assert module.count("export ") == 1
    assert not re.search(r"^import ", module, re.M)


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("state", palette.TONES)
def test_a_sign_can_be_read_on_white_and_on_near_black(state: str) -> None:
    tone = palette.TONES[state]
    assert _contrast(tone.light, "#ffffff") >= 4.5
    assert _contrast(tone.dark, "#111111") >= 4.5
    # A host that drops light-dark() shows it in the colour of its text, not in the one of another theme.
    (style,) = re.findall(r'style="([^"]*)"', html.sign(state))
    assert style == f"color:light-dark({tone.light},{tone.dark})"
