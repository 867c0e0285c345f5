"""A writer for chunk stages: live samples, late ones, duplicates and out-of-order ones, straight into the log."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Self

import numpy as np

from support.data.heads import announcement, id_of
from support.oracles.chunk_twin import pack_of
from support.servers.logs import WITHIN_S
from tsdb.codec.records.log_record import encode_record
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.window import index_epoch

SERIES_COUNT = 9  # Each partition has separate ones, as placement gives them.
EVERY_S = 0.004


def announce_all(log: Log, partition: int, now_ms: int) -> None:
    """Announce all series of the writer in a partition."""
    for number in series_of(partition):
        key, value = announcement(number, index_epoch(id_of(number), now_ms))
        log.append_sync(SERIES, partition, value, key=key, timestamp_ms=now_ms)


def series_of(partition: int) -> range:
    """Numbers of the series in a partition."""
    return range(partition * SERIES_COUNT, (partition + 1) * SERIES_COUNT)


def some_record(rng: random.Random, partition: int, now_ms: int, window_ms: int) -> bytes:
    """A few samples of one pack: most are current, some late by up to four windows, some duplicates."""
    pack = rng.choice(series_of(partition))
    same = [number for number in series_of(partition) if pack_of(number) == pack_of(pack)]
    times = drawn_times(rng, now_ms, window_ms)
    samples = [(number, ts) for ts in times for number in same]
    return encode_record(
        np.array([pack_of(pack)], np.uint64),
        np.array([len(samples)], np.uint32),
        np.array([id_of(number) for number, _ in samples], np.uint64),
        np.array([ts for _, ts in samples], np.int64),
        np.array([drawn_value(rng) for _ in samples], np.float64),
    )


def drawn_times(rng: random.Random, now_ms: int, window_ms: int) -> list[int]:
    """One to three times: the present time, sometimes a time late by up to four windows, sometimes the last
    time again.
    """
    times = [now_ms - rng.randrange(500)]
    if rng.random() < 0.3:
        times.append(now_ms - rng.randrange(4 * window_ms))
    if rng.random() < 0.1:
        times.append(times[-1])
    return times


def drawn_value(rng: random.Random) -> float:
    """Draw a value: one of few, or of many digits."""
    return rng.choice([1.0, -0.0, rng.random(), round(rng.random(), 2)])


class LateWriter:
    """A thread that appends until the block ends; each partition gets separate records.

    As a gateway does, it announces its series once a window. every_s: pause between two records of a partition.
    """

    def __init__(
        self, log: Log, partitions: int, clock: Clock, window_ms: int, seed: int, *, every_s: float = EVERY_S
    ) -> None:
        self._log = log
        self._partitions = partitions
        self._clock = clock
        self._window_ms = window_ms
        self._rng = random.Random(seed)
        self._every_s = every_s
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="late-writer")

    def __enter__(self) -> Self:
        for partition in range(self._partitions):
            announce_all(self._log, partition, self._clock.now_ms())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(WITHIN_S)
        self._log.flush(WITHIN_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        announced_ms = self._clock.now_ms()
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                now_ms = self._clock.now_ms()
                # Each record's time is compared: this thread may have waited for windows since the last one.
                if now_ms > announced_ms + self._window_ms // 2:
                    if not self._announced(now_ms):
                        continue
                    announced_ms = now_ms
                try:
                    self._log.append(
                        METRICS,
                        partition,
                        some_record(self._rng, partition, now_ms, self._window_ms),
                        timestamp_ms=now_ms,
                        on_done=self._answered,
                    )
                except TsdbError as error:
                    self._answered(error)
            time.sleep(self._every_s)

    def _announced(self, now_ms: int) -> bool:
        """Announce all series again; False while the log does not answer."""
        try:
            for partition in range(self._partitions):
                announce_all(self._log, partition, now_ms)
        except Unavailable:
            return False
        return True

    def _answered(self, answer: object) -> None:
        if isinstance(answer, TsdbError) and not isinstance(answer, Unavailable):
            self._error = answer
