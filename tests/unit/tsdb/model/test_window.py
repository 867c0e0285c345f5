"""Windows and index epochs: every instant lies in exactly one, before 1970 too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import (
    EPOCH_MS,
    ceil_to,
    floor_to,
    index_epoch,
    index_epoch_end_ms,
    index_epoch_start_ms,
    window_end,
    window_start,
)

TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
LENGTHS = st.integers(1, 1 << 40)
SERIES = st.integers(0, (1 << 64) - 1)
H = 3_600_000


@given(TIMES, LENGTHS)
def test_a_window_holds_its_instant_and_is_aligned(ts_ms: int, window_ms: int) -> None:
    start, end = window_start(ts_ms, window_ms), window_end(ts_ms, window_ms)
    assert start <= ts_ms < end == start + window_ms
    assert start % window_ms == 0


@given(TIMES, LENGTHS)
def test_windows_are_half_open(ts_ms: int, window_ms: int) -> None:
    end = window_end(ts_ms, window_ms)
    assert window_start(end, window_ms) == end
    assert window_start(end - 1, window_ms) == end - window_ms


@given(TIMES, LENGTHS)
def test_floor_and_ceil_enclose_and_meet_on_multiples(ts_ms: int, length_ms: int) -> None:
    low, high = floor_to(ts_ms, length_ms), ceil_to(ts_ms, length_ms)
    assert low <= ts_ms <= high
    assert high - low == (0 if ts_ms % length_ms == 0 else length_ms)


def test_production_windows_lie_on_four_hours_utc() -> None:
    midnight_ms = 1_763_683_200_000  # 2025-11-21T00:00:00Z
    starts = {window_start(midnight_ms + hour * H, PRODUCTION.window_ms) - midnight_ms for hour in range(24)}
    assert starts == {0, 4 * H, 8 * H, 12 * H, 16 * H, 20 * H}


@given(SERIES, TIMES)
def test_an_index_epoch_holds_its_instant(series_id: int, ts_ms: int) -> None:
    epoch = index_epoch(series_id, ts_ms)
    start, end = index_epoch_start_ms(series_id, epoch), index_epoch_end_ms(series_id, epoch)
    assert start <= ts_ms < end == start + EPOCH_MS
    assert end == index_epoch_start_ms(series_id, epoch + 1)


def test_epochs_of_different_series_turn_at_different_times() -> None:
    ends = {index_epoch_end_ms(series_id * 0x9E3779B97F4A7C15 % (1 << 64), 600) for series_id in range(1000)}
    assert len(ends) == 1000
