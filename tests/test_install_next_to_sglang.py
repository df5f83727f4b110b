"""Installed next to SGLang, the workbench changes neither its torch nor its numpy, nor what else it pins."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from .conftest import ROOT
from .engines import environments

# SGLang does not pin its numpy: a release of the time of each version.
NUMPY = {
    "0.5.8": "1.26.4",
    "0.5.11": "2.2.6",
    "0.5.12": "2.3.5",
    "0.5.14": "2.3.5",
    "0.5.23": "2.4.6",
}


def test_each_version_of_sglang_is_tried() -> None:
    assert list(NUMPY) == environments.sglang_versions()


def pretend(site: Path, name: str, version: str) -> None:
    """Leave what pip takes for an installed distribution."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text("")


@pytest.mark.engine
@pytest.mark.parametrize(("version", "numpy"), NUMPY.items())
def test_installing_next_to_sglang_changes_nothing_of_its_own(
    tmp_path: Path, version: str, numpy: str
) -> None:
    """A dry run of pip where that SGLang's own pins are installed."""
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
    assert not set(added) & {*pins, "numpy", "sglang"}, added
    # nvidia-ml-py only reads the driver, and SGLang asks for it too; CUDA's own packages stay as they are.
    assert not any(name.startswith("nvidia") and name != "nvidia-ml-py" for name in added), added
