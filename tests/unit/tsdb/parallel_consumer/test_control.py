"""Control sets rates, quotas, blocked keys, pauses, compaction and the breaker, in virtual time and from a file."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tsdb.parallel_consumer import (
    Action,
    Backoff,
    Control,
    ErrorPolicy,
    InvalidConfig,
    Options,
    Order,
    Record,
    by_key,
    by_partition,
    unordered,
)
from tsdb.parallel_consumer.flow.control_file import CHECK_EVERY_S
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation, VirtualClock

TOPIC = "orders"
POLICY = ErrorPolicy(retry_backoff=Backoff(first_s=0.01, longest_s=0.01), crashes_max=None, attempts_max=1_000)


class Times:
    """The time at which each record was handled."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.done: list[tuple[float, Record]] = []

    def __call__(self, record: Record) -> None:
        self.done.append((self.clock.monotonic(), record))

    @property
    def offsets(self) -> list[int]:
        return [record.offset for _, record in self.done]


def simulate(broker: MemoryBroker, handler: Callable[[Any], object], clock: VirtualClock, **options: Any) -> Simulation:
    settings = {"policy": POLICY, "producer": MemoryProducer(), "dead_letter_topic": "dlq", **options}
    return Simulation(broker, handler, 1, clock=clock, ends_share=1.0, **settings)


def broker_of(records: int, *, keys: int = 1_000, partitions: int = 1) -> MemoryBroker:
    broker = MemoryBroker(partitions, TOPIC)
    for number in range(records):
        broker.append(TOPIC, number % partitions, b"%d" % number, key=b"k%d" % (number % keys))
    return broker


def run_for(simulation: Simulation, seconds: float) -> None:
    until = simulation.clock.monotonic() + seconds
    simulation.run_until(lambda: simulation.clock.monotonic() >= until, wait_s=0.05, steps_max=200_000)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [3.0, 50.0, 400.0])
def test_the_rate_of_the_consumer_is_kept_within_two_percent(rate: float) -> None:
    clock = VirtualClock()
    times = Times(clock)
    seconds = 2_000 / rate
    simulation = simulate(broker_of(5_000, partitions=3), times, clock, control=Control(rate=rate))
    run_for(simulation, seconds)
    assert len(times.done) == pytest.approx(2_000, rel=0.02)
    halves = sum(at < seconds / 2 for at, _ in times.done)
    assert halves == pytest.approx(1_000, rel=0.02)


def test_the_rate_of_partitions_is_kept_for_each_within_two_percent() -> None:
    clock = VirtualClock()
    times = Times(clock)
    simulation = simulate(broker_of(6_000, partitions=3), times, clock, control=Control(partition_rate=20.0))
    run_for(simulation, 50.0)
    for partition in range(3):
        count = sum(record.partition == partition for _, record in times.done)
        assert count == pytest.approx(1_000, rel=0.02)


def test_rates_change_while_it_runs_and_no_record_is_lost_or_overtakes_its_key() -> None:
    clock = VirtualClock()
    times = Times(clock)
    simulation = simulate(broker_of(3_000, keys=7), times, clock, control=Control(rate=0.0))
    run_for(simulation, 100.0)
    assert not times.done
    simulation.core.control = Control(rate=10.0)
    run_for(simulation, 100.0)
    assert len(times.done) == pytest.approx(1_000, rel=0.02)
    simulation.core.control = Control(partition_rate=1.0)
    run_for(simulation, 100.0)
    assert len(times.done) == pytest.approx(1_100, rel=0.02)
    simulation.core.control = Control()
    simulation.run_until(lambda: len(times.done) == 3_000)
    for key in range(7):
        offsets = [offset for offset in times.offsets if offset % 7 == key]
        assert offsets == sorted(offsets)


