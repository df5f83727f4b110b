"""``make demo``: run the notebooks on the shipped case, and write reports that open anywhere."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.export.index import write_index
from workbench.export.report import report

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Write ``reports/``: one page a notebook, and an index; return the exit code."""
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    out = ROOT / "reports"
    out.mkdir(exist_ok=True)
    for notebook in notebooks:
        print(f"running {notebook.relative_to(ROOT)} …", flush=True)
        try:
            report(notebook, out / f"{notebook.stem}.html")
        except WorkbenchError as error:
            print(error, file=sys.stderr)
            return 2
    index = write_index(out)
    print(f"\nOpen {index.relative_to(ROOT)} in a browser: the pages need no network.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
