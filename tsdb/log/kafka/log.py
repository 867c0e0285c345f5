"""The log on Kafka: one producer, one admin client and one lookup consumer per log; one consumer per reader.

Closed readers may leave their consumers to later ones (LogSettings.idle_readers_max)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tsdb.log.interface import Appended, Headers, OnDone, TopicPartition, Watermarks
from tsdb.log.kafka import config
from tsdb.log.kafka.appender import KafkaAppender
from tsdb.log.kafka.errors import translate_kafka_errors
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.group import KafkaGroup, group_config
from tsdb.log.kafka.idle_consumers import IdleConsumers, Kind
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.reader import KafkaReader
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.log.settings import LogSettings
from tsdb.log.waiting import wait_for_append
from tsdb.model.clock import Clock


class KafkaLog:
    """Log. `prefix` is put before every topic and group name."""

    def __init__(self, bootstrap: str, prefix: str, settings: LogSettings, clock: Clock) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._settings = settings
        self._admin = AdminClient(config.common(bootstrap, settings))
        self._guard = TopicGuard(self._admin, self._kafka_name, clock, settings.request_timeout_s)
        self._offsets = KafkaOffsets(
            lambda: self._consumer((None, 0.0)), self._kafka_name, clock, settings.request_timeout_s
        )
        self._idle = IdleConsumers(self._consumer, settings.idle_readers_max)
        self._lock = threading.Lock()  # Guards the creation and the close of the appender.
        self._appender: KafkaAppender | None = None
        self._closed = False

    def topic_id(self, topic: str) -> str:
        return self._guard.topic_id(topic)

    def partitions(self, topic: str) -> int:
        return self._guard.partitions(topic)

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_done: OnDone,
    ) -> None:
        self._guard.check(topic)
        self._guard.check_partition(topic, partition)
        self._producing().append(
            self._kafka_name(topic),
            partition,
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            on_done=on_done,
        )

    def append_sync(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Appended:
        return wait_for_append(
            lambda on_done: self.append(
                topic, partition, value, key=key, headers=headers, timestamp_ms=timestamp_ms, on_done=on_done
            ),
            timeout_s,
        )

    def flush(self, timeout_s: float) -> None:
        if self._appender is not None:
            self._appender.flush(timeout_s)

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        self._check(topic, partitions)
        return self._offsets.watermarks(topic, list(partitions))

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        self._check(topic, list(times_ms))
        return self._offsets.for_times(topic, times_ms)

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> KafkaReader:
        kind = (prefetch_bytes, linger_s)
        consumer = self._idle.take(kind)
        fetch = Fetch(consumer, self._guard, self._offsets, self._prefix)
        return KafkaReader(fetch, self._guard, starts, partial(self._idle.give_back, kind, consumer))

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> KafkaGroup:
        settings = replace(self._settings, client_id="-".join(filter(None, (self._settings.client_id, name))))
        consumer = Consumer(
            config.consumer(self._bootstrap, settings, group_id=self._prefix + group_id)
            | group_config(settings.group_session_s)
            | config.lingering(linger_s)
        )
        fetch = Fetch(consumer, self._guard, self._offsets, self._prefix)
        return KafkaGroup(fetch, self._guard, self._prefix, settings.request_timeout_s)

    def members(self, group_id: str) -> list[str]:
        name, timeout_s = self._prefix + group_id, self._settings.request_timeout_s
        with translate_kafka_errors(f"members of group {name}"):
            asked = self._admin.describe_consumer_groups([name], request_timeout=timeout_s)
            return [member.client_id for member in asked[name].result().members]

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._appender is not None:
            self._appender.close()
        self._idle.close()
        self._offsets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _kafka_name(self, topic: str) -> str:
        return self._prefix + topic

    def _check(self, topic: str, partitions: Sequence[int]) -> None:
        self._guard.check(topic)
        for partition in partitions:
            self._guard.check_partition(topic, partition)

    def _producing(self) -> KafkaAppender:
        # Created at the first append, because most processes only read.
        if self._appender is None:
            with self._lock:
                if self._appender is None:
                    self._appender = KafkaAppender(config.producer(self._bootstrap, self._settings))
        return self._appender

    def _consumer(self, kind: Kind) -> Consumer:
        prefetch_bytes, linger_s = kind
        # The library requires a group id, but nothing is subscribed or committed under it.
        name = f"{self._settings.client_id}-{uuid.uuid4().hex}"
        settings = config.consumer(self._bootstrap, self._settings, group_id=name, prefetch_bytes=prefetch_bytes)
        return Consumer(settings | config.lingering(linger_s))
