"""Select: an answer never states more of its heads than its samples show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from support.data.heads import Record, apply, new_head, register
from tsdb.answer.spec import SelectSpec
from tsdb.head.head import Head
from tsdb.model.clock import ManualClock
from tsdb.reader.read_call import NO_BOUNDS, ReadWork, SelectLimits
from tsdb.replay.replay import PartitionProgress
from tsdb.selector.selectors import parse_selector
from tsdb.store.partition import Partition, Tolerance
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.reads import ReadMemory, gather
from tsdb.store.selection import Selection, Selections

ANY = Tolerance(allow_stale=True, allow_holes=True)
LATE_OF_LONG_AGO = Record(0, 1000, ((0, 100, 1.0),))  # Below coverage: columns are gathered head by head.


class SelectionsThenMore(Selections):
    """The head gets a record right after its series were selected, as its writer thread may do."""

    def __init__(self, go_on: Callable[[], object]) -> None:
        super().__init__()
        self._go_on = go_on

    def select(
        self, heads: Sequence[Head], query: SelectSpec, limits: SelectLimits, work: ReadWork = NO_BOUNDS
    ) -> Selection:
        found = super().select(heads, query, limits, work)
        self._go_on()
        return found


def partition_of(head: Head) -> Partition:
    return Partition(head.partition, "topic", head, PartitionProgress(0), ReadinessEvaluator(), ManualClock(0))


def head_with(*records: Record) -> Head:
    head = new_head(series=1, coverage_start_ms=900, from_start=False)
    apply(head, records)
    head.maintain()
    return head


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("below", [False, True], ids=["open and sealed", "late below coverage too"])
def test_the_applied_offset_of_an_answer_is_from_before_its_series_were_chosen(columns: bool, below: bool) -> None:
    first = LATE_OF_LONG_AGO if below else Record(0, 1000, ((0, 1000, 1.0),))
    head = head_with(first, *(Record(n, 1000 + n, ((0, 1000 + n, 1.0),)) for n in range(1, 90)))
    assert bool(len(head.contents.held.below)) == below

    def a_new_series_comes() -> None:
        register(head, [1])
        apply(head, [Record(90, 1090, ((1, 1090, 1.0),))])

    memory = ReadMemory()
    memory.selections = SelectionsThenMore(a_new_series_comes)
    query = SelectSpec(parse_selector('{job="test"}'), None, 0, 2000, 0, 0, 0, columns, True, partial=True)
    answer = gather([partition_of(head)], query, ANY, SelectLimits(), memory)
    (state,) = answer.states or ()
    assert answer.body.counts is not None
    assert answer.body.counts.series == 1, "the new series is not in the answer"
    assert state.applied_offset == 89, "so the answer must not state its sample's offset"


def test_a_state_that_did_not_move_is_stated_again_as_the_same_object() -> None:
    head = head_with(LATE_OF_LONG_AGO)
    memory, partitions = ReadMemory(), [partition_of(head)]
    partitions[0].progress.next_offset = head.next_offset
    partitions[0].observe_high_watermark(head.next_offset, 0.0)
    query = SelectSpec(parse_selector('{job="test"}'), None, 0, 2000, 0, 0, 0, False, True, partial=True)
    first = gather(partitions, query, ANY, SelectLimits(), memory)
    second = gather(partitions, query, ANY, SelectLimits(), memory)
    assert first.states is not None
    assert first.states is second.states
