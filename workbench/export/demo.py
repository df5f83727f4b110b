"""``make demo``: run the shipped notebooks, write a report of each, and say where to look."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.export.index import write_index
from workbench.export.report import report


def main(arguments: list[str] | None = None) -> int:
    """Write a report of each notebook and the index of all; return 2 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m workbench.export.demo", description=__doc__)
    parser.add_argument("--notebooks", type=Path, default=Path("notebooks"))
    parser.add_argument("--out", type=Path, default=Path("reports"))
    options = parser.parse_args(arguments)
    sources = sorted(options.notebooks.glob("*.ipynb"))
    if not sources:
        print(f"There is no notebook in {options.notebooks}/.", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for source in sources:
        print(f"{source.name} ", end="", flush=True)
        began = time.perf_counter()
        try:
            page = report(source, options.out / f"{source.stem}.html")
        except WorkbenchError as error:
            print(f"failed\n{error}", file=sys.stderr)
            failed = 2
            continue
        print(f"→ {page} ({page.stat().st_size // 1000} KB, {time.perf_counter() - began:.0f} s)")
    index = write_index(options.out)
    print(f"\nOpen {index.resolve().as_uri()} in a browser. The reports work offline.")
    return failed


if __name__ == "__main__":
    sys.exit(main())
