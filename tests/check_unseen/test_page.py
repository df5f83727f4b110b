"""The figures on docs/check.md are the shape of what the command writes."""

from __future__ import annotations

from tests.check_unseen.__main__ import COMMAND, PAGE, figures
from tests.check_unseen.cases import read_lines
from tests.check_unseen.judge import Judged
from tests.tables import taken


def test_the_page_has_a_row_for_every_kind_and_accuses_none() -> None:
    on_page = taken(PAGE, COMMAND)
    made = figures([Judged(line, "✓" if line.good else "caught", "") for line in read_lines()])
    assert [row.split("|")[1] for row in on_page] == [row.split("|")[1] for row in made]
    assert {row.rsplit("|", 2)[1].strip().split(" of ")[0] for row in on_page[2:]} == {"0"}
