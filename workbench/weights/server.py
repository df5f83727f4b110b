"""Asking a running SGLang server for weights: read-only, bounded, and with a deadline.

``/get_weights_by_name`` is written for SGLang's own tests (sglang/srt/managers/tp_worker.py,
models/llama.py; 0.5.8 to 0.5.23 alike). The scheduler turns the whole tensor into Python numbers before it
keeps the first ``truncate_size`` rows, and serves nobody meanwhile.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from workbench.errors import WorkbenchError, shorten, shown

Floats = np.ndarray[Any, np.dtype[np.float32]]

TIMEOUT = 60.0
"""Seconds that one answer may take."""
MOST_BYTES = 256 << 20
"""Bytes of one answer."""
_MOST_INFO = 4 << 20
_CHUNK = 1 << 20
# Up to the last @: a password is repeated nowhere, whatever is in it.
_USER, _WITHOUT = re.compile(r"^(\w+://)?.*@", re.DOTALL), r"\1…@"
_NEXT = "Give the address of a running SGLang server, such as http://127.0.0.1:30000."


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A server's answer may send us nowhere else."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


class BadAnswer(Exception):
    """One parameter that was answered wrongly; others may be answered well.

    Its text goes on from "its value was".
    """


class Server:
    """One server, by its address.

    Attributes
    ----------
    address
        ``http://host:port``.
    """

    def __init__(self, address: str, timeout: float = TIMEOUT) -> None:
        if "@" in address:
            raise WorkbenchError(
                f"{shown(_USER.sub(_WITHOUT, address))} names a user, perhaps with a password",
                why="SGLang has no users, and the workbench sends none",
                next_step=_NEXT,
            )
        if not _is_address(address):
            raise WorkbenchError(
                f"{shown(address)} is not the address of a server", next_step=_NEXT
            )
        self.address = address.rstrip("/")
        self.timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))

    def info(self) -> dict[str, Any]:
        """Return what the server says about its model and its launch.

        Raises
        ------
        WorkbenchError
            Nothing answers there, or what answers is no SGLang server.
        """
        found: dict[str, Any] = {}
        for path in ("/get_model_info", "/get_server_info"):  # both names work in every release
            data = _object(self._ask(path, None, _MOST_INFO))
            if data is None:
                raise self._wrong(f"{path} did not answer as SGLang does")
            found |= data
        if "model_path" not in found:
            raise self._wrong("it names no model_path")
        return found

    def weight(self, name: str, rows: int) -> Floats | None:
        """Return the first `rows` rows of one parameter, or None where the server has none of that name.

        Returns
        -------
        ndarray
            float32, one dimension or two; with data parallelism, of the first replica. NaN also stands for
            infinities: SGLang's JSON writes null for both.

        Raises
        ------
        BadAnswer
            It answers too much, something that is no tensor, or that it failed (500).
        WorkbenchError
            It answers late or not at all, or would answer no other name either.
        """
        body = json.dumps({"name": name, "truncate_size": rows}).encode()
        text = self._ask("/get_weights_by_name", body, MOST_BYTES, missing=400, one_of_many=True)
        return None if text is None else self._tensor(text)

    def _tensor(self, text: bytes) -> Floats | None:
        import msgspec

        if text.strip() == b"null":
            return None
        number = float | None
        for kind in (list[list[number]], list[number], list[list[list[number]]]):
            try:
                values: Any = msgspec.json.decode(text, type=kind)
            except msgspec.ValidationError:
                continue
            except (msgspec.DecodeError, RecursionError):
                raise BadAnswer("not understood: the answer is not JSON") from None
            try:
                with np.errstate(over="ignore"):  # beyond float32: infinite
                    return np.array(values, dtype=np.float32)
            except (ValueError, OverflowError):
                break
        raise BadAnswer("not understood: the answer is not a tensor")

    def _ask(
        self,
        path: str,
        body: bytes | None,
        most: int,
        missing: int | None = None,
        one_of_many: bool = False,
    ) -> bytes | None:
        """Return an answer's body; None for the status `missing`."""
        request = urllib.request.Request(
            self.address + path, data=body, headers={"Content-Type": "application/json"}
        )
        deadline = time.monotonic() + self.timeout
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                text = self._body(answer, deadline, most)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == missing:
                    return None
                if one_of_many and error.code >= 500:
                    raise BadAnswer(
                        f"refused: the server answered with status {error.code}"
                    ) from None
                raise self._refused(path, error.code) from None
        except (TimeoutError, urllib.error.URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            late = isinstance(reason, TimeoutError)
            raise WorkbenchError(
                f"{self.address}{path} did not answer",
                why=f"nothing within {self.timeout:.0f} s" if late else str(reason),
                next_step="A server that hangs does not answer. Run workbench hang. " * late
                + _NEXT,
            ) from None
        if text is not None:
            return text
        if one_of_many:
            raise BadAnswer(f"not taken: the server answered more than {most:,} bytes")
        raise self._wrong(f"{path} answered more than {most:,} bytes")

    def _body(self, answer: Any, deadline: float, most: int) -> bytes | None:
        """Return what is answered, None where it is more than `most` bytes."""
        parts, size = [], 0
        while part := answer.read1(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > most:
                return None
            if time.monotonic() > deadline:
                raise TimeoutError
        return b"".join(parts)

    def _refused(self, path: str, code: int) -> WorkbenchError:
        if code in (401, 403):
            why, step = (
                "it requires an API key, and the workbench sends none",
                "Ask a server without one.",
            )
        elif code == 404:
            why, step = "it does not have this endpoint (404)", _NEXT
        elif 300 <= code < 400:
            why, step = f"it redirects ({code}), and that is not followed", _NEXT
        else:
            why, step = f"it answered with status {code}", "Check the server's log."
        return WorkbenchError(f"{self.address}{path} cannot be used", why=why, next_step=step)

    def _wrong(self, why: str) -> WorkbenchError:
        return WorkbenchError(
            f"{self.address} is not an SGLang server that can be read", why=why, next_step=_NEXT
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port beyond 65,535
        return False


def _object(text: bytes | None) -> dict[str, Any] | None:
    try:
        data = json.loads(text or b"")
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def number_of(info: Mapping[str, Any], name: str) -> int:
    """Return a whole number that the server says about itself, 1 where it says none."""
    value = info.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def told(info: Mapping[str, Any], name: str) -> str:
    """Return a text that the server says about itself, shortened; "" where it says none."""
    value = info.get(name)
    return shorten(value, 100) if isinstance(value, str) else ""
