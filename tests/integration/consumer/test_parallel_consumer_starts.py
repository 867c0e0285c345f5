"""Starts of the parallel consumer on real brokers: position, topics, protocol, missing brokers and topics."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from prometheus_client import CollectorRegistry

from stack.kafka import KafkaCluster
from support.consumer.consumer_drills import PARTITIONS, POLICY, Ground
from support.servers.logs import wait_until
from support.shared_servers import SharedBroker
from tsdb.parallel_consumer import (
    Action,
    ColumnExecutor,
    ConsumerError,
    ConsumerMetrics,
    ErrorPolicy,
    Options,
    ParallelConsumer,
    Record,
    ThreadExecutor,
    TopicRecreated,
)
from tsdb.parallel_consumer.consume import consume
from tsdb.parallel_consumer.kafka import KafkaProducer, KafkaSource, TransactionalSource

OPTIONS = Options(concurrency=4, commit_interval_s=0.05, drain_s=5.0, rebalance_drain_s=5.0)
ALONE = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def ground(kafka: SharedBroker) -> Ground:
    return Ground(kafka.bootstrap)


@pytest.fixture(autouse=True)
def informed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


LOOKS_A_SECOND_MAX = 25


class CountedLooks(KafkaSource):
    """A source that counts how often it was asked whether a broker has answered."""

    looks = 0

    def found(self, timeout_s: float) -> bool:
        self.looks += 1
        return super().found(timeout_s)


def consumer_of(source: KafkaSource | TransactionalSource, handle: Callable[[Record], Any]) -> ParallelConsumer:
    metrics = ConsumerMetrics(CollectorRegistry())
    return ParallelConsumer(source, ThreadExecutor(handle, 4), policy=ALONE, options=OPTIONS, metrics=metrics)


@contextmanager
def reading(ground: Ground, topics: list[str], seen: Counter[bytes], **more: Any) -> Iterator[ParallelConsumer]:
    """A member of the ground's group that only counts. `more`: the options start and settings."""
    settings = {**ground.settings, "group.id": ground.topic, **more.pop("settings", {})}

    def handle(record: Record) -> None:
        seen[record.value or b""] += 1

    with consumer_of(KafkaSource(settings, topics, **more), handle) as consumer:
        yield consumer


def assigned(consumer: ParallelConsumer, partitions: int = PARTITIONS) -> bool:
    if consumer.failure() is not None:
        consumer.join(1.0)
    return len(consumer.status.partitions) == partitions


def numbers(first: int, end: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(first, end))


def test_latest_begins_at_the_end_once_and_a_restart_misses_nothing(ground: Ground) -> None:
    ground.fill(40)
    seen: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], seen, start="latest") as consumer:
        wait_until(lambda: assigned(consumer))
        wait_until(lambda: len(ground.committed()) == PARTITIONS and ground.all_committed())
    ground.fill(40)  # Written while no member reads: the start position was committed, though no record was handled.
    with reading(ground, [ground.topic], seen, start="latest"):
        wait_until(ground.all_committed)
    assert seen == numbers(40, 80)


@pytest.mark.parametrize("kind", [pytest.param(int, marks=pytest.mark.soak), datetime])
def test_a_time_begins_at_its_first_record_or_at_the_end(ground: Ground, kind: type) -> None:
    ground.fill(40)
    time.sleep(0.01)
    since_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    producer = Producer({**ground.settings, "enable.idempotence": True})
    producer.produce(ground.topic, b"later", partition=1)  # The other partitions have no record of that time.
    assert producer.flush(30) == 0
    start = since_ms if kind is int else datetime.fromtimestamp(since_ms / 1000, UTC)
    seen: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], seen, start=start):
        wait_until(lambda: bool(seen))
    assert seen == Counter([b"later"])


