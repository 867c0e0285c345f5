"""Read states: the states of several partitions refuse together what each alone refuses, and are made once."""

from __future__ import annotations

import pytest

from support.data.heads import Record, apply, new_head
from tsdb.answer.state import MemoryState
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.model.clock import ManualClock
from tsdb.model.errors import HoleInRange, OutOfCoverage
from tsdb.replay.replay import PartitionProgress
from tsdb.store.partition import Partition, ReadStates, ReadStatesCache, Tolerance
from tsdb.store.readiness import ReadinessEvaluator


def states(*given: MemoryState) -> ReadStates:
    return ReadStates.of(given, ())


def state(partition: int, coverage_ms: int, *holes: HoleRecord, from_start: bool = False) -> MemoryState:
    return MemoryState(partition, coverage_start_ms=coverage_ms, from_start=from_start, holes=holes)


def test_a_range_must_be_covered_in_every_partition() -> None:
    some = states(state(0, 1000), state(1, 1200), state(2, 9000, from_start=True))
    some.check_coverage(1200)
    with pytest.raises(OutOfCoverage, match="partition 1 is complete from 1200 ms on"):
        some.check_coverage(1199)
    with pytest.raises(OutOfCoverage, match="partition 0"):
        some.check_coverage(999)
    states(state(0, 9000, from_start=True)).check_coverage(0)


def test_a_hole_of_any_partition_is_named_unless_holes_are_allowed() -> None:
    some = states(state(0, 0), state(1, 0, HoleRecord(1, 0, 1500, 1600, "corrupt_record", 7)))
    Tolerance().check_holes(some.holed, 1000, 1500)
    with pytest.raises(HoleInRange, match="partition 1"):
        Tolerance().check_holes(some.holed, 1000, 1501)
    Tolerance(allow_holes=True).check_holes(some.holed, 1000, 1501)


def test_they_are_the_same_until_a_partition_moves() -> None:
    clock = ManualClock(1000)
    heads, progress = [new_head(number) for number in range(2)], [PartitionProgress(0) for _ in range(2)]
    partitions = [
        Partition(number, "topic", heads[number], progress[number], ReadinessEvaluator(), clock) for number in range(2)
    ]
    cache = ReadStatesCache()

    def now() -> ReadStates:
        snapshots = [partition.evaluate()[1] for partition in partitions]
        return cache.of(partitions, snapshots, [head.state() for head in heads])

    for partition in partitions:
        partition.observe_high_watermark(0, clock.monotonic())
    first = now()
    assert now() is first
    apply(heads[1], [Record(0, 1000, ((0, 1000, 1.0),))])
    progress[1].next_offset = 1
    moved = now()
    assert [(state.partition, state.next_offset) for state in moved.states] == [(0, 0), (1, 1)]
    assert [state.applied_offset for state in moved.states] == [None, 0]
    assert moved.states[0] is first.states[0]
