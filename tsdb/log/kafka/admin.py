"""Topic administration of a Kafka cluster: describe, create, delete, trim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, TopicPartitionInfo
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there, not marked as exported
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tsdb.kafka_clients import new_admin
from tsdb.log.kafka.clients import GRACE_S, answer_of
from tsdb.log.kafka.config import common
from tsdb.log.kafka.errors import to_error, translate_kafka_errors
from tsdb.log.settings import LogSettings
from tsdb.log.topics import ReplicaFaults, TopicSpec, TopicState
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable, WrongTopic

SETTLE_S = 0.05  # Time between two checks of a topic that is being created or deleted.


class KafkaTopics:
    """TopicAdmin over a Kafka cluster; `prefix` is put before every topic name."""

    def __init__(
        self, bootstrap: str, prefix: str, settings: LogSettings, clock: Clock, *, grace_s: float = GRACE_S
    ) -> None:
        self._admin = new_admin(common(bootstrap, settings))
        self._prefix = prefix
        self._timeout_s = settings.request_timeout_s
        self._answer_s = settings.request_timeout_s + grace_s
        self._clock = clock

    def describe(self, topic: str) -> TopicState | None:
        name = self._prefix + topic
        try:
            with translate_kafka_errors(f"topic {topic}"):
                futures = self._admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s)
                described = self._answer(futures[name], f"topic {topic}")
        except WrongTopic:
            return None
        config = self._config(topic, name)
        return TopicState(
            str(described.topic_id),
            len(described.partitions),
            min(len(partition.replicas) for partition in described.partitions),
            config,
            _faults(described.partitions, int(config.get("min.insync.replicas", "1"))),
        )

    def create(self, spec: TopicSpec) -> bool:
        name = self._prefix + spec.name
        new = NewTopic(name, spec.partitions, spec.replication, config=spec.config())
        if not self._made(new, f"making topic {spec.name}"):
            return False
        self._wait(spec.name, leaders=spec.partitions)
        return True

    def delete(self, topic: str) -> None:
        name = self._prefix + topic
        try:
            with translate_kafka_errors(f"deleting topic {topic}"):
                self._answer(
                    self._admin.delete_topics([name], request_timeout=self._timeout_s)[name], f"deleting topic {topic}"
                )
        except WrongTopic:
            return
        self._wait(topic, leaders=0)

    def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        requested = [TopicPartition(self._prefix + topic, partition, offset) for partition, offset in offsets.items()]
        with translate_kafka_errors(f"trimming topic {topic}"):
            for answer in self._admin.delete_records(requested, request_timeout=self._timeout_s).values():
                self._answer(answer, f"trimming topic {topic}")

    def close(self) -> None:
        """Does nothing: no resource is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _made(self, new: NewTopic, place: str) -> bool:
        """Request a topic. Returns False for one that is there already."""
        lost = False
        while True:
            try:
                self._admin.create_topics([new], request_timeout=self._timeout_s)[new.topic].result(self._answer_s)
            except TimeoutError as error:
                raise Unavailable(f"{place}: no answer", reason="timeout") from error
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return lost  # The request whose answer was lost may have made it.
                if lost or code != KafkaError._DESTROY_BROKER:
                    raise to_error(error.args[0], place) from error
                # A new client replaces its bootstrap address by the broker that it finds there, and drops the requests
                # that it sent meanwhile. The next one goes to that broker.
                lost = True
            else:
                return True

    def _answer(self, answer: Future[Any], place: str) -> Any:
        """Raises Unavailable (timeout): an answer may not come even after the request's own timeout."""
        return answer_of(answer, self._answer_s, place)

    def _config(self, topic: str, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        with translate_kafka_errors(f"settings of topic {topic}"):
            futures = self._admin.describe_configs([resource], request_timeout=self._timeout_s)
            entries = self._answer(next(iter(futures.values())), f"settings of topic {topic}")
        return {entry.name: str(entry.value) for entry in entries.values()}

    def _wait(self, topic: str, *, leaders: int) -> None:
        """Wait until the brokers' metadata shows the change. Their answer to the change comes a little earlier."""
        give_up_at = self._clock.monotonic() + self._timeout_s
        while self._leaders(topic) != leaders:
            if self._clock.monotonic() > give_up_at:
                raise Unavailable(f"topic {topic} did not settle within {self._timeout_s:g} s", reason="timeout")
            self._clock.sleep(SETTLE_S)

    def _leaders(self, topic: str) -> int:
        with translate_kafka_errors(f"topic {topic}"):
            metadata = self._admin.list_topics(self._prefix + topic, timeout=self._timeout_s)
        partitions = metadata.topics[self._prefix + topic].partitions
        return sum(partition.leader >= 0 for partition in partitions.values())


def _faults(partitions: Sequence[TopicPartitionInfo], least_in_sync: int) -> ReplicaFaults:
    return ReplicaFaults(
        leaderless=sum(one.leader is None or one.leader.id < 0 for one in partitions),
        under_min_isr=sum(len(one.isr) < least_in_sync for one in partitions),
        under_replicated=sum(len(one.isr) < len(one.replicas) for one in partitions),
    )
