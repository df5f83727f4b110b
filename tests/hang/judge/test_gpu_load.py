"""What a GPU does: the borders between computing, spinning and resting."""

from __future__ import annotations

import pytest

from workbench.hang.judge.gpu_load import load, text
from workbench.hang.records import Gpu


def gpu(
    used: float | None, watts: float | None, limit: float | None, total: float = 143771.0
) -> Gpu:
    return Gpu(
        0, memory_total_mib=total, utilisation=used, power_watts=watts, power_limit_watts=limit
    )


@pytest.mark.parametrize(
    ("used", "watts", "limit", "total", "expected"),
    [
        (100, 126, 700, 143771, "spins"),  # 18 % of the limit
        (100, 595, 700, 143771, "computes"),  # 85 %
        (100, 210, 700, 143771, "spins"),  # 0.30
        (100, 211, 700, 143771, None),
        (100, 314, 700, 143771, None),
        (100, 315, 700, 143771, "computes"),  # 0.45
        (100, 60, 72, 23034, "computes"),  # an L4: the limit counts, not the watts
        (100, 60, None, 23034, None),
        (100, 199.9, None, 143771, "spins"),
        (100, 200, None, 143771, None),
        (100, 399.9, None, 143771, None),
        (100, 400, None, 143771, "computes"),
        (100, 400, None, 60000, None),
        (100, 400, None, 60000.1, "computes"),
        (89.9, 600, 700, 143771, None),
        (90, 600, 700, 143771, "computes"),
        (19.9, 120, 700, 143771, "rests"),
        (20, 120, 700, 143771, None),
        (0, None, None, 143771, "rests"),
        (100, None, 700, 143771, None),
        (None, 600, 700, 143771, None),
    ],
)  # fmt: skip
def test_utilisation_never_decides_alone(
    used: float | None,
    watts: float | None,
    limit: float | None,
    total: float,
    expected: str | None,
) -> None:
    assert load(gpu(used, watts, limit, total)) == expected


def test_the_figures_in_words() -> None:
    assert text(gpu(100, 125, 700)) == "GPU 0 at 100 % and 125 W of 700 W"
    assert text(gpu(None, None, None)) == "GPU 0"
