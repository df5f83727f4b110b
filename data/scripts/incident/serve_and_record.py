"""Run a plan of SGLang servers on a GPU host and record what each one answers, as it answers.

    python3 data/scripts/incident/serve_and_record.py data/scripts/incident/plans/sglang-0.5.14.json \
        --engine ~/engine --models ~/models --prompts .carry/corpus/prompts.jsonl --out $OUT --deadline 400

A plan is a list of runs: the fields of `server.Launch`, and `prompts` (how many), `new_tokens`, `hidden`
(prompts whose hidden states are asked for), `hooks` (prompts that are run under forward hooks; graphs must
be off), `layer` (see recorder.py). Runs are started several at a time on one GPU, each for itself: one that
fails loses no other, and says in `run.json` what went wrong. When the time is nearly over, each run writes
what it has.

In the folder of a run: `launch.json` (command, environment by an allow-list, versions, GPUs, times),
`server.log`, `server_info.json` (after the last prompt), `requests.jsonl.gz` (one line a prompt: the
prompt's ids, every chunk as [completion tokens so far, milliseconds], the last chunk whole),
`chunks.jsonl.gz` (every chunk of the first three prompts, as sent), `hidden_states.jsonl.gz` (answers to
`return_hidden_states`, whole), `hooks/` and `run.json`. All go into one archive, cut into parts that may
come back from the host.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import tarfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from common import Deadline, Log, read_lines, write_json
from recorder import specification
from server import Launch, Server

ROOT = Path(__file__).resolve().parents[3]
CHUNKS_KEPT = 3  # prompts of which every chunk is kept as it came
LAST_SECONDS = 25  # kept free for stopping servers and packing
OURS = {
    "prompts": 200,
    "new_tokens": 48,
    "hidden": 0,
    "hooks": 0,
    "layer": "",
    "draft_vocabulary": 1024,
}


def ask(
    server: Server, prompt: dict[str, Any], new_tokens: int
) -> tuple[dict[str, Any], list[str]]:
    """Stream the answer to one prompt; return its record and the chunks as they came."""
    body = {
        "input_ids": prompt["ids"],
        "sampling_params": {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True},
    }
    began, chunks, texts = time.monotonic(), [], []
    for at, text in server.stream(body):
        texts.append(text)
        answer = json.loads(text)
        meta = answer.get("meta_info", {})
        chunks.append([meta.get("completion_tokens"), round(1000 * (at - began), 1)])
    last = json.loads(texts[-1])
    last.pop("text", None)
    record = {
        "prompt": prompt["prompt"],
        "input_ids": prompt["ids"],
        "chunks": chunks,
        "last": last,
    }
    return record, texts


def write_lines(path: Path, records: list[Any]) -> None:
    """Write compressed JSON lines, with no time in them: the same records give the same bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for record in records:
            text = record if isinstance(record, str) else json.dumps(record)
            file.write(text.encode() + b"\n")


def record_prompts(
    server: Server,
    prompts: list[dict[str, Any]],
    run: dict[str, Any],
    out: Path,
    deadline: Deadline,
) -> dict[str, Any]:
    """Send the prompts one after the other and write the answers; stop when the time is over."""
    records, chunks = [], []
    began = time.monotonic()
    for prompt in prompts[: run["prompts"]]:
        if deadline.left() < LAST_SECONDS or time.monotonic() - began > run["seconds"]:
            break
        record, texts = ask(server, prompt, run["new_tokens"])
        records.append(record)
        if len(records) <= CHUNKS_KEPT:
            chunks += texts
    write_lines(out / "requests.jsonl.gz", records)
    write_lines(out / "chunks.jsonl.gz", chunks)
    seconds = time.monotonic() - began
    tokens = sum(record["chunks"][-1][0] or 0 for record in records)
    rounds = sum(record["last"].get("meta_info", {}).get("spec_verify_ct", 0) for record in records)
    return {
        "prompts": len(records),
        "prompts_wanted": run["prompts"],
        "tokens": tokens,
        "rounds": rounds,
        "seconds": round(seconds, 1),
        "tokens_a_second": round(tokens / seconds, 1) if records else None,
        "drafts_accepted_a_round": round((tokens - len(records)) / rounds - 1, 4)
        if rounds
        else None,
    }


def record_hidden(
    server: Server, prompts: list[dict[str, Any]], run: dict[str, Any], out: Path
) -> int:
    """Ask for the hidden states of a few prompts; they come back whole and are kept whole."""
    answers = []
    for prompt in prompts[: run["hidden"]]:
        body = {
            "input_ids": prompt["ids"],
            "sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True},
            "return_hidden_states": True,
        }
        answer = server.post(body)
        answer.pop("text", None)
        answers.append(
            {"prompt": prompt["prompt"], "input_ids": prompt["ids"], "answer": rounded(answer)}
        )
    write_lines(out / "hidden_states.jsonl.gz", answers)
    return len(answers)


