"""Servers that answer wrongly, slowly, without end or not at all."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import WorkbenchError
from workbench.weights import server
from workbench.weights.scan import scan_weights

from .served_weights import Answer, Engine, as_engine, notes, scan_of, serving, weights


def good(path: str, body: dict[str, Any]) -> tuple[int, bytes] | None:
    return Engine({})(path, body) if "info" in path else None


def answering(text: bytes, status: int = 200) -> Answer:
    return lambda path, body: good(path, body) or (status, text)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answering(b"<html>"), "is not JSON"),
        (answering(b'{"a": 1}'), "is not a tensor"),
        (answering(b'[["a"]]'), "is not a tensor"),
        (answering(b"[[1, 2], [3]]"), "is not a tensor"),
        (answering(b"[" * 100_000), "not JSON|not a tensor"),
        (answering(b"[[1e999]]"), "not JSON|not a tensor|returned no weights"),
        (answering(b"null"), "returned no weights"),
        (answering(b"[]"), "returned no weights"),
        (answering(b"x", 404), "not have this endpoint"),
        (answering(b"x", 401), "API key"),
        (answering(b"x", 500), "status 500"),
        (answering(b"http://127.0.0.1:1/", 302), "redirects"),
        (lambda path, body: (200, b"hello"), "not an SGLang server"),
        (lambda path, body: (200, b"[1]"), "not an SGLang server"),
        (lambda path, body: (200, b"{}"), "no model_path"),
        (lambda path, body: (404, b""), "not have this endpoint"),
    ],
)
def test_wrong_answers_are_told_apart(answer: Answer, why: str) -> None:
    with serving(answer) as address, pytest.raises(WorkbenchError) as raised:
        scan_weights(address, names=["x.weight"])
    assert re.search(why, str(raised.value)), str(raised.value)


BROKEN = {
    "ragged": (200, b"[[1, 2], [3]]"), "no JSON": (200, b"<html>"), "failed": (500, b"{}"),
}  # fmt: skip


@pytest.mark.parametrize("how", list(BROKEN))
def test_one_wrong_answer_leaves_one_tensor_unseen(checkpoint: Path, how: str) -> None:
    engine = Engine(as_engine(weights()), model_path=str(checkpoint))
    down = "model.layers.0.mlp.down_proj.weight"

    def answer(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        return BROKEN[how] if body.get("name") == down else engine(path, body)

    with serving(answer) as address:
        by_file = scan_weights(address)
        by_name = scan_weights(address, names=["lm_head.weight", down, "model.norm.weight"])
        compared = scan_of(checkpoint).compare(address)
    assert set(by_file.tensors.names) == set(weights()) - {down}
    assert by_name.tensors.names == ("lm_head.weight", "model.norm.weight")
    why = "refused: the server answered with status 500" if how == "failed" else "not understood"
    for result in (by_file, by_name, compared):
        assert result.ok is not True
        assert why in notes(result)
        assert down in notes(result)
    assert "weights.not_seen" in {finding.code for finding in by_name.findings}
    assert compared.changes[down].state == "unread"
    assert why in compared.changes[down].reason


def test_a_server_that_dies_keeps_what_it_answered(checkpoint: Path) -> None:
    engine = Engine(as_engine(weights()), model_path=str(checkpoint))
    asked: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        asked.append(str(body.get("name", "")))
        if len([name for name in asked if name]) > 3:
            raise ConnectionAbortedError  # the connection closes without an answer
        return engine(path, body)

    with serving(answer) as address:
        scan = scan_weights(address)
    assert 0 < len(scan.tensors) < len(weights())
    assert scan.ok is None or scan.ok is False
    assert "stopped answering" in notes(scan)
    assert "weights.not_seen" in {finding.code for finding in scan.findings}


def test_a_checkpoint_that_is_replaced_while_its_server_is_asked_decides_nothing(
    checkpoint: Path,
) -> None:
    engine = Engine(as_engine(weights()), model_path=str(checkpoint))

    def answer(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if body.get("name") == "lm_head.weight":
            file = next(checkpoint.glob("*.safetensors"))
            (checkpoint / "new").write_bytes(file.read_bytes())
            (checkpoint / "new").replace(file)
        return engine(path, body)

    with serving(answer) as address:
        scan = scan_weights(address)
    assert scan.ok is None
    assert "changed while it was read" in scan.summary


def test_a_server_that_answers_everything_wrongly_is_an_error(checkpoint: Path) -> None:
    engine = Engine({}, model_path=str(checkpoint))

    def answer(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        return (500, b"") if "name" in body else engine(path, body)

    with serving(answer) as address:
        with pytest.raises(WorkbenchError, match="status 500"):
            scan_weights(address)
        with pytest.raises(WorkbenchError, match="status 500"):
            scan_of(checkpoint).compare(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://me:s3cret@127.0.0.1:9",
        "http://me:s3cr@et@127.0.0.1:9/",
        "https://s3cret@[bad",
        "s3cret@h",
    ],
)
def test_a_password_in_an_address_is_not_repeated(address: str) -> None:
    with pytest.raises(WorkbenchError, match="names a user") as raised:
        server.Server(address)
    assert "s3cr" not in str(raised.value)
    assert "…@" in str(raised.value)


def test_a_scan_of_an_address_with_a_password_does_not_repeat_it(checkpoint: Path) -> None:
    address = "http://me:s3cret@127.0.0.1:9"
    for ask in (scan_weights, scan_of(checkpoint).compare):
        with pytest.raises(WorkbenchError, match="names a user") as raised:
            ask(address)
        assert "s3cret" not in str(raised.value)


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BYTES", 1 << 20)
    with (
        serving(answering(b"[" + b"0.1," * (1 << 20))) as address,
        pytest.raises(WorkbenchError, match="answered more than"),
    ):
        scan_weights(address, names=["x.weight"])


def test_a_server_that_is_silent_or_slow_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def slow(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        released.wait(20)
        return 200, b"{}"

    with serving(slow) as address:
        began = time.monotonic()
        with pytest.raises(WorkbenchError, match="did not answer") as raised:
            server.Server(address, timeout=0.3).info()
        released.set()
    assert "workbench hang" in raised.value.next_step
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("path", ["a" * 100_000, "~nobody-here/model", "a\0b"])
def test_a_path_of_another_machine_may_be_none_here(path: str) -> None:
    with (
        serving(Engine({}, model_path=path)) as address,
        pytest.raises(WorkbenchError, match="names of the server's parameters are not known"),
    ):
        scan_weights(address)


def test_a_server_takes_no_sample() -> None:
    for arguments in ({"sample": 0.5}, {"device": "cuda"}, {"client": object()}):
        with pytest.raises(WorkbenchError, match="go with checkpoints"):
            scan_weights("http://127.0.0.1:9", names="x", **arguments)


def test_nobody_there() -> None:
    with pytest.raises(WorkbenchError, match="did not answer"):
        scan_weights("http://127.0.0.1:9", names=["x"])
    for address in ("ftp://host", "http://", "nonsense"):
        with pytest.raises(WorkbenchError, match="not the address of a server"):
            server.Server(address)
