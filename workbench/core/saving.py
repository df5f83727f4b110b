"""Results as strict JSON and back: types and enumerations are checked by msgspec, not believed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from workbench.core.finding import Finding
from workbench.core.verdict import Verdict, unrecorded
from workbench.errors import WorkbenchError, shown

if TYPE_CHECKING:
    from workbench.core.result import Result

_Struct = TypeVar("_Struct", bound="Saved")


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What every saved result holds; the struct of a kind of result adds its own fields.

    ``ok`` and ``summary`` repeat what follows from ``verdict``, for scripts that read the file; version 0.1
    wrote them alone.
    """

    schema: str
    ok: bool | None
    summary: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None

    def counted_ok(self) -> bool | None:
        """Return the ``ok`` that the result must have.

        It is the stored one, except where an older version took for a proof what is none.
        """
        return self.ok


def fields_of(result: Result) -> dict[str, Any]:
    """Return the fields that `Saved` itself declares, for a result that is being written."""
    return {
        "schema": result.schema,
        "ok": result.ok,
        "summary": result.summary,
        "findings": result.findings,
        "notes": getattr(result, "notes", ()),
        "verdict": result.verdict,
    }


def to_dict(saved: Saved) -> dict[str, Any]:
    """Return a struct as plain dictionaries and lists, without NaN."""
    plain: dict[str, Any]
    try:  # twice as fast as a walk in Python; NaN becomes null
        plain = msgspec.json.decode(msgspec.json.encode(saved, enc_hook=_array))
    except UnicodeEncodeError:  # half a surrogate pair, from a file name
        plain = strict(msgspec.to_builtins(saved, enc_hook=_array))
    return plain


def to_json(saved: Saved) -> str:
    """Return a struct as strict JSON text on one line, in which every character can be printed."""
    try:
        return printable(msgspec.json.encode(saved, enc_hook=_array).decode())
    except UnicodeEncodeError:
        return printable(json.dumps(to_dict(saved), allow_nan=False))


def printable(text: str) -> str:
    r"""Return JSON text of the same value without characters that a terminal or an editor obeys.

    Control characters beyond those that JSON escapes itself (DEL, C1), and those that change the direction
    of the text, are written as ``\u`` and four digits.
    """
    if text.isprintable():
        return text
    obeyed = {c for c in set(text) if not c.isprintable() and c != "\n"}
    return text.translate(
        {ord(c): json.dumps(c)[1:-1] if c > "\x7f" else "\\u007f" for c in obeyed}
    )


def _array(value: Any) -> Any:
    """Return numpy's arrays and numbers as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not written")


def read(kind: type[_Struct], data: Any) -> _Struct:
    """Return plain data as a struct, each field of the type that it is declared with.

    Raises
    ------
    ValueError
        A field is missing, of another type, or not one of the words that it may be; the message says where.
    """
    saved = msgspec.convert(data, kind)
    return msgspec.structs.replace(saved, findings=tuple(map(_spelt, saved.findings)))


def _spelt(finding: Finding) -> Finding:
    """Return a finding with its code as it is spelt now: version 0.1 wrote some codes with hyphens."""
    return dataclasses.replace(finding, code=finding.code.replace("-", "_"))


def verdict_of(saved: Saved, what: str) -> Verdict:
    """Return the verdict of a saved result; of one by version 0.1, what it said and nothing more."""
    if saved.verdict is not None:
        if saved.verdict.sentence != saved.summary:
            raise ValueError("the summary is not the verdict's sentence")
        return saved.verdict
    return Verdict(
        state={True: "ok", False: "wrong", None: "open"}[saved.ok],
        sentence=saved.summary,
        confidence="certain" if saved.ok is False else "unknown",
        coverage=unrecorded(saved.ok, what),
    )


def words_against(saved: Saved) -> str:
    """Return which words of an all-clear say that there is no answer, "" for none."""
    if saved.ok is not True:
        return ""
    if saved.verdict is not None and saved.verdict.state == "cannot_tell":
        return "the state is cannot_tell"
    says = saved.summary.lower().startswith("cannot tell")
    return "the summary says that there is no answer" if says else ""


def strict(value: Any) -> Any:
    """Return `value` with NaN and infinities as None, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that was written by `Result.save`.

    The file is not believed: types, enumerations, and the agreement of its verdict with what it lists are
    checked. The rules are not run again, and nothing that it names is opened or asked.

    Raises
    ------
    WorkbenchError
        The file is missing, is not JSON, or holds no result this version can read.
    """
    from workbench.core.render import KINDS, kind_of

    named = path if isinstance(path, str | os.PathLike) else shown(path)
    what = f"{named} is not a saved workbench result"
    hint = "Give a file written by result.save(path)."
    try:
        data = json.loads(Path(path).read_bytes())
    except TypeError as error:
        raise WorkbenchError(what, why=str(error), next_step=hint) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise WorkbenchError(f"cannot read {path}", why=why, next_step=hint) from None
    except (ValueError, RecursionError) as error:
        raise WorkbenchError(what, why=f"not JSON: {error}", next_step=hint) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    kind = kind_of(schema)
    if kind is None:
        known = ", ".join(sorted(KINDS))
        why = f"its schema is {schema!r}, known here: {known}"
        raise WorkbenchError(what, why=why, next_step=hint)
    try:
        result = kind.from_dict(data)
        # A file from somebody else may hold anything: what cannot be shown fails here, not later.
        result.to_text(80)
        result.payload()
    except Exception as error:
        why = f"{schema}, and a field of it is wrong: {error}"
        raise WorkbenchError(what, why=why, next_step=hint) from None
    return result
