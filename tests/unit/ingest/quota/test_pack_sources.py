from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.quota.pack_sources import PackSources


class Places:
    """The source of row r is 100 + r; `asked`: rows that were placed."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        self.asked += rows.tolist()
        return (100 + rows).astype(np.uint32)


def sources(of: PackSources, packs: list[int], good: list[bool], places: Places) -> list[int]:
    found: list[int] = of.of(np.array(packs, np.uint64), np.array(good), places).tolist()
    return found


def test_a_pack_is_placed_once_and_bad_rows_never() -> None:
    of, places = PackSources(), Places()
    assert sources(of, [7, 9, 7, 5], [True, True, True, False], places) == [100, 101, 100, 0]
    assert sorted(places.asked) == [0, 1]
    assert sources(of, [9, 7], [True, True], places) == [101, 100]
    assert sorted(places.asked) == [0, 1]


def test_packs_over_the_bound_are_placed_again() -> None:
    of, places = PackSources(packs_max=10), Places()
    for first in range(0, 100, 5):
        packs = list(range(first, first + 5))
        assert sources(of, packs, [True] * 5, places) == [100, 101, 102, 103, 104]
        assert len(of) <= 10
