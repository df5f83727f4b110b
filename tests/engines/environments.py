"""Environments that hold the real engines and the real draft writers, on a CPU.

One base holds torch and everything the versions agree on. Each environment is a virtual environment
without packages of its own: a ``.pth`` file puts the few wheels in which it differs in front of the
base. A wheel that two environments share (the transformers of SGLang 0.5.11 and 0.5.12) is unpacked
once. So five SGLang versions cost little more than five copies of SGLang.

Usage::

    python -m tests.engines.environments                # every environment
    python -m tests.engines.environments sglang-0.5.14  # one, or several
    python -m tests.engines.environments --where        # print the interpreters, build nothing

Everything lies in ``${XDG_CACHE_HOME:-~/.cache}/forensic-workbench/engines``, in folders named after a
hash of the pins, so that a changed pin builds anew and an unchanged one costs nothing. The stamp of a
folder is written last: a build that was interrupted is begun again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PINS = Path(__file__).resolve().parent / "pins"
# The CPU build has a local version on indexes that offer several builds. Where there is only one
# build, it has none.
TORCH = ("torch==2.13.0+cpu", "torch==2.13.0")
STAMP = "complete"
# An engine has thousands of modules, and compiling them takes longer than all else. With this in its
# .pth file an environment keeps byte code even where PYTHONDONTWRITEBYTECODE is set.
KEEP_BYTECODE = "import sys; sys.dont_write_bytecode = False"
PYTHON_TAG = f"py{sys.version_info[0]}{sys.version_info[1]}-{platform.machine()}"


def names() -> list[str]:
    """Every environment there is, as the pin files say: ``sglang-0.5.8``, …, ``writers``."""
    found = [file.stem for file in PINS.glob("*.txt") if file.stem != "base"]
    return sorted(
        found, key=lambda name: [_number(part) for part in name.split("-")[-1].split(".")]
    )


def sglang_versions() -> list[str]:
    """The SGLang versions among `names`, oldest first."""
    return [name.partition("-")[2] for name in names() if name.startswith("sglang-")]


def cache() -> Path:
    """The folder in which all environments lie."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "forensic-workbench" / "engines"


def interpreter(name: str) -> Path:
    """Where the Python of an environment lies, or will lie once `ensure` has built it."""
    return _folder(name) / "bin" / "python"


def is_ready(name: str) -> bool:
    """Whether an environment is complete."""
    return (_folder(name) / STAMP).exists()


def ensure(name: str) -> Path:
    """Build an environment if it is not there, and return its interpreter.

    Raises
    ------
    KeyError
        There is no pin file of that name.
    subprocess.CalledProcessError
        pip or venv failed; what it said went to standard error.
    """
    if name not in names():
        raise KeyError(f"no environment {name!r}; there are: {', '.join(names())}")
    if not is_ready(name):
        with _locked():
            if not is_ready(name):  # another process may have built it while we waited
                _build(name)
    return interpreter(name)


def exact_pins(version: str) -> dict[str, str]:
    """Return what an SGLang wheel's metadata pins for every platform: normalised name -> version."""
    ensure(f"sglang-{version}")
    folder = cache() / f"packages-{PYTHON_TAG}" / f"sglang=={version}"
    metadata = next(folder.glob("sglang-*.dist-info/METADATA")).read_text()
    pinned = re.compile(r"Requires-Dist: ([\w.-]+)(?:\[[^]]*\])?\s*\(?==([\w.+]+)\)?\s*")
    found = (pinned.fullmatch(line) for line in metadata.splitlines())
    return {_normal(match[1]): match[2] for match in found if match}


def _build(name: str) -> None:
    start = time.monotonic()
    base = _build_base()
    pins = _pins(name)
    packages = cache() / f"packages-{PYTHON_TAG}"
    lacking = [pin for pin in pins if not (packages / pin / STAMP).exists()]
    if lacking:
        _say(f"{name}: fetching {', '.join(lacking)}")
        _unpack(lacking, packages)
    folder = _fresh_venv(_folder(name))
    lines = [KEEP_BYTECODE, *(packages / pin for pin in pins), _site_packages(base)]
    text = "".join(f"{line}\n" for line in lines)
    (_site_packages(folder) / "engine_packages.pth").write_text(text)
    (folder / STAMP).touch()
    _say(f"{name}: ready after {time.monotonic() - start:.0f} s")


def _build_base() -> Path:
    folder = _folder("base")
    if (folder / STAMP).exists():
        return folder
    _say("base: installing torch and what all environments share")
    _fresh_venv(folder)
    # Byte code is left to be written when a module is first imported: most never are.
    options = ["install", "--no-deps", "--no-compile", "--only-binary", ":all:"]
    for number, torch in enumerate(TORCH, start=1):
        try:
            _pip(*options, torch, python=folder)
            break
        except subprocess.CalledProcessError:
            if number == len(TORCH):
                raise
    _pip(*options, "--requirement", str(PINS / "base.txt"), python=folder)
    (folder / STAMP).touch()
    return folder


def _unpack(pins: Sequence[str], packages: Path) -> None:
    """Put each wheel into a folder of its own. (pip can install but one version of a package.)"""
    work = packages / "unfinished"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(work), *pins)
    wheels = {_normal(file.name.split("-")[0]): file for file in work.glob("*.whl")}
    for pin in pins:
        wheel = wheels[_normal(pin.partition("==")[0])]
        folder = work / pin
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        for data in folder.glob("*.data"):  # a wheel may keep its modules one floor lower
            for part in ("purelib", "platlib"):
                if (data / part).is_dir():
                    shutil.copytree(data / part, folder, dirs_exist_ok=True)
            shutil.rmtree(data)
        shutil.rmtree(packages / pin, ignore_errors=True)
        folder.rename(packages / pin)
        (packages / pin / STAMP).touch()
    shutil.rmtree(work)


def _fresh_venv(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def _pip(command: str, *arguments: str, python: Path | None = None) -> None:
    target = [] if python is None else ["--python", str(python / "bin" / "python")]
    line = [sys.executable, "-m", "pip", *target, command, "-qq"]
    # Standard error keeps what pip has to say; standard output is for `--where`.
    subprocess.run(
        [*line, "--disable-pip-version-check", *arguments], check=True, stdout=sys.stderr
    )


def _folder(name: str) -> Path:
    """Named after what is in it. The base's pins count, too: an environment points into it."""
    content = [PYTHON_TAG, *TORCH, *_pins("base")]
    if name != "base":
        content += [KEEP_BYTECODE, *_pins(name)]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()
    return cache() / f"{name}-{digest[:12]}"


def _pins(name: str) -> list[str]:
    lines = (PINS / f"{name}.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python3*/site-packages"))


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _number(text: str) -> int:
    return int(text) if text.isdigit() else sys.maxsize


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """One build at a time on this machine: a second one waits, and then finds all it needs."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is building environments: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Build what the command line names, or everything."""
    wanted = [name for name in arguments if not name.startswith("-")] or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        _say(f"no such environment: {', '.join(unknown)}; there are: {', '.join(names())}")
        return 2
    for name in wanted:
        if "--where" not in arguments:
            ensure(name)
        print(f"{name}\t{interpreter(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