def rounded(value: Any) -> Any:
    """Cut floats to six digits: bfloat16 has three, and the files are small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value


def one_run(
    run: dict[str, Any], port: int, prompts: list[dict[str, Any]], arguments: argparse.Namespace,
    deadline: Deadline, log: Log,
) -> None:  # fmt: skip
    """Start the server of one run, record, stop; whatever happens is written down."""
    name, out = run["name"], arguments.work / run["name"]
    outcome: dict[str, Any] = {"run": run, "outcome": "failed"}
    launch = Launch(**{f.name: run[f.name] for f in fields(Launch) if f.name in run})
    launch.extra = list(launch.extra)
    if run["hidden"]:
        launch.extra.append("--enable-return-hidden-states")
    if run["hooks"]:
        hooks = specification(str((out / "hooks").resolve()), run["draft_vocabulary"], run["layer"])
        launch.extra += ["--forward-hooks", json.dumps(hooks)]
    server = None
    try:
        if deadline.left() < 60:
            raise TimeoutError("not started: no time left")
        server = Server(launch, arguments.engine, arguments.models, out, port, arguments.launcher)
        if not server.wait_ready(time.monotonic() + deadline.left() - LAST_SECONDS):
            tail = server.log()[-1500:]
            raise RuntimeError(f"the server did not come up; the log ends with: {tail}")
        log(name, f"ready after {server.record['ready_after']} s")
        if run["hooks"]:
            outcome |= record_prompts(
                server, prompts, {**run, "prompts": run["hooks"]}, out, deadline
            )
        else:
            outcome |= record_prompts(server, prompts, run, out, deadline)
        if run["hidden"]:
            outcome["hidden"] = record_hidden(server, prompts, run, out)
        for page in ("server_info", "model_info"):
            write_json(
                out / f"{page}.json",
                json.loads(json.dumps(server.get(f"/{page}")).replace("NaN", "null")),
            )
        outcome["outcome"] = "recorded"
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
        # Paths as in the repository: where the machine keeps it is nobody's business.
        outcome["trace"] = traceback.format_exc()[-2000:].replace(f"{ROOT}/", "")
    finally:
        if server:
            server.stop()
        write_json(out / "run.json", outcome)
        shown = ("outcome", "prompts", "tokens_a_second", "drafts_accepted_a_round", "error")
        log(name, {key: str(outcome[key])[-300:] for key in shown if key in outcome})


def pack(work: Path, out: Path, name: str, part: int) -> None:
    """Put everything into one archive, cut into parts of at most `part` bytes."""
    whole = work.parent / f"{name}.tar.xz"
    with tarfile.open(whole, "w:xz", preset=2) as archive:
        archive.add(work, arcname=name)
    data = whole.read_bytes()
    for number, start in enumerate(range(0, len(data), part)):
        (out / f"{name}.tar.xz.{number:02}").write_bytes(data[start : start + part])


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--engine", type=Path, required=True, help="folder of the unpacked engine")
    parser.add_argument("--models", type=Path, required=True, help="folder with target and drafts")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/incident-runs"))
    parser.add_argument("--deadline", type=float, default=400)
    parser.add_argument("--parallel", type=int, default=5, help="servers at a time")
    parser.add_argument(
        "--run-seconds", type=float, default=120, help="for a run's prompts, at most"
    )
    parser.add_argument("--only", default="", help="names of runs, with commas")
    parser.add_argument("--part", type=int, default=15_000_000)
    parser.add_argument(
        "--launcher", default="python3 -m sglang.launch_server", help="a test's stand-in"
    )
    arguments = parser.parse_args()
    arguments.launcher = arguments.launcher.split()
    arguments.engine, arguments.models = arguments.engine.resolve(), arguments.models.resolve()
    return arguments


def main() -> None:
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log, deadline = Log(arguments.out / "log"), Deadline(arguments.deadline)
    ours = {**OURS, "seconds": arguments.run_seconds}
    runs = [{**ours, **run} for run in json.loads(arguments.plan.read_text())]
    only = {name for name in arguments.only.split(",") if name}
    runs = [run for run in runs if not only or run["name"] in only]
    arguments.work = arguments.work / arguments.plan.stem
    shutil.rmtree(arguments.work, ignore_errors=True)
    prompts = read_lines(arguments.prompts)
    log(len(runs), "runs,", len(prompts), "prompts; free ports from 30000 on")
    missing = threading.Event()
    with ThreadPoolExecutor(arguments.parallel) as pool:
        for number, run in enumerate(runs):
            if not (arguments.models / run["draft"]).is_dir():
                log(run["name"], f"left out: no folder {run['draft']}")
                missing.set()
                continue
            pool.submit(one_run, run, 30000 + 20 * number, prompts, arguments, deadline, log)
    log("all runs are over, packing")
    pack(arguments.work, arguments.out, arguments.plan.stem, arguments.part)
    log("packed")
    raise SystemExit(1 if missing.is_set() else 0)


if __name__ == "__main__":
    main()
