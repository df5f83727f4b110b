"""What `doctor` refuses to look at: what, why, and the next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import WorkbenchError
from workbench.triage.things import recognise


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("launch.sh", b"", "it is empty"),
        ("server.log", b" \n\n", "it is empty"),
        ("server.log", bytes(range(128, 256)) * 8, "neither text nor"),
        ("odd", bytes(range(1, 9)) * 80, "neither text nor"),
    ],
)
def test_a_file_without_anything_to_read(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(WorkbenchError, match=why):
        recognise(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("launch.sh", "sglang serve --model-path m".encode("utf-16"), "launch"),
        ("server.log", b"server_args=ServerArgs(model_path='m')\n", "log"),
        ("server.log.gz", b"\x1f\x8b\x08\x00" + bytes(range(128, 256)), "log"),
        ("model.safetensors", bytes(range(128, 256)), "checkpoint"),
        ("case.zip", b"PK\x03\x04" + bytes(range(128, 256)), "case"),
    ],
)
def test_a_file_of_bytes_with_a_form(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert [thing.kind for thing in recognise(tmp_path / name)] == [kind]
