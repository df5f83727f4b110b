"""The recorder of the shipped case against a stand-in for SGLang: this file, run as a program."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts" / "incident"
ACCEPTED = [2, 0, 3]  # drafts accepted in each round of every answer
READY = "The server is fired up and ready to roll!"


class Answers(BaseHTTPRequestHandler):
    """Answers as SGLang does: one chunk for the prompt's own token, then one a round."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.reply(
            [json.dumps({"path": self.path, "internal_states": [{"avg_spec_accept_length": 2.0}]})]
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count, texts = 1, []
        for number, accepted in enumerate([None, *ACCEPTED]):
            count += 0 if accepted is None else accepted + 1
            meta = {"completion_tokens": count, "spec_verify_ct": number}
            texts.append(
                json.dumps({"text": "x", "output_ids": list(range(count)), "meta_info": meta})
            )
        if body.get("stream"):
            self.reply([f"data: {text}\n\n" for text in texts] + ["data: [DONE]\n\n"])
        else:
            self.reply([json.dumps({**json.loads(texts[-1]), "hidden": [0.123456789]})])

    def reply(self, parts: list[str]) -> None:
        self.send_response(200)
        self.end_headers()
        for part in parts:
            self.wfile.write(part.encode())


def serve() -> None:
    """Serve until stopped; a draft called `dead` ends the program as a loader's error would."""
    if "dead" in sys.argv:
        print("RuntimeError: no such layer", flush=True)
        sys.exit(1)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    print("load weights", flush=True)
    time.sleep(0.2)
    print(READY, flush=True)
    server.serve_forever()


def records(path: Path) -> list[Any]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def test_a_plan_is_recorded_and_one_failure_loses_nothing_else(tmp_path: Path) -> None:
    models, work, out = tmp_path / "models", tmp_path / "work", tmp_path / "out"
    for name in ("good", "dead"):
        (models / name).mkdir(parents=True)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": n, "ids": [5, 6, n]}) + "\n" for n in range(6))
    )
    plan = tmp_path / "plan.json"
    runs = [
        {"name": "dead", "target": "target", "draft": "dead"},
        {"name": "good", "target": "target", "draft": "good", "prompts": 5, "hidden": 2},
        {"name": "hooks", "target": "target", "draft": "good", "hooks": 1, "graphs": False},
    ]
    plan.write_text(json.dumps(runs))
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPTS / "serve_and_record.py"), str(plan)),
            *("--engine", str(tmp_path), "--models", str(models), "--prompts", str(prompts)),
            *("--out", str(out), "--work", str(work), "--deadline", "200", "--part", "500"),
            *("--launcher", f"{sys.executable} {__file__}"),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole = tmp_path / "plan.tar.xz"
    whole.write_bytes(b"".join(part.read_bytes() for part in sorted(out.glob("plan.tar.xz.*"))))
    with tarfile.open(whole) as archive:
        archive.extractall(tmp_path / "read", filter="data")
    folder = tmp_path / "read" / "plan"

    dead = json.loads((folder / "dead" / "run.json").read_text())
    assert dead["outcome"] == "failed"
    assert "no such layer" in dead["error"]

    good = json.loads((folder / "good" / "run.json").read_text())
    assert good["outcome"] == "recorded"
    assert (good["prompts"], good["rounds"], good["tokens"]) == (5, 15, 45)
    lines = records(folder / "good" / "requests.jsonl.gz")
    assert [line["prompt"] for line in lines] == [0, 1, 2, 3, 4]
    assert [chunk[0] for chunk in lines[0]["chunks"]] == [1, 4, 5, 9]
    assert lines[0]["last"]["output_ids"] == list(range(9))
    assert len(records(folder / "good" / "chunks.jsonl.gz")) == 3 * 4
    assert records(folder / "good" / "hidden_states.jsonl.gz")[1]["answer"]["hidden"] == [0.123457]
    launch = json.loads((folder / "good" / "launch.json").read_text())
    assert "--enable-return-hidden-states" in launch["command"]
    assert launch["ready_after"] > 0
    assert not any(str(tmp_path) in word for word in launch["command"][3:])
    assert READY in (folder / "good" / "server.log").read_text()

    hooked = json.loads((folder / "hooks" / "launch.json").read_text())["command"]
    specs = json.loads(hooked[hooked.index("--forward-hooks") + 1])
    assert {spec["hook_factory"] for spec in specs} == {
        "recorder:logits",
        "recorder:passing",
        "recorder:weights",
    }


if __name__ == "__main__":
    serve()