def test_a_rebalance_takes_nothing_from_the_rate() -> None:
    """A record that waits for the rate when its partition is revoked has used nothing of the rate."""
    clock = VirtualClock()
    times = Times(clock)
    broker = broker_of(5_000)
    simulation = simulate(broker, times, clock, control=Control(rate=5.0), order=unordered)
    run_for(simulation, 20.0)
    before = len(times.done)
    broker.kill(simulation.source)
    run_for(simulation, 20.0)
    assert len(times.done) - before == pytest.approx(100, abs=3)


@pytest.mark.parametrize("order", [by_key, unordered])
def test_a_key_far_above_its_quota_does_not_slow_other_keys(order: Order) -> None:
    """One key has ten times its quota for a while; 99 in 100 records of other keys wait no longer than without it."""

    def waits(bursting: bool) -> tuple[float, int]:
        clock = VirtualClock()
        broker, arrived_at = MemoryBroker(1, TOPIC), dict[int, float]()
        waited: defaultdict[bytes, list[float]] = defaultdict(list)

        def handler(record: Record) -> None:
            waited[record.key or b""].append(clock.monotonic() - arrived_at[record.offset])

        control = Control(key_quota=10.0, quota_burst_s=0.1)
        options = Options(concurrency=8)
        simulation = simulate(broker, handler, clock, control=control, options=options, order=order)
        for number in range(2_000):
            keys = [b"k%d" % (number % 50)] + ([b"hot"] if bursting else [])
            for key in keys:
                arrived_at[broker.append(TOPIC, 0, b"", key=key)] = clock.monotonic()
            simulation.step(2, wait_s=0.0)
            for _ in range(len(simulation.scheduler.running)):
                simulation.scheduler.end(0)
            clock.advance(0.01)
        others = sorted(wait for key, values in waited.items() if key != b"hot" for wait in values)
        assert len(others) > 1_990
        elapsed_s = clock.monotonic()
        assert len(waited[b"hot"]) <= 10.0 * elapsed_s + 2
        return others[int(len(others) * 0.99)], len(waited[b"hot"])

    alone_s, _ = waits(bursting=False)
    beside_s, hot = waits(bursting=True)
    assert hot > 50
    assert beside_s <= alone_s + 0.01


def test_records_above_their_quota_are_diverted_to_the_topic() -> None:
    clock, producer = VirtualClock(), MemoryProducer()
    times = Times(clock)
    control = Control(key_quotas={b"k1": 0.0}, over_quota_topic="slow-lane")
    simulation = simulate(broker_of(20, keys=4), times, clock, control=control, producer=producer)
    simulation.run_until(lambda: simulation.core.position((TOPIC, 0)) == 20)
    assert {(sent.topic, sent.key) for sent in producer.sent} == {("slow-lane", b"k1")}
    assert len(producer.sent) == 5
    assert len(times.done) == 15
    assert simulation.counted("limited_total", reason="diverted") == 5
    assert simulation.counted("records_sent_total", kind="divert") == 5


@pytest.mark.parametrize("skip", [False, True])
def test_blocked_keys_are_not_handled_and_not_lost_silently(skip: bool) -> None:
    clock, producer = VirtualClock(), MemoryProducer()
    times = Times(clock)
    control = Control(blocked_keys=frozenset({b"k2"}), skip_blocked=skip)
    simulation = simulate(broker_of(20, keys=4), times, clock, control=control, producer=producer)
    simulation.run_until(lambda: simulation.core.position((TOPIC, 0)) == 20)
    assert b"k2" not in {record.key for _, record in times.done}
    assert len(times.done) == 15
    assert simulation.counted("limited_total", reason="blocked_key") == 5
    reasons = [dict(sent.headers)["dlq-reason"] for sent in producer.sent]
    assert reasons == ([] if skip else [b"blocked_key"] * 5)


def test_a_pause_by_hand_begins_nothing_and_keeps_the_membership() -> None:
    clock = VirtualClock()
    times = Times(clock)
    simulation = simulate(broker_of(100), times, clock, control=Control(paused=True))
    run_for(simulation, 60.0)
    assert not times.done
    assert len(simulation.source.polls) > 50
    simulation.core.control = replace(simulation.core.control, paused=False)
    simulation.run_until(lambda: len(times.done) == 100)


