"""The same scan on a dask cluster of processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.weights.test_scan import TARGET, layers
from workbench.checkpoint.dequantize import logical_weights
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.weights import scan as scanning
from workbench.weights.cluster import _shares, scan_on, scan_share
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


def check_same(there: WeightScan, here: WeightScan) -> None:
    """Compare all but the last digits of spectra, which depend on how many threads a product took."""
    assert (there.ok, there.summary, there.notes) == (here.ok, here.summary, here.notes)
    assert (there.bytes_read, there.sampled) == (here.bytes_read, here.sampled)
    assert len(there.tensors) == len(here.tensors)
    for one, other in zip(there.tensors, here.tensors, strict=True):
        for field in ("name", "verdict", "digest", "quantiles", "std", "row_dispersion", "ks"):
            assert getattr(one, field) == getattr(other, field)
        assert dict(one.statistics) == pytest.approx(dict(other.statistics), rel=1e-3, abs=1e-3)


def test_workers_find_what_threads_find(client: Any) -> None:
    check_same(scan_weights(TARGET, client=client), scan_weights(TARGET))
    pids = client.run(lambda: __import__("os").getpid())
    assert len(set(pids.values())) == 2


def test_both_workers_take_part(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layers(tmp_path, 8)
    monkeypatch.setattr(scanning, "_SHARE", 1 << 16)
    scan = scan_weights(folder, client=client)
    check_same(scan, scan_weights(folder))
    opened = client.run(_cache_size)
    assert all(size >= 1 for size in opened.values()), opened


def _cache_size() -> int:
    from workbench.weights.opened import opened_by_worker

    return opened_by_worker.cache_info().currsize


def test_options_reach_the_workers(client: Any, tmp_path: Path) -> None:
    folder = layers(tmp_path, side=256)
    options: Any = {"names": "*.up_proj.*", "sample": 100}
    check_same(scan_weights(folder, client=client, **options), scan_weights(folder, **options))


def test_a_changed_checkpoint_is_opened_anew(client: Any, tmp_path: Path) -> None:
    scan_weights(layers(tmp_path, 3), client=client)
    assert len(scan_weights(layers(tmp_path, 4), client=client).tensors) == 8


def test_a_path_that_workers_do_not_see_is_said(client: Any, tmp_path: Path) -> None:
    opened = open_checkpoint(layers(tmp_path / "gone"))
    weights = logical_weights(opened)
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(WorkbenchError, match="changed since the checkpoint was opened"):
        scan_weights(opened, client=client)  # seen here, before the workers are asked
    with pytest.raises(WorkbenchError, match="a worker of the cluster: ") as caught:
        list(scan_on(client, opened, weights, range(len(weights)), None, "cpu", 1 << 20))
    assert "All workers must see the path" in caught.value.next_step


def test_a_worker_that_sees_another_checkpoint_is_said(tmp_path: Path) -> None:
    answer = scan_share(str(layers(tmp_path, 2)), "", 99, [0], None, "cpu")
    assert isinstance(answer, tuple)
    assert "another checkpoint" in answer[0]


def test_shares_are_about_equal() -> None:
    class Weight:
        nbytes = 10

    weights: Any = [Weight()] * 100
    shares = list(_shares(weights, range(100), 1 << 31, 2))
    assert [at for share in shares for at in share] == list(range(100))
    assert len(shares) == 8
    assert len(list(_shares(weights, range(100), 100, 2))) == 10
