"""Logs for tests: opened and closed by one factory, and the waits that tests of logs share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tsdb.log.interface import KEYLESS, EndOfLog, Event, Group, Log, LogReader, LogRecord, RecordBatch
from tsdb.log.open import open_log, open_topics
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME, LOG_APPEND_TIME, TopicAdmin, topic_specs
from tsdb.model.clock import Clock

CHECK_EVERY_S, LONG_CHECK_EVERY_S = 0.02, 0.1
WITHIN_S = 120.0  # Bound of every wait; a passing test never comes near it.


class LogFactory:
    """Opens logs at one URL under one topic prefix; closes them all at its end."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.prefix = prefix
        self._stack = ExitStack()

    @property
    def is_kafka(self) -> bool:
        """Whether a real broker is behind it."""
        return self.url.startswith("kafka://")

    def open(self, settings: LogSettings | None = None, clock: Clock | None = None) -> Log:
        """A new log connection, closed at the end of the test."""
        return self._stack.enter_context(open_log(self.url, prefix=self.prefix, settings=settings, clock=clock))

    def topics(self) -> TopicAdmin:
        """A connection that creates topics, closed at the end of the test."""
        return self._stack.enter_context(open_topics(self.url, prefix=self.prefix))

    def create(self, partitions: int = 2, *, timestamp_type: str = LOG_APPEND_TIME) -> TopicAdmin:
        """Make all topics, unreplicated. With written timestamps nothing is too old to be kept."""
        admin = self.topics()
        for spec in topic_specs(partitions, replication=1, timestamp_type=timestamp_type):
            if timestamp_type == CREATE_TIME:
                spec = dataclasses.replace(spec, least={**spec.least, "retention.ms": -1})
            admin.create(spec)
        return admin

    def recreate(self, admin: TopicAdmin, topic: str, partitions: int = 2) -> None:
        """Delete a topic and make it anew."""
        admin.delete(topic)
        spec = next(spec for spec in topic_specs(partitions, replication=1) if spec.name == topic)
        assert admin.create(spec)

    def close(self) -> None:
        """Close all connections, the last opened first."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def append_all(log: Log, topic: str, partition: int, values: Sequence[bytes]) -> None:
    """Append in order and wait for all."""
    answers: list[object] = []
    for value in values:
        log.append(topic, partition, value, key=None if topic in KEYLESS else value, on_done=answers.append)
    log.flush(WITHIN_S)
    failed = [answer for answer in answers if isinstance(answer, Exception)]
    assert not failed, f"{len(failed)} of {len(values)} appends failed, first {failed[0]}"


def poll_until(
    source: LogReader | Group,
    done: Callable[[list[Event]], bool],
    *,
    within_s: float = WITHIN_S,
    into: list[Event] | None = None,
) -> list[Event]:
    """Poll until `done` holds of all events so far, which are in `into` even when a poll raises."""
    events: list[Event] = [] if into is None else into
    give_up_at = time.monotonic() + within_s
    while not done(events):
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s; got {events}"
        events += source.poll(0.1)
    return events


def records_of(events: Sequence[Event], topic: str | None = None, partition: int | None = None) -> list[LogRecord]:
    """All records, in the order read."""
    batches = [event for event in events if isinstance(event, RecordBatch)]
    return [
        batch.record(index)
        for batch in batches
        if topic in (None, batch.topic) and partition in (None, batch.partition)
        for index in range(len(batch.offsets))
    ]


def read_values(source: LogReader | Group, count: int) -> list[bytes | None]:
    """The next `count` values, and not one more."""
    values = [
        record.value for record in records_of(poll_until(source, lambda events: len(records_of(events)) >= count))
    ]
    assert len(values) == count
    return values


def read_to_end(source: LogReader | Group, partitions: int = 1) -> list[Event]:
    """All events, until each partition has reported its end once."""

    def ended(events: list[Event]) -> bool:
        return len({event.partition for event in events if isinstance(event, EndOfLog)}) == partitions

    return poll_until(source, ended)


def wait_until(
    done: Callable[[], bool], within_s: float = WITHIN_S, *, describe: Callable[[], object] = lambda: ""
) -> None:
    """Check the condition repeatedly until it holds."""
    began_at = time.monotonic()
    while not done():
        waited_s = time.monotonic() - began_at
        assert waited_s < within_s, f"not within {within_s:g} s: {describe()}"
        # Only the time between two checks: no test depends on it. A check of another process takes some ms of CPU.
        time.sleep(min(max(CHECK_EVERY_S, waited_s / 50), LONG_CHECK_EVERY_S))
