"""The loop keeps to its grid, ends when told, and one batch holds what all sources measured."""

from __future__ import annotations

import numpy as np

from tsdb.cli.agent.loop import run
from tsdb.cli.agent.sample import Measured
from tsdb.client import RequestLimits, WriteBatch
from tsdb.model.clock import ManualClock


class Kept:
    def __init__(self) -> None:
        self.batches: list[WriteBatch] = []

    def put(self, batch: WriteBatch) -> None:
        self.batches.append(batch)


class Slow:
    """A source that takes as long as told, once each."""

    def __init__(self, clock: ManualClock, takes_ms: list[int]) -> None:
        self._clock = clock
        self._takes_ms = takes_ms
        self.times: list[int] = []

    def measure(self, now_ms: int) -> list[Measured]:
        self.times.append(now_ms)
        self._clock.advance(self._takes_ms.pop(0) if self._takes_ms else 0)
        return [Measured(b"__name__\xffx", now_ms, 1.0)]


def test_rounds_keep_to_the_grid_although_measuring_takes_time() -> None:
    clock, kept = ManualClock(5_000), Kept()
    source = Slow(clock, [300, 0, 900])
    assert run([source], kept, clock, interval_ms=1_000, duration_ms=5_000) == 5
    assert source.times == [5_000, 6_000, 7_000, 8_000, 9_000]
    assert clock.now_ms() == 9_000


def test_rounds_that_a_slow_source_made_impossible_are_left_out() -> None:
    clock, kept = ManualClock(0), Kept()
    source = Slow(clock, [2_500])
    run([source], kept, clock, interval_ms=1_000, duration_ms=5_000)
    assert source.times == [0, 3_000, 4_000]


def test_a_batch_holds_the_samples_of_all_sources() -> None:
    clock, kept = ManualClock(7), Kept()
    run([Slow(clock, []), Slow(clock, [])], kept, clock, interval_ms=1_000, duration_ms=1)
    [batch] = kept.batches
    [part] = batch.parts(RequestLimits())
    assert batch.samples == 2
    assert np.frombuffer(part.request.ts_ms, "<i8").tolist() == [7, 7]
