"""Drills of the parallel consumer on a real broker; the caller sets their length."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from support.servers.logs import wait_until
from tsdb.parallel_consumer import (
    Action,
    ConsumerMetrics,
    ErrorPolicy,
    Options,
    ParallelConsumer,
    Position,
    Record,
    ThreadExecutor,
    TopicPartition,
)
from tsdb.parallel_consumer.kafka import KafkaProducer, KafkaSource
from tsdb.parallel_consumer.kafka.topics import TopicLookup
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.registry import read_wait_record

PARTITIONS = 4
KEYS = 200
POLICY = ErrorPolicy({ValueError: Action.DEAD_LETTER})
# Counts of a drill, for its caller.
Figures = dict[str, float]
MEMBER = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}


class Ground:
    """A topic of numbered records, its dead letters and its wait topic, and a group of the same name."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = f"drill-{uuid.uuid4().hex[:10]}"
        self.dlq, self.wait = f"{self.topic}.dlq", f"{self.topic}.wait"
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
        admin = AdminClient(self.settings)
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (self.topic, self.dlq, self.wait)])
        for future in made.values():
            future.result(30)
        # A broker of a busy machine answers for the topics a little later than it has made them.
        wait_until(lambda: self.known(admin))
        # Idempotent: a retried batch could otherwise follow the next one.
        self._producer = Producer({**self.settings, "linger.ms": 5, "enable.idempotence": True})
        self.written = 0

    def known(self, admin: AdminClient) -> bool:
        """Whether the broker names the topics, with all their partitions."""
        topics = admin.list_topics(timeout=30).topics
        names = (self.topic, self.dlq, self.wait)
        return all(name in topics and len(topics[name].partitions) == PARTITIONS for name in names)

    def fill(self, count: int) -> None:
        """Write the next `count` records, each key in one partition."""
        for number in range(self.written, self.written + count):
            key = number % KEYS
            self._producer.produce(
                self.topic, b"%d" % number, b"%d" % key, partition=key % PARTITIONS, headers=[("h", b"\xff")]
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        self.written += count

    def member(self, handler: Callable[[Record], object], producer: KafkaProducer, **more: Any) -> ParallelConsumer:
        """One member of the group."""
        given = more.pop("settings", {})
        # With the other protocol the brokers decide it.
        own = {} if given.get("group.protocol") == "consumer" else MEMBER
        settings = {**self.settings, **own, **given, "group.id": self.topic}
        options = more.pop("options", Options(concurrency=8, commit_interval_s=0.05))
        return ParallelConsumer(
            KafkaSource(settings, [self.topic]),
            ThreadExecutor(handler, options.concurrency),
            policy=POLICY,
            options=options,
            producer=producer,
            dead_letter_topic=self.dlq,
            metrics=more.pop("metrics", None) or ConsumerMetrics(CollectorRegistry()),
            **more,
        )

    def topic_id(self) -> str:
        """The topic id, in the form used by commits."""
        return TopicLookup(self.settings, [self.topic]).answer_within(30.0)[self.topic].id

    def committed(self) -> dict[TopicPartition, Position]:
        """Committed positions of the group, with their metadata."""
        requested = [KafkaPartition(self.topic, partition) for partition in range(PARTITIONS)]
        # Read uncommitted: else a transaction left open by a kill would have to time out first.
        settings = {**self.settings, "group.id": self.topic, "isolation.level": "read_uncommitted"}
        consumer = Consumer(settings)
        try:
            answers = consumer.committed(requested, timeout=60)
        finally:
            consumer.close()
        return {(a.topic, a.partition): Position(max(0, a.offset), a.metadata or "") for a in answers}

    def all_committed(self) -> bool:
        return sum(at.next_offset for at in self.committed().values()) >= self.written

    def read(self, topic: str, partitions: int = PARTITIONS) -> list[Record]:
        """All committed records of a topic, partition by partition."""
        consumer = Consumer({**self.settings, "group.id": "reads", "enable.partition.eof": True})
        consumer.assign([KafkaPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Record] = []
        ended: set[int] = set()
        while len(ended) < partitions:
            message: Any = consumer.poll(10)
            assert message is not None, f"{topic} does not answer"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
                continue
            topic_partition = (message.topic(), message.partition(), message.offset())
            headers = [(name, value or b"") for name, value in (message.headers() or [])]
            found.append(Record(*topic_partition, message.key(), message.value(), 0, headers))
        consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))


