"""The profiles of SGLang against its real loader, one process a version."""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from workbench.checkpoint.open import open_checkpoint
from workbench.loaders.traced import Hints, from_trace

from . import checkpoints, config_changes, conformance, environments, mutations
from .checkpoints import Case
from .conformance import Sets
from .eagle_drafts import eagle_drafts

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

MUTATIONS = 50
VERSIONS = environments.sglang_versions()
ENDS = (VERSIONS[0], VERSIONS[-1])


@cache
def cases(version: str) -> tuple[Case, ...]:
    every = [*checkpoints.drafts(), *eagle_drafts(), *checkpoints.targets()]
    return (*every, *mutations.mutations(MUTATIONS, version))


def whole_cases(version: str) -> list[Case]:
    return [case for case in cases(version) if not case.name.startswith("mutation")]


# Importing an engine takes seconds of one core: two at a time, and the next ones while this one is compared.
_pool = ThreadPoolExecutor(2)
_running: dict[str, Future[dict[str, dict[str, Any]]]] = {}


@pytest.fixture(scope="module", autouse=True)
def engines_started(request: pytest.FixtureRequest) -> None:
    """Start the real loaders of all versions that the selected tests ask for."""
    here = [
        item for item in request.session.items if getattr(item, "module", None) is request.module
    ]
    asked = {
        getattr(item, "callspec", None) and item.callspec.params.get("version") for item in here
    }
    for version in [v for v in VERSIONS if v in asked and environments.is_ready(f"sglang-{v}")]:
        _start(version)


def _start(version: str) -> Future[dict[str, dict[str, Any]]]:
    if version not in _running:
        made = cases(version)  # here, since torch's random numbers belong to the whole process
        _running[version] = _pool.submit(conformance.traced, version, made, partial(_more, version))
    return _running[version]


def _more(version: str, folder: Path) -> list[dict[str, Any]]:
    """What is asked beside the cases: changes of configs, and at the ends shapes alone."""
    asked = config_changes.jobs(folder)
    if version in ENDS:
        asked += [conformance.job_of(case, folder, values=False) for case in whole_cases(version)]
    return asked


def answers(version: str) -> dict[str, dict[str, Any]]:
    """What the real loader did with every checkpoint, asked once."""
    _need(f"sglang-{version}")
    return _start(version).result()


def _need(name: str) -> None:
    required = "engine" in os.environ.get("REQUIRE", "")
    if not environments.is_ready(name) and not required:
        pytest.skip(f"no environment {name}: make engines")
    environments.ensure(name)


def real(version: str, name: str) -> Sets:
    return conformance.real_sets(answers(version)[name])


@pytest.mark.parametrize("version", VERSIONS)
def test_profile_says_what_the_real_loader_does(version: str) -> None:
    """Loaded, lost, raising, missing and partly written, on every checkpoint and mutation."""
    found = conformance.compare(version, cases(version), answers(version))
    lines = [f"{name}: {said}" for name, differences in found.items() for said in differences]
    assert not lines, f"{len(found)} of {len(cases(version))} differ\n" + "\n".join(lines)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_outcome_keeps_what_the_tracer_saw(version: str, tmp_path: Path) -> None:
    """What `diff_keys(..., python=...)` shows is what was traced."""
    for case in cases(version)[::7]:
        answer = answers(version)[case.name]
        if answer["refused"] or answer["unexplained"]:
            continue
        table = open_checkpoint(case.write(tmp_path)).table
        shown = conformance.outcome_sets(from_trace(answer, table, Hints()))
        assert not shown.differences(real(version, case.name)), case.name


@pytest.mark.parametrize("version", VERSIONS)
def test_every_checkpoint_could_be_tried(version: str) -> None:
    """A comparison that silently became "cannot tell" on both sides would prove nothing."""
    untried = {
        case.name: answer["unsupported"]
        for case in cases(version)
        if (answer := answers(version)[case.name])["unsupported"]
    }
    assert not untried


@pytest.mark.parametrize("version", VERSIONS)
def test_every_key_and_parameter_is_in_exactly_one_set(version: str) -> None:
    for case in cases(version):
        seen = real(version, case.name)
        if seen.outcome == "refused":
            continue
        assert seen.loaded | seen.lost | seen.mismatched == set(case.tensors), case.name
        assert not seen.loaded & seen.lost, case.name
        assert not seen.mismatched & (seen.loaded | seen.lost), case.name


def test_the_incident_on_both_sides_of_the_change() -> None:
    """speculators' spelling loses its decoder layer before 0.5.12 and loads since; all silently."""
    for version in VERSIONS:
        answer = answers(version)["speculators-flat"]
        seen = conformance.real_sets(answer)
        lost = {key for key in seen.lost if key.startswith("layers.0.")}
        assert (seen.outcome, answer["log"]) == ("loads", [])
        old = tuple(map(int, version.split("."))) < (0, 5, 12)
        assert len(lost) == (10 if old else 0), version
        assert len(seen.missing) == (7 if old else 0), version


@pytest.mark.parametrize("version", ENDS)
def test_without_values_the_answer_is_the_same(version: str) -> None:
    """Large checkpoints are loaded on the meta device; here that is held against real memory."""
    some = whole_cases(version)
    unsupported = []
    for case in some:
        answer = answers(version)[f"{case.name} without values"]
        if answer["unsupported"]:
            unsupported.append(case.name)
            continue
        mine, other = conformance.real_sets(answer), real(version, case.name)
        assert not mine.differences(other), case.name
    assert len(unsupported) <= len(some) // 4, unsupported


@pytest.mark.parametrize("version", VERSIONS)
def test_the_checks_of_configs_give_no_all_clear_and_accuse_nobody(
    version: str, tmp_path: Path
) -> None:
    found, alike = [], 0
    for case in config_changes.bases():
        for number, (field, value) in enumerate(config_changes.CHANGES):
            seen = config_changes.real(answers(version)[f"{case.name} {number}"])
            config = config_changes.changed(case, field, value)
            said = config_changes.told(version, case, config, tmp_path)
            alike += said == seen
            if seen != "unsupported" and said not in (seen, "unknown"):
                shown = json.dumps(value, default=str)
                found.append(f"{case.name} {field}={shown}: {said}, {seen}")
    assert config_changes.real(answers(version)["bom"]) == "refused"
    first = config_changes.bases()[0]
    assert config_changes.told(version, first, dict(first.config), tmp_path) == "loads"
    # Wholly impossible numbers are called refused, whichever of several errors comes first.
    assert not found, "\n".join(found)
    strict = tuple(map(int, version.split("."))) >= (0, 5, 11)
    assert alike > len(config_changes.CHANGES) * 2 * (0.85 if strict else 0.6), alike


@pytest.mark.parametrize("name", ["target", "speculators", "specforge"])
def test_the_kept_drafts_are_what_the_writers_write(name: str) -> None:
    """The files in data/drafts, byte for byte, from the script that is said to make them."""
    _need("writers")
    written = checkpoints.written_drafts(checkpoints.KEPT_DRAFTS)
    for file in sorted((checkpoints.DRAFTS / name).iterdir()):
        assert (written / name / file.name).read_bytes() == file.read_bytes(), file.name
