"""When slices are sealed, merged, folded and dropped, and the coverage and since_offset afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.heads import DAY_MS, SMALL_SLICES, SMALL_TIMES, Record, apply, new_head, refs_of, samples_of
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits

LENGTH = SMALL_SLICES.small_ms


def live(offset: int, now_ms: int, *, series: int = 0) -> Record:
    return Record(offset, now_ms, ((series, now_ms, float(offset)),))


def run(head: Head, *, start_ms: int = 1000, records: int = 100, every_ms: int = 5, first_offset: int = 0) -> int:
    """Apply a sample every few ms, with maintenance after each record. Returns the last broker time."""
    now_ms = start_ms
    for number in range(records):
        now_ms = start_ms + number * every_ms
        apply(head, [live(first_offset + number, now_ms)])
        head.maintain()
    return now_ms


@pytest.mark.parametrize(("watermark", "late"), [(1000 + 2 * LENGTH - 1, 0), (1000 + 2 * LENGTH, 1)])
def test_a_slice_takes_samples_until_one_length_after_its_end_whether_it_exists_or_not(
    watermark: int, late: int
) -> None:
    for exists in (True, False):
        head = new_head(series=1)
        if exists:
            apply(head, [live(0, 1000)])
        assert apply(head, [Record(1, watermark, ((0, 1001, 2.0),))]).late == late
        assert head.gather_raw(refs_of(head, [0]), 1001, 1002).values.tolist() == [2.0]


def test_small_slices_of_a_past_interval_become_one_large() -> None:
    head = new_head(series=1, hold_ms=1 << 40)
    run(head, start_ms=1000, records=40)
    lengths = [slice_.end_ms - slice_.start_ms for slice_ in head.contents.sealed]
    assert lengths[0] == SMALL_SLICES.large_ms
    assert lengths == sorted(lengths, reverse=True)
    assert lengths.count(SMALL_SLICES.small_ms) <= 5


def test_a_drop_raises_coverage_to_the_slices_end_and_since_offset_past_its_newest_record() -> None:
    head = new_head(series=1, hold_ms=100)
    last_ms = run(head, records=60)
    state = head.state()
    assert not state.from_start
    assert state.coverage_start_ms % LENGTH == 0
    # Record n came with broker time 1000 + 5 n and one sample of that time: the newest of the slice is the one before
    # its end, and is older than hold.
    assert state.since_offset == (state.coverage_start_ms - 1000) // 5
    assert 1000 + 5 * (state.since_offset - 1) < last_ms - 100
    oldest = int(head.gather_raw(refs_of(head, [0]), 0, 1 << 40).ts_ms[0])
    assert oldest >= state.coverage_start_ms


def test_a_late_sample_stays_until_its_offset_is_below_since_and_its_time_below_coverage() -> None:
    head = new_head(series=2, hold_ms=100)
    run(head, records=30)
    late_ms = 1003
    apply(head, [Record(30, 1150, ((1, late_ms, 42.0),))])
    offset = 31
    while head.state().since_offset <= 30:
        raw = head.gather_raw(refs_of(head, [1]), late_ms, late_ms + 1, partial=True)
        assert raw.orders is not None
        below = late_ms < head.state().coverage_start_ms
        assert (raw.values.tolist(), raw.orders.tolist()) == ([42.0], [30 if below else -1])
        run(head, start_ms=1150 + 5 * (offset - 30), records=1, first_offset=offset)
        offset += 1
    assert head.sizes().late == 0
    assert not head.contents.below
    assert len(head.gather_raw(refs_of(head, [1]), late_ms, late_ms + 1, partial=True).ts_ms) == 0


@pytest.mark.slow
def test_a_bulk_of_old_samples_is_folded_and_read_like_any_other() -> None:
    head = new_head(series=3, hold_ms=1 << 40)
    apply(head, [Record(0, 100_000)])
    samples = tuple((number, ts, float(ts)) for ts in range(90_000, 99_000, 10) for number in range(3))
    applied = apply(head, [Record(1, 100_000, samples)])
    assert applied.late == len(samples)
    head.maintain()
    maintained = [head.maintain() for _ in range(3)]
    assert sum(done.folded for done in maintained) + applied.samples >= len(samples)
    sizes = head.sizes()
    assert sizes.late == 0
    assert sizes.slices == 9000 // SMALL_SLICES.large_ms
    raw = head.gather_raw(refs_of(head, range(3)), 90_000, 99_000)
    assert raw.counts.tolist() == [900, 900, 900]
    assert (raw.values == raw.ts_ms).all()


@pytest.mark.parametrize("ts_ms", [-(1 << 63), -(1 << 62), -(1 << 60) - 1, -1, 0])
def test_times_of_any_absurdity_harm_nothing(ts_ms: int) -> None:
    for coverage_ms in (-(1 << 40), 1000):
        head = new_head(series=2, hold_ms=1 << 40, coverage_start_ms=coverage_ms)
        apply(head, [Record(0, 1000, ((0, ts_ms, 1.0),)), Record(1, 1000, ((1, 1000, 2.0),))])
        run(head, start_ms=1005, records=40, first_offset=2)
        assert samples_of(head.gather_raw(refs_of(head, [1]), 0, 5000), [1]) == {1: {1000: 2.0}}
        assert head.sizes().samples == 42


def test_few_late_samples_wait_in_the_list_and_are_read_from_there() -> None:
    head = new_head(series=1, hold_ms=1 << 40, limits=HeadLimits(fold_entries_min=10))
    run(head, records=30)
    apply(head, [Record(30, 1150, ((0, 1005, -1.0),))])
    for _ in range(3):
        head.maintain()
    assert head.sizes().late == 1
    assert samples_of(head.gather_raw(refs_of(head, [0]), 1005, 1006), [0]) == {0: {1005: -1.0}}


@pytest.mark.parametrize(("since_offset", "kept"), [(30, 30), (31, -1)])
def test_a_merge_keeps_the_orders_that_a_drop_may_still_need(since_offset: int, kept: int) -> None:
    head = new_head(series=1, hold_ms=1 << 40)
    last_ms = run(head, records=30)
    late_ms = head.contents.sealed[-1].start_ms
    apply(head, [Record(30, last_ms, ((0, late_ms, -1.0),))])
    for _ in range(2):
        head.maintain()
    (folded,) = [slice_ for slice_ in head.contents.sealed if slice_.order_max == 30]
    assert folded.end_ms - folded.start_ms == SMALL_SLICES.small_ms
    head.contents.since_offset = since_offset
    run(head, records=30, start_ms=last_ms, first_offset=31)
    (merged,) = [slice_ for slice_ in head.contents.sealed if slice_.start_ms <= late_ms < slice_.end_ms]
    assert merged.end_ms - merged.start_ms > SMALL_SLICES.small_ms
    assert merged.order_max == kept


def test_the_newest_slices_below_coverage_are_joined_in_the_order_they_were_made() -> None:
    head = new_head(series=1, coverage_start_ms=5000, from_start=False)
    apply(head, [Record(0, 6000)])
    for offset in range(1, 40):
        samples = tuple((0, 4000 + (n * offset) % 37, float(offset)) for n in range(1 if offset % 4 else 12))
        apply(head, [Record(offset, 6000, samples)])
        head.maintain()
        head.maintain()
    assert len(head.contents.below) <= 6
    raw = head.gather_raw(refs_of(head, [0]), 0, 5000, partial=True)
    want = {4000 + (n * offset) % 37: offset for offset in range(1, 40) for n in range(1 if offset % 4 else 12)}
    assert dict(zip(raw.ts_ms.tolist(), raw.values.tolist(), strict=True)) == want
    assert raw.orders is not None
    assert raw.orders.tolist() == raw.values.tolist()


def test_an_imports_tick_drops_slices_before_its_reach_and_raises_coverage_to_a_slices_end() -> None:
    head = new_head(series=1, hold_ms=1 << 50)
    run(head, start_ms=1000, records=30)
    tick_ms = 1055 + SMALL_TIMES.least_hold_ms + DAY_MS
    apply(head, [Record(30, tick_ms, tick=True)])
    state = head.state()
    assert not state.from_start
    assert state.coverage_start_ms >= 1055
    assert state.coverage_start_ms % LENGTH == 0
    assert all(slice_.start_ms >= 1055 for slice_ in head.contents.sealed)


def test_a_tick_without_the_import_flag_only_moves_the_watermark() -> None:
    head = new_head(series=1)
    apply(head, [Record(0, 1000 + 2 * DAY_MS)])
    state = head.state()
    assert (state.from_start, state.watermark_ms, state.applied_offset) == (True, 1000 + 2 * DAY_MS, 0)


def test_above_the_soft_limit_the_past_is_sealed_and_the_oldest_dropped() -> None:
    head = new_head(series=1, hold_ms=1 << 40, limits=HeadLimits(memory_soft_bytes=1))
    last_ms = run(head, records=20)
    state = head.state()
    assert state.coverage_start_ms > 1000
    assert head.contents.open_from_ms == last_ms - last_ms % LENGTH
    raw = head.gather_raw(refs_of(head, [0]), state.coverage_start_ms, 1 << 40)
    assert raw.ts_ms.tolist() == [ts for ts in range(1000, last_ms + 1, 5) if ts >= state.coverage_start_ms]


def test_a_sealed_series_costs_at_most_36_bytes_beside_its_encoded_columns() -> None:
    series = 600
    head = new_head(series=series, hold_ms=1 << 40)
    for step in range(10):
        apply(head, [Record(step, 1000 + step, tuple((n, 1000 + step, n * 0.1) for n in range(series)))])
    apply(head, [Record(10, 2000)])
    head.maintain()
    (sealed,) = head.contents.sealed
    assert sealed.columns == series
    assert len(sealed.axis_end) == 1, "one axis for all"
    assert sealed.directory_bytes <= 36 * series


def test_samples_of_any_pattern_keep_their_bits_through_seal_and_merge() -> None:
    patterns = np.array([0, 1 << 63, 0x7FF8000000000001, 0x7FF0000000000002, 0xFFF8DEADBEEF0001, 1], np.uint64)
    head = new_head(series=1, hold_ms=1 << 40)
    times = [1000 + 3 * n for n in range(len(patterns))]
    samples = tuple((0, ts, float(value)) for ts, value in zip(times, patterns.view(np.float64), strict=True))
    apply(head, [Record(0, 1012, samples)])
    run(head, start_ms=1020, records=40, first_offset=1)
    raw = head.gather_raw(refs_of(head, [0]), 1000, 1019)
    assert raw.ts_ms.tolist() == times
    assert raw.values.view(np.uint64).tolist() == patterns.tolist()
