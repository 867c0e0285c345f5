"""The ring keeps the newest records whole, and refuses a position that it has dropped."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.head.slices.ring import JOINED_PART, Ring
from tsdb.head.slices.rows import IGNORED_REF
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.errors import OutOfCoverage


def append(ring: Ring, first: int, sizes: list[int]) -> None:
    """Append records from offset `first` on, with `sizes` samples each; the value is the offset."""
    starts = np.cumsum([0, *sizes]).astype(np.int64)
    offsets = np.arange(first, first + len(sizes))
    refs = np.zeros(starts[-1], np.uint32)
    ring.append(first, offsets, starts, refs, np.repeat(offsets, sizes), np.repeat(offsets, sizes).astype(float))


def offsets_since(ring: Ring, record_offset: int) -> list[int]:
    batches = ring.since(record_offset)
    assert [batch.first_offset for batch in batches[1:]] == [batch.last_offset + 1 for batch in batches[:-1]]
    return [offset for batch in batches for offset in batch.offsets.tolist()]


def test_records_before_the_first_are_out_of_coverage_and_the_first_is_not() -> None:
    ring = Ring(100, since_offset=10)
    append(ring, 10, [1, 2])
    assert offsets_since(ring, 9) == [10, 11, 11]
    with pytest.raises(OutOfCoverage, match="after 9; requested those after 8") as caught:
        ring.since(8)
    assert caught.value.reason == "watch_ring"


def test_a_reader_resumes_behind_any_record() -> None:
    ring = Ring(1000, since_offset=0)
    for first in range(0, 60, 3):
        append(ring, first, [1, 2, 0])
    for at in range(-1, 60):
        want = [offset for offset in range(at + 1, 60) for _ in range((1, 2, 0)[offset % 3])]
        assert offsets_since(ring, at) == want


def test_the_oldest_records_go_first_and_only_whole() -> None:
    ring = Ring(160, since_offset=0)
    for offset in range(400):
        append(ring, offset, [3])
    oldest = next(at for at in range(-1, 400) if _held(ring, at))
    kept = offsets_since(ring, oldest)
    assert kept == [offset for offset in range(oldest + 1, 400) for _ in range(3)]
    assert 160 - 2 * 160 // JOINED_PART <= len(kept) <= 160
    assert len(ring.since(oldest)) < 60, "small batches are joined"


def test_a_batch_larger_than_the_ring_leaves_its_newest_records() -> None:
    ring = Ring(10, since_offset=0)
    append(ring, 0, [1])
    append(ring, 1, [4, 4, 4, 4])
    assert offsets_since(ring, 2) == [3] * 4 + [4] * 4
    with pytest.raises(OutOfCoverage):
        ring.since(1)


def test_a_record_larger_than_the_ring_is_passed_over_by_name() -> None:
    ring = Ring(10, since_offset=0)
    append(ring, 0, [11])
    with pytest.raises(OutOfCoverage):
        ring.since(-1)
    assert ring.since(0) == []


def test_samples_invisible_to_reads_are_not_followed() -> None:
    ring = Ring(10, since_offset=0)
    refs = np.array([NO_REF, 5, IGNORED_REF], np.uint32)
    ring.append(0, np.array([0]), np.array([0, 3]), refs, np.array([1, 2, 3]), np.array([1.0, 2.0, 3.0]))
    (batch,) = ring.since(-1)
    assert (batch.refs.tolist(), batch.ts_ms.tolist(), batch.values.tolist()) == ([5], [2], [2.0])


def _held(ring: Ring, record_offset: int) -> bool:
    try:
        ring.since(record_offset)
    except OutOfCoverage:
        return False
    return True
