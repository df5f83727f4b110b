"""What tests of a server's weights share."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import save_file

from .served_weights import weights


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    save_file(weights(), folder / "model.safetensors")
    return folder
