"""ReadCapacity: how much may be read, and which partitions use more than their quota of the record and byte bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tsdb.parallel_consumer.flow.shared_bound import SharedBound
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.record import TopicPartition


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
