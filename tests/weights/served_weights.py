"""Servers that answer as SGLang does, or wrongly, and the tensors that they serve."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from workbench.weights.results import WeightScan

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


def notes(result: Any) -> str:
    return "\n".join(result.notes)


def scan_of(path: Path | str) -> WeightScan:
    return WeightScan.build(str(path), [])
