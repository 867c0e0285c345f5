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

    def hole(self, record: Record, reason: str) -> HoleRecord:
        """The loss as a hole of history."""
        return HoleRecord(record.partition, self.pack_id, self.start_ms, self.end_ms, reason, record.offset)

    def key(self, record_offset: int) -> HoleKey:
        """The key of that hole on `chunks`. A null record with this key removes the hole."""
        return HoleKey(self.pack_id, self.start_ms, self.end_ms, record_offset)


def loss_of(record: Record, time_set: TimeSet) -> Loss:
    """Pack and window of a chunk. For a record without a readable chunk key: all times that its broker time allows."""
    if record.topic == CHUNKS:
        try:
            key = decode_key(record.key or b"")
        except CorruptData:
            key = None
        if isinstance(key, ChunkKey):
            return Loss(key.pack_id, key.window_start_ms, key.window_start_ms + time_set.window_ms)
    return Loss(0, record.timestamp_ms - time_set.accept_past_ms, record.timestamp_ms + time_set.ahead_ms)
