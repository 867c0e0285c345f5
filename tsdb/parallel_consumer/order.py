"""Order: which records must follow one another. An order gives each record its lane; a lane runs one at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum

from tsdb.parallel_consumer.record import Record


class Place(Enum):
    """Lanes that are none."""

    FREE = "free"  # Bound to nothing: it runs as soon as there is room.
    AFTER_ALL = "after_all"  # Runs once everything before it in its partition is finished; holds nothing up behind it.


Order = Callable[[Record], Hashable]  # The lane within the record's partition, or a Place.


def by_key(record: Record) -> Hashable:
    """Records of one key follow one another; a record without a key is free."""
    return Place.FREE if record.key is None else record.key


def by_partition(record: Record) -> Hashable:
    """All records of a partition follow one another."""
    return ""


def unordered(record: Record) -> Hashable:
    """No record waits for another."""
    return Place.FREE
