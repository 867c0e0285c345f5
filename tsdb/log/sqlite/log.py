"""The log embedded in one process: uses a database file, one writer thread, and one connection per reader."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.log.append_answers import append_failures_total, wait_for_append
from tsdb.log.checks import check_partition
from tsdb.log.interface import KEYLESS, Appended, Headers, OnDone, TopicPartition, Watermarks
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import Append, FaultPlan
from tsdb.log.sqlite.arrivals import Arrivals
from tsdb.log.sqlite.coordinator import Coordinator
from tsdb.log.sqlite.database import connect
from tsdb.log.sqlite.group import SqliteGroup
from tsdb.log.sqlite.queries import SqliteQueries
from tsdb.log.sqlite.reader import SqliteReader
from tsdb.log.sqlite.writer import LogWriter
from tsdb.log.topics import RECORD_BYTES_MAX
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest, TsdbError


class SqliteLog:
    """Implements Log. Groups exist only within this object. faults: injected by tests; none by default."""

    def __init__(
        self, path: Path, prefix: str, settings: LogSettings, clock: Clock, faults: FaultPlan | None = None
    ) -> None:
        self._path = path
        self._prefix = prefix
        self._settings = settings
        self._clock = clock
        self._arrivals = Arrivals(
            lambda: connect(path), lambda: self._writer.look_for_others(settings.request_timeout_s)
        )
        self._queries = SqliteQueries(path, prefix)
        self._writer = LogWriter(path, settings, clock, faults or FaultPlan(), self._arrivals)
        if settings.embedded_claim:
            try:
                self._writer.claim()
            except BaseException:
                self._queries.close()
                raise
        self._lock = threading.Lock()  # Guards the coordinators.
        self._coordinators: dict[str, Coordinator] = {}

    def topic_id(self, topic: str) -> str:
        return self._queries.topic_id(topic)

    def partitions(self, topic: str) -> int:
        return self._queries.partitions(topic)

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_done: OnDone,
    ) -> None:
        topic_id, partitions = self._queries.first_seen(topic)
        check_partition(topic, partition, partitions)
        kept = () if topic in KEYLESS else tuple(headers)  # No reader returns headers of such topics.
        weight = len(value or b"") + len(key or b"")
        if weight > RECORD_BYTES_MAX:
            raise _count(
                InvalidRequest(
                    f"topic {topic}, partition {partition}: record of {weight} bytes; the limit is {RECORD_BYTES_MAX}",
                    reason="record_too_large",
                )
            )
        full_name = self._prefix + topic
        self._writer.put(Append(full_name, topic_id, partition, value, key, kept, timestamp_ms, on_done, weight))

    def append_sync(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Appended:
        return wait_for_append(
            lambda on_done: self.append(
                topic, partition, value, key=key, headers=headers, timestamp_ms=timestamp_ms, on_done=on_done
            ),
            timeout_s,
        )

    def flush(self, timeout_s: float) -> None:
        self._writer.flush(timeout_s)

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        return self._queries.watermarks(topic, partitions)

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return {partition: marks.high for partition, marks in self.watermarks(topic, partitions).items()}

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        return self._queries.offsets_for_times(topic, times_ms)

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> SqliteReader:
        for topic, partition in starts:
            check_partition(topic, partition, self._queries.partitions(topic))
        reader = SqliteReader(self._path, self._prefix, self._arrivals, self._queries.topic_id, linger_s)
        reader.assign(starts)
        return reader

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> SqliteGroup:
        coordinator = self._coordinator(group_id)
        return SqliteGroup(
            self._prefix + group_id,
            self._prefix,
            coordinator,
            SqliteReader(self._path, self._prefix, self._arrivals, self._queries.topic_id, linger_s),
            self._queries,
            self._writer,
            self._settings.request_timeout_s,
            "-".join(filter(None, (self._settings.client_id, name))),
        )

    def members(self, group_id: str) -> list[str]:
        return self._coordinator(group_id).clients()

    def maintain(self) -> None:
        """Run retention and compaction now. The writer also runs them every settings.embedded_maintain_s."""
        self._writer.maintain(self._settings.request_timeout_s)

    def stalled(self) -> str:
        return ""  # The writer's failure ends the process; a file needs no other client.

    def close(self) -> None:
        self._writer.close()
        self._arrivals.close()
        self._queries.close()

    def _coordinator(self, group_id: str) -> Coordinator:
        with self._lock:
            return self._coordinators.setdefault(group_id, Coordinator(self._clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _count(error: TsdbError) -> TsdbError:
    append_failures_total.labels(error.reason).inc()
    return error
