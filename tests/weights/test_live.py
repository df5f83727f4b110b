"""Weights read from a running server: a real SGLang, and servers that answer wrongly."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import workbench
from workbench.errors import WorkbenchError
from workbench.weights import live, server
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights

Answer = Callable[[str, dict[str, Any]], tuple[int, bytes]]
Array = np.ndarray[Any, np.dtype[np.float32]]


class Engine:
    """Answers as SGLang's LlamaForCausalLM does (models/llama.py), from fused parameters."""

    def __init__(self, parameters: dict[str, Array], **info: Any) -> None:
        self.parameters = parameters
        self.info = {"model_path": "target", "version": "0.5.14", "tp_size": 1, "dp_size": 1} | info
        self.asked: list[tuple[str, int]] = []

    def __call__(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if path in ("/get_model_info", "/get_server_info"):
            return 200, json.dumps(self.info).encode()
        name, rows = body["name"], body["truncate_size"]
        self.asked.append((name, rows))
        if name not in self.parameters:
            return 400, b'{"error": {"message": "Get parameter by name failed"}}'
        values = self.parameters[name][:rows].tolist()
        if self.info["dp_size"] > 1:
            values = [values] * self.info["dp_size"]
        # orjson writes NaN and infinities as null
        text = (
            json.dumps(values)
            .replace("NaN", "null")
            .replace("-Infinity", "null")
            .replace("Infinity", "null")
        )
        return 200, text.encode()


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            status, text = answer(self.path, body)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", text.decode())
                text = b""
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(OSError):  # the reader may have had enough
                self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()
        httpd.server_close()


def weights(seed: int = 3) -> dict[str, Array]:
    """The file's tensors: one layer whose values are exact in bfloat16."""
    random = np.random.default_rng(seed)
    shapes = {
        "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
        "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64),
        "mlp.down_proj": (64, 128),
    }  # fmt: skip
    found = {
        f"model.layers.0.{name}.weight": random.normal(0, 0.02, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    found["model.norm.weight"] = random.normal(1, 0.1, 64).astype(np.float32)
    found["lm_head.weight"] = random.normal(0, 0.02, (100, 64)).astype(np.float32)
    for value in found.values():
        value.view(np.uint32)[...] &= 0xFFFF0000
    return found


def as_engine(tensors: dict[str, Array], ranks: int = 1) -> dict[str, Array]:
    """The same as SGLang holds it on rank 0: fused, cut, the vocabulary padded to 128 rows."""
    held = dict(tensors)
    stem = "model.layers.0."
    for whole, parts in (
        ("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
        ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
    ):
        rows = [held.pop(f"{stem}{part}.weight") for part in parts]
        held[f"{stem}{whole}.weight"] = np.concatenate([r[: len(r) // ranks] for r in rows])
    held["lm_head.weight"] = np.pad(held["lm_head.weight"], ((0, 28), (0, 0)))
    return held


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    save_file(weights(), folder / "model.safetensors")
    return folder


def notes(result: Any) -> str:
    return "\n".join(result.notes)


def scan_of(path: Path | str) -> WeightScan:
    return WeightScan.build(str(path), [])


def test_the_engine_holds_what_the_file_says(checkpoint: Path) -> None:
    with serving(Engine(as_engine(weights()), model_path=str(checkpoint))) as address:
        result = scan_of(checkpoint).compare(address)
    assert result.ok is True
    assert len(result.names("identical")) == len(weights())
    assert "never returns the draft's weights" in notes(result)


def test_a_parameter_that_was_never_loaded_stands_out(checkpoint: Path) -> None:
    held = as_engine(weights())
    held["model.layers.0.self_attn.qkv_proj.weight"][64:96] = 0  # k_proj
    held["model.layers.0.mlp.down_proj.weight"][5, 5] = np.nan
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        result = scan_of(checkpoint).compare(address)
        other_way = WeightScan.build(address, [], kind="server").compare(checkpoint)
    assert result.names("changed") == ("model.layers.0.self_attn.k_proj.weight",)
    assert result.changes["model.layers.0.self_attn.k_proj.weight"].change == 1.0
    assert result.names("invalid") == ("model.layers.0.mlp.down_proj.weight",)
    assert result.ok is False
    assert other_way.names("invalid") == result.names("invalid")
    assert other_way.before == address


def test_other_values_in_the_engine_are_a_mistake_and_rounding_is_none(checkpoint: Path) -> None:
    held = as_engine(weights())
    held = {name: value * np.float32(1.002) for name, value in held.items()}
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        rounded = scan_of(checkpoint).compare(address)
    held["model.layers.0.self_attn.qkv_proj.weight"][64:96] = 0  # k_proj was never loaded
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        differs = scan_of(checkpoint).compare(address)
        copy = checkpoint.with_name("copy")
        shutil.copytree(checkpoint, copy)
        other = scan_of(copy).compare(address)
    assert rounded.ok is True
    assert {finding.code for finding in rounded.findings} == {"weights.engine_rounded"}
    assert differs.ok is False
    assert differs.findings[0].code == "weights.engine_differs"
    assert "k_proj" in differs.findings[0].detail
    # Of another checkpoint it is a fact, as between two files.
    assert other.ok is True


def test_one_rank_of_two_is_laid_beside_its_own_rows(checkpoint: Path) -> None:
    with serving(
        Engine(as_engine(weights(), ranks=2), model_path=str(checkpoint), tp_size=2)
    ) as address:
        result = scan_of(checkpoint).compare(address)
    assert result.ok is True
    row = result.changes["model.layers.0.self_attn.k_proj.weight"]
    assert row.state == "identical"
    assert row.compared == 16 * 64
    assert "only rank 0 of 2" in notes(result)
    assert "read in part" in notes(result)


def test_a_cut_that_is_not_understood_is_not_compared(checkpoint: Path) -> None:
    held = as_engine(weights())
    held["model.layers.0.mlp.gate_up_proj.weight"] = held["model.layers.0.mlp.gate_up_proj.weight"][
        :100
    ]
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        result = scan_of(checkpoint).compare(address)
    assert result.ok is None
    row = result.changes["model.layers.0.mlp.gate_proj.weight"]
    assert row.state == "unread"
    assert "the shape of the answer" in row.reason
    assert "2 tensors not compared: the shape of the answer" in notes(result)


def test_the_draft_is_never_answered_with_the_target(checkpoint: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    save_file(weights(9), draft / "model.safetensors")  # named as the target's
    engine = Engine(
        as_engine(weights()), model_path=str(checkpoint), speculative_draft_model_path=str(draft)
    )
    with serving(engine) as address:
        with pytest.raises(WorkbenchError, match="is the server's draft"):
            scan_of(draft).compare(address)
        assert "the draft" in notes(scan_weights(address))
        copy = tmp_path / "copy"
        draft.rename(copy)
        result = scan_of(copy).compare(address)
    assert not [name for name, _ in engine.asked if "draft" in name]
    assert "is not the checkpoint that the server names" in notes(result)


def test_a_scan_takes_names_from_the_servers_own_checkpoint(checkpoint: Path) -> None:
    with serving(Engine(as_engine(weights()), model_path=str(checkpoint))) as address:
        result = scan_weights(address)
        some = scan_weights(address, names="*.down_proj.*")
    assert result.kind == "server"
    assert result.source == address
    assert set(result.tensors.names) == set(weights())
    row = result.tensors["model.layers.0.self_attn.k_proj.weight"]
    assert row.dtype == "BF16"  # its values are exact in it
    assert row.std == pytest.approx(weights()[row.name].std(), rel=1e-6)
    assert some.tensors.names == ("model.layers.0.mlp.down_proj.weight",)
    assert "server" in result.to_text(80)


def test_exact_names_need_no_checkpoint_and_what_has_none_is_told() -> None:
    engine = Engine(as_engine(weights()), model_path="/nowhere/at/all")
    with serving(engine) as address:
        result = scan_weights(address, names=["lm_head.weight", "midlayer.x.weight"])
        with pytest.raises(WorkbenchError, match="names of the server's parameters are not known"):
            scan_weights(address)
        with pytest.raises(WorkbenchError, match="returned no weights"):
            scan_weights(address, names=["nothing"])
    assert result.tensors.names == ("lm_head.weight",)
    assert "weights.not_seen" in {finding.code for finding in result.findings}
    assert result.tensors[0].shape == (128, 64)
    assert "1 tensor not answered" in notes(result)


def test_what_is_large_is_read_in_part_or_not_asked_for(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_VALUES", 64 * 10)
    monkeypatch.setattr(live, "MOST_ELEMENTS", 64 * 110)
    engine = Engine(as_engine(weights()), model_path=str(checkpoint))
    with serving(engine) as address:
        part = scan_weights(address, names=["lm_head.weight"])
        whole = scan_weights(address)
    assert part.tensors[0].shape == (10, 64)
    assert "read in part" in notes(part)
    assert "not requested" in notes(whole)
    assert ("model.layers.0.mlp.gate_up_proj.weight", 321) not in engine.asked
    assert max(rows for name, rows in engine.asked if name == "lm_head.weight") < 200


def test_nan_and_replicas() -> None:
    held = as_engine(weights())
    held["lm_head.weight"][3, 3] = np.inf
    with serving(Engine(held, dp_size=2)) as address:
        result = scan_weights(address, names=["lm_head.weight"])
    assert result.tensors[0].nan == 1
    assert result.ok is False
    assert "of the first of 2 replicas" in notes(result)


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


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.11", "0.5.14"])
def test_a_real_sglang(version: str, tmp_path: Path) -> None:
    from tests.engines.serve import serve

    with serve(version, tmp_path) as running:
        running.wait_ready()
        address = f"http://127.0.0.1:{running.port}"
        result = scan_weights(address)
        model = tmp_path / "model"
        assert result.kind == "server"
        assert len(result.tensors) == len(workbench.open_checkpoint(model).names)
        # Its weights were never trained, and it is not said that they were.
        assert result.ok is False
        assert result.findings[0].title.startswith("All 16 matrices are indistinguishable")
        assert f"answered by SGLang {version}" in notes(result)
        compared = scan_of(model).compare(address)
        assert len(compared.names("identical")) == len(result.tensors)
        fused = scan_weights(
            address, names=["model.layers.0.self_attn.qkv_proj.weight", "midlayer.x"]
        )
        assert fused.tensors[0].shape == (256, 128)
        assert "1 tensor not answered" in notes(fused)
        assert running.process.poll() is None


def test_names_past_the_limit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_NAMES", 1)
    with serving(Engine(as_engine(weights()))) as address:
        result = scan_weights(address, names=["lm_head.weight", "model.norm.weight"])
    assert result.tensors.names == ("lm_head.weight",)
    assert "1 tensor not requested: interrupted, or too many at once (model.norm.weight)" in notes(
        result
    )


def test_interrupted_it_keeps_what_was_answered(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = server.Server.weight

    def weight(self: server.Server, name: str, rows: int) -> Array | None:
        if name == "model.norm.weight":
            raise KeyboardInterrupt
        return plain(self, name, rows)

    monkeypatch.setattr(server.Server, "weight", weight)
    with serving(Engine(as_engine(weights()), model_path=str(checkpoint))) as address:
        by_file = scan_weights(address)
        by_name = scan_weights(address, names=["lm_head.weight", "model.norm.weight", "x"])
    for result in (by_file, by_name):
        assert result.interrupted
        assert result.ok is not True
        assert "lm_head.weight" in result.tensors
        assert "model.norm.weight" not in result.tensors
        assert "interrupted" in notes(result)