def test_a_commit_goes_before_the_start(ground: Ground) -> None:
    ground.fill(40)
    seen: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], seen):
        wait_until(ground.all_committed)
    ground.fill(40)
    with reading(ground, [ground.topic], seen, start="latest"):
        wait_until(ground.all_committed)
    assert seen == numbers(0, 80)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_topics_of_a_pattern_are_read_and_a_deleted_one_ends_nothing(ground: Ground, protocol: str) -> None:
    prefix, seen = f"p{uuid.uuid4().hex[:8]}", Counter[bytes]()
    admin = AdminClient(ground.settings)
    producer = Producer(ground.settings)

    def make(name: str) -> None:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        producer.produce(name, name.encode())
        assert producer.flush(30) == 0

    settings = {"group.protocol": protocol, "topic.metadata.refresh.interval.ms": 500}
    make(f"{prefix}.first")
    with reading(ground, [f"^{prefix}\\..*"], seen, settings=settings) as consumer:
        wait_until(lambda: assigned(consumer, 1))
        make(f"{prefix}.second")
        make(f"other.{prefix}")
        wait_until(lambda: assigned(consumer, 2) and len(seen) == 2)
        admin.delete_topics([f"{prefix}.first"])[f"{prefix}.first"].result(30)
        wait_until(lambda: assigned(consumer, 1))
    assert seen == Counter([b"%s.%s" % (prefix.encode(), name) for name in (b"first", b"second")])
    admin.delete_topics([f"{prefix}.second", f"other.{prefix}"])


def test_a_recreated_topic_under_a_pattern_has_its_new_id(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    name, seen = f"p{uuid.uuid4().hex[:8]}.again", Counter[bytes]()
    admin = AdminClient(ground.settings)

    def make(value: bytes) -> None:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        producer = Producer(ground.settings)
        producer.produce(name, value)
        assert producer.flush(30) == 0

    settings = {"topic.metadata.refresh.interval.ms": 500}
    make(b"old")
    with reading(ground, [f"^{name}$"], seen, settings=settings) as consumer:
        wait_until(lambda: len(seen) == 1)
        admin.delete_topics([name])[name].result(30)
        wait_until(lambda: assigned(consumer, 0) and f"no topic ^{name}$" in caplog.text)
        make(b"new")
        wait_until(lambda: assigned(consumer, 1) and len(seen) == 2)
    with reading(ground, [f"^{name}$"], seen, settings=settings) as consumer:
        wait_until(lambda: assigned(consumer, 1))  # Its commit has the id of the new topic, else it would be refused.
    admin.delete_topics([name])


def recreate(ground: Ground, *, deleted: Callable[[], None] = lambda: None) -> None:
    """`deleted` runs while there is no topic."""
    admin = AdminClient(ground.settings)
    admin.delete_topics([ground.topic])[ground.topic].result(30)
    deleted()

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(ground.topic, PARTITIONS, 1)])[ground.topic].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False  # The deletion is not complete.
        return True

    wait_until(made)


def wait_ended_by_recreation(consumer: ParallelConsumer, ground: Ground) -> None:
    """Wait for the error that names the topic: another id, or no topic where the client looked in between."""
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(ConsumerError, match=ground.topic) as ended:
        consumer.join(30.0)
    if isinstance(ended.value, TopicRecreated):
        assert ended.value.message.startswith(f"topic {ground.topic} was deleted and made again")
        assert ended.value.reason == "topic_recreated"
    else:
        assert ended.value.reason == "topic_gone"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_recreated_between_two_assignments_ends_the_consumer(ground: Ground, protocol: str) -> None:
    ground.fill(40)
    seen: Counter[bytes] = Counter()
    settings = {**ground.settings, "group.id": ground.topic, "group.protocol": protocol}
    consumer = consumer_of(KafkaSource(settings, [ground.topic]), lambda record: seen.update([record.value or b""]))
    consumer.start()
    wait_until(lambda: len(seen) == 40 and ground.all_committed())

    def wait_given_back() -> None:
        wait_until(lambda: consumer.failure() is not None or not consumer.status.partitions)

    recreate(ground, deleted=wait_given_back)
    ground.fill(400)
    wait_ended_by_recreation(consumer, ground)
    assert seen == numbers(0, 40)


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        *(("records", protocol) for protocol in PROTOCOLS),
        ("columns", "classic"),
        ("transactions", "classic"),
        *(pytest.param(kind, "consumer", marks=pytest.mark.soak) for kind in ("columns", "transactions")),
    ],
)
def test_a_topic_recreated_while_it_is_read_ends_the_consumer_before_its_first_record(
    ground: Ground, kind: str, protocol: str
) -> None:
    ground.fill(40)
    seen: list[bytes] = []
    settings = {**ground.settings, "group.id": ground.topic, "group.protocol": protocol}
    inner = KafkaSource(settings, [ground.topic])
    metrics = ConsumerMetrics(CollectorRegistry())
    source: KafkaSource | TransactionalSource = inner
    executor: Any = ThreadExecutor(lambda record: seen.append(record.value or b""), 4)
    if kind == "columns":
        executor = ColumnExecutor(lambda columns: seen.extend(columns.values))
    elif kind == "transactions":
        source = TransactionalSource(inner, {**ground.settings, "transactional.id": ground.topic})

        def handle(record: Record) -> list[Any]:
            seen.append(record.value or b"")
            return []

        executor = ThreadExecutor(source.producing(handle), 4)
    consumer = ParallelConsumer(source, executor, policy=ALONE, options=OPTIONS, metrics=metrics)
    consumer.start()
    wait_until(lambda: len(seen) == 40 and ground.all_committed())
    recreate(ground)
    ground.fill(400)  # Each partition gets more records than its old position.
    wait_ended_by_recreation(consumer, ground)
    assert len(seen) == 40
    assert not any(at.next_offset for at in ground.committed().values())
    again: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], again, settings={"group.protocol": protocol}):
        wait_until(lambda: len(again) == 400)
    assert again == numbers(40, 440)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_deleted_while_it_is_read_is_named(ground: Ground, protocol: str) -> None:
    ground.fill(40)
    seen: Counter[bytes] = Counter()
    settings = {**ground.settings, "group.id": ground.topic, "group.protocol": protocol}
    consumer = consumer_of(KafkaSource(settings, [ground.topic]), lambda record: seen.update([record.value or b""]))
    consumer.start()
    wait_until(lambda: len(seen) == 40)
    admin = AdminClient(ground.settings)
    admin.delete_topics([ground.topic])[ground.topic].result(30)
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(ConsumerError, match=ground.topic) as ended:
        consumer.join(30.0)
    assert ended.value.reason == "topic_gone"


