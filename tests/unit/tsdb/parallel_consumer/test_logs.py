"""Log lines of the consumer: one line a cause and partition a minute, with the count of suppressed ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tsdb.parallel_consumer import Action, Backoff, Control, ErrorPolicy, Nack, Record, Requeue, SendFailed
from tsdb.parallel_consumer.limited_log import KEYS_MAX, LimitedLog
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation, VirtualClock

TOPIC = "orders"
TOPIC_PARTITION = (TOPIC, 0)
SLOW = Backoff(first_s=1.0, longest_s=1.0)


class Spoilt(Exception): ...


def broker_of(records: int) -> MemoryBroker:
    broker = MemoryBroker(2, TOPIC)
    for number in range(records):
        broker.append(TOPIC, 0, b"v%d" % number, key=b"k%d" % number)
    return broker


def simulate(broker: MemoryBroker, handler: Callable[[Record], object], action: Action, **options: Any) -> Simulation:
    policy = ErrorPolicy(
        {Spoilt: action}, attempts_max=3, retry_backoff=SLOW, block_backoff=SLOW, crashes_max=None, requeues_max=1
    )
    producer = options.pop("producer", None) or MemoryProducer()
    return Simulation(broker, handler, 1, producer=producer, dead_letter_topic="dlq", policy=policy, **options)


def fail(record: Record) -> None:
    raise Spoilt("so\nit is")


def run_for(simulation: Simulation, seconds: float) -> None:
    end = simulation.clock.monotonic() + seconds
    simulation.run_until(lambda: simulation.clock.monotonic() >= end)


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Action.RETRY, "attempt 1 of 3 failed, the next in"),
        (Action.BLOCK, "blocked, the next try in"),
        (Action.DEAD_LETTER, "given up (exception; 0 failures, 0 crashes), to the dead letters in dlq"),
        (Action.SKIP, "skipped"),
        (Action.REQUEUE, "requeued, 0 rounds left"),
    ],
)
def test_a_failure_is_logged_with_its_action_record_and_error(
    action: Action, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = simulate(broker_of(1), fail, action)
    simulation.run_until(lambda: bool(lines(caplog, words)))
    line = lines(caplog, words)[0]
    assert line.startswith("topic orders, partition 0, offset 0, key b'k0': ")
    assert line.endswith("Spoilt: so it is")


def test_a_thousand_failures_are_one_line_and_then_their_count(caplog: pytest.LogCaptureFixture) -> None:
    simulation = simulate(broker_of(1_000), fail, Action.SKIP)
    simulation.run_until(lambda: simulation.counted("records_finished_total") == 1_000)
    assert len(lines(caplog, "skipped")) == 1
    run_for(simulation, 61.0)
    first, second = lines(caplog, "skipped")
    assert "held back" not in first
    assert second.endswith("(998 more held back)")


def test_a_nack_and_a_lost_round_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def handle(record: Record) -> None:
        raise Nack(2.0) if record.offset == 0 else Requeue("not now")

    simulation = simulate(broker_of(2), handle, Action.SKIP)
    run_for(simulation, 1.0)
    assert lines(caplog, "offset 0")[0].endswith("not now, the next try in 2.0 s")
    assert lines(caplog, "offset 1")[0].endswith("requeued, 0 rounds left: Requeue: not now")


def test_a_refused_dead_letter_is_logged_and_stays_counted_as_blocked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = MemoryProducer()
    producer.fault = lambda record: "no_topic"
    simulation = simulate(broker_of(1), fail, Action.DEAD_LETTER, producer=producer)
    simulation.run_until(lambda: producer.attempts["dlq", 0] > 3)
    run_for(simulation, 0.5)
    assert lines(caplog, "not taken by topic dlq")
    assert simulation.core.status.blocked == 1
    assert simulation.core.status.blocked_by == {"handler": 0, "outlet": 1}
    assert simulation.counted("blocked", reason="outlet") == 1
    assert simulation.counted("blocked", reason="handler") == 0
    assert simulation.counted("send_failures_total", reason="no_topic") > 3


class Hangs:
    """A producer that refuses the first send and never acknowledges a later one."""

    def __init__(self) -> None:
        self.sends = 0
        self.answer: Callable[[object], None] | None = None

    def send(self, record: object, on_sent: Any) -> None:
        self.sends += 1
        if self.sends == 1:
            on_sent(SendFailed("no such topic", reason="no_topic"))
        else:
            self.answer = on_sent


def test_a_blocked_record_counts_as_blocked_while_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    producer = Hangs()
    simulation = simulate(broker_of(1), fail, Action.DEAD_LETTER, producer=producer)
    simulation.run_until(lambda: producer.sends == 2)
    run_for(simulation, 1.0)
    assert (simulation.core.status.blocked, simulation.core.status.running) == (1, 0)
    assert "no such topic" in simulation.core.status.blocked_error
    assert producer.answer is not None
    producer.answer(None)
    run_for(simulation, 1.0)
    assert simulation.core.status.blocked == 0


def test_stalls_are_logged_once_a_minute_and_partition(caplog: pytest.LogCaptureFixture) -> None:
    simulation = simulate(broker_of(1), fail, Action.BLOCK)
    run_for(simulation, 85.0)
    assert len(lines(caplog, "not ended for")) == 1
    assert "offset 0" in lines(caplog, "not ended for")[0]
    run_for(simulation, 61.0)
    assert len(lines(caplog, "not ended for")) >= 2


def test_failed_commits_are_logged_with_reason_count_and_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = broker_of(1)
    broker.commit_fault = lambda topic_partition: "lost"
    simulation = simulate(broker, lambda record: None, Action.SKIP)
    run_for(simulation, 5.0)
    (line,) = lines(caplog, "commit failed")
    assert "unavailable" in line
    assert simulation.counted("commit_failures_total", reason="unavailable") > 3
    broker.commit_fault = lambda topic_partition: None
    run_for(simulation, 1.0)
    assert len(lines(caplog, "commits are acknowledged again")) == 1


def test_assigned_and_revoked_partitions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    broker = broker_of(1)
    simulation = simulate(broker, lambda record: None, Action.SKIP)
    run_for(simulation, 1.0)
    assert lines(caplog, "assigned: orders/0 from 0, orders/1 from 0")
    simulation.close()
    assert lines(caplog, "given back: orders/0, orders/1")


def test_an_opening_breaker_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    simulation = simulate(broker_of(5), fail, Action.RETRY, control=Control(breaker_failures=2))
    run_for(simulation, 3.0)
    assert len(lines(caplog, "breaker opened")) == 1


def test_log_keys_are_bounded_and_further_ones_share_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    log = LimitedLog(clock)
    for number in range(2 * KEYS_MAX):
        log.log(logging.WARNING, "cause", (TOPIC, number), "line %d", number)
    assert len(caplog.records) == KEYS_MAX + 1
    clock.advance(61.0)
    log.flush()
    assert caplog.records[-1].getMessage().endswith(f"({KEYS_MAX - 2} more held back)")
    clock.advance(61.0)
    log.flush()
    log.log(logging.WARNING, "cause", TOPIC_PARTITION, "again")
    assert caplog.records[-1].getMessage() == "again"
