"""ProcessExecutor: runs a CPU-bound handler in other processes while that pays off, else where records are read.

A plain loop over the handler is the benchmark: quick records are not handed over at all, slow ones in chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tsdb.cpu import core_count
from tsdb.parallel_consumer.executors.pace import Pace
from tsdb.parallel_consumer.executors.process_pool import Chunk, ProcessPool
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion

MEASURED_EVERY_S = 0.25  # Interval between timings of an inline call: reading the clock costs 0.5 us.
SAMPLE_S = 0.002  # A measurement counts after this much time or this many records: clocks tick, and records differ.
SAMPLE_RECORDS = 64


class ProcessExecutor:
    """handler: importable by its name, as a module-level function is. processes: number of processes; by default one
    for each core.

    Options.concurrency should be some hundreds: that many records are in flight at once. pace: decides when a hand-over
    pays off.
    """

    def __init__(
        self,
        handler: Callable[[Record], object],
        processes: int | None = None,
        *,
        name: str = "handler-process",
        pace: Pace | None = None,
    ) -> None:
        count = processes or core_count()
        self._handler = handler
        self._pace = pace or Pace(count)
        self._pool = ProcessPool(handler, count, self._pace.took, name)
        # Records to hand over. A record handled inline stays in order with them, because a lane runs one at a time.
        self._waiting: Chunk = []
        self._measure_at = 0.0
        self._sample_s = 0.0
        self._sample_records = 0

    @property
    def hands_over(self) -> bool:
        """Whether records go to other processes at present."""
        return self._pace.hands_over

    def start(self) -> None:
        self._pool.start()

    def inline_handler(self) -> Callable[[Record], object] | None:
        now = time.monotonic()
        if self._pace.decide(now):
            return None
        if self._pace.mean_s is not None and now < self._measure_at:
            return self._handler
        self._measure_at = now + MEASURED_EVERY_S
        return self._timed

    def submit(self, record: Record, done: Completion) -> None:
        if self._pace.hands_over:
            if done.attempt > 1:
                self._pool.put([(record, done)])
            else:
                self._waiting.append((record, done))
            return
        try:
            self._timed(record)
        except Exception as error:
            done(error)
        else:
            done(None)

    def flush(self, now: float) -> None:
        self._pace.decide(now)
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        size = self._pace.chunk_records(len(waiting))
        for start in range(0, len(waiting), size):
            self._pool.put(waiting[start : start + size])

    def due_in_s(self, now: float) -> float | None:
        return None

    def close(self) -> None:
        self._pool.close()

    def failure(self) -> BaseException | None:
        return self._pool.failure

    def _timed(self, record: Record) -> None:
        # Processor time, because the time spent waiting for other threads is not the handler's.
        began = time.thread_time()
        try:
            self._handler(record)
        finally:
            self._sample_s += time.thread_time() - began
            self._sample_records += 1
            if self._sample_s >= SAMPLE_S or self._sample_records >= SAMPLE_RECORDS:
                self._pace.took(self._sample_s, self._sample_records)
                self._sample_s, self._sample_records = 0.0, 0
