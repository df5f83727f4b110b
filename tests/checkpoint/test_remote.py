"""Checkpoints behind an address: read in parts, and their secrets kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.checkpoint.test_open import assert_whole, failure, weights, write_sharded, write_single
from workbench.checkpoint.open import given, open_checkpoint
from workbench.errors import CheckpointError


class _Files(BaseHTTPRequestHandler):
    """Serves a folder, with ranges or without; notes how many bytes were sent."""

    root: Path
    ranges = True
    sent = 0

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.root / self.path.lstrip("/").partition("?")[0]
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        asked = self.headers.get("Range")
        if self.ranges and asked:
            first, last = asked.removeprefix("bytes=").split("-")
            part = data[int(first) : int(last or len(data)) + 1]
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            )
        else:
            part = data
            self.send_response(200)
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if body:
            type(self).sent += len(part)
            self.wfile.write(part)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, type[_Files]]]:
    handler = type("Handler", (_Files,), {"root": tmp_path, "sent": 0})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", handler
    http.shutdown()
    http.server_close()
    thread.join()


def test_http(server: tuple[str, type[_Files]], tmp_path: Path) -> None:
    address, _ = server
    write_single(tmp_path / "single")
    write_sharded(tmp_path / "sharded")
    for place in (
        f"{address}/single/model.safetensors",
        f"{address}/single",
        f"{address}/sharded/",
        f"{address}/sharded/model.safetensors.index.json",
    ):
        checkpoint = open_checkpoint(place)
        assert_whole(checkpoint)
        assert checkpoint.config.model_type == "llama"
        assert checkpoint.files[0].startswith(address)


def test_http_reads_ranges_only(server: tuple[str, type[_Files]], tmp_path: Path) -> None:
    address, handler = server
    save_file({"a": torch.zeros(4096, 1024), "b": torch.ones(2)}, tmp_path / "m.safetensors")
    checkpoint = open_checkpoint(f"{address}/m.safetensors")
    assert handler.sent <= 1 << 16
    handler.sent = 0
    assert checkpoint.tensor("a", slice(2, 4)).shape == (2, 1024)
    assert handler.sent == 2 * 1024 * 4


@pytest.mark.parametrize("password", ["s3cret", "s3/cr@t", "s3:cret"])
def test_an_address_keeps_its_secrets(
    server: tuple[str, type[_Files]], tmp_path: Path, password: str
) -> None:
    address, _ = server
    with_user = address.replace("://", f"://me:{password}@")
    for place in (
        f"{with_user}/nowhere", f"{with_user}/absent.safetensors", f"{address}/x?token={password}&b=1",
        f"{with_user}/m.safetensors?X-Signature={password}", f"s3://key:{password}@bucket/x",
        f"nosuch://me:{password}@host/x",
    ):  # fmt: skip
        told = str(failure(place))
        assert password not in told
        assert "…" in told
    write_single(tmp_path / "single")
    checkpoint = open_checkpoint(f"{address}/single/model.safetensors?token={password}")
    assert_whole(checkpoint)
    assert password not in str((checkpoint.source, checkpoint.files, checkpoint))
    assert_whole(open_checkpoint(checkpoint.source))  # a result's source opens again
    # Another version at the same address is another source.
    other = open_checkpoint(f"{address}/single/model.safetensors?token=other")
    assert other.source != checkpoint.source
    assert given(checkpoint.source).endswith(password)
    assert given(other.source).endswith("other")
    assert "omit" in failure(f"{address}/else/model.safetensors?token=…").why


def test_no_result_tells_the_secrets_of_an_address(
    server: tuple[str, type[_Files]], tmp_path: Path
) -> None:
    import workbench

    address, _ = server
    write_single(tmp_path / "one")
    write_single(tmp_path / "two")
    one, two = (
        address.replace("://", "://me:s3cret@") + f"/{name}/model.safetensors"
        for name in ("one", "two")
    )
    scan = workbench.scan_weights(one)
    for result in (scan, scan.compare(two), workbench.diff_keys(one, two)):
        page = result.to_html(tmp_path / "page.html").read_text()
        assert "s3cret" not in "".join((str(result), repr(result), result.to_json(), page))
        assert "…@" in str(result)


def test_http_broken(server: tuple[str, type[_Files]], tmp_path: Path) -> None:
    address, handler = server
    assert "no such file" in failure(f"{address}/absent.safetensors").why
    assert "found no checkpoint" in failure(f"{address}/nowhere").what
    (tmp_path / "page.safetensors").write_text("<html>401</html>")
    assert "web page" in failure(f"{address}/page.safetensors").why
    write_single(tmp_path / "single")
    handler.ranges = False
    handler.sent = 0
    save_file({"a": torch.zeros(1 << 24)}, tmp_path / "large.safetensors")
    for name in ("single/model", "large"):  # the beginning can be had without ranges
        checkpoint = open_checkpoint(f"{address}/{name}.safetensors")
        with pytest.raises(CheckpointError, match="range"):
            checkpoint.tensor(checkpoint.names[-1])
    torch.save(weights(), tmp_path / "w.pt")
    handler.ranges = True
    assert "another machine" in failure(f"{address}/w.pt").what
    assert failure("http://127.0.0.1:1/m.safetensors").next_step
    assert failure("nosuch://x/m.safetensors").next_step


def test_memory_filesystem(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for folder in (write_single(tmp_path / "single"), write_sharded(tmp_path / "sharded")):
        for file in folder.iterdir():
            memory.pipe(f"/wb/{folder.name}/{file.name}", file.read_bytes())
    for place in (
        "memory://wb/single",
        "memory://wb/sharded",
        "memory://wb/single/model.safetensors",
    ):
        checkpoint = open_checkpoint(place)
        assert_whole(checkpoint)
        assert checkpoint.config.model_type == "llama"
    assert "found no checkpoint" in failure("memory://wb").what
    assert failure("memory://absent").what
