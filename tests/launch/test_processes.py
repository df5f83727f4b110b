"""The release of a running server is that of the environment that its command names."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.launch import processes


def environment(folder: Path) -> Path:
    """Return the Python of a virtual environment: a link, with a site of its own."""
    site = folder / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    return python


def test_a_package_of_the_environment_and_of_its_pth_files(tmp_path: Path) -> None:
    python = environment(tmp_path)
    site = python.parent.parent / "lib" / "python3.11" / "site-packages"
    other = tmp_path / "packages"
    (other / "sglang-0.5.14.dist-info").mkdir(parents=True)
    assert processes.installed(str(python), "sglang") == ""
    mark = tmp_path / "it-ran"
    (site / "engines.pth").write_text(
        f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n{other}\n"
    )
    assert processes.installed(str(python), "sglang") == "0.5.14"
    assert not mark.exists()
    (site / "sglang-0.5.11.dist-info").mkdir()
    assert processes.installed(str(python), "sglang") == "0.5.11"  # its own comes first


def test_the_first_word_of_a_command_names_the_environment(tmp_path: Path) -> None:
    python = environment(tmp_path)
    own = processes.interpreter_of(0, str(python))
    assert own == str(python)
    assert (
        processes.interpreter_of(0, "python3") == ""
    )  # a relative name, of a process that is not there
    assert processes.interpreter_of(0, "/usr/bin/numactl") == ""
