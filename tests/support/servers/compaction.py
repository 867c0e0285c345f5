"""Compaction at once, of topics that are compacted by key: on a real broker, and in an embedded log."""

from __future__ import annotations

import dataclasses

from support.servers.logs import LogFactory, read_to_end, records_of, wait_until
from tsdb.log.interface import CHUNKS, SERIES, Log
from tsdb.log.sqlite.log import SqliteLog
from tsdb.log.topics import CREATE_TIME, topic_specs

COMPACTED = (CHUNKS, SERIES)
WITHIN_S = 60.0


def make_compacting_topics(logs: LogFactory, partitions: int) -> None:
    """Settings of all topics. Broker times are as written, and compacted topics have small segments that are compacted
    at once.
    """
    admin = logs.topics()
    for spec in topic_specs(partitions, replication=1, timestamp_type=CREATE_TIME):
        least = {**spec.least, "retention.ms": -1}
        exact = dict(spec.exact)
        if spec.name in COMPACTED:
            least |= {"min.compaction.lag.ms": 0, "max.compaction.lag.ms": 1000, "segment.ms": 1000}
            exact["min.cleanable.dirty.ratio"] = "0.01"
        assert admin.create(dataclasses.replace(spec, exact=exact, least=least))


def compact(log: Log, partitions: int) -> dict[str, tuple[int, int]]:
    """Until no record is left that a later one replaced; by topic, how many were ever appended and how many are left.

    Records are repeated to close segments, which changes nothing: a topic may hold any record twice.
    """
    ends = {topic: log.watermarks(topic, range(partitions)) for topic in COMPACTED}

    def done() -> bool:
        for topic in COMPACTED:
            _repeat_last(log, topic, partitions)
        if isinstance(log, SqliteLog):
            log.maintain()
        return all(
            _replaced(log, topic, partition, ends[topic][partition].high) == 0
            for topic in COMPACTED
            for partition in range(partitions)
        )

    wait_until(done, WITHIN_S)
    return {topic: _sizes(log, topic, partitions) for topic in COMPACTED}


def _keys(log: Log, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    with log.reader({(topic, partition): 0}) as reader:
        return [(record.offset, record.key) for record in records_of(read_to_end(reader))]


def _sizes(log: Log, topic: str, partitions: int) -> tuple[int, int]:
    appended = sum(marks.high for marks in log.watermarks(topic, range(partitions)).values())
    return appended, sum(len(_keys(log, topic, partition)) for partition in range(partitions))


def _replaced(log: Log, topic: str, partition: int, end: int) -> int:
    keys = [key for offset, key in _keys(log, topic, partition) if offset < end]
    return len(keys) - len(set(keys))


def _repeat_last(log: Log, topic: str, partitions: int) -> None:
    for partition in range(partitions):
        with log.reader({(topic, partition): 0}) as reader:
            last = records_of(read_to_end(reader))[-1]
        log.append_sync(topic, partition, last.value, key=last.key)