class Witness:
    """Handled records, and the offsets covered by acknowledged commits before. Thread-safe."""

    def __init__(self, topic_id: str) -> None:
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._covered: dict[TopicPartition, tuple[int, list[list[int]]]] = {}
        self.counts: Counter[int] = Counter()
        self.by_key: defaultdict[bytes, list[int]] = defaultdict(list)
        self.wrongly_again: list[Record] = []

    def handle(self, record: Record) -> None:
        with self._lock:
            if self._is_covered(record):
                self.wrongly_again.append(record)
            number = int(record.value or b"")
            if number not in self.counts:
                self.by_key[record.key or b""].append(number)
            self.counts[number] += 1

    def on_committed(self, positions: Mapping[TopicPartition, Position]) -> None:
        with self._lock:
            for topic_partition, at in positions.items():
                runs = decode_metadata(at.next_offset, at.metadata, self._topic_id).finished.tolist()
                self._covered[topic_partition] = (at.next_offset, runs)

    def assert_exact(self, written: int) -> None:
        """No record is lost, each key is in order, and no record is repeated that an acknowledged commit covered."""
        assert set(self.counts) == set(range(written))
        assert all(numbers == sorted(numbers) for numbers in self.by_key.values())
        assert not self.wrongly_again, self.wrongly_again[:5]

    def _is_covered(self, record: Record) -> bool:
        position, runs = self._covered.get(record.topic_partition, (0, []))
        return record.offset < position or any(start <= record.offset < end for start, end in runs)


def members_come_and_go(
    bootstrap: str, seconds: float, every_s: float, seed: int, protocol: str = "classic"
) -> Figures:
    """One member stays, others join and leave at intervals; every third leaves without draining."""
    ground, source = Ground(bootstrap), random.Random(seed)
    witness, stop = Witness(ground.topic_id()), threading.Event()

    def produce() -> None:
        while not stop.wait(0.05):
            ground.fill(100)

    producing = threading.Thread(target=produce)
    with KafkaProducer(ground.settings) as producer, ExitStack() as stack:

        def member() -> ParallelConsumer:
            settings = {"group.protocol": protocol}
            return ground.member(witness.handle, producer, on_committed=witness.on_committed, settings=settings)

        stack.enter_context(member())
        producing.start()
        until = time.monotonic() + seconds
        guests: list[ParallelConsumer] = []
        joined = left = aborted = 0
        while time.monotonic() < until:
            if guests and (len(guests) >= 2 or source.random() < 0.5):
                guest = guests.pop(source.randrange(len(guests)))
                left += 1
                if left % 3 == 0:
                    guest.abort()
                    aborted += 1
                else:
                    guest.close()
                    assert guest.join(30.0)
            else:
                guests.append(member())
                guests[-1].start()
                joined += 1
            stop.wait(every_s)
        stop.set()
        producing.join()
        for guest in guests:
            guest.close()
            assert guest.join(30.0)
        assert joined >= 2
        wait_until(ground.all_committed, 120.0)
    witness.assert_exact(ground.written)
    again = witness.counts.total() - len(witness.counts)
    return {"written": ground.written, "joined": joined, "left": left, "aborted": aborted, "again_uncovered": again}


class StandStills:
    """Counts the times at which the machine did not schedule this process for `seconds`. A context manager."""

    def __init__(self, seconds: float) -> None:
        self.count = 0
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        begin = time.monotonic()
        while not self._ended.wait(0.25):
            now = time.monotonic()
            self.count += now - begin > self._seconds
            begin = now


