"""Measuring: the sources of an agent, each on a separate thread, so that a slow or hanging source delays no other.

The threads are daemons: a source that never returns cannot prevent the end of the process.

In the agent's loop all sources measure once an interval, and their samples go to the sender.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from tsdb.cli.agent.sample import Measured, SampleSource
from tsdb.client import WriteBatch
from tsdb.model.clock import Clock
from tsdb.model.details import SampleDetails, value_columns
from tsdb.ops.threads import new_thread

CLOSE_WAIT_S = 0.2  # Time for idle threads to end. Threads of hanging sources are abandoned.

GATHER_S_MAX = 0.5  # Longest time that a round waits for all its sources; at most half the interval.
LATE_S = 0.25  # Interval of the check for samples of slower sources.


class Measuring:
    """Runs the sources. A context manager for one thread."""

    def __init__(self, sources: Sequence[SampleSource]) -> None:
        # Guards the fields of the workers; an innermost lock.
        self._changed = threading.Condition()
        self._workers = [_Worker(source, self._changed) for source in sources]

    def begin_round(self, now_ms: int) -> list[Measured]:
        """Begin a round. Returns the `missed` samples of sources that are still busy with an earlier round."""
        with self._changed:
            busy = [worker for worker in self._workers if worker.round_ms is not None]
            for worker in self._workers:
                if worker.round_ms is None:
                    worker.round_ms = now_ms
            self._changed.notify_all()
        return [sample for worker in busy for sample in worker.source.missed(now_ms)]

    @property
    def busy(self) -> bool:
        """Whether a source is still measuring."""
        with self._changed:
            return any(worker.round_ms is not None for worker in self._workers)

    def take(self, timeout_s: float) -> list[Measured]:
        """Wait until every source is done, at most timeout_s. Returns the samples measured since the last call.

        Raises the exception of a failed source.
        """
        with self._changed:
            self._changed.wait_for(lambda: all(worker.round_ms is None for worker in self._workers), timeout_s)
            taken: list[Measured] = []
            for worker in self._workers:
                if worker.failure is not None:
                    raise worker.failure
                taken += worker.found
                worker.found = []
        return taken

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            for worker in self._workers:
                worker.closing = True
            self._changed.notify_all()
        give_up_at = time.monotonic() + CLOSE_WAIT_S
        for worker in self._workers:
            worker.thread.join(max(0.0, give_up_at - time.monotonic()))


class _Worker:
    """One source and its thread. round_ms: time of the source's current round; None while it is idle."""

    def __init__(self, source: SampleSource, changed: threading.Condition) -> None:
        self.source = source
        self.round_ms: int | None = None
        self.found: list[Measured] = []
        self.failure: BaseException | None = None
        self.closing = False
        self._changed = changed
        self.thread = new_thread(self._run, "agent-source")

    def _run(self) -> None:
        while (now_ms := self._next()) is not None:
            found: list[Measured] = []
            failure: BaseException | None = None
            try:
                found = self.source.measure(now_ms)
            except BaseException as error:
                failure = error
            with self._changed:
                self.found += found
                self.failure = failure
                self.round_ms = None
                self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self.closing or self.round_ms is not None)
            return None if self.closing else self.round_ms


class Taker(Protocol):
    """The destination of batches."""

    def put(self, batch: WriteBatch) -> None:
        """Take one batch without waiting."""


def run(
    sources: Sequence[SampleSource],
    taker: Taker,
    clock: Clock,
    *,
    interval_ms: int,
    duration_ms: int | None = None,
    gather_s: float = GATHER_S_MAX,
    last_wait_s: float = 1.0,
) -> int:
    """Measure until duration_ms is over (None: until interrupted). Returns the number of rounds.

    Rounds start on a fixed grid from the first one, so that their spacing does not drift. Samples of a slow source go
    into a later batch. The source misses rounds that begin while it is busy, and delays no other source. gather_s:
    longest wait of a round for its sources. last_wait_s: the wait after the last round.
    """
    began = clock.monotonic()
    rounds = at = 0
    with Measuring(sources) as measuring:
        while True:
            missed = measuring.begin_round(clock.now_ms())
            _put(taker, missed + measuring.take(min(gather_s, interval_ms / 2000)))
            rounds += 1
            elapsed_ms = (clock.monotonic() - began) * 1000
            at = max(at + 1, int(elapsed_ms // interval_ms) + 1)
            if duration_ms is not None and at * interval_ms >= duration_ms:
                _put(taker, measuring.take(last_wait_s))
                return rounds
            _rest(measuring, taker, clock, began + at * interval_ms / 1000)


def _rest(measuring: Measuring, taker: Taker, clock: Clock, until: float) -> None:
    """Wait for the next round, and pass on samples of slow sources meanwhile. until: a time on the monotonic clock."""
    for _ in range(int((until - clock.monotonic()) / LATE_S)):
        if not measuring.busy:
            break
        _put(taker, measuring.take(LATE_S))
    clock.sleep(max(0.0, until - clock.monotonic()))


def _put(taker: Taker, samples: Sequence[Measured]) -> None:
    if samples:
        taker.put(batch_of(samples))


def batch_of(samples: Sequence[Measured]) -> WriteBatch:
    """A batch with one entry for each sample."""
    batch = WriteBatch()
    batch.add_columns(
        [sample.canonical for sample in samples],
        np.ones(len(samples), np.uint32),
        np.array([sample.ts_ms for sample in samples], np.int64),
        np.array([sample.value for sample in samples], np.float64),
        [(index, exemplar) for index, sample in enumerate(samples) for exemplar in sample.exemplars],
        details=details_of(samples),
    )
    return batch


def details_of(samples: Sequence[Measured]) -> SampleDetails | None:
    """Start timestamps and histograms of the samples, None where they have none."""
    start_ms = np.array([sample.start_ms for sample in samples], np.int64)
    _, details = value_columns([sample.value if sample.histogram is None else sample.histogram for sample in samples])
    if not start_ms.any():
        return details
    return SampleDetails(start_ms) if details is None else replace(details, start_ms=start_ms)
