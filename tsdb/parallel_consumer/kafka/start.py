"""StartRule: where a partition without a commit begins: at its first offset, its end, or a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.record import TopicPartition

Start = str | int | datetime

EARLIEST, LATEST, TIME = "earliest", "latest", "time"
# Milliseconds of any realistic time lie above it, seconds below: it is 1973 in ms, the year 5138 in s.
_MS_LEAST = 100_000_000_000


@dataclass(frozen=True, slots=True)
class StartRule:
    """name: earliest, latest or time. since_ms: only for `time`, ms since the epoch, UTC; the first record at or after
    it is the start."""

    name: str
    since_ms: int = 0

    @classmethod
    def of(cls, start: Start) -> StartRule:
        """Build a rule from "earliest", "latest", an aware datetime, or ms since the epoch. Raises InvalidConfig
        otherwise."""
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise InvalidConfig(
                    f"start={start.isoformat()} has no time zone; give an aware datetime", reason="setting"
                )
            return cls(TIME, round(start.timestamp() * 1000))
        if isinstance(start, int) and not isinstance(start, bool):
            if start < _MS_LEAST:
                raise InvalidConfig(
                    f"start={start} is not a time in milliseconds since the epoch; in seconds?", reason="setting"
                )
            return cls(TIME, start)
        if start in (EARLIEST, LATEST):
            return cls(str(start))
        wanted = '"earliest", "latest", an aware datetime, or milliseconds since the epoch'
        raise InvalidConfig(f"start={start!r} is no start; give {wanted}", reason="setting")

    def __str__(self) -> str:
        if self.name != TIME:
            return self.name
        return datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="milliseconds")

    def offsets(
        self, consumer: Any, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Start offset of each partition. consumer: a consumer of the client library. Raises KafkaException."""
        found: dict[TopicPartition, int] = {}
        if self.name == TIME and partitions:
            requests = [KafkaPartition(*topic_partition, self.since_ms) for topic_partition in partitions]
            for answer in consumer.offsets_for_times(requests, timeout=timeout_s):
                if answer.error is not None:
                    raise KafkaException(answer.error)
                if answer.offset >= 0:
                    found[answer.topic, answer.partition] = answer.offset
        for topic_partition in partitions:
            if topic_partition not in found:  # The partition may have no record at or after the time.
                low, high = consumer.get_watermark_offsets(KafkaPartition(*topic_partition), timeout=timeout_s)
                found[topic_partition] = low if self.name == EARLIEST else high
        return found
