"""What every analysis returns: one immutable object, the same in a REPL, a notebook and a file."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, Self

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import pandas as pd

Severity = Literal["error", "warning", "note"]
Confidence = Literal["certain", "likely", "possible", "unknown"]

# The order in which findings are told.
GRAVITY: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Experiment:
    """Exactly one change to try, and what each outcome would mean."""

    change: str
    if_right: str
    if_wrong: str
    cost: str = ""
    undo: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion, the evidence for and against it, how sure, and the one next step.

    ``changes_output`` says whether the served model computes something else because of it: a
    finding that changes nothing never makes a result wrong.
    """

    code: str
    severity: Severity
    title: str
    detail: str = ""
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()
    confidence: Confidence = "certain"
    changes_output: bool = False
    next_step: str = ""
    experiment: Experiment | None = None
    place: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain lists, strings and booleans."""
        return dataclasses.asdict(self) | {
            "evidence_for": list(self.evidence_for),
            "evidence_against": list(self.evidence_against),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild a finding from `to_dict`."""
        experiment = data.get("experiment")
        return cls(
            **data
            | {
                "evidence_for": tuple(data["evidence_for"]),
                "evidence_against": tuple(data["evidence_against"]),
                "experiment": Experiment(**experiment) if experiment else None,
            }
        )


class Result(ABC):
    """Base of `KeyDiff` and of every later result.

    A subclass is a frozen dataclass with a ``schema`` such as ``"workbench.keydiff/1"``. It gives
    the plain forms (`to_dict`, `from_dict`, `to_text`, `rows`) and the payload of its interactive
    view; saving, HTML and notebook display follow from those.
    """

    schema: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Result]]] = {}

    findings: tuple[Finding, ...]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "schema" in vars(cls):
            Result._kinds[cls.schema] = cls

    @property
    @abstractmethod
    def title(self) -> str:
        """What this result is about, in a few words: the heading of its page."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result as strict JSON data, with its ``schema``."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the result from what `to_dict` returned."""

    @abstractmethod
    def to_text(self, width: int | None = None) -> str:
        """Return the result as text that is good in itself."""

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the result's table."""

    @abstractmethod
    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the interactive view's data as strict JSON.

        With a `limit` it takes at most about so many bytes compressed, and says what it leaves out.
        """

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON text."""
        return json.dumps(strict(self.to_dict()), indent=indent, allow_nan=False)

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of the result as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result as JSON, whole or not at all; `workbench.load` reads it back."""
        with replacing(path) as out:
            out.write(self.to_json().encode())
        return Path(path)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one HTML file that holds everything and opens with the network off."""
        from workbench.display.page import result_page

        with replacing(path) as out:
            out.write(result_page(self).encode())
        return Path(path)

    def view(self) -> Any:
        """Return the interactive view as a widget."""
        from workbench.display.widget import view_of

        return view_of(self)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        from workbench.display.widget import mimebundle

        return mimebundle(self, **kwargs)


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that was written by `Result.save`.

    Raises
    ------
    WorkbenchError
        The file is missing, is not JSON, or holds no result this version can read.
    """
    what = f"{path} is not a saved workbench result"
    hint = "Give a file written by result.save(path)."
    try:
        data = json.loads(Path(path).read_bytes())
    except TypeError as error:
        raise WorkbenchError(what, why=str(error), next_step=hint) from None
    except OSError as error:
        raise WorkbenchError(
            f"cannot read {path}", why=error.strerror or str(error), next_step=hint
        ) from None
    except (ValueError, RecursionError) as error:
        raise WorkbenchError(what, why=f"not JSON: {error}", next_step=hint) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    _import_kinds()
    kind = Result._kinds.get(schema) if isinstance(schema, str) else None
    if kind is None:
        known = ", ".join(sorted(Result._kinds))
        raise WorkbenchError(
            what, why=f"its schema is {schema!r}, known here: {known}", next_step=hint
        )
    try:
        result = kind.from_dict(data)
        # A file from somebody else may hold anything: what cannot be shown is told here, not later.
        result.to_text(80)
        result.payload()
        return result
    except Exception as error:
        raise WorkbenchError(
            what, why=f"{schema} with a damaged field: {error!r}", next_step=hint
        ) from None


def _import_kinds() -> None:
    """Import the rooms that define results, so that their schemas are known."""
    import workbench.hang.diagnosis
    import workbench.hang.ledger
    import workbench.keys.records
    import workbench.speculation.ablations
    import workbench.speculation.result
    import workbench.weights.results  # noqa: F401


def strict(value: Any) -> Any:
    """Return `value` with NaN and infinities as None, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


@contextmanager
def replacing(path: str | os.PathLike[str], *, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing, and move it there once all is written.

    `mode` is the file's, such as 0o600; by default what the umask leaves of 0o666.

    Raises
    ------
    WorkbenchError
        The folder is missing or cannot be written to. Nothing is left behind.
    """
    try:
        path = Path(path).expanduser()
    except TypeError as error:
        raise WorkbenchError(
            f"{path!r} is no path to write to", why=str(error), next_step="Give the path of a file."
        ) from None
    path = Path(os.path.realpath(path))  # a link stays one
    if path.is_dir():
        raise WorkbenchError(
            f"cannot write {path}", why="it is a folder", next_step="Give the path of a file in it."
        )
    if path.exists() and not path.is_file():  # root could replace /dev/null by a page
        raise WorkbenchError(
            f"cannot write {path}",
            why="it is a device or a pipe, and a result is moved to its place once it is whole",
            next_step="Give the path of a file.",
        )
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            next_step="Choose a folder that exists and that you may write to.",
        ) from None
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        os.chmod(name, 0o666 & ~_umask() if mode is None else mode)
        os.replace(name, path)
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            next_step="Free some space, or choose another path.",
        ) from None
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
