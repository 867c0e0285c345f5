"""Lanes of `chunks` and `series`: records of one pack keep their order; a progress marker comes after all before it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tsdb.codec.chunk.key import ProgressKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import decode_progress_marker
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import TsdbError
from tsdb.parallel_consumer import Record, SpecialLane, TopicPartition

Positions = Callable[
    [TopicPartition], int | None
]  # Offset below which all records of a partition are finished; None: the partition is not assigned here.


def lane_of(record: Record) -> Hashable:
    """The lane of a record: the pack of a chunk or hole, or the key of another ordered record."""
    if record.topic != CHUNKS:
        return SpecialLane.UNORDERED if record.key is None else record.key
    try:
        key = decode_key(record.key or b"")
    except TsdbError:
        return record.key or b""
    if isinstance(key, ProgressKey):
        return SpecialLane.BARRIER
    return SpecialLane.UNORDERED if isinstance(key, WindowKey) else key.pack_id


def marker_is_due(record: Record, positions: Positions) -> bool:
    """Whether `series` is loaded up to a marker's series_end_offset. True for a record that is not a valid marker."""
    try:
        marker = decode_progress_marker(record.value or b"")
    except TsdbError:
        return True
    passed = positions((SERIES, record.partition))
    return passed is not None and passed >= marker.series_end_offset
