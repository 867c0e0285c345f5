"""Snapshot loader: heads from snapshots that agree with the log. Any doubt means a replay of the log.

A snapshot is used if its key is the store's, its checksums fit, the log still has the record that it ends with, and a
replay of the log alone would begin at or below that record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsdb.head.head import Head
from tsdb.head.head_image import HeadImage, restore
from tsdb.log.interface import METRICS, SERIES, Log, LogRecord, Watermarks
from tsdb.log.records import first_records
from tsdb.log.start import Start
from tsdb.model.clock import Clock
from tsdb.model.errors import CorruptData, LostOffsets, TsdbError, Unavailable, WrongTopic
from tsdb.replay.replay import CLOCK_AHEAD_MAX_MS
from tsdb.store.snapshots.content import SnapshotPosition, image_from, place_of, record_hash
from tsdb.store.snapshots.counts import passed_over
from tsdb.store.snapshots.file_reader import SnapshotFile
from tsdb.store.snapshots.folder import SnapshotFolder
from tsdb.store.snapshots.key import StoreKey
from tsdb.store.snapshots.reasons import CLOCK, DAMAGED, FOREIGN, NEWER_THAN_LOG, STALE

# Errors of a document or arrays whose checksums fit, but whose content breaks the format.
_MALFORMED = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class RestoredHead:
    """A head in the state of its snapshot. file_bytes: size of the file."""

    head: Head
    place: SnapshotPosition
    file_bytes: int


@dataclass(frozen=True, slots=True)
class LogAtSnapshot:
    """State of the log at the position of a snapshot. applied: the first record at or after its applied offset, None
    without such a record."""

    start: Start
    marks: Watermarks
    series_marks: Watermarks
    applied: LogRecord | None


def check_place(place: SnapshotPosition, watermark_ms: int, in_log: LogAtSnapshot, now_ms: int) -> None:
    """Raises LostOffsets (stale, newer_than_log), WrongTopic (foreign), CorruptData (clock)."""
    if watermark_ms > now_ms + CLOCK_AHEAD_MAX_MS:
        raise CorruptData(f"its watermark {watermark_ms} ms is far ahead of our clock, {now_ms} ms", reason=CLOCK)
    for topic, offset, marks in (
        (METRICS, place.next_offset, in_log.marks),
        (SERIES, place.series_next_offset, in_log.series_marks),
    ):
        if offset > marks.high:
            raise LostOffsets(f"it ends at offset {offset} of {topic}; the log at {marks.high}", reason=NEWER_THAN_LOG)
        if offset < marks.low:
            raise LostOffsets(f"it ends at offset {offset} of {topic}; the log begins at {marks.low}", reason=STALE)
    if place.next_offset < in_log.start.offset:
        message = f"it ends at offset {place.next_offset}; a replay needs nothing below {in_log.start.offset}"
        raise LostOffsets(message, reason=STALE)
    if place.applied_offset < in_log.marks.low:
        raise LostOffsets(f"its last record {place.applied_offset} is no longer in the log", reason=STALE)
    applied = in_log.applied
    if applied is None or applied.offset != place.applied_offset:
        raise WrongTopic(f"the log has no record at offset {place.applied_offset}, its last one", reason=FOREIGN)
    if (applied.broker_ms, record_hash(applied.value)) != (place.applied_broker_ms, place.applied_hash):
        raise WrongTopic(f"the log has another record at offset {place.applied_offset}, its last one", reason=FOREIGN)


class SnapshotLoader:
    """make_head(partition, start): an empty head with the store's settings."""

    def __init__(
        self, folder: SnapshotFolder, key: StoreKey, log: Log, clock: Clock, make_head: Callable[[int, Start], Head]
    ) -> None:
        self._folder = folder
        self._key = key
        self._log = log
        self._clock = clock
        self._make_head = make_head

    def load(self, starts: Mapping[int, Start]) -> dict[int, RestoredHead]:
        """Heads of the partitions whose snapshot is usable. starts: the starts of replays without a snapshot.

        Raises Unavailable when the log does not answer.
        """
        with ExitStack() as files:
            opened = {partition: file for partition in starts if (file := self._opened(partition, files)) is not None}
            places = {partition: place_of(file.document) for partition, file in opened.items()}
            found = self._log_places(places, starts) if places else {}
            restored = {}
            for partition, in_log in found.items():
                with self._passing_over(partition):
                    restored[partition] = self._restored(partition, opened[partition], in_log)
            return restored

    def _opened(self, partition: int, files: ExitStack) -> SnapshotFile | None:
        if not self._folder.file(partition).exists():
            return None
        with self._passing_over(partition):
            file = files.enter_context(SnapshotFile(self._folder.file(partition)))
            self._key.check(partition, file.document["key"])
            place_of(file.document)
            return file
        return None

    def _restored(self, partition: int, file: SnapshotFile, in_log: LogAtSnapshot) -> RestoredHead:
        place = place_of(file.document)
        check_place(place, int(file.document["clock"][0]), in_log, self._clock.now_ms())
        image = image_from(file.document, file)
        head = self._make_head(partition, _start_of(image, in_log.start))
        restore(head, image)
        return RestoredHead(head, place, file.bytes)

    def _log_places(
        self, places: Mapping[int, SnapshotPosition], starts: Mapping[int, Start]
    ) -> dict[int, LogAtSnapshot]:
        partitions = list(places)
        marks, series = self._log.watermarks(METRICS, partitions), self._log.watermarks(SERIES, partitions)
        readable = {
            partition: place.applied_offset
            for partition, place in places.items()
            if marks[partition].low <= place.applied_offset < marks[partition].high
        }
        try:
            applied = first_records(self._log, METRICS, readable)
        except LostOffsets as error:
            # The log was trimmed between the two requests, which does not happen twice.
            raise Unavailable(error.message, reason="log_unavailable") from error
        return {p: LogAtSnapshot(starts[p], marks[p], series[p], applied.get(p)) for p in partitions}

    @contextmanager
    def _passing_over(self, partition: int) -> Iterator[None]:
        """Stops the use of a snapshot after an error, which has no other effect."""
        path: Path = self._folder.file(partition)
        try:
            yield
        except Unavailable:
            raise
        except TsdbError as error:
            passed_over(path, error)
        except OSError as error:
            passed_over(path, CorruptData(f"the file cannot be read: {error}", reason=DAMAGED))
        except _MALFORMED as error:
            passed_over(path, CorruptData(f"the content is malformed: {error!r}", reason=DAMAGED))


def _start_of(image: HeadImage, start: Start) -> Start:
    """The start that an image's head had, as far as a new head needs it."""
    contents: Any = image.contents
    return Start(start.case, contents.since_offset, contents.clock[2], contents.from_start, start.horizon_ms)
