"""Intake: when the source is polled, and what is held back so that no bound is passed.

At the bound of all records or bytes nothing is polled; polls begin again at half of it. A partition whose map of
finished offsets could outgrow a commit is paused alone. When not polling lasts, everything is paused and polled all the
same: the group must hear from its members, and they of a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.metadata import map_bytes_max
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.record import Partition, Record
from tsdb.parallel_consumer.source import Source

UNPOLLED_S_MAX = 1.0  # A pause drops what was fetched ahead, so not for every short stop.

Admit = Callable[[PartitionWork, Record], None]


class Intake:
    """`records`, `size`: read and not finished, of all partitions."""

    def __init__(
        self,
        source: Source,
        partitions: Mapping[Partition, PartitionWork],
        options: Options,
        metrics: ConsumerMetrics,
        clock: Clock,
        admit: Admit,
    ) -> None:
        self._source = source
        self._partitions = partitions
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._admit = admit
        self._map_bytes_max = map_bytes_max(options.metadata_units_max)
        self._full = False
        self._polled_at = clock.monotonic()
        self.records = 0
        self.size = 0

    @property
    def open(self) -> bool:
        """Whether more may be read; at half of a bound again, once one was reached."""
        share = 2 if self._full else 1
        over = self.records * share >= self._options.records_max or self.size * share >= self._options.bytes_max
        # Nothing unfinished is never too much, however small the bounds are.
        self._full = over and self.records > 0
        return not self._full

    def wants_poll(self, not_within_s: float) -> bool:
        """Whether it is time to poll, given that for so long after the last poll there is no hurry."""
        return self._unpolled_s() >= (not_within_s if self.open else UNPOLLED_S_MAX)

    def poll(self, timeout_s: float) -> bool:
        """Read what there is room for; whether anything came. Waits up to timeout_s while that is nothing."""
        if not self.open:
            return self._poll_closed()
        self._resume()
        room = max(1, min(self._options.poll_records_max, self._options.records_max - self.records))
        return self._take(timeout_s, room)

    def finished(self, part: PartitionWork, record: Record) -> None:
        """One less."""
        size = record.size
        self.records -= 1
        self.size -= size
        part.unfinished -= 1
        part.unfinished_bytes -= size

    def forget(self, part: PartitionWork) -> None:
        """The partition has gone with all that was read of it."""
        self.records -= part.unfinished
        self.size -= part.unfinished_bytes

    def admit_backlog(self) -> bool:
        """Admit what was held back, as far as it fits now; whether any did."""
        moved = False
        for part in self._partitions.values():
            if part.backlog:
                moved |= self._admit_fitting(part)
        return moved

    def _unpolled_s(self) -> float:
        return self._clock.monotonic() - self._polled_at

    def _poll_closed(self) -> bool:
        self._pause(part for part in self._partitions.values() if not part.paused)
        return self._take(0.0, 1)

    def _take(self, timeout_s: float, records_max: int) -> bool:
        polled = self._source.poll(timeout_s, records_max)
        self._polled_at = self._clock.monotonic()
        for record in polled.records:
            self._accept(record)
        for place, next_offset in polled.ends.items():
            part = self._partitions.get(place)
            if part is not None:
                part.ended = next_offset
                part.end()
        self._pause(part for part in self._partitions.values() if part.backlog and not part.paused)
        return bool(polled.records)

    def _accept(self, record: Record) -> None:
        part = self._partitions.get(record.place)
        if part is None or part.draining or record.offset < part.read_to:
            return  # Gone, or a second time after a pause.
        part.read_to = record.offset + 1
        self._metrics.read.inc()
        size = record.size
        self.records += 1
        self.size += size
        part.unfinished += 1
        part.unfinished_bytes += size
        part.backlog.append(record)
        self._admit_fitting(part)

    def _admit_fitting(self, part: PartitionWork) -> bool:
        moved = False
        while part.backlog and part.tracker.admits(part.backlog[0].offset, self._map_bytes_max):
            self._admit(part, part.backlog.popleft())
            moved = True
        part.end()
        return moved

    def _pause(self, parts: Iterable[PartitionWork]) -> None:
        going = list(parts)
        if not going:
            return
        self._source.pause([part.place for part in going])
        self._metrics.pauses.inc(len(going))
        for part in going:
            part.paused = True

    def _resume(self) -> None:
        # Half of the room for its map must be free again: pausing for each record would cost a fetch each time.
        coming = [
            part
            for part in self._partitions.values()
            if part.paused and not part.backlog and part.tracker.admits(part.read_to, self._map_bytes_max // 2)
        ]
        if coming:
            self._source.resume({part.place: part.read_to for part in coming})
            for part in coming:
                part.paused = False
