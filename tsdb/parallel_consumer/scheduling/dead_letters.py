"""Builds dead letters and requeued records from a failed record.

A dead letter has the key, value and headers of its record, plus `dlq-` headers that describe the failure
(docs/formats/dead-letter.md).
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Record

PREFIX = "dlq-"
REQUEUE_HEADER = "requeue-ttl"
MESSAGE_CHARS_MAX = 2_000
STACK_CHARS_MAX = 8_000


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """Why a record became a dead letter. reason: exception, attempts, crashes or requeues."""

    reason: str
    error: BaseException | None
    failures: int
    crashes: int
    failed_at_ms: int


def dead_letter(topic: str, record: Record, details: FailureDetails, partition: int | None = None) -> OutRecord:
    """The dead letter of a record. partition: its target partition; None: the partition number of the record."""
    error = details.error
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp-ms": record.timestamp_ms,
        "failed-at-ms": details.failed_at_ms,
        "reason": details.reason,
        "attempts": details.failures,
        "crashes": details.crashes,
        "exception": f"{type(error).__module__}.{type(error).__qualname__}" if error else "",
        "message": str(error)[:MESSAGE_CHARS_MAX] if error else "",
        # Tools that read keys as bytes cannot distinguish a null key from an empty one.
        **({"null-key": 1} if record.key is None else {}),
        "stack": "".join(traceback.format_exception(error))[-STACK_CHARS_MAX:] if error else "",
    }
    headers = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    own = [(PREFIX + name, str(value).encode(errors="replace")) for name, value in fields.items()]
    where = record.partition if partition is None else partition
    return OutRecord(topic, where, record.key, record.value, [*headers, *own])


def without_value(record: OutRecord) -> OutRecord:
    """The dead letter without its value, for a broker that refuses it as too large."""
    size = str(len(record.value or b"")).encode()
    return OutRecord(
        record.topic, record.partition, record.key, None, [*record.headers, (f"{PREFIX}value-omitted-bytes", size)]
    )


def requeued(record: Record, rounds_left: int) -> OutRecord:
    """A copy of the record for the end of the same partition."""
    others = [(name, value) for name, value in record.headers if name != REQUEUE_HEADER]
    headers = [*others, (REQUEUE_HEADER, str(rounds_left).encode())]
    return OutRecord(record.topic, record.partition, record.key, record.value, headers)


def rounds_left(record: Record, requeues_max: int) -> int:
    """Remaining requeues of the record. A header that is not a number counts as 0."""
    for name, value in record.headers:
        if name == REQUEUE_HEADER:
            return int(value) if value.isdigit() and len(value) < 6 else 0
    return requeues_max
