"""What runs a launch, its container and its configuration file are changes as well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.evidence import launch_words
from workbench.hang.ledger.ledger import Ledger

SERVER = "python -m sglang.launch_server --model-path /models/x"
DOCKER = "docker run --gpus all --rm -it -v /a:/a -e NCCL_DEBUG=INFO lmsys/sglang:v0.5.11 "


def changed(folder: Path, first: str, second: str) -> list[str]:
    ledger = Ledger(folder / "launches.jsonl")
    ledger.record(first, outcome="hung")
    ledger.record(second, outcome="served")
    return [change.text for change in ledger.differences(1, 2).changed]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (f"numactl -N 0 {SERVER}", f"numactl -N 1 {SERVER}", ["numactl: -N 0 → -N 1"]),
        (SERVER, f"numactl --cpunodebind=0 {SERVER}", ["numactl: not given → --cpunodebind=0"]),
        (DOCKER + SERVER, DOCKER.replace("INFO", "WARN") + SERVER, ["NCCL_DEBUG: INFO → WARN"]),
        (
            DOCKER + SERVER,
            DOCKER.replace("0.5.11", "0.5.14") + SERVER,
            ["image: lmsys/sglang:v0.5.11 → lmsys/sglang:v0.5.14", "sglang: 0.5.11 → 0.5.14"],
        ),
        (
            DOCKER + SERVER,
            DOCKER.replace("--rm", "--ipc=host") + SERVER,
            ["docker run: --gpus all --rm -it -v value-… → --gpus all --ipc host -it -v value-…"],
        ),
        (f"env NCCL_DEBUG=INFO {SERVER}", f"NCCL_DEBUG=INFO {SERVER}", []),
        (DOCKER + SERVER, DOCKER + SERVER, []),
    ],
)
def test_what_runs_the_server_is_a_change(
    tmp_path: Path, first: str, second: str, expected: list[str]
) -> None:
    found = [re.sub(r"value-\w{6}", "value-…", text) for text in changed(tmp_path, first, second)]
    assert found == expected


def test_options_of_a_container_are_no_options_of_the_engine() -> None:
    parts = launch_words.split((DOCKER + SERVER).split())
    assert parts.command == tuple(SERVER.split())
    assert parts.environment == {"NCCL_DEBUG": "INFO"}


def test_the_content_of_a_configuration_file_is_compared_and_the_command_outranks_it(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("tp-size: 8\nmem-fraction-static: 0.8\nenable-metrics: true\n")
    second.write_text("tp-size: 8\nmem-fraction-static: 0.7\nenable-metrics: true\n")
    pair = [f"{SERVER} --config {path}" for path in (first, second)]
    assert changed(tmp_path, *pair) == ["--mem-fraction-static: 0.8 → 0.7"]
    ledger = Ledger(tmp_path / "other.jsonl")
    for command in pair:
        ledger.record(command + " --mem-fraction-static 0.6")
    assert not ledger.differences(1, 2).changed


def test_a_configuration_file_that_was_not_read_leaves_the_pair_unsure(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "launches.jsonl")
    for _ in range(2):
        ledger.record(f"{SERVER} --config {tmp_path}/gone.yaml")
    between = ledger.differences(1, 2)
    assert [change.kind for change in between.unsure] == ["config"]
    assert between.warning


def test_no_path_registry_or_key_of_these_is_written(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("api-key: sk-planted-0123456789\nmodel-path: /secret/place/llama\n")
    image = "registry.corp.example:5000/hidden/sglang@sha256:" + "ab" * 32
    command = f"docker run -v /secret/place:/x --name alice-box {image} {SERVER} --config {config}"
    Ledger(tmp_path / "launches.jsonl").record(command)
    written = (tmp_path / "launches.jsonl").read_text()
    for planted in ("sk-planted", "/secret", "corp.example", "hidden", "alice", "abab"):
        assert planted not in written
