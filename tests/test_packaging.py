"""What gets installed: conda's list equals pip's, and SGLang keeps its torch and its numpy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def pretend(site: Path, name: str, version: str) -> None:
    """Leave what pip takes for an installed distribution."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text("")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("version", "numpy"), [("0.5.8", "1.26.4"), ("0.5.14", "2.3.5"), ("0.5.23", "2.4.6")]
)
def test_installing_beside_sglang_changes_nothing_of_its_own(
    tmp_path: Path, version: str, numpy: str
) -> None:
    """A dry run of pip where that SGLang's own pins are installed."""
    from .engines import environments

    pins = environments.exact_pins(version)
    assert "torch" in pins, "SGLang pins its torch"
    assert "transformers" in pins
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv" / "lib").glob("python3*/site-packages"))
    for name, pin in {**pins, "numpy": numpy}.items():
        pretend(site, name, pin)
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv" / "bin" / "python"),
         "install", "--dry-run", "--quiet", "--report", str(report), str(ROOT)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    added = {
        canonicalize_name(item["metadata"]["name"]): item["metadata"]["version"]
        for item in json.loads(report.read_text())["install"]
    }
    assert "forensic-workbench" in added
    assert not set(added) & {"torch", "numpy", "transformers", "sglang"}, added
    # nvidia-ml-py only reads the driver, and SGLang asks for it too; CUDA's own packages stay as they are.
    assert not any(name.startswith("nvidia") and name != "nvidia-ml-py" for name in added), added