def test_a_paused_partition_delays_no_other_even_at_the_read_bound() -> None:
    clock = VirtualClock()
    times = Times(clock)
    control = Control(paused_partitions=frozenset({(TOPIC, 0)}))
    options = Options(records_max=100, poll_records_max=50)
    simulation = simulate(broker_of(3_000, partitions=3), times, clock, control=control, options=options)
    simulation.run_until(lambda: len(times.done) == 2_000)
    assert {record.partition for _, record in times.done} == {1, 2}
    assert simulation.source.paused == {(TOPIC, 0)}
    simulation.core.control = Control()
    simulation.run_until(lambda: len(times.done) == 3_000)


def test_a_stalled_partition_leaves_the_others_their_rate() -> None:
    """Handlers take 10 ms; the first record of partition 0 never ends, and the records behind it fill the bound."""

    def seconds(stalled: bool) -> float:
        clock = VirtualClock()
        broker = broker_of(3_000, partitions=3)
        options = Options(concurrency=9, records_max=300)
        simulation = simulate(broker, Times(clock), clock, order=by_partition, options=options)
        scheduler, done = simulation.scheduler, 0
        stuck: object = None
        while done < 1_990:
            simulation.step(2, wait_s=0.0)
            clock.advance(0.01)
            assert clock.monotonic() < 60.0, f"the others stand still too: {done} done"
            if stalled and stuck is None:
                stuck = next(completion for record, completion in scheduler.running if record.partition == 0)
            for index in reversed(range(len(scheduler.running))):
                record, completion = scheduler.running[index]
                if completion is not stuck:
                    done += record.partition != 0
                    scheduler.end(index)
        return clock.monotonic()

    assert seconds(stalled=True) <= seconds(stalled=False) / 0.95


@pytest.mark.parametrize("standing", [1, 2, 3])
def test_stuck_partitions_leave_the_others_all_slots_within_the_bound(standing: int) -> None:
    """Partitions stop one after another. Handlers take 10 ms, and there is always a record that could run."""
    clock, slots = VirtualClock(), 8
    broker, times = broker_of(4_000, partitions=4), Times(clock)
    options = Options(concurrency=slots, records_max=400, poll_records_max=50)
    simulation = simulate(broker, times, clock, order=unordered, options=options)
    halted = rounds = last = 0
    while last < 990:
        if halted < standing and len(times.done) >= 200 * halted:
            halted += 1
            still = frozenset((TOPIC, partition) for partition in range(halted))
            simulation.core.control = Control(paused_partitions=still)
        simulation.step(2, wait_s=0.0)
        assert simulation.core._intake.records <= options.records_max
        clock.advance(0.01)
        rounds += 1
        assert rounds < 1_000, "the others do not go on"
        for _ in range(len(simulation.scheduler.running)):
            simulation.scheduler.end(0)
        last = sum(record.partition == 3 for _, record in times.done)
    assert halted == standing
    assert len(times.done) >= 0.95 * slots * rounds


def test_a_new_partition_gets_its_share_while_another_holds_the_bound() -> None:
    broker, clock = broker_of(400, partitions=2), VirtualClock()
    times, options = Times(clock), Options(records_max=40, poll_records_max=100)
    still = Control(paused_partitions=frozenset({(TOPIC, 0)}))
    ours = simulate(broker, times, clock, control=still, options=options)
    others = simulate(broker, Times(clock), clock, control=Control(paused=True))
    others.step(3)
    ours.run_until(lambda: ours.core._intake.records == 40)
    assert not times.done
    others.kill()
    most = 0
    for _ in range(2_000):
        ours.step()
        most = max(most, ours.core._intake.records)
    assert len(times.done) == 200, "all of the partition that came"
    assert most == 45, "half of a quarter more: its part"


