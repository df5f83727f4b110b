"""Print how many whole files get the right answer: ``python -m tests.weights.whole_files.measure``."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

import workbench
from tests.weights.whole_files.cases import CASES
from tests.weights.whole_files.reports import REPORTS
from tests.weights.whole_files.test_whole_files import faults


def main() -> None:
    """Run all cases of both tables."""
    healthy = Counter[bool | None]()
    sick = Counter[bool | None]()
    for table, cases in (("families", CASES), ("public reports", REPORTS)):
        right = 0
        with tempfile.TemporaryDirectory() as tmp:
            start = time.process_time()
            for at, case in enumerate(cases):
                found = faults(case, Path(tmp) / str(at))
                right += not found
                kind = sick if True not in case.ok else healthy if False not in case.ok else None
                if kind is not None:
                    kind[workbench.scan_weights(Path(tmp) / str(at)).ok] += 1
                if found:
                    print(f"WRONG {case.name}: {'; '.join(found)}")
        print(f"{table}: {right} of {len(cases)} in {time.process_time() - start:.0f} s")
    for name, kind in (("healthy", healthy), ("with a fault that keeps ok from True", sick)):
        print(f"{name}: ok is True for {kind[True]} of {kind.total()}, None for {kind[None]}")


if __name__ == "__main__":
    main()
