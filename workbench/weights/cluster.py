"""The scan on a dask cluster: the same scanner, one thread a task, each worker with the files open itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.dequantize import LogicalWeights
from workbench.errors import WorkbenchError, shown
from workbench.weights.records import Judgement, Measure

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint

Pair = tuple[Measure, Judgement]


def scan_on(
    client: Any,
    opened: Checkpoint,
    weights: LogicalWeights,
    chosen: Sequence[int],
    sample: float | None,
    device: str,
    share: int,
) -> Iterator[tuple[int, Pair]]:
    """Yield position, measure and judgement as the workers finish.

    Raises
    ------
    WorkbenchError
        A worker cannot open the checkpoint, or sees another one.
    """
    import distributed

    from workbench.weights.opened import absolute

    if not isinstance(client, distributed.Client):
        raise WorkbenchError(
            f"client={shown(client)} is not a dask client",
            next_step='Give client=distributed.Client("tcp://scheduler:8786"), or none to scan here.',
        )
    workers = _workers(client)

    source, stamp = absolute(opened.source)
    futures = [
        client.submit(
            scan_share, source, stamp, len(weights), part, sample, device, pure=False, retries=1
        )
        for part in _shares(weights, chosen, share, workers)
    ]
    try:
        for _, answer in distributed.as_completed(futures, with_results=True):  # type: ignore[no-untyped-call]
            if isinstance(answer, tuple):
                what, why, step = answer
                raise WorkbenchError(what, why=why, next_step=step)
            yield from answer
    finally:
        client.cancel(futures)  # type: ignore[no-untyped-call]


def _workers(client: Any) -> int:
    """Return how many workers there are; without any the scan would wait for ever."""
    try:
        # All of them: without n_workers, newer releases list five.
        found = len(client.scheduler_info(n_workers=-1)["workers"])
    except TypeError:
        found = len(client.scheduler_info()["workers"])
    except (OSError, RuntimeError, ValueError) as error:
        raise WorkbenchError(
            "the cluster does not answer",
            why=str(error) or type(error).__name__,
            next_step="Check that its scheduler still runs, or scan without client.",
        ) from None
    if not found or client.status != "running":
        raise WorkbenchError(
            "the cluster has no workers"
            if not found
            else f"the cluster's client is {client.status}",
            next_step="Start workers (dask worker tcp://scheduler:8786), or scan without client.",
        )
    return found


def _shares(
    weights: LogicalWeights, chosen: Sequence[int], share: int, workers: int
) -> Iterator[list[int]]:
    """Yield parts of about so many bytes, in the order of the files; at least four for each worker."""
    sizes = [(at, weights[at].nbytes) for at in chosen]
    share = min(share, sum(size for _, size in sizes) // (4 * max(workers, 1)) + 1)
    part: list[int] = []
    held = 0
    for at, size in sizes:
        part.append(at)
        held += size
        if held >= share:
            yield part
            part, held = [], 0
    if part:
        yield part


def scan_share(
    source: str, stamp: str, count: int, part: list[int], sample: float | None, device: str
) -> list[tuple[int, Pair]] | tuple[str, str, str]:
    """Measure and judge some weights in one thread of a worker.

    What cannot be opened comes back as the three texts of its error.
    """
    from workbench.weights.opened import opened_by_worker
    from workbench.weights.pool import Scanner

    try:
        weights, config = opened_by_worker(source, stamp)
        if len(weights) != count:
            raise WorkbenchError(
                f"a worker of the cluster has another checkpoint at {source}",
                why=f"it has {len(weights):,} weights, not {count:,}",
                next_step="Put the checkpoint on storage that all workers share.",
            )
        scanner = Scanner(weights, sample, device, config)
        return [(at, scanner.whole(at)) for at in part]
    except WorkbenchError as error:
        step = f"{error.next_step} All workers must see the path."
        return f"a worker of the cluster: {error.what}", error.why, step