def test_only_the_newest_of_a_key_is_handled_within_the_linger() -> None:
    clock = VirtualClock()
    times = Times(clock)
    broker = MemoryBroker(1, TOPIC)
    simulation = simulate(broker, times, clock, control=Control(newest_wins_s=1.0))
    for number in range(50):
        broker.append(TOPIC, 0, b"%d" % number, key=b"a" if number % 5 else b"b")
        simulation.step(wait_s=0.01)
    assert not times.done
    run_for(simulation, 2.0)
    assert [(record.key, record.value) for _, record in times.done] == [(b"b", b"45"), (b"a", b"49")]
    assert simulation.counted("ignored_total", reason="superseded") == 48
    assert times.done[0][0] == pytest.approx(1.0, abs=0.1), "the linger begins with the first of the key"
    simulation.close()
    assert broker.commits[TOPIC, 0].next_offset == 50


def test_a_constantly_written_key_is_handled_once_a_linger() -> None:
    clock = VirtualClock()
    times = Times(clock)
    broker = MemoryBroker(1, TOPIC)
    simulation = simulate(broker, times, clock, control=Control(newest_wins_s=1.0))
    while clock.monotonic() < 20.0:
        broker.append(TOPIC, 0, b"%f" % clock.monotonic(), key=b"a")
        simulation.step(2, wait_s=0.0)
        for _ in range(len(simulation.scheduler.running)):
            simulation.scheduler.end(0)
        clock.advance(0.1)
    assert len(times.done) == pytest.approx(19, abs=2)
    for at, record in times.done:
        assert at - float(record.value or b"") < 0.25, "an older one was handled"


def test_a_newer_record_replaces_the_one_waiting_behind_a_slow_record() -> None:
    clock = VirtualClock()
    times = Times(clock)
    broker = broker_of(1, keys=1)
    simulation = Simulation(
        broker, times, 1, clock=clock, ends_share=0.0, policy=POLICY, control=Control(newest_wins_s=0.1),
        producer=MemoryProducer(), dead_letter_topic="dlq",
    )  # fmt: skip
    run_for(simulation, 0.5)
    assert len(simulation.scheduler.running) == 1
    for _ in range(5):
        broker.append(TOPIC, 0, b"", key=b"k0")
        run_for(simulation, 0.5)
    simulation.scheduler.end(0)
    run_for(simulation, 0.5)
    simulation.scheduler.end(0)
    run_for(simulation, 0.5)
    assert times.offsets == [0, 5]
    assert not simulation.scheduler.running
    assert simulation.core.position((TOPIC, 0)) == 6


def test_the_breaker_stops_all_then_tries_one_then_opens_for_all() -> None:
    clock, calls = VirtualClock(), list[float]()
    away_until = 30.0

    def handler(record: Record) -> None:
        calls.append(clock.monotonic())
        if clock.monotonic() < away_until:
            raise ConnectionError("no answer")

    control = Control(breaker_failures=5, breaker_open_s=4.0, breaker_open_s_max=8.0)
    simulation = simulate(broker_of(500), handler, clock, control=control, options=Options(concurrency=8))
    simulation.run_until(lambda: simulation.counted("breaker_open") == 1.0)
    opened_at = clock.monotonic()
    run_for(simulation, away_until - opened_at - 0.1)
    probes = [at for at in calls if opened_at < at < away_until]
    assert 2 <= len(probes) <= 5, "one record at a time, ever less often"
    assert all(b - a >= 3.9 for a, b in pairwise(probes))
    simulation.run_until(lambda: simulation.core.position((TOPIC, 0)) == 500)
    assert clock.monotonic() < away_until + 8.0 + 1.0
    assert simulation.counted("breaker_open") == 0.0


