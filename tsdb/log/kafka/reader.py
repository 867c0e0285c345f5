"""Reader: assigned partitions from given offsets on; no group, nothing committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer

from tsdb.log.interface import POLL_BYTES_MAX, POLL_RECORDS_MAX, Event, TopicPartition
from tsdb.log.kafka.clients import READER, STUCK, count_renewal, end_client
from tsdb.log.kafka.errors import translate_kafka_errors
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.topic_guard import TopicGuard


class KafkaReader:
    """LogReader over a separate consumer, without partitions at first. make_consumer: another one, in place of one that
    is stuck. on_close: takes the consumer over."""

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
            # All in one call: assigned one by one, each partition would wait for the fetch before it.
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

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self._fetch.assign((topic, partition), next_offset)

    def pause(self, topic: str, partition: int) -> None:
        self._fetch.pause((topic, partition))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return self._fetch.high_watermarks()

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
