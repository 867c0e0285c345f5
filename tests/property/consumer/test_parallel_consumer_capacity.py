"""Records read and not finished stay within their bound with any stuck partitions, and the other partitions go on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.examples import examples
from tsdb.parallel_consumer import Control, Options, Record, unordered
from tsdb.parallel_consumer.flow.read_capacity import ReadCapacity, SharedBound
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.record import TopicPartition
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation, VirtualClock

TOPIC = "orders"
RECORDS = 60  # Records of each partition.
VALUE = b"v" * 10


class StallSimulation:
    """A simulation with stuck partitions, and the largest number of records it held."""

    def __init__(self, partitions: int, options: Options, seed: int) -> None:
        self.clock, self.done = VirtualClock(), [0] * partitions
        broker = MemoryBroker(partitions, TOPIC)
        for partition in range(partitions):
            for _ in range(RECORDS):
                broker.append(TOPIC, partition, VALUE)
        settings: dict[str, Any] = {"producer": MemoryProducer(), "dead_letter_topic": "dlq"}
        self._simulation = Simulation(
            broker, self._handle, seed, clock=self.clock, order=unordered, options=options, **settings
        )
        self.records = self.size = 0

    def stand_still(self, partitions: set[int]) -> None:
        paused = frozenset((TOPIC, partition) for partition in partitions)
        self._simulation.core.control = Control(paused_partitions=paused)

    def step(self) -> None:
        self._simulation.step()
        intake = self._simulation.core._intake
        self.records, self.size = max(self.records, intake.records), max(self.size, intake.size)

    def finish(self, partitions: set[int], steps_max: int = 3_000) -> None:
        """Finish all records of these."""
        for _ in range(steps_max):
            if all(self.done[partition] == RECORDS for partition in partitions):
                return
            self.step()
        raise AssertionError(f"done: {self.done} of {RECORDS}; {self._simulation.core.status}")

    def _handle(self, record: Record) -> None:
        self.done[record.partition] += 1


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(
    st.integers(2, 6).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.sets(st.integers(0, count - 1)), st.integers(1, 40)), max_size=4),
            st.sets(st.integers(0, count - 1), max_size=count - 1),
        )
    ),
    st.integers(8, 200),
    st.integers(100, 3_000),
    st.integers(1, 50),
    st.integers(0, 1_000),
)
@example((4, [({0}, 40), ({0, 1}, 40)], {0, 1, 2}), 40, 3_000, 10, 0)
@example((2, [({0, 1}, 60), ({0}, 60)], {1}), 40, 3_000, 10, 0)
@example((4, [], {0, 1, 2}), 200, 100, 50, 0)
@example((4, [({0, 1}, 5)], set()), 32, 135, 8, 0)
def test_with_any_stuck_partitions_the_bound_holds_and_the_others_go_on(
    stands: tuple[int, list[tuple[set[int], int]], set[int]],
    records_max: int,
    bytes_max: int,
    poll_records_max: int,
    seed: int,
) -> None:
    """Partitions stop and continue in turns. In the end some stay stuck, and the others are read to their end."""
    count, turns, last = stands
    # The first poll knows no partitions yet: it must not give all capacity to one.
    options = Options(
        concurrency=4,
        records_max=records_max,
        bytes_max=bytes_max,
        poll_records_max=min(poll_records_max, records_max // 4),
    )
    held = StallSimulation(count, options, seed)
    for still, steps in turns:
        held.stand_still(still)
        for _ in range(steps):
            held.step()
    held.stand_still(last)
    held.finish(set(range(count)) - last)
    assert held.records <= records_max
    # Each partition may begin one record at the bound; record sizes are unknown at the first poll.
    assert held.size <= bytes_max + (count + options.poll_records_max) * len(VALUE)
    held.stand_still(set())
    held.finish(set(range(count)))


@given(st.integers(1, 500), st.lists(st.integers(0, 300), min_size=1, max_size=20), st.data())
def test_reads_of_some_partitions_leave_the_shares_of_all_others(
    bound: int, wanted: list[int], data: st.DataObject
) -> None:
    """Partitions read their limit in any order: the total stays within the bound, and each has had its share."""
    used = [0] * len(wanted)
    for at in data.draw(st.permutations(range(len(wanted)))):
        used[at] += min(wanted[at], SharedBound(bound, used).capacity(used[at]))
    sharing = SharedBound(bound, used)
    assert sum(used) <= max(bound, len(used))
    assert all(got >= min(want, sharing.own) for got, want in zip(used, wanted, strict=True))
    assert not any(sharing.over_quota(one) and sharing.starves(one) for one in used)


@given(st.integers(1, 500), st.integers(2, 12), st.data())
def test_one_partition_at_its_limit_leaves_the_shares_of_the_others(
    bound: int, count: int, data: st.DataObject
) -> None:
    parts = [_part(number) for number in range(count)]
    capacity = ReadCapacity({part.topic_partition: part for part in parts}, Options(records_max=bound))
    for part in data.draw(st.lists(st.sampled_from(parts), max_size=40)):
        read = capacity.records()
        if read <= 0:
            for over_quota in capacity.over_quota():
                over_quota.over_quota_records = over_quota.unfinished
        elif not part.over_quota_records:
            part.unfinished += read
        used = [each.unfinished for each in parts]
        own = SharedBound(bound, used).own
        assert sum(max(one, own) for one in used) <= max(bound, count)


def test_partitions_assigned_in_turn_beside_stuck_ones_exceed_the_bound_by_a_quarter_at_most() -> None:
    parts: dict[TopicPartition, PartitionState] = {}
    capacity = ReadCapacity(parts, Options(records_max=400))
    for number in range(30):
        part = parts[TOPIC, number] = _part(number)
        part.unfinished = capacity.records()
        part.over_quota_records = part.unfinished
        assert number > 3 or part.unfinished > 0, "a partition assigned later got nothing"
    assert sum(part.unfinished for part in parts.values()) == 500


def _part(number: int) -> PartitionState:
    return PartitionState((TOPIC, number), 1, "id", OffsetTracker(0), 0.0, 0)
