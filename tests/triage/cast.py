"""The incident, told by `doctor` alone: ``python -m tests.triage.cast`` writes docs/pictures/doctor.svg.

What stands in the picture is what the commands print. It has no script and no font of another place.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import workbench
from workbench.display.terminal import lower

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "pictures" / "doctor.svg"
RUN = "data/incident/runs/sglang-0.5.11/incident-eagle"
WIDTH = 88
MOST = 46  # lines: the headline, its steps, the causes and the corrected launch
# Rich's own form asks another server for a font.
FORM = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<!-- workbench: python -m tests.triage.cast -->
<title>{lines_title}</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#272822"/>
<g transform="translate({terminal_x}, 20)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
""".replace("{lines_title}", "workbench doctor, asked about the folder of a recorded run")


def picture() -> str:
    """Return the picture as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    found = workbench.doctor(RUN)
    text = lower(found.document(), WIDTH, colour=True)
    lines = text.splitlines()
    shown = [*lines[:MOST], *(["…"] if len(lines) > MOST else [])]
    console.print(Text(f"$ workbench doctor {RUN}", style="bold"), soft_wrap=True)
    for line in shown:
        console.print(Text.from_ansi(line), soft_wrap=True)
    made = console.export_svg(title="doctor", theme=MONOKAI, code_format=FORM, unique_id="doctor")
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def main() -> int:
    """Write the picture."""
    import os

    os.chdir(ROOT)
    FILE.write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
