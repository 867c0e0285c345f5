"""Topics of an embedded log: described, made, deleted, trimmed; over a connection of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.log.sqlite.database import connect, find_lanes, transaction
from tsdb.log.sqlite.maintenance import trim
from tsdb.log.topics import TopicSpec, TopicState
from tsdb.model.errors import WrongTopic


class SqliteTopics:
    """TopicAdmin. Nothing is replicated, so settings about replicas are kept but mean nothing."""

    def __init__(self, path: Path, prefix: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = connect(path)
        self._prefix = prefix

    def describe(self, topic: str) -> TopicState | None:
        with transaction(self._connection, f"topic {topic}", write=False):
            lanes = find_lanes(self._connection, self._prefix + topic)
        if not lanes:
            return None
        return TopicState(lanes[0].topic_id, len(lanes), None, json.loads(lanes[0].config))

    def create(self, spec: TopicSpec) -> bool:
        name = self._prefix + spec.name
        with transaction(self._connection, f"making topic {spec.name}", write=True):
            if find_lanes(self._connection, name):
                return False
            self._connection.execute(
                "INSERT INTO topics (topic, topic_id, config) VALUES (?, ?, ?)",
                (name, uuid.uuid4().hex, json.dumps(spec.config())),
            )
            self._connection.executemany(
                "INSERT INTO lanes (topic, partition) VALUES (?, ?)",
                [(name, partition) for partition in range(spec.partitions)],
            )
        return True

    def delete(self, topic: str) -> None:
        name = self._prefix + topic
        with transaction(self._connection, f"deleting topic {topic}", write=True):
            for lane in find_lanes(self._connection, name).values():
                self._connection.execute("DELETE FROM records WHERE id >= ? AND id < ?", (lane.first_id, lane.end_id))
            for table in ("lanes", "commits", "topics"):
                self._connection.execute(f"DELETE FROM {table} WHERE topic = ?", (name,))

    def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        with transaction(self._connection, f"topic {topic}", write=False):
            lanes = find_lanes(self._connection, self._prefix + topic)
        if not lanes:
            raise WrongTopic(f"topic {topic} does not exist", reason="unknown_topic", topic=topic)
        for partition, offset in offsets.items():
            trim(self._connection, lanes[partition], offset)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
