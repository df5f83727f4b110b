"""What every analysis returns: one immutable object, the same in a REPL, a notebook and a file."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from workbench.core import saving
from workbench.core.finding import Finding
from workbench.core.outputs import writing
from workbench.core.verdict import Verdict

if TYPE_CHECKING:
    import pandas as pd

    from workbench.views.parts import Document


# The attributes of results that name what was examined.
_PLACES = ("checkpoint", "model", "source", "before", "after", "target", "draft", "evidence")


class Result(ABC):
    """Base of `KeyDiff` and of every other result.

    A subclass is a frozen dataclass with a ``schema`` such as ``"workbench.keydiff/1"`` and a ``Saved``
    struct that says how it is written. It holds a `Verdict` and `findings`. Its document (`workbench.views`)
    is what text, static HTML, Markdown and the interactive view are made of.
    """

    schema: ClassVar[str]
    Saved: ClassVar[type[saving.Saved]]

    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    @abstractmethod
    def title(self) -> str:
        """What this result is about, in a few words: the heading of its page."""

    @abstractmethod
    def saved(self) -> saving.Saved:
        """Return the result as it is written: its ``Saved`` struct."""

    @classmethod
    @abstractmethod
    def restored(cls, saved: Any, verdict: Verdict) -> Self:
        """Rebuild the result from its ``Saved`` struct, whose types are checked already."""

    @abstractmethod
    def contradiction(self) -> str:
        """Return where `ok` contradicts what the result lists, "" where it does not.

        It is asked of every result that was read from a file; no rule is run again.
        """

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the result's table."""

    @property
    def ok(self) -> bool | None:
        """True: proved healthy. False: a fault is proved. None: cannot tell."""
        return self.verdict.ok

    @property
    def summary(self) -> str:
        """The verdict in one or two sentences."""
        return self.verdict.sentence

    def __bool__(self) -> bool:
        """Return True only where `ok` is: ``if diff_keys(...)`` may not let a broken draft through."""
        return self.ok is True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.schema, self.title, self.summary))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as strict JSON data, with its ``schema``; NaN is null."""
        return saving.to_dict(self.saved())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the result from what `to_dict` returned.

        Types, enumerations and the agreement of `ok` with the stored lists are checked.

        Raises
        ------
        ValueError
            A field is missing or of another type, or the stored verdict contradicts the rest.
        """
        saved = saving.read(cls.Saved, data)
        verdict = saving.verdict_of(saved, cls.schema)
        result = cls.restored(saved, verdict)
        if result.ok is not saved.counted_ok():
            raise ValueError(f"ok is {saved.ok}, and what was checked makes it {result.ok}")
        contradiction = result.contradiction() or saving.words_against(saved)
        if contradiction:
            raise ValueError(f"ok is {saved.ok}, but {contradiction}")
        return result

    def examined(self, force: bool) -> tuple[str, ...]:
        """Return the places that the result is about: with `force`, nothing may be written into them.

        Without it no foreign file is replaced, whatever its place.
        """
        places = (getattr(self, name, "") for name in _PLACES) if force else ()
        return tuple(place for place in places if isinstance(place, str) and place)

    def document(self) -> Document:
        """Return the parts that every form of the result is made of."""
        from workbench.core.render import document

        return document(self)

    def to_text(self, width: int | None = None) -> str:
        """Return the result as plain text that is good in itself, without colour.

        Parameters
        ----------
        width
            Columns to write for; by default the terminal's, else 80.
        """
        from workbench.core.render import to_text

        return to_text(self, width)

    def to_markdown(self) -> str:
        """Return the result as one pastes it into an issue."""
        from workbench.core.render import to_markdown

        return to_markdown(self)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the interactive view's data as strict JSON.

        With a `limit` it takes at most about so many bytes compressed, and says what it leaves out.
        """
        from workbench.core.render import payload

        return payload(self, limit)

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON text."""
        if indent is None:
            return saving.to_json(self.saved())
        return saving.printable(json.dumps(self.to_dict(), indent=indent, allow_nan=False))

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of the result as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the result as JSON, whole or not at all; `workbench.load` reads it back.

        With `force` a file that the workbench did not write may be replaced, but nothing that was examined.
        """
        with writing(path, "result", examined=self.examined(force), force=force) as out:
            out.write(self.to_json().encode())
        return Path(path)

    def to_html(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write one HTML file that holds everything and opens with the network off.

        With `force` a file that the workbench did not write may be replaced, but nothing that was examined.
        """
        from workbench.core.render import page

        with writing(path, "page", examined=self.examined(force), force=force) as out:
            out.write(page(self).encode())
        return Path(path)

    def view(self) -> Any:
        """Return the interactive view as a widget."""
        from workbench.core.render import view

        return view(self)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        from workbench.core.render import mimebundle

        return mimebundle(self, **kwargs)
