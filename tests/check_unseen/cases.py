"""The launches of ``lines/*.toml``, and what is true of each."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

LINES = Path(__file__).with_name("lines")
MOMENTS = ("parser", "check", "load", "capture", "request", "silent")
TRUTHS = ("parser", "source", "issue", "config")


@dataclasses.dataclass(frozen=True)
class Line:
    """One launch.

    Attributes
    ----------
    name, engine, line
        ``{NAME}`` in the line stands for a checkpoint of `models.MODELS`.
    kind
        What is wrong, or what looks wrong and is right.
    moment
        When the engine stops, or ``silent`` if it serves without what was meant; "" if nothing is wrong.
    names
        What an accusation must name: each of these, or one of several that ``|`` divides.
    truth, said, basis
        How it is known: the real parser and its words; a place in the release's source; a report; the config.
    note, url
        What else the reader should know, and where the launch comes from.
    gpu
        What it ran on, where the source says so.
    """

    name: str
    engine: str
    line: str
    kind: str
    moment: str
    names: tuple[str, ...]
    truth: str
    said: str
    basis: str
    note: str
    url: str
    gpu: str = ""

    @property
    def good(self) -> bool:
        """Whether the engine serves as the launch says."""
        return not self.moment

    @property
    def models(self) -> tuple[str, ...]:
        """The checkpoints that the line names."""
        return tuple(re.findall(r"\{([a-z0-9-]+)\}", self.line))

    def placed(self, places: Mapping[str, Path]) -> str:
        """Return the line with the folders of the checkpoints."""
        found = self.line
        for name in self.models:
            found = found.replace("{" + name + "}", str(places[name]))
        return found

    def words(self, places: Mapping[str, Path]) -> tuple[list[str], dict[str, str]]:
        """Return the options of the line, and the variables in front of it."""
        words = shlex.split(self.placed(places))
        start = next(
            at for at, word in enumerate(words) if word in ("sglang.launch_server", "serve")
        )
        before = [word.partition("=") for word in words[:start] if re.match(r"[A-Z_0-9]+=", word)]
        return words[start + 1 :], {name: value for name, _, value in before}


def read_lines(folder: Path = LINES) -> list[Line]:
    """Return every launch, in the order of the files."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(file.read_text(encoding="utf-8"))["line"]:
            found.append(_line(row, file))
    return found


def of_engine(lines: Iterable[Line], engine: str) -> list[Line]:
    """Return the launches of one engine, whatever its release."""
    return [line for line in lines if line.engine.partition("==")[0] == engine]


def _line(row: dict[str, str], file: Path) -> Line:
    name = row.pop("id")
    names = tuple(row.pop("names", ()))
    optional = dict.fromkeys(("moment", "said", "basis", "note"), "")
    unknown = set(row) - {field.name for field in dataclasses.fields(Line)}
    if unknown:
        raise ValueError(f"{file.name}, {name}: {', '.join(sorted(unknown))}")
    return Line(name=name, names=names, **(optional | row))
