"""Outlet: where dead letters and requeued records are sent, and what they carry.

A dead letter has the key, value and headers of its record, and the story in headers of its own
(docs/formats/dead-letter.md).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tsdb.parallel_consumer.errors import ConsumerError
from tsdb.parallel_consumer.record import Headers, Record

PREFIX = "dlq-"
REQUEUE_HEADER = "requeue-ttl"
MESSAGE_CHARS_MAX = 2_000
STACK_CHARS_MAX = 8_000

OnSent = Callable[[ConsumerError | None], None]


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to send. partition: that of the record it came from; of a dead letter see DeadLetterTopic."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Outlet(Protocol):
    """Sends records. Thread-safe."""

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        """on_sent is called exactly once, from any thread, also during this call: None once the record is durable, else
        SendFailed (record_too_large: it never will be as it is; all else is tried again). Must not raise.
        """


@runtime_checkable
class TopicOutlet(Outlet, Protocol):
    """An outlet that can look for a topic."""

    def partitions_of(self, topic: str) -> int | None:
        """How many it has; None while nothing answers. Does not wait.

        Raises ConsumerError, naming the topic: topic_gone, denied, kafka.
        """


@dataclass(frozen=True, slots=True)
class Story:
    """Why a record was given up. reason: exception, attempts, crashes or requeues."""

    reason: str
    error: BaseException | None
    failures: int
    crashes: int
    failed_at_ms: int


def dead_letter(topic: str, record: Record, story: Story, partition: int | None = None) -> OutRecord:
    """The record with its story. partition: where it goes; None: where the record was."""
    error = story.error
    told: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp-ms": record.timestamp_ms,
        "failed-at-ms": story.failed_at_ms,
        "reason": story.reason,
        "attempts": story.failures,
        "crashes": story.crashes,
        "exception": f"{type(error).__module__}.{type(error).__qualname__}" if error else "",
        "message": str(error)[:MESSAGE_CHARS_MAX] if error else "",
        **({"null-key": 1} if record.key is None else {}),  # Tools that read keys as bytes cannot tell it from none.
        "stack": "".join(traceback.format_exception(error))[-STACK_CHARS_MAX:] if error else "",
    }
    kept = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    own = [(PREFIX + name, str(value).encode(errors="replace")) for name, value in told.items()]
    where = record.partition if partition is None else partition
    return OutRecord(topic, where, record.key, record.value, [*kept, *own])


def without_value(letter: OutRecord) -> OutRecord:
    """The letter for a broker that finds it too large: where the record was and what befell it stay readable."""
    size = str(len(letter.value or b"")).encode()
    return OutRecord(
        letter.topic, letter.partition, letter.key, None, [*letter.headers, (f"{PREFIX}value-omitted-bytes", size)]
    )


def requeued(record: Record, rounds_left: int) -> OutRecord:
    """The record once more, for the end of its own partition."""
    kept = [(name, value) for name, value in record.headers if name != REQUEUE_HEADER]
    headers = [*kept, (REQUEUE_HEADER, str(rounds_left).encode())]
    return OutRecord(record.topic, record.partition, record.key, record.value, headers)


def rounds_left(record: Record, requeues_max: int) -> int:
    """How often the record may still go round; a header that is no number counts as none left."""
    for name, value in record.headers:
        if name == REQUEUE_HEADER:
            return int(value) if value.isdigit() and len(value) < 6 else 0
    return requeues_max
