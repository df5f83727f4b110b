"""What scanning weights does with arguments, values and files that nobody should give it."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import workbench
from tests.weights.test_scan import layers
from workbench.errors import WorkbenchError
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights


def scan_of(tmp_path: Path, **tensors: torch.Tensor) -> WeightScan:
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, tmp_path / "a.safetensors"
    )
    return scan_weights(tmp_path / "a.safetensors")


# Arguments.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"names": 5}, "names=5 is neither"),
        ({"names": b"ab"}, "names=b'ab' is neither"),
        ({"names": []}, "names is empty"),
        ({"device": None}, "device=None is not text"),
        ({"client": 5}, "client=5 is not a dask client"),
        ({"client": "tcp://127.0.0.1:1"}, "is not a dask client"),
        ({"sample": True}, "sample=True is neither"),
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=re.escape(text)) as caught:
        scan_weights(layers(tmp_path, 1), **arguments)
    assert caught.value.next_step


@pytest.mark.parametrize("address", ["http://[", "http://a:99999", "https://:80"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(WorkbenchError, match="not the address of a server"):
        scan_weights(address)


def test_a_number_of_numpy_is_a_number(tmp_path: Path) -> None:
    folder = layers(tmp_path, 1)
    count: Any = np.int64(64)
    assert scan_weights(folder, sample=count) == scan_weights(folder, sample=64)


@pytest.mark.parametrize("exponent", [300, 150, 100, 40, -100, -300])
def test_values_that_float64_cannot_square(exponent: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = torch.randn(64, 700, dtype=torch.float64) * 10.0**exponent
    one = torch.randn(64, 700, dtype=torch.float64) * 0.02
    one[3, 4] = 10.0 ** abs(exponent)
    scan = scan_of(tmp_path, values=values, vector=values[0] * 1, one=one)
    assert {tensor.verdict for tensor in scan.tensors} == {"invalid"}
    assert WeightScan.from_dict(scan.to_dict()) == scan


def test_bits_that_are_no_numbers_make_no_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31 - 1, (128, 128)).to(torch.int32)
    assert scan_of(tmp_path, a=bits.view(torch.float32)).tensors[0].verdict == "invalid"
    assert not [str(one.message) for one in recwarn]


# What is written.


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    scan = scan_weights(layers(tmp_path, 1))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for write in (scan.save, scan.to_html):
        with pytest.raises(WorkbenchError, match="device or a pipe"):
            write(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_one(tmp_path: Path) -> None:
    scan = scan_weights(layers(tmp_path / "ckpt", 1))
    scan.save(tmp_path / "real.json")
    before = (tmp_path / "real.json").stat().st_ino
    (tmp_path / "link.json").symlink_to("real.json")
    scan.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").stat().st_ino != before
    assert (tmp_path / "real.json").read_text() == (tmp_path / "link.json").read_text() != ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ok", "true"), ("ok", 1.5), ("kind", []), ("kind", "x"), ("tensors.verdict", "fine"),
        ("tensors.family", 3), ("tensors.reason", None), ("tensors.dtype", 7), ("tensors.digest", []),
        ("tensors.bins", [[1, 2], [1, 2, 3]]),
    ],
)  # fmt: skip
def test_saved_results_with_fields_of_another_kind(field: str, value: Any, tmp_path: Path) -> None:
    scan_weights(layers(tmp_path, 1)).save(tmp_path / "scan.json")
    data = json.loads((tmp_path / "scan.json").read_text())
    where, _, name = field.rpartition(".")
    (data[where][0] if where else data)[name] = value
    (tmp_path / "scan.json").write_text(json.dumps(data))
    with pytest.raises(WorkbenchError, match="a field of it is wrong"):
        workbench.load(tmp_path / "scan.json")
