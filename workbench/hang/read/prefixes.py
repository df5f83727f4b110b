"""What a container, an orchestrator or a launcher writes before each line of a log that it carries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from workbench.facts.engines import VLLM_PREFIX

# A prefix is taken off where this share of the lines has it: one that could be a message's own begin needs
# nearly all lines.
_CLOCK = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_FORMS: tuple[tuple[float, re.Pattern[str]], ...] = (
    # CRI (kubelet, crictl), and `docker logs -t` or `kubectl logs --timestamps`.
    (0.5, re.compile(rf"{_CLOCK} (?:std(?:out|err) [FP] ?)?(?![\w./@-]+ [\w./@-]+\[\d+\]:)")),
    # kubectl logs --prefix
    (0.5, re.compile(r"\[pod/[\w.-]{1,253}/[\w.-]{1,253}\] ")),
    # Ray: (SGLangEngine pid=4021, ip=10.0.0.4), with or without colour. The names of vLLM's own processes
    # say which rank writes: they stay.
    (0.3, re.compile(
        rf"(?!(?:\x1b\[[\d;]{{1,8}}m)?{VLLM_PREFIX})"
        r"(?:\x1b\[\d+m)?\([\w.:<>-]{1,99}(?: rank=\d+)? pid=\d{1,10}(?:, ip=[\w.:-]{1,45})?\)(?:\x1b\[0m)? ?"
    )),
    # journald: Nov 29 13:35:00 host sglang[4711]:
    (0.5, re.compile(
        rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|{_CLOCK}) [\w.-]{{1,253}}"
        r" [\w./@-]{1,80}(?:\[\d{1,10}\])?: ?"
    )),
    # docker compose: sglang-1  |
    (0.7, re.compile(r"[\w.-]{1,80} +\| ?")),
    # srun --label, mpirun --tag-output
    (0.7, re.compile(r"\d{1,5}: ")),
    (0.7, re.compile(r"\[\d{1,5},\d{1,5}\]<std(?:out|err|diag)>: ?")),
    # A quoted mail or issue
    (0.7, re.compile(r"> ?")),
)  # fmt: skip
_SAMPLE = 2000


def without_prefix(lines: Sequence[str]) -> list[str]:
    """Return the lines without what carried them: forms may be nested, as compose in journald.

    A form is looked for in the first lines; of lines without it nothing is taken.
    """
    found = list(lines)
    for _ in range(3):
        form = _form(found)
        if form is None:
            return found
        found = [line[match.end() :] if (match := form.match(line)) else line for line in found]
    return found


def _form(lines: Sequence[str]) -> re.Pattern[str] | None:
    """Return the form that enough of the lines have."""
    sample = list(islice((line for line in lines if line.strip()), _SAMPLE))
    for share, form in _FORMS:
        if sum(form.match(line) is not None for line in sample) > share * len(sample):
            return form
    return None
