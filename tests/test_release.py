"""The checks of `make release`, each against a tree or an archive that has the fault and one that has not."""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from . import release
from .conftest import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that may be released as 1.2.0."""
    (tmp_path / "workbench").mkdir()
    (tmp_path / "workbench" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2031-01-02)\n\n## 1.1.0\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, timeout=60)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "x")


def test_a_tree_in_order_has_no_problem(tree: Path) -> None:
    assert release.wrong_state(tree) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("CHANGELOG.md", "1.2.0 (2031", "1.3.0 (2031", "CHANGELOG.md is 1.3.0, not 1.2.0"),
        ("CHANGELOG.md", "(2031-01-02)", "(unreleased)", "gives 1.2.0 no date"),
        ("CHANGELOG.md", " (2031-01-02)", "", "gives 1.2.0 no date"),
        ("CHANGELOG.md", "## 1.2.0 (2031-01-02)\n\n", "", "is 1.1.0, not 1.2.0"),
        ("workbench/__init__.py", "1.2.0", "1.1.0", "says 1.2.0, workbench/__init__.py 1.1.0"),
    ],
)
def test_what_is_stated_must_agree(tree: Path, file: str, old: str, new: str, said: str) -> None:
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    commit(tree)
    (found,) = release.wrong_state(tree)
    assert said in found


def test_changes_and_files_that_are_not_committed_are_named(tree: Path) -> None:
    (tree / "new.txt").write_text("")
    (found,) = release.wrong_state(tree)
    assert found.endswith("1 changes that are not committed: ?? new.txt")


@pytest.mark.parametrize(("tag", "problems"), [("v1.2.0", 1), ("1.2.0", 1), ("v1.2.0rc1", 0)])
def test_a_version_is_released_once(tree: Path, tag: str, problems: int) -> None:
    git(tree, "tag", tag)
    assert len(release.wrong_state(tree)) == problems


def wheel_of(folder: Path, names: Iterable[str]) -> Path:
    path = folder / "a.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


PACKAGE = release.tracked(ROOT, "workbench")
RECORD = "forensic_workbench-1.dist-info/RECORD"


def test_a_wheel_has_the_files_of_the_package_and_no_others(tmp_path: Path) -> None:
    whole = {*PACKAGE, RECORD}
    assert release.wrong_wheel(wheel_of(tmp_path, whole), PACKAGE) == []
    data = "workbench/facts/data/sglang/0.5.11.json"
    wrong = release.wrong_wheel(wheel_of(tmp_path, whole - {data}), PACKAGE)
    assert wrong == [f"the wheel lacks {data}"]
    wrong = release.wrong_wheel(wheel_of(tmp_path, whole | {"tests/conftest.py"}), PACKAGE)
    assert wrong == ["the wheel has tests/conftest.py, which does not belong there"]


def test_a_source_archive_has_what_git_keeps_only(tmp_path: Path) -> None:
    def archive_of(*names: str) -> Path:
        path = tmp_path / "a.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(f"a-1/{name}"), io.BytesIO())
        return path

    kept, needed = {"a.py", "LICENSE", "docs/x.md", ".gitignore"}, {"a.py", "LICENSE"}
    assert (
        release.wrong_sdist(archive_of("a.py", "LICENSE", "PKG-INFO", ".gitignore"), kept, needed)
        == []
    )
    assert release.wrong_sdist(archive_of("a.py"), kept, needed) == [
        "the source archive lacks LICENSE"
    ]
    assert release.wrong_sdist(archive_of(*needed, ".env"), kept, needed) == [
        "the source archive has .env, which does not belong there"
    ]
