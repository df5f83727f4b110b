"""With a dask client, every host of the cluster is looked at once, and the cases are merged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.hang.live.conftest import Job
from workbench.errors import WorkbenchError
from workbench.hang.attach import attach
from workbench.hang.collect import cluster

if TYPE_CHECKING:
    from distributed import Client

pytest.importorskip("distributed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root for another's process")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A cluster of two worker processes on this host."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as local,
        Client(local) as client,
    ):
        yield client


def see_only(root: int) -> None:
    """Let this worker see one server: others may run on this machine."""
    from workbench.hang.collect.collector import proc, servers

    def find_servers(processes: dict[int, proc.Stat]) -> list[servers.Server]:
        return [servers.Server((root,))] if root in processes else []

    servers.find_servers = find_servers


@needs_root
def test_a_host_of_several_workers_is_looked_at_once(client: Client, job: Job) -> None:
    client.run(see_only, job("sleep", 4, 2))
    found = attach(client=client, interval=1.5)
    assert (found.state, found.odd_ranks) == ("hung", (2,))
    assert len(found.ranks) == 4
    assert found.source == "1 hosts of a dask cluster"


@needs_root
def test_cases_of_several_hosts_are_merged(
    client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both workers are taken for hosts of their own: the same processes are then collected twice, and
    # must be told to be the same by pseudonym, pid and start time.
    client.run(see_only, job("sleep", 4, 2))
    monkeypatch.setattr(cluster, "_where", os.getpid)
    found = attach(client=client, interval=1.5)
    assert found.source == "2 hosts of a dask cluster"
    # On a loaded machine the looks may be too far apart to prove a standstill; another rank is never named.
    assert (found.state, found.odd_ranks) in (("hung", (2,)), ("cannot_tell", ()))
    assert len(found.ranks) == 4


def test_hosts_without_a_server_end_in_a_message(client: Client) -> None:
    client.run(see_only, -1)
    with pytest.raises(WorkbenchError, match="nothing was collected on 1 hosts") as error:
        attach(client=client, interval=0)
    assert "there is no SGLang or vLLM server running here" in str(error.value)


def test_a_pid_means_nothing_on_several_hosts(client: Client) -> None:
    with pytest.raises(WorkbenchError, match="says nothing on several hosts"):
        attach(4711, client=client)