@pytest.mark.parametrize("start", ["latest", pytest.param("earliest", marks=pytest.mark.soak)])
def test_partitions_added_to_a_topic_are_read_from_their_first_record(ground: Ground, start: str) -> None:
    seen: Counter[bytes] = Counter()
    settings = {"topic.metadata.refresh.interval.ms": 500}
    with reading(ground, [ground.topic], seen, start=start, settings=settings) as consumer:
        wait_until(lambda: assigned(consumer))
        more = NewPartitions(ground.topic, PARTITIONS + 1)
        admin = AdminClient(ground.settings)
        admin.create_partitions([more])[ground.topic].result(30)
        producer = Producer(ground.settings)
        producer.produce(ground.topic, b"first", partition=PARTITIONS)
        assert producer.flush(30) == 0
        wait_until(lambda: assigned(consumer, PARTITIONS + 1))
        wait_until(lambda: bool(seen))
    assert seen == Counter([b"first"])


def test_an_unreachable_broker_is_named_and_close_ends_the_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    source = CountedLooks(config, ["orders"])
    with consumer_of(source, print) as consumer:
        wait_until(lambda: "no broker of 127.0.0.1:1 has answered" in caplog.text)
        looks = source.looks
        time.sleep(3.0)  # The source neither polls in a busy loop nor floods the log.
        assert consumer.failure() is None
        assert len(caplog.records) <= 4, caplog.text
        assert 0 < source.looks - looks <= 3.0 * LOOKS_A_SECOND_MAX
        consumer.close()
        assert consumer.join(30.0), "close does not end the wait for a broker"


def test_a_broker_started_later_is_read(broker: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground(broker.bootstrap)
    ground.fill(40)
    broker.kill_broker(0)
    seen: list[bytes] = []
    inner = KafkaSource({**ground.settings, "group.id": "transactional"}, [ground.topic])
    atomic = TransactionalSource(inner, {**ground.settings, "transactional.id": ground.topic})

    def handle(record: Record) -> list[Any]:
        seen.append(record.value or b"")
        return []

    counted: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], counted), consumer_of(atomic, atomic.producing(handle)):
        wait_until(lambda: caplog.text.count("has answered") >= 2)
        broker.start_broker(0)
        broker.wait_ready()
        wait_until(lambda: len(counted) == len(seen) == 40)
        wait_until(ground.all_committed)
    assert counted == Counter(seen) == numbers(0, 40)


