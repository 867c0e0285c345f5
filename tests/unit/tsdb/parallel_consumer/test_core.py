"""The core on a broker in memory and a clock of the test: failures by class, bounds, drains, reports."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tsdb.parallel_consumer import (
    Action,
    Backoff,
    ErrorPolicy,
    HandlerStopped,
    InvalidConfig,
    MetadataRefused,
    Options,
    Record,
    SpecialLane,
    TopicRecreated,
    by_partition,
)
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.record import Position
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation, VirtualClock

TOPIC = "orders"
TOPIC_PARTITION = (TOPIC, 0)
NO_PAUSE = Backoff(first_s=0.001, longest_s=0.001)


class Away(Exception):
    """A shared dependency does not answer."""


class Spoilt(Exception):
    """The record can never be handled."""


class Flaky:
    """Raises the given error at an offset, the given number of times; keeps the handled records."""

    def __init__(self, **failures: tuple[type[Exception], int]) -> None:
        self._left = {int(name[1:]): [error, count] for name, (error, count) in failures.items()}
        self.done: list[int] = []
        self.calls: list[int] = []

    def __call__(self, record: Record) -> None:
        self.calls.append(record.offset)
        error, left = self._left.get(record.offset, [Exception, 0])
        assert isinstance(left, int)
        if left > 0:
            self._left[record.offset][1] = left - 1
            assert isinstance(error, type)
            raise error("so it is")
        self.done.append(record.offset)


def broker_of(records: int, *, keys: int = 1_000, partitions: int = 1) -> MemoryBroker:
    broker = MemoryBroker(partitions, TOPIC)
    for number in range(records):
        broker.append(TOPIC, 0, b"v%d" % number, key=b"k%d" % (number % keys))
    return broker


def policy_of(actions: dict[type[BaseException], Action] | None = None, **more: object) -> ErrorPolicy:
    settings: dict[str, object] = {"retry_backoff": NO_PAUSE, "block_backoff": NO_PAUSE, "crashes_max": None, **more}
    return ErrorPolicy(actions or {}, **settings)  # type: ignore[arg-type]


def simulate(broker: MemoryBroker, handler: Callable[[Record], object], **options: Any) -> Simulation:
    producer = options.pop("producer", None) or MemoryProducer()
    return Simulation(broker, handler, 1, producer=producer, dead_letter_topic="dlq", **options)


def committed(broker: MemoryBroker) -> int:
    return broker.commits[TOPIC_PARTITION].next_offset


def test_a_failed_record_is_tried_again_and_its_key_waits() -> None:
    broker, flaky = broker_of(6, keys=2), Flaky(o0=(Spoilt, 3))
    simulation = simulate(broker, flaky, policy=policy_of(attempts_max=5))
    simulation.run_until(lambda: len(flaky.done) == 6)
    assert [offset for offset in flaky.done if offset % 2 == 0] == [0, 2, 4]
    assert flaky.calls.count(0) == 4
    assert simulation.counted("record_failures_total", kind="retry") == 3


def test_exhausted_attempts_end_in_a_dead_letter_with_all_headers() -> None:
    broker, flaky, producer = MemoryBroker(1, TOPIC), Flaky(o7=(Spoilt, 99)), MemoryProducer()
    broker.append(TOPIC, 0, b"v", key=b"k", headers=[("a", b"1"), ("dlq-topic", b"old")], gap=7, timestamp_ms=5)
    broker.append(TOPIC, 0, b"w", key=b"k")
    simulation = simulate(broker, flaky, producer=producer, policy=policy_of(attempts_max=3))
    simulation.run_until(lambda: flaky.done == [8])
    simulation.close()
    assert flaky.calls == [7, 7, 7, 8]
    (dead_letter,) = producer.sent
    headers = dict(dead_letter.headers)
    assert (dead_letter.topic, dead_letter.partition, dead_letter.key, dead_letter.value) == ("dlq", 0, b"k", b"v")
    assert headers["a"] == b"1"
    assert (headers["dlq-topic"], headers["dlq-partition"], headers["dlq-offset"]) == (b"orders", b"0", b"7")
    assert (headers["dlq-timestamp-ms"], headers["dlq-reason"], headers["dlq-attempts"]) == (b"5", b"attempts", b"3")
    assert headers["dlq-exception"].endswith(b"Spoilt")
    assert headers["dlq-message"] == b"so it is"
    assert b"Traceback" in headers["dlq-stack"]
    assert committed(broker) == 9


def test_a_record_is_not_finished_before_its_dead_letter_is() -> None:
    broker, flaky, producer = broker_of(1), Flaky(o0=(Spoilt, 99)), MemoryProducer()
    producer.fault = lambda record: "unavailable" if producer.attempts["dlq", 0] < 5 else None
    simulation = simulate(broker, flaky, producer=producer, policy=policy_of({Spoilt: Action.DEAD_LETTER}))
    simulation.run_until(lambda: producer.attempts["dlq", 0] == 4)
    assert broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 0
    simulation.run_until(lambda: bool(producer.sent))
    simulation.close()
    assert flaky.calls == [0]
    assert committed(broker) == 1
    assert simulation.counted("send_failures_total", reason="unavailable") == 4


def test_a_dead_letter_too_large_for_the_broker_is_sent_without_its_value() -> None:
    broker, producer = broker_of(1), MemoryProducer()
    producer.fault = lambda record: "record_too_large" if record.value else None
    simulation = simulate(
        broker, Flaky(o0=(Spoilt, 1)), producer=producer, policy=policy_of({Spoilt: Action.DEAD_LETTER})
    )
    simulation.run_until(lambda: bool(producer.sent))
    assert producer.sent[0].value is None
    assert dict(producer.sent[0].headers)["dlq-value-omitted-bytes"] == b"2"


def test_skipped_records_are_finished_and_counted() -> None:
    broker, flaky = broker_of(3), Flaky(o1=(Spoilt, 1))
    simulation = simulate(broker, flaky, policy=policy_of({Spoilt: Action.SKIP}))
    simulation.run_until(lambda: len(flaky.done) == 2)
    simulation.close()
    assert committed(broker) == 3
    assert simulation.counted("record_failures_total", kind="skip") == 1


def test_a_record_out_of_requeues_becomes_a_dead_letter() -> None:
    broker, producer = broker_of(1), MemoryProducer()

    def send_back(record: object) -> None:
        while len(broker.records[TOPIC_PARTITION]) - 1 < len([one for one in producer.sent if one.topic == TOPIC]):
            sent = [one for one in producer.sent if one.topic == TOPIC][-1]
            broker.append(TOPIC, 0, sent.value, key=sent.key, headers=sent.headers)

    def handler(record: Record) -> None:
        raise Spoilt

    simulation = simulate(
        broker, handler, producer=producer, policy=policy_of({Spoilt: Action.REQUEUE}, requeues_max=2)
    )

    def done() -> bool:
        send_back(None)
        return any(one.topic == "dlq" for one in producer.sent)

    simulation.run_until(done)
    rounds = [dict(one.headers)["requeue-ttl"] for one in producer.sent if one.topic == TOPIC]
    assert rounds == [b"1", b"0"]
    assert dict(producer.sent[-1].headers)["dlq-reason"] == b"requeues"


def test_a_fatal_exception_ends_the_consumer_and_other_finished_records_are_committed() -> None:
    broker, flaky = broker_of(4), Flaky(o2=(Spoilt, 1))
    simulation = simulate(broker, flaky, policy=policy_of({Spoilt: Action.FATAL}))
    with pytest.raises(HandlerStopped, match="topic orders, partition 0, offset 2: Spoilt: so it is"):
        simulation.run_until(lambda: False)
    simulation.close()
    assert committed(broker) == 2
    runs = decode_metadata(2, broker.commits[TOPIC_PARTITION].metadata, "id-of-orders").finished.tolist()
    assert sorted(flaky.done) == [0, 1] + [offset for start, end in runs for offset in range(start, end)]


@pytest.mark.slow
def test_an_outage_blocks_everything_and_is_retried_ever_less_often() -> None:
    broker, clock = broker_of(200), VirtualClock()
    back_at, calls = 8 * 3600.0, [0.0]
    done: list[int] = []

    def handler(record: Record) -> None:
        calls.append(clock.monotonic())
        if clock.monotonic() < back_at:
            raise Away("no answer")
        done.append(record.offset)

    producer = MemoryProducer()
    simulation = simulate(
        broker,
        handler,
        clock=clock,
        producer=producer,
        options=Options(concurrency=8),
        policy=policy_of({Away: Action.BLOCK}, block_backoff=Backoff(first_s=0.2, longest_s=30.0)),
    )
    simulation.run_until(lambda: clock.monotonic() > 120.0, wait_s=1.0)
    status = simulation.core.status
    assert (status.blocked, status.blocked_error) == (8, "Away: no answer")
    assert len(status.stalls) == 8
    assert str(status.stalls[0]).startswith("topic orders, partition 0, offset ")
    assert status.stalls[0].attempts > 5
    simulation.run_until(lambda: len(done) == 200, wait_s=30.0, steps_max=60_000)
    simulation.close()
    # Eight records, each once in 15 to 30 s, and a few at the start.
    assert len(calls) < 8 * 8 * 3600 / 15 + 1_000
    assert not producer.sent
    assert clock.monotonic() < back_at + 35.0
    assert committed(broker) == 200


def test_one_blocked_record_does_not_hold_up_the_others_nor_is_it_hammered() -> None:
    broker, clock = broker_of(500), VirtualClock()
    done: list[int] = []
    attempts = 0

    def handler(record: Record) -> None:
        nonlocal attempts
        if record.offset == 3 and clock.monotonic() < 60.0:
            attempts += 1
            raise Away
        done.append(record.offset)

    simulation = simulate(
        broker, handler, clock=clock, policy=policy_of({Away: Action.BLOCK}, block_backoff=Backoff(first_s=5.0))
    )
    simulation.run_until(lambda: len(done) == 499)
    assert attempts <= 3
    simulation.run_until(lambda: len(done) == 500)
    simulation.close()
    assert committed(broker) == 500


def test_attempts_survive_a_restart() -> None:
    broker, producer = broker_of(1), MemoryProducer()
    calls = 0

    def handler(record: Record) -> None:
        nonlocal calls
        calls += 1
        raise Spoilt

    for _ in range(2):
        simulation = simulate(
            broker, handler, producer=producer, policy=policy_of(attempts_max=6, retry_backoff=Backoff(first_s=1.0))
        )
        simulation.run_until(lambda upto=calls + 3: calls == upto)  # type: ignore[misc]
        simulation.close()
        if producer.sent:
            break
    assert calls == 6
    assert [dict(one.headers)["dlq-attempts"] for one in producer.sent] == [b"6"]


def test_reading_stops_at_the_bound_and_goes_on_at_half_of_it() -> None:
    broker, flaky = broker_of(400), Flaky()
    simulation = simulate(broker, flaky, options=Options(records_max=100, poll_records_max=1_000, concurrency=1))
    most = 0
    while len(flaky.done) < 400:
        simulation.step()
        most = max(most, sum(part.unfinished for part in simulation.core._partitions.values()))
    assert most == 100
    assert max(simulation.source.polls) == 100
    refills = [asked for asked in simulation.source.polls if asked > 1][:5]
    assert all(asked > 50 for asked in refills), "read on before half of the bound was free"


def test_while_records_wait_for_a_slot_reading_takes_a_tenth_of_the_time() -> None:
    clock = VirtualClock()

    def costly(record: Record) -> bytes | None:
        clock.advance(0.001)
        return record.key

    options = Options(concurrency=1, poll_records_max=10)
    simulation = simulate(broker_of(2_000), Flaky(), clock=clock, ends_share=0.0, order=costly, options=options)
    simulation.run_until(lambda: clock.monotonic() > 10.0)
    read = sum(part.unfinished for part in simulation.core._partitions.values())
    assert 900 <= read <= 1_020, "of 10 s one, at 1 ms a record"


def test_a_member_at_its_bound_pauses_and_keeps_polling() -> None:
    broker, clock = broker_of(50), VirtualClock()

    def handler(record: Record) -> None:
        if clock.monotonic() < 100:
            raise Away

    simulation = simulate(
        broker,
        handler,
        clock=clock,
        options=Options(records_max=10, concurrency=4),
        policy=policy_of({Away: Action.BLOCK}, block_backoff=Backoff(first_s=1.0)),
    )
    simulation.run_until(lambda: clock.monotonic() > 50, wait_s=0.5)
    assert simulation.source.paused == {TOPIC_PARTITION}
    assert simulation.core.status.partitions[TOPIC_PARTITION].paused
    polls = len(simulation.source.polls)
    simulation.run_until(lambda: clock.monotonic() > 70, wait_s=0.5)
    assert len(simulation.source.polls) - polls >= 15, "the member polls once a second"
    simulation.run_until(lambda: broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 50)
    assert not simulation.source.paused


@pytest.mark.slow
def test_a_partition_whose_map_would_outgrow_a_commit_is_paused_alone() -> None:
    broker = MemoryBroker(2, TOPIC)
    for partition in range(2):
        for number in range(70_000):
            broker.append(TOPIC, partition, b"", key=b"%d" % number)
    stuck, done = (TOPIC, 0, 0), 0
    free = False

    def handler(record: Record) -> None:
        nonlocal done
        if (record.topic, record.partition, record.offset) == stuck and not free:
            raise Away
        done += 1

    simulation = simulate(
        broker,
        handler,
        ends_share=1.0,
        options=Options(records_max=1_000_000, poll_records_max=20_000, concurrency=1_000),
        policy=policy_of({Away: Action.BLOCK}, block_backoff=Backoff(first_s=0.5, longest_s=0.5)),
    )
    scheduler = simulation.scheduler

    def finish_all() -> None:
        simulation.step()
        for _ in range(len(scheduler.running)):
            scheduler.end(0)

    for _ in range(400):
        finish_all()
    parts = simulation.core.status.partitions
    assert parts[TOPIC, 0].paused
    assert not parts[TOPIC, 1].paused
    assert parts[TOPIC, 1].position == 70_000
    assert 50_000 < parts[TOPIC, 0].next_offset < 52_000
    assert len(broker.commits[TOPIC, 0].metadata.encode("utf-16-le")) // 2 <= 4_095
    free = True
    for _ in range(400):
        finish_all()
    assert done == 140_000
    assert simulation.core.status.partitions[TOPIC, 0].position == 70_000


def test_offsets_without_a_record_at_the_end_are_committed() -> None:
    broker, flaky = broker_of(3), Flaky()
    broker.skip(TOPIC, 0, 5)
    simulation = simulate(broker, flaky)
    simulation.run_until(lambda: broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 8)
    broker.append(TOPIC, 0, b"more")
    simulation.run_until(lambda: flaky.done[-1:] == [8])


def test_a_barrier_runs_after_all_before_it_and_holds_nothing_up_behind_it() -> None:
    broker, ended = broker_of(30), list[int]()
    gates: list[int] = []
    open_gate = False

    def order(record: Record) -> object:
        return SpecialLane.BARRIER if record.offset in (10, 20) else record.offset

    def gate(record: Record) -> bool:
        gates.append(record.offset)
        return open_gate

    simulation = simulate(broker, lambda record: ended.append(record.offset), order=order, gate=gate)
    simulation.run_until(lambda: len(ended) == 28)
    simulation.step(2)
    assert set(gates) == {10}
    assert simulation.core.position(TOPIC_PARTITION) == 10
    open_gate = True
    simulation.run_until(lambda: len(ended) == 30)
    assert ended[-2:] == [10, 20]


def test_late_completions_are_ignored_and_counted() -> None:
    broker, flaky = broker_of(20), Flaky()
    clock = VirtualClock()
    first = simulate(broker, flaky, clock=clock, options=Options(concurrency=4, rebalance_drain_s=0.0), ends_share=0.0)
    first.step(3)
    running = list(first.scheduler.running)
    assert len(running) == 4
    broker.kill(first.source)  # The group declared the member dead; it learns that at its next poll.
    first.step(2)
    for _, done in running:
        done(None)
    first.step(100)
    assert first.counted("ignored_total", reason="late") == 4
    assert broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 0
    assert first.core.status.partitions[TOPIC_PARTITION].generation == 2


def test_a_rebalance_waits_for_running_records_and_commits_them() -> None:
    broker = MemoryBroker(2, TOPIC)
    for number in range(40):
        broker.append(TOPIC, number % 2, b"", key=b"%d" % number)
    clock, flaky = VirtualClock(), Flaky()
    first = simulate(broker, flaky, clock=clock, options=Options(concurrency=8), ends_share=0.7)
    first.step(5)
    assert first.core.running
    second = simulate(broker, flaky, clock=clock)
    for _ in range(50):
        first.step()
        second.step()
    first.close()
    second.close()
    assert len(flaky.done) == 40
    assert first.counted("ignored_total", reason="late") == 0
    assert first.counted("undrained_total") == 0


def test_a_drain_waits_no_longer_than_it_may() -> None:
    broker, clock = broker_of(4), VirtualClock()
    simulation = simulate(broker, Flaky(), clock=clock, options=Options(drain_s=3.0), ends_share=0.0)
    simulation.step(2)
    before = clock.monotonic()
    simulation.close()
    assert clock.monotonic() - before == pytest.approx(3.0, abs=0.5)
    assert simulation.counted("undrained_total") == 4
    assert broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 0


def test_a_failed_commit_is_retried_and_shown() -> None:
    broker, flaky = broker_of(5), Flaky()
    broker.commit_fault = lambda topic_partition: "lost"
    simulation = simulate(broker, flaky, policy=policy_of())
    simulation.run_until(lambda: simulation.counted("commits_total", result="failed") >= 3)
    assert simulation.core.status.commit_error == "no answer"
    broker.commit_fault = lambda topic_partition: None
    simulation.run_until(lambda: broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 5)
    simulation.step(20)
    assert simulation.core.status.commit_error == ""


def test_on_committed_follows_the_acknowledgement() -> None:
    broker, acknowledged = broker_of(5), dict[tuple[str, int], Position]()
    simulation = simulate(broker, Flaky(), on_committed=acknowledged.update)
    simulation.run_until(lambda: acknowledged.get(TOPIC_PARTITION, Position(0)).next_offset == 5)
    assert acknowledged == broker.commits


def test_a_commit_follows_every_record_with_commit_records_1() -> None:
    broker, flaky = broker_of(10, keys=1), Flaky()
    simulation = simulate(broker, flaky, options=Options(commit_records=1, commit_interval_s=3_600.0))
    simulation.run_until(lambda: len(flaky.done) == 10)
    simulation.step(2)
    assert {at.next_offset for _, at in broker.history} >= set(range(1, 11))


@pytest.mark.parametrize(("metadata", "reason"), [("something else", "malformed"), ("AQAAAAAAAAA=", "bad_checksum")])
def test_untrusted_metadata_ends_the_consumer_unless_replay_is_accepted(metadata: str, reason: str) -> None:
    broker, flaky = broker_of(5), Flaky()
    broker.commits[TOPIC_PARTITION] = Position(2, metadata)
    with pytest.raises(MetadataRefused, match="topic orders, partition 0, commit of offset 2") as refused:
        simulate(broker, flaky).run_until(lambda: False)
    assert refused.value.reason == reason
    broker.members.clear()
    simulation = simulate(broker, flaky, options=Options(accept_replay=True))
    simulation.run_until(lambda: len(flaky.done) == 3)
    assert sorted(flaky.done) == [2, 3, 4]
    assert simulation.counted("metadata_refused_total") == 1


def test_a_recreated_topic_is_refused() -> None:
    broker = broker_of(5)
    simulation = simulate(broker, Flaky())
    simulation.run_until(lambda: broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 5)
    simulation.close()
    broker.topic_ids[TOPIC] = "another"
    with pytest.raises(MetadataRefused, match="made anew") as refused:
        simulate(broker, Flaky()).run_until(lambda: False)
    assert refused.value.reason == "wrong_topic"


@pytest.mark.parametrize("records", [0, 3, 5, 9])
def test_a_topic_recreated_while_it_is_read_ends_the_consumer_and_nothing_is_committed_to_it(records: int) -> None:
    broker, flaky = broker_of(5), Flaky()
    simulation = simulate(broker, flaky)
    simulation.run_until(lambda: broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 5)
    broker.recreate(TOPIC)
    for number in range(records):
        broker.append(TOPIC, 0, b"new %d" % number)
    with pytest.raises(TopicRecreated, match="topic orders was deleted and made again while it was read") as ended:
        simulation.run_until(lambda: False)
    assert ended.value.reason == "topic_recreated"
    simulation.close()
    assert sorted(flaky.done) == list(range(5))
    assert not broker.commits
    later = Flaky()
    simulate(broker, later).run_until(lambda: len(later.done) == records)


def test_a_record_that_ends_after_its_topic_was_recreated_is_not_committed_to_the_new_topic() -> None:
    broker, ended = MemoryBroker(1, TOPIC, "other"), list[int]()
    for _ in range(5):
        broker.append(TOPIC, 0, b"old")
    broker.append("other", 0, b"kept")
    simulation = simulate(broker, lambda record: ended.append(record.offset), ends_share=0.0)
    simulation.run_until(lambda: len(simulation.scheduler.running) == 6)
    broker.recreate(TOPIC)
    while simulation.scheduler.running:
        simulation.scheduler.end(0)
    simulation.core.drain()
    assert isinstance(simulation.core.failure, TopicRecreated)
    assert {at: position.next_offset for at, position in broker.commits.items()} == {("other", 0): 1}


def test_accept_replay_does_not_accept_a_commit_of_another_topic() -> None:
    broker = broker_of(5)
    simulation = simulate(broker, Flaky())
    simulation.run_until(lambda: broker.commits.get(TOPIC_PARTITION, Position(0)).next_offset == 5)
    simulation.close()
    broker.topic_ids[TOPIC] = "another"
    with pytest.raises(MetadataRefused, match="--reset-offsets") as refused:
        simulate(broker, Flaky(), options=Options(accept_replay=True)).run_until(lambda: False)
    assert refused.value.reason == "wrong_topic"


def test_order_by_partition_runs_one_at_a_time() -> None:
    broker, flaky = broker_of(20), Flaky()
    simulation = simulate(broker, flaky, order=by_partition)
    while len(flaky.done) < 20:
        simulation.step()
        assert len(simulation.scheduler.running) <= 1
    assert flaky.done == list(range(20))


def test_lanes_are_freed_when_empty() -> None:
    broker, flaky = broker_of(200, keys=150), Flaky()
    simulation = simulate(broker, flaky)
    simulation.run_until(lambda: len(flaky.done) == 200)
    simulation.step(10)
    assert simulation.core.status.partitions[TOPIC_PARTITION].lanes == 0


def test_running_bytes_are_bounded_and_one_larger_runs_alone() -> None:
    broker = MemoryBroker(1, TOPIC)
    for size in (10, 10, 500, 10, 10):
        broker.append(TOPIC, 0, bytes(size))
    flaky, most = Flaky(), 0
    simulation = simulate(broker, flaky, options=Options(running_bytes_max=100, concurrency=8))
    while len(flaky.done) < 5:
        simulation.step()
        sizes = [record.size for record, _ in simulation.scheduler.running]
        assert sum(sizes) <= 100 or len(sizes) == 1
        most = max(most, len(sizes))
    assert most > 1


def test_pauses_grow_up_to_the_longest_and_differ() -> None:
    backoff, source = Backoff(first_s=1.0, longest_s=8.0, jitter=0.5), random.Random(1)
    for number, longest in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (10_000, 8.0)]:
        delays = {backoff.delay_s(number, source) for _ in range(100)}
        assert len(delays) > 50
        assert all(longest / 2 <= delay <= longest for delay in delays)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(first_s=0.0),
        lambda: Backoff(first_s=2.0, longest_s=1.0),
        lambda: ErrorPolicy(attempts_max=0),
        lambda: ErrorPolicy(crashes_max=1),
        lambda: ErrorPolicy(exhausted=Action.RETRY),
        lambda: Options(concurrency=0),
        lambda: Options(drain_s=-1.0),
        lambda: Options(metadata_units_max=10_000),
    ],
)
def test_invalid_options_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidConfig):
        make()


def test_dead_letters_need_a_producer_and_a_topic() -> None:
    with pytest.raises(InvalidConfig, match="producer"):
        Simulation(broker_of(1), Flaky(), 1)
