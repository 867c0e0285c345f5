"""Planner: compute the work of the next batch from the progress so far and from times and offsets in the log.

A batch moves each partition to the first offset of its last late minute, and emits all windows closed by then. Work is
cut at the start of late minutes, so that it spreads over tasks. It is bounded, so that a long backlog is committed in
steps. Lookups are made for all partitions in one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from spark_backfill.building.options import BuildOptions
from spark_backfill.building.stretches import broker_ms_at, stretches
from spark_backfill.pipeline.closed_windows import ClosedWindows, closed_windows
from spark_backfill.pipeline.offsets import PartitionOffset, PipelineOffset, Span
from spark_backfill.worker_log import check_topic
from tsdb.chunks.progress import Progress
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import last_records
from tsdb.model.window import ceil_to, floor_to


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one batch. The first is for one partition.

    stretch_records: records that one task scans, about. records_max, windows_max: all records and windows.

    """

    stretch_records: int = 250_000
    records_max: int = 2_000_000
    windows_max: int = 48


@dataclass(frozen=True, slots=True)
class LogEnd:
    """high: high watermark. broker_ms: broker time of the last record below `high`; None when no record is readable."""

    high: int
    broker_ms: int | None


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a batch brings one partition: to `position`, the first offset of the late minute `minute_ms`."""

    minute_ms: int
    position: int


class Planner:
    """Plans for all partitions of a log. One thread."""

    def __init__(self, log: Log, options: BuildOptions, limits: BatchLimits) -> None:
        self._log = log
        self._options = options
        self._times = options.times
        self._limits = limits
        self._ends: dict[int, LogEnd] = {}
        self._frozen = False
        self._idle_until_ms: dict[int, int] = {}

    def freeze(self) -> None:
        """Read the end of each partition now; later plans do not go past it."""
        self._look(range(self._log.partitions(METRICS)))
        self._frozen = True

    def next(self, start: PipelineOffset) -> PipelineOffset:
        """The offset after the next batch; `start` itself when there is no work.

        Raises WrongTopic (topic_recreated), LostOffsets (chunk_gap), Unavailable.

        """
        check_topic(self._log, self._options.topic_id)
        if self._is_idle():
            return start
        if not self._frozen:
            self._look(range(len(start.partitions)))
        planned = self._plan(start.progress)
        if not any(
            partition.bases or partition.late or moved(partition, start, n) for n, partition in enumerate(planned)
        ):
            minute_ms = self._times.late_minute_ms
            self._idle_until_ms = {n: self._minute_ms(n, -minute_ms) + minute_ms for n in start.progress}
            return start
        self._idle_until_ms = {}
        return replace(start, partitions=planned)

    def _is_idle(self) -> bool:
        """Whether the last plan had no work, and no partition has begun another late minute since.

        This costs one request. Reading the last records costs a new consumer for each plan.
        """
        waiting = self._idle_until_ms
        return bool(waiting) and not any(
            offset is not None for offset in self._log.offsets_for_times(METRICS, waiting).values()
        )

    def _look(self, numbers: range) -> None:
        """Update the ends of partitions; read the last record only where the high watermark has moved."""
        highs = {number: marks.high for number, marks in self._log.watermarks(METRICS, list(numbers)).items()}
        grown = [n for n, high in highs.items() if n not in self._ends or self._ends[n].high != high]
        tails = last_records(self._log, METRICS, grown)
        for number in grown:
            tail = tails[number]
            self._ends[number] = LogEnd(highs[number], tail.broker_ms if tail else None)

    def _minute_ms(self, number: int, otherwise: int) -> int:
        """The late minute of a partition's last record; `otherwise` when there is no record."""
        broker_ms = self._ends[number].broker_ms
        return otherwise if broker_ms is None else floor_to(broker_ms, self._times.late_minute_ms)

    def _plan(self, done: Mapping[int, Progress]) -> tuple[PartitionOffset, ...]:
        reach = self._reach({number: one for number, one in done.items() if self._ends[number].broker_ms is not None})
        spans = {number: self._windows(done[number], one.minute_ms) for number, one in reach.items()}
        closed = closed_windows(
            self._log, {number: span for number, span in spans.items() if span[0] < span[1]}, self._times
        )
        planned = []
        for number, progress in done.items():
            if number not in reach:
                planned.append(PartitionOffset(progress))
                continue
            through_ms = max(progress.emitted_through_ms, spans[number][1])
            to = self._within(progress, reach[number], through_ms, closed.get(number))
            after = replace(progress, position=to.position, emitted_through_ms=through_ms)
            planned.append(self._partition(number, progress, after, to, closed.get(number)))
        return tuple(planned)

    def _reach(self, done: Mapping[int, Progress]) -> dict[int, Reach]:
        minutes = {number: self._minute_ms(number, 0) for number in done}
        begins = self._log.offsets_for_times(METRICS, minutes)
        found = {
            number: Reach(minutes[number], max(progress.position, begins[number] or 0))
            for number, progress in done.items()
        }
        far = {n: one for n, one in found.items() if one.position - done[n].position > self._limits.records_max}
        return {**found, **self._nearer(far, {number: done[number].position for number in far})}

    def _nearer(self, far: Mapping[int, Reach], first: Mapping[int, int]) -> dict[int, Reach]:
        """The last late minute of each partition that begins within records_max, at least one minute on."""
        times = broker_ms_at(self._log, {n: offset + self._limits.records_max for n, offset in first.items()})
        minutes = {number: floor_to(ms, self._times.late_minute_ms) for number, ms in times.items()}
        found: dict[int, Reach] = {}
        while minutes:
            for number, offset in self._log.offsets_for_times(METRICS, minutes).items():
                minute_ms = minutes[number]
                if offset is not None and offset > first[number]:
                    found[number] = Reach(minute_ms, offset)
                elif minute_ms >= far[number].minute_ms:
                    found[number] = far[number]
            minutes = {n: ms + self._times.late_minute_ms for n, ms in minutes.items() if n not in found}
        return found

    def _windows(self, done: Progress, minute_ms: int) -> Span:
        """[first_ms, end_ms) of the windows to emit: closed by records before the late minute `minute_ms`."""
        window_ms = self._times.window_ms
        closed_ms = floor_to(minute_ms - self._times.grace_ms, window_ms)
        end_ms = min(closed_ms, done.emitted_through_ms + self._limits.windows_max * window_ms)
        return max(done.emitted_through_ms, ceil_to(done.whole_from_ms, window_ms)), end_ms

    def _within(self, done: Progress, reach: Reach, through_ms: int, closed: ClosedWindows | None) -> Reach:
        """`reach`, or the end of the last window when more windows are left for the next batch.

        The tasks of those windows read the records behind it anyway.
        """
        closes_ms = through_ms + self._times.grace_ms
        if closed is None or closes_ms + self._times.window_ms > reach.minute_ms:
            return reach
        return Reach(closes_ms, max(done.position, min(closed.edges[-1], reach.position)))

    def _partition(
        self, number: int, done: Progress, after: Progress, to: Reach, closed: ClosedWindows | None
    ) -> PartitionOffset:
        late = done.position, after.position
        if closed is None:
            return PartitionOffset(after, (), tuple(self._stretches(number, late, None, to.minute_ms)))
        before, behind = closed.beside(late)
        grace_ms = self._times.grace_ms
        return PartitionOffset(
            after,
            tuple(closed.bases(late, self._times.window_ms)),
            (
                *self._stretches(number, before, None, closed.first_ms + grace_ms),
                *self._stretches(number, behind, closed.end_ms + grace_ms, to.minute_ms),
            ),
        )

    def _stretches(self, number: int, late: Span, begin_ms: int | None, end_ms: int) -> Iterable[Span]:
        """Stretches of one partition. begin_ms: see `stretches`; None: not known."""
        first, end = late
        if end - first <= self._limits.stretch_records:
            return [late] if first < end else []
        if begin_ms is None:
            begin_ms = broker_ms_at(self._log, {number: first})[number]
        minute_ms, records = self._times.late_minute_ms, self._limits.stretch_records
        return stretches(self._log, number, first, end, begin_ms, end_ms, minute_ms, records)


def moved(partition: PartitionOffset, start: PipelineOffset, number: int) -> bool:
    """Whether a batch moves the progress of a partition. A batch without work items may do so."""
    return partition.progress != start.partitions[number].progress
