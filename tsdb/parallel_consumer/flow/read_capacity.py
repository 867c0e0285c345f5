"""ReadCapacity: computes how much may be read, and which partitions use more than their share of the record and byte
bounds, so that a stuck partition leaves capacity for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.record import TopicPartition

OWN_SHARE = 0.25
# A partition is over quota once it uses this multiple of the capacity that is left for it. Several equally slow
# partitions fill the bound before any is over quota, as long as no other has less than half of its reserved share.
OVER_QUOTA_FACTOR = 3


class ReadCapacity:
    """Computes how much may be read, over all assigned partitions. Partitions over their quota, or with a full map, are
    paused and not read.
    """

    def __init__(self, partitions: Mapping[TopicPartition, PartitionState], options: Options) -> None:
        self._partitions = partitions
        self._options = options

    def records(self) -> int:
        """Number of records that may be read, of any partition.

        A partition assigned while others used the whole bound still gets its share, up to a quarter above the bound in
        total. The byte bound is as exact as the record sizes of the last arrivals predict.
        """
        records, size = self._shared()
        parts = self._read()
        if not parts:
            return records.spare
        capacity = min(records.capacity(part.unfinished) for part in parts)
        capacity = min(capacity, records.bound + records.bound // 4 - records.in_all)
        bytes_capacity = min(size.capacity(part.unfinished_bytes) for part in parts)
        largest = max(part.record_bytes for part in self._partitions.values())
        # A partition without arrivals has unknown record sizes: assume the largest.
        record_bytes = max(1, *(part.record_bytes or largest for part in parts))
        return min(capacity, -(-bytes_capacity // record_bytes))

    def half_free(self) -> bool:
        """Whether half of the bounds is free."""
        records, size = self._shared()
        parts = self._read()
        return records.half_free([part.unfinished for part in parts]) and size.half_free(
            [part.unfinished_bytes for part in parts]
        )

    def starving(self) -> list[PartitionState]:
        """Partitions that may run dry when nothing is read."""
        records, size = self._shared()
        return [
            part
            for part in self._partitions.values()
            if not (part.draining or part.full)
            and records.starves(part.unfinished)
            and size.starves(part.unfinished_bytes)
        ]

    def over_quota(self) -> list[PartitionState]:
        """Partitions being read that use most of the capacity left for others. None of them starves."""
        records, size = self._shared()
        return [
            part
            for part in self._read()
            if records.over_quota(part.unfinished) or size.over_quota(part.unfinished_bytes)
        ]

    def coming_back(self) -> list[PartitionState]:
        """Partitions paused for being over quota that have since finished half, and would not be over quota again at
        once.
        """
        halved = [
            part
            for part in self._partitions.values()
            if part.over_quota_records and part.unfinished * 2 <= part.over_quota_records
        ]
        if not halved:
            return []
        records, size = self._shared()
        return [
            part
            for part in halved
            if part.unfinished <= records.capacity(part.unfinished)
            and part.unfinished_bytes <= size.capacity(part.unfinished_bytes)
        ]

    def _shared(self) -> tuple[SharedBound, SharedBound]:
        """The shared bounds of records and of bytes."""
        parts: Collection[PartitionState] = self._partitions.values()
        records = SharedBound(self._options.records_max, [part.unfinished for part in parts])
        return records, SharedBound(self._options.bytes_max, [part.unfinished_bytes for part in parts])

    def _read(self) -> list[PartitionState]:
        return [part for part in self._partitions.values() if not (part.over_quota_records or part.full)]


class SharedBound:
    """State of one bound. used: use by each partition. own: the reserved share of each. spare: unused part of the rest.
    in_all: use by all.

    A quarter of the bound is divided into a reserved share per partition. The rest is first come, first served. So the
    total stays within the bound even if many partitions are stuck, and a healthy one always has its reserved share.
    Each partition may use at least 1, even if the bound is smaller.
    """

    def __init__(self, bound: int, used: Collection[int]) -> None:
        count = len(used)
        self.bound = max(bound, count, 1)
        self.own = self.bound if count < 2 else max(1, int(self.bound * OWN_SHARE) // count)
        # Clamped, because more may have arrived than was requested, or before other partitions were assigned.
        self.spare = max(0, self.bound - self._reserved(used))
        self.in_all = sum(used)

    def capacity(self, used: int) -> int:
        """How much more a partition may use."""
        return self.spare + max(0, self.own - used)

    def over_quota(self, used: int) -> bool:
        """Whether a partition uses most of the capacity that is left for others."""
        return used >= OVER_QUOTA_FACTOR * self.capacity(used)

    def starves(self, used: int) -> bool:
        """Whether it uses so little of its reserved share that it may run dry when nothing is read."""
        return used * 2 < self.own

    def half_free(self, used: Collection[int]) -> bool:
        """Whether these partitions use less than half of their reserved and spare capacity."""
        return sum(used) * 2 < self._reserved(used) + self.spare

    def _reserved(self, used: Iterable[int]) -> int:
        return sum(max(one, self.own) for one in used)
