"""Planner: compute the work of the next batch from the progress so far and from times and offsets in the log.

A batch moves each partition to the first offset of its last late minute, and emits all windows closed by then. Work is
cut at the start of late minutes, so that it spreads over tasks. It is bounded, so that a long backlog is committed in
steps. Lookups are made for all partitions in one request.

It finds the windows that a batch emits, each with its share of the late minutes, and reads no record for that.

A window's task reads all records from a little before the window's start to its decision offset. The records between
the decision offsets of two neighbouring windows are a part of these, so the same task scans them for late samples. A
decision offset begins a late minute, because windows and grace consist of whole late minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import broker_ms_at, stretches
from spark_backfill.pipeline.offsets import Base, PartitionOffset, PipelineOffset, Span
from spark_backfill.worker_log import check_topic
from tsdb.chunks.progress import Progress
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import last_records
from tsdb.model.time_set import TimeSet
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
    """The end of a batch in one partition: `position` is the first offset of the late minute `minute_ms`."""

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


@dataclass(frozen=True, slots=True)
class ClosedWindows:
    """The windows that begin in [first_ms, end_ms), of one partition.

    edges: decision offset of the window that ends at first_ms, then that of each window, ascending. empty: whether the
    log has no record that can have a sample of a window's base chunk; one entry for each window.
    """

    first_ms: int
    end_ms: int
    edges: tuple[int, ...]
    empty: tuple[bool, ...]

    def bases(self, late: Span, window_ms: int) -> list[Base]:
        """The work of the windows, with their shares of the offsets `late`. Neighbouring empty windows share one."""
        found: list[Base] = []
        for number, empty in enumerate(self.empty):
            start_ms = self.first_ms + number * window_ms
            if empty and number and self.empty[number - 1]:
                found[-1] = found[-1]._replace(end_ms=start_ms + window_ms)
                continue
            first, end = (min(max(edge, late[0]), late[1]) for edge in self.edges[number : number + 2])
            share = (first, end) if first < end else (0, 0)
            found.append(Base(start_ms, start_ms + window_ms, *share))
        return found

    def beside(self, late: Span) -> tuple[Span, Span]:
        """The offsets of `late` before the shares of all windows, and those after them. Either may be empty."""
        first, end = (min(max(edge, late[0]), late[1]) for edge in (self.edges[0], self.edges[-1]))
        return (late[0], first), (end, late[1])


def closed_windows(log: Log, spans: Mapping[int, Span], times: TimeSet) -> dict[int, ClosedWindows]:
    """Look up the windows in [first_ms, end_ms) of each partition. All of them are closed by the log.

    One request serves all partitions: a request for each partition and window took most of a long batch's planning.
    """
    edges = _edges(log, spans, times)
    return {
        number: ClosedWindows(first_ms, end_ms, tuple(edges[number]), tuple(empty))
        for (number, (first_ms, end_ms)), empty in zip(
            spans.items(), _empty(log, spans, edges, times).values(), strict=True
        )
    }


def _edges(log: Log, spans: Mapping[int, Span], times: TimeSet) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in spans}
    for step in range(max((_count(span, times) for span in spans.values()), default=-1) + 1):
        wanted = {
            number: first_ms + step * times.window_ms + times.grace_ms
            for number, (first_ms, end_ms) in spans.items()
            if first_ms + step * times.window_ms <= end_ms
        }
        for number, offset in log.offsets_for_times(METRICS, wanted).items():
            assert offset is not None, "closed windows have decision offsets"
            found[number].append(offset)
    return found


def _empty(
    log: Log, spans: Mapping[int, Span], edges: Mapping[int, list[int]], times: TimeSet
) -> dict[int, list[bool]]:
    """Whether each window has no record. A single window is not looked up: there is nothing to share with it."""
    found = {number: [False] * _count(span, times) for number, span in spans.items()}
    for window in range(max(map(len, found.values()), default=0)):
        wanted = {
            number: spans[number][0] + window * times.window_ms - times.ahead_ms
            for number, empty in found.items()
            # A window's records begin before the decision offset of the window before it.
            if 1 < len(empty) > window and edges[number][window] == edges[number][window + 1]
        }
        if wanted:
            for number, first in log.offsets_for_times(METRICS, wanted).items():
                found[number][window] = first == edges[number][window + 1]
    return found


def _count(span: Span, times: TimeSet) -> int:
    return (span[1] - span[0]) // times.window_ms
