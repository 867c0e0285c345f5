"""Details of samples in a head: memory, limits, series that are forgotten, and reads that cannot show them."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from support.data.heads import Record, apply, details_of, new_head, refs_of, register
from tsdb.head.details import HeadDetails
from tsdb.head.gather_many import ManyRefs, snapshot_many
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.details import same_details
from tsdb.model.errors import InvalidRequest, Overloaded

HISTOGRAM, START = 8, 1  # Numbers of details: a histogram without, and a float with a start timestamp.


def record(offset: int, number: int, kind: int, broker_ms: int | None = None) -> Record:
    ts_ms = 100 + offset if broker_ms is None else broker_ms
    return Record(offset, ts_ms, ((number, ts_ms, float(kind)),), details=(kind,) if kind else ())


def test_a_head_of_floats_has_no_details() -> None:
    head = new_head(series=2)
    apply(head, [record(0, 0, 0), record(1, 1, 0)])
    details = head.contents.details
    assert (details.is_used, details.bytes, details.view_locked(), details.image()) == (False, 0, None, ())
    snapshot = snapshot_many([head], ManyRefs.of([refs_of(head, [0, 1])]), 0, 1000)
    assert snapshot.details is None


def test_a_later_float_replaces_a_histogram_of_its_time() -> None:
    head = new_head(series=2)
    apply(head, [record(0, 0, HISTOGRAM, 100), record(1, 0, 0, 100), record(2, 1, HISTOGRAM, 100)])
    found = head.gather_raw(refs_of(head, [0, 1]), 0, 1000)
    assert found.values.tolist() == [0.0, float(HISTOGRAM)]
    assert same_details(found.details, details_of([0, HISTOGRAM], found.values))


def test_columns_of_several_heads_come_with_the_samples_that_have_details() -> None:
    heads = [new_head(partition, series=3) for partition in range(2)]
    apply(heads[0], [record(0, 0, 0), record(1, 1, HISTOGRAM), record(2, 2, START)])
    refs = ManyRefs.of([refs_of(head, [0, 1, 2]) for head in heads])
    found = snapshot_many(heads, refs, 0, 1000).detailed(refs, 0, 1000)
    assert found is not None
    assert found.counts.tolist() == [0, 1, 1, 0, 0, 0]
    assert same_details(found.details, details_of([HISTOGRAM, START], found.values))
    assert snapshot_many(heads, refs, 0, 1000).detailed(refs, 500, 1000) is None


def test_a_read_reserves_memory_before_it_copies_details() -> None:
    head = new_head(series=1)
    apply(head, [record(offset, 0, HISTOGRAM) for offset in range(50)])
    reserved: list[int] = []
    found = head.gather_raw(refs_of(head, [0]), 0, 1000, admit=reserved.append)
    assert max(reserved) >= found.payload_bytes

    def refuse(size: int) -> None:
        if size > 10_000:
            raise Overloaded("full", reason="memory")

    view = head.contents.details.view_locked()
    assert view is not None
    with pytest.raises(Overloaded):
        view.of(refs_of(head, [0]), 0, 1000, refuse)


@pytest.mark.parametrize("columns", [False, True])
def test_steps_of_histograms_are_refused_by_name(columns: bool) -> None:
    head = new_head(series=2)
    apply(head, [record(0, 0, HISTOGRAM), record(1, 1, START)])
    if columns:
        head.maintain()
    with pytest.raises(InvalidRequest, match="native histograms") as refused:
        head.gather_raw(refs_of(head, [0, 1]), 0, 1000, step_ms=10, aggregation=1)
    assert refused.value.reason == "native_histograms"
    stepped = head.gather_raw(refs_of(head, [1]), 0, 1000, step_ms=10, aggregation=1)
    assert (stepped.samples, stepped.details) == (1, None)


def test_histograms_count_in_the_memory_of_the_head_and_its_limit() -> None:
    head = new_head(series=1)
    before = head.memory.bytes
    apply(head, [record(offset, 0, HISTOGRAM) for offset in range(100)])
    plain = new_head(series=1)
    apply(plain, [record(offset, 0, 0) for offset in range(100)])
    view = head.contents.details.view_locked()
    assert view is not None
    columns = view.of(refs_of(head, [0]), 0, 1000)
    assert columns is not None
    assert columns.details is not None
    assert head.memory.bytes - before - (plain.memory.bytes - before) >= columns.details.nbytes
    small = new_head(series=1, limits=HeadLimits(memory_hard_bytes=before + 20_000))
    for offset in range(3):
        apply(small, [record(offset, 0, HISTOGRAM)])
    with pytest.raises(Overloaded, match="memory_hard"):
        _fill(small)


def _fill(head: Head) -> None:
    for offset in range(10, 10_000):
        apply(head, [record(offset, 0, HISTOGRAM, 100 + offset % 7)] * 1)
        head.memory.check_samples()


def test_entries_go_with_the_samples_that_a_head_drops() -> None:
    details = HeadDetails(40)
    refs, ts_ms = np.array([0, 0, 1, 1], np.uint32), np.array([5, 45, 6, 50], np.int64)
    orders = np.array([1, 2, 3, 4], np.int64)
    values = np.array([8.0, 8.0, 1.0, 1.0])
    details.add_locked(refs, ts_ms, values, orders, details_of([8, 8, 1, 1], values))
    whole = details.bytes
    details.drop_locked(40, 3)
    view = details.view_locked()
    assert view is not None
    found = view.of(np.array([1, 0], np.uint32), 0, 100)
    assert found is not None
    assert (found.counts.tolist(), found.ts_ms.tolist()) == ([2, 1], [6, 50, 45])
    assert 0 < details.bytes < whole
    details.drop_locked(1000, 100)
    assert (details.bytes, details.view_locked()) == (0, None)


def test_a_series_that_takes_the_ref_of_a_forgotten_one_has_no_details() -> None:
    details = HeadDetails(40)
    refs = np.array([3], np.uint32)
    details.add_locked(refs, np.array([5]), np.array([8.0]), np.array([1]), details_of([8], np.array([8.0])))
    details.drop_locked(1000, 100)
    details.forget_locked(refs)
    details.add_locked(refs, np.array([2000]), np.array([1.0]), np.array([200]), None)
    assert (details.bytes, details.view_locked()) == (0, None)


def test_a_head_that_grows_keeps_the_details_of_new_series() -> None:
    head = new_head(series=1)
    apply(head, [record(0, 0, HISTOGRAM)])
    register(head, range(1, 40))
    apply(head, [record(offset, offset, HISTOGRAM) for offset in range(1, 40)])
    found = head.gather_raw(refs_of(head, range(40)), 0, 1000)
    assert same_details(found.details, details_of([HISTOGRAM] * 40, found.values))


def test_packed_entries_are_small_and_take_late_samples() -> None:
    """3,000 samples of 6 series are more than a block."""
    details, plain = HeadDetails(10_000), HeadDetails(10_000)
    refs = np.tile(np.arange(6, dtype=np.uint32), 500)
    ts_ms = np.repeat(np.arange(500), 6) * 10
    numbers = (np.arange(3000) // 6 % 7 + 2).tolist()
    values = np.array(numbers, np.float64)
    for one in (details, plain):
        one.add_locked(refs, ts_ms, values, np.arange(3000), details_of(numbers, values))
    before = details.bytes
    details.pack(9_999, nullcontext())
    assert details.bytes == before, "the stretch still takes samples"
    details.pack(10_000, nullcontext())
    assert details.bytes == before, "more late samples may come"
    details.pack(10_000, nullcontext())
    assert details.bytes < before / 2
    assert details.bytes == sum(bucket.nbytes for bucket in details.image())
    late = np.array([3, 5], np.uint32), np.array([20, 25]), np.array([9.0, 0.0]), np.array([4000, 4001])
    for one in (details, plain):
        one.add_locked(*late, details_of([9, 0], late[2]))
    wanted = np.array([5, 3, 0], np.uint32)
    for start_ms, end_ms in ((0, 10_000), (15, 30), (4_000, 4_100)):
        found, same = (one.view_locked() for one in (details, plain))
        assert found is not None
        assert same is not None
        packed, unpacked = found.of(wanted, start_ms, end_ms), same.of(wanted, start_ms, end_ms)
        assert packed is not None
        assert unpacked is not None
        assert packed.counts.tolist() == unpacked.counts.tolist()
        assert packed.ts_ms.tolist() == unpacked.ts_ms.tolist()
        assert same_details(packed.details, unpacked.details)
    details.drop_locked(10_000, 4_001)
    (left,) = details.image()
    assert (left.whole().refs.tolist(), left.whole().ts_ms.tolist()) == ([5], [25])


def test_a_stretch_that_takes_late_samples_in_each_round_is_packed_once_they_end() -> None:
    details, lock = HeadDetails(10_000), nullcontext()
    for number in range(5):
        rows = np.array([number]), np.array([float(number)]), np.array([number])
        details.add_locked(np.zeros(1, np.uint32), *rows, details_of([number + 2], rows[1]))
        details.pack(10_000, lock)
        (bucket,) = details.image()
        assert not bucket.is_packed
    details.pack(10_000, lock)
    (bucket,) = details.image()
    assert bucket.is_packed
    assert bucket.whole().ts_ms.tolist() == list(range(5))