def slow_sink(bootstrap: str, seconds: float, poll_interval_s: float) -> Figures:
    """More records arrive than the handler can handle: memory stays bounded, pauses are rare, the membership is kept.

    poll_interval_s: a member without a poll for this long is removed from the group; well below `seconds`. A process
    that the machine did not schedule for that long is not a defect: it rejoins, and repeats what no acknowledged commit
    covered. How much that is depends on how long it was not scheduled, so only what is covered has a bound: none of it.
    """
    ground, stop = Ground(bootstrap), threading.Event()
    witness = Witness(ground.topic_id())
    ground.fill(40_000)
    registry = CollectorRegistry()
    # Half of the bound is a minute of work: reading resumes about once a minute.
    options = Options(concurrency=8, records_max=20_000, commit_interval_s=0.2, drain_s=5.0, rebalance_drain_s=5.0)

    def handle(record: Record) -> None:
        stop.wait(0.05)
        witness.handle(record)

    def produce() -> None:
        while not stop.wait(0.1):
            ground.fill(100)

    def pauses() -> float:
        return registry.get_sample_value("parallel_consumer_pauses_total") or 0.0

    producing = threading.Thread(target=produce)
    silent_ms = round(poll_interval_s * 1000)
    settings = {"max.poll.interval.ms": silent_ms, "session.timeout.ms": silent_ms}
    metrics = ConsumerMetrics(registry)
    with KafkaProducer(ground.settings) as producer:
        consumer = ground.member(
            handle, producer, options=options, settings=settings, metrics=metrics, on_committed=witness.on_committed
        )
        with consumer, StandStills(poll_interval_s / 2) as stood_still:
            wait_until(lambda: consumer.status.unfinished >= options.records_max * 0.8)
            stop.wait(2.0)  # Reading stops, and the pause follows a second later.
            generations, known = _generations(consumer), stood_still.count
            producing.start()
            paused_before, rss_before = pauses(), psutil.Process().memory_info().rss
            until = time.monotonic() + seconds
            most = 0
            while time.monotonic() < until:
                most = max(most, consumer.status.unfinished)
                stop.wait(0.25)
                if stood_still.count > known:
                    stop.wait(poll_interval_s)  # Bounds the removal from the group and the rejoin.
                    wait_until(lambda: len(consumer.status.partitions) == PARTITIONS)
                    generations, known = _generations(consumer), stood_still.count
            flips = pauses() - paused_before
            grown = psutil.Process().memory_info().rss - rss_before
            assert _generations(consumer) == generations
            stop.set()
            producing.join()
    assert most <= options.records_max + options.poll_records_max
    # Each pause counts every partition.
    assert flips <= PARTITIONS * (1 + stood_still.count + 2 * seconds / 60)
    assert grown < 200 << 20, f"grown by {grown >> 20} MiB"
    assert not witness.wrongly_again, witness.wrongly_again[:5]
    again = witness.counts.total() - len(witness.counts)
    assert stood_still.count or not again, f"{again} records repeated by a member that never left"
    return {
        "done": len(witness.counts),
        "again": again,
        "stood_still": stood_still.count,
        "pauses_per_partition": flips / PARTITIONS,
        "seconds": seconds,
        "unfinished_max": most,
        "rss_before_mib": rss_before >> 20,
        "rss_grown_mib": grown >> 20,
    }


def _generations(consumer: ParallelConsumer) -> dict[TopicPartition, int]:
    return {topic_partition: part.generation for topic_partition, part in consumer.status.partitions.items()}


def one_poison(bootstrap: str, count: int, poison: int) -> None:
    """All records but one are finished; that one is a dead letter with all its headers."""
    ground, done = Ground(bootstrap), Counter[int]()
    ground.fill(count)

    def handle(record: Record) -> None:
        number = int(record.value or b"")
        if number == poison:
            raise ValueError("spoilt")
        done[number] += 1

    with KafkaProducer(ground.settings) as producer, ground.member(handle, producer):
        wait_until(ground.all_committed, 120.0)
    assert set(done) == set(range(count)) - {poison}
    assert set(done.values()) == {1}
    (dead_letter,) = ground.read(ground.dlq)
    origin = next(record for record in ground.read(ground.topic) if record.value == dead_letter.value)
    assert (dead_letter.partition, dead_letter.key, dead_letter.value) == (origin.partition, origin.key, b"%d" % poison)
    headers = dict(dead_letter.headers)
    stack = headers.pop("dlq-stack").decode()
    assert stack.startswith("Traceback")
    assert stack.endswith("ValueError: spoilt\n")
    assert headers.pop("dlq-failed-at-ms").isdigit()
    assert headers.pop("dlq-timestamp-ms").isdigit()
    assert headers == {
        "h": b"\xff",
        "dlq-topic": ground.topic.encode(),
        "dlq-partition": b"%d" % origin.partition,
        "dlq-offset": b"%d" % origin.offset,
        "dlq-reason": b"exception",
        "dlq-attempts": b"0",
        "dlq-crashes": b"0",
        "dlq-exception": b"builtins.ValueError",
        "dlq-message": b"spoilt",
    }


