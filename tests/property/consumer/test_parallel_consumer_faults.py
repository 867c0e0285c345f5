"""The parallel consumer under faults: members that join, leave, are killed or lost, eager and cooperative; commits that
fail or are stored without an acknowledgement; an unreachable broker; compaction; and columns in place of records.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.consumer.orders import PARTITIONS, TOPIC, Done, covered, everything, filled
from support.examples import examples
from tsdb.parallel_consumer import (
    Action,
    Backoff,
    ConsumerError,
    Control,
    ErrorPolicy,
    Options,
    Order,
    Record,
    RecordColumns,
    TopicPartition,
    by_key,
    by_partition,
    unordered,
)
from tsdb.parallel_consumer.testing import (
    FaultScript,
    MemoryBroker,
    MemoryProducer,
    Protocol,
    SeededColumns,
    Simulation,
    VirtualClock,
    broker_away,
    commits_lost,
    commits_unacknowledged,
    compacted,
    lost,
)

RECORDS = 150
POLICY = ErrorPolicy(
    attempts_max=100_000,
    exhausted=Action.FATAL,
    crashes_max=None,
    retry_backoff=Backoff(first_s=0.01, longest_s=0.1),
)
OPTIONS = Options(concurrency=6, poll_records_max=10, drain_s=1_000.0, rebalance_drain_s=1_000.0)


class Ledger:
    """A handler of records and of columns that fails at random, and records the work of all members."""

    def __init__(self, seed: int, failing: float) -> None:
        self._random = random.Random(seed)
        self._failing = failing
        self.done: list[Record] = []

    def __call__(self, record: Record) -> None:
        if self._random.random() < self._failing:
            raise TimeoutError("not now")
        self.done.append(record)

    def columns(self, columns: RecordColumns) -> list[BaseException | None]:
        results: list[BaseException | None] = []
        for row in range(len(columns)):
            failed = self._random.random() < self._failing
            results.append(TimeoutError("not now") if failed else None)
            if not failed:
                self.done.append(columns.record(row))
        return results

    def counts(self) -> Counter[Done]:
        return Counter((record.topic_partition, record.offset) for record in self.done)


def either_way(seed: int) -> MemoryBroker:
    """A filled broker with one of the rebalance protocols."""
    return filled(seed, RECORDS, 9, random.Random(seed).choice(list(Protocol)))


def in_order(done: list[Record], order: Order) -> bool:
    """Whether the first handling of each record of a lane follows that of its predecessor."""
    lanes: defaultdict[tuple[TopicPartition, object], list[int]] = defaultdict(list)
    seen: set[Done] = set()
    for record in done:
        if (record.topic_partition, record.offset) in seen or (order is by_key and record.key is None):
            continue
        seen.add((record.topic_partition, record.offset))
        lanes[record.topic_partition, record.key if order is by_key else ""].append(record.offset)
    return order is unordered or all(offsets == sorted(offsets) for offsets in lanes.values())


class Group:
    """Members that join and leave on one broker and one clock."""

    def __init__(self, seed: int, order: Order, failing: float, *, columns: bool) -> None:
        self.random = random.Random(seed)
        self.broker, self.clock = either_way(seed), VirtualClock()
        self.all = everything(self.broker)
        self.ledger = Ledger(seed, failing)
        self.members: list[Simulation] = []
        self._order = order
        self._columns = columns

    def join(self) -> None:
        more: dict[str, Any] = {"scheduler": SeededColumns} if self._columns else {}
        handler = self.ledger.columns if self._columns else self.ledger
        self.members.append(
            Simulation(
                self.broker,
                handler,
                self.random.randrange(1 << 30),
                clock=self.clock,
                order=self._order,
                policy=POLICY,
                options=OPTIONS,
                **more,
            )
        )

    def leave(self) -> None:
        self.members.pop(self.random.randrange(len(self.members))).close()

    def kill(self) -> None:
        """Records that no commit covers may be repeated; covered ones may not."""
        self.members.pop(self.random.randrange(len(self.members))).kill()

    def lose(self) -> None:
        lost(self.random.choice(self.members).source)(self.broker)

    def task(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(self.members).step(wait_s=0.01)
            finished = covered(self.broker)
            assert finished <= set(self.ledger.counts()), "a commit passed unfinished work"

    def finish(self) -> None:
        self.broker.commit_fault, self.broker.away = (lambda partition: None), False
        for _ in range(20_000):
            # A record handled before a kill but not committed must be handled again before it can be committed.
            if covered(self.broker) == self.all:
                break
            self.random.choice(self.members).step(wait_s=0.01)
        for member in self.members:
            member.close()


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 32),
    order=st.sampled_from([by_key, by_partition, unordered]),
    columns=st.booleans(),
    failing=st.sampled_from([0.0, 0.1]),
    moves=st.lists(st.sampled_from(["join", "leave", "kill", "lose", "work"]), min_size=2, max_size=8),
)
@settings(max_examples=examples(50))
def test_under_any_faults_no_commit_passes_an_unfinished_record_and_none_is_lost(
    seed: int, order: Order, columns: bool, failing: float, moves: list[str]
) -> None:
    group = Group(seed, order, failing, columns=columns)
    group.join()
    violent = False
    for move in moves:
        if move == "join" and len(group.members) < 4:
            group.join()
        elif move == "lose":
            group.lose()
            violent = True
        elif move in ("leave", "kill") and len(group.members) > 1:
            getattr(group, move)()
            violent |= move == "kill"
        group.task(group.random.randrange(12))
    group.finish()
    assert set(group.ledger.counts()) == group.all == covered(group.broker)
    if not violent:
        assert set(group.ledger.counts().values()) == {1}, "done twice without need"
        # A handler of columns that fails one row and handles later ones has given up their order itself.
        assert (columns and failing) or in_order(group.ledger.done, order)


@given(seed=st.integers(0, 1 << 32), columns=st.booleans(), kills=st.integers(1, 5))
@settings(max_examples=examples(30))
def test_after_a_kill_only_records_without_a_stored_commit_are_repeated(seed: int, columns: bool, kills: int) -> None:
    group = Group(seed, unordered if seed % 2 else by_key, 0.05, columns=columns)
    before: set[Done] = set()
    for number in range(kills + 1):
        counted = group.ledger.counts()
        group.join()
        if number < kills:
            group.task(group.random.randrange(40))
            group.kill()
        else:
            group.finish()
        again = {done for done, count in (group.ledger.counts() - counted).items() if count}
        assert not again & before, "done again though a commit covered it"
        before = covered(group.broker)
    assert before == group.all


FAULTS = {
    "away": lambda script, first, last, member: script.during(first, last, broker_away),
    "lost commits": lambda script, first, last, member: script.during(first, last, commits_lost),
    "unacknowledged": lambda script, first, last, member: script.during(first, last, commits_unacknowledged),
    "lost member": lambda script, first, last, member: script.at(first, lost(member)),
    "compaction": lambda script, first, last, member: script.at(first, compacted(TOPIC, 1)),
}


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 32),
    plan=st.lists(
        st.tuples(st.sampled_from(sorted(FAULTS)), st.floats(0.0, 1.0), st.floats(0.01, 0.5)), min_size=1, max_size=6
    ),
    rate=st.sampled_from([-1.0, 200.0]),
)
@settings(max_examples=examples(50))
def test_a_script_of_faults_is_survived_by_one_member(
    seed: int, plan: list[tuple[str, float, float]], rate: float
) -> None:
    broker, clock = either_way(seed), VirtualClock()
    ledger = Ledger(seed, 0.05)
    simulation = Simulation(
        broker, ledger, seed, clock=clock, policy=POLICY, options=OPTIONS, control=Control(rate=rate)
    )
    script = FaultScript(broker, clock)
    for name, first, length in plan:
        FAULTS[name](script, first, first + length, simulation.source)
    simulation.run_until(
        lambda: script.over and covered(broker) == everything(broker),
        wait_s=0.02,
        steps_max=50_000,
    )
    simulation.close()
    assert set(ledger.counts()) >= everything(broker)


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 32),
    poison=st.integers(0, 99),
    limit=st.integers(2, 4),
    poll=st.sampled_from([1, 30, 1_000]),
    order=st.sampled_from([by_key, unordered]),
)
@settings(max_examples=examples(25))
def test_a_crashing_row_becomes_the_only_dead_letter(
    seed: int, poison: int, limit: int, poll: int, order: Order
) -> None:
    broker, clock, producer = MemoryBroker(2, TOPIC), VirtualClock(), MemoryProducer()
    for number in range(200):
        broker.append(TOPIC, number % 2, b"%d" % number, key=b"k", gap=number % 3)
    bad = broker.records[TOPIC, 0][poison].offset
    done: Counter[Done] = Counter()
    deaths = 0

    class Death(BaseException):
        pass

    def handler(columns: RecordColumns) -> None:
        if columns.partition == 0 and bad in columns.offsets:
            raise Death
        done.update((columns.topic_partition, offset) for offset in columns.offsets.tolist())

    for number in range(limit + 2):
        simulation = Simulation(
            broker,
            handler,
            seed + number,
            clock=clock,
            scheduler=SeededColumns,
            order=order,
            policy=ErrorPolicy(crashes_max=limit),
            options=Options(concurrency=4, poll_records_max=poll),
            producer=producer,
            dead_letter_topic="dlq",
        )
        try:
            simulation.run_until(lambda: len(done) == 199 and len(producer.sent) > 0)
        except Death:
            deaths += 1
            simulation.kill()
            continue
        simulation.close()
        break
    assert [one.value for one in producer.sent] == [b"%d" % (2 * poison)]
    assert deaths == limit
    assert dict(producer.sent[0].headers)["dlq-reason"] == b"crashes"
    assert dict(producer.sent[0].headers)["dlq-crashes"] == b"%d" % limit
    assert set(done) == everything(broker) - {((TOPIC, 0), bad)}


def test_attempts_of_columns_count_for_single_records() -> None:
    """A program switches from columns to records in the middle of its crashes."""
    broker, clock, producer = MemoryBroker(1, TOPIC), VirtualClock(), MemoryProducer()
    for number in range(40):
        broker.append(TOPIC, 0, b"%d" % number)
    settings_of: dict[str, Any] = {
        "clock": clock,
        "producer": producer,
        "dead_letter_topic": "dlq",
        "policy": ErrorPolicy(crashes_max=3),
    }
    for _ in range(2):
        columns = Simulation(broker, print, 1, scheduler=SeededColumns, ends_share=0.0, **settings_of)
        columns.step(5)
        assert columns.scheduler.running
        columns.kill()
    done: list[int] = []
    records = Simulation(broker, lambda record: done.append(record.offset), 2, **settings_of)
    records.step(3)
    assert len(records.scheduler.started) == 1, "those that may have ended the process run one at a time"
    records.run_until(lambda: len(done) == 40)
    records.close()
    assert not producer.sent


def test_an_offset_deleted_by_retention_ends_the_consumer_and_is_named() -> None:
    broker = either_way(1)
    simulation = Simulation(broker, lambda record: None, 1, policy=POLICY, options=OPTIONS)
    simulation.step(3)
    simulation.close()
    broker.trim(TOPIC, 0, broker.ends[TOPIC, 0] - 1)
    again = Simulation(broker, lambda record: None, 2, policy=POLICY, options=OPTIONS)
    with pytest.raises(ConsumerError, match="partition 0") as gone:
        again.step(3)
    assert gone.value.reason == "lost_offsets"


def test_a_group_without_commits_starts_where_retention_left_off() -> None:
    broker, done = either_way(1), list[Record]()
    for partition in range(PARTITIONS):
        broker.trim(TOPIC, partition, 20)
    simulation = Simulation(broker, done.append, 1, policy=POLICY, options=OPTIONS)
    simulation.run_until(lambda: len(done) == len(everything(broker)))
    simulation.close()
    assert min(record.offset for record in done) >= 20
    assert {topic_partition: at.next_offset for topic_partition, at in broker.commits.items()} == broker.ends
