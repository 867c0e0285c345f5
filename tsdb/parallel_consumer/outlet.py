"""Producer: sends dead letters and requeued records.

A dead letter has the key, value and headers of its record, plus `dlq-` headers that describe the failure
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
    """A record to send. partition: that of its source record; for a dead letter see DeadLetterTopic."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Outlet(Protocol):
    """Sends records. Thread-safe."""

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        """Call on_sent exactly once, from any thread, possibly during this call: None once the record is durable, else
        SendFailed (record_too_large: this record never will be; after all other reasons the caller tries again). Must
        not raise.
        """


@runtime_checkable
class TopicOutlet(Outlet, Protocol):
    """A producer that can look up a topic."""

    def partitions_of(self, topic: str) -> int | None:
        """Partition count of the topic; None while no broker answers. Does not wait.

        Raises ConsumerError with the topic's name: topic_gone, denied, kafka.
        """


@dataclass(frozen=True, slots=True)
class Story:
    """Why a record became a dead letter. reason: exception, attempts, crashes or requeues."""

    reason: str
    error: BaseException | None
    failures: int
    crashes: int
    failed_at_ms: int


def dead_letter(topic: str, record: Record, story: Story, partition: int | None = None) -> OutRecord:
    """The dead letter of a record. partition: its target partition; None: the partition number of the record."""
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
        # Tools that read keys as bytes cannot distinguish a null key from an empty one.
        **({"null-key": 1} if record.key is None else {}),
        "stack": "".join(traceback.format_exception(error))[-STACK_CHARS_MAX:] if error else "",
    }
    kept = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    own = [(PREFIX + name, str(value).encode(errors="replace")) for name, value in told.items()]
    where = record.partition if partition is None else partition
    return OutRecord(topic, where, record.key, record.value, [*kept, *own])


def without_value(letter: OutRecord) -> OutRecord:
    """The dead letter without its value, for a broker that refuses it as too large."""
    size = str(len(letter.value or b"")).encode()
    return OutRecord(
        letter.topic, letter.partition, letter.key, None, [*letter.headers, (f"{PREFIX}value-omitted-bytes", size)]
    )


def requeued(record: Record, rounds_left: int) -> OutRecord:
    """The record again, for the end of its own partition."""
    kept = [(name, value) for name, value in record.headers if name != REQUEUE_HEADER]
    headers = [*kept, (REQUEUE_HEADER, str(rounds_left).encode())]
    return OutRecord(record.topic, record.partition, record.key, record.value, headers)


def rounds_left(record: Record, requeues_max: int) -> int:
    """Remaining requeues of the record. A header that is not a number counts as 0."""
    for name, value in record.headers:
        if name == REQUEUE_HEADER:
            return int(value) if value.isdigit() and len(value) < 6 else 0
    return requeues_max
