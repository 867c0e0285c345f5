"""Time sets: the figures that all share, and the relations between them."""

from __future__ import annotations

import pytest

from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import BRIEF, DEMO, PRODUCTION, SliceLengths, TimeSet, slice_lengths, time_set

S, MIN, H, D = 1000, 60_000, 3_600_000, 86_400_000


def test_production_is_as_documented() -> None:
    assert TimeSet("production", 4 * H, 5 * MIN, 10 * MIN, 5 * MIN, MIN, 2 * H, 10 * H, 5 * D) == PRODUCTION
    assert slice_lengths("production") == SliceLengths(10 * MIN, H)


def test_brief_is_as_documented() -> None:
    assert TimeSet("brief", 20 * S, 2 * S, 5 * S, 3 * S, S, 3 * S, 45 * S, 5 * D) == BRIEF
    assert slice_lengths("brief") == SliceLengths(S, 5 * S)


def test_demo_is_as_documented() -> None:
    assert TimeSet("demo", 30 * S, 2 * S, 5 * S, 3 * S, S, 5 * S, 90 * S, 5 * D) == DEMO
    assert slice_lengths("demo") == SliceLengths(2 * S, 10 * S)


@pytest.mark.parametrize("name", ["production", "demo", "brief"])
def test_the_durations_of_a_time_set_hang_together(name: str) -> None:
    times, slices = time_set(name), slice_lengths(name)
    assert times.name == name
    assert times.gateway_ahead_ms < times.ahead_ms, "what a gateway takes, readers count"
    assert times.window_ms % slices.large_ms == 0 or slices.large_ms < times.window_ms
    # The allowed delay of chunk stage and loader is positive.
    behind_ms = times.least_hold_ms - times.window_ms - times.grace_ms - times.spread_ms - times.ahead_ms
    assert behind_ms - slices.large_ms > 0
    assert times.accept_past_ms > times.least_hold_ms


@pytest.mark.parametrize("name", ["production", "demo", "brief"])
def test_a_window_closes_where_a_late_minute_begins(name: str) -> None:
    """Spark's pipeline cuts the late minutes there."""
    times = time_set(name)
    assert (times.window_ms + times.grace_ms) % times.late_minute_ms == 0
    assert times.grace_ms % times.late_minute_ms == 0


def test_an_unknown_time_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigMismatch, match="time set 'prod' is unknown; known: production, demo"):
        time_set("prod")
    with pytest.raises(ConfigMismatch):
        slice_lengths("prod")


@pytest.mark.parametrize(("small_ms", "large_ms"), [(0, 10), (-1, 10), (3, 10), (20, 10)])
def test_a_large_slice_is_a_multiple_of_the_small(small_ms: int, large_ms: int) -> None:
    with pytest.raises(ConfigMismatch, match="must be a multiple of the small"):
        SliceLengths(small_ms, large_ms)


def test_small_and_large_slices_may_be_one_length() -> None:
    assert SliceLengths(10, 10).large_ms == 10
