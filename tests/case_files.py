"""Cases for tests, written as the collector writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from workbench.core.outputs import writing
from workbench.evidence.casefile import CaseWriter


@contextmanager
def writing_case(path: str | os.PathLike[str], host: str, **fields: Any) -> Iterator[CaseWriter]:
    """Write a case, whole or not at all: ``with writing_case(path, host) as case: case.add(…)``."""
    with writing(path, "case", mode=0o600) as out:
        writer = CaseWriter(out, host, **fields)
        try:
            yield writer
        finally:  # after an error, too, or the zip would be ended later, in a file that is closed
            writer.close()
