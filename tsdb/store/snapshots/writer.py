"""Snapshot writer: one thread that writes images of heads to their files, one after another.

Workers take the images and go on at once. Between drains one image at a time is in hand, so little memory is shared
with the past, and the thread works a bounded share of the time. At a drain it writes what workers left, without rest.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from tsdb.head.head_image import HeadImage
from tsdb.log.interface import METRICS, Log, LogRecord
from tsdb.log.records import first_records
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, TsdbError
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import ThreadComponent
from tsdb.store.snapshots.content import SnapshotPosition, document_of, groups_of, record_hash
from tsdb.store.snapshots.counts import (
    DISK,
    DRAIN,
    LOG,
    observe,
    write_failures_total,
    write_seconds,
    writes_total,
)
from tsdb.store.snapshots.file_writer import write_file
from tsdb.store.snapshots.folder import SnapshotFolder
from tsdb.store.snapshots.key import StoreKey

# Share of a write's time in which it works; it sleeps for the rest. Reads on two cores do not notice this share.
WORK_SHARE = 0.25

log = get_logger(__name__)

Ends = tuple[int, int]
"""(next offset, next offset of `series`): a head with the same two has not changed."""


@dataclass(frozen=True, slots=True)
class _Job:
    partition: int
    image: HeadImage
    series_next_offset: int

    @property
    def ends(self) -> Ends:
        return self.image.contents.next_offset, self.series_next_offset


class _GivenUp(Exception):
    """Ends a write at a drain that has no more time for it."""


class SnapshotWriter(ThreadComponent):
    """interval_s: time between two snapshots of a partition. drain_s: time for all writes after `close`."""

    def __init__(
        self, folder: SnapshotFolder, key: StoreKey, log_: Log, clock: Clock, *, interval_s: float, drain_s: float
    ) -> None:
        super().__init__("snapshots")
        self._folder = folder
        self._key = key
        self._log = log_
        self._clock = clock
        self._interval_s = interval_s
        self._drain_s = drain_s
        self._deadline: Deadline | None = None
        self._given_up = False
        self._changed = threading.Condition()  # Guards everything below; nothing else is locked under it.
        self._jobs: deque[_Job] = deque()
        self._busy = False
        self._tried_at: dict[int, float] = {}
        self._written: dict[int, Ends] = {}

    def restored(self, partition: int, place: SnapshotPosition) -> None:
        """A start has used this partition's snapshot: the next is due when its age is the interval."""
        age_s = max(0, self._clock.now_ms() - place.written_ms) / 1000
        with self._changed:
            self._tried_at[partition] = self._clock.monotonic() - age_s
            self._written[partition] = place.next_offset, place.series_next_offset

    def is_due(self, partition: int, ends: Ends) -> bool:
        """Whether the partition's worker shall take an image now. False while one is in hand."""
        with self._changed:
            tried_at = self._tried_at.get(partition)
            rested = tried_at is None or self._clock.monotonic() - tried_at >= self._interval_s
            return rested and not self._jobs and not self._busy and self._written.get(partition) != ends

    def is_written(self, partition: int, ends: Ends) -> bool:
        """Whether the partition's snapshot is of these ends, so that a drain writes no other."""
        with self._changed:
            return self._written.get(partition) == ends

    def put(self, partition: int, image: HeadImage, series_next_offset: int) -> None:
        """Write an image. The index in it has all announcements below series_next_offset."""
        with self._changed:
            self._tried_at[partition] = self._clock.monotonic()
            self._jobs.append(_Job(partition, image, series_next_offset))
            self._changed.notify_all()

    def close(self) -> None:
        """Write the images in hand, and end. Called after the last `put`."""
        with self._changed:
            if self._deadline is None:
                self._deadline = Deadline.after(self._drain_s)
            super().close()
            self._changed.notify_all()

    def abort(self) -> None:
        """Give up the write in hand, and write nothing more."""
        self._given_up = True
        self.close()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._write(job)
            finally:
                with self._changed:
                    self._busy = False

    def _next(self) -> _Job | None:
        """The next job. None when the writer is closed and no job is left."""
        with self._changed:
            while not self._jobs and not self._closing.is_set():
                self._changed.wait()
            if not self._jobs:
                return None
            self._busy = True
            return self._jobs.popleft()

    def _write(self, job: _Job) -> None:
        writes_total.inc()
        began_at = time.monotonic()
        try:
            self.write(job.partition, job.image, job.series_next_offset, _Pause(self))
        except OSError as error:
            self._failed(job, DISK, str(error))
        except TsdbError as error:
            self._failed(job, LOG, error.message)
        except _GivenUp:
            self._failed(job, DRAIN, f"not written within {self._drain_s:g} s of the drain")
        else:
            write_seconds.observe(time.monotonic() - began_at)

    def write(self, partition: int, image: HeadImage, series_next_offset: int, pause: _Pause | None = None) -> None:
        """Write an image on the caller's thread. Raises OSError, TsdbError."""
        pause = pause or _Pause(self)
        pause()
        place = self._place(partition, image, series_next_offset)
        document = document_of(image, place, self._key.of(partition))
        size = write_file(self._folder.file(partition), document, groups_of(image), pause)
        with self._changed:
            self._written[partition] = place.next_offset, series_next_offset
        observe(partition, place.written_ms, size)
        log.debug("snapshot written", partition=partition, offset=place.next_offset, bytes=size)

    def _place(self, partition: int, image: HeadImage, series_next_offset: int) -> SnapshotPosition:
        contents = image.contents
        assert contents.applied_offset is not None, "a head without a record needs no snapshot"
        record = self._record(partition, contents.applied_offset)
        return SnapshotPosition(
            contents.next_offset,
            contents.applied_offset,
            record.broker_ms,
            record_hash(record.value),
            series_next_offset,
            self._clock.now_ms(),
        )

    def _record(self, partition: int, offset: int) -> LogRecord:
        """The record that an image ends with. A start compares it with the log's."""
        record = first_records(self._log, METRICS, {partition: offset})[partition]
        if record is None or record.offset != offset:
            raise LostOffsets(f"partition {partition} has no record at offset {offset} any more")
        return record

    def _failed(self, job: _Job, reason: str, message: str) -> None:
        write_failures_total.labels(reason).inc()
        log.warning("snapshot not written", partition=job.partition, reason=reason, error=message)

    def rest(self, worked_s: float) -> None:
        """Keep to WORK_SHARE; during a drain only check its deadline."""
        if self._given_up or (self._deadline is not None and self._deadline.expired):
            raise _GivenUp
        self._closing.wait(worked_s * (1 / WORK_SHARE - 1))


class _Pause:
    """Called between two pieces of a write."""

    def __init__(self, writer: SnapshotWriter) -> None:
        self._writer = writer
        self._since = time.monotonic()

    def __call__(self) -> None:
        self._writer.rest(time.monotonic() - self._since)
        self._since = time.monotonic()
