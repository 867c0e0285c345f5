"""The contract of Group, on the embedded log and on a real broker alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import pytest

from support.servers.logs import WITHIN_S, LogFactory, append_all, poll_until, read_values, records_of, wait_until
from tsdb.log.interface import CHUNKS, METADATA_UNITS_MAX, METRICS, SERIES, Event, Group, Log, Position, TopicPartition
from tsdb.model.errors import InvalidRequest, LostOffsets, Unavailable, WrongTopic

PARTITIONS = 4
ALL = frozenset((METRICS, partition) for partition in range(PARTITIONS))


class Listener:
    """Starts at the commit, else at 0; records every callback. `on_going` runs while partitions are revoked."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Position | None] = {}
        self.revoked: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self.on_going: Callable[[Iterable[TopicPartition]], None] = lambda partitions: None

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        self.committed.update(committed)
        return {partition: at.next_offset if at else 0 for partition, at in committed.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.on_going(partitions)
        self.revoked.extend(partitions)

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.lost.extend(partitions)


@pytest.fixture
def log(log_factory: LogFactory) -> Log:
    log_factory.create(partitions=PARTITIONS)
    return log_factory.open()


def settle(*members: Group) -> list[list[Event]]:
    """Poll all members in turn until every partition is assigned and shares are even. Returns the records of each."""
    events: list[list[Event]] = [[] for _ in members]

    def settled() -> bool:
        for member, read in zip(members, events, strict=True):
            read += member.poll(0.02)
        shares = [member.assigned() for member in members]
        even = max(map(len, shares)) - min(map(len, shares)) <= 1
        return even and sum(map(len, shares)) == PARTITIONS and frozenset().union(*shares) == ALL

    wait_until(settled)
    return events


def test_a_member_that_waits_gives_partitions_to_one_that_joins(log: Log) -> None:
    first, second = log.group("g"), log.group("g")
    first.join([METRICS], Listener())
    wait_until(lambda: bool(first.poll(0.02)) or len(first.assigned()) == PARTITIONS)
    polls = []
    gave_away, done = threading.Event(), threading.Event()

    def wait_long() -> None:
        # It goes on after it gave partitions away: the group waits for each member at each further rebalance.
        while not done.is_set():
            polls.append(first.poll(WITHIN_S))
            if len(first.assigned()) <= PARTITIONS // 2:
                gave_away.set()

    thread = threading.Thread(target=wait_long)
    thread.start()
    first.wake()
    wait_until(lambda: bool(polls))  # From then on it waits in a poll that began before the other joins.
    with second:
        second.join([METRICS], Listener())
        began = time.monotonic()
        while len(second.assigned()) < PARTITIONS // 2:
            second.poll(0.05)
            assert time.monotonic() - began < WITHIN_S / 2, f"after {len(polls)} polls of the first"
        assert gave_away.wait(WITHIN_S / 2), "the poll that gave partitions away went on"
        done.set()
        first.wake()
        thread.join(WITHIN_S / 2)
        assert not thread.is_alive(), "the first still waits"
        first.leave()


def test_a_lone_member_gets_all_partitions_without_commits(log: Log) -> None:
    listener = Listener()
    append_all(log, METRICS, 2, [b"a", b"b"])
    with log.group("g") as member:
        member.join([METRICS], listener)
        (events,) = settle(member)
        assert listener.committed == dict.fromkeys(ALL)
        events += poll_until(member, lambda more: len(records_of(events + more)) >= 2)
        assert [record.value for record in records_of(events)] == [b"a", b"b"]


def test_commits_and_their_metadata_outlive_the_member(log: Log) -> None:
    append_all(log, METRICS, 1, [b"%d" % i for i in range(5)])
    position = Position(3, "seen \u00e9 \U0001f600")
    with log.group("g") as member:
        member.join([METRICS], Listener())
        settle(member)
        member.commit({(METRICS, 1): position})
        assert member.committed([(METRICS, 0), (METRICS, 1)]) == {(METRICS, 0): None, (METRICS, 1): position}
    listener = Listener()
    with log.group("g") as successor:
        assert successor.committed([(METRICS, 1)]) == {(METRICS, 1): position}
        successor.join([METRICS], listener)
        (events,) = settle(successor)
        assert listener.committed[METRICS, 1] == position
        events += poll_until(successor, lambda more: len(records_of(events + more)) >= 2)
        assert [record.value for record in records_of(events)] == [b"3", b"4"]


def test_members_are_listed_by_client_id_until_they_leave(log: Log) -> None:
    assert log.members("g") == []
    with log.group("g", "blue") as first, log.group("g") as second:
        first.join([METRICS], Listener())
        second.join([METRICS], Listener())
        settle(first, second)
        assert sorted(log.members("g")) == ["tsdb", "tsdb-blue"]
        assert log.members("other") == []
    wait_until(lambda: log.members("g") == [])


def test_groups_do_not_see_each_other(log: Log) -> None:
    with log.group("one") as one, log.group("two") as two:
        one.join([METRICS], Listener())
        two.join([METRICS], Listener())
        settle(one)
        settle(two)
        one.commit({(METRICS, 0): Position(0, "mine")})
        assert two.committed([(METRICS, 0)]) == {(METRICS, 0): None}


def test_members_share_and_each_partition_has_one_owner(log: Log) -> None:
    with log.group("g") as first, log.group("g") as second:
        first.join([METRICS], Listener())
        settle(first)
        second.join([METRICS], Listener())
        settle(first, second)
        assert first.assigned() & second.assigned() == frozenset()
        for partition in range(PARTITIONS):
            append_all(log, METRICS, partition, [b"%d" % partition])
        for member in (first, second):
            values = read_values(member, 2)
            assert sorted(values, key=str) == sorted(b"%d" % partition for _, partition in member.assigned())


def test_a_revoked_partition_can_be_committed_and_its_next_owner_sees_it(log: Log) -> None:
    going, coming = Listener(), Listener()
    with log.group("g") as first, log.group("g") as second:
        first.join([METRICS], going)
        settle(first)
        going.on_going = lambda partitions: first.commit({p: Position(0, f"left {p[1]}") for p in partitions})
        second.join([METRICS], coming)
        settle(first, second)
        assert len(going.revoked) == 2
        assert frozenset(going.revoked) == second.assigned()
        for partition in second.assigned():
            assert coming.committed[partition] == Position(0, f"left {partition[1]}")
        going.on_going = lambda partitions: None


def test_a_partition_that_went_cannot_be_committed(log: Log) -> None:
    with log.group("g") as first, log.group("g") as second:
        first.join([METRICS], Listener())
        settle(first)
        second.join([METRICS], Listener())
        settle(first, second)
        gone = min(second.assigned())
        second.commit({gone: Position(0, "the owner's")})
        with pytest.raises(Unavailable) as stale:
            first.commit({gone: Position(0, "too late")})
        assert stale.value.reason == "stale_member"
        assert second.committed([gone]) == {gone: Position(0, "the owner's")}


def test_who_leaves_gives_everything_back(log: Log) -> None:
    leaver = Listener()
    with log.group("g") as stays:
        stays.join([METRICS], Listener())
        settle(stays)
        with log.group("g") as leaves:
            leaves.join([METRICS], leaver)
            settle(stays, leaves)
            held = leaves.assigned()
            leaver.on_going = lambda partitions: leaves.commit({p: Position(0, "bye") for p in partitions})
        assert frozenset(leaver.revoked) == held
        settle(stays)
        assert stays.committed(sorted(held)) == dict.fromkeys(held, Position(0, "bye"))


def test_metadata_is_limited_in_utf16_units(log: Log) -> None:
    with log.group("g") as member:
        member.join([METRICS], Listener())
        settle(member)
        for metadata in ("x" * METADATA_UNITS_MAX, "x" + "\U0001f600" * (METADATA_UNITS_MAX // 2)):
            member.commit({(METRICS, 0): Position(0, metadata)})
            assert member.committed([(METRICS, 0)]) == {(METRICS, 0): Position(0, metadata)}
        for metadata in ("x" * (METADATA_UNITS_MAX + 1), "\U0001f600" * (METADATA_UNITS_MAX // 2 + 1)):
            with pytest.raises(InvalidRequest) as invalid:
                member.commit({(METRICS, 0): Position(0, metadata)})
            assert invalid.value.reason == "metadata_too_large"
        with pytest.raises(InvalidRequest) as negative:
            member.commit({(METRICS, 0): Position(-1)})
        assert negative.value.reason == "offset_negative"


def test_lost_offsets_rest_the_partition_until_a_seek(log_factory: LogFactory, log: Log) -> None:
    append_all(log, METRICS, 0, [b"%d" % i for i in range(6)])
    log_factory.topics().trim(METRICS, {0: 4})
    with log.group("g") as member:
        member.join([METRICS], Listener())  # Starts at 0, which is gone.
        with pytest.raises(LostOffsets) as lost:
            poll_until(member, lambda events: False)
        assert lost.value.metadata["partition"] == "0"
        assert (METRICS, 0) in member.assigned()
        member.seek(METRICS, 0, 4)
        assert read_values(member, 2) == [b"4", b"5"]
        member.commit({(METRICS, 0): Position(6)})


def test_joining_a_topic_that_is_not_there_is_refused(log: Log) -> None:
    with log.group("g") as member, pytest.raises(WrongTopic):
        member.join(["nothing"], Listener())


def test_leaving_twice_is_leaving_once(log: Log) -> None:
    member = log.group("g")
    member.join([METRICS], Listener())
    settle(member)
    member.leave()
    member.leave()
    assert member.assigned() == frozenset()


def test_followers_come_and_go_with_what_they_follow(log: Log) -> None:
    def pairs(member: Group) -> frozenset[int]:
        numbers = {topic: {p for t, p in member.assigned() if t == topic} for topic in (CHUNKS, SERIES)}
        assert numbers[CHUNKS] == numbers[SERIES]
        return frozenset(numbers[CHUNKS])

    def share(*members: Group) -> None:
        def settled() -> bool:
            for member in members:
                member.poll(0.02)
            held = [pairs(member) for member in members]
            even = max(map(len, held)) - min(map(len, held)) <= 1
            return even and frozenset().union(*held) == frozenset(range(PARTITIONS))

        wait_until(settled)

    going, coming = Listener(), Listener()
    with log.group("g") as first, log.group("g") as second:
        first.join([CHUNKS], going, followers={SERIES: CHUNKS})
        share(first)
        for partition in range(PARTITIONS):
            append_all(log, SERIES, partition, [b"%d" % partition])
        read = poll_until(first, lambda events: len(records_of(events)) >= PARTITIONS)
        assert {record.value for record in records_of(read, SERIES)} == {b"%d" % p for p in range(PARTITIONS)}
        going.on_going = lambda gone: first.commit({p: Position(int(p[0] == SERIES), f"left {p}") for p in gone})
        second.join([CHUNKS], coming, followers={SERIES: CHUNKS})
        share(first, second)
        assert set(going.revoked) == second.assigned()
        for place in second.assigned():
            assert coming.committed[place] == Position(int(place[0] == SERIES), f"left {place}")
        mine = min(partition for partition in second.assigned() if partition[0] == SERIES)
        second.commit({mine: Position(1, "the owner's")})
        with pytest.raises(Unavailable) as stale:
            first.commit({mine: Position(0, "too late")})
        assert stale.value.reason == "stale_member"
        append_all(log, SERIES, mine[1], [b"more"])
        assert read_values(second, 1) == [b"more"]
        going.on_going = lambda gone: None


def test_a_resting_partition_is_not_read_until_a_seek(log: Log) -> None:
    append_all(log, METRICS, 0, [b"a", b"b"])
    with log.group("g") as member:
        member.join([METRICS], Listener())
        settle(member)
        member.pause(METRICS, 0)
        append_all(log, METRICS, 0, [b"c"])
        append_all(log, METRICS, 1, [b"d"])
        events = poll_until(member, lambda events: bool(records_of(events, METRICS, 1)))
        for _ in range(5):
            events += member.poll(0.05)
        assert not records_of(events, METRICS, 0)
        member.commit({(METRICS, 0): Position(0)})
        member.seek(METRICS, 0, 1)
        assert read_values(member, 2) == [b"b", b"c"]
        member.pause(METRICS, 0)
        member.seek(METRICS, 0, 0)
        assert read_values(member, 3) == [b"a", b"b", b"c"]


def test_all_may_rest_and_the_membership_lives_on(log: Log) -> None:
    with log.group("g") as member, log.group("g") as other:
        listener = Listener()
        member.join([METRICS], listener)
        settle(member)
        for partition in range(PARTITIONS):
            member.pause(METRICS, partition)
        other.join([METRICS], Listener())
        settle(member, other)
        assert len(listener.revoked) == PARTITIONS // 2


def test_an_assignment_that_could_not_be_taken_is_offered_again(log: Log) -> None:
    class Hesitant(Listener):
        refusals = 1

        def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
            if self.refusals:
                self.refusals -= 1
                raise Unavailable("not yet", reason="timeout")
            return super().on_assigned(committed)

    append_all(log, METRICS, 1, [b"a"])
    with log.group("g") as member:
        member.join([METRICS], Hesitant())
        with pytest.raises(Unavailable, match="not yet"):
            poll_until(member, lambda events: False)
        assert member.assigned() == frozenset()
        (events,) = settle(member)
        events += poll_until(member, lambda more: bool(records_of(events + more)))
        assert [record.value for record in records_of(events)] == [b"a"]
