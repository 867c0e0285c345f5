"""LogFollower reads the log beside the stores: how far it is complete, and the samples that come for evaluated times.

It decodes each record, keeps nothing, and passes on only samples up to a given time; those of the present are later.
The ruler marks what these samples can change, so it reads from a record on at which an earlier process had settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import STATUS_UNKNOWN_VERSION, decode_records
from tsdb.log.interface import METRICS, EndOfLog, Log, LogReader, RecordBatch
from tsdb.model.errors import LostOffsets
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.rules.completeness import ReplayPosition

PREFETCH_BYTES = 8 << 20
POLLS_MAX = 50  # Polls without a pause: a long way to the end of the log must not stop the evaluations.

_records = counter("tsdb_ruler_followed_records_total", "Records of the log that the ruler has looked at.")
_lost = counter("tsdb_ruler_lost_offsets_total", "Partitions whose next record the log no longer had.")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FollowedSamples:
    """Samples of one partition, in the order of the log. offsets: int64 (n,), of their records. series_ids: uint64.
    ts_ms: int64."""

    partition: int
    offsets: NDArray[np.int64]
    series_ids: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]


class Follower(Protocol):
    """A reader of the log. One thread makes all calls; those that ask the log may raise Unavailable."""

    def follow(self, newest_ms: int) -> Iterator[FollowedSamples]:
        """Samples with times up to newest_ms in the records that have come."""

    def next_offsets(self) -> Mapping[int, int]:
        """The next record of each partition."""

    def settled_ms(self) -> int | None:
        """Broker time up to which all partitions are read; None: not known yet. `rewind` to it misses no record."""

    def rewind(self, since_ms: int) -> None:
        """Read again from the first records at this broker time on, where that is further back."""

    def ends(self) -> Mapping[int, int]:
        """The end of each partition now."""

    def close(self) -> None:
        """Release the reader of the log."""


@dataclass(slots=True)
class _Place:
    """One partition. rewound_to: it is read again, up to this offset."""

    next_offset: int
    watermark_ms: int | None = None
    at_end: bool = False
    stopped: str = ""
    rewound_to: int = 0


@dataclass(slots=True)
class LogFollower:
    """Implements Follower over a log. The first call that needs it opens the reader, at the end of the log."""

    log_: Log
    partitions: Sequence[int]
    _places: dict[int, _Place] = field(default_factory=dict)
    _reader: LogReader | None = None

    def follow(self, newest_ms: int) -> Iterator[FollowedSamples]:
        reader = self._opened()
        for _ in range(POLLS_MAX):
            try:
                events = reader.poll(0.0)
            except LostOffsets as error:
                self._start_again(reader, error)
                continue
            for event in events:
                place = self._places[event.partition]
                if isinstance(event, EndOfLog):
                    place.next_offset, place.at_end = max(place.next_offset, event.next_offset), True
                elif not place.stopped:
                    yield from self._taken(reader, place, event, newest_ms)
            if not any(isinstance(event, RecordBatch) for event in events):
                return

    def position(self, number: int) -> ReplayPosition:
        """How far a partition is read."""
        place = self._places.get(number)
        if place is None:
            return ReplayPosition(None, False)
        if place.next_offset < place.rewound_to:
            return ReplayPosition(None, False, "read again after a restart")
        return ReplayPosition(place.watermark_ms, place.at_end, place.stopped)

    def next_offsets(self) -> Mapping[int, int]:
        return {number: place.next_offset for number, place in self._places.items()}

    def settled_ms(self) -> int | None:
        times = [place.watermark_ms for place in self._places.values()]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def rewind(self, since_ms: int) -> None:
        reader = self._opened()
        found = self.log_.offsets_for_times(METRICS, dict.fromkeys(self.partitions, since_ms))
        for number, offset in found.items():
            place = self._places[number]
            if offset is not None and offset < place.next_offset:
                self._places[number] = _Place(offset, rewound_to=max(place.rewound_to, place.next_offset))
                reader.seek(METRICS, number, offset)

    def ends(self) -> Mapping[int, int]:
        return self.log_.high_watermarks(METRICS, list(self.partitions))

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _opened(self) -> LogReader:
        if self._reader is None:
            starts = self.ends()
            self._places = {number: _Place(offset) for number, offset in starts.items()}
            self._reader = self.log_.reader(
                {(METRICS, number): offset for number, offset in starts.items()}, prefetch_bytes=PREFETCH_BYTES
            )
        return self._reader

    def _start_again(self, reader: LogReader, error: LostOffsets) -> None:
        number, low = int(error.metadata["partition"]), int(error.metadata["low"])
        _lost.inc()
        log.warning("the log no longer has the next record of the ruler", partition=number, error=error.message)
        self._places[number].next_offset = low
        reader.seek(METRICS, number, low)

    def _taken(self, reader: LogReader, place: _Place, batch: RecordBatch, newest_ms: int) -> Iterator[FollowedSamples]:
        records = decode_records(batch.values, batch.value_starts)
        unknown = np.flatnonzero(records.status == STATUS_UNKNOWN_VERSION)
        if len(unknown):
            # Stores stop there too. Its samples are not known, so no later time is complete.
            place.stopped = "a record of an unknown version"
            reader.pause(METRICS, batch.partition)
            log.error("record of an unknown version: a newer writer is on the log", partition=batch.partition)
            batch = batch.first(int(unknown[0]))
            if not len(batch.offsets):
                return
            records = decode_records(batch.values, batch.value_starts)
        _records.inc(len(batch.offsets))
        place.next_offset, place.at_end = int(batch.offsets[-1]) + 1, False
        place.watermark_ms = max(int(batch.broker_ms.max()), place.watermark_ms or 0)
        wanted = np.flatnonzero(records.ts_ms <= newest_ms)
        if len(wanted):
            offsets = np.repeat(batch.offsets, np.diff(records.sample_start))
            yield FollowedSamples(batch.partition, offsets[wanted], records.series_id[wanted], records.ts_ms[wanted])
