"""Topic administration of an embedded log: describe, create, delete, trim, over a separate connection."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.log.sqlite.database import ERRORS, connect, create, find_lanes
from tsdb.log.sqlite.maintenance import trim
from tsdb.log.topics import TopicSpec, TopicState
from tsdb.model.errors import ConfigMismatch, WrongTopic
from tsdb.sqlite.database import transaction


class SqliteTopics:
    """Implements TopicAdmin. Nothing is replicated, so settings about replicas are stored but have no effect.

    The first `create` makes the database. Without a database the log has no topics.

    """

    def __init__(self, path: Path, prefix: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._prefix = prefix

    def describe(self, topic: str) -> TopicState | None:
        try:
            connection = self._connected()
        except ConfigMismatch:
            return None
        with transaction(connection, ERRORS, f"topic {topic}", write=False):
            lanes = find_lanes(connection, self._prefix + topic)
        if not lanes:
            return None
        return TopicState(lanes[0].topic_id, len(lanes), None, json.loads(lanes[0].config))

    def create(self, spec: TopicSpec) -> bool:
        name = self._prefix + spec.name
        if self._connection is None:
            self._connection = create(self._path)
        connection = self._connection
        with transaction(connection, ERRORS, f"making topic {spec.name}", write=True):
            if find_lanes(connection, name):
                return False
            connection.execute(
                "INSERT INTO topics (topic, topic_id, config) VALUES (?, ?, ?)",
                (name, uuid.uuid4().hex, json.dumps(spec.config())),
            )
            connection.executemany(
                "INSERT INTO lanes (topic, partition) VALUES (?, ?)",
                [(name, partition) for partition in range(spec.partitions)],
            )
        return True

    def delete(self, topic: str) -> None:
        name, connection = self._prefix + topic, self._connected()
        with transaction(connection, ERRORS, f"deleting topic {topic}", write=True):
            for lane in find_lanes(connection, name).values():
                connection.execute("DELETE FROM records WHERE id >= ? AND id < ?", (lane.first_id, lane.end_id))
                connection.execute("DELETE FROM dictionaries WHERE lane = ?", (lane.number,))
            for table in ("lanes", "commits", "topics"):
                connection.execute(f"DELETE FROM {table} WHERE topic = ?", (name,))

    def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        connection = self._connected()
        with transaction(connection, ERRORS, f"topic {topic}", write=False):
            lanes = find_lanes(connection, self._prefix + topic)
        if not lanes:
            raise WrongTopic(f"topic {topic} does not exist", reason="unknown_topic", topic=topic)
        for partition, offset in offsets.items():
            trim(connection, lanes[partition], offset)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path)
        return self._connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
