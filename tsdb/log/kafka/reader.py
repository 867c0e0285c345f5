"""Reader: reads assigned partitions from given offsets on, without a group and without commits.

Consumers of closed readers are kept idle, without partitions, for later readers with the same settings.

A new consumer connects, starts threads and requests metadata before its first record comes. Tasks that read many short
stretches of the log would pay that for each stretch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException

from tsdb.log.interface import POLL_BYTES_MAX, POLL_RECORDS_MAX, Event, TopicPartition
from tsdb.log.kafka.clients import READER, STUCK, count_renewal, end_client
from tsdb.log.kafka.errors import translate_kafka_errors
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.topic_guard import TopicGuard

Kind = tuple[int | None, float]  # The settings in which readers differ: prefetch_bytes, linger_s.


class KafkaReader:
    """LogReader over a separate consumer, which has no partitions at first. make_consumer: makes another consumer in
    place of one that is stuck. on_close: takes the consumer over."""

    def __init__(
        self,
        fetch: Fetch,
        guard: TopicGuard,
        starts: Mapping[TopicPartition, int],
        make_consumer: Callable[[], Consumer],
        on_close: Callable[[Consumer], None],
    ) -> None:
        self._fetch = fetch
        self._guard = guard
        self._make_consumer = make_consumer
        self._on_close = on_close
        self._closed = False
        for topic, partition in starts:
            guard.check_partition(topic, partition)
        with translate_kafka_errors("assigning"):
            # Done in one call, because partitions that are assigned one by one would each wait for the fetch before.
            fetch.consumer.incremental_assign([fetch.kafka_partition(tp, offset) for tp, offset in starts.items()])
        fetch.own(starts)

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        if self._fetch.take_stuck():
            old = self._fetch.consumer
            count_renewal(READER, STUCK)
            self._fetch.replace(self._make_consumer())
            end_client(old.close)
        return self._fetch.poll(timeout_s, max_records, max_bytes)

    def wake(self) -> None:
        self._fetch.wake()

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self._fetch.assign((topic, partition), next_offset)

    def pause(self, topic: str, partition: int) -> None:
        self._fetch.pause((topic, partition))

    @property
    def unavailable_since_monotonic(self) -> float | None:
        return self._guard.unavailable_since_monotonic

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._on_close(self._fetch.consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class IdleConsumers:
    """Keeps at most `count`. Thread-safe."""

    def __init__(self, make: Callable[[Kind], Consumer], count: int) -> None:
        self._make = make
        self._count = count
        self._lock = threading.Lock()  # Guards the fields below; no call of a consumer is made under it.
        self._idle: list[tuple[Kind, Consumer]] = []
        self._closed = False

    def take(self, kind: Kind) -> Consumer:
        """An idle consumer of this kind, or a new one."""
        with self._lock:
            for at, (idle_kind, consumer) in enumerate(self._idle):
                if idle_kind == kind:
                    del self._idle[at]
                    return consumer
        return self._make(kind)

    def give_back(self, kind: Kind, consumer: Consumer) -> None:
        """Keep a consumer that no reader uses any more, or close it. Its fetched records are dropped."""
        try:
            consumer.unassign()
        except KafkaException:
            consumer.close()
            return
        with self._lock:
            # The newest are kept, because their kinds are in use now.
            self._idle.append((kind, consumer))
            surplus = self._idle if self._closed else self._idle[: -self._count or None]
            self._idle = self._idle[len(surplus) :]
        for _, each in surplus:
            each.close()

    def close(self) -> None:
        """Close all idle consumers, and each that is given back later."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, consumer in idle:
            consumer.close()
