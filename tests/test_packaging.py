"""What gets installed: conda's list equals pip's, the tested versions satisfy it, its bounds are real."""

from __future__ import annotations

import importlib.metadata
import os
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_environment_yml_equals_pyproject() -> None:
    text = (ROOT / "environment.yml").read_text()
    assert f"name: {PROJECT['name']}" in text
    assert f"python{PROJECT['requires-python']}" in text
    listed = set(re.findall(r"^      - ([^-\s].*)$", text, re.M))
    wanted = {*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)}
    assert listed == wanted


def test_constraints_name_every_dependency_and_satisfy_it() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    assert "torch" not in versions, "the Makefile chooses torch's build"
    for text in (*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)):
        need = Requirement(text)
        if need.name != "torch":
            assert versions[canonicalize_name(need.name)] in need.specifier, text


def test_bounds_are_lower_ones_only() -> None:
    for need in requirements():
        assert [one.operator for one in need.specifier] == [">="], need


def requirements() -> list[Requirement]:
    """Return what pyproject.toml asks for: the project, its extras, and what its tests need."""
    texts = [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [Requirement(text) for text in (*texts, *groups["test"])]


@pytest.mark.skipif("LOWEST" not in os.environ, reason="for the environment of `make lowest` only")
def test_the_lowest_versions_are_the_installed_ones() -> None:
    found = {canonicalize_name(d.name): d.version for d in importlib.metadata.distributions()}
    # The Makefile chooses torch's build; transformers asks for a newer Hub client than we do.
    other = {"torch"} | ({"huggingface-hub"} if "transformers" in found else {"transformers"})
    wrong = []
    for need in requirements():
        bound, version = next(iter(need.specifier)).version, found.get(canonicalize_name(need.name))
        if need.name not in other and (version is None or Version(version) != Version(bound)):
            wrong.append(f"{need} is installed as {version}")
    assert not wrong
