"""Stream planner: plans the ends of micro-batches over the log, and their input partitions. One process; one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_backfill.source.log import even_stretches, first_offsets, times_of
from spark_backfill.source.log_samples import OffsetsPart, skip_trimmed, trimmed
from spark_backfill.source.stream.offset import NEW_CHECKPOINT, StreamOffset, advanced
from spark_backfill.source.stream.options import LATEST, StreamOptions
from tsdb.log.interface import METRICS, Log, Watermarks
from tsdb.model.errors import LostOffsets, WrongTopic

TASK_RECORDS_MIN = 1_000  # In a shorter range the overhead of a task is larger than its work.


class StreamPlanner:
    """Keeps one connection, opened at first use."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._reading = options.reading
        self._log: Log | None = None
        self._ahead_ms = 0
        self._frozen: tuple[int, ...] | None = None
        self._highs: tuple[int, ...] = ()

    def freeze(self) -> None:
        """Plan for records up to the present end of the log."""
        self._frozen = _highs(self._watermarks())

    def first(self, records_max: int | None) -> StreamOffset:
        """The end of the first batch, with its start. The batch may have no records: it records where a query begins.

        Raises OutOfCoverage (before_retention), and the errors of the log.
        """
        marks, start_ms = self._watermarks(), self._reading.span.start_ms
        if start_ms is None and self._options.start == LATEST:
            starts = _highs(marks)
        else:
            log, allow_holes = self._opened(), self._reading.allow_holes
            found = first_offsets(log, dict(enumerate(marks)), start_ms, times_of(log), allow_holes=allow_holes)
            starts = tuple(found[partition] for partition in range(len(marks)))
        return replace(self._at(advanced(starts, self._ends(marks), records_max)), first_offsets=starts)

    def next(self, before: StreamOffset, records_max: int | None) -> StreamOffset:
        """The end of the batch that begins at `before`; `before` itself when nothing is new.

        Raises WrongTopic (checkpoint_topic, checkpoint_prefix), ConfigMismatch, LostOffsets (offset_above_end), and as
        the log does.
        """
        marks = self._checked(before)
        starts = tuple(max(mark.low, at) for mark, at in zip(marks, before.next_offsets, strict=True))
        after = advanced(starts, self._ends(marks), records_max)
        return before if after == before.next_offsets else replace(before, next_offsets=after, first_offsets=())

    def parts(self, before: StreamOffset, after: StreamOffset) -> list[OffsetsPart]:
        """Input partitions of the batch. Raises HoleInRange (trimmed) unless holes are allowed, and the errors of
        `next`."""
        marks = self._checked(after)
        starts = after.first_offsets if before.is_initial else before.next_offsets
        found: list[OffsetsPart] = []
        for partition, mark in enumerate(marks):
            end = after.next_offsets[partition]
            start = self._retained(partition, starts[partition], end, mark.low)
            most = max(self._reading.splits // len(marks), 1)
            stretches = even_stretches(start, end, min(most, max(-(-(end - start) // TASK_RECORDS_MIN), 1)))
            found += [OffsetsPart(after.topic_id, self._ahead_ms, partition, *stretch) for stretch in stretches]
        return found

    def last_seen(self) -> StreamOffset | None:
        """The end of the log when it was last requested."""
        return None if self._log is None else self._at(self._highs)

    def close(self) -> None:
        """Release the connection. A later call opens another one."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _checked(self, offset: StreamOffset) -> list[Watermarks]:
        """The log's present ends, after a check that the offset is of this log."""
        try:
            marks = self._watermarks()
        # The topic was created anew since this process began. The check below reports it, as after a restart.
        except WrongTopic:
            self.close()
            marks = self._watermarks()
        self._check(offset, len(marks))
        for partition, mark in enumerate(marks):
            if offset.next_offsets[partition] > mark.high:
                self.close()  # A client notices a re-created topic after a second, a new client at once.
                self._check(offset, len(marks))
                raise LostOffsets(
                    f"partition {partition}: the checkpoint is at record {offset.next_offsets[partition]}, but the log"
                    f" ends at {mark.high}: a broker lost records; {NEW_CHECKPOINT}",
                    reason="offset_above_end",
                    partition=partition,
                )
        return marks

    def _check(self, offset: StreamOffset, partitions: int) -> None:
        offset.check(self._opened().topic_id(METRICS), self._reading.places.log_prefix, partitions)

    def _retained(self, partition: int, start: int, end: int, low: int) -> int:
        if start >= min(low, end):
            return start
        if not self._reading.allow_holes:
            raise trimmed(partition, start, low)
        skip_trimmed(partition, start, min(low, end))
        return min(low, end)

    def _ends(self, marks: Sequence[Watermarks]) -> tuple[int, ...]:
        return _highs(marks) if self._frozen is None else self._frozen

    def _watermarks(self) -> list[Watermarks]:
        """Fresh from the log, in the order of the partition numbers."""
        log = self._opened()
        count = log.partitions(METRICS)
        found = log.watermarks(METRICS, range(count))
        marks = [found[partition] for partition in range(count)]
        self._highs = _highs(marks)
        return marks

    def _at(self, next_offsets: tuple[int, ...]) -> StreamOffset:
        return StreamOffset(self._opened().topic_id(METRICS), self._reading.places.log_prefix, next_offsets)

    def _opened(self) -> Log:
        if self._log is None:
            self._log = self._reading.places.open_log()
            self._ahead_ms = times_of(self._log).ahead_ms
        return self._log


def _highs(marks: Sequence[Watermarks]) -> tuple[int, ...]:
    return tuple(mark.high for mark in marks)
