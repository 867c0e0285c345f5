"""Series feed: reads the `series` topic into label indexes, ahead of the samples that need it.

One thread. Announcements are registered in batches. Announcements of index epochs that ended before all readable
samples are skipped. Only a partition whose labels are at their limit is stopped: no more of it is read until its labels
have capacity, and its registered series stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_OK
from tsdb.codec.records.series_record import DecodedAnnouncements, decode_announcements
from tsdb.log.interface import SERIES, Log, LogReader, RecordBatch
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Overloaded, Unavailable
from tsdb.model.resolution import RESOLUTION, is_derived
from tsdb.model.window import EPOCH_MS
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

POLL_RECORDS_MAX = 20_000
POLL_BYTES_MAX = 8 << 20  # Announcements not yet registered.
PART_BYTES = 512 << 10  # Bytes that are read between two memory checks. An index can exceed its limit by this much.
CATCH_UP_POLL_S = 0.05
_PASSED_OVER = STATUS_CORRUPT  # Any status but STATUS_OK, so that an index skips the record.

log = get_logger(__name__)

announcements_total = counter("tsdb_replay_announcements_total", "Announcements read from the series topic.")
_RESOLUTION = RESOLUTION.encode()

announcements_ignored_total = counter(
    "tsdb_replay_announcements_ignored_total",
    "Announcements not registered, by reason.",
    label="reason",
    values=("corrupt", "epoch_over", "derived"),
)
series_rereads_total = counter(
    "tsdb_replay_series_rereads_total",
    "Partitions of the series topic read again because the log lost offsets.",
)

held_back_total = counter(
    "tsdb_replay_series_held_back_total",
    "Times that the announcements of a partition were not taken because its labels are at their memory limit.",
)


class LabelMemory(Protocol):
    """Limits of a head's memory; both raise Overloaded (memory_hard)."""

    def check_samples(self) -> None:
        """Raises when no more samples may be applied."""

    def check_labels(self) -> None:
        """Raises when no more series may be registered."""


class Registry(Protocol):
    """Receiver of announcements: a head, or a stage with a head inside."""

    @property
    def memory(self) -> LabelMemory:
        """Memory limits, checked before more is registered."""

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """See Head.register: raises Overloaded before anything is registered."""


