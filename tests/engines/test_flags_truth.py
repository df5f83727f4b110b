"""Flags against the real ServerArgs of every release: the table, and every flag an experiment proposes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.hang.cases import CASES
from workbench.facts import flags
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.experiments import STEPS

from . import environments, flag_tables

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

VERSIONS = environments.sglang_versions()
BASE = ["--model-path", "/models/target"]
WORDS = {"half": "4"}


def proposed(version: str) -> dict[str, list[str]]:
    """The arguments of every step that is a flag, as this release spells it."""
    found = {}
    for name, step in STEPS.items():
        chosen = flags.spelling(step.spellings, version) if step.spellings else None
        if chosen:
            found[name] = chosen.format_map(WORDS).split()
    return found


def lines(version: str) -> dict[str, list[str]]:
    """Command lines by name: one a step, and one that leaves the draft out."""
    found = {name: [*BASE, *words] for name, words in proposed(version).items()}
    return found | {"base": BASE, "wrong": [*BASE, "--no-such-flag-at-all"]}


@cache
def asked(version: str) -> tuple[dict[str, Any], dict[str, str]]:
    wanted = lines(version)
    answer = flag_tables.ask(version, list(wanted.values()))
    return answer, dict(zip(wanted, answer["refusals"], strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_proposed_flag_is_parsed(version: str) -> None:
    _, refusals = asked(version)
    assert refusals.pop("wrong")  # the parser does refuse
    assert {name: said for name, said in refusals.items() if said} == {}
    always = {"soft_watchdog", "decode_graphs_off", "custom_all_reduce_off", "overlap_off"}
    assert always <= set(refusals)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_flags_are_what_the_parser_says(version: str) -> None:
    """What was read from the source, against the parser itself, flag by flag."""
    real = {
        name: (flag["field"], flag["sort"], flag["default"], flag["deprecated"])
        for flag in asked(version)[0]["flags"]
        for name in flag["flags"]
    }
    read = {
        name: (flag.field, flag.sort, flag.default, flag.deprecated)
        for name, flag in flags.flags_of(version).items()
    }
    assert read == real


@pytest.mark.parametrize("version", VERSIONS)
def test_values_are_taken_and_refused_as_the_parser_does(version: str) -> None:
    """Choices, types and numbers of values, by what the real parser makes of one more value."""
    real = {name: flag for flag in asked(version)[0]["flags"] for name in flag["flags"]}
    checked = 0
    for name, flag in flags.flags_of(version).items():
        choices = real[name]["choices"]
        if flag.choices is not None and choices is not None:
            assert sorted(map(str, flag.choices)) == sorted(map(str, choices)), name
            checked += 1
        if flag.sort == "value":
            assert flag.nargs == real[name]["nargs"], name
            assert flag.required == real[name]["required"], name
    assert checked > 40


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_left_out_is_a_flag_of_the_release(version: str) -> None:
    for name, step in STEPS.items():
        if step.without:
            assert flags.takes(step.without, version), name


@pytest.mark.parametrize("version", VERSIONS)
def test_every_case_is_advised_in_the_release_s_own_words(version: str) -> None:
    """Every case, as if it had happened with this release: what is proposed is parsed by it."""
    import dataclasses

    known = {flag for item in asked(version)[0]["flags"] for flag in item["flags"]}
    for case in CASES:
        change = diagnose(dataclasses.replace(case.scene, version=version)).experiment.change
        word = change.split()[0]
        if word.startswith("--"):
            assert word[2:].partition("=")[0] in known, (case.name, change)
