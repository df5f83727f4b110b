"""One launch in the forms in which it is handed over; and what is no launch."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.errors import WorkbenchError
from workbench.launch.read import read_launch
from workbench.launch.records import Launch

WORDS = [
    "python3", "-m", "sglang.launch_server", "--model-path", "/models/target", "--tp-size", "8",
    "--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "/models/draft",
]  # fmt: skip
LINE = " ".join(WORDS)
LOG = (
    "[2026-11-29 18:00:00] server_args=ServerArgs(model_path='/models/target', tp_size=8, api_key=None, "
    "speculative_algorithm='EAGLE', speculative_draft_model_path='/models/draft')\n"
)
UNIT = f"[Service]\nExecStart=/usr/bin/numactl -N 0 {LINE}\n"
COMPOSE = json.dumps({"services": {"llm": {"image": "lmsysorg/sglang:v0.5.11", "command": WORDS}}})
POD = json.dumps(
    {
        "kind": "Pod",
        "spec": {"containers": [{"image": "x", "command": WORDS[:3], "args": WORDS[3:]}]},
    }
)
CONFIG = "model-path: /models/target\ntp-size: 8\nspeculative-algorithm: EAGLE\n"
FORMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda _: LINE, "command line"),
    "list": (lambda _: WORDS, "argument list"),
    "script": (lambda f: written(f / "run.sh", f"#!/bin/bash\nset -e\nexec {LINE} > s.log 2>&1\n"), "script"),
    "text of a script": (lambda _: f"export A=1\n{LINE}\n", "script"),
    "null separated": (lambda f: written(f / "cmdline.bin", "\0".join(WORDS) + "\0"), "argument list"),
    "log": (lambda f: written(f / "server.log", LOG), "log"),
    "line of a log": (lambda _: LOG, "log"),
    "log.gz": (lambda f: packed(f / "server.log.gz", gzip.compress(LOG.encode())), "log"),
    "log.xz": (lambda f: packed(f / "server.log.xz", lzma.compress(LOG.encode())), "log"),
    "record": (lambda f: written(f / "launch.json", json.dumps({"command": WORDS})), "launch record"),
    "folder": (lambda f: written(f / "launch.json", json.dumps({"command": WORDS})).parent, "launch record"),
    "unit": (lambda _: UNIT, "systemd unit"),
    "compose": (lambda f: written(f / "compose.yaml", COMPOSE), "compose file"),
    "pod": (lambda f: written(f / "pod.yaml", POD), "kubernetes manifest"),
    "docker": (lambda _: f"docker run --rm -e A=1 lmsysorg/sglang:v0.5.11 sh -lc '{LINE}'", "command line"),
    "ssh": (lambda _: f"ssh node1 'cd /srv && {LINE}'", "command line"),
    "sudo": (lambda _: f"sudo -u llm env NCCL_DEBUG=INFO nohup {LINE} &", "command line"),
    "srun": (lambda _: f"srun -N2 --export=ALL,NCCL_DEBUG=INFO {LINE}", "command line"),
    "array": (lambda _: f"A=({' '.join(WORDS[3:])})\npython -m sglang.launch_server \"${{A[@]}}\"", "script"),
    "function": (lambda _: f'f() {{ {" ".join(WORDS[:3])} "$@"; }}\nf {" ".join(WORDS[3:])}', "script"),
    "here-document": (lambda _: f"bash <<'EOF'\n{LINE}\nEOF\n", "script"),
    "bytes": (lambda _: "\0".join(WORDS).encode(), "argument list"),
}  # fmt: skip


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def packed(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_launch_is_the_same_in_each_form(form: str, tmp_path: Path) -> None:
    make, named = FORMS[form]
    found = read_launch(make(tmp_path))
    assert (found.engine, found.target, found.draft) == (
        "sglang",
        "/models/target",
        "/models/draft",
    )
    assert (found.value("speculative-algorithm"), found.value("tp-size")) == ("EAGLE", "8")
    assert not found.not_read
    assert found.form == named


def test_options_of_the_line_outweigh_its_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    line = written(tmp_path / "run.txt", "sglang serve --config c.yaml --tp 4\n")
    found = read_launch(line)
    assert (found.value("tp-size"), found.value("speculative-algorithm")) == ("4", "EAGLE")
    assert found.argument("speculative-algorithm").where.file == "c.yaml"  # type: ignore[union-attr]
    assert read_launch("sglang serve --config c.yaml", folder=tmp_path).target == "/models/target"
    inside = read_launch(
        "docker run lmsysorg/sglang:v0.5.9 sglang serve --config c.yaml", folder=tmp_path
    )
    assert "in the container" in str(inside.not_read[0])
    assert read_launch(tmp_path / "c.yaml").form == "configuration file"


def test_a_running_process_is_read(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    sleeps = "import time; print('ready', flush=True); time.sleep(60)"
    (tmp_path / "sglang" / "launch_server.py").write_text(sleeps)
    command = [sys.executable, *WORDS[1:]]
    environment = {"PYTHONPATH": str(tmp_path), "NCCL_DEBUG": "WARN", "MY_TOKEN": "x"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            for pid in (process.pid, str(process.pid)):
                found = read_launch(pid)
                assert (found.form, found.draft) == ("process", "/models/draft")
                assert found.environment == {"NCCL_DEBUG": "WARN"}
        finally:
            process.kill()
    with pytest.raises(WorkbenchError, match="no such process"):
        read_launch(process.pid)


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ("", "empty"), ([], "empty"), (["", " "], "empty"), (None, "neither"), (1.5, "neither"),
        ([1], "neither"), ("gone/run.sh", "no such file"),
        ("/no/such/server.log", "no such file"), (b"", "empty"),
        ("kind: Pod\n: :\n- [", "YAML"),
    ],
)  # fmt: skip
def test_what_is_no_launch_is_refused(thing: object, words: str) -> None:
    with pytest.raises(WorkbenchError, match=words):
        read_launch(thing)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(LOG.encode() * 50)
    with pytest.raises(WorkbenchError, match="cannot read"):
        read_launch(packed(tmp_path / "server.log.gz", data[: len(data) // 2]))


@pytest.mark.parametrize(
    "text",
    [
        "bash run",
        "make serve",
        "vllm bench serve --model m",
        "python train.py --tp 8",
        "sglang --help",
    ],
)
def test_another_program_is_no_launch(text: str) -> None:
    found = read_launch(text)
    assert found.engine == ""
    assert found.not_read
    assert found.state("speculative-algorithm") == "unknown"


@pytest.mark.parametrize(
    "thing",
    [
        0, -1, 10**5000, True, float("nan"), {}, object(), b"\xff", "\ud800", "x\0y", ["a\0b"], range(3),
        Path("a" * 5000), Path("/dev/zero"), "{}",
        '{"command": 5}', "services: 5\nkind: 3", "model-path: {a: b}",
        "services:\n  a: {image: [1], command: {a: b}, environment: 7}", "FROM x\nCMD [", "docker run --name",
        "sglang serve --config /dev/zero", "${", "a=(", "cat <<", "x() {",
    ],
    ids=lambda thing: type(thing).__name__ if not isinstance(thing, str) else repr(thing)[:40],
)  # fmt: skip
def test_whatever_is_given_only_a_workbench_error_leaves(thing: object) -> None:
    with contextlib.suppress(WorkbenchError):
        assert isinstance(read_launch(thing), Launch)
