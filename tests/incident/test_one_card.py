"""The script that lets ranks share a GPU, on the sources of the two releases that were recorded so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines import environments
from tests.incident.test_server import SCRIPTS

FILES = (
    "entrypoints/engine.py",
    "distributed/device_communicators/custom_all_reduce_utils.py",
    "models/llama.py",
)


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.11", "0.5.14"])
def test_every_rank_gets_the_first_gpu_and_a_host_of_its_own(tmp_path: Path, version: str) -> None:
    if not environments.is_ready(f"sglang-{version}"):
        pytest.skip("no environment (python -m tests.engines.environments)")
    [source] = environments.cache().glob(f"packages-*/sglang=={version}/sglang/srt")
    for name in FILES:
        (tmp_path / "sglang" / "srt" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, tmp_path / "sglang" / "srt" / name)
    command = [sys.executable, str(SCRIPTS / "one_card.py"), str(tmp_path)]
    subprocess.run(command, check=True)
    engine, _, llama = ((tmp_path / "sglang" / "srt" / name).read_text() for name in FILES)
    for name in FILES:
        compile((tmp_path / "sglang" / "srt" / name).read_text(), name, "exec")
    assert "gpu_id_step" in (source / FILES[0]).read_text()
    assert "gpu_id_step" not in engine
    assert engine.count('["NCCL_HOSTID"] = f"stage {pp_rank} rank {tp_rank}"') == 1
    assert llama.endswith("mischief.in_captures(LlamaMLP)\n")
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "is not as expected" in again.stderr
