"""Applying invalid samples and records: too far ahead, unknown series, corrupt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.data.heads import (
    SMALL_TIMES,
    Record,
    apply,
    decoded_of,
    id_of,
    new_head,
    positions_of,
    refs_of,
    register,
    samples_of,
)
from tsdb.codec.records.log_record import STATUS_CORRUPT, STATUS_UNKNOWN_VERSION
from tsdb.head.state import HeadLimits
from tsdb.model.errors import Overloaded, UnknownVersion


def test_a_sample_too_far_ahead_of_its_records_broker_time_is_ignored_and_counted() -> None:
    head = new_head(series=1)
    latest = 1000 + SMALL_TIMES.ahead_ms
    applied = apply(head, [Record(0, 1000, ((0, latest, 1.0), (0, latest + 1, 2.0)))])
    assert (applied.samples, applied.ignored_ahead) == (1, 1)
    assert samples_of(head.gather_raw(refs_of(head, [0]), 0, 9999), [0]) == {0: {latest: 1.0}}


def test_a_sample_ahead_is_measured_by_its_record_and_not_by_the_watermark() -> None:
    head = new_head(series=1)
    applied = apply(head, [Record(0, 2000), Record(1, 1000, ((0, 1500, 1.0),))])
    assert applied.ignored_ahead == 1
    assert head.state().watermark_ms == 2000


def test_an_unknown_series_is_left_out_counted_and_becomes_a_hole_over_its_times() -> None:
    head = new_head(series=1)
    record = Record(7, 1000, ((0, 1000, 1.0), (5, 990, 2.0), (5, 995, 3.0)))
    assert head.unknown_ids(decoded_of([record])).tolist() == [id_of(5)]
    applied = apply(head, [record])
    assert (applied.samples, applied.unknown_samples, applied.holes) == (1, 2, 1)
    (hole,) = head.state().holes
    assert (hole.start_ms, hole.end_ms, hole.reason, hole.record_offset) == (990, 996, "unknown_series", 7)
    assert hole.pack_id != 0


def test_a_series_registered_after_it_was_found_unknown_is_applied() -> None:
    head = new_head(series=1)
    decoded = decoded_of([Record(0, 1000, ((5, 990, 2.0),))])
    assert len(head.unknown_ids(decoded)) == 1
    register(head, [5])
    applied = head.apply(decoded, *positions_of([Record(0, 1000)]))
    assert (applied.samples, applied.unknown_samples) == (1, 0)


def test_a_corrupt_record_is_a_hole_over_all_times_that_its_samples_could_have() -> None:
    head = new_head(series=1)
    records = [Record(3, 1000), Record(4, 1001, ((0, 1000, 1.0),))]
    decoded = decoded_of(records)
    decoded.status[0] = STATUS_CORRUPT
    applied = head.apply(decoded, *positions_of(records))
    assert (applied.records, applied.samples, applied.holes) == (2, 1, 1)
    (hole,) = head.state().holes
    assert (hole.start_ms, hole.end_ms) == (1000 - SMALL_TIMES.accept_past_ms, 1000 + SMALL_TIMES.ahead_ms + 1)
    assert (hole.reason, hole.record_offset) == ("corrupt_record", 3)


def test_a_record_of_unknown_version_is_refused_by_offset_and_nothing_is_applied() -> None:
    head = new_head(series=1)
    records = [Record(3, 1000, ((0, 1000, 1.0),)), Record(4, 1001)]
    decoded = decoded_of(records)
    decoded.status[1] = STATUS_UNKNOWN_VERSION
    with pytest.raises(UnknownVersion, match="record_offset 4"):
        head.apply(decoded, *positions_of(records))
    assert head.applied_offset is None


def test_a_batch_given_again_is_passed_over() -> None:
    head = new_head(series=1)
    records = [Record(n, 1000 + n, ((0, 1000 + n, float(n)),)) for n in range(4)]
    apply(head, records[:3])
    applied = apply(head, records)
    assert (applied.records, applied.samples) == (1, 1)
    assert head.sizes().samples == 4
    assert head.next_offset == 4


def test_above_the_hard_limit_nothing_is_applied_and_the_error_names_it() -> None:
    limits = HeadLimits()
    head = new_head(series=1, limits=limits)
    object.__setattr__(limits, "memory_hard_bytes", 1)
    with pytest.raises(Overloaded, match="share of memory_hard_bytes is 1:") as caught:
        apply(head, [Record(0, 1000, ((0, 1000, 1.0),))])
    assert caught.value.reason == "memory_hard"
    assert head.applied_offset is None
    assert head.sizes().samples == 0


def test_the_hash_of_a_pack_is_never_proof_of_its_ids() -> None:
    head = new_head(series=4)
    for offset, numbers in enumerate([(0, 1), (2, 3), (0, 1)]):
        record = Record(offset, 1000, tuple((number, 900 + offset, float(number)) for number in numbers))
        decoded = decoded_of([record])
        # A faulty writer sends other ids under the same pack id and hash.
        forged = replace(decoded, pack_id=np.array([9], np.uint64), id_hash=np.array([9], np.uint64))
        head.apply(forged, *positions_of([record]))
    got = samples_of(head.gather_raw(refs_of(head, range(4)), 0, 2000), range(4))
    assert got == {0: {900: 0.0, 902: 0.0}, 1: {900: 1.0, 902: 1.0}, 2: {901: 2.0}, 3: {901: 3.0}}


def test_the_last_of_equal_timestamps_within_one_record_wins() -> None:
    head = new_head(series=1)
    apply(head, [Record(0, 1000, ((0, 990, 1.0), (0, 990, 2.0), (0, 980, 3.0), (0, 990, -0.0)))])
    raw = head.gather_raw(refs_of(head, [0]), 0, 2000)
    assert raw.ts_ms.tolist() == [980, 990]
    assert np.signbit(raw.values[1])


def test_more_packs_than_the_cache_holds_are_still_resolved() -> None:
    head = new_head(series=30, limits=HeadLimits(pack_cache_refs_max=1))
    for offset in range(4000):
        numbers = (offset % 30, (offset + 1 + offset // 30 % 29) % 30)
        apply(head, [Record(offset, 1000, tuple((number, 1000, float(offset)) for number in numbers))])
    got = samples_of(head.gather_raw(refs_of(head, range(30)), 0, 2000), range(30))
    assert all(by_time == {1000: by_time[1000]} for by_time in got.values())
    assert len(got) == 30


def test_broker_times_days_apart_in_one_batch_do_not_pile_up_open_slices() -> None:
    head = new_head(series=1, hold_ms=1 << 40)
    records = [Record(n, 1000 + 100 * n, ((0, 1000 + 100 * n, float(n)),)) for n in range(500)]
    apply(head, records)
    assert head.contents.open.count < 30
    raw = head.gather_raw(refs_of(head, [0]), 0, 1 << 40)
    assert raw.values.tolist() == [float(n) for n in range(500)]
