"""Packing the collector into one file that any Python from 3.9 on runs.

``python -m workbench.hang.collect.pack_collector workbench-collect.pyz``, or ``make collector``. On a node::

    sudo python3 workbench-collect.pyz -o case.zip
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from pathlib import Path

import workbench
from workbench.core.outputs import writing

PACKAGE = Path(workbench.__file__).parent
CARRIED = (
    "secret_shapes.py",
    *(
        f"evidence/{name}.py"
        for name in (
            "casefile",
            "harmless",
            "private_numbers",
            "prompts",
            "pseudonyms",
            "redact",
            "word_filter",
        )
    ),
)
_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("workbench-collect: Python 3.9 or newer is needed, this is %d.%d" % sys.version_info[:2])
from workbench.hang.collect.collector.__main__ import main

sys.exit(main())
"""


def members() -> dict[str, str]:
    """Return the packed files: name to text."""
    files = [
        *CARRIED,
        *sorted(f"hang/collect/collector/{p.name}" for p in _collector().glob("*.py")),
    ]
    return {
        "__main__.py": _MAIN,
        "workbench/__init__.py": f'__version__ = "{workbench.__version__}"\n',
        "workbench/evidence/__init__.py": "",
        "workbench/hang/__init__.py": "",
        "workbench/hang/collect/__init__.py": "",
        **{f"workbench/{name}": (PACKAGE / name).read_text() for name in files},
    }


def pack(out: str | os.PathLike[str]) -> Path:
    """Write the packed collector."""
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with writing(out, "collector") as file:
        file.write(packed())
    out.chmod(0o755)
    return out


def packed() -> bytes:
    """Return the packed collector; the same sources make the same bytes."""
    file = io.BytesIO()
    file.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members().items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text)
    return file.getvalue()


def _collector() -> Path:
    return PACKAGE / "hang" / "collect" / "collector"


if __name__ == "__main__":
    print(pack(sys.argv[1] if len(sys.argv) > 1 else "workbench-collect.pyz"))
