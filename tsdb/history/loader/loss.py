"""Loss: finds the sample time that may be lost with a record that cannot be loaded. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.codec.chunk.key import ChunkKey, HoleKey, decode_key
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.log.interface import CHUNKS
from tsdb.model.errors import CorruptData
from tsdb.model.time_set import TimeSet
from tsdb.parallel_consumer import Record


@dataclass(frozen=True, slots=True)
class Loss:
    """Sample time [start_ms, end_ms) of a pack. pack_id 0: of the whole partition."""

    pack_id: int
    start_ms: int
    end_ms: int

    def hole(self, partition: int, reason: str, record_offset: int) -> HoleRecord:
        """The loss as a hole of history."""
        return HoleRecord(partition, self.pack_id, self.start_ms, self.end_ms, reason, record_offset)

    def key(self, record_offset: int) -> HoleKey:
        """The key of that hole on `chunks`. A null record with this key removes the hole."""
        return HoleKey(self.pack_id, self.start_ms, self.end_ms, record_offset)


def loss_of(record: Record, time_set: TimeSet) -> Loss:
    """The loss of a record of `chunks` or `series`."""
    return loss_at(record.key if record.topic == CHUNKS else None, record.timestamp_ms, time_set)


def loss_at(key: bytes | None, broker_ms: int, time_set: TimeSet) -> Loss:
    """Pack and window of the chunk with this key. Without a readable chunk key: all times that the broker time
    allows."""
    try:
        found = decode_key(key or b"")
    except CorruptData:
        found = None
    if isinstance(found, ChunkKey):
        return Loss(found.pack_id, found.window_start_ms, found.window_start_ms + time_set.window_ms)
    return Loss(0, broker_ms - time_set.accept_past_ms, broker_ms + time_set.ahead_ms)
