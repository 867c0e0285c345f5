"""Wait records: copies of records in a compacted topic, until the records are finished. Pure.

Layout: docs/formats/wait-record.md. The key depends only on the origin of the record, so a repeated copy replaces the
first one, and one null record removes both.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from tsdb.parallel_consumer.errors import ConsumerError
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Record

PREFIX = "wait-"
# UUID namespace of our keys. A change of it orphans stored copies.
NAMESPACE = uuid.UUID("6e1f6d1c-64f0-5a0e-9d0a-0f6f3f0b7c11")


class WaitRecordRefused(ConsumerError):
    """A record of the wait topic that is damaged or not a wait record."""

    default_reason = "malformed"


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """A copy that waits. record: as it was consumed. expires_at_ms: it becomes a dead letter from then on, ms since
    epoch UTC.
    """

    key: bytes
    record: Record
    prepared_at_ms: int
    expires_at_ms: int


def wait_key(topic_id: str, record: Record) -> bytes:
    """UUID (version 5) of the record's offset in this incarnation of its topic, as 36 characters."""
    return str(uuid.uuid5(NAMESPACE, f"{topic_id}/{record.topic}/{record.partition}/{record.offset}")).encode()


def wait_copy(topic: str, key: bytes, record: Record, prepared_at_ms: int, expires_at_ms: int) -> OutRecord:
    """The copy for the wait topic, in the partition of the same number."""
    fields: dict[str, bytes] = {
        "topic": record.topic.encode(),
        "partition": b"%d" % record.partition,
        "offset": b"%d" % record.offset,
        "timestamp-ms": b"%d" % record.timestamp_ms,
        "prepared-at-ms": b"%d" % prepared_at_ms,
        "expires-at-ms": b"%d" % expires_at_ms,
    }
    if record.key is not None:
        fields["key"] = record.key
    if record.value is None:
        fields["null-value"] = b"1"  # A copy with a null value would remove itself.
    headers = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    own = [(PREFIX + name, value) for name, value in fields.items()]
    return OutRecord(topic, record.partition, key, record.value or b"", [*headers, *own])


def null_record(topic: str, partition: int, key: bytes) -> OutRecord:
    """The record that ends the copy of a key."""
    return OutRecord(topic, partition, key, None, ())


def read_wait_record(copy: Record) -> WaitRecord:
    """Inverse of wait_copy. Raises WaitRecordRefused (malformed)."""
    fields = {name.removeprefix(PREFIX): value for name, value in copy.headers if name.startswith(PREFIX)}
    location = f"topic {copy.topic}, partition {copy.partition}, offset {copy.offset}"
    if copy.key is None or copy.value is None:
        raise WaitRecordRefused(f"{location}: a wait record has a key and a value")
    try:
        numbers = [_number(fields[name]) for name in ("partition", "offset", "timestamp-ms")]
        prepared_at_ms, expires_at_ms = (_number(fields[name]) for name in ("prepared-at-ms", "expires-at-ms"))
        topic = fields["topic"].decode()
    except (KeyError, ValueError) as error:
        raise WaitRecordRefused(f"{location}: not a wait record: {error!r}") from error
    value = None if "null-value" in fields else copy.value
    headers = [(name, data) for name, data in copy.headers if not name.startswith(PREFIX)]
    partition, offset, timestamp_ms = numbers
    record = Record(topic, partition, offset, fields.get("key"), value, timestamp_ms, headers)
    return WaitRecord(copy.key, record, prepared_at_ms, expires_at_ms)


def _number(data: bytes) -> int:
    digits = data[1:] if data[:1] == b"-" else data  # A record without a timestamp has -1.
    if not digits.isdigit() or len(digits) > 19:
        raise ValueError(f"{data[:32]!r} is no number")
    return int(data)
