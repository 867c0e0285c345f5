"""Producer: sends dead letters, requeued records and diverted records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tsdb.parallel_consumer.errors import ConsumerError
from tsdb.parallel_consumer.record import Headers

OnSent = Callable[[ConsumerError | None], None]


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to send. partition: the partition of its source record; for a dead letter see DeadLetterTopic."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Producer(Protocol):
    """Sends records to topics. Thread-safe."""

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        """Call on_sent exactly once, from any thread, possibly during this call: None once the record is durable, else
        SendFailed (record_too_large: this record never will be; after all other reasons the caller tries again). Must
        not raise.
        """


@runtime_checkable
class TopicProducer(Producer, Protocol):
    """A producer that can look up a topic."""

    def partitions_of(self, topic: str) -> int | None:
        """Partition count of the topic; None while no broker answers. Does not wait.

        Raises ConsumerError with the topic's name: topic_gone, denied, kafka.
        """
