"""A group member: commits that cannot be read, those that it may make, and how a stuck member recovers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.log.interface import METRICS, SERIES, Position, TopicPartition
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.group import KafkaGroup
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.log.kafka.watch import (
    BEYOND_REPAIR_S,
    IDLE_S,
    REBALANCED_WITHIN_S,
    SETTLED_WITHIN_S,
    GroupState,
    IdleMemberState,
    standing_of,
)
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable

PARTITION = (METRICS, 0)
HANG_S = 0.05  # For a call that does not return.


class FakeConsumer:
    """Runs the callbacks queued in `due` within consume, as the library does."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[Any, list[KafkaPartition]], None]] = {}
        self.due: list[str] = []
        self.subscriptions = 0
        self.assigned: list[int] = []
        self.known = {"p.metrics"}  # Topics whose leaders it knows: what it subscribes to.
        self.assigned_unknown: set[str] = set()
        self.committed_fails = False
        self.commits: list[KafkaPartition] = []
        self.stored: dict[int, tuple[int, str]] = {0: (7, "noted")}
        self.refusal: int | None = None  # Code of the coordinator's answer to a commit.
        self.hangs = threading.Event()  # Set: a commit does not return.
        self.closed = threading.Event()

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[KafkaPartition]], None]) -> None:
        assert topics == ["p.metrics"]
        self.callbacks = callbacks
        self.subscriptions += 1

    def unsubscribe(self) -> None:
        self.due.append("on_revoke")

    def consume(self, count: int, timeout: float) -> list[Any]:
        due, self.due = self.due, []
        for name in due:
            self.callbacks[name](self, [KafkaPartition("p.metrics", 0)])
        return []

    def committed(self, partitions: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        if self.committed_fails:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [KafkaPartition(p.topic, p.partition, *self.stored[p.partition]) for p in partitions]

    def list_topics(self, topic: str, timeout: float) -> None:
        self.known.add(topic)

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None:
        self.assigned_unknown |= {partition.topic for partition in partitions} - self.known
        self.assigned += [partition.offset for partition in partitions]

    def commit(self, *, offsets: list[KafkaPartition], asynchronous: bool) -> list[KafkaPartition] | None:
        if self.hangs.is_set():
            threading.Event().wait()
        if self.refusal is not None:
            if asynchronous:
                return None
            raise KafkaException(KafkaError(self.refusal))
        self.commits += offsets
        self.stored |= {one.partition: (one.offset, one.metadata or "") for one in offsets}
        return None if asynchronous else offsets

    def incremental_unassign(self, partitions: list[KafkaPartition]) -> None:
        pass

    def close(self) -> None:
        self.due.append("on_revoke")
        self.consume(1, 0)
        self.closed.set()


class FakeGuard:
    """A guard that finds every topic unchanged."""

    def partitions(self, topic: str) -> int:
        return 1

    def check(self, topic: str) -> None:
        pass


class Listener:
    """Records every callback of the group."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        self.told.append(("assigned", dict(committed)))
        return {partition: at.next_offset if at else 0 for partition, at in committed.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.told.append(("revoked", list(partitions)))

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.told.append(("lost", list(partitions)))


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Coordinator:
    """The group as its coordinator sees it: `assigned` of each member, or away."""

    def __init__(self) -> None:
        self.assigned: list[frozenset[TopicPartition]] = [frozenset()]
        self.is_stable = True
        self.away = False

    def state(self) -> GroupState:
        if self.away:
            raise Unavailable("no broker")
        return GroupState(self.is_stable, self.assigned)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def second() -> FakeConsumer:
    """The consumer that replaces the first one."""
    return FakeConsumer()


@pytest.fixture
def alone(consumer: FakeConsumer, second: FakeConsumer, clock: ManualClock, coordinator: Coordinator) -> KafkaGroup:
    guard = cast(TopicGuard, FakeGuard())
    fetch = Fetch(cast(Consumer, consumer), guard, cast(KafkaOffsets, None), "p.", clock)
    return KafkaGroup(fetch, guard, "p.", HANG_S, clock, lambda: cast(Consumer, second), coordinator.state, grace_s=0.0)


def begin_joining(group: KafkaGroup, clock: ManualClock) -> None:
    """The watch finds the member without partitions, and looks at its group."""
    group.look()
    clock.sleep(IDLE_S)
    group.look()


@pytest.fixture
def group(alone: KafkaGroup, listener: Listener) -> KafkaGroup:
    alone.join([METRICS], listener)
    return alone


def test_partitions_start_at_the_listeners_offsets(
    group: KafkaGroup, consumer: FakeConsumer, listener: Listener
) -> None:
    consumer.due = ["on_assign"]
    assert group.poll(0) == []
    assert listener.told == [("assigned", {PARTITION: Position(7, "noted")})]
    assert consumer.assigned == [7]
    assert group.assigned() == {PARTITION}


def test_followers_are_assigned_once_their_leaders_are_known(
    alone: KafkaGroup, consumer: FakeConsumer, listener: Listener
) -> None:
    alone.join([METRICS], listener, followers={SERIES: METRICS})
    consumer.due = ["on_assign"]
    alone.poll(0)
    assert alone.assigned() == {PARTITION, (SERIES, 0)}
    assert consumer.assigned_unknown == set(), "these would be read a second later"


def test_partitions_without_readable_commits_are_given_back_and_taken_again(
    group: KafkaGroup, consumer: FakeConsumer, listener: Listener
) -> None:
    consumer.due, consumer.committed_fails = ["on_assign"], True
    with pytest.raises(Unavailable):
        group.poll(0)
    assert consumer.subscriptions == 2
    group.poll(0)  # The revocation that follows names no partition of the listener.
    assert listener.told == []
    assert group.assigned() == frozenset()
    consumer.due, consumer.committed_fails = ["on_assign"], False
    group.poll(0)
    assert listener.told == [("assigned", {PARTITION: Position(7, "noted")})]


def test_a_lost_partition_cannot_be_committed(group: KafkaGroup, consumer: FakeConsumer, listener: Listener) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    group.commit({PARTITION: Position(9, "mine")})
    consumer.due = ["on_lost"]
    group.poll(0)
    assert listener.told[-1] == ("lost", [PARTITION])
    with pytest.raises(Unavailable) as stale:
        group.commit({PARTITION: Position(10)})
    assert stale.value.reason == "stale_member"
    assert [(commit.offset, commit.metadata) for commit in consumer.commits] == [(9, "mine")]


def test_leaving_revokes_within_the_call(group: KafkaGroup, consumer: FakeConsumer, listener: Listener) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    group.leave()
    assert listener.told[-1] == ("revoked", [PARTITION])
    assert group.assigned() == frozenset()


def test_a_refused_commit_raises_the_coordinators_reason(group: KafkaGroup, consumer: FakeConsumer) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    consumer.refusal = KafkaError.ILLEGAL_GENERATION
    with pytest.raises(Unavailable) as refused:
        group.commit({PARTITION: Position(9)})
    assert refused.value.reason == "stale_member"


def test_a_commit_that_does_not_return_is_unavailable_and_the_member_is_replaced(
    group: KafkaGroup, consumer: FakeConsumer, second: FakeConsumer, listener: Listener
) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    consumer.hangs.set()
    with pytest.raises(Unavailable) as hung:
        group.commit({PARTITION: Position(9)})
    assert hung.value.reason == "timeout"
    group.poll(0)
    assert listener.told[-1] == ("lost", [PARTITION])
    second.due = ["on_assign"]
    group.poll(0)
    assert group.assigned() == {PARTITION}
    group.commit({PARTITION: Position(9)})
    assert [commit.offset for commit in second.commits] == [9]


def test_the_callbacks_of_a_replaced_member_change_nothing(
    group: KafkaGroup, consumer: FakeConsumer, second: FakeConsumer, listener: Listener
) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    consumer.hangs.set()
    with pytest.raises(Unavailable):
        group.commit({PARTITION: Position(9)})
    second.due = ["on_assign"]
    group.poll(0)
    assert consumer.closed.wait(60.0)  # It revokes its partitions within the close.
    for late in ("on_assign", "on_revoke", "on_lost"):
        consumer.due = [late]
        consumer.consume(1, 0)
    assert [kind for kind, _ in cast(list[tuple[str, Any]], listener.told)] == ["assigned", "lost", "assigned"]
    assert group.assigned() == {PARTITION}


@pytest.mark.parametrize(("is_stable", "within_s"), [(True, SETTLED_WITHIN_S), (False, REBALANCED_WITHIN_S)])
def test_a_member_that_the_group_gives_nothing_joins_anew(
    group: KafkaGroup,
    second: FakeConsumer,
    coordinator: Coordinator,
    clock: ManualClock,
    is_stable: bool,
    within_s: float,
) -> None:
    coordinator.is_stable = is_stable
    begin_joining(group, clock)
    clock.sleep(within_s - 1.0)
    group.look()
    group.poll(0)
    assert second.subscriptions == 0
    assert not group.is_spare()
    clock.sleep(1.0)
    group.look()
    group.poll(0)
    assert second.subscriptions == 1
    second.due = ["on_assign"]
    group.poll(0)
    assert group.assigned() == {PARTITION}
    group.look()
    assert (group.joining_s(), group.stalled()) == (0.0, "")


def test_a_member_without_partitions_for_a_minute_is_not_alive(
    group: KafkaGroup, coordinator: Coordinator, clock: ManualClock
) -> None:
    begin_joining(group, clock)
    clock.sleep(BEYOND_REPAIR_S)
    assert "no partition for 60 s" in group.stalled()
    assert group.joining_s() == BEYOND_REPAIR_S


def test_the_time_without_a_broker_does_not_count(
    group: KafkaGroup, second: FakeConsumer, coordinator: Coordinator, clock: ManualClock
) -> None:
    begin_joining(group, clock)
    coordinator.away = True
    with pytest.raises(Unavailable):
        group.look()
    clock.sleep(10 * BEYOND_REPAIR_S)
    assert group.stalled() == ""
    coordinator.away = False
    group.look()
    group.poll(0)
    assert (second.subscriptions, group.joining_s()) == (0, 0.0)


@pytest.mark.parametrize(
    ("others", "spare"),
    [
        ([{0}], True),
        ([set(), {0}], True),
        ([], False),
        ([set()], False),
    ],
)
def test_a_member_is_a_spare_while_others_have_all(
    group: KafkaGroup,
    second: FakeConsumer,
    coordinator: Coordinator,
    clock: ManualClock,
    others: list[set[int]],
    spare: bool,
) -> None:
    coordinator.assigned = [frozenset((METRICS, number) for number in one) for one in others]
    for _ in range(3):
        group.look()
        clock.sleep(BEYOND_REPAIR_S)
    group.look()
    group.poll(0)
    assert group.is_spare() == spare
    assert second.subscriptions == (not spare)
    assert bool(group.stalled()) == (not spare)


@pytest.mark.parametrize(
    ("members", "standing"),
    [
        ([{0, 1}, set()], IdleMemberState.JOINING),  # The other one would give up a partition.
        ([{0}, {1}, set()], IdleMemberState.SPARE),
        ([{0}, set()], IdleMemberState.JOINING),
        ([{0}, {1}], IdleMemberState.SPARE),  # The group does not know this member, and has no partition for it.
        ([], IdleMemberState.JOINING),
    ],
)
def test_the_standing_of_a_member_without_partitions(members: list[set[int]], standing: IdleMemberState) -> None:
    assigned = [frozenset((METRICS, number) for number in one) for one in members]
    assert standing_of(GroupState(True, assigned), {METRICS: 2}) is standing
    if standing is IdleMemberState.JOINING:
        assert standing_of(GroupState(False, assigned), {METRICS: 2}) is IdleMemberState.REBALANCING
