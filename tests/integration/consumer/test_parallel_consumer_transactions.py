"""Transactions and member names on a real broker: a replaced member ends as fenced; a transaction's records appear
once.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry

from support.consumer.consumer_drills import MEMBER, PARTITIONS, Ground
from support.servers.logs import wait_until
from support.shared_servers import SharedBroker
from tsdb.parallel_consumer import (
    Action,
    CommitFailed,
    ConsumerMetrics,
    ErrorPolicy,
    Fenced,
    Options,
    OutRecord,
    ParallelConsumer,
    Position,
    Record,
    SendFailed,
    ThreadExecutor,
    TopicPartition,
)
from tsdb.parallel_consumer.kafka import KafkaProducer, KafkaSource, TransactionalSource
from tsdb.parallel_consumer.registry.wait_record import wait_copy, wait_key

POLICY = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)


class Owned:
    """A listener that only keeps the assigned partitions."""

    def __init__(self) -> None:
        self.starts: dict[TopicPartition, Position] = {}

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        self.starts.update(starts)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for topic_partition in partitions:
            self.starts.pop(topic_partition, None)

    on_lost = on_revoked


def member(ground: Ground, name: str, group: str) -> tuple[TransactionalSource, Owned]:
    """A source that has all partitions."""
    inner = KafkaSource({**ground.settings, **MEMBER, "group.id": group}, [ground.topic])
    source, owned = TransactionalSource(inner, {**ground.settings, "transactional.id": name}), Owned()
    source.start(owned)
    wait_until(lambda: not source.poll(0.1, 1).records and len(owned.starts) == PARTITIONS)
    return source, owned


@pytest.fixture
def ground(kafka: SharedBroker) -> Ground:
    return Ground(kafka.bootstrap)


def test_a_taken_transactional_id_ends_the_consumer_as_fenced(ground: Ground) -> None:
    handled = threading.Event()

    def handle(record: Record) -> list[OutRecord]:
        handled.set()
        return [OutRecord(ground.wait, record.partition, record.key, record.value, ())]

    source = TransactionalSource(
        KafkaSource({**ground.settings, **MEMBER, "group.id": ground.topic}, [ground.topic]),
        {**ground.settings, "transactional.id": ground.topic},
    )
    consumer = ParallelConsumer(
        source,
        ThreadExecutor(source.producing(handle), 2),
        policy=POLICY,
        options=Options(concurrency=2, commit_interval_s=0.05),
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    ground.fill(10)
    consumer.start()
    wait_until(lambda: ground.all_committed())
    other = Producer({**ground.settings, "transactional.id": ground.topic})
    other.init_transactions(30)
    handled.clear()
    ground.fill(10)
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(Fenced, match=f"transactional.id {ground.topic}") as ended:
        consumer.join(30.0)
    assert ended.value.reason == "fenced"
    assert handled.is_set()
    assert len(ground.read(ground.wait)) == 10


def test_a_taken_instance_id_ends_the_consumer_as_fenced(ground: Ground) -> None:
    config = {**ground.settings, **MEMBER, "group.id": ground.topic, "group.instance.id": "the-one"}

    def consumer(producer: KafkaProducer) -> ParallelConsumer:
        return ParallelConsumer(
            KafkaSource(config, [ground.topic]),
            ThreadExecutor(lambda record: None, 2),
            producer=producer,
            dead_letter_topic=ground.dlq,
            metrics=ConsumerMetrics(CollectorRegistry()),
        )

    ground.fill(10)
    with KafkaProducer(ground.settings) as producer:
        first = consumer(producer)
        first.start()
        wait_until(ground.all_committed)
        with consumer(producer) as second:
            wait_until(lambda: first.failure() is not None)
            with pytest.raises(Fenced, match=r"group\.instance\.id the-one"):
                first.join(30.0)
            ground.fill(10)
            wait_until(ground.all_committed)
            assert second.failure() is None


def test_one_too_large_record_fails_its_whole_transaction(ground: Ground) -> None:
    source, owned = member(ground, ground.topic, ground.topic)
    small = OutRecord(ground.wait, 0, b"k", b"small", ())
    large = OutRecord(ground.wait, 1, b"k", bytes(2_000_000), ())
    with pytest.raises(SendFailed) as refused:
        source.write([small, large], owned.starts)
    assert refused.value.reason == "record_too_large"
    source.write([small], owned.starts)
    source.close()
    assert [record.value for record in ground.read(ground.wait)] == [b"small"]


def test_a_member_without_the_partition_writes_nothing_for_it(ground: Ground) -> None:
    source, owned = member(ground, ground.topic, ground.topic)
    topic_partition, start = next(iter(owned.starts.items()))
    assert source.topic_id(ground.topic) == ground.topic_id()
    source.close()
    with pytest.raises(CommitFailed) as refused:
        source.write([OutRecord(ground.wait, 0, b"k", b"v", ())], {topic_partition: start})
    assert refused.value.reason == "stale_member"
    assert not ground.read(ground.wait)


SCANNER = """
import sys
from tsdb.parallel_consumer.kafka import KafkaSource, TransactionalSource
from tsdb.parallel_consumer.registry import ExpiryScanner, expiry
bootstrap, wait, dlq = sys.argv[1:]
expiry.TOGETHER_MAX = 20
settings = {"bootstrap.servers": bootstrap}
source = KafkaSource({**settings, "group.id": wait, "session.timeout.ms": 6000}, [wait])
# A machine that stands still for long in the middle of a transaction is another drill.
producer = {**settings, "transactional.id": wait, "transaction.timeout.ms": 300_000}
scanner = ExpiryScanner(TransactionalSource(source, producer), dlq)
scanner.start()
scanner.join(600)
"""


@pytest.fixture
def expired(ground: Ground) -> int:
    """Copies in the wait topic without a null record, long overdue."""
    count = 2_000
    with KafkaProducer(ground.settings) as producer:
        answers: list[object] = []
        for number in range(count):
            record = Record(ground.topic, number % PARTITIONS, number, b"k%d" % (number % 7), b"%d" % number)
            key = wait_key("id", record)
            producer.send(wait_copy(ground.wait, key, record, 1, 2), answers.append)
        wait_until(lambda: len(answers) == count)
        assert set(answers) == {None}
    return count


def test_a_scanner_killed_in_a_transaction_leaves_one_dead_letter_for_each_orphan(
    ground: Ground, expired: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SCANNER, ground.bootstrap, ground.wait, ground.dlq]
    rounds = 3
    for number in range(rounds):
        before = len(ground.read(ground.dlq))
        child = subprocess.Popen(command)
        try:
            if number < rounds - 1:
                wait_until(lambda before=before: len(ground.read(ground.dlq)) > before)  # type: ignore[misc]
                time.sleep(0.02 * number)  # The test depends on the exact instant of the kill.
            else:
                wait_until(lambda: len(ground.read(ground.dlq)) >= expired)
        finally:
            child.kill()
            child.wait()
    # The next producer with the same transactional id ends the transaction that the last kill left open.
    Producer({**ground.settings, "transactional.id": ground.wait}).init_transactions(30)
    dead_letters = Counter(record.value for record in ground.read(ground.dlq))
    assert dead_letters == Counter(b"%d" % number for number in range(expired))
    ended = Counter(record.key for record in ground.read(ground.wait) if record.value is None)
    assert len(ended) == expired
    assert set(ended.values()) == {1}
