"""Series feed: reads the `series` topic into label indexes, ahead of the samples that need it.

One thread. Announcements are registered in batches; those of index epochs that ended before anything that can still be
read are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.record_status import STATUS_CORRUPT, STATUS_OK
from tsdb.codec.series_record import DecodedAnnouncements, decode_announcements
from tsdb.log.interface import SERIES, Log, LogReader, RecordBatch
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.resolution import RESOLUTION, is_derived
from tsdb.model.window import EPOCH_MS
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

POLL_RECORDS_MAX = 20_000
CATCH_UP_POLL_S = 0.05
_PASSED_OVER = STATUS_CORRUPT  # An index registers only what is ok.

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


class Registry(Protocol):
    """What announcements are registered in."""

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """As Head.register."""


class SeriesFeed:
    """Keeps the label indexes of some heads abreast of the `series` topic.

    `starts`: first offset to read per partition; one without a head is read and passed over. `oldest_ms`: sample time
    before which an index epoch is of no use.
    """

    def __init__(self, log_: Log, heads: Mapping[int, Registry], starts: Mapping[int, int], oldest_ms: int) -> None:
        self._log = log_
        self._heads: dict[int, Registry] = dict(heads)
        self._oldest_ms = oldest_ms
        self._next_offset = dict(starts)
        self._reader: LogReader = log_.reader({(SERIES, partition): start for partition, start in starts.items()})

    def poll(self) -> None:
        """Register what has arrived, without waiting."""
        self._read(0.0)

    def catch_up(self, partitions: list[int], clock: Clock, timeout_s: float) -> None:
        """Read these partitions up to a high watermark taken now. Raises Unavailable (series_behind) when that takes
        longer."""
        goals = {p: marks.high for p, marks in self._log.watermarks(SERIES, partitions).items()}
        give_up_at = clock.monotonic() + timeout_s
        while any(self._next_offset[p] < goal for p, goal in goals.items()):
            # Before the clock is asked: who gives no time at all still comes nearer with every call.
            self._read(CATCH_UP_POLL_S)
            behind = {p: goal - self._next_offset[p] for p, goal in goals.items() if self._next_offset[p] < goal}
            if behind and clock.monotonic() > give_up_at:
                raise Unavailable(
                    f"series topic not read to its high watermark within {timeout_s:g} s; records missing {behind}",
                    reason="series_behind",
                )

    def restart(self, partition: int, head: Registry, start: int) -> None:
        """Read a partition from `start`, into a new head."""
        self._heads[partition] = head
        self._next_offset[partition] = start
        self._reader.seek(SERIES, partition, start)

    def forget(self, partition: int) -> None:
        """Pass a partition over from now on."""
        self._heads.pop(partition, None)

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()

    def _read(self, timeout_s: float) -> None:
        try:
            events = self._reader.poll(timeout_s, max_records=POLL_RECORDS_MAX)
        except LostOffsets as error:
            self._read_again(error)
            return
        for event in events:
            if isinstance(event, RecordBatch):
                self._register(event)
                self._next_offset[event.partition] = int(event.offsets[-1]) + 1
            else:
                # A compacted end: offsets below it may never come as records.
                self._next_offset[event.partition] = max(self._next_offset[event.partition], event.next_offset)

    def _read_again(self, error: LostOffsets) -> None:
        """From all there is: registering twice does no harm, and what was trimmed is older than any sample held."""
        partition, low = int(error.metadata["partition"]), int(error.metadata["low"])
        series_rereads_total.inc()
        log.error("series topic lost offsets; reading it again", partition=partition, error=error.message)
        self._next_offset[partition] = low
        self._reader.seek(SERIES, partition, low)

    def _register(self, batch: RecordBatch) -> None:
        head = self._heads.get(batch.partition)
        if head is None:
            return
        records = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        announcements_total.inc(len(batch.offsets))
        phase_ms = (records.series_id % np.uint64(EPOCH_MS)).astype(np.int64)
        over = (records.epoch.astype(np.int64) + 1) * EPOCH_MS - phase_ms <= self._oldest_ms
        good = records.status == STATUS_OK
        announcements_ignored_total.labels("corrupt").inc(int((~good).sum()))
        announcements_ignored_total.labels("epoch_over").inc(int((good & over).sum()))
        records.status[over] = _PASSED_OVER
        self._pass_over_derived(records, batch.values)
        head.register(records, batch.values, batch.broker_ms)

    def _pass_over_derived(self, records: DecodedAnnouncements, values: bytes) -> None:
        """Derived series have samples in history alone. One look at all of a batch tells that it has none."""
        if _RESOLUTION not in values:
            return
        for at in np.flatnonzero(records.status == STATUS_OK).tolist():
            if is_derived(values[records.label_start[at] : records.label_end[at]]):
                records.status[at] = _PASSED_OVER
                announcements_ignored_total.labels("derived").inc()