def test_slots_change_while_it_runs() -> None:
    clock = VirtualClock()
    broker = broker_of(1_000)
    simulation = Simulation(
        broker, Times(clock), 1, clock=clock, ends_share=0.0, policy=POLICY, options=Options(concurrency=4),
        producer=MemoryProducer(), dead_letter_topic="dlq",
    )  # fmt: skip
    simulation.step(5)
    assert len(simulation.scheduler.running) == 4
    simulation.core.control = Control(slots=9)
    simulation.step(5)
    assert len(simulation.scheduler.running) == 9


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rat": 1}, "rat is no setting"),
        ({"rate": "much"}, "rate is 'much'; it is a number"),
        ({"rate": -2}, "rate is -2; legal: -1"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"rate": True}, "rate is True"),
        ({"slots": 0}, "slots is 0; legal: 1 and more"),
        ({"slots": 1.5}, "slots is 1.5; it is a whole number"),
        ({"paused": 1}, "paused is 1; it is true or false"),
        ({"paused_partitions": ["orders"]}, "a partition is written topic/number"),
        ({"paused_partitions": "orders/1"}, "it is a list"),
        ({"blocked_keys": [1]}, "it is a text"),
        ({"key_quotas": {"a": "b"}}, r"key_quotas\[a\] is 'b'"),
        ({"key_quotas": 5}, "it is a table"),
        ({"newest_wins_s": -1}, "newest_wins_s is -1; legal: 0 and more"),
        ({"breaker_open_s": 9.0, "breaker_open_s_max": 1.0}, "breaker_open_s_max is 1.0, below breaker_open_s"),
        ({"over_quota_topic": 5}, "it is a text"),
    ],
)
def test_an_invalid_control_names_the_setting(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Control.of(table)


def write(path: Path, text: str) -> None:
    """As editors do: replace the file, so that no reader sees half of it."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def test_a_file_is_followed_and_a_bad_one_changes_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "control.toml", VirtualClock()
    times = Times(clock)
    write(path, 'rate = 0\nblocked_keys = ["k1"]\npaused_partitions = ["orders/7"]\nkey_quotas = {k3 = 5}\n')
    simulation = simulate(broker_of(1_000), times, clock, control_file=path)
    run_for(simulation, 3.0)
    assert not times.done
    assert simulation.core.control == Control(
        rate=0, blocked_keys=frozenset({b"k1"}), paused_partitions=frozenset({("orders", 7)}), key_quotas={b"k3": 5}
    )
    with caplog.at_level(logging.WARNING):
        for bad in ('rate = "fast"', "rate = ", "[rate", '"' * 50_000, "rate = 5\nratee = 6"):
            write(path, bad)
            run_for(simulation, 2 * CHECK_EVERY_S)
            assert simulation.core.control.rate == 0
            assert str(path) in simulation.core.status.control_error
    assert simulation.counted("control_reloads_total", result="refused") == 5
    assert "refused" in caplog.text
    write(path, "")
    run_for(simulation, 2 * CHECK_EVERY_S)
    assert simulation.core.status.control_error == ""
    assert simulation.core.control == Control()
    simulation.run_until(lambda: len(times.done) == 999)


def test_a_file_may_be_json_and_may_be_away(tmp_path: Path) -> None:
    path, clock = tmp_path / "control.json", VirtualClock()
    simulation = simulate(broker_of(10), Times(clock), clock, control_file=path)
    run_for(simulation, 1.5)
    assert simulation.core.control == Control()
    write(path, '{"slots": 3}')
    run_for(simulation, 1.5)
    assert simulation.core.control.slots == 3
    path.unlink()
    run_for(simulation, 1.5)
    assert simulation.core.control == Control()


def test_a_limit_does_not_change_the_actions_of_the_policy() -> None:
    clock, producer = VirtualClock(), MemoryProducer()

    def handler(record: Record) -> None:
        if record.offset == 3:
            raise ValueError("spoilt")

    policy = ErrorPolicy({ValueError: Action.DEAD_LETTER}, crashes_max=None)
    simulation = simulate(broker_of(20), handler, clock, policy=policy, control=Control(rate=10.0), producer=producer)
    simulation.run_until(lambda: simulation.core.position((TOPIC, 0)) == 20)
    assert [dict(sent.headers)["dlq-offset"] for sent in producer.sent] == [b"3"]
