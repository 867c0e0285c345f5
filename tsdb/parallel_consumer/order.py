"""Order: which records must follow one another. An order gives each record a lane; a lane runs one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum

from tsdb.parallel_consumer.record import Record


class SpecialLane(Enum):
    """Lane of records that wait for no other record of their key."""

    UNORDERED = "unordered"  # Runs as soon as a slot is free.
    # Runs once every record before it in the partition is finished. Records behind it do not wait.
    BARRIER = "barrier"


Order = Callable[[Record], Hashable]  # Returns the lane within the record's partition, or a SpecialLane.


def by_key(record: Record) -> Hashable:
    """Records of one key follow one another; a record without a key is unordered."""
    return SpecialLane.UNORDERED if record.key is None else record.key


def by_partition(record: Record) -> Hashable:
    """All records of a partition follow one another."""
    return ""


def unordered(record: Record) -> Hashable:
    """No record waits for another."""
    return SpecialLane.UNORDERED