def test_with_the_consumer_protocol_members_share_and_rebalance(ground: Ground) -> None:
    settings = {"group.protocol": "consumer"}
    ground.fill(400)
    seen: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], seen, settings=settings) as first:
        wait_until(lambda: assigned(first))
        with reading(ground, [ground.topic], seen, settings=settings) as second:
            wait_until(lambda: len(first.status.partitions) == len(second.status.partitions) == PARTITIONS // 2)
            ground.fill(400)
            wait_until(ground.all_committed)
        wait_until(lambda: assigned(first))
        ground.fill(400)
        wait_until(ground.all_committed)
    assert seen == numbers(0, 1_200)


def test_with_the_consumer_protocol_a_second_member_of_one_instance_id_is_named(ground: Ground) -> None:
    settings = {"group.protocol": "consumer", "group.instance.id": "the-one"}
    seen: Counter[bytes] = Counter()
    with reading(ground, [ground.topic], seen, settings=settings) as first:
        wait_until(lambda: assigned(first))
        source = KafkaSource({**ground.settings, **settings, "group.id": ground.topic}, [ground.topic])
        second = consumer_of(source, print)
        second.start()
        wait_until(lambda: second.failure() is not None)
        assert "group.instance.id the-one" in str(second.failure())
        assert first.failure() is None


def test_a_dead_letter_topic_is_used_with_the_consumer_protocol_too(ground: Ground) -> None:
    def handle(record: Record) -> None:
        if record.value == b"7":
            raise ValueError("spoilt")

    ground.fill(40)
    settings = {"group.protocol": "consumer"}
    with KafkaProducer(ground.settings) as producer, ground.member(handle, producer, settings=settings):
        wait_until(ground.all_committed)
    assert [record.value for record in ground.read(ground.dlq)] == [b"7"]
    assert POLICY.actions[ValueError] is Action.DEAD_LETTER


def spoil(record: Record) -> None:
    raise ValueError("spoilt")


def test_a_missing_dead_letter_topic_ends_the_start_by_name(ground: Ground) -> None:
    settings = {**ground.settings, "group.id": ground.topic}
    ground.fill(PARTITIONS)
    more = {"dead_letter_topic": "no-such.dlq", **quiet()}
    with (
        pytest.raises(ConsumerError, match=r"dead-letter topic no-such\.dlq: .*create the topic") as gone,
        consume(settings, [ground.topic], print, **more) as consuming,
    ):
        wait_until(lambda: consuming.consumer.failure() is not None)
    assert gone.value.reason == "topic_gone"
    assert {at.next_offset for at in ground.committed().values()} == {0}


def test_a_created_dead_letter_topic_takes_records_of_all_partitions(ground: Ground) -> None:
    ground.fill(PARTITIONS)
    settings = {**ground.settings, "group.id": ground.topic}
    dead_letters = f"{ground.topic}.made"
    policy = ErrorPolicy({ValueError: Action.DEAD_LETTER})
    more = {"dead_letter_topic": dead_letters, "create_dead_letter_topic": True, "policy": policy, **quiet()}
    with consume(settings, [ground.topic], spoil, **more):
        wait_until(ground.all_committed)
    found = ground.read(dead_letters, partitions=1)  # The brokers' default.
    assert {dict(dead_letter.headers)["dlq-partition"] for dead_letter in found} == {
        b"%d" % n for n in range(PARTITIONS)
    }


def test_a_producer_shared_by_several_consumers_answers_all_of_them(ground: Ground) -> None:
    with KafkaProducer(ground.settings) as producer, ThreadPoolExecutor(8) as pool:

        def lookup(number: int) -> int | None:
            answers: list[int | None] = []

            def is_answered() -> bool:
                answers.append(producer.partitions_of(ground.dlq))
                return answers[-1] is not None

            wait_until(is_answered)
            return answers[-1]

        assert set(pool.map(lookup, range(100))) == {PARTITIONS}


def quiet() -> dict[str, Any]:
    return {"metrics": ConsumerMetrics(CollectorRegistry()), "options": OPTIONS}


def test_refused_credentials_end_the_start(ground: Ground) -> None:
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    consumer = consumer_of(KafkaSource({**ground.settings, **sasl, "group.id": "g"}, [ground.topic]), print)
    consumer.start()
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(ConsumerError, match="mechanism handshake failed") as denied:
        consumer.join(5.0)
    assert denied.value.reason == "denied"
    assert denied.value.message.endswith("correct the credentials, or grant the right")


def test_a_wrong_security_protocol_waits_and_logs_the_reason(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    tls = {**ground.settings, "security.protocol": "SSL", "group.id": "g"}
    with consumer_of(KafkaSource(tls, [ground.topic]), print):
        wait_until(lambda: "has answered" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if "has answered" in record.getMessage()]
    assert re.search("SSL.handshake", line, re.IGNORECASE), line
