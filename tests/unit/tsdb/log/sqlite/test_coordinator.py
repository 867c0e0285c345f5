"""Sharing of partitions among the members of an embedded group."""

from __future__ import annotations

import random

from tsdb.log.interface import METRICS, TopicPartition
from tsdb.log.sqlite.coordinator import POLL_INTERVAL_MAX_S, Change, Coordinator
from tsdb.model.clock import ManualClock

TOPICS = {METRICS: 6}
ALL = {(METRICS, partition) for partition in range(6)}


def settle(coordinator: Coordinator, members: list[int]) -> dict[int, set[TopicPartition]]:
    """Let every member beat until nothing changes; who holds what."""
    while True:
        changes = {member: coordinator.beat(member) for member in members}
        for member, change in changes.items():
            coordinator.released(member, sorted(change.revoke))
        if all(change == Change() for change in changes.values()):
            return {m: {p for p in ALL if coordinator.holds(m, p)} for m in members}


def test_shares_are_even_and_members_keep_their_partitions() -> None:
    coordinator = Coordinator(ManualClock())
    first = coordinator.join(TOPICS)
    assert settle(coordinator, [first]) == {first: ALL}
    second = coordinator.join(TOPICS)
    held = settle(coordinator, [first, second])
    assert sorted(map(len, held.values())) == [3, 3]
    third = coordinator.join(TOPICS)
    after = settle(coordinator, [first, second, third])
    assert sorted(map(len, after.values())) == [2, 2, 2]
    assert after[first] < held[first]
    assert after[second] < held[second]


def test_a_partition_is_taken_only_after_it_was_given_up() -> None:
    coordinator = Coordinator(ManualClock())
    first = coordinator.join(TOPICS)
    coordinator.beat(first)
    second = coordinator.join(TOPICS)
    assert coordinator.beat(second) == Change()
    change = coordinator.beat(first)
    assert len(change.revoke) == 3
    assert coordinator.beat(second) == Change()
    assert all(coordinator.holds(first, partition) for partition in change.revoke)
    coordinator.released(first, sorted(change.revoke))
    assert coordinator.beat(second).take == change.revoke


def test_a_silent_member_loses_its_partitions_and_hears_of_it() -> None:
    clock = ManualClock()
    coordinator = Coordinator(clock)
    silent, other = coordinator.join(TOPICS), coordinator.join(TOPICS)
    settle(coordinator, [silent, other])
    generation = coordinator.generation
    clock.advance(int(POLL_INTERVAL_MAX_S * 1000) + 1)
    assert settle(coordinator, [other]) == {other: ALL}
    assert coordinator.generation > generation
    assert coordinator.beat(silent) == Change(lost=True)
    assert not any(coordinator.holds(silent, partition) for partition in ALL)


def test_more_members_than_partitions_leave_some_idle() -> None:
    coordinator = Coordinator(ManualClock())
    members = [coordinator.join(TOPICS) for _ in range(8)]
    assert sorted(map(len, settle(coordinator, members).values())) == [0, 0, 1, 1, 1, 1, 1, 1]


def test_members_that_come_and_go_at_random_never_share_a_partition() -> None:
    seed = random.Random(7)
    coordinator = Coordinator(ManualClock())
    members: list[int] = []
    for _ in range(500):
        if not members or seed.random() < 0.1:
            members.append(coordinator.join(TOPICS))
        member = seed.choice(members)
        if seed.random() < 0.05:
            coordinator.leave(member)
            members.remove(member)
            continue
        change = coordinator.beat(member)
        if seed.random() < 0.7:
            coordinator.released(member, sorted(change.revoke))
        held = [partition for m in members for partition in ALL if coordinator.holds(m, partition)]
        assert len(held) == len(set(held))
    if members:
        assert set().union(*settle(coordinator, members).values()) == ALL
