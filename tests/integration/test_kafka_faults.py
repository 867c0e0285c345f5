"""Attacks the promise that an acknowledged append is in the log and in order, whatever happens to the broker.

Eight writers append without pause while a broker is stopped, killed or frozen; every fault finds appends in flight.
Lost brokers of three are drills here; tests/fault/test_three_brokers.py loses them under whole systems.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from stack.kafka import KafkaCluster
from support.drills.log_writers import LogWriters
from support.servers.logs import LogFactory, append_all, poll_until, read_to_end, read_values, records_of, wait_until
from tsdb.log.interface import METRICS, Log
from tsdb.log.settings import LogSettings
from tsdb.log.topics import topic_specs
from tsdb.model.errors import Overloaded, Unavailable

SETTINGS = LogSettings(delivery_timeout_s=3.0, request_timeout_s=3.0)
RECOVERED_WITHIN_S = 120.0  # Bounds a wait that would not end after a bug.
REPLACED_WITHIN_S = 30.0


@pytest.fixture
def logs(broker: KafkaCluster) -> Iterator[LogFactory]:
    with _factory(broker, replication=1) as factory:
        yield factory


@pytest.fixture
def replicated(three: KafkaCluster) -> Iterator[LogFactory]:
    with _factory(three, replication=3) as factory:
        yield factory


def _factory(cluster: KafkaCluster, replication: int) -> LogFactory:
    factory = LogFactory(f"kafka://{cluster.bootstrap}", f"f{uuid.uuid4().hex[:12]}.")
    for spec in topic_specs(1, replication=replication)[:1]:
        factory.topics().create(spec)
    return factory


def _stop(cluster: KafkaCluster) -> Callable[[], None]:
    cluster.stop_broker(0)
    return lambda: cluster.start_broker(0)


def _kill(cluster: KafkaCluster) -> Callable[[], None]:
    cluster.kill_broker(0)
    return lambda: cluster.start_broker(0)


def _freeze(cluster: KafkaCluster) -> Callable[[], None]:
    cluster.suspend_broker(0)
    return lambda: cluster.resume_broker(0)


def _leader(cluster: KafkaCluster, logs: LogFactory) -> int:
    return cluster.leader(f"{logs.prefix}{METRICS}", 0)


@pytest.mark.parametrize(
    "strike", [pytest.param(_stop, marks=pytest.mark.soak), _kill, pytest.param(_freeze, marks=pytest.mark.soak)]
)
def test_no_append_is_acknowledged_falsely_and_retries_succeed_after(
    broker: KafkaCluster, logs: LogFactory, strike: Callable[[KafkaCluster], Callable[[], None]]
) -> None:
    log = logs.open(SETTINGS)
    with LogWriters(log) as writers:
        wait_until(lambda: writers.acked > 200 and writers.in_flight > 0)
        mend = strike(broker)
        assert writers.in_flight > 0
        wait_until(lambda: writers.failures.total() >= 8)
        mend()
        before = writers.acked
        wait_until(lambda: writers.acked > before + 200, within_s=60)
    broker.wait_ready()
    writers.judge(logs.open())


def test_a_reader_stands_still_while_the_broker_is_away_and_goes_on_after(
    broker: KafkaCluster, logs: LogFactory
) -> None:
    log = logs.open(SETTINGS)
    append_all(log, METRICS, 0, [b"before"])
    with log.reader({(METRICS, 0): 0}) as reader:
        assert read_values(reader, 1) == [b"before"]
        broker.kill_broker(0)
        wait_until(lambda: reader.poll(0.1) == [] and reader.unavailable_since_monotonic is not None)
        with pytest.raises(Unavailable):
            log.watermarks(METRICS, [0])
        with pytest.raises(Unavailable):
            log.offsets_for_times(METRICS, {0: 0})
        broker.start_broker(0)
        broker.wait_ready()
        append_all(log, METRICS, 0, [b"after"])
        events = poll_until(reader, lambda events: len(records_of(events)) >= 1)
        assert [record.value for record in records_of(events)] == [b"after"]
        wait_until(lambda: bool(reader.poll(0.1)) or reader.unavailable_since_monotonic is None)


def test_a_log_opened_without_a_broker_is_unavailable_until_there_is_one(
    broker: KafkaCluster, logs: LogFactory
) -> None:
    broker.stop_broker(0)
    log = logs.open(SETTINGS)
    with pytest.raises(Unavailable):
        log.topic_id(METRICS)
    with pytest.raises(Unavailable):
        log.append(METRICS, 0, b"x", on_done=lambda answer: None)
    broker.start_broker(0)
    broker.wait_ready()
    assert log.append_sync(METRICS, 0, b"x").offset == 0


def test_appends_over_the_bound_are_refused_while_the_broker_is_frozen(broker: KafkaCluster, logs: LogFactory) -> None:
    log = logs.open(LogSettings(delivery_timeout_s=5.0, queue_bytes_max=1024 * 1024))
    log.append_sync(METRICS, 0, b"warm")
    answers: list[object] = []
    broker.suspend_broker(0)
    try:
        with pytest.raises(Overloaded) as full:
            _append_many(log, 1000, answers)
        assert full.value.reason == "queue_full"
        assert full.value.retry_after_s is not None
    finally:
        broker.resume_broker(0)
    log.flush(30)
    assert log.append_sync(METRICS, 0, b"after") is not None


@pytest.mark.soak
def test_one_broker_of_three_lost_costs_nothing(three: KafkaCluster, replicated: LogFactory) -> None:
    log = replicated.open(SETTINGS)
    follower = (_leader(three, replicated) + 1) % 3
    with LogWriters(log) as writers:
        wait_until(lambda: writers.acked > 200 and writers.in_flight > 0)
        three.kill_broker(follower)
        before = writers.acked
        wait_until(lambda: writers.acked > before + 200, within_s=RECOVERED_WITHIN_S)
    three.start_broker(follower)
    three.wait_ready()
    writers.judge(replicated.open())


@pytest.mark.soak
def test_a_killed_leader_is_replaced_within_the_bound(three: KafkaCluster, replicated: LogFactory) -> None:
    log = replicated.open(SETTINGS)
    leader = _leader(three, replicated)
    with LogWriters(log) as writers:
        wait_until(lambda: writers.acked > 200 and writers.in_flight > 0)
        three.kill_broker(leader)
        killed_at, before = time.monotonic(), writers.acked
        wait_until(lambda: writers.acked > before + 200, within_s=RECOVERED_WITHIN_S)
        assert time.monotonic() - killed_at < REPLACED_WITHIN_S
    three.start_broker(leader)
    three.wait_ready()
    writers.judge(replicated.open())


def test_a_frozen_leader_is_replaced_and_its_late_writes_do_not_count(
    three: KafkaCluster, replicated: LogFactory
) -> None:
    log = replicated.open(SETTINGS)
    leader = _leader(three, replicated)
    with LogWriters(log) as writers:
        wait_until(lambda: writers.acked > 200 and writers.in_flight > 0)
        three.suspend_broker(leader)
        try:
            before = writers.acked
            wait_until(lambda: writers.acked > before + 200, within_s=60)
        finally:
            three.resume_broker(leader)
        before = writers.acked
        wait_until(lambda: writers.acked > before + 200, within_s=60)
    three.wait_ready()
    writers.judge(replicated.open())


@pytest.mark.soak
def test_two_brokers_of_three_lost_means_refused(three: KafkaCluster, replicated: LogFactory) -> None:
    log = replicated.open(SETTINGS)
    followers = [number for number in range(3) if number != _leader(three, replicated)]
    with LogWriters(log) as writers:
        wait_until(lambda: writers.acked > 200 and writers.in_flight > 0)
        for number in followers:
            three.kill_broker(number)
        wait_until(lambda: writers.failures.total() >= 16)
        refused_at = writers.acked
        wait_until(lambda: writers.failures.total() >= 32)
        assert writers.acked == refused_at
        for number in followers:
            three.start_broker(number)
        wait_until(lambda: writers.acked > refused_at + 200, within_s=60)
    three.wait_ready()
    writers.judge(replicated.open())


def test_what_was_read_before_a_fail_over_is_not_read_again(three: KafkaCluster, replicated: LogFactory) -> None:
    append_all(replicated.open(), METRICS, 0, [b"%d" % i for i in range(100)])
    log = replicated.open(SETTINGS)
    # The producer gets its id now. A producer that starts during the fail-over would also wait for a new controller.
    wait_until(lambda: _appended(log, b"before"))
    with log.reader({(METRICS, 0): 0}) as reader:
        events = read_to_end(reader)
        leader = _leader(three, replicated)
        three.kill_broker(leader)
        wait_until(lambda: _appended(log, b"after"), within_s=RECOVERED_WITHIN_S)
        poll_until(reader, lambda events: records_of(events)[-1].value == b"after", into=events)
        three.start_broker(leader)
        three.wait_ready()
    values = [record.value for record in records_of(events)]
    assert values[:100] == [b"%d" % i for i in range(100)]
    assert set(values[100:]) == {b"before", b"after"}


def _append_many(log: Log, count: int, answers: list[object]) -> None:
    for _ in range(count):
        log.append(METRICS, 0, bytes(10_000), on_done=answers.append)


def _appended(log: Log, value: bytes) -> bool:
    try:
        log.append_sync(METRICS, 0, value)
    except Unavailable:
        return False
    return True