class SeriesFeed:
    """Keeps the label indexes of some heads up to date with the `series` topic.

    starts: first offset to read per partition; a partition without a head is read and skipped. oldest_ms: announcements
    of index epochs that end at or before this sample time are skipped.
    """

    def __init__(self, log_: Log, heads: Mapping[int, Registry], starts: Mapping[int, int], oldest_ms: int) -> None:
        self._log = log_
        self._heads: dict[int, Registry] = dict(heads)
        self._oldest_ms = oldest_ms
        self._next_offset = dict(starts)
        self._held_back: dict[int, Overloaded] = {}
        self._reader: LogReader = log_.reader({(SERIES, partition): start for partition, start in starts.items()})

    def poll(self) -> None:
        """Register the announcements that have arrived, without waiting."""
        self._read(0.0)

    def catch_up(self, partitions: list[int], clock: Clock, timeout_s: float) -> None:
        """Read these partitions up to a high watermark taken now. Raises Unavailable (series_behind) after timeout_s,
        and Overloaded (memory_hard) when only held-back partitions are behind."""
        goals = self._log.high_watermarks(SERIES, partitions)
        give_up_at = clock.monotonic() + timeout_s
        while behind := self._behind(goals):
            if behind.keys() <= self._held_back.keys():
                raise self._held_back[min(behind)]
            # Read before the clock is checked, so that a call with a timeout of 0 still makes progress.
            self._read(CATCH_UP_POLL_S)
            behind = self._behind(goals)
            if behind.keys() - self._held_back.keys() and clock.monotonic() > give_up_at:
                raise Unavailable(
                    f"series topic not read to its high watermark within {timeout_s:g} s; records missing {behind}",
                    reason="series_behind",
                )

    def check(self, partition: int) -> None:
        """Raises Overloaded (memory_hard) while a partition is held back."""
        self._offer()
        if partition in self._held_back:
            raise self._held_back[partition]

    @property
    def holds_back(self) -> bool:
        """Whether announcements of a partition wait for memory: `poll` offers it again."""
        return bool(self._held_back)

    def next_offset(self, partition: int) -> int:
        """The first announcement of a partition that its index lacks."""
        return self._next_offset[partition]

    def restart(self, partition: int, head: Registry, start: int) -> None:
        """Read a partition from `start`, into a new head."""
        self._heads[partition] = head
        self._held_back.pop(partition, None)
        self._next_offset[partition] = start
        self._reader.seek(SERIES, partition, start)

    def forget(self, partition: int) -> None:
        """Skip the announcements of a partition from now on."""
        self._heads.pop(partition, None)
        if self._held_back.pop(partition, None) is not None:
            self._reader.seek(SERIES, partition, self._next_offset[partition])

    def close(self) -> None:
        """Release the reader of `series`."""
        self._reader.close()

    def _behind(self, goals: Mapping[int, int]) -> dict[int, int]:
        """Number of missing records of each partition that is behind."""
        return {p: goal - self._next_offset[p] for p, goal in goals.items() if self._next_offset[p] < goal}

    def _read(self, timeout_s: float) -> None:
        self._offer()
        try:
            events = self._reader.poll(timeout_s, max_records=POLL_RECORDS_MAX, max_bytes=POLL_BYTES_MAX)
        except LostOffsets as error:
            self._read_again(error)
            return
        for event in events:
            if event.partition in self._held_back:
                continue  # Read again when the labels have capacity.
            if isinstance(event, RecordBatch):
                self._take(event)
            else:
                # The end was compacted, so offsets below it may never come as records.
                self._next_offset[event.partition] = max(self._next_offset[event.partition], event.next_offset)

    def _take(self, batch: RecordBatch) -> None:
        try:
            self._register(batch)
        except Overloaded as error:
            self._held_back[batch.partition] = error
            held_back_total.inc()
            self._reader.pause(SERIES, batch.partition)

    def _offer(self) -> None:
        """Resume the partitions whose labels have capacity again."""
        for partition in list(self._held_back):
            try:
                self._heads[partition].memory.check_labels()
            except Overloaded as error:
                self._held_back[partition] = error
            else:
                del self._held_back[partition]
                self._reader.seek(SERIES, partition, self._next_offset[partition])

    def _read_again(self, error: LostOffsets) -> None:
        """Read a partition again from its first record.

        A second registration changes nothing, and trimmed announcements are older than any sample in memory.
        """
        partition, low = int(error.metadata["partition"]), int(error.metadata["low"])
        series_rereads_total.inc()
        log.error("series topic lost offsets; reading it again", partition=partition, error=error.message)
        self._next_offset[partition] = low
        self._held_back.pop(partition, None)
        self._reader.seek(SERIES, partition, low)

    def _register(self, batch: RecordBatch) -> None:
        head = self._heads.get(batch.partition)
        if head is None:
            self._next_offset[batch.partition] = int(batch.offsets[-1]) + 1
            return
        head.memory.check_labels()
        records = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        announcements_total.inc(len(batch.offsets))
        phase_ms = (records.series_id % np.uint64(EPOCH_MS)).astype(np.int64)
        over = (records.epoch.astype(np.int64) + 1) * EPOCH_MS - phase_ms <= self._oldest_ms
        good = records.status == STATUS_OK
        announcements_ignored_total.labels("corrupt").inc(int((~good).sum()))
        announcements_ignored_total.labels("epoch_over").inc(int((good & over).sum()))
        records.status[over] = _PASSED_OVER
        self._pass_over_derived(records, batch.values)
        for first, end in _parts(batch.value_starts):
            head.register(records.part(first, end), batch.values, batch.broker_ms[first:end])
            self._next_offset[batch.partition] = int(batch.offsets[end - 1]) + 1

    def _pass_over_derived(self, records: DecodedAnnouncements, values: bytes) -> None:
        """Skip derived series: they have samples only in history. One search over all values rules out most batches."""
        if _RESOLUTION not in values:
            return
        for at in np.flatnonzero(records.status == STATUS_OK).tolist():
            if is_derived(values[records.label_start[at] : records.label_end[at]]):
                records.status[at] = _PASSED_OVER
                announcements_ignored_total.labels("derived").inc()


def _parts(value_starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, end) of runs of records of about PART_BYTES each."""
    cuts = np.searchsorted(value_starts, np.arange(0, int(value_starts[-1]) + PART_BYTES, PART_BYTES))
    edges = np.unique(np.append(np.minimum(cuts, len(value_starts) - 1), len(value_starts) - 1)).tolist()
    return list(itertools.pairwise(edges))
