"""Group member over an embedded log: partitions from the coordinator, commits in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from tsdb.log.checks import check_commit, check_followers, with_followers
from tsdb.log.interface import (
    POLL_BYTES_MAX,
    POLL_RECORDS_MAX,
    Event,
    GroupListener,
    Position,
    TopicPartition,
)
from tsdb.log.sqlite.coordinator import Coordinator
from tsdb.log.sqlite.database import ERRORS
from tsdb.log.sqlite.queries import SqliteQueries
from tsdb.log.sqlite.reader import SqliteReader
from tsdb.log.sqlite.writer import LogWriter
from tsdb.sqlite.database import transaction

UPSERT = (
    "INSERT INTO commits (group_id, topic, partition, next_offset, metadata) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset, metadata = excluded.metadata"
)


class SqliteGroup:
    """Implements Group. prefix: stands before topic names; group_id already has it."""

    def __init__(
        self,
        group_id: str,
        prefix: str,
        coordinator: Coordinator,
        reader: SqliteReader,
        queries: SqliteQueries,
        writer: LogWriter,
        timeout_s: float,
        client_id: str,
    ) -> None:
        self._group_id = group_id
        self._prefix = prefix
        self._coordinator = coordinator
        self._reader = reader
        self._queries = queries
        self._writer = writer
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._listener: GroupListener | None = None
        self._topics: dict[str, int] = {}
        self._followers: Mapping[str, str] = {}
        self._number: int | None = None
        self._assigned: set[TopicPartition] = set()
        self._unassigned: frozenset[TopicPartition] = frozenset()  # Partitions whose commits could not be read yet.
        self._left = False

    def join(
        self, topics: Sequence[str], listener: GroupListener, *, followers: Mapping[str, str] | None = None
    ) -> None:
        self._followers = followers or {}
        check_followers(topics, self._followers)
        for topic in self._followers:
            self._queries.partitions(topic)  # Raises for a missing topic.
        self._topics = {topic: self._queries.partitions(topic) for topic in topics}
        self._listener = listener
        self._number = self._coordinator.join(self._topics, self._client_id, self._reader.wake)

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        before = set(self._assigned)
        self._rebalance()
        # A change of the assignment ends a poll, so the owner sees it at once; what has arrived is read nevertheless.
        wait_s = timeout_s if self._assigned == before else 0.0
        return self._reader.poll(wait_s, max_records=max_records, max_bytes=max_bytes)

    def wake(self) -> None:
        self._reader.wake()

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        assert (topic, partition) in self._assigned, f"topic {topic}, partition {partition} is not ours"
        self._reader.seek(topic, partition, next_offset)

    def pause(self, topic: str, partition: int) -> None:
        assert (topic, partition) in self._assigned, f"topic {topic}, partition {partition} is not ours"
        self._reader.release([(topic, partition)])

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    def is_spare(self) -> bool:
        return self._number is not None and not self._assigned and self._coordinator.is_spare(self._number)

    def joining_s(self) -> float:
        return 0.0  # Members of one process share at their next poll, so no wait is needed.

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        number = self._number
        check_commit(positions, self._still_ours(number, self._assigned))
        rows = [
            (self._group_id, self._prefix + topic, partition, at.next_offset, at.metadata)
            for (topic, partition), at in positions.items()
        ]

        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection, ERRORS, "commit", write=True):
                # Checked again within the transaction: a stale member must not overwrite its successor.
                check_commit(positions, self._still_ours(number, positions))
                connection.executemany(UPSERT, rows)

        if rows:
            self._writer.run(write, self._timeout_s)

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        return self._queries.committed(self._group_id, partitions)

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        try:
            self._revoke(self._assigned)
        finally:
            if self._number is not None:
                self._coordinator.leave(self._number)
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _still_ours(self, number: int | None, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        if number is None:
            return set()
        leaders = {
            partition: (self._followers.get(partition[0], partition[0]), partition[1]) for partition in partitions
        }
        return {partition for partition, leader in leaders.items() if self._coordinator.holds(number, leader)}

    def _rebalance(self) -> None:
        assert self._number is not None, "poll before join"
        assert self._listener is not None, "poll before join"
        change = self._coordinator.beat(self._number)
        if change.lost:
            gone = sorted(self._assigned)
            self._drop(gone)
            self._number = self._coordinator.join(self._topics, self._client_id, self._reader.wake)
            if gone:
                self._listener.on_lost(gone)
            return
        self._revoke(set(with_followers(change.revoke, self._followers)) & self._assigned)
        self._coordinator.released(self._number, sorted(change.revoke & self._unassigned))
        self._unassigned = (self._unassigned | change.take) - change.revoke
        fresh = with_followers(sorted(self._unassigned), self._followers)
        if fresh:
            starts = self._listener.on_assigned(self.committed(fresh))
            assert set(starts) == set(fresh), f"a start for each of {fresh}; got {dict(starts)}"
            self._reader.assign(starts)
            self._assigned.update(fresh)
            self._unassigned = frozenset()

    def _revoke(self, partitions: frozenset[TopicPartition] | set[TopicPartition]) -> None:
        going = sorted(partitions)
        if not going:
            return
        assert self._listener is not None, "partitions before join"
        try:
            self._listener.on_revoked(going)
        finally:
            self._drop(going)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.release(partitions)
        self._assigned.difference_update(partitions)
        if self._number is not None:
            self._coordinator.released(self._number, partitions)
