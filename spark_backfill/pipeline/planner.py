"""Planner: compute the work of the next batch from the progress so far and from times and offsets in the log.

A batch moves each partition to the first offset of its last late minute, and emits all windows closed by then. Work is
cut at the start of late minutes, so that it spreads over tasks. It is bounded, so that a long backlog is committed in
steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_backfill.building.connection import check_topic
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.stretches import broker_ms_at, first_offset_at, stretches
from spark_backfill.pipeline.offsets import PartitionOffset, Span, StreamOffset
from tsdb.chunks.progress import Progress
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import last_records
from tsdb.model.window import ceil_to, floor_to


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one partition in one batch.

    stretch_records: records that one task scans, about. records_max, windows_max: all records and windows.
    """

    stretch_records: int = 250_000
    records_max: int = 2_000_000
    windows_max: int = 48


@dataclass(frozen=True, slots=True)
class LogEnd:
    """high: high watermark. broker_ms: broker time of the last record below it; None: no record is readable."""

    high: int
    broker_ms: int | None


class Planner:
    """Plans for all partitions of a log. One thread."""

    def __init__(self, log: Log, options: BuildOptions, limits: BatchLimits) -> None:
        self._log = log
        self._options = options
        self._times = options.times
        self._limits = limits
        self._ends: dict[int, LogEnd] = {}
        self._frozen = False

    def freeze(self) -> None:
        """Read the end of each partition now; later plans do not go past it."""
        self._look(range(self._log.partitions(METRICS)))
        self._frozen = True

    def next(self, start: StreamOffset) -> StreamOffset:
        """The offset after the next batch; `start` itself when there is nothing to do.

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
        """Update the ends of partitions; read the last record only where the high watermark has moved."""
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
        found = first_offset_at(self._log, number, time_ms)
        return otherwise if found is None else found

    def _bounded(self, number: int, first: int, last_ms: int, last: int) -> tuple[int, int]:
        """(time, first offset) of the last late minute that begins within records_max, at least one minute on."""
        minute_ms = floor_to(
            broker_ms_at(self._log, number, first + self._limits.records_max), self._times.late_minute_ms
        )
        found = self._begin_of(number, minute_ms, first)
        while found <= first and minute_ms < last_ms:
            minute_ms += self._times.late_minute_ms
            found = self._begin_of(number, minute_ms, first)
        return (minute_ms, found) if found > first else (last_ms, last)

    def _bases(self, number: int, done: Progress, minute_ms: int) -> tuple[list[Span], int]:
        """Windows closed by records before the late minute `minute_ms`, and the end of the last one.

        Neighbouring windows without records are one span.
        """
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
        """Whether no record of the log can have a sample of this window's base chunk."""
        times = self._times
        first = self._begin_of(number, start_ms - times.ahead_ms, 0)
        return first == self._begin_of(number, start_ms + times.window_ms + times.grace_ms, 0)


def moved(partition: PartitionOffset, start: StreamOffset, number: int) -> bool:
    """Whether a batch moves the progress of a partition. A batch without work items may do so."""
    return partition.progress != start.partitions[number].progress
