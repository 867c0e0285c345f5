"""The log on Kafka: uses one producer, one admin client and one lookup consumer per log, and one consumer per reader.

Closed readers may leave their consumers to later ones (LogSettings.idle_readers_max).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there, not marked as exported
    ConsumerGroupDescription,
)

from tsdb.kafka_clients import new_admin, new_consumer
from tsdb.log.append_answers import wait_for_append
from tsdb.log.interface import Appended, Headers, OnDone, TopicPartition, Watermarks
from tsdb.log.kafka import config
from tsdb.log.kafka.appender import KafkaAppender
from tsdb.log.kafka.clients import ADMIN, GRACE_S, Renewed, answer_of
from tsdb.log.kafka.errors import translate_kafka_errors
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.group import KafkaGroup, group_config
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.reader import IdleConsumers, KafkaReader, Kind
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.log.kafka.watch import FetchWatch, GroupState, LogWatch, Watched
from tsdb.log.settings import LogSettings
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable

REBALANCING = frozenset({ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING})

GROUP_TIMEOUT_S = 3.0  # Bound of a request of the watch, which repeats it.


class KafkaLog:
    """Log. `prefix` is put before every topic and group name."""

    def __init__(self, bootstrap: str, prefix: str, settings: LogSettings, clock: Clock) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._settings = settings
        self._admin = Renewed(ADMIN, lambda: new_admin(config.common(bootstrap, settings)), clock)
        self._clock = clock
        self._watch = LogWatch()
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

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        self._check(topic, partitions)
        return self._offsets.high_watermarks(topic, list(partitions))

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        self._check(topic, list(times_ms))
        return self._offsets.for_times(topic, times_ms)

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> KafkaReader:
        kind = (prefetch_bytes, linger_s)
        fetch = Fetch(self._idle.take(kind), self._guard, self._offsets, self._prefix, self._clock)
        watched = FetchWatch(fetch, self._offsets, self._clock)

        def on_close(consumer: Consumer) -> None:
            self._watch.remove(watched)
            self._idle.give_back(kind, consumer)

        reader = KafkaReader(fetch, self._guard, starts, partial(self._consumer, kind), on_close)
        self._watch.add(watched)
        return reader

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> KafkaGroup:
        settings = replace(self._settings, client_id="-".join(filter(None, (self._settings.client_id, name))))

        def make_consumer() -> Consumer:
            return new_consumer(
                config.consumer(self._bootstrap, settings, group_id=self._prefix + group_id)
                | group_config(settings.group_session_s)
                | config.lingering(linger_s)
            )

        fetch = Fetch(make_consumer(), self._guard, self._offsets, self._prefix, self._clock)
        watched: list[Watched] = [FetchWatch(fetch, self._offsets, self._clock)]

        def on_leave() -> None:
            for one in watched:
                self._watch.remove(one)

        group = KafkaGroup(
            fetch,
            self._guard,
            self._prefix,
            settings.request_timeout_s,
            self._clock,
            make_consumer,
            partial(self._group_state, group_id),
            on_leave,
        )
        watched.append(group)
        for one in watched:
            self._watch.add(one)
        return group

    def members(self, group_id: str) -> list[str]:
        return [member.client_id for member in self._describe_group(group_id, self._settings.request_timeout_s).members]

    def stalled(self) -> str:
        return self._watch.stalled()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._watch.close()
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
                    if self._closed:
                        raise Unavailable("the log is closed", reason="log_closed")
                    appender = KafkaAppender(
                        config.producer(self._bootstrap, self._settings), self._settings.delivery_timeout_s, self._clock
                    )
                    self._watch.add(appender)
                    self._appender = appender
        return self._appender

    def _group_state(self, group_id: str) -> GroupState:
        group = self._describe_group(group_id, GROUP_TIMEOUT_S)
        assigned = [
            frozenset(
                (place.topic.removeprefix(self._prefix), place.partition)
                for place in (member.assignment.topic_partitions if member.assignment else ())
            )
            for member in group.members
        ]
        return GroupState(group.state not in REBALANCING, assigned)

    def _describe_group(self, group_id: str, timeout_s: float) -> ConsumerGroupDescription:
        # A lookup comes first, because it raises while no broker answers: librdkafka 2.16 ended the process by an
        # assertion (rd_kafka_enq_once_del_source_return) when requests about groups timed out during an outage.
        topic = self._guard.any_topic()
        if topic is not None:
            self._offsets.high_watermarks(topic, [0])
        name = self._prefix + group_id
        place, admin = f"members of group {name}", self._admin.get()
        try:
            with translate_kafka_errors(place):
                answer = admin.describe_consumer_groups([name], request_timeout=timeout_s)[name]
            group: ConsumerGroupDescription = answer_of(answer, timeout_s + GRACE_S, place)
        except Unavailable as error:
            self._admin.failed(admin, hung=error.reason == "timeout")
            raise
        self._admin.answered(admin)
        return group

    def _consumer(self, kind: Kind) -> Consumer:
        prefetch_bytes, linger_s = kind
        # The library requires a group id, but nothing is subscribed or committed under it.
        name = f"{self._settings.client_id}-{uuid.uuid4().hex}"
        settings = config.consumer(self._bootstrap, self._settings, group_id=name, prefetch_bytes=prefetch_bytes)
        return new_consumer(settings | config.lingering(linger_s))
