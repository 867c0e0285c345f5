"""The parallel consumer under any interleaving: order, exact commits, no lost record and no needless repeat."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.consumer.orders import TOPIC, Done, covered, everything, filled
from support.examples import examples
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, by_key, by_partition, unordered
from tsdb.parallel_consumer.policy import Action, Backoff, ErrorPolicy
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.testing import (
    MemoryBroker,
    MemoryProducer,
    SeededScheduler,
    SeededStreaks,
    Simulation,
    VirtualClock,
)

SCHEDULERS = st.sampled_from([SeededScheduler, SeededStreaks])
POLICY = ErrorPolicy(
    attempts_max=1_000,
    exhausted=Action.FATAL,
    crashes_max=None,
    retry_backoff=Backoff(first_s=0.01, longest_s=0.1),
)


class Shop:
    """A handler with effects and some failures, which checks the order."""

    def __init__(self, seed: int, failing: float) -> None:
        self._random = random.Random(seed)
        self._failing = failing
        self.done: list[Record] = []

    def __call__(self, record: Record) -> None:
        if self._random.random() < self._failing:
            raise TimeoutError("not now")
        self.done.append(record)

    def counts(self) -> Counter[Done]:
        return Counter((record.topic_partition, record.offset) for record in self.done)


def per_lane(records: list[Record], order: Order) -> Iterator[list[int]]:
    lanes = defaultdict(list)
    for record in records:
        if order is by_partition:
            lanes[record.topic_partition, b""].append(record.offset)
        elif record.key is not None:
            lanes[record.topic_partition, record.key].append(record.offset)
    yield from lanes.values()


@given(
    seed=st.integers(0, 1 << 32),
    order=st.sampled_from([by_key, by_partition, unordered]),
    failing=st.sampled_from([0.0, 0.2]),
    concurrency=st.integers(1, 12),
    records_max=st.sampled_from([4, 30, 1_000]),
    scheduler=SCHEDULERS,
)
@settings(max_examples=examples(60))
def test_each_record_is_done_once_in_the_order_of_its_lane(
    seed: int, order: Order, failing: float, concurrency: int, records_max: int, scheduler: type[SeededScheduler]
) -> None:
    broker, shop = filled(seed, 120, 6), Shop(seed, failing)
    options = Options(concurrency=concurrency, records_max=records_max, poll_records_max=20)
    simulation = Simulation(broker, shop, seed, scheduler=scheduler, order=order, policy=POLICY, options=options)
    simulation.run_until(lambda: len(shop.done) == 120)
    simulation.close()
    assert set(shop.counts().values()) == {1}
    if order is not unordered:
        assert all(offsets == sorted(offsets) for offsets in per_lane(shop.done, order))
    assert {topic_partition: at.next_offset for topic_partition, at in broker.commits.items()} == {
        topic_partition: end for topic_partition, end in broker.ends.items() if end
    }
    assert all(
        not decode_metadata(at.next_offset, at.metadata, "id-of-orders").finished.size for at in broker.commits.values()
    )


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 32),
    kills=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    order=st.sampled_from([by_key, unordered]),
    commit_records=st.sampled_from([None, 1]),
    faults=st.sampled_from([0.0, 0.3]),
    scheduler=SCHEDULERS,
)
@example(seed=7174, kills=[1, 1, 1, 1, 1, 9], order=by_key, commit_records=None, faults=0.0, scheduler=SeededScheduler)
@settings(max_examples=examples(60))
def test_after_a_kill_only_records_without_a_commit_are_repeated(
    seed: int,
    kills: list[int],
    order: Order,
    commit_records: int | None,
    faults: float,
    scheduler: type[SeededScheduler],
) -> None:
    broker, clock, source = filled(seed, 150, 20), VirtualClock(), random.Random(seed)
    broker.commit_fault = lambda topic_partition: (
        source.choice(["lost", "unacknowledged"]) if source.random() < faults else None
    )
    options = Options(concurrency=8, commit_records=commit_records, poll_records_max=25)
    total: Counter[Done] = Counter()
    for number, steps in enumerate([*kills, None]):
        before = covered(broker)
        assert before <= set(total), "a commit covers a record that was never handled"
        shop = Shop(seed + number, 0.1)
        simulation = Simulation(
            broker,
            shop,
            seed + number,
            scheduler=scheduler,
            clock=clock,
            order=order,
            policy=POLICY,
            options=options,
        )
        if steps is None:
            broker.commit_fault = lambda topic_partition: None
            # A record handled before a kill but not committed must be handled again before it can be committed.
            simulation.run_until(lambda before=before, shop=shop: before | set(shop.counts()) == everything(broker))  # type: ignore[misc]
            simulation.close()
        else:
            simulation.step(steps)
            simulation.kill()
        again = before & set(shop.counts())
        assert not again, f"done again though a commit covered it: {sorted(again)[:5]}"
        if order is by_key:
            assert all(offsets == sorted(offsets) for offsets in per_lane(shop.done, order))
        total += shop.counts()
    assert set(total) == everything(broker) == covered(broker)


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 32),
    moves=st.lists(st.sampled_from(["join", "leave", "kill", "work"]), min_size=3, max_size=12),
    scheduler=SCHEDULERS,
)
@settings(max_examples=examples(60))
def test_members_that_come_and_go_lose_nothing_and_a_drained_rebalance_repeats_nothing(
    seed: int, moves: list[str], scheduler: type[SeededScheduler]
) -> None:
    broker, clock, source = filled(seed, 200, 15), VirtualClock(), random.Random(seed)
    shop = Shop(seed, 0.05)
    members: list[Simulation] = []

    def join() -> None:
        options = Options(concurrency=6, poll_records_max=10, drain_s=1_000.0, rebalance_drain_s=1_000.0)
        number = source.randrange(1 << 30)
        members.append(
            Simulation(broker, shop, number, scheduler=scheduler, clock=clock, policy=POLICY, options=options)
        )

    join()
    killed = False
    for move in [*moves, "work"]:
        if move == "join" and len(members) < 4:
            join()
        elif move == "leave" and len(members) > 1:
            members.pop(source.randrange(len(members))).close()
        elif move == "kill" and len(members) > 1:
            members.pop(source.randrange(len(members))).kill()
            killed = True
        for _ in range(source.randrange(20)):
            source.choice(members).step(wait_s=0.01)
    for _ in range(20_000):
        if set(shop.counts()) == everything(broker):
            break
        source.choice(members).step(wait_s=0.01)
    for member in members:
        member.close()
    assert set(shop.counts()) == everything(broker) == covered(broker)
    if not killed:
        assert set(shop.counts().values()) == {1}
        assert all(offsets == sorted(offsets) for offsets in per_lane(shop.done, by_key))


@given(seed=st.integers(0, 1 << 32), poison=st.integers(0, 39), limit=st.integers(2, 4), scheduler=SCHEDULERS)
@settings(max_examples=examples(40))
def test_a_crashing_record_becomes_the_only_dead_letter(
    seed: int, poison: int, limit: int, scheduler: type[SeededScheduler]
) -> None:
    """The process ends when the poisoned record is handled, however soon after its start."""
    broker, clock, producer = MemoryBroker(2, TOPIC), VirtualClock(), MemoryProducer()
    for number in range(40):
        broker.append(TOPIC, number % 2, b"%d" % number, key=b"k%d" % (number % 9))
    done: Counter[int] = Counter()
    deaths = 0

    class Death(BaseException):
        pass

    def handler(record: Record) -> None:
        if record.value == b"%d" % poison:
            raise Death
        done[int(record.value or b"")] += 1

    for number in range(limit + 2):
        simulation = Simulation(
            broker,
            handler,
            seed + number,
            scheduler=scheduler,
            clock=clock,
            policy=ErrorPolicy(crashes_max=limit),
            options=Options(concurrency=8),
            producer=producer,
            dead_letter_topic="dlq",
        )
        try:
            simulation.run_until(lambda: set(done) | {int(one.value or b"") for one in producer.sent} == set(range(40)))
        except Death:
            deaths += 1
            simulation.kill()
            continue
        simulation.close()
        break
    assert [one.value for one in producer.sent] == [b"%d" % poison]
    assert deaths == limit
    assert set(done) == set(range(40)) - {poison}
    assert dict(producer.sent[0].headers)["dlq-reason"] == b"crashes"
    assert dict(producer.sent[0].headers)["dlq-crashes"] == b"%d" % limit
