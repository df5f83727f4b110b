"""Print how many whole files get the right answer: ``python -m tests.weights.whole_files.measure``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.weights.whole_files.cases import CASES
from tests.weights.whole_files.test_whole_files import faults


def main() -> None:
    """Run all cases."""
    right = 0
    with tempfile.TemporaryDirectory() as tmp:
        start = time.process_time()
        for at, case in enumerate(CASES):
            found = faults(case, Path(tmp) / str(at))
            right += not found
            if found:
                print(f"WRONG {case.name}: {'; '.join(found)}")
    print(f"{right} of {len(CASES)} in {time.process_time() - start:.0f} s")


if __name__ == "__main__":
    main()
