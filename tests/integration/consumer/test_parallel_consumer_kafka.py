"""The parallel consumer on a real broker: rebalances, kills, dead letters, pauses, a missing topic."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from support.consumer.consumer_drills import MEMBER
from support.servers.logs import wait_until
from support.shared_servers import SharedBroker
from tsdb.parallel_consumer import (
    Action,
    Backoff,
    ColumnExecutor,
    ConsumerError,
    ConsumerMetrics,
    ErrorPolicy,
    Options,
    ParallelConsumer,
    Record,
    RecordColumns,
    ThreadExecutor,
)
from tsdb.parallel_consumer.kafka import KafkaProducer, KafkaSource

PARTITIONS = 4
STARTING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)  # A broker that has just started.
POLICY = ErrorPolicy(
    {ValueError: Action.DEAD_LETTER, TimeoutError: Action.BLOCK},
    retry_backoff=Backoff(first_s=0.01),
    block_backoff=Backoff(first_s=0.05, longest_s=0.2),
)
OPTIONS = Options(concurrency=8, commit_interval_s=0.05, drain_s=10.0, rebalance_drain_s=10.0)


class Topic:
    """A fresh topic with its dead letter topic, and a group."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"pc-{uuid.uuid4().hex[:10]}"
        self.dlq = f"{self.name}.dlq"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.create()

    def create(self) -> None:
        names = (self.name, self.dlq)
        for future in self._admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
            future.result(30)

    def fill(self, count: int, keys: int = 20, first: int = 0) -> None:
        # Without idempotence a retried record could follow later ones.
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number in range(first, first + count):
            key = number % keys
            producer.produce(self.name, b"%d" % number, b"%d" % key, partition=key % PARTITIONS, headers=[("h", b"x")])
        assert producer.flush(30) == 0

    def committed(self) -> int:
        """Records below the commits, over all partitions."""
        with_group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name})
        try:
            answers = with_group.committed([TopicPartition(self.name, p) for p in range(PARTITIONS)], timeout=10)
            return sum(max(0, answer.offset) for answer in answers)
        except KafkaException as error:
            if error.args[0].code() not in STARTING:
                raise
            return 0
        finally:
            with_group.close()

    def dead_letters(self, count: int) -> list[tuple[bytes | None, dict[str, bytes]]]:
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False})
        reader.assign([TopicPartition(self.dlq, partition, 0) for partition in range(PARTITIONS)])
        found: list[tuple[bytes | None, dict[str, bytes]]] = []
        give_up_at = time.monotonic() + 30
        while len(found) < count and time.monotonic() < give_up_at:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.value(), dict(headers_of(message))))
        reader.close()
        return found

    def consumer(
        self, handler: Callable[[Record], object], producer: KafkaProducer, options: Options = OPTIONS
    ) -> ParallelConsumer:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.name, **MEMBER}
        return ParallelConsumer(
            KafkaSource(config, [self.name]),
            ThreadExecutor(handler, options.concurrency),
            policy=POLICY,
            options=options,
            producer=producer,
            dead_letter_topic=self.dlq,
            metrics=ConsumerMetrics(CollectorRegistry()),
        )


def headers_of(message: Any) -> list[tuple[str, bytes]]:
    return list(message.headers() or [])


@pytest.fixture
def topic(kafka: SharedBroker) -> Topic:
    return Topic(kafka.bootstrap)


@pytest.fixture
def producer(kafka: SharedBroker) -> Iterator[KafkaProducer]:
    with KafkaProducer({"bootstrap.servers": kafka.bootstrap}) as producer:
        yield producer


