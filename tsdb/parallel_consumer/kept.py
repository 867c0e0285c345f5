"""Kept: what handlers produced for records whose end no commit has told yet, by partition and assignment.

Thread-safe. A handler that outlives its assignment keeps nothing: whoever has the partition now, though it be the same
member, handles its record again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tsdb.parallel_consumer.metadata import decode_metadata
from tsdb.parallel_consumer.outlet import OutRecord
from tsdb.parallel_consumer.record import Partition, Position, Record

# By partition and offset.
Produced = Mapping[Partition, Mapping[int, list[OutRecord]]]


class Kept:
    """One member's. Partitions are opened when they are assigned, and closed when they go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards all below; a leaf.
        self._by_place: dict[Partition, dict[int, list[OutRecord]]] = {}

    def open(self, places: Collection[Partition]) -> None:
        """Assigned: nothing is kept yet."""
        with self._lock:
            self._by_place.update({place: {} for place in places})

    def close(self, places: Collection[Partition]) -> None:
        """Gone with what was kept."""
        with self._lock:
            for place in places:
                self._by_place.pop(place, None)

    def producing(self, handler: Callable[[Record], Iterable[OutRecord]]) -> Callable[[Record], None]:
        """The handler for an executor. Of a record that is tried again the last try counts."""

        def handle(record: Record) -> None:
            with self._lock:
                kept = self._by_place.get(record.place)  # Of the assignment in which it begins.
            out = list(handler(record))
            if kept is not None:
                with self._lock:
                    kept[record.offset] = out

        return handle

    def finished(self, place: Partition, at: Position, topic_id: str) -> dict[int, list[OutRecord]]:
        """What is kept of records that this position says are finished, offsets ascending."""
        runs = decode_metadata(at.next_offset, at.metadata, topic_id).finished.tolist()
        with self._lock:
            kept = sorted(self._by_place.get(place, {}).items())
        return dict(_within(kept, at.next_offset, runs))

    def forget(self, produced: Produced) -> None:
        """It is durable now."""
        with self._lock:
            for place, records in produced.items():
                kept = self._by_place.get(place, {})
                for offset in records:
                    kept.pop(offset, None)


def _within(
    kept: list[tuple[int, list[OutRecord]]], next_offset: int, runs: list[list[int]]
) -> Iterator[tuple[int, list[OutRecord]]]:
    at = 0
    for offset, records in kept:
        while at < len(runs) and runs[at][1] <= offset:
            at += 1
        if offset < next_offset or (at < len(runs) and runs[at][0] <= offset):
            yield offset, records
