"""Room: how much may be read, and which partitions stand in the way of another, as the bounds of records and bytes are
shared among them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.record import Partition
from tsdb.parallel_consumer.sharing import Sharing


class Room:
    """Of all partitions that are ours. Those that are set aside, or whose map is full, are not read."""

    def __init__(self, partitions: Mapping[Partition, PartitionWork], options: Options) -> None:
        self._partitions = partitions
        self._options = options

    def records(self) -> int:
        """How many may come, whatever partitions they are of.

        A partition that came while others held everything gets its part even so, up to a quarter more in all. Bytes are
        as exact as the sizes of what came last foretell.
        """
        records, size = self._shared()
        parts = self._read()
        if not parts:
            return records.spare
        room = min(records.room(part.unfinished) for part in parts)
        room = min(room, records.bound + records.bound // 4 - records.in_all)
        bytes_room = min(size.room(part.unfinished_bytes) for part in parts)
        largest = max(part.record_bytes for part in self._partitions.values())
        # Of one of which nothing came yet nothing is known: they may be as large as any.
        record_bytes = max(1, *(part.record_bytes or largest for part in parts))
        return min(room, -(-bytes_room // record_bytes))

    def half_free(self) -> bool:
        """Whether half of what may be held is free."""
        records, size = self._shared()
        parts = self._read()
        return records.half_free([part.unfinished for part in parts]) and size.half_free(
            [part.unfinished_bytes for part in parts]
        )

    def starving(self) -> list[PartitionWork]:
        """Those that may run dry when nothing is read."""
        records, size = self._shared()
        return [
            part
            for part in self._partitions.values()
            if not (part.draining or part.full)
            and records.starves(part.unfinished)
            and size.starves(part.unfinished_bytes)
        ]

    def crowding(self) -> list[PartitionWork]:
        """Those that are read and take most of what others could get. None of them starves."""
        records, size = self._shared()
        return [part for part in self._read() if records.crowds(part.unfinished) or size.crowds(part.unfinished_bytes)]

    def coming_back(self) -> list[PartitionWork]:
        """Those set aside that have finished half since, and would not crowd the others at once again."""
        halved = [part for part in self._partitions.values() if part.aside and part.unfinished * 2 <= part.aside]
        if not halved:
            return []
        records, size = self._shared()
        return [
            part
            for part in halved
            if part.unfinished <= records.room(part.unfinished)
            and part.unfinished_bytes <= size.room(part.unfinished_bytes)
        ]

    def _shared(self) -> tuple[Sharing, Sharing]:
        """Records and bytes."""
        parts: Collection[PartitionWork] = self._partitions.values()
        records = Sharing(self._options.records_max, [part.unfinished for part in parts])
        return records, Sharing(self._options.bytes_max, [part.unfinished_bytes for part in parts])

    def _read(self) -> list[PartitionWork]:
        return [part for part in self._partitions.values() if not (part.aside or part.full)]
