"""Labels of series by id: reads the `series` topic ahead of the chunks that need it, and gives the announcements that
the table of series lacks. One thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tsdb.codec.records.record_status import STATUS_OK
from tsdb.codec.records.series_record import Announcement, decode_announcements
from tsdb.log.interface import SERIES, EndOfLog, Log, LogReader, RecordBatch
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Overloaded, Unavailable

POLL_S = 0.2
POLL_RECORDS_MAX = 20_000
POLL_BYTES_MAX = 8 << 20
SERIES_BYTES = 150  # Memory of a series beside its labels: entry of a dict, integer, header of bytes.
EPOCH_BITS, EPOCH_MASK = 32, (1 << 32) - 1
EPOCH_BYTES = 90  # Memory of each index epoch of a series: an integer in a set.


class AnnouncedLabels:
    """The labels of all announced series: some 400 bytes of memory each. Announced before the first sample is accepted,
    they are on `series` whenever a chunk with the series is on `chunks`.

    written: by partition, offsets of `series` below which the table of series has every announcement.
    """

    def __init__(self, log: Log, partitions: Sequence[int], written: Mapping[int, int], bytes_max: int) -> None:
        self._log = log
        self._written = dict(written)
        self._canonical: dict[int, bytes] = {}
        self._epochs: set[int] = set()  # A number for each (series, epoch) that has labels.
        self._new: list[tuple[Announcement, int]] = []
        self._bytes_left = bytes_max
        self._next_offset = {number: marks.low for number, marks in log.watermarks(SERIES, list(partitions)).items()}
        self._reader: LogReader = self._open()

    def catch_up(self, clock: Clock, timeout_s: float) -> None:
        """Read to high watermarks taken now. Raises Unavailable (series_behind), Overloaded (tables_labels_full)."""
        ends = self._log.high_watermarks(SERIES, sorted(self._next_offset))
        give_up_at = clock.monotonic() + timeout_s
        while any(self._next_offset[number] < end for number, end in ends.items()):
            self._read()
            if clock.monotonic() > give_up_at:
                raise Unavailable(f"series topic not read to its end in {timeout_s:g} s", reason="series_behind")

    def get(self, series_ids: Iterable[int]) -> list[bytes | None]:
        """Canonical labels of each series; None for one that was never announced."""
        return [self._canonical.get(one) for one in series_ids]

    def new(self) -> list[tuple[Announcement, int]]:
        """Announcements that the table of series lacks, each (series, epoch) once, with their partitions."""
        return self._new

    def offsets(self) -> dict[int, int]:
        """Offsets of `series` below which all announcements are read, by partition."""
        return dict(self._next_offset)

    def note_written(self) -> None:
        """The table of series has all that `new` gave."""
        self._new = []
        self._written = dict(self._next_offset)

    def close(self) -> None:
        self._reader.close()

    def _open(self) -> LogReader:
        return self._log.reader({(SERIES, number): start for number, start in self._next_offset.items()})

    def _read(self) -> None:
        try:
            events = self._reader.poll(POLL_S, max_records=POLL_RECORDS_MAX, max_bytes=POLL_BYTES_MAX)
        except LostOffsets as lost:
            # Only old announcements are trimmed; those of live series come again.
            number = int(lost.metadata["partition"])
            self._next_offset[number] = self._log.watermarks(SERIES, [number])[number].low
            self._reader.seek(SERIES, number, self._next_offset[number])
            return
        for event in events:
            if not isinstance(event, EndOfLog):
                self._add(event)
            # Offsets have gaps, so a compacted topic may end before its last record.
            self._next_offset[event.partition] = (
                event.next_offset if isinstance(event, EndOfLog) else int(event.offsets[-1]) + 1
            )

    def _add(self, batch: RecordBatch) -> None:
        found = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        good = np.flatnonzero(found.status == STATUS_OK)
        columns = found.series_id, found.epoch, found.pack_id, found.label_start, found.label_end
        rows = zip(batch.offsets[good].tolist(), *(column[good].tolist() for column in columns), strict=True)
        written = self._written.get(batch.partition, 0)
        for offset, one, epoch, pack_id, start, end in rows:
            pair = one << EPOCH_BITS | epoch & EPOCH_MASK
            if pair in self._epochs:
                continue
            self._epochs.add(pair)
            self._bytes_left -= EPOCH_BYTES
            canonical = self._canonical.get(one)
            if canonical is None:
                canonical = self._canonical[one] = batch.values[start:end]
                self._bytes_left -= end - start + SERIES_BYTES
            if offset >= written:
                self._new.append((Announcement(one, epoch, pack_id, canonical), batch.partition))
        if self._bytes_left < 0:
            raise Overloaded(
                f"labels of {len(self._canonical)} series take more than the limit (tables_labels_bytes_max): raise it,"
                " or let the topic series forget series that are gone",
                reason="tables_labels_full",
            )
