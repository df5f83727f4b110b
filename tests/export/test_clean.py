"""A hostile notebook as a page: an allow-list for what it says, our own script for its results."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import bs4
import nbformat
import pytest

from tests.display_samples import HOSTILE, Sample, group, incident, payload
from workbench.display import assets, live
from workbench.display.static_html import static
from workbench.export import clean, summary
from workbench.export.index import read_entry, write_index
from workbench.export.report import notebook_page, verdicts

EVIL = [
    "<script>fetch('http://127.0.0.1/1')</script>",
    "<SCRIPT SRC=http://127.0.0.1/x.js></SCRIPT>",
    "<script type=speculationrules>{}</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img src='http://127.0.0.1/2' srcset='http://127.0.0.1/3 2x'>",
    "<img src='data:text/html;base64,PHNjcmlwdD4='>",
    "<svg onload=alert(1)><a href='http://127.0.0.1/'></a></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<a href='javascript:alert(1)' ping='http://127.0.0.1/4'>x</a>",
    "<a href='data:text/html,x' download>x</a>",
    "<base href='http://127.0.0.1/'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1/5'>",
    "<link rel=prefetch href='http://127.0.0.1/6'>",
    "<iframe srcdoc='<script>1</script>' src='http://127.0.0.1/7'></iframe>",
    "<object data='http://127.0.0.1/8'></object><embed src='http://127.0.0.1/9'>",
    "<form action='http://127.0.0.1/10'><input autofocus onfocus=alert(1)><button>x</button></form>",
    "<div style='background:url(http://127.0.0.1/11);position:fixed;inset:0'>x</div>",
    "<style>@import 'http://127.0.0.1/12'; .wb-top{display:none}</style>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<p class='wb-top wb-view' id='x' data-wb-live data-wb-mount>x</p>",
    "<!--><script>alert(1)</script>-->",
    "<video src='http://127.0.0.1/13' autoplay></video>",
    "<template><script>alert(1)</script></template>",
    "<portal src='http://127.0.0.1/14'></portal><fencedframe></fencedframe>",
]


def page_of(*cells: Any) -> str:
    notebook = nbformat.v4.new_notebook(cells=list(cells))
    return notebook_page(notebook, Path("n.ipynb"))


def shows(html: str = "", **data: Any) -> Any:
    output = nbformat.v4.new_output(
        "display_data", data={"text/html": html, **data} if html else data
    )
    return nbformat.v4.new_code_cell("1", outputs=[output])


def result(ok: Any, line: str = "A sample.", **more: Any) -> str:
    data = payload([group("loaded", "a.weight")], **more)
    data["verdict"] = {"ok": ok, "line": line} if line else {}
    return live.live(assets.packed(data), "<p>still</p>", str(data["schema"]))


def parts(text: str) -> list[tuple[str, list[tuple[str, str]], str]]:
    """Return every element with its attributes, spaces and semicolons in them aside, and all text."""
    return [
        (
            tag.name,
            sorted((k, re.sub(r"[\s;]", "", str(v))) for k, v in tag.attrs.items()),
            tag.get_text(),
        )
        for tag in bs4.BeautifulSoup(text, "html.parser").find_all(True)
        if tag.name != "tbody"  # every parser adds it
    ]


def scripts(page: str) -> list[str]:
    return re.findall(r"<script\b[^>]*>(.*?)</script>", page, re.DOTALL | re.IGNORECASE)


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("way", ["output", "markdown", "markdown output", "raw", "in a result"])
def test_nothing_of_a_hostile_notebook_runs_or_loads(evil: str, way: str) -> None:
    cell = {
        "output": lambda: shows(evil),
        "markdown": lambda: nbformat.v4.new_markdown_cell(f"# T\n\nText {evil}\n\n{evil}\n"),
        "markdown output": lambda: shows(**{"text/markdown": f"{evil}\n\ntext {evil}"}),
        "raw": lambda: nbformat.v4.new_raw_cell(evil, metadata={"raw_mimetype": "text/html"}),
        "in a result": lambda: shows(result(True).replace("<p>still</p>", evil)),
    }[way]()
    page = page_of(cell)
    assert set(scripts(page)) <= {assets.read("theme.js"), live.start_script()}
    body = page.split("<main>")[1]
    for text in scripts(body):
        body = body.replace(text, "")
    tags = re.findall(r"<[a-z][^>]*>", body, re.IGNORECASE)
    for tag in tags:
        if re.fullmatch(r'<a href="(#|http)[^"]*">', tag):  # a link is followed by a reader alone
            continue
        assert not re.search(r"\son\w+\s*=", re.sub(r'"[^"]*"', '""', tag)), tag
        assert not re.search(r"javascript:|127\.0\.0\.1|url\(", tag.split("title=")[0]), tag
        assert not re.match(r'<img (?![^>]*src="data:image)[^>]*src', tag), tag
        assert not re.match(r"<(svg|math|i?frame|object|embed|form|meta|link|base|style)\b", tag), (
            tag
        )
        assert not re.search(r'class="[^"]*wb-', tag), tag


def test_what_formats_stays() -> None:
    kept = [
        '<table class="dataframe"><thead><tr><th>a</th></tr></thead></table>',
        '<p style="color: light-dark(#b34a00,#ff8f4d); margin: 0 0 8px;">✗ <b>x</b> <code>y</code></p>',
        '<a href="https://example.org/a?b=c">x</a>',
        '<img alt="dot" src="data:image/png;base64,iVBORw0KGgo=">',
        "<details open><summary>1</summary><div>2</div></details>",
        '<div class="highlight"><pre><span class="k">def</span></pre></div>',
    ]
    for text in kept:
        assert clean.cleaned(text).replace("#b34a00, #", "#b34a00,#") == text


def test_the_static_form_of_a_result_passes_unchanged_in_words_and_style() -> None:
    still = static(incident())
    again = clean.cleaned(still)
    assert parts(again) == parts(still)


def test_a_hostile_result_is_data_for_our_own_view() -> None:
    made = result(True, line=HOSTILE)
    evil = made.replace('<script type="module">', "<script>alert(1)</script><script>alert(2);")
    page = page_of(shows(evil))
    assert "alert(" not in "".join(scripts(page))
    assert page.count("data-wb-data=") == 1
    assert page.count("<script") == 2
    assert 'data-wb-piece="core-' in page


def test_a_result_of_version_0_1_is_shown_by_todays_view() -> None:
    data = assets.packed(incident().payload())
    old = (
        '<div data-wb="0123456789ab" data-wb-verdict="wrong: x"><style data-wb-css="1">.a{}</style>'
        "<div data-wb-mount><p>still</p></div>"
        f'<script type="text/plain" data-wb-data>{assets.base64_of(data)}</script>'
        '<script data-wb-esm="1" type="text/plain">old()</script><script type="module">old()</script></div>'
    )
    page = page_of(shows(old))
    assert f'data-wb-data="{assets.base64_of(data)}"' in page
    assert "old()" not in page
    assert "silently drops 10 of 16 keys" in page.split("<main>")[0]


def test_output_that_is_only_script_gives_way_to_its_other_forms() -> None:
    page = page_of(
        shows("<script>draw()</script>", **{"image/png": "iVBORw0KGgo="}),
        shows("<script>draw()</script>", **{"text/plain": "a chart"}),
    )
    assert '<img alt="" src="data:image/png;base64,iVBORw0KGgo="/>' in page
    assert "<pre>a chart</pre>" in page


def test_widgets_and_their_bars_of_progress_leave_no_text() -> None:
    widget = "application/vnd.jupyter.widget-view+json"
    page = page_of(
        shows(**{widget: {"model_id": "1"}, "text/plain": "  0%|     | 0/16"}),
        shows(**{"text/plain": ""}),  # as a bar leaves it that is done
    )
    assert "0/16" not in page
    assert '<div class="nb-output">' not in page


def test_the_worst_verdict_and_how_many_of_each(tmp_path: Path) -> None:
    page = page_of(
        shows(result(True, "All is well.")),
        shows(result(None, "It depends.")),
        shows(result(True, "Well again.")),
        shows(result(False, "It is <broken>.")),
        shows(result(False, "Also broken.")),
    )
    (tmp_path / "several.html").write_text(page)
    entry = read_entry(tmp_path / "several.html")
    assert (entry.state, entry.verdict) == ("wrong", "It is <broken>.")
    assert entry.counts == "2 wrong, 1 cannot tell, 2 ok"
    top = page.split('<div class="nb-output">')[0]
    assert "5 results: 2 wrong, 1 cannot tell, 2 ok" in top
    for at, line in enumerate(
        ["All is well.", "It depends.", "Well again.", "It is &lt;broken&gt;."], 1
    ):
        assert f'href="#result-{at}"' in top
        assert f'id="result-{at}"' in page
        assert line in top
    assert verdicts(tmp_path / "several.html") == [True, None, True, False, False]
    assert "2 wrong, 1 cannot tell, 2 ok" in write_index(tmp_path).read_text()


@pytest.mark.parametrize(
    "damaged",
    [
        lambda: result(True).replace('data-wb-data="', 'data-wb-data="AAAA'),
        lambda: re.sub(r' data-wb-data="[^"]*"', "", result(True)),
        lambda: re.sub(r'data-wb-data="[^"]*"', 'data-wb-data="é"', result(True)),
        lambda: _holding(b"[1, 2]"),
        lambda: _holding(b"{"),
        lambda: _holding(b'{"schema": 3, "verdict": {"ok": true}}'),
        lambda: _holding(b'{"schema": "workbench.keydiff/1", "verdict": "ok"}'),
        lambda: _holding(b'{"schema": "workbench.keydiff/1", "verdict": {"ok": "yes", "line": "x"}}'),
        lambda: _holding(b'{"schema": "workbench.keydiff/1", "verdict": {"ok": 1, "line": "x"}}'),
        lambda: _holding(b'{"schema": "workbench.keydiff/1"}'),
        lambda: result(None, line=""),
    ],
)  # fmt: skip
def test_a_result_without_a_verdict_cannot_tell(damaged: Any) -> None:
    shown: list[clean.Shown] = []
    text = clean.output_html(damaged(), shown)
    if shown[0].state != "unsure":  # only where the line is missing is True believed
        assert shown[0].line == "This result has no verdict."
    text = page_of(shows(damaged()), shows(result(True)))
    assert "1 cannot tell, 1 ok" in text
    assert "<p>still</p>" in text


def _holding(data: bytes) -> str:
    code = base64.b64encode(gzip.compress(data)).decode()
    return re.sub(r'data-wb-data="[^"]*"', f'data-wb-data="{code}"', result(True))


def test_data_that_never_ends_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "_MOST", 10_000)
    shown: list[clean.Shown] = []
    bomb = json.dumps({"verdict": {"ok": True, "line": "x"}, "more": "0" * 100_000})
    clean.output_html(_holding(bomb.encode()), shown)
    assert shown == [clean.Shown("", "unsure", "This result has no verdict.")]


def test_a_page_without_results_has_no_verdict() -> None:
    page = page_of(shows("<p>x</p>"))
    assert "workbench-verdict" not in page.split("<main>")[0]
    assert summary.of([]) is None
    assert summary.banner([clean.Shown("", "ok", "x")]) == ""
    assert page.count("<script") == 1


def test_one_result_is_its_pages_verdict() -> None:
    page = page_of(shows(Sample(payload([], ok=None))._repr_mimebundle_()[0]["text/html"]))
    assert '<meta name="workbench-verdict" data-state="unsure" content="A sample.">' in page
    assert "nb-results" not in page.split("<main>")[1]
