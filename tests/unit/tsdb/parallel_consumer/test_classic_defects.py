"""Known defects of consumers of this kind, each with the case that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tsdb.parallel_consumer import Action, Backoff, ErrorPolicy, Options, Position, Record, by_key
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation

TOPIC = "orders"
TOPIC_PARTITION = (TOPIC, 0)
NO_PAUSE = Backoff(first_s=0.001, longest_s=0.001)
POLICY = ErrorPolicy(crashes_max=None, retry_backoff=NO_PAUSE, block_backoff=NO_PAUSE)


def simulate(broker: MemoryBroker, handler: Callable[[Record], object], **options: Any) -> Simulation:
    settings = {"policy": POLICY, "producer": MemoryProducer(), "dead_letter_topic": "dlq", **options}
    return Simulation(broker, handler, settings.pop("seed", 1), **settings)


def committed(broker: MemoryBroker) -> int:
    return broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset


@pytest.mark.parametrize("first", [2**31 - 3, 2**32 - 3, 2**53 - 3, 2**61])
def test_offsets_beyond_31_bits_are_tracked_committed_and_restored(first: int) -> None:
    """Runs of finished offsets stored as 32-bit numbers wrap around here."""
    broker, done = MemoryBroker(1, TOPIC), list[int]()
    for number in range(12):
        broker.append(TOPIC, 0, b"", key=b"%d" % number, gap=first if number == 0 else 0)

    def handler(record: Record) -> None:
        if record.offset == first + 3 and stuck:
            raise ConnectionError("away")
        done.append(record.offset)

    stuck = True
    for_long = Backoff(first_s=100.0, longest_s=100.0)
    policy = ErrorPolicy({ConnectionError: Action.BLOCK}, crashes_max=None, block_backoff=for_long)
    simulation = simulate(broker, handler, policy=policy)
    simulation.run_until(lambda: len(done) == 11)
    simulation.close()
    assert committed(broker) == first + 3
    finished = decode_metadata(first + 3, broker.commits[TOPIC_PARTITION].metadata, "id-of-orders").finished
    assert finished.tolist() == [[first + 4, first + 12]]
    done.clear()
    stuck = False
    again = simulate(broker, handler, policy=policy)
    again.run_until(lambda: committed(broker) == first + 12)
    assert done == [first + 3]


def test_records_without_a_key_do_not_wait_and_are_not_lost() -> None:
    """Defect: null as a lane key: all of them in one lane, or an exception."""
    broker, seen = MemoryBroker(1, TOPIC), list[bytes | None]()
    for number in range(60):
        broker.append(TOPIC, 0, b"", key=None if number % 2 else b"")
    simulation = simulate(
        broker, lambda record: seen.append(record.key), ends_share=0.0, options=Options(concurrency=40)
    )
    simulation.step(3)
    keys = [record.key for record, _ in simulation.scheduler.running]
    assert keys.count(None) == 30
    assert keys.count(b"") == 1, "an empty key is a key"
    while simulation.core.position(TOPIC_PARTITION) != 60:
        simulation.step()
        while simulation.scheduler.running:
            simulation.scheduler.end(0)
    assert len(seen) == 60


@pytest.mark.parametrize("exhausted", [Action.DEAD_LETTER, Action.SKIP])
def test_binary_keys_values_and_headers_go_through_unchanged(
    exhausted: Action, caplog: pytest.LogCaptureFixture
) -> None:
    """Defect: text expected for bytes: an exception in the error path loses the record."""
    raw = bytes(range(256))
    headers = [("h", raw), ("h", b""), ("trace", b"\xff\xfe")]
    broker, producer = MemoryBroker(1, TOPIC), MemoryProducer()
    broker.append(TOPIC, 0, raw, key=raw, headers=headers)
    broker.append(TOPIC, 0, None, key=b"\xff", headers=[("null", raw)])

    def handler(record: Record) -> None:
        raise ValueError("nobody \udcff wants it")

    policy = ErrorPolicy(crashes_max=None, attempts_max=1, exhausted=exhausted)
    simulation = simulate(broker, handler, policy=policy, producer=producer)
    simulation.run_until(lambda: committed(broker) == 2)
    assert r"nobody \udcff wants it" in caplog.text, "a log is UTF-8"
    if exhausted is Action.SKIP:
        return
    first, second = sorted(producer.sent, key=lambda sent: sent.value is None)
    assert (first.key, first.value, list(first.headers[:3])) == (raw, raw, headers)
    assert (second.key, second.value, second.headers[0]) == (b"\xff", None, ("null", raw))
    assert b"nobody ? wants it" in dict(first.headers)["dlq-message"]


def test_a_dead_letter_that_cannot_be_sent_blocks_and_loses_nothing() -> None:
    """Defect: acknowledged although its dead letter was not: lost from both topics."""
    broker, producer = MemoryBroker(1, TOPIC), MemoryProducer()
    for number in range(20):
        broker.append(TOPIC, 0, b"%d" % number, key=b"k")
    producer.fault = lambda record: "unavailable"

    def handler(record: Record) -> None:
        if record.offset == 5:
            raise ValueError("spoilt")

    policy = ErrorPolicy({ValueError: Action.DEAD_LETTER}, crashes_max=None, block_backoff=NO_PAUSE)
    simulation = simulate(broker, handler, policy=policy, producer=producer)
    simulation.run_until(lambda: producer.attempts["dlq", 0] > 1_000)
    assert committed(broker) == 5
    simulation.kill()
    producer.fault = lambda record: None
    again = simulate(broker, handler, policy=policy, producer=producer)
    again.run_until(lambda: committed(broker) == 20)
    assert [sent.value for sent in producer.sent] == [b"5"]


def test_records_waiting_at_a_revocation_do_not_run_after_reassignment() -> None:
    """Defect: a queue that outlives a rebalance: records of the old assignment handled a second
    time, or out of order.
    """
    broker, done = MemoryBroker(2, TOPIC), list[tuple[int, int]]()
    for number in range(200):
        broker.append(TOPIC, number % 2, b"", key=b"k%d" % (number % 5))
    first = simulate(broker, lambda record: done.append((record.partition, record.offset)), ends_share=0.3)
    first.step(8)
    second = simulate(broker, lambda record: done.append((record.partition, record.offset)), seed=2, ends_share=0.3)
    for _ in range(30):
        first.step(wait_s=0.01)
        second.step(wait_s=0.01)
    second.close()
    first.run_until(lambda: len(done) >= 200 and sum(at.next_offset for at in broker.commits.values()) == 200)
    assert len(done) == len(set(done)) == 200
    for partition in range(2):
        for key in range(5):
            offsets = [o for p, o in done if p == partition and (2 * o + p) % 5 == key]
            assert offsets == sorted(offsets)


def test_the_committed_offset_is_the_lowest_unfinished_and_never_the_highest_seen() -> None:
    broker, done = MemoryBroker(1, TOPIC), list[int]()
    for number in range(50):
        broker.append(TOPIC, 0, b"", key=b"%d" % number)
    simulation = simulate(
        broker, lambda record: done.append(record.offset), ends_share=0.0, options=Options(concurrency=50)
    )
    simulation.step(3)
    for ended in range(49):
        simulation.scheduler.end(len(simulation.scheduler.running) - 1)
        simulation.step(8)
        assert committed(broker) == 0, f"after {ended + 1} of 50"
    simulation.scheduler.end(0)
    simulation.step(8)
    assert committed(broker) == 50


def test_one_key_in_several_topics_is_a_lane_in_each() -> None:
    """Defect: lanes by key alone: a slow topic delays another, and a finished record frees the wrong one."""
    broker, done = MemoryBroker(1, "orders", "refunds", "stock"), list[tuple[str, int]]()
    for _ in range(30):
        for topic in ("orders", "refunds", "stock"):
            broker.append(topic, 0, b"", key=b"the same")
    simulation = simulate(broker, lambda record: done.append((record.topic, record.offset)), order=by_key)
    while len(done) < 60:
        simulation.step()
        running = [record.topic for record, _ in simulation.scheduler.running]
        assert len(set(running)) == len(running), "two of one lane at once"
        for index in reversed(range(len(running))):
            if running[index] != "orders":
                simulation.scheduler.end(index)
    assert {topic for topic, _ in done} <= {"orders", "refunds", "stock"}
    simulation.run_until(lambda: len(done) == 90)
    for topic in ("orders", "refunds", "stock"):
        assert [offset for name, offset in done if name == topic] == list(range(30))


def test_a_rebalance_while_a_record_waits_for_its_retry_does_not_run_it_twice_at_once() -> None:
    broker = MemoryBroker(1, TOPIC)
    broker.append(TOPIC, 0, b"", key=b"k")
    calls = 0

    def handler(record: Record) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise TimeoutError("not now")

    policy = ErrorPolicy(crashes_max=None, retry_backoff=Backoff(first_s=5.0, longest_s=5.0))
    simulation = simulate(broker, handler, policy=policy)
    simulation.run_until(lambda: calls == 1)
    broker.kill(simulation.source)
    simulation.run_until(lambda: committed(broker) == 1)
    for _ in range(200):
        simulation.step(wait_s=0.1)
    assert calls == 2
