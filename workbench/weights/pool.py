"""The scan on this machine: threads over tensors, and over the pieces of large ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from workbench.checkpoint.dequantize import LogicalWeight, LogicalWeights
from workbench.errors import WorkbenchError
from workbench.weights.measure import Tally, joined, kind_of, measured, take_piece, unmeasured
from workbench.weights.reading import Reading, plan_reading
from workbench.weights.records import Judgement, Measure
from workbench.weights.sequential import SKETCH, refined, templates

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config
    from workbench.weights.context import Context
    from workbench.weights.gpu import Card

Pair = tuple[Measure, Judgement]
Done = list[tuple[int, Pair]]
# Small weights go to a thread together, until they have so many values: handing one over costs as much as it.
_TOGETHER = 1 << 14


class Scanner:
    """Measures and judges the weights of one checkpoint; every method may run in any thread."""

    def __init__(
        self,
        weights: LogicalWeights,
        sample: float | None,
        device: str,
        config: Config | None,
        judging: bool = True,
    ) -> None:
        self._judging = judging
        self.sketched: frozenset[str] = frozenset()
        self._weights, self._sample, self._config = weights, sample, config
        self._card: Card | None = None
        if device != "cpu":
            from workbench.weights.gpu import Card

            self._card = Card(device)

    def plan(self, at: int) -> tuple[LogicalWeight, Reading | None]:
        """Return a weight and what to read of it; None where its values cannot be told."""
        weight = self._weights[at]
        if weight.flaw:
            return weight, None
        stack = len(weight.shape) > 2 and self._context(weight).is_stack
        return weight, plan_reading(weight, self._sample, stack)

    def piece(self, weight: LogicalWeight, reading: Reading, piece: int) -> Tally:
        """Read and tally one piece of a weight."""
        if self._card is not None and self._card.takes(weight):
            return self._card.take_piece(weight, reading, piece)
        return take_piece(weight, reading, piece)

    def judge(self, weight: LogicalWeight, reading: Reading, tallies: list[Tally]) -> Pair:
        """Return the measure of a weight and what is concluded."""
        from workbench.weights.verdict import judge

        found = measured(weight, reading, joined(tallies, reading, kind_of(weight)))
        if not self._judging:
            return found, Judgement("undecided", "not judged", stage=0)
        return found, judge(found, weight.rows, self._context(weight))

    def whole(self, at: int) -> Pair:
        """Do all of it for one weight, in this thread."""
        weight, reading = self.plan(at)
        if reading is None:
            return cannot_tell(weight, weight.flaw)
        try:
            tallies = [self.piece(weight, reading, i) for i in range(len(reading.pieces))]
            return self.judge(weight, reading, tallies)
        except WorkbenchError as error:
            return cannot_tell(weight, f"{error.what}: {error.why}")

    def _context(self, weight: LogicalWeight) -> Context:
        from workbench.weights.context import BUDGET, context_of

        beside: dict[str, tuple[int, ...]] = {}
        if weight.name.endswith("bias"):
            name = weight.name.removesuffix("bias") + "weight"
            if self._weights.has(name):
                beside[name] = self._weights[name].shape
        budget = BUDGET if self._sample is None else BUDGET // 16
        if weight.name in self.sketched:
            budget = SKETCH
        return context_of(weight.name, weight.shape, self._config, beside, budget)


def cannot_tell(weight: LogicalWeight, why: str) -> Pair:
    """Return the verdict on a weight whose values are not known."""
    return unmeasured(weight), Judgement("undecided", f"Its values cannot be read: {why}", stage=0)


def cores(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may use: a container sees all of its host's, and gets a share.

    Parameters
    ----------
    group
        Where the control group's files are: ``cpu.max`` of version 2 (quota and period, in µs), or the two
        files of version 1.
    """
    seen = len(os.sched_getaffinity(0))
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            quota, period = map(int, " ".join((group / n).read_text() for n in names).split())
            if quota > 0 and period > 0:
                return max(1, min(seen, -(-quota // period)))
    return seen


def scan_here(
    weights: LogicalWeights,
    chosen: Sequence[int],
    sample: float | None,
    device: str,
    config: Config | None,
    judging: bool = True,
) -> Iterator[tuple[int, Pair]]:
    """Yield position, measure and judgement of the weights as they are done.

    Templates of many members are judged by a sketch first (`workbench.weights.sequential`).
    """
    scanner = Scanner(weights, sample, device, config, judging)
    if sample is not None or not judging:
        yield from _scan(scanner, chosen)
        return
    full = Scanner(weights, sample, device, config)
    groups = templates(weights, chosen)
    scanner.sketched = frozenset(weights[at].name for at in groups)
    yield from refined(_scan(scanner, chosen), groups, lambda some: _scan(full, some))


def _scan(scanner: Scanner, chosen: Sequence[int]) -> Iterator[tuple[int, Pair]]:
    """Yield position, measure and judgement of the weights as they are done.

    A few pieces more than there are threads are under way at a time, so that memory stays bounded.
    """
    workers = cores()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="scan")
    queue: set[Future[Any]] = set()
    # The threads share the cores. Left alone, each would start one more BLAS thread a core: they spin while
    # they wait for each other, and cost three to twenty times the work where cores are short.
    blas = threadpool_limits(max(1, workers // max(1, len(chosen))), user_api="blas")
    try:
        for job in _jobs(scanner, chosen, pool):
            queue.add(job)
            if len(queue) >= 4 * workers:
                done, queue = wait(queue, return_when=FIRST_COMPLETED)
                yield from _finished(done)
        while queue:
            done, queue = wait(queue, return_when=FIRST_COMPLETED)
            yield from _finished(done)
    finally:
        pool.shutdown(cancel_futures=True)
        blas.restore_original_limits()


def measure_here(
    weights: LogicalWeights, chosen: Sequence[int], sample: float | None, device: str
) -> Iterator[Measure]:
    """Yield the measures alone, without a verdict: what a benchmark of the one pass needs."""
    for _, (found, _) in scan_here(weights, chosen, sample, device, None, judging=False):
        yield found


def _jobs(
    scanner: Scanner, chosen: Sequence[int], pool: ThreadPoolExecutor
) -> Iterator[Future[Done]]:
    """Yield jobs: small weights whole, large ones a piece at a time, of which the last one judges."""
    few: list[int] = []
    values = 0
    for at in chosen:
        weight, reading = scanner.plan(at)
        if reading is None or len(reading.pieces) == 1:
            few.append(at)
            values += reading.seen if reading is not None else 0
            if values >= _TOGETHER:
                yield pool.submit(_small, scanner, few)
                few, values = [], 0
        else:
            large = _Large(scanner, at, weight, reading)
            for piece in range(len(reading.pieces)):
                yield pool.submit(large.take, piece)
    if few:
        yield pool.submit(_small, scanner, few)


def _small(scanner: Scanner, some: list[int]) -> Done:
    return [(at, scanner.whole(at)) for at in some]


class _Large:
    """A weight whose pieces are taken by several threads."""

    def __init__(self, scanner: Scanner, at: int, weight: LogicalWeight, reading: Reading) -> None:
        self._scanner, self._at, self._weight, self._reading = scanner, at, weight, reading
        self._lock = Lock()
        self._left = len(reading.pieces)
        self._sum = joined([], reading, kind_of(weight))
        self._failed = ""

    def take(self, piece: int) -> Done:
        """Take a piece; the thread that takes the last one also judges."""
        tally = None
        try:
            if not self._failed:
                tally = self._scanner.piece(self._weight, self._reading, piece)
        except WorkbenchError as error:
            self._failed = f"{error.what}: {error.why}"
        with self._lock:
            if tally is not None:
                self._sum.add(tally)
            self._left -= 1
            if self._left:
                return []
        if self._failed:
            return [(self._at, cannot_tell(self._weight, self._failed))]
        try:
            return [(self._at, self._scanner.judge(self._weight, self._reading, [self._sum]))]
        except WorkbenchError as error:  # the spectrum reads again
            return [(self._at, cannot_tell(self._weight, f"{error.what}: {error.why}"))]


def _finished(done: set[Future[Done]]) -> Iterator[tuple[int, Pair]]:
    for future in done:
        yield from future.result()
