"""JSON schemas of results that scripts read: ``python -m workbench.export.schemas`` writes docs/schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from workbench.core.render import kind_of

FOLDER = Path("docs") / "schemas"
SCHEMAS = ("workbench.gate-1", "workbench.launchcheck-1", "workbench.case-1")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of result, by the name of its file."""
    kind = kind_of(name.replace("-", "/"))
    assert kind is not None
    made = msgspec.json.schema(kind.Saved)
    made = {"$schema": _DRAFT, "title": name.replace("-", "/"), **made}
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def main() -> int:
    """Write every schema."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in SCHEMAS:
        text = json.dumps(schema_of(name), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