CHILD = """
import signal, sys, threading, time
from tsdb.parallel_consumer import *
from tsdb.parallel_consumer.kafka import KafkaProducer, KafkaSource
from tsdb.parallel_consumer.registry import RegistryOptions, RegistrySource
mode, bootstrap, topic, seen, pause_s = sys.argv[1:]
member = {"group.protocol": "consumer"} if mode == "consumer" else {"session.timeout.ms": 6000}
out = open(seen, "ab", buffering=0)
def handle(record):
    time.sleep(float(pause_s))
    out.write(b"%d\\n" % int(record.value))
settings = {"bootstrap.servers": bootstrap}
producer = KafkaProducer(settings)
source = KafkaSource({**settings, **member, "group.id": topic}, [topic])
if mode == "registry":
    source = RegistrySource(source, producer, RegistryOptions(topic + ".wait"))
options = Options(concurrency=8, commit_interval_s=0.05, records_max=200, poll_records_max=100, drain_s=10.0)
consumer = ParallelConsumer(source, ThreadExecutor(handle, 8), options=options, producer=producer,
                            dead_letter_topic=topic + ".dlq")
signal.signal(signal.SIGTERM, lambda *_: consumer.close())
consumer.start()
while not consumer.join(0.1):
    pass
producer.close()
"""


class Child:
    """A consumer in a separate process. `seen`: the numbers of its handled records."""

    def __init__(self, ground: Ground, folder: Path, mode: str, pause_s: float) -> None:
        self._seen = folder / f"seen-{uuid.uuid4().hex[:6]}"
        arguments = [mode, ground.bootstrap, ground.topic, str(self._seen), str(pause_s)]
        self._child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments])

    def seen(self) -> list[int]:
        return [int(line) for line in self._seen.read_bytes().splitlines()] if self._seen.exists() else []

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def end(self, within_s: float) -> float:
        """SIGTERM; returns the seconds until the process ended with exit code 0."""
        began_at = time.monotonic()
        os.kill(self._child.pid, signal.SIGTERM)
        try:
            code = self._child.wait(within_s)
            assert code == 0, f"ended with {code}"
        finally:
            self.kill()
        return time.monotonic() - began_at


