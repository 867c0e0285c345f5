"""Which records of `chunks` and `series` must follow one another: those of one pack, and progress markers after all."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tsdb.codec.chunk_key import ProgressKey, WindowKey, decode_key
from tsdb.codec.chunk_marker import decode_progress_marker
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import TsdbError
from tsdb.parallel_consumer import Record, SpecialLane, TopicPartition

Positions = Callable[
    [TopicPartition], int | None
]  # Everything of a partition below it is finished; None: it is not ours.


def lane_of(record: Record) -> Hashable:
    """The pack of a chunk or hole; the key itself of all else that has an order."""
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
    """Whether `series` has passed what a progress marker states. True for one that cannot be read: it is no marker."""
    try:
        marker = decode_progress_marker(record.value or b"")
    except TsdbError:
        return True
    passed = positions((SERIES, record.partition))
    return passed is not None and passed >= marker.series_end_offset
