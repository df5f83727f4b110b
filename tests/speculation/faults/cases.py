"""All cases by name: faults in files, recorded runs, and controls; how each becomes a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tests.speculation.faults import evidence as ev
from tests.speculation.faults import untuned
from tests.speculation.faults.faults import (
    CONTROLS,
    PAIRS,
    SINGLE,
    Fault,
    blocks,
    listed,
    lost,
    said,
)
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.trial import Trial

Make = Callable[[Path, int], Trial]


@dataclasses.dataclass(frozen=True)
class Case:
    """One case: `facts` must be named, nothing where it is empty."""

    kind: str
    name: str
    words: str
    facts: frozenset[str]
    make: Make


def _file(kind: str, fault: Fault) -> Case:
    def make(folder: Path, requests: int) -> Trial:
        return ev.of_fault(fault, folder, requests)

    return Case(kind, fault.name, fault.words, fault.facts, make)


def _untuned(kind: str, fault: Fault) -> Case:
    """Return a case of the pair that no rule was made for."""

    def make(folder: Path, requests: int) -> Trial:
        if kind == "untuned-recorded":
            return untuned.of_recording(fault.name, requests, folder, fault)
        return untuned.of_fault(fault, folder, requests)

    return Case(kind, f"{kind}/{fault.name}", fault.words, fault.facts, make)


def _recorded(run: str, words: str, facts: str, *changes: object) -> Case:
    fault = Fault(run, words, changes, frozenset(filter(None, facts.split("/"))))  # type: ignore[arg-type]

    def make(folder: Path, requests: int) -> Trial:
        return ev.of_recording(run, requests, folder, fault)

    return Case("recorded", run, words, fault.facts, make)


RECORDED = (
    _recorded("sglang-0.5.11/incident", "the incident as EAGLE3", "decoder layer"),
    _recorded("sglang-0.5.10/incident", "the incident on 0.5.10", "decoder layer"),
    _recorded(
        "sglang-0.5.11/incident-eagle", "the incident as EAGLE", "launch/decoder layer"
    ),
    _recorded("sglang-0.5.14/eagle", "every key loaded, launched as EAGLE", "launch"),
    _recorded("sglang-0.5.14/no-lm-head", "no lm_head", "lm_head", lost("lm_head.weight")),
    _recorded("sglang-0.5.14/fc-reversed", "fc's blocks reversed", "fc order", blocks((2, 1, 0))),
    _recorded("sglang-0.5.14/aux-shifted", "the trainer's ids in eagle_config",
              "auxiliary layers", listed(2, 6, 9)),
    _recorded("sglang-0.5.14/norm-output", "norm_output claimed", "norm_output",
              said(norm_output=True)),
    _recorded("sglang-0.5.14/fc-norm-flag", "fc_norm claimed", "fc_norm", said(fc_norm=True)),
    _recorded("sglang-0.5.14/speculators", "nothing wrong", ""),
)  # fmt: skip


def _control(name: str, words: str, make: Make, facts: str = "") -> Case:
    kind = "single" if facts else "control"
    return Case(kind, name, words, frozenset(filter(None, [facts])), make)


_HEALTHY = CONTROLS[0]
_EXPECTED = Expected.of_training(ev.METRICS, 4)


def _sampled(folder: Path, requests: int) -> Trial:
    trial = ev.of_fault(_HEALTHY, folder, requests)
    return trial.replaced(trace=ev.sampled(requests), expected=_EXPECTED)


def _off_domain(folder: Path, requests: int) -> Trial:
    trial = ev.of_fault(_HEALTHY, folder, requests)
    trace = ev.answered(ev.target(), ev.off_domain(requests), 44)
    return trial.replaced(trace=trace, expected=_EXPECTED)


def _quantised(bits: int) -> Make:
    def make(folder: Path, requests: int) -> Trial:
        trial = ev.of_other_target(_HEALTHY, folder, requests, ev.quantised(bits))
        return trial.replaced(others={}, expected=_EXPECTED)

    return make


def _looping(folder: Path, requests: int) -> Trial:
    trial = ev.of_fault(SINGLE[0], folder, requests)
    return trial.replaced(trace=ev.looping(min(requests, 16)), expected=_EXPECTED)


def _turned(folder: Path, requests: int) -> Trial:
    return ev.of_other_target(_HEALTHY, folder, requests, ev.turned())


MADE = (
    _control("target-rotated", "the target's features in a turned basis", _turned, "target"),
    _control("temperature-1", "texts sampled at temperature 1", _sampled),
    _control("off-domain", "answers to random tokens", _off_domain),
    _control("target-int4", "a target rounded to 4 bits", _quantised(4)),
    _control("target-int3", "a target rounded to 3 bits", _quantised(3)),
    _control("looping", "answers in a loop, the layer dropped", _looping),
)

CASES = (
    *(_file("single", fault) for fault in SINGLE),
    *(_file("pair", fault) for fault in PAIRS),
    *(_file("control", fault) for fault in CONTROLS),
    *MADE,
    *RECORDED,
    *(_untuned("untuned-single", fault) for fault in untuned.SINGLE),
    *(_untuned("untuned-several", fault) for fault in untuned.SEVERAL),
    *(_untuned("untuned-control", fault) for fault in CONTROLS),
    *(_untuned("untuned-recorded", fault) for fault in untuned.RECORDED),
)
