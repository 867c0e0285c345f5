"""A recorded log: the same records at the same offsets in as many logs as wanted, with everything that senders do.

Live samples, late ones, duplicates, out-of-order ones, histograms and start timestamps among them, broker times that
step back, a corrupt record, a series that was never announced, an empty stretch of several windows. Its last record
ends every minute and window before it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from support.data.heads import announcement, details_of, id_of
from support.data.late_writer import drawn_times, drawn_value, series_of
from support.oracles.chunk_twin import pack_of
from support.servers.logs import WITHIN_S
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.log.interface import METRICS, SERIES, Appended, Log
from tsdb.model.time_set import DEMO, TimeSet
from tsdb.model.window import ceil_to, index_epoch

BASE_MS = 1_700_000_010_000
EVERY_MS = 40
UNKNOWN_SERIES = 12_345
DETAILED_EVERY = 16  # Of 16 records one has details. Samples are the same without them.


@dataclass(frozen=True, slots=True)
class RecordedLog:
    """windows: number with samples. empty_windows: number without, after half of the others. closed: the last record is
    a tick that closes all windows."""

    partitions: int
    windows: int
    empty_windows: int = 0
    seed: int = 1
    times: TimeSet = DEMO
    closed: bool = True

    @property
    def end_ms(self) -> int:
        """Broker time of the last record, when all is due."""
        times = self.times
        after_ms = BASE_MS + (self.windows + self.empty_windows + 1) * times.window_ms
        return ceil_to(after_ms, times.window_ms) + times.grace_ms + times.spread_ms + times.late_minute_ms

    @property
    def last_ms(self) -> int:
        """Broker time of the last record with samples, or a little less."""
        return max(self._moments())

    def until_ms(self, *, part: int, of: int) -> int:
        """A time after the records of a part and before those of the next part. A tick of this time precedes all later
        records.
        """
        if part == of - 1:
            return self.end_ms
        moments = list(self._moments())
        return moments[(part + 1) * len(moments) // of - 1]

    @property
    def records(self) -> int:
        """Number of records in each partition."""
        return sum(1 for _ in self._moments()) + self.closed

    def write(self, log: Log, *, part: int = 0, of: int = 1) -> None:
        """Append all records, or part `part` of `of` equal parts; all parts in order are the whole. Topics must be
        CreateTime ones."""
        for partition in range(self.partitions):
            self._write(log, partition, part, of)
        log.flush(WITHIN_S)

    def _write(self, log: Log, partition: int, part: int, of: int) -> None:
        rng = random.Random(f"{self.seed}.{partition}")
        moments = list(self._moments())
        ours = range(part * len(moments) // of, (part + 1) * len(moments) // of)
        failed: list[object] = []
        announced_ms = 0
        for number, now_ms in enumerate(moments[: ours.stop]):
            announces = now_ms >= announced_ms + self.times.window_ms // 2
            announced_ms = now_ms if announces else announced_ms
            stepped_ms = now_ms - rng.randrange(200) if rng.random() < 0.1 else now_ms
            record = self._record(rng, partition, number, now_ms)
            if number not in ours:
                continue
            if announces:
                _announce(log, partition, now_ms)
            log.append(
                METRICS,
                partition,
                record,
                timestamp_ms=stepped_ms,
                on_done=lambda answer: None if isinstance(answer, Appended) else failed.append(answer),
            )
        if self.closed and part == of - 1:
            log.append_sync(METRICS, partition, encode_tick(), timestamp_ms=self.end_ms)
        log.flush(WITHIN_S)
        assert not failed, failed[0]

    def _moments(self) -> Iterator[int]:
        window_ms = self.times.window_ms
        half_ms = BASE_MS + self.windows * window_ms // 2
        yield from range(BASE_MS, half_ms, EVERY_MS)
        after_ms = half_ms + self.empty_windows * window_ms
        yield from range(after_ms, after_ms + self.windows * window_ms // 2, EVERY_MS)

    def _record(self, rng: random.Random, partition: int, number: int, now_ms: int) -> bytes:
        if number == 100:
            return b"\x00broken"
        if number == 200:
            pack, length = np.array([77], np.uint64), np.array([1], np.uint32)
            return encode_record(pack, length, np.array([UNKNOWN_SERIES], np.uint64), np.array([now_ms]), np.ones(1))
        kinds = range(number % 11, number % 11 + 12) if number % DETAILED_EVERY == 0 else ()
        return _some_record(rng, rng.choice(series_of(partition)), now_ms, self.times.window_ms, kinds)


def _announce(log: Log, partition: int, now_ms: int) -> None:
    for number in series_of(partition):
        key, value = announcement(number, index_epoch(id_of(number), now_ms))
        log.append(SERIES, partition, value, key=key, timestamp_ms=now_ms, on_done=lambda _: None)


def _some_record(rng: random.Random, number: int, now_ms: int, window_ms: int, kinds: Sequence[int]) -> bytes:
    """A sample or a few of one series: most of now, some late by up to four windows, some twice. kinds: numbers of the
    details of the first ones."""
    times = drawn_times(rng, now_ms, window_ms)
    count = len(times)
    values = np.array([drawn_value(rng) for _ in times], np.float64)
    numbers = [*kinds[:count], *[0] * (count - len(kinds))]
    return encode_record(
        np.array([pack_of(number)], np.uint64),
        np.array([count], np.uint32),
        np.full(count, id_of(number), np.uint64),
        np.array(times, np.int64),
        values,
        details_of(numbers, values) if kinds else None,
    )