def members_killed(bootstrap: str, folder: Path, kills: int, protocol: str) -> Figures:
    """Member processes are killed beside one member that stays: no record is lost, and the one that stays repeats no
    record that an acknowledged commit of it covered.
    """
    ground, handled = Ground(bootstrap), Counter[int]()
    witness = Witness(ground.topic_id())
    settings = {"group.protocol": protocol}

    def handle(record: Record) -> None:
        time.sleep(0.002)
        witness.handle(record)

    with (
        KafkaProducer(ground.settings) as producer,
        ground.member(handle, producer, on_committed=witness.on_committed, settings=settings) as consumer,
    ):
        for _ in range(kills):
            wait_until(lambda: len(consumer.status.partitions) == PARTITIONS)
            child = Child(ground, folder, protocol, 0.005)
            try:
                wait_until(lambda: len(consumer.status.partitions) == PARTITIONS // 2)
                ground.fill(2_000)
                wait_until(lambda child=child: len(child.seen()) > 200)  # type: ignore[misc]
            finally:
                child.kill()
            handled.update(child.seen())
        wait_until(ground.all_committed, 120.0)
    of_killed = handled.total()
    handled.update(witness.counts)
    assert set(handled) == set(range(ground.written))
    assert not witness.wrongly_again, witness.wrongly_again[:5]
    again = handled.total() - len(handled)
    assert again <= of_killed, f"{again} done again, of {of_killed} that killed members had done"
    return {"written": ground.written, "again": again}


def sigterm_under_load(bootstrap: str, folder: Path, rounds: int) -> Figures:
    """Each process ends within its drain, and its handled records are committed: no record is repeated or lost."""
    ground, handled, ended_s = Ground(bootstrap), Counter[int](), []
    for number in range(rounds):
        ground.fill(2_000)
        child = Child(ground, folder, "done", 0.02)
        try:
            enough = 200 + 100 * number
            wait_until(lambda child=child, enough=enough: len(child.seen()) > enough, 120.0)  # type: ignore[misc]
        finally:
            ended_s.append(child.end(60.0))
        handled.update(child.seen())
    topic_id, covered = ground.topic_id(), 0
    for at in ground.committed().values():
        runs = decode_metadata(at.next_offset, at.metadata, topic_id).finished.tolist()
        covered += at.next_offset + sum(end - start for start, end in runs)
    assert set(handled.values()) == {1}
    assert covered == len(handled)
    return {"handled": len(handled), "longest_end_s": round(max(ended_s), 2)}


def registry_kills(bootstrap: str, folder: Path, rounds: int) -> Figures:
    """SIGKILL leaves at most the open records as orphans, a clean shutdown none; neither loses a record."""
    ground, handled = Ground(bootstrap), Counter[int]()
    orphans: dict[bytes, int] = {}
    most = 0
    for number in range(rounds):
        ground.fill(1_500)
        child = Child(ground, folder, "registry", 0.01)
        try:
            wait_until(lambda child=child: len(child.seen()) > 300, 120.0)  # type: ignore[misc]
        finally:
            child.kill() if number % 2 == 0 else child.end(60.0)
        handled.update(child.seen())
        before, orphans = orphans, _open_copies(ground)
        new = orphans.keys() - before.keys()
        most = max(most, len(new))
        # At most 200 records are read and unfinished; the others of a kill were finished since the last commit.
        unfinished = sum(orphans[key] not in handled for key in new)
        assert unfinished <= (200 if number % 2 == 0 else 0), f"{unfinished} unfinished orphans in round {number}"
        assert number % 2 == 0 or not new, f"{len(new)} new orphans of a clean end in round {number}"
    last = Child(ground, folder, "registry", 0.0)
    try:
        wait_until(ground.all_committed, 60.0)
    finally:
        last.end(60.0)
    handled.update(last.seen())
    # The last child ends once all records have a copy: records it had not begun are handed back, below the end of the
    # topic.
    left, back = set(_open_copies(ground).values()), _not_committed(ground)
    assert len(back) <= 200, f"{len(back)} handed back"
    lost = set(range(ground.written)) - set(handled) - left - back
    assert not lost, f"{len(lost)} of {ground.written} neither handled nor left nor handed back: {sorted(lost)[:10]}"
    again = sum(count > 1 for count in handled.values())
    assert again <= 300 * rounds
    return {"written": ground.written, "orphans_max": most, "again": again}


TRANSACTIONAL = """
import sys, time
from tsdb.parallel_consumer import *
from tsdb.parallel_consumer.kafka import KafkaSource, TransactionalSource
bootstrap, topic, out = sys.argv[1:]
def handle(record):
    time.sleep(0.002)
    return [OutRecord(out, record.partition, record.key, record.value, ())]
settings = {"bootstrap.servers": bootstrap}
source = TransactionalSource(KafkaSource({**settings, "group.id": topic, "session.timeout.ms": 6000}, [topic]),
                             {**settings, "transactional.id": topic})
policy = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
consumer = ParallelConsumer(source, ThreadExecutor(source.producing(handle), 8), policy=policy,
                            options=Options(concurrency=8, commit_interval_s=0.05))
consumer.start()
consumer.join(600)
"""


def transactions_killed(bootstrap: str, kills: int, seed: int) -> Figures:
    """Kills at any instant. A reader of committed records sees each output once, by key in order."""
    ground, source = Ground(bootstrap), random.Random(seed)
    command = [sys.executable, "-c", TRANSACTIONAL, bootstrap, ground.topic, ground.wait]
    for kill in range(kills + 1):
        before = sum(at.next_offset for at in ground.committed().values())
        ground.fill(before + 3_000 - ground.written)  # More records than any handler finishes before the kill.
        child = subprocess.Popen(command)
        try:
            if kill < kills:
                wait_until(lambda b=before: sum(at.next_offset for at in ground.committed().values()) > b)  # type: ignore[misc]
                time.sleep(source.uniform(0.0, 0.2))  # The test depends on the exact instant of the kill.
            else:
                wait_until(ground.all_committed, 120.0)
        finally:
            child.kill()
            child.wait()
    numbers = [int(record.value or b"") for record in ground.read(ground.wait)]
    assert Counter(numbers) == Counter(range(ground.written))
    by_key: defaultdict[int, list[int]] = defaultdict(list)
    for number in numbers:
        by_key[number % KEYS].append(number)
    assert not [found for found in by_key.values() if found != sorted(found)]
    return {"outputs": len(numbers), "kills": kills}


def _not_committed(ground: Ground) -> set[int]:
    committed = ground.committed()
    return {
        int(record.value or b"")
        for record in ground.read(ground.topic)
        if record.offset >= committed[record.topic_partition].next_offset
    }


def _open_copies(ground: Ground) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for record in ground.read(ground.wait):
        key = record.key or b""
        found.pop(key, None)
        if record.value is not None:
            found[key] = int(read_wait_record(record).record.value or b"")
    return found
