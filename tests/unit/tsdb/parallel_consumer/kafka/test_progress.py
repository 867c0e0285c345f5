"""A member of a Kafka group that is stuck after an outage is found and replaced, with fakes that hang in each way."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.parallel_consumer.kafka.progress import (
    IDLE_S,
    LOST_AFTER_S,
    REBALANCED_WITHIN_S,
    SETTLED_WITHIN_S,
    STUCK_S,
    StallDetector,
)
from tsdb.parallel_consumer.record import TopicPartition
from tsdb.parallel_consumer.testing import VirtualClock

CONFIG = {"bootstrap.servers": "h:1", "group.id": "g"}
P0, P1 = ("t", 0), ("t", 1)


@dataclass
class End:
    offset: int


@dataclass
class Assignment:
    topic_partitions: list[KafkaPartition]


@dataclass
class FakeMember:
    assignment: Assignment | None


@dataclass
class FakeGroup:
    members: list[FakeMember]
    state: ConsumerGroupState = ConsumerGroupState.STABLE


@dataclass
class FakeAdmin:
    """Answers from `ends` and `members`; away: answers with an error; silent: does not answer."""

    ends: dict[TopicPartition, int] = field(default_factory=lambda: {P0: 5, P1: 5})
    members: list[set[int]] = field(default_factory=list)
    state: ConsumerGroupState = ConsumerGroupState.STABLE
    away: bool = False
    silent: bool = False
    asked_of_group: int = 0

    def list_offsets(self, wanted: Mapping[Any, Any], request_timeout: float) -> dict[Any, Future[Any]]:
        return {at: self._answer(End(self.ends[at.topic, at.partition])) for at in wanted}

    def describe_consumer_groups(self, groups: list[str], request_timeout: float) -> dict[Any, Future[Any]]:
        self.asked_of_group += 1
        members = [
            FakeMember(Assignment([KafkaPartition("t", number) for number in sorted(one)])) for one in self.members
        ]
        return {"g": self._answer(FakeGroup(members, self.state))}

    def _answer(self, result: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.away:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        elif not self.silent:
            future.set_result(result)
        return future


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def progress(clock: VirtualClock, admin: FakeAdmin) -> StallDetector:
    found = StallDetector(CONFIG, clock=clock, admin=admin)
    found.sizes = {"t": 2}
    return found


def run(progress: StallDetector, clock: VirtualClock, seconds: float, *, has_partitions: bool = True) -> str:
    """Poll four times a second. Returns the first reason, or ""."""
    for _ in range(int(4 * seconds)):
        clock.advance(0.25)
        why = progress.stuck(has_partitions=has_partitions)
        if why:
            return why
    return ""


def test_a_member_that_gets_nothing_of_a_longer_log_is_stuck(progress: StallDetector, clock: VirtualClock) -> None:
    progress.assigned({P0: 5, P1: 3})
    assert run(progress, clock, STUCK_S) == ""
    assert "topic t, partition 1" in run(progress, clock, 10.0)
    progress.renewed()
    progress.assigned({P0: 5, P1: 3})
    assert run(progress, clock, STUCK_S) == "", "the new one has its time"


def test_a_member_at_the_end_is_well_however_long_nothing_comes(progress: StallDetector, clock: VirtualClock) -> None:
    progress.assigned({P0: 3, P1: 3})
    progress.moved(P0, 5)
    progress.moved(P1, 5)
    assert run(progress, clock, 600.0) == ""


def test_an_outage_is_no_reason_however_long_it_is(
    progress: StallDetector, clock: VirtualClock, admin: FakeAdmin
) -> None:
    progress.assigned({P0: 3})
    run(progress, clock, STUCK_S)
    admin.away = True
    assert run(progress, clock, 600.0) == ""
    admin.away, admin.silent = False, True
    assert run(progress, clock, LOST_AFTER_S / 2) == ""


def test_a_paused_partition_and_a_consumer_that_does_not_poll_are_no_reason(
    progress: StallDetector, clock: VirtualClock
) -> None:
    progress.assigned({P0: 3, P1: 3})
    progress.removed([P0])
    for _ in range(10):
        clock.advance(300.0)
        assert progress.stuck(has_partitions=True) == ""
        progress.moved(P1, 5)
    assert run(progress, clock, 60.0) == ""


@pytest.mark.parametrize(
    ("members", "spare"),
    [([{0, 1}, set()], False), ([{0}, {1}, set()], True), ([{0}, set()], False), ([], False), ([{0}, {1}], True)],
)
def test_a_member_without_partitions_is_stuck_unless_others_have_all(
    progress: StallDetector, clock: VirtualClock, admin: FakeAdmin, members: list[set[int]], spare: bool
) -> None:
    admin.members = members
    assert run(progress, clock, IDLE_S + SETTLED_WITHIN_S - 1.0, has_partitions=False) == ""
    assert bool(run(progress, clock, 60.0, has_partitions=False)) is not spare


def test_a_rebalance_has_the_time_of_a_killed_members_session(
    progress: StallDetector, clock: VirtualClock, admin: FakeAdmin
) -> None:
    admin.state = ConsumerGroupState.PREPARING_REBALANCING
    assert run(progress, clock, IDLE_S + REBALANCED_WITHIN_S - 1.0, has_partitions=False) == ""
    assert run(progress, clock, 10.0, has_partitions=False)


def test_a_group_is_not_asked_about_while_no_broker_answers(
    progress: StallDetector, clock: VirtualClock, admin: FakeAdmin
) -> None:
    admin.away = True
    assert run(progress, clock, 600.0, has_partitions=False) == ""
    assert admin.asked_of_group == 0
