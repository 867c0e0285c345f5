"""Each path is checked where it has samples; a path that cannot have any says why."""

from __future__ import annotations

import pytest

from tsdb.canary.layout import Layout
from tsdb.canary.ranges import (
    RANGE_TICKS,
    SEAM_TICKS,
    CoverageStart,
    NotYet,
    Range,
    history_range,
    memory_range,
    seam_of,
    seam_range,
)
from tsdb.v1 import common_pb2, reader_pb2

LAYOUT = Layout("c", 1000, 2)
END_MS = 10_000_000
ALL_HELD = CoverageStart(None, None, has_history=False)
JOINED = CoverageStart(9_000_000, 9_900_000, has_history=True)
LENGTH_MS, SIDE_MS = RANGE_TICKS * 1000, SEAM_TICKS * 1000


def state(partition: int, coverage_ms: int, *, from_start: bool = False) -> common_pb2.PartitionState:
    return common_pb2.PartitionState(partition=partition, coverage_start_ms=coverage_ms, from_start=from_start)


def test_a_seam_is_that_of_the_partitions_written_to_and_no_longer_whole() -> None:
    states = [state(0, 5, from_start=True), state(1, 70), state(2, 60), state(3, 10)]
    history = [reader_pb2.HistoryState(partition=partition) for partition in (1, 2)]
    assert seam_of(states, history, {0, 1, 2}) == CoverageStart(60, 70, has_history=True)
    assert seam_of(states, history, {1, 2, 3}) == CoverageStart(10, 70, has_history=False)
    assert seam_of(states, history, {0}) == ALL_HELD


def test_memory_is_checked_from_where_all_partitions_are_complete() -> None:
    assert memory_range(LAYOUT, ALL_HELD, END_MS) == Range(END_MS - LENGTH_MS, END_MS)
    assert memory_range(LAYOUT, JOINED, END_MS) == Range(9_900_000, END_MS)
    assert memory_range(LAYOUT, CoverageStart(1, END_MS + 1, has_history=False), END_MS) == Range(END_MS, END_MS)


def test_the_seam_is_checked_on_both_sides() -> None:
    assert seam_range(LAYOUT, JOINED, END_MS) == Range(9_000_000 - SIDE_MS, END_MS)
    assert seam_range(LAYOUT, JOINED, 2 * END_MS) == Range(9_000_000 - SIDE_MS, 9_900_000 + SIDE_MS)


def test_history_is_checked_piece_by_piece_and_again() -> None:
    pieces = [history_range(LAYOUT, JOINED, 3 * LENGTH_MS, number) for number in range(4)]
    end_ms = 9_000_000 - SIDE_MS
    assert pieces == [Range(end_ms - (n + 1) * LENGTH_MS, end_ms - n * LENGTH_MS) for n in (0, 1, 2, 0)]


@pytest.mark.parametrize(
    ("seam", "reason"), [(ALL_HELD, "memory_has_all"), (CoverageStart(5, 6, has_history=False), "no_history")]
)
def test_without_history_its_paths_are_not_checked_yet(seam: CoverageStart, reason: str) -> None:
    assert seam_range(LAYOUT, seam, END_MS) == history_range(LAYOUT, seam, LENGTH_MS, 0) == NotYet(reason)