class Seen:
    """Handled records: by member, and in order by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[int] = Counter()
        self.by_key: defaultdict[bytes, list[int]] = defaultdict(list)

    def add(self, record: Record) -> None:
        with self._lock:
            number = int(record.value or b"")
            self.counts[number] += 1
            self.by_key[record.key or b""].append(number)


def test_members_share_rebalance_and_repeat_nothing(topic: Topic, producer: KafkaProducer) -> None:
    seen = Seen()
    stop = threading.Event()

    def produce() -> None:
        for first in range(0, 4_000, 100):
            topic.fill(100, first=first)
            stop.wait(0.05)

    producing = threading.Thread(target=produce)
    producing.start()
    with topic.consumer(seen.add, producer) as first:
        wait_until(lambda: len(seen.counts) > 300)
        with topic.consumer(seen.add, producer) as second:
            wait_until(lambda: len(first.status.partitions) == len(second.status.partitions) == PARTITIONS // 2)
            wait_until(lambda: len(seen.counts) > 1_500)
        wait_until(lambda: len(first.status.partitions) == PARTITIONS)
        producing.join()
        wait_until(lambda: topic.committed() == 4_000)
    assert set(seen.counts.values()) == {1}
    assert len(seen.counts) == 4_000
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())


def test_dead_letters_carry_the_record_and_the_failure(topic: Topic, producer: KafkaProducer) -> None:
    topic.fill(40)

    def handle(record: Record) -> None:
        if int(record.value or b"") % 10 == 3:
            raise ValueError("spoilt")

    with topic.consumer(handle, producer):
        wait_until(lambda: topic.committed() == 40)
    dead_letters = topic.dead_letters(4)
    assert sorted(int(value or b"") for value, _ in dead_letters) == [3, 13, 23, 33]
    for _, headers in dead_letters:
        assert headers["h"] == b"x"
        assert headers["dlq-topic"] == topic.name.encode()
        assert headers["dlq-exception"] == b"builtins.ValueError"
        assert headers["dlq-message"] == b"spoilt"


CHILD = """
import sys
from pathlib import Path
from tsdb.parallel_consumer import *
from tsdb.parallel_consumer.kafka import KafkaSource
bootstrap, topic, seen = sys.argv[1:]
out = open(seen, "ab", buffering=0)
def handle(record):
    out.write(b"%d %d\\n" % (record.partition, record.offset))
policy = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
source = KafkaSource({"bootstrap.servers": bootstrap, "group.id": topic, "session.timeout.ms": 6000}, [topic])
commit_log = open(seen + ".committed", "ab", buffering=0)
def on_committed(positions):
    for (_, partition), at in positions.items():
        commit_log.write(b"%d %d\\n" % (partition, at.next_offset))
consumer = ParallelConsumer(source, ThreadExecutor(handle, 8), policy=policy, on_committed=on_committed,
                            options=Options(concurrency=8, commit_interval_s=0.05))
consumer.start()
consumer.join(600)
"""


def test_after_a_kill_nothing_below_an_acknowledged_commit_is_done_again(topic: Topic, tmp_path: Path) -> None:
    source = random.Random(7)
    total = 0
    acknowledged: Counter[int] = Counter()
    handled: set[tuple[int, int]] = set()
    for number in range(4):
        # A child may finish everything before its kill, and the next one needs records too.
        topic.fill(6_000, keys=400, first=total)
        total += 6_000
        seen = tmp_path / f"seen-{number}"
        committed = Path(f"{seen}.committed")
        child = subprocess.Popen([sys.executable, "-c", CHILD, topic.bootstrap, topic.name, str(seen)])
        try:
            if number < 3:
                wait_until(lambda: _lines(seen) > 500 and _lines(committed) > 0)  # noqa: B023
                time.sleep(source.uniform(0.0, 0.15))  # The test depends on the exact instant of the kill.
            else:
                wait_until(lambda: topic.committed() == total)  # noqa: B023
        finally:
            child.kill()
            child.wait()
        done = _whole_lines(seen)
        again = [at for at in done if at[1] < acknowledged[at[0]]]
        assert not again, f"done again below an acknowledged commit: {again[:5]}"
        handled.update(done)
        acknowledged = _acknowledged(committed, acknowledged)
    # The broker may have stored a commit whose answer arrived after the kill, so the files of the children may have
    # fewer.
    assert sum(acknowledged.values()) <= topic.committed() == total
    assert len(handled) == total


def _acknowledged(commit_log: Path, before: Counter[int]) -> Counter[int]:
    """The highest acknowledged commit of each partition."""
    found = Counter(before)
    for partition, offset in _whole_lines(commit_log):
        found[partition] = max(found[partition], offset)
    return found


def _whole_lines(path: Path) -> list[tuple[int, int]]:
    """Partition and offset of each line; a line that a kill cut short is left out."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    pairs = [line.split() for line in lines if line.endswith(b"\n")]
    return [(int(partition), int(offset)) for partition, offset in pairs]


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_long_block_keeps_the_membership_and_pauses(topic: Topic, producer: KafkaProducer) -> None:
    topic.fill(2_000)
    away = threading.Event()
    away.set()
    seen = Seen()

    def handle(record: Record) -> None:
        if away.is_set():
            raise TimeoutError("history is away")
        seen.add(record)

    options = Options(concurrency=8, records_max=100, commit_interval_s=0.05)
    with topic.consumer(handle, producer, options) as consumer:
        wait_until(lambda: bool(consumer.status.blocked) and all(p.paused for p in consumer.status.partitions.values()))
        generations = {topic_partition: part.generation for topic_partition, part in consumer.status.partitions.items()}
        assert len(generations) == PARTITIONS
        time.sleep(7.0)  # Longer than the session: a silent member would be removed.
        away.clear()
        wait_until(lambda: topic.committed() == 2_000)
        assert {
            topic_partition: part.generation for topic_partition, part in consumer.status.partitions.items()
        } == generations
    assert set(seen.counts.values()) == {1}
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())


