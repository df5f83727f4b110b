"""The pieces of a page: escaping, the preview, the module, what a notebook carries."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from workbench.display import assets, html, page, palette
from workbench.display.static_html import static

from .display_samples import HOSTILE, Sample, big, group, hostile, incident, payload


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
    assert "</script" not in assets.esm().lower()
    assert "<!--" not in assets.esm()
    assert "</style" not in assets.css().lower()
    text = page.result_page(hostile())
    assert len(re.findall("<script", text)) == len(re.findall("</script>", text)) == 4


def test_a_page_names_no_address_and_forbids_all() -> None:
    text = page.result_page(incident())
    assert not re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert "default-src 'none'" in policy.group(1)
    assert "unsafe-inline" not in policy.group(1).split("script-src")[1].split(";")[0]


def test_the_module_needs_no_other() -> None:
    assert not re.search(r"^\s*import\s", assets.esm(), re.MULTILINE)
    assert re.findall(r"^export .*", assets.esm(), re.MULTILINE) == ["export default { render };"]
    assert len(assets.esm()) + len(assets.css()) < 200_000  # as NOTEBOOK_LIMIT counts on


def test_every_state_has_its_colour_in_the_style_sheet() -> None:
    for state, tone in palette.TONES.items():
        assert f"--wb-{state}:light-dark({tone.light},{tone.dark})" in assets.css()
        assert f'[data-state="{state}"]' in assets.css()


def test_packing_is_strict_and_reproducible() -> None:
    sample = incident()
    packed = assets.packed(sample.payload())
    assert packed == assets.packed(incident().payload())
    data = json.loads(gzip.decompress(packed))
    assert data["style"]["glyphs"]["dropped"] == "✗"
    assert data["style"]["order"][0] == "dropped"
    with pytest.raises(ValueError, match="Out of range float"):
        assets.packed({"x": float("nan")})


def test_a_live_view_carries_its_payload() -> None:
    data = assets.packed(incident().payload())
    text = html.live(data, "<p>still</p>")
    found = re.search(r"data-wb-data>([^<]+)</script>", text)
    assert found
    assert base64.b64decode(found.group(1)) == data
    assert "<div data-wb-mount><p>still</p></div>" in text


def test_a_notebook_gets_text_html_and_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = incident()
    Sample.limits.clear()
    bundle, _ = sample._repr_mimebundle_()
    assert set(bundle) == {
        "text/plain",
        "text/html",
        "application/vnd.jupyter.widget-view+json",
    }
    assert bundle["text/plain"] == sample.to_text()
    assert len(Sample.limits) == 1
    limit = Sample.limits[0]
    assert limit is not None
    assert 2 * (limit * 4 / 3 + 200_000) < 2_000_000
    only, _ = sample._repr_mimebundle_(include={"text/plain"})
    assert set(only) == {"text/plain"}
    less, _ = sample._repr_mimebundle_(exclude={"text/html"})
    assert "text/html" not in less


def test_two_hundred_thousand_rows_fit_a_notebook() -> None:
    bundle, _ = big()._repr_mimebundle_()
    assert len(bundle["text/html"]) < 1_000_000


def test_the_widget_keeps_what_the_reader_chose() -> None:
    view = incident().view()
    assert view.ui == {}
    assert gzip.decompress(view.payload).startswith(b'{"schema":"workbench.keydiff/1"')
    view.ui = {"filter": "q_proj"}
    assert view.get_state()["ui"] == {"filter": "q_proj"}


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
    module = assets.esm()
    for name in assets._MODULES:
        exported = re.findall(r"^export (?:async )?\w+ (\w+)", assets.read(name), re.M)
        assert f"const {{ {', '.join(exported)} }} = (() => {{" in module
    assert module.count("export ") == 1
    assert not re.search(r"^import ", module, re.M)
