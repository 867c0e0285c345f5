"""Lookups in an embedded log: reads ids, watermarks, offsets by time and commits. One connection, one query at a
time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tsdb.log.interface import Position, TopicPartition, Watermarks
from tsdb.log.sqlite.database import ERRORS, Lane, check_lane, connect, find_lanes, first_at
from tsdb.model.errors import WrongTopic
from tsdb.sqlite.database import transaction


class SqliteQueries:
    """Thread-safe. Keeps the incarnation of each topic that it saw first. `prefix` is put before topics."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._connection = connect(path)
        self._prefix = prefix
        self._lock = threading.Lock()  # Guards the connection and the fields below.
        self._topic_ids: dict[str, tuple[str, int]] = {}

    def topic_id(self, topic: str) -> str:
        """Id that the topic had first. Raises WrongTopic (unknown_topic)."""
        return self.first_seen(topic)[0]

    def partitions(self, topic: str) -> int:
        """Number of partitions that the topic had first."""
        return self.first_seen(topic)[1]

    def lanes(self, topic: str, partitions: Sequence[int]) -> dict[int, Lane]:
        """Current lanes by partition. Raises WrongTopic, InvalidRequest (unknown_partition)."""
        topic_id = self.topic_id(topic)
        with self._lock, transaction(self._connection, ERRORS, f"topic {topic}", write=False):
            lanes = find_lanes(self._connection, self._prefix + topic)
        return {partition: check_lane(topic, topic_id, partition, lanes) for partition in partitions}

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        """See Log.watermarks for the contract."""
        return {p: Watermarks(lane.low_offset, lane.next_offset) for p, lane in self.lanes(topic, partitions).items()}

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """See Log.offsets_for_times for the contract."""
        topic_id = self.topic_id(topic)
        with self._lock, transaction(self._connection, ERRORS, f"topic {topic}", write=False):
            lanes = find_lanes(self._connection, self._prefix + topic)
            return {
                partition: first_at(self._connection, check_lane(topic, topic_id, partition, lanes), ms)
                for partition, ms in times_ms.items()
            }

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """See Group.committed for the contract."""
        with self._lock, transaction(self._connection, ERRORS, f"commits of group {group_id}", write=False):
            rows = self._connection.execute(
                "SELECT topic, partition, next_offset, metadata FROM commits WHERE group_id = ?", (group_id,)
            ).fetchall()
        found = {(topic, partition): Position(offset, metadata) for topic, partition, offset, metadata in rows}
        return {(t, p): found.get((self._prefix + t, p)) for t, p in partitions}

    def close(self) -> None:
        """Close the connection; waits for a query in progress."""
        with self._lock:
            self._connection.close()

    def first_seen(self, topic: str) -> tuple[str, int]:
        """Id and number of partitions that the topic had first. Raises WrongTopic (unknown_topic)."""
        known = self._topic_ids.get(topic)  # Without the lock, which a query may hold: an append must not wait for it.
        if known is not None:
            return known
        with self._lock:
            if topic not in self._topic_ids:
                with transaction(self._connection, ERRORS, f"topic {topic}", write=False):
                    lanes = find_lanes(self._connection, self._prefix + topic)
                if not lanes:
                    raise WrongTopic(f"topic {topic} does not exist", reason="unknown_topic", topic=topic)
                self._topic_ids[topic] = (lanes[0].topic_id, len(lanes))
            return self._topic_ids[topic]