def test_a_missing_topic_is_named(kafka: SharedBroker, topic: Topic, producer: KafkaProducer) -> None:
    source = KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": "g"}, ["nothing-here"])
    consumer = ParallelConsumer(
        source,
        ThreadExecutor(print, 1),
        producer=producer,
        dead_letter_topic=topic.dlq,
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    consumer.start()
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(ConsumerError, match="nothing-here") as gone:
        consumer.join(10.0)
    assert gone.value.reason == "topic_gone"


class StartsUnread(KafkaSource):
    """Reading commits, or the first offset of the log, fails the first times."""

    failing = 2

    def _starts(self, consumer: Any, partitions: list[TopicPartition]) -> Any:
        if partitions and self.failing:
            self.failing -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return super()._starts(consumer, partitions)


def test_a_member_without_readable_commits_rejoins_and_loses_nothing(topic: Topic, producer: KafkaProducer) -> None:
    topic.fill(400)
    seen = Seen()
    source = StartsUnread({"bootstrap.servers": topic.bootstrap, "group.id": topic.name}, [topic.name])
    consumer = ParallelConsumer(
        source,
        ThreadExecutor(seen.add, 4),
        producer=producer,
        dead_letter_topic=topic.dlq,
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    with consumer:
        wait_until(lambda: consumer.failure() is not None or topic.committed() == 400)
    assert source.failing == 0
    assert set(seen.counts.values()) == {1}


TEN_LINES = """
import sys
sys.argv = sys.argv[1:]
code = open(sys.argv[0]).read().replace("127.0.0.1:9092", sys.argv[1]).replace("orders", sys.argv[2])
exec(compile(code, "README.md", "exec"))
"""


PAGES = Path(__file__).parents[3] / "docs" / "parallel-consumer"


@pytest.mark.parametrize(("page", "number"), [("README", 0), *(("coming-from", number) for number in range(3))])
def test_a_program_of_the_pages_consumes_a_topic_and_drains_at_sigterm(
    page: str, number: int, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(500)
    programs = (PAGES / f"{page}.md").read_text().split("```python\n")[1:]
    assert len(programs) == (1 if page == "README" else 3)
    code = tmp_path / "program.py"
    code.write_text(programs[number].split("```", 1)[0].replace('"billing"', f'"{topic.name}"'))
    command = [sys.executable, "-u", "-c", TEN_LINES, str(code), topic.bootstrap, topic.name]
    seen = tmp_path / "seen"
    with seen.open("wb") as out:
        child = subprocess.Popen(command, stdout=out)
        try:
            wait_until(lambda: _lines(seen) == 500)
            child.terminate()
            assert child.wait(30) == 0
        finally:
            child.kill()
            child.wait()
    assert topic.committed() == 500


def test_columns_of_a_real_broker_match_and_a_poisoned_row_is_a_dead_letter(
    topic: Topic, producer: KafkaProducer
) -> None:
    topic.fill(5_000)
    found: list[tuple[bytes | None, bytes | None]] = []
    sizes: list[int] = []

    def handle(columns: RecordColumns) -> list[BaseException | None]:
        sizes.append(len(columns))
        assert columns.topic_partition[0] == topic.name
        assert (columns.timestamps_ms > 0).all()
        assert columns.headers[0] == [("h", b"x")]
        assert columns.arrow().num_rows == len(columns)
        found.extend(zip(columns.keys, columns.values, strict=True))
        return [ValueError("spoilt") if value == b"1234" else None for value in columns.values]

    consumer = ParallelConsumer(
        KafkaSource({"bootstrap.servers": topic.bootstrap, "group.id": topic.name}, [topic.name]),
        ColumnExecutor(handle, parallel=1),
        policy=POLICY,
        options=OPTIONS,
        producer=producer,
        dead_letter_topic=topic.dlq,
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    with consumer:
        wait_until(lambda: topic.committed() == 5_000)
    assert {(b"%d" % (number % 20), b"%d" % number) for number in range(5_000)} == set(found)
    assert [value for value, _ in topic.dead_letters(1)] == [b"1234"]
    assert max(sizes) > 50
    for key in range(20):
        numbers = [int(value or b"") for name, value in found if name == b"%d" % key and value != b"1234"]
        assert numbers == sorted(numbers)
