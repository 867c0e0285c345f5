"""Response header: the statuses of several partitions refuse together what each alone refuses; encoded once."""

from __future__ import annotations

import pytest

from support.data.heads import Record, apply, new_head
from tsdb.head.head import HeadState, Hole
from tsdb.model.clock import ManualClock
from tsdb.model.errors import HoleInRange, OutOfCoverage
from tsdb.replay.replay import PartitionProgress
from tsdb.store.partition import Partition, StorePartitionStatus
from tsdb.store.readiness import PartitionReadiness, ReadinessEvaluator
from tsdb.store.response_header import ResponseHeader, ResponseHeaderCache
from tsdb.store.tolerance import Tolerance
from tsdb.v1 import reader_pb2


def status(partition: int, coverage_start_ms: int, *holes: Hole, from_start: bool = False) -> StorePartitionStatus:
    state = HeadState(3, coverage_start_ms, 2000, 9, 10, from_start, holes)
    return StorePartitionStatus(partition, "topic", 10, 10, PartitionReadiness(True, "", 0, 0), "", state=state)


def test_a_range_must_be_covered_in_every_partition() -> None:
    header = ResponseHeader.of([status(0, 1000), status(1, 1200), status(2, 9000, from_start=True)])
    header.check_coverage(1200)
    with pytest.raises(OutOfCoverage, match="partition 1 is complete from 1200 ms on"):
        header.check_coverage(1199)
    with pytest.raises(OutOfCoverage, match="partition 0"):
        header.check_coverage(999)
    ResponseHeader.of([status(0, 9000, from_start=True)]).check_coverage(0)


def test_a_hole_of_any_partition_is_named_unless_holes_are_allowed() -> None:
    header = ResponseHeader.of([status(0, 0), status(1, 0, Hole(1500, 1600, "corrupt_record", 7))])
    header.check_holes(Tolerance(), 1000, 1500)
    with pytest.raises(HoleInRange, match="partition 1"):
        header.check_holes(Tolerance(), 1000, 1501)
    header.check_holes(Tolerance(allow_holes=True), 1000, 1501)


def test_it_is_the_same_until_a_partition_moves() -> None:
    clock = ManualClock(1000)
    heads, progress = [new_head(number) for number in range(2)], [PartitionProgress(0) for _ in range(2)]
    partitions = [
        Partition(number, "topic", heads[number], progress[number], ReadinessEvaluator(), clock) for number in range(2)
    ]
    cache = ResponseHeaderCache()

    def now() -> ResponseHeader:
        snapshots = [partition.evaluate()[1] for partition in partitions]
        return cache.of(partitions, snapshots, [head.state() for head in heads])

    for partition in partitions:
        partition.observe_high_watermark(0, clock.monotonic())
    first = now()
    assert now() is first
    apply(heads[1], [Record(0, 1000, ((0, 1000, 1.0),))])
    progress[1].next_offset = 1
    moved = reader_pb2.SelectHeader.FromString(now().encoded)
    assert [(state.partition, state.next_offset) for state in moved.partitions] == [(0, 0), (1, 1)]
    assert [state.applied_offset for state in moved.partitions] == [0, 0]
    assert [state.HasField("applied_offset") for state in moved.partitions] == [False, True]
