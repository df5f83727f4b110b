"""Rows against the sources on both sides of their border, by plain search, without the reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from workbench.facts import rows


class Source:
    """The files of a release as text: of a wheel, or of a folder into which one was unpacked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.zip = None if path.is_dir() else ZipFile(path)
        self.cache: dict[str, str] = {}

    def names(self) -> list[str]:
        if self.zip is not None:
            return self.zip.namelist()
        return [
            file.relative_to(self.path).as_posix() for file in self.path.glob("sglang/srt/**/*.py")
        ]

    def text(self, name: str) -> str:
        if name not in self.cache:
            if self.zip is not None:
                data = self.zip.read(name) if name in self.zip.namelist() else b""
            else:
                data = (self.path / name).read_bytes() if (self.path / name).is_file() else b""
            self.cache[name] = data.decode("utf-8", "replace")
        return self.cache[name]

    def runtime(self) -> Iterator[str]:
        for name in self.names():
            if re.search(r"^sglang/srt/(?!.*(?:/tests?/|multimodal_gen)).*\.py$", name):
                yield self.text(name)


def pattern(row: rows.Row) -> str:
    """What a person would search for, as a regular expression."""
    last = re.escape(re.split(r"[.:]", row.name)[-1])
    if row.kind == "flag":
        names = "|".join(re.escape(name) for name in row.value["names"])
        field = re.escape(row.value["field"].replace("-", "_"))
        return rf"[\"']--(?:{names})[\"']|^\s+{field}\s*:"
    if row.kind == "function":
        return rf"def {re.escape(row.name.partition('@')[0])}\("
    if row.kind == "class":
        return rf"\b{re.escape(row.name)}\b"
    if row.kind == "environment":
        return rf"^\s+{re.escape(row.name)}\s*="
    if row.kind == "algorithm":
        return rf"^\s+{re.escape(row.name)} = "
    if row.kind == "model type":
        return rf"[\"']{re.escape(row.name)}[\"']"
    if row.kind in ("reads", "word"):
        return rf"\b{last}\b"
    if row.kind == "title":
        return re.escape(row.name)
    return ""


NEAR = {"class": 60, "flag": 3, "reads": 2, "model type": 1}
"""How many lines after the named one may show it: a call has several, a list of classes many."""


def not_shown(row: rows.Row, after: Source) -> bool:
    """Whether the named line of the first release with it does not show it."""
    wanted = pattern(row)
    if not wanted or not row.line:
        return False
    lines = after.text(row.file).splitlines()[row.line - 1 :][: 1 + NEAR.get(row.kind, 0)]
    return re.search(wanted, "\n".join(lines), re.MULTILINE) is None


def there_before(row: rows.Row, before: Source) -> bool:
    """Whether the release before has it already, where a person would look for it."""
    wanted = pattern(row)
    if row.kind == "flag":
        registered = before.text("sglang/srt/server_args.py")
        spelt = "|".join(re.escape(name) for name in row.value["names"])
        return re.search(rf"[\"']--(?:{spelt})[\"']", registered) is not None
    if row.kind == "function":
        end = row.name.partition("@")[2]
        return any(
            re.search(wanted, before.text(name))
            for name in before.names()
            if (end in name if end.endswith("/") else name.endswith("/" + end))
            and "/test" not in name
        )
    if row.kind == "class":
        return (
            re.search(rf"EntryClass[^#]*\b{re.escape(row.name)}\b", before.text(row.file))
            is not None
        )
    if row.kind == "environment":
        return re.search(wanted, before.text(row.file), re.MULTILINE) is not None
    if row.kind == "word":
        return any(re.search(wanted, text) for text in before.runtime())
    return False


def wrong(release: str, before: Source | None, after: Source) -> list[str]:
    """The rows of a release that the sources on both sides of its border do not bear out."""
    found = []
    for kind in sorted(
        {
            "flag",
            "function",
            "class",
            "environment",
            "algorithm",
            "reads",
            "word",
            "title",
            "model type",
        }
    ):
        for name in rows.names("sglang", kind, release):
            row = rows.row_in("sglang", kind, name, release)
            assert row is not None
            if row.first_with != release:
                continue
            if not_shown(row, after):
                found.append(f"{kind} {name}: not at {row.place}")
            came = not any(
                one.last_with == row.last_without
                for one in rows.rows("sglang", kind, name)
                if one != row
            )
            came = came and not _elsewhere(row, row.last_without)
            if came and before is not None and there_before(row, before):
                found.append(f"{kind} {name}: already in {row.last_without}")
    return found + list(gone(release, after))


def gone(release: str, after: Source) -> Iterator[str]:
    """The flags and functions that are said to be gone with a release, and are still there."""
    for kind in ("flag", "function"):
        for name in rows.names("sglang", kind):
            if rows.row_in("sglang", kind, name, release) is not None:
                continue
            for row in rows.rows("sglang", kind, name):
                over = row.first_without == release
                if over and there_before(row, after) and not _elsewhere(row, release):
                    yield f"{kind} {name}: still in {release}"


def _elsewhere(row: rows.Row, release: str) -> bool:
    """Whether another flag of the release has one of its names: its first spelling is another one."""
    if row.kind != "flag" or not release:
        return False
    names = {
        one
        for name in rows.names("sglang", "flag", release)
        if (found := rows.row_in("sglang", "flag", name, release)) is not None
        for one in found.value["names"]
    }
    return bool(names & set(row.value["names"]))
