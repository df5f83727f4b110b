"""`make release`: check, build and try the files of a release. It never uploads, tags or changes the tree."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## (?P<version>\S+)(?: \((?P<date>[^)]*)\))?$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\d")
# What a backend adds to the files of the tree.
ADDED = {"PKG-INFO", ".gitignore"}
# What only an installed copy can show: data of the package, the command's entry point and the exporter's.
TRIALS = (
    ("the demo is importable", "import workbench.export.demo"),
    (
        "facts of releases are in it",
        "from workbench.facts import rows; assert len(rows.releases('sglang')) > 40",
    ),
    (
        "scripts and styles are in it",
        "from workbench.display import assets; assert assets.css() and assets.read('table.js')",
    ),
    (
        "nbconvert finds the exporter",
        "from importlib.metadata import entry_points as e;"
        "assert [x.load() for x in e(group='nbconvert.exporters') if x.name == 'workbench']",
    ),
    ("types are declared", "import workbench, pathlib as p;"
     "assert (p.Path(workbench.__file__).parent / 'py.typed').exists()"),
)  # fmt: skip


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def tracked(root: Path, *below: str) -> set[str]:
    """Return the files that git keeps, as paths below the root."""
    return set(_git(root, "ls-files", "-z", *below).split("\0")) - {""}


def version_of(root: Path) -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def wrong_state(root: Path) -> list[str]:
    """Return what of the tree forbids a release: nothing is built before this is empty."""
    version = version_of(root)
    found = []
    if changed := _git(root, "status", "--porcelain").splitlines():
        found.append(f"the tree has {len(changed)} changes that are not committed: {changed[0]}")
    code = (root / "workbench" / "__init__.py").read_text()
    stated = re.search(r'^__version__ = "(.*)"$', code, re.MULTILINE)
    if not stated or stated[1] != version:
        found.append(f"pyproject.toml says {version}, workbench/__init__.py {stated and stated[1]}")
    heading = HEADING.search((root / "CHANGELOG.md").read_text())
    if not heading or heading["version"] != version:
        found.append(
            f"the first entry of CHANGELOG.md is {heading and heading['version']}, not {version}"
        )
    elif not DATE.fullmatch(heading["date"] or ""):
        found.append(f"CHANGELOG.md gives {version} no date: write ## {version} (YEAR-MONTH-DAY)")
    tags = set(_git(root, "tag").split())
    found += [f"the tag {tag} exists" for tag in (version, f"v{version}") if tag in tags]
    return found


def wrong_wheel(wheel: Path, package: Iterable[str]) -> list[str]:
    """Compare a wheel with the tracked files of the package: all of them, and its own records only."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    ours = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    return _differences("the wheel", ours, set(package))


def wrong_sdist(sdist: Path, files: Iterable[str], needed: Iterable[str]) -> list[str]:
    """Compare a source archive with git: it has what is needed, and no file that git does not keep."""
    with tarfile.open(sdist) as archive:
        names = {m.name.split("/", 1)[1] for m in archive.getmembers() if not m.isdir()}
    lacks = _differences("the source archive", names & set(needed), set(needed))
    return lacks + _differences("the source archive", names - ADDED, names & set(files) - ADDED)


def _differences(name: str, found: set[str], wanted: set[str]) -> list[str]:
    lacks = [f"{name} lacks {one}" for one in sorted(wanted - found)]
    return lacks + [
        f"{name} has {one}, which does not belong there" for one in sorted(found - wanted)
    ]


def build(root: Path, out: Path) -> tuple[Path, Path]:
    """Build both files into an empty folder, and let twine check them."""
    for old in out.glob("forensic_workbench-*"):
        old.unlink()
    _run(sys.executable, "-m", "build", "--outdir", str(out), str(root))
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    return wheel, sdist


def install(wheel: Path, folder: Path, torch: str) -> Path:
    """Install a wheel with the tested versions into an environment of its own; return its Python."""
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:  # as the Makefile does: the CPU build where the index has it
        _run(*pip, f"torch=={torch}+cpu")
    except subprocess.CalledProcessError:
        _run(*pip, f"torch=={torch}")
    _run(*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    return python


def wrong_install(python: Path, version: str) -> list[str]:
    """Run what is installed, away from the tree; return what fails."""
    found = []
    with tempfile.TemporaryDirectory() as elsewhere:

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
            return subprocess.run(
                words, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
            )

        said = run(str(python.with_name("workbench")), "--version")
        if said.stdout.strip() != version:
            found.append(f"workbench --version says {said.stdout.strip() or said.stderr.strip()}")
        for name, code in TRIALS:
            done = run(str(python), "-c", code)
            if done.returncode:
                found.append(f"not so: {name}\n{done.stderr.strip()}")
        draft = ROOT / "data" / "drafts" / "speculators"
        done = run(str(python.with_name("workbench")), "diff", str(draft), "sglang==0.5.8")
        if done.returncode != 1:  # keys are dropped there
            found.append(f"workbench diff exits with {done.returncode}\n{done.stderr.strip()}")
    return found


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _step(name: str, check: Callable[[], list[str]]) -> None:
    """Print how a step went; end here if it found something."""
    wrong = check()
    print(f"release: {name}: {'not ok' if wrong else 'ok'}", flush=True)
    for text in wrong:
        print(f"  {text}")
    if wrong:
        sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; end with 1 at the first one that finds something."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--torch", required=True, help="version to install next to the wheel")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args(arguments)
    version = version_of(ROOT)
    _step(f"state of the tree for {version}", lambda: wrong_state(ROOT))
    wheel, sdist = build(ROOT, given.out)
    package = tracked(ROOT, "workbench")
    _step(f"contents of {wheel.name}", lambda: wrong_wheel(wheel, package))
    needed = package | {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"}
    _step(f"contents of {sdist.name}", lambda: wrong_sdist(sdist, tracked(ROOT), needed))
    with tempfile.TemporaryDirectory() as folder:
        python = install(wheel, Path(folder), given.torch)
        _step("installed copy", lambda: wrong_install(python, version))
    print(f"\n{wheel}\n{sdist}\nNothing is uploaded or tagged. What is left to the owner:")
    if "urls" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]:
        print("  set [project.urls] in pyproject.toml (there are none), and run this again")
    print(f"  git tag -a v{version} -m 'forensic-workbench {version}', then twine upload")
    return 0


if __name__ == "__main__":
    sys.exit(main())
