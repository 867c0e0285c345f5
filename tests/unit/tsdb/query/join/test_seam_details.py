"""The seam of memory and history keeps the details of the sample that wins."""

from __future__ import annotations

import numpy as np

from support.data.heads import details_of
from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.details import same_details
from tsdb.query.join.seam import NO_SAMPLES, Seam, StoreSamples
from tsdb.query.reduction import Reduction

IDS = np.array([5, 9], np.uint64)
LABELS = [b"a", b"b"]


def memory(ts_ms: list[int], numbers: list[int], orders: list[int], counts: list[int]) -> StoreSamples:
    values = np.array(numbers, np.float64)
    times, ranks = np.array(ts_ms, np.int64), np.array(orders, np.int64)
    return StoreSamples(IDS, LABELS, np.array(counts, np.int64), times, values, ranks, details_of(numbers, values))


def history(ts_ms: list[int], numbers: list[int], orders: list[int], starts: list[int]) -> Fragment:
    values = np.array(numbers, np.float64)
    columns = np.array(ts_ms, np.int64), values, np.array(orders, np.int64)
    return Fragment(1, 0, IDS, np.array(starts, np.int64), *columns, details_of(numbers, values))


def test_the_details_are_those_of_the_higher_order() -> None:
    # Series 5 has 10 in both, history's newer; 20 in both, memory's newer; series 9 has a float over a histogram.
    held = memory([10, 20, 30, 10], [8, 7, 1, 0], [3, 9, -1, 50], [3, 1])
    seam = Seam(held, Reduction(0))
    seam.add(history([10, 20, 5, 10], [5, 6, 3, 8], [4, 8, 2, 40], [0, 2, 4]))
    found = seam.result(IDS, NO_SAMPLES)
    assert found.counts.tolist() == [3, 2]
    assert found.ts_ms.tolist() == [10, 20, 30, 5, 10]
    wanted = [5, 7, 1, 3, 0]
    assert found.values.tolist() == [float(number) for number in wanted]
    assert same_details(found.details, details_of(wanted, found.values))


def test_samples_of_one_side_keep_their_details() -> None:
    held = memory([10, 20], [8, 7], [-1, -1], [2, 0])
    seam = Seam(held.since(15), Reduction(0))
    found = seam.result(IDS, NO_SAMPLES)
    assert found.ts_ms.tolist() == [20]
    assert same_details(found.details, details_of([7], found.values))
    other = Seam(NO_SAMPLES, Reduction(0))
    other.add(history([10, 20], [8, 1], [4, 4], [0, 1, 2]))
    joined = other.result(IDS, NO_SAMPLES)
    assert same_details(joined.details, details_of([8, 1], joined.values))
