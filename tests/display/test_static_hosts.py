"""What is left of a result where nothing runs: after the sanitizers of GitHub, of JupyterLab and of mail."""

from __future__ import annotations

import re
from importlib import import_module

import bs4
import pytest
from bleach.sanitizer import Cleaner

from workbench.core.result import Result
from workbench.display.html import prose
from workbench.display.static_html import static

# What GitHub lets pass in a notebook's HTML: the elements of its own Markdown, neither style, class nor id,
# pictures from addresses only (pandas-dev/pandas#33076, jupyter/nbviewer#450; the list is html-pipeline's).
GITHUB = set(
    re.findall(
        r"\w+",
        "h1 h2 h3 h4 h5 h6 br b i strong em a pre code img tt div ins del sup sub p picture ol ul table "
        "thead tbody tfoot blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary "
        "details caption figure figcaption abbr bdo cite dfn mark small source span time wbr",
    )
)
SAMPLES = [
    "display_samples.incident", "display_samples.hostile", "hang_samples.diverged", "hang_samples.hostile",
    "replay_samples.chain", "replay_samples.hostile", "weights_samples.target", "weights_samples.draft",
    "weights_samples.hostile",
]  # fmt: skip


def words(text: str) -> list[str]:
    return bs4.BeautifulSoup(text, "html.parser").get_text(" ").split()


def github(text: str) -> str:
    """Remove scripts with what is in them, and of all else the tags and attributes GitHub does not know."""
    soup = bs4.BeautifulSoup(text, "html.parser")
    for script in soup("script"):
        script.decompose()
    cleaner = Cleaner(
        tags=GITHUB, attributes={"img": ["src", "alt"], "details": ["open"]}, strip=True
    )
    return str(cleaner.clean(str(soup)))


def tags_only(text: str) -> str:
    """Remove tags and leave whatever text stood between them, of a script as well, as some hosts do."""
    return str(Cleaner(tags=GITHUB, attributes={}, strip=True).clean(text))


def output(name: str) -> tuple[str, Result]:
    module, function = name.split(".")
    result = getattr(import_module(f"tests.{module}"), function)()
    bundle, _ = result._repr_mimebundle_()
    return bundle["text/html"], result


@pytest.mark.parametrize("sample", SAMPLES)
def test_githubs_sanitizer_leaves_the_whole_static_form_and_nothing_else(sample: str) -> None:
    text, result = output(sample)
    left = github(text)
    assert words(left) == words(static(result))
    assert not re.search(r"style=|class=|id=|data-wb", left)


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_static_form_says_verdict_and_findings_without_colour(sample: str) -> None:
    text, result = output(sample)
    left = " ".join(words(github(text)))
    payload = result.payload()
    for said in (
        payload["verdict"]["line"],
        *(finding["title"] for finding in payload["findings"]),
        *(finding["next_step"] for finding in payload["findings"]),
    ):
        assert " ".join(words(prose(str(said)))) in left


def test_no_data_and_no_module_is_ever_text() -> None:
    text, result = output("display_samples.incident")
    left = words(tags_only(text))
    still = words(static(result))
    assert left[: len(still)] == still
    assert len(" ".join(left[len(still) :])) < 1_500  # the starter, where a host shows even scripts
    assert "<style" not in text
