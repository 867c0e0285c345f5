from __future__ import annotations

import random

import numpy as np
import pytest

from ingest.limits import SeriesLimits
from ingest.series.active import ActiveSeries, keys_of
from tsdb.model.clock import ManualClock

WINDOW_MS = 1000


class Oracle:
    """(source, series) -> the window of its last announcement."""

    def __init__(self) -> None:
        self.announced: dict[tuple[int, int], int] = {}

    def active(self, window: int, source: int | None = None) -> int:
        return sum(last >= window - 1 for (of, _), last in self.announced.items() if source in (None, of))

    def is_active(self, key: tuple[int, int], window: int) -> bool:
        return self.announced.get(key, -2) >= window - 1


@pytest.mark.parametrize("seed", range(8))
def test_counts_and_refusals_are_those_of_an_oracle(seed: int) -> None:
    rng = random.Random(seed)
    clock, oracle, limits = ManualClock(0), Oracle(), SeriesLimits(30, 100, {2: 5})
    active = ActiveSeries(WINDOW_MS, clock)
    for _ in range(300):
        clock.advance(rng.choice((0, 10, 100, 700 if rng.random() < 0.2 else 50)))
        window = clock.now_ms() // WINDOW_MS
        asked = {(rng.randrange(5), rng.randrange(60)) for _ in range(rng.randrange(1, 12))}
        rows = [*asked, rng.choice(sorted(asked))]
        known = {key for key in asked if oracle.is_active(key, window)}
        source, series = zip(*rows, strict=True)
        keys = keys_of(np.array(source, np.uint32), np.array(series, np.uint64))
        whole = rng.random() < 0.3
        found = active.admit(keys, limits, whole=whole)
        admitted = {row for row, refused in zip(rows, found.refused, strict=True) if not refused}
        assert known <= admitted, "a known series was refused"
        for of in {source for source, _ in asked}:
            limit = limits.of_source.get(of, limits.source_series_max)
            room = max(0, limit - oracle.active(window, of))
            new = sum(key[0] == of and key not in known for key in asked)
            over = {row for row, refused in zip(rows, found.over_source, strict=True) if refused and row[0] == of}
            assert len(over) == max(0, new - room)
        total = oracle.active(window)
        assert len(admitted - known) <= 100 - total
        if not whole or len(admitted) == len(asked):
            oracle.announced.update(dict.fromkeys(admitted, window))
        assert len(active) == oracle.active(window)


@pytest.mark.slow
def test_a_million_series_take_at_most_24_bytes_each() -> None:
    clock = ManualClock(0)
    active = ActiveSeries(WINDOW_MS, clock)
    limits, rng = SeriesLimits(10**6, 10**7), np.random.default_rng(0)
    ids = rng.integers(0, 1 << 63, 1_000_000, np.int64).astype(np.uint64)
    source = (np.arange(len(ids)) % 1000).astype(np.uint32)
    for start in range(0, len(ids), 100_000):
        part = slice(start, start + 100_000)
        active.admit(keys_of(source[part], ids[part]), limits, whole=True)
    clock.advance(WINDOW_MS)
    active.renew(keys_of(source, ids))
    assert len(active) > 0.999 * len(ids)
    assert active.nbytes <= 24 * len(ids)
