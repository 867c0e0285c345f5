"""ProcessExecutor: runs a CPU-bound handler in other processes while that pays off, else where records are read.

A plain loop over the handler is the benchmark: quick records are not handed over at all, slow ones in chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tsdb.cpu import core_count
from tsdb.parallel_consumer.executors.process_pool import Chunk, ProcessPool
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion

MEASURED_EVERY_S = 0.25  # Interval between timings of an inline call: reading the clock costs 0.5 us.
SAMPLE_S = 0.002  # A measurement counts after this much time or this many records: clocks tick, and records differ.
SAMPLE_RECORDS = 64

# A record of 100 us gains nothing from two cores, one of 1 ms a fifth and more (bench/consumer/pc_overhead.py): a
# hand-over costs some 20 us in each process, and threads that talk to processes compete with ours.
WORTH_FROM_S = 200e-6
NOT_WORTH_FROM_S = 100e-6  # Hysteresis, so that a handler between the two bounds does not switch back and forth.
WEIGHT = 0.2
CHUNK_S = 0.005  # Long enough to pay for the hand-over, short enough to share a poll among the processes.
CHUNK_RECORDS_MAX = 256
PROOF_S = 0.5  # Time between checks of the speed-up.
GAIN_MIN = 1.15
STAY_S = 10.0  # Time without hand-over after too small a speed-up; it doubles each time.
STAY_S_MAX = 600.0


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


class Pace:
    """Measures how long a handler computes, and decides whether other processes should run it.

    A high cost of the handler suggests a hand-over; the finished work of the processes proves its use. While records
    are handed over, handler seconds divided by elapsed seconds is the speed-up over a single loop. Hot keys, a slow
    source, or cores used by others reduce it: then records stay in this process for a while.

    `mean_s`: recent mean seconds of a record. processes: number of processes; a single one gains nothing.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._handler_s = 0.0
        self._proof_from = 0.0
        self._proven = False
        self._stay_until = 0.0
        self._stay_s = STAY_S
        self.mean_s: float | None = None
        self.hands_over = False

    def took(self, seconds: float, records: int) -> None:
        """`records` took `seconds` of processor time, in any process."""
        each_s = seconds / records
        self.mean_s = each_s if self.mean_s is None else self.mean_s + WEIGHT * (each_s - self.mean_s)
        self._handler_s += seconds

    def decide(self, now: float) -> bool:
        """Whether to hand over from `now` on, in monotonic seconds."""
        if self.mean_s is None or self._processes < 2:
            return False
        worth_from_s = NOT_WORTH_FROM_S if self.hands_over else WORTH_FROM_S
        wanted = self.mean_s >= worth_from_s and now >= self._stay_until
        if wanted and not self.hands_over:
            self._handler_s, self._proof_from, self._proven = 0.0, now, False
        elif wanted and not self._handler_s:
            self._proof_from = now  # The processes are still starting.
        elif wanted and now - self._proof_from >= PROOF_S:
            wanted = self._prove(now - self._proof_from, now)
        self.hands_over = wanted
        return wanted

    def chunk_records(self, waiting: int) -> int:
        """How many waiting records go to one process at a time."""
        fair = -(-waiting // self._processes)
        worth = int(CHUNK_S / self.mean_s) if self.mean_s else CHUNK_RECORDS_MAX
        return max(1, min(fair, worth, CHUNK_RECORDS_MAX))

    def _prove(self, seconds: float, now: float) -> bool:
        gain = self._handler_s / seconds
        self._handler_s, self._proof_from = 0.0, now
        first, self._proven = not self._proven, True
        if first or gain >= GAIN_MIN:
            # During the first interval some processes are still starting.
            self._stay_s = self._stay_s if first else STAY_S
            return True
        self._stay_until = now + self._stay_s
        self._stay_s = min(self._stay_s * 2, STAY_S_MAX)
        return False
