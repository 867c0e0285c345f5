"""Each loss that an answer may have is named in one sentence, once, and their number is bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fakes.fake_stores import state
from tsdb.answer.state import LOSSES_MAX, MemoryState, losses
from tsdb.codec.chunk.marker import HoleRecord

SPAN = (1_000, 2_000)


def with_holes(*holes: tuple[int, int, int]) -> MemoryState:
    """A state of partition 3 with holes (start_ms, end_ms, pack_id)."""
    found = tuple(HoleRecord(3, pack_id, start_ms, end_ms, "trimmed", 5) for start_ms, end_ms, pack_id in holes)
    return replace(state(3), holes=found)


def test_what_stores_say_about_their_lag_comes_first() -> None:
    lags = ["partition 4 is behind the log", "partition 2 is behind the log"]
    assert losses(lags, [state(1)], *SPAN, allow_holes=False) == tuple(lags)
    assert losses(lags, [with_holes((0, 1_500, 0))], *SPAN, allow_holes=True)[:2] == tuple(lags)


@pytest.mark.parametrize(
    ("hole", "named"),
    [((0, 1_000), False), ((0, 1_001), True), ((1_999, 3_000), True), ((2_000, 3_000), False), ((0, 9_000), True)],
)
def test_holes_in_the_range_are_named_where_they_are_allowed(hole: tuple[int, int], named: bool) -> None:
    found = losses((), [with_holes((*hole, 0))], *SPAN, allow_holes=True)
    assert len(found) == named
    assert losses((), [with_holes((*hole, 0))], *SPAN, allow_holes=False) == ()


def test_the_sentence_of_a_hole_states_place_time_and_reason() -> None:
    assert losses((), [with_holes((1_500, 61_500, 0x1F))], *SPAN, allow_holes=True) == (
        "samples of pack 000000000000001f of partition 3 from 1970-01-01T00:00:01.500Z until 1970-01-01T00:01:01.500Z"
        " may be lost: trimmed, record_offset 5",
    )


def test_a_hole_that_memory_and_history_state_is_named_once() -> None:
    assert len(losses((), [with_holes((0, 1_500, 0), (0, 1_500, 0))], *SPAN, allow_holes=True)) == 1


def test_losses_over_the_bound_are_counted() -> None:
    many = with_holes(*((0, 1_500, pack) for pack in range(1, LOSSES_MAX + 8)))
    found = losses((), [many], *SPAN, allow_holes=True)
    assert len(found) == LOSSES_MAX + 1
    assert found[-1] == "7 more losses are not listed"
