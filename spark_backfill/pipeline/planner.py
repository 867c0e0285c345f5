"""Planner: from what is done to what the next batch does, by asking the log for times and offsets.

A batch takes each partition to the first offset of its last late minute, and all windows that are closed there. Work is
cut where minutes begin, so that it spreads over tasks, and bounded, so that a long backlog is committed bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_backfill.building.connection import check_topic
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.stretches import broker_ms_at, first_at, stretches
from spark_backfill.pipeline.offsets import PartitionOffset, Span, StreamOffset
from tsdb.chunks.progress import Progress
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import last_records
from tsdb.model.window import ceil_to, floor_to


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Of one partition in one batch. stretch_records: a task scans about so many; records_max, windows_max: in all."""

    stretch_records: int = 250_000
    records_max: int = 2_000_000
    windows_max: int = 48


@dataclass(frozen=True, slots=True)
class LogEnd:
    """high: high watermark. broker_ms: of the last record below it; None where nothing is readable."""

    high: int
    broker_ms: int | None


class Planner:
    """Of all partitions of a log. One thread."""

    def __init__(self, log: Log, options: BuildOptions, limits: BatchLimits) -> None:
        self._log = log
        self._options = options
        self._times = options.times
        self._limits = limits
        self._ends: dict[int, LogEnd] = {}
        self._frozen = False

    def freeze(self) -> None:
        """Plan for what the log holds now, and never for more."""
        self._look(range(self._log.partitions(METRICS)))
        self._frozen = True

    def next(self, start: StreamOffset) -> StreamOffset:
        """The offset after the next batch; start itself when there is nothing to do.

        Raises WrongTopic (topic_recreated), LostOffsets (chunk_gap), Unavailable.
        """
        check_topic(self._log, self._options.topic_id)
        numbers = range(len(start.partitions))
        if not self._frozen:
            self._look(numbers)
        planned = tuple(self._planned(number, start.partitions[number].progress) for number in numbers)
        if not any(
            partition.bases or partition.late or moved(partition, start, n) for n, partition in enumerate(planned)
        ):
            return start
        return replace(start, partitions=planned)

    def _look(self, numbers: range) -> None:
        """Where each partition ends; the last record is read anew only where there are more."""
        highs = {number: marks.high for number, marks in self._log.watermarks(METRICS, list(numbers)).items()}
        grown = [n for n, high in highs.items() if n not in self._ends or self._ends[n].high != high]
        tails = last_records(self._log, METRICS, grown)
        for number in grown:
            tail = tails[number]
            self._ends[number] = LogEnd(highs[number], tail.broker_ms if tail else None)

    def _planned(self, number: int, done: Progress) -> PartitionOffset:
        broker_ms = self._ends[number].broker_ms
        if broker_ms is None:
            return PartitionOffset(done)
        minute_ms = floor_to(broker_ms, self._times.late_minute_ms)
        position = max(done.position, self._begin_of(number, minute_ms, done.position))
        if position - done.position > self._limits.records_max:
            minute_ms, position = self._bounded(number, done.position, minute_ms, position)
        bases, emitted_through_ms = self._bases(number, done, minute_ms)
        late = stretches(
            self._log,
            number,
            done.position,
            position,
            minute_ms,
            self._times.late_minute_ms,
            self._limits.stretch_records,
        )
        return PartitionOffset(
            replace(done, position=position, emitted_through_ms=emitted_through_ms), tuple(bases), tuple(late)
        )

    def _begin_of(self, number: int, time_ms: int, otherwise: int) -> int:
        found = first_at(self._log, number, time_ms)
        return otherwise if found is None else found

    def _bounded(self, number: int, first: int, last_ms: int, last: int) -> tuple[int, int]:
        """The last minute, and its first offset, that begins within records_max; at least one whole minute."""
        minute_ms = floor_to(
            broker_ms_at(self._log, number, first + self._limits.records_max), self._times.late_minute_ms
        )
        found = self._begin_of(number, minute_ms, first)
        while found <= first and minute_ms < last_ms:
            minute_ms += self._times.late_minute_ms
            found = self._begin_of(number, minute_ms, first)
        return (minute_ms, found) if found > first else (last_ms, last)

    def _bases(self, number: int, done: Progress, minute_ms: int) -> tuple[list[Span], int]:
        """Windows that records before the minute's first have closed, and through which end; neighbours without any
        record in one span."""
        window_ms = self._times.window_ms
        closed_ms = floor_to(minute_ms - self._times.grace_ms, window_ms)
        end_ms = min(closed_ms, done.emitted_through_ms + self._limits.windows_max * window_ms)
        if end_ms <= done.emitted_through_ms:
            return [], done.emitted_through_ms
        first_ms = max(done.emitted_through_ms, ceil_to(done.whole_from_ms, window_ms))
        spans: list[Span] = []
        empty_before = False
        for start_ms in range(first_ms, end_ms, window_ms):
            empty = end_ms - first_ms > window_ms and self._is_empty(number, start_ms)
            if empty and empty_before:
                spans[-1] = spans[-1][0], start_ms + window_ms
            else:
                spans.append((start_ms, start_ms + window_ms))
            empty_before = empty
        return spans, end_ms

    def _is_empty(self, number: int, start_ms: int) -> bool:
        """Whether no record can hold a sample of its base."""
        times = self._times
        first = self._begin_of(number, start_ms - times.ahead_ms, 0)
        return first == self._begin_of(number, start_ms + times.window_ms + times.grace_ms, 0)


def moved(partition: PartitionOffset, start: StreamOffset, number: int) -> bool:
    """Whether a batch without work takes a partition further all the same."""
    return partition.progress != start.partitions[number].progress
