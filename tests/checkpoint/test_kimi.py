"""The synthetic Kimi-K2.5-like checkpoint of the benchmarks, small and in full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from benchmarks.kimi_like import SMALL, Shape, tensors, write
from workbench.checkpoint import safetensors as reader
from workbench.checkpoint.open import open_checkpoint
from workbench.checkpoint.quantized import PACK


def test_small(tmp_path: Path) -> None:
    count = write(tmp_path, SMALL, shards=5)
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint) == count == len(list(tensors(SMALL)))
    assert checkpoint.warnings == ()
    assert checkpoint.config.layout == "multimodal"
    assert checkpoint.config.architectures == ("KimiK25ForConditionalGeneration",)
    found = checkpoint.quantization
    assert found.format == PACK
    assert found.agrees is True
    assert found.count == 3 * SMALL.experts * (SMALL.layers - SMALL.first_k_dense)
    theirs = {}
    for file in checkpoint.files:
        with safe_open(file, "np") as opened:
            for name in opened.keys():  # noqa: SIM118 - no mapping
                part = opened.get_slice(name)
                theirs[name] = (part.get_dtype(), tuple(part.get_shape()), Path(file).name)
    assert theirs == {t.name: (t.dtype, t.shape, t.shard) for t in checkpoint.table}


def test_one_tensor_left_out(tmp_path: Path) -> None:
    gone = "language_model.model.layers.2.mlp.experts.3.up_proj.weight_scale"
    write(tmp_path, SMALL, shards=2, leave_out=frozenset({gone}))
    checkpoint = open_checkpoint(tmp_path)
    assert gone not in checkpoint
    groups = [group for group in checkpoint.quantization.groups if group.incomplete]
    assert [group.incomplete for group in groups] == [((gone.removesuffix("_scale"), "scale"),)]


def test_the_usual_headers_are_read_by_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast reader takes what real writers write, or the benchmark would say little."""
    import torch
    from safetensors.torch import save_file

    write(tmp_path / "kimi", SMALL, shards=2)
    (tmp_path / "real").mkdir()
    values = {f"layers.{i}.w": torch.zeros(i, 2) for i in range(12)}
    save_file(values, tmp_path / "real" / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(reader, "_read_typed", None)
    assert len(open_checkpoint(tmp_path / "real")) == 12
    assert open_checkpoint(tmp_path / "kimi").names


MEASURE = """
import sys
from benchmarks.headers import peak_of_this_process
from workbench.checkpoint.open import open_checkpoint
checkpoint = open_checkpoint(sys.argv[1])
print(len(checkpoint), peak_of_this_process(), "torch" in sys.modules)
"""


def test_in_full(root: Path, tmp_path: Path) -> None:
    """208,550 tensors in 64 sparse shards: every header is read, in less than 500 MB and without torch."""
    count = write(tmp_path)
    assert count == len(list(tensors(Shape()))) == 208_550
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    number, peak, torch = run.stdout.split()
    assert int(number) == count
    assert int(peak) < 500 << 20
    assert torch == "False"
