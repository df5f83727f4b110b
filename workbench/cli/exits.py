"""What the command line's exit code says; no other module turns a verdict into a number."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from workbench.core.verdict import worst

MEANING = (
    "Exit codes: 0 ok; 1 something is wrong; 2 could not run (what happened, why and what to do next are on "
    "standard error); 3 cannot tell. Of several results, the worst decides."
)


class ExitCode(IntEnum):
    """The exit codes of every verb."""

    OK = 0
    WRONG = 1
    FAILED = 2
    CANNOT_TELL = 3


def of_verdicts(verdicts: Iterable[object]) -> ExitCode:
    """Return the exit code of the worst of several verdicts.

    Parameters
    ----------
    verdicts
        The ``ok`` of each result. Only True is 0: False is worse than None, and whatever is neither True
        nor False is None. Where nothing was judged, nothing is ok.
    """
    return {True: ExitCode.OK, False: ExitCode.WRONG, None: ExitCode.CANNOT_TELL}[worst(verdicts)]


def of_results(*results: object) -> ExitCode:
    """Return the exit code of the worst of several results; one without a verdict is never ok."""
    return of_verdicts(getattr(result, "ok", None) for result in results)
