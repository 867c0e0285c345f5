"""Fragments for tests of codecs, and their comparison bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from support.data.column_cases import STALE, value_columns
from tsdb.codec.chunk.chunk import Fragment

WINDOW_MS = 4 * 3600 * 1000
START_MS = 118_000 * WINDOW_MS
MINUTE_MS = 60_000

Series = tuple[int, ArrayLike, ArrayLike, ArrayLike]
"""(series id, ts_ms, values, orders)."""


def fragment(series: Sequence[Series], *, pack_id: int = 7, start_ms: int = START_MS) -> Fragment:
    """A fragment of these series. They must ascend by id."""
    lengths = [np.size(ts_ms) for _, ts_ms, _, _ in series]
    return Fragment(
        pack_id,
        start_ms,
        np.array([number for number, _, _, _ in series], np.uint64),
        np.cumsum([0, *lengths]).astype(np.int64),
        np.concatenate([np.array(ts_ms, np.int64) for _, ts_ms, _, _ in series]),
        np.concatenate([np.array(values, np.float64) for _, _, values, _ in series]),
        np.concatenate([np.array(orders, np.int64) for _, _, _, orders in series]),
    )


def fragments() -> dict[str, Fragment]:
    """Name -> fragment, the same on every machine."""
    columns = value_columns(60)
    grid = START_MS + MINUTE_MS * np.arange(60)
    rng = np.random.Generator(np.random.PCG64(11))
    jittered = grid + rng.integers(0, 40, 60)
    base = [9_000_000_000] * 60
    names = ["counter", "zeros", "noise", "gauge_decimals"]
    return {
        "one_sample": fragment([(1, [START_MS], [STALE], [0])]),
        "ends_of_window": fragment([(2**64 - 1, [START_MS, START_MS + WINDOW_MS - 1], [0.0, -0.0], [5, 5])]),
        "base_one_axis": fragment([(i + 1, grid, columns[name], base) for i, name in enumerate(names)]),
        "base_many_axes": fragment(
            [
                (
                    i * 2**61,
                    (grid, jittered, grid[::2])[i % 3],
                    columns["counter"][:: 1 + (i % 3) // 2],
                    base[:: 1 + (i % 3) // 2],
                )
                for i in range(6)
            ]
        ),
        "late": fragment(
            [(3, grid[:4], [1.0, 2.0, 3.0, 4.0], [40, 41, 41, 7]), (4, grid[1:3], [0.5, 0.25], [7, 2**53])]
        ),
        "before_1970": fragment([(5, [-WINDOW_MS, -1], [1.0, 2.0], [1, 1])], start_ms=-WINDOW_MS),
    }


def assert_same(got: Fragment, want: Fragment) -> None:
    """Assert that two fragments are equal, values by their bits."""
    assert (got.pack_id, got.window_start_ms) == (want.pack_id, want.window_start_ms)
    for left, right in zip(arrays(got), arrays(want), strict=True):
        np.testing.assert_array_equal(left, right)


def arrays(of: Fragment) -> tuple[NDArray[np.generic], ...]:
    """The columns, values as int64."""
    return of.series_id, of.sample_start, of.ts_ms, of.value.view(np.int64), of.order


def samples_of(parts: Sequence[Fragment]) -> dict[tuple[int, int], tuple[int, int]]:
    """(series id, ts_ms) -> (bits of the value, order) of all parts; no sample is in two."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for each in parts:
        ids = np.repeat(each.series_id, np.diff(each.sample_start)).tolist()
        samples = zip(each.value.view(np.int64).tolist(), each.order.tolist(), strict=True)
        before = len(found)
        found.update(zip(zip(ids, each.ts_ms.tolist(), strict=True), samples, strict=True))
        assert len(found) == before + each.samples, "a sample is in two parts"
    return found
