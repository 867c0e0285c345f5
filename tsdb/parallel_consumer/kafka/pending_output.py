"""PendingOutput: records produced by handlers whose input no commit covers yet, by partition and assignment.

Thread-safe. Output of a handler that outlives its assignment is dropped: the next owner of the partition, even the same
member, handles the record again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Position, Record, TopicPartition

Produced = Mapping[TopicPartition, Mapping[int, list[OutRecord]]]


class PendingOutput:
    """Pending output of one member. Partitions are opened when assigned, and closed when revoked or lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards all below; no other lock is taken under it.
        self._by_partition: dict[TopicPartition, dict[int, list[OutRecord]]] = {}

    def open(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Partitions were assigned: start empty."""
        with self._lock:
            self._by_partition.update({topic_partition: {} for topic_partition in topic_partitions})

    def close(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Partitions were removed: drop their output."""
        with self._lock:
            for topic_partition in topic_partitions:
                self._by_partition.pop(topic_partition, None)

    def producing(self, handler: Callable[[Record], Iterable[OutRecord]]) -> Callable[[Record], None]:
        """Wrap the handler for an executor. If a record is tried again, the output of the last attempt counts."""

        def handle(record: Record) -> None:
            with self._lock:
                # The assignment that is current when the record begins.
                output = self._by_partition.get(record.topic_partition)
            out = list(handler(record))
            if output is not None:
                with self._lock:
                    output[record.offset] = out

        return handle

    def finished(self, topic_partition: TopicPartition, at: Position, topic_id: str) -> dict[int, list[OutRecord]]:
        """Output of records that this position marks as finished, offsets ascending."""
        runs = decode_metadata(at.next_offset, at.metadata, topic_id).finished.tolist()
        with self._lock:
            output = sorted(self._by_partition.get(topic_partition, {}).items())
        return dict(_within(output, at.next_offset, runs))

    def forget(self, produced: Produced) -> None:
        """Drop output that is durable now."""
        with self._lock:
            for topic_partition, records in produced.items():
                output = self._by_partition.get(topic_partition, {})
                for offset in records:
                    output.pop(offset, None)


def _within(
    output: list[tuple[int, list[OutRecord]]], next_offset: int, runs: list[list[int]]
) -> Iterator[tuple[int, list[OutRecord]]]:
    at = 0
    for offset, records in output:
        while at < len(runs) and runs[at][1] <= offset:
            at += 1
        if offset < next_offset or (at < len(runs) and runs[at][0] <= offset):
            yield offset, records
