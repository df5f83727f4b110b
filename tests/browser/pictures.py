"""Pictures of a real result for the README: ``python -m tests.browser.pictures [FOLDER]``."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import workbench

from .conftest import ARGUMENTS, NAMES

ROOT = Path(__file__).resolve().parents[2]


def main(folder: Path) -> None:
    """Take pictures of the incident's diff in light and in dark."""
    program = next(filter(None, map(shutil.which, NAMES)))
    with (
        tempfile.TemporaryDirectory() as work,
        contextlib.chdir(work),  # the result names its checkpoint as it was given
        sync_playwright() as driver,
    ):
        workbench.fix_checkpoint(ROOT / "data/drafts/speculators", "sglang==0.5.14", "draft")
        file = workbench.diff_keys("draft", "sglang==0.5.11").to_html("keys.html").resolve()
        browser = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1120, "height": 1162}, color_scheme=scheme, offline=True
            )
            page.goto(file.as_uri())
            page.wait_for_selector("[data-ready]")
            picture = folder / f"keys-{scheme}.png"
            page.screenshot(path=picture)
            Image.open(picture).quantize(96).save(picture, optimize=True)
        browser.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    main(target)
